//! The wire format of Gemini `generateContent`.

mod request;
mod stream;

pub(super) use request::{append, close, open};
pub(super) use stream::GeminiStream;
pub(crate) use stream::{GeminiUsage, PromptFeedback, stop_reason};
