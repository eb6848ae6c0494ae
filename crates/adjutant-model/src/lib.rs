//! The Model trait and the models behind it; for now the scripted one.
//!
//! A [`Model`] runs one turn and says what came of it. It does not retry, count budgets or run
//! tools: the engine does. Start at [`Model::turn`]; the model without a provider is
//! [`ScriptedModel`].

mod errors;
pub mod estimate;
mod http;
mod limiter;
mod model;
mod retry_after;
mod script;
mod secret;
mod settings;
mod sse;
pub mod wire;

pub use model::{BoxFuture, Model, Progress, TurnRequest};
pub use http::Timeouts;
pub use script::{Place, ScriptError, ScriptSummary, ScriptedModel};
pub use secret::Secret;
pub use settings::{Effort, Format, Settings};
