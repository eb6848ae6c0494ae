//! What a person may ask of a model besides an answer.

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// How a model is to be asked, beyond the conversation.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ModelSettings {
    /// How hard it should think; `None` leaves the provider's own default.
    pub effort: Option<ReasoningEffort>,
    /// The shape its final text must have; `None` leaves it free.
    pub format: Option<OutputFormat>,
}

/// How hard a model should think before it answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ReasoningEffort {
    /// As little as possible.
    Low,
    /// Some.
    Medium,
    /// Much.
    High,
    /// As much as the provider allows.
    Max,
}

/// The JSON that a final text must be.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct OutputFormat {
    /// A name for the shape; some providers want one.
    pub name: String,
    /// Its JSON schema.
    pub schema: Value,
}
