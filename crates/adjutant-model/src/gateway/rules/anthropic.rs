//! What a Messages request may contain.
//!
//! Tool search is removed too: the provider samples again after each search and bills the input again, so one
//! request would cost more than its size. The tools that it would have found are then sent in full.

use serde_json::{Map, Value, json};

use super::{OutputCap, Removals, items, present, refuse_other_tier, required_tool, word};
use crate::gateway::problem::RequestProblem;

/// The tools whose schema Anthropic defines and which the agent runs, by the beginning of their types. A date
/// follows.
const CLIENT_TOOLS: [&str; 4] = ["bash_", "text_editor_", "computer_", "memory_"];

/// The smallest thinking budget that the API accepts.
const LEAST_THINKING: u64 = 1_024;

/// Fields that give the provider's tools servers and files, or that let another model answer.
const REMOVED_FIELDS: [&str; 4] = ["mcp_servers", "container", "betas", "fallbacks"];

pub(super) fn check(
    body: &mut Map<String, Value>,
    removed: &mut Removals,
) -> Result<(), RequestProblem> {
    removed.remove_fields(body, &REMOVED_FIELDS);
    check_prices(body, removed)?;
    remove_compaction(body, removed);
    for message in items(body.get("messages")) {
        check_content(message.get("content"))?;
    }
    remove_long_caches(body, removed);
    filter_tools(body, removed)
}

fn check_prices(
    body: &mut Map<String, Value>,
    removed: &mut Removals,
) -> Result<(), RequestProblem> {
    if let Some(tier) = present(body, "service_tier") {
        refuse_other_tier("service_tier", tier, &["auto", "standard_only"])?;
        // `auto` may use another tier.
        if tier == "auto" {
            removed.record("service_tier auto");
            body.insert("service_tier".to_owned(), json!("standard_only"));
        }
    }
    if let Some(speed) = present(body, "speed") {
        refuse_other_tier("speed", speed, &["standard"])?;
    }
    // Inference in one region costs more.
    if let Some(region) = present(body, "inference_geo") {
        refuse_other_tier("inference_geo", region, &["global"])?;
    }
    Ok(())
}

/// Removes the compaction of the conversation, a second sampling that the reported usage does not contain.
fn remove_compaction(body: &mut Map<String, Value>, removed: &mut Removals) {
    let edits = body.get_mut("context_management").and_then(|value| value.get_mut("edits"));
    let Some(Value::Array(edits)) = edits else { return };
    let before = edits.len();
    edits.retain(|edit| !word(edit, "type").starts_with("compact"));
    if edits.len() == before {
        return;
    }
    removed.record("compaction");
    if edits.is_empty() {
        body.shift_remove("context_management");
    }
}

/// Refuses images and documents that are not part of the request.
fn check_content(content: Option<&Value>) -> Result<(), RequestProblem> {
    let remote = |field: &str| RequestProblem::RemoteContent { field: field.to_owned() };
    for block in items(content) {
        match word(block, "type") {
            "container_upload" => return Err(remote("container_upload")),
            "tool_result" => check_content(block.get("content"))?,
            _ => {}
        }
        let Some(source) = block.get("source") else { continue };
        match word(source, "type") {
            "url" => return Err(remote("url")),
            "file" => return Err(remote("file_id")),
            // A document may consist of blocks.
            "content" => check_content(source.get("content"))?,
            _ => {}
        }
        for field in ["url", "file_id"] {
            if source.get(field).is_some_and(|value| !value.is_null()) {
                return Err(remote(field));
            }
        }
    }
    Ok(())
}

/// Removes cache lifetimes of an hour: writing to such a cache costs more than the price that is reserved.
fn remove_long_caches(body: &mut Map<String, Value>, removed: &mut Removals) {
    let mut found = remove_ttl(body);
    for list in ["system", "tools"] {
        found |= remove_content_ttl(body.get_mut(list));
    }
    for message in body.get_mut("messages").and_then(Value::as_array_mut).into_iter().flatten() {
        found |= remove_content_ttl(message.get_mut("content"));
    }
    if found {
        removed.record("cache_control ttl");
    }
}

