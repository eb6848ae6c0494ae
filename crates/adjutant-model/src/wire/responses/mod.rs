//! The wire format of OpenAI Responses.

mod request;
mod stream;

pub(super) use request::{append, close, open};
pub(super) use stream::ResponsesStream;
