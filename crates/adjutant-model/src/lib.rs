//! The Model trait and the models behind it: the providers', a scripted and a recorded one.
//!
//! A [`Model`] runs one turn and says what came of it. It does not retry, count budgets or run
//! tools: the engine does. It reads no environment and no file but scripts and recordings: keys and
//! addresses are handed in. Start at [`Model::turn`] and [`open_model`]; the models without a
//! provider are [`ScriptedModel`] and [`ReplayModel`].

pub mod catalogue;
mod errors;
pub mod estimate;
mod http;
mod limiter;
mod model;
mod provider;
mod record;
mod retry_after;
mod script;
mod settings;
mod sse;
pub mod wire;

pub use adjutant_core::Secret;
pub use catalogue::catalogue;
pub use http::HttpTimeouts;
pub use model::{BoxFuture, Model, TurnProgress, TurnRequest};
pub use provider::{ModelSources, OpenModelError, ProviderConfig, open_model, open_model_with};
pub use record::{RecordError, Recorder, ReplayError, ReplayModel};
pub use script::{ScriptError, ScriptPosition, ScriptedModel};
pub use settings::{ModelSettings, OutputFormat, ReasoningEffort};
