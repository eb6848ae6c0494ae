//! The wire format of OpenAI Responses.

mod request;
mod stream;

pub(super) use request::{append, close, open};
pub(super) use stream::ResponsesStream;
pub(crate) use stream::{IncompleteDetails, ResponsesUsage, incomplete_stop_reason};
