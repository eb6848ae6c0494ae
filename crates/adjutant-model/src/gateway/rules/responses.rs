//! What a Responses request may contain.

use serde_json::{Map, Value};

use super::openai::{RemovedTool, check_tier, check_tool_choice};
use super::{Removals, items, present, refuse_remote, word};
use crate::gateway::problem::RequestProblem;

/// Fields that refer to something that the provider has stored.
const STORED: [&str; 3] = ["previous_response_id", "conversation", "prompt"];

pub(super) fn check(
    body: &mut Map<String, Value>,
    removed: &mut Removals,
) -> Result<(), RequestProblem> {
    for field in STORED {
        if present(body, field).is_some() {
            return Err(RequestProblem::StoredConversation { field: field.to_owned() });
        }
    }
    if present(body, "background").is_some_and(|value| value != &Value::Bool(false)) {
        return Err(RequestProblem::Background);
    }
    check_tier(body, removed)?;
    // Compaction samples a second time, without a limit.
    removed.remove_fields(body, &["context_management"]);
    if body.get("store") == Some(&Value::Bool(true)) {
        removed.record("store");
    }
    // Responses are stored unless the request says otherwise.
    body.insert("store".to_owned(), Value::Bool(false));
    for item in items(body.get("input")) {
        check_item(item)?;
    }
    filter_tools(body, removed)
}

fn check_item(item: &Value) -> Result<(), RequestProblem> {
    if word(item, "type") == "item_reference" {
        let field = "item_reference".to_owned();
        return Err(RequestProblem::StoredConversation { field });
    }
    // Messages have their parts in `content`, results of tools in `output`.
    for field in ["content", "output"] {
        match item.get(field) {
            Some(part @ Value::Object(_)) => check_part(part)?,
            parts => items(parts).try_for_each(check_part)?,
        }
    }
    Ok(())
}

/// Refuses images and files that are not part of the request.
fn check_part(part: &Value) -> Result<(), RequestProblem> {
    if !matches!(word(part, "type"), "input_image" | "input_file" | "computer_screenshot") {
        return Ok(());
    }
    ["image_url", "file_url", "file_id"]
        .into_iter()
        .try_for_each(|field| refuse_remote(part.get(field).unwrap_or(&Value::Null), field))
}

/// Returns whether a tool of this type may run at the agent.
fn is_client_type(kind: &str) -> bool {
    matches!(
        kind,
        "function"
            | "custom"
            | "local_shell"
            | "shell"
            | "apply_patch"
            | "namespace"
            | "tool_search"
    )
}

fn filter_tools(
    body: &mut Map<String, Value>,
    removed: &mut Removals,
) -> Result<(), RequestProblem> {
    let mut filter = ToolFilter { removed, removed_tools: Vec::new() };
    let mut has_tools = false;
    match body.get_mut("tools") {
        Some(Value::Array(tools)) => {
            filter.retain(tools);
            has_tools = !tools.is_empty();
        }
        Some(_) | None => filter.removed.remove_fields(body, &["tools"]),
    }
    // Items of the conversation may bring further tools.
    for item in body.get_mut("input").and_then(Value::as_array_mut).into_iter().flatten() {
        if let Some(Value::Array(tools)) = item.get_mut("tools") {
            filter.retain(tools);
            has_tools |= !tools.is_empty();
        }
    }
    let removed_tools = filter.removed_tools;
    check_tool_choice(body, &removed_tools, has_tools, is_client_type)
}

struct ToolFilter<'r> {
    removed: &'r mut Removals,
    removed_tools: Vec<RemovedTool>,
}

impl ToolFilter<'_> {
    /// Keeps the tools that the agent runs.
    fn retain(&mut self, tools: &mut Vec<Value>) {
        let mut searches = false;
        tools.retain_mut(|tool| {
            if self.is_kept(tool) {
                return true;
            }
            let kind = match word(tool, "type") {
                "" => "unknown tool",
                kind => kind,
            };
            searches |= kind == "tool_search";
            self.removed.record(kind);
            self.removed_tools.push(RemovedTool::new(kind, tool));
            false
        });
        if searches {
            // Without the search, a deferred tool would never be loaded.
            tools.iter_mut().for_each(load_at_once);
        }
    }

    fn is_kept(&mut self, tool: &mut Value) -> bool {
        match word(tool, "type") {
            "function" | "custom" | "local_shell" | "apply_patch" => true,
            "shell" => tool.get("environment").is_some_and(|place| word(place, "type") == "local"),
            "tool_search" => word(tool, "execution") == "client",
            "namespace" => match tool.get_mut("tools") {
                Some(Value::Array(tools)) => {
                    self.retain(tools);
                    !tools.is_empty()
                }
                Some(_) | None => false,
            },
            _ => false,
        }
    }
}

fn load_at_once(tool: &mut Value) {
    let Some(tool) = tool.as_object_mut() else { return };
    tool.shift_remove("defer_loading");
    let inner = tool.get_mut("tools").and_then(Value::as_array_mut);
    inner.into_iter().flatten().for_each(load_at_once);
}