fn remove_content_ttl(content: Option<&mut Value>) -> bool {
    let mut found = false;
    for block in content.and_then(Value::as_array_mut).into_iter().flatten() {
        let Some(block) = block.as_object_mut() else { continue };
        found |= remove_ttl(block);
        found |= remove_content_ttl(block.get_mut("content"));
        if let Some(source) = block.get_mut("source") {
            found |= remove_content_ttl(source.get_mut("content"));
        }
    }
    found
}

fn remove_ttl(block: &mut Map<String, Value>) -> bool {
    let marker = block.get_mut("cache_control").and_then(Value::as_object_mut);
    let ttl = marker.and_then(|marker| marker.shift_remove("ttl"));
    ttl.is_some_and(|ttl| ttl != "5m")
}

fn filter_tools(
    body: &mut Map<String, Value>,
    removed: &mut Removals,
) -> Result<(), RequestProblem> {
    let Some(Value::Array(tools)) = body.get_mut("tools") else {
        removed.remove_fields(body, &["tools"]);
        return Ok(());
    };
    let mut removed_tools: Vec<(String, String)> = Vec::new();
    tools.retain(|tool| {
        let Some(kind) = provider_tool(tool) else { return true };
        removed.record(&kind);
        removed_tools.push((kind, word(tool, "name").to_owned()));
        false
    });
    let Some((first, _)) = removed_tools.first() else { return Ok(()) };
    for tool in tools.iter_mut().filter_map(Value::as_object_mut) {
        // Both refer to the removed tools: to the search that would load this tool, and to the code that would call it.
        tool.shift_remove("defer_loading");
        tool.shift_remove("allowed_callers");
    }
    let is_empty = tools.is_empty();
    let choice = body.get("tool_choice").unwrap_or(&Value::Null);
    match word(choice, "type") {
        "tool" => {
            let name = word(choice, "name");
            if let Some((kind, _)) = removed_tools.iter().find(|(_, removed)| removed == name) {
                return Err(required_tool(kind));
            }
        }
        "any" if is_empty => return Err(required_tool(first)),
        _ => {}
    }
    if is_empty {
        body.shift_remove("tools");
        body.shift_remove("tool_choice");
    }
    Ok(())
}

/// Returns the type of a tool that the provider would run.
fn provider_tool(tool: &Value) -> Option<String> {
    let Some(fields) = tool.as_object() else { return Some("unknown tool".to_owned()) };
    match fields.get("type") {
        None | Some(Value::Null) => None,
        Some(Value::String(kind)) if kind == "custom" => None,
        Some(Value::String(kind)) => {
            let is_version = |rest: &str| rest.bytes().all(|byte| byte.is_ascii_digit());
            let rest = CLIENT_TOOLS.iter().find_map(|prefix| kind.strip_prefix(prefix));
            (!rest.is_some_and(is_version)).then(|| kind.clone())
        }
        Some(_) => Some("unknown tool".to_owned()),
    }
}

pub(super) fn capped_fields(body: &Map<String, Value>, cap: &OutputCap) -> Vec<(String, Value)> {
    let mut fields = vec![("max_tokens".to_owned(), cap.lowered(body.get("max_tokens")))];
    let Some(thinking) = body.get("thinking").and_then(Value::as_object) else { return fields };
    let Some(budget) = thinking.get("budget_tokens").and_then(Value::as_u64) else { return fields };
    // A budget that fits is the agent's own choice, and one below the minimum is its own mistake.
    let fits = !cap.is_lowered() && budget < cap.effective();
    if fits || budget < LEAST_THINKING {
        return fields;
    }
    match cap.thinking_budget(LEAST_THINKING) {
        Some(limit) => {
            let mut thinking = thinking.clone();
            thinking.insert("budget_tokens".to_owned(), Value::from(budget.min(limit)));
            fields.push(("thinking".to_owned(), Value::Object(thinking)));
        }
        None => {
            fields.push(("thinking".to_owned(), json!({ "type": "disabled" })));
            // The API refuses to clear thinking that is disabled.
            fields
                .extend(without_thinking_edits(body).map(|v| ("context_management".to_owned(), v)));
        }
    }
    fields
}

fn without_thinking_edits(body: &Map<String, Value>) -> Option<Value> {
    let mut management = body.get("context_management")?.clone();
    let edits = management.get_mut("edits")?.as_array_mut()?;
    edits.retain(|edit| !word(edit, "type").starts_with("clear_thinking"));
    Some(management)
}
