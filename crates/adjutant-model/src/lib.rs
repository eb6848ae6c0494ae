//! The `Model` trait and its implementations: provider clients, a scripted model and a replayed recording.
//!
//! A [`Model`] runs one turn and returns the result. It does not retry, track budgets or run tools: the
//! engine does. It reads no environment variables and no files except scripts and recordings: keys and
//! addresses are passed in. Start at [`Model::turn`] and [`open_model`]; the models without a provider are
//! [`ScriptedModel`] and [`ReplayModel`].

pub mod catalogue;
mod errors;
pub mod estimate;
pub mod gateway;
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
