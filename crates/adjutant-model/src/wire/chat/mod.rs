//! OpenAI Chat Completions, and every server that speaks it.

mod reasoning;
mod request;
mod stream;

pub(super) use request::{append, close, open, word};
pub(super) use stream::ChatStream;
