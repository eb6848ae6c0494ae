//! Optional settings for the requests to a model.

pub use adjutant_core::ReasoningEffort;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// Settings that apply to every request to a model.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ModelSettings {
    /// The reasoning effort that [`ModelSpec::effort`](adjutant_core::ModelSpec::effort) names for agents
    /// without their own; `None` uses the provider's default.
    pub effort: Option<ReasoningEffort>,
    /// The required format of the final text; `None` for free text.
    pub format: Option<OutputFormat>,
}

/// A JSON format for the final text.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct OutputFormat {
    /// The name of the format, required by some providers.
    pub name: String,
    /// Its JSON schema.
    pub schema: Value,
}
