//! The wire format of Anthropic Messages.

mod request;
mod stream;

pub(super) use request::{append, close, open};
pub(super) use stream::AnthropicStream;
pub(crate) use stream::{AnthropicUsage, stop_reason};
