//! The wire format of OpenAI Chat Completions, which many other servers support.

mod reasoning;
mod request;
mod stream;

pub(super) use request::{append, close, open, word};
pub(super) use stream::ChatStream;
pub(crate) use stream::{ChatContent, ChatUsage, stop_reason};
