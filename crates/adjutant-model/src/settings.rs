//! Optional settings for the requests to a model.

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// Settings that apply to every request to a model.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ModelSettings {
    /// The reasoning effort; `None` uses the provider's default.
    pub effort: Option<ReasoningEffort>,
    /// The required format of the final text; `None` for free text.
    pub format: Option<OutputFormat>,
}

/// How much a model should reason before it answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ReasoningEffort {
    /// Low effort.
    Low,
    /// Medium effort.
    Medium,
    /// High effort.
    High,
    /// The maximum that the provider supports.
    Max,
}

/// A JSON format for the final text.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct OutputFormat {
    /// The name of the format, required by some providers.
    pub name: String,
    /// Its JSON schema.
    pub schema: Value,
}
