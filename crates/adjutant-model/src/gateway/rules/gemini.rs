//! What a Gemini request may contain.
//!
//! The API accepts every field in two spellings, `camelCase` and `snake_case`.

use serde_json::{Map, Value, json};

use super::{
    OutputCap, Removals, count, is_used, items, refuse_other_tier, refuse_several_answers,
    required_tool, word,
};
use crate::gateway::problem::RequestProblem;

/// The smallest thinking budget that all models accept.
const LEAST_THINKING: u64 = 512;

const CONFIG: [&str; 2] = ["generationConfig", "generation_config"];
const MAX_OUTPUT: [&str; 2] = ["maxOutputTokens", "max_output_tokens"];
const FUNCTIONS: [&str; 2] = ["functionDeclarations", "function_declarations"];

pub(super) fn check(
    body: &mut Map<String, Value>,
    removed: &mut Removals,
) -> Result<(), RequestProblem> {
    for field in ["cachedContent", "cached_content"] {
        if body.get(field).is_some_and(is_used) {
            return Err(RequestProblem::StoredConversation { field: field.to_owned() });
        }
    }
    for tier in spelled(body, ["serviceTier", "service_tier"]).filter(|tier| !tier.is_null()) {
        refuse_other_tier("serviceTier", tier, &["standard", "STANDARD", "unspecified"])?;
    }
    for config in spelled(body, CONFIG).filter_map(Value::as_object) {
        refuse_several_answers(config, &["candidateCount", "candidate_count"])?;
        let kinds = spelled(config, ["responseModalities", "response_modalities"]);
        for kind in kinds.flat_map(|kinds| items(Some(kinds))) {
            let kind = kind.as_str().unwrap_or("unknown").to_ascii_lowercase();
            if kind != "text" {
                let kind = kind.chars().take(80).collect();
                return Err(RequestProblem::OutputKind { kind });
            }
        }
    }
    let system = spelled(body, ["systemInstruction", "system_instruction"]);
    let contents = items(body.get("contents")).chain(body.get("contents"));
    for content in system.chain(contents) {
        check_parts(content.get("parts"))?;
    }
    filter_tools(body, removed)
}

/// Refuses files that are not part of the request.
fn check_parts(parts: Option<&Value>) -> Result<(), RequestProblem> {
    // A single part may come without its list.
    for part in items(parts).chain(parts.filter(|parts| parts.is_object())) {
        for field in ["fileData", "file_data"] {
            if part.get(field).is_some_and(|value| !value.is_null()) {
                return Err(RequestProblem::RemoteContent { field: field.to_owned() });
            }
        }
        for field in ["functionResponse", "function_response"] {
            check_parts(part.get(field).and_then(|response| response.get("parts")))?;
        }
    }
    Ok(())
}

fn filter_tools(
    body: &mut Map<String, Value>,
    removed: &mut Removals,
) -> Result<(), RequestProblem> {
    let before = removed.0.len();
    match body.get_mut("tools") {
        Some(Value::Array(tools)) => tools.retain_mut(|tool| keep_functions(tool, removed)),
        // The API also accepts one tool without its list.
        Some(tool @ Value::Object(_)) => {
            if !keep_functions(tool, removed) {
                *tool = json!([]);
            }
        }
        Some(_) | None => removed.remove_fields(body, &["tools"]),
    }
    let Some(first) = removed.0.get(before) else { return Ok(()) };
    let has_tools = body.get("tools").is_some_and(is_used);
    for field in ["toolConfig", "tool_config"] {
        let Some(config) = body.get_mut(field).and_then(Value::as_object_mut) else { continue };
        let mut calling = spelled(config, ["functionCallingConfig", "function_calling_config"]);
        let is_required = calling.any(|calling| word(calling, "mode") == "ANY");
        drop(calling);
        if is_required && !has_tools {
            return Err(required_tool(first));
        }
        for server_side in ["includeServerSideToolInvocations", "retrievalConfig"] {
            config.shift_remove(server_side);
        }
        if !has_tools || config.is_empty() {
            body.shift_remove(field);
        }
    }
    if !has_tools {
        body.shift_remove("tools");
    }
    Ok(())
}

/// Removes everything but functions from a tool and returns whether any are left.
fn keep_functions(tool: &mut Value, removed: &mut Removals) -> bool {
    let Some(fields) = tool.as_object_mut() else {
        removed.record("unknown tool");
        return false;
    };
    fields.retain(|name, _| {
        let is_function = FUNCTIONS.contains(&name.as_str());
        if !is_function {
            removed.record(name);
        }
        is_function
    });
    !fields.is_empty()
}

pub(super) fn requested_output(body: &Map<String, Value>) -> Option<u64> {
    let configs = spelled(body, CONFIG).filter_map(Value::as_object);
    configs.flat_map(|config| spelled(config, MAX_OUTPUT)).filter_map(count).min()
}

pub(super) fn capped_fields(body: &Map<String, Value>, cap: &OutputCap) -> Vec<(String, Value)> {
    let mut fields: Vec<(String, Value)> = CONFIG
        .into_iter()
        .filter_map(|name| Some((name.to_owned(), capped_config(body.get(name)?, cap))))
        .collect();
    if fields.is_empty() {
        fields.push((CONFIG[0].to_owned(), capped_config(&Value::Null, cap)));
    }
    fields
}

fn capped_config(config: &Value, cap: &OutputCap) -> Value {
    let mut config = config.as_object().cloned().unwrap_or_default();
    let [camel, snake] = MAX_OUTPUT;
    if let Some(current) = config.get(snake) {
        let lowered = cap.lowered(Some(current));
        config.insert(snake.to_owned(), lowered);
    }
    if config.contains_key(camel) || !config.contains_key(snake) {
        let lowered = cap.lowered(config.get(camel));
        config.insert(camel.to_owned(), lowered);
    }
    for name in ["thinkingConfig", "thinking_config"] {
        let Some(thinking) = config.get_mut(name).and_then(Value::as_object_mut) else { continue };
        for name in ["thinkingBudget", "thinking_budget"] {
            let Some(budget) = thinking.get(name).and_then(count) else { continue };
            if budget < cap.effective() && !cap.is_lowered() || budget < LEAST_THINKING {
                continue;
            }
            match cap.thinking_budget(LEAST_THINKING) {
                Some(limit) => {
                    thinking.insert(name.to_owned(), Value::from(budget.min(limit)));
                }
                // Then the model decides; the output stays limited.
                None => {
                    thinking.shift_remove(name);
                }
            }
        }
    }
    Value::Object(config)
}

/// Returns the values of a field in both spellings.
fn spelled<'v>(
    object: &'v Map<String, Value>,
    names: [&'static str; 2],
) -> impl Iterator<Item = &'v Value> + use<'v> {
    names.into_iter().filter_map(|name| object.get(name))
}
