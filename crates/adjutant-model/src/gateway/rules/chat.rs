//! What a Chat Completions request may contain, at OpenAI and at compatible servers.

use serde_json::{Map, Value, json};

use super::openai::{RemovedTool, check_tier, check_tool_choice};
use super::{OutputCap, Removals, items, present, refuse_remote, refuse_several_answers, word};
use crate::gateway::problem::RequestProblem;
use crate::gateway::served::ChatCapField;

/// Fields that make the provider search the web, use other models or sell more tokens, by server.
const REMOVED_FIELDS: [&str; 10] = [
    // OpenAI. Rejected tokens of a prediction are billed as output.
    "web_search_options",
    "prediction",
    // OpenRouter: web search and file parsing, other models, and other prices.
    "plugins",
    "models",
    "route",
    "provider",
    // xAI, Qwen and Perplexity.
    "search_parameters",
    "enable_search",
    "search_options",
    "web_search",
];

pub(super) fn check(
    body: &mut Map<String, Value>,
    is_streaming: bool,
    removed: &mut Removals,
) -> Result<(), RequestProblem> {
    refuse_several_answers(body, &["n", "best_of"])?;
    check_tier(body, removed)?;
    if let Some(kind) = items(body.get("modalities")).find(|kind| *kind != "text") {
        let kind = kind.as_str().unwrap_or("unknown").chars().take(80).collect();
        return Err(RequestProblem::OutputKind { kind });
    }
    removed.remove_fields(body, &REMOVED_FIELDS);
    if present(body, "store").is_some_and(|store| store != &Value::Bool(false)) {
        removed.record("store");
        body.insert("store".to_owned(), Value::Bool(false));
    }
    for message in items(body.get("messages")) {
        check_content(message.get("content"))?;
    }
    if is_streaming {
        report_usage(body);
    }
    filter_tools(body, removed)
}

/// Refuses media that are not part of the request.
fn check_content(content: Option<&Value>) -> Result<(), RequestProblem> {
    for part in items(content) {
        let kind = word(part, "type");
        if kind == "file" {
            let id = part.get("file").and_then(|file| file.get("file_id"));
            refuse_remote(id.unwrap_or(&Value::Null), "file_id")?;
        }
        // `image_url`, and `video_url` and `audio_url` of compatible servers. Some accept a bare URL.
        if kind.ends_with("_url") {
            let media = part.get(kind).unwrap_or(&Value::Null);
            refuse_remote(media.get("url").unwrap_or(media), kind)?;
        }
    }
    Ok(())
}

/// Makes the provider report the usage at the end of a stream.
fn report_usage(body: &mut Map<String, Value>) {
    let options = body.entry("stream_options").or_insert_with(|| json!({}));
    if !options.is_object() {
        *options = json!({});
    }
    options["include_usage"] = Value::Bool(true);
}

fn is_client_type(kind: &str) -> bool {
    matches!(kind, "function" | "custom")
}

fn filter_tools(
    body: &mut Map<String, Value>,
    removed: &mut Removals,
) -> Result<(), RequestProblem> {
    let mut removed_tools = Vec::new();
    let mut has_tools = false;
    if let Some(Value::Array(tools)) = body.get_mut("tools") {
        tools.retain(|tool| {
            let kind = word(tool, "type");
            if is_client_type(kind) {
                return true;
            }
            let kind = if kind.is_empty() { "unknown tool" } else { kind };
            removed.record(kind);
            removed_tools.push(RemovedTool::new(kind, tool));
            false
        });
        has_tools = !tools.is_empty();
    } else {
        removed.remove_fields(body, &["tools"]);
    }
    check_tool_choice(body, &removed_tools, has_tools, is_client_type)
}

pub(super) fn capped_fields(body: &Map<String, Value>, cap: &OutputCap) -> Vec<(String, Value)> {
    let names = ["max_completion_tokens", "max_tokens"];
    let mut fields: Vec<(String, Value)> = names
        .into_iter()
        .filter_map(|name| Some((name.to_owned(), cap.lowered(Some(present(body, name)?)))))
        .collect();
    if fields.is_empty() {
        let name = match cap.chat_cap_field {
            ChatCapField::MaxTokens => "max_tokens",
            ChatCapField::MaxCompletionTokens => "max_completion_tokens",
        };
        fields.push((name.to_owned(), cap.lowered(None)));
    }
    fields
}
