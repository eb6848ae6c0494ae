//! The Model trait and the models behind it; for now the scripted one.
//!
//! A [`Model`] runs one turn and says what came of it. It does not retry, count budgets or run
//! tools: the engine does. Start at [`Model::turn`]; the model without a provider is
//! [`ScriptedModel`].

pub mod estimate;
mod model;
mod script;

pub use model::{BoxFuture, Model, Progress, TurnRequest};
pub use script::{Place, ScriptError, ScriptSummary, ScriptedModel};
