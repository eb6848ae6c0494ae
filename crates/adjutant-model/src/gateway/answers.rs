//! Bodies that the gateway writes itself: lists of models, and refusals.

use bytes::Bytes;
use serde_json::{Value, json};

use crate::wire::Wire;

/// A model in a list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListedModel {
    /// The name under which the agent may ask for it.
    pub name: String,
    /// The size of its context window in tokens.
    pub context_window: u64,
    /// Its maximum output in tokens.
    pub max_output: u64,
}

/// The release date of every listed model; agents need some valid date, and none of them uses it.
const CREATED: (u64, &str) = (1_735_689_600, "2025-01-01T00:00:00Z");

/// Returns the list of the models that an agent may use.
///
/// Anthropic and OpenAI have the same path for it, so the body satisfies both.
#[must_use]
pub fn model_list_body(wire: Wire, models: &[ListedModel]) -> Bytes {
    let entries: Vec<Value> = models.iter().map(|model| model_entry(wire, model)).collect();
    body(&match wire {
        Wire::Anthropic | Wire::Chat | Wire::Responses => json!({
            "object": "list",
            "data": entries,
            "has_more": false,
            "first_id": models.first().map(|model| &model.name),
            "last_id": models.last().map(|model| &model.name),
        }),
        Wire::Gemini => json!({ "models": entries }),
    })
}

/// Returns the description of one model.
#[must_use]
pub fn model_body(wire: Wire, model: &ListedModel) -> Bytes {
    body(&model_entry(wire, model))
}

fn model_entry(wire: Wire, model: &ListedModel) -> Value {
    let name = &model.name;
    let (created, created_at) = CREATED;
    match wire {
        Wire::Anthropic | Wire::Chat | Wire::Responses => json!({
            "id": name,
            "object": "model",
            "type": "model",
            "display_name": name,
            "created": created,
            "created_at": created_at,
            "owned_by": "adjutant",
            "max_input_tokens": model.context_window,
            "max_tokens": model.max_output,
        }),
        Wire::Gemini => json!({
            "name": format!("models/{name}"),
            "baseModelId": name,
            "version": "1",
            "displayName": name,
            "inputTokenLimit": model.context_window,
            "outputTokenLimit": model.max_output,
            "supportedGenerationMethods": ["generateContent", "streamGenerateContent"],
        }),
    }
}

/// Returns the error body for a request that the gateway refuses with HTTP status `status`.
///
/// Use 402: no agent retries it, and all of them show the message.
#[must_use]
pub fn refusal_body(wire: Wire, status: u16, reason: &str) -> Bytes {
    let message = format!("adjutant: {reason}");
    body(&match wire {
        Wire::Anthropic => json!({
            "type": "error",
            "error": { "type": "invalid_request_error", "message": message },
        }),
        Wire::Chat | Wire::Responses => json!({
            "error": {
                "message": message,
                "type": "invalid_request_error",
                "param": null,
                "code": "refused_by_adjutant",
            },
        }),
        Wire::Gemini => json!({
            "error": { "code": status, "message": message, "status": "FAILED_PRECONDITION" },
        }),
    })
}

fn body(value: &Value) -> Bytes {
    Bytes::from(value.to_string())
}
