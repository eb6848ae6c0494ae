//! What the two APIs of OpenAI have in common: service tiers, and the choice of a tool.

use serde_json::{Map, Value, json};

use super::{Removals, present, refuse_other_tier, required_tool, word};
use crate::gateway::problem::RequestProblem;

/// Checks the service tier; `auto` may use a tier that the project prefers, so the default one is asked for.
pub(super) fn check_tier(
    body: &mut Map<String, Value>,
    removed: &mut Removals,
) -> Result<(), RequestProblem> {
    let Some(tier) = present(body, "service_tier") else { return Ok(()) };
    refuse_other_tier("service_tier", tier, &["auto", "default"])?;
    if tier == "auto" {
        removed.record("service_tier auto");
        body.insert("service_tier".to_owned(), json!("default"));
    }
    Ok(())
}

/// A tool that was removed from a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct RemovedTool {
    pub(super) kind: String,
    pub(super) name: String,
}

impl RemovedTool {
    pub(super) fn new(kind: &str, tool: &Value) -> Self {
        Self { kind: kind.to_owned(), name: word(tool, "name").to_owned() }
    }

    /// Returns whether a tool choice, or an entry of allowed tools, means this tool.
    fn is_meant_by(&self, choice: &Value) -> bool {
        let name = word(choice, "name");
        word(choice, "type") == self.kind || (!name.is_empty() && name == self.name)
    }
}

/// Adapts the choice of a tool after tools were removed, or refuses the request if it requires one of them.
///
/// `is_client_type` says which types of tools may be chosen, and `has_tools` whether any tool is left.
pub(super) fn check_tool_choice(
    body: &mut Map<String, Value>,
    removed_tools: &[RemovedTool],
    has_tools: bool,
    is_client_type: fn(&str) -> bool,
) -> Result<(), RequestProblem> {
    let meant = |choice: &Value| -> Option<String> {
        let kind = word(choice, "type");
        if !kind.is_empty() && !is_client_type(kind) {
            return Some(kind.to_owned());
        }
        let tool = removed_tools.iter().find(|tool| tool.is_meant_by(choice));
        tool.map(|tool| tool.kind.clone())
    };
    let first = removed_tools.first().map_or("tool", |tool| tool.kind.as_str());
    match body.get_mut("tool_choice") {
        Some(Value::String(choice)) => {
            if choice == "required" && !has_tools && !removed_tools.is_empty() {
                return Err(required_tool(first));
            }
        }
        Some(choice @ Value::Object(_)) if word(choice, "type") == "allowed_tools" => {
            // Chat has the list one level deeper than Responses.
            let inner = if choice.get("allowed_tools").is_some() { "/allowed_tools" } else { "" };
            let mode = choice.pointer(&format!("{inner}/mode")).and_then(Value::as_str);
            let is_required = mode == Some("required");
            let Some(Value::Array(allowed)) = choice.pointer_mut(&format!("{inner}/tools")) else {
                return Ok(());
            };
            let before = allowed.len();
            allowed.retain(|tool| meant(tool).is_none());
            if allowed.is_empty() && before > 0 {
                if is_required {
                    return Err(required_tool(first));
                }
                *choice = json!("none");
            }
        }
        Some(choice @ Value::Object(_)) => {
            if let Some(tool) = meant(choice) {
                return Err(required_tool(&tool));
            }
        }
        Some(Value::Null | Value::Bool(_) | Value::Number(_) | Value::Array(_)) | None => {}
    }
    if !has_tools && !removed_tools.is_empty() {
        // These fields are refused without tools.
        for field in ["tools", "tool_choice", "parallel_tool_calls"] {
            body.shift_remove(field);
        }
    }
    Ok(())
}
