//! Writes requests for Chat Completions.
//!
//! Compatible servers get only widely supported fields; OpenAI itself gets its newer field names.

use adjutant_core::{Message, ToolCall};
use serde_json::Value;

use super::super::json::{arguments, field, key, raw, separate, text, value};
use super::super::{NOTHING, SILENCE, WireCodec};
use crate::model::TurnRequest;
use crate::settings::ReasoningEffort;

pub(in super::super) fn open(codec: &WireCodec, out: &mut Vec<u8>, request: &TurnRequest<'_>) {
    out.push(b'{');
    field(out, "model", &codec.model);
    raw(out, r#","stream":true,"stream_options":{"include_usage":true}"#);
    if !request.tools.is_empty() {
        raw(out, r#","tools":["#);
        for tool in request.tools {
            separate(out);
            raw(out, r#"{"type":"function","function":{"#);
            field(out, "name", &tool.name);
            field(out, "description", &tool.description);
            let strict = codec.strict_schema(tool);
            key(out, "parameters");
            value(out, strict.as_ref().unwrap_or(&tool.schema));
            if strict.is_some() {
                raw(out, r#","strict":true"#);
            }
            raw(out, "}}");
        }
        out.push(b']');
    }
    raw(out, r#","messages":["#);
    if !request.system.is_empty() {
        raw(out, r#"{"role":"system""#);
        field(out, "content", request.system);
        out.push(b'}');
    }
}

pub(in super::super) fn append(codec: &WireCodec, out: &mut Vec<u8>, message: &Message) {
    separate(out);
    match message {
        Message::User { content } => {
            let content = if content.is_empty() { NOTHING } else { content };
            raw(out, r#"{"role":"user""#);
            field(out, "content", content);
        }
        Message::Tool { tool_call_id, content, is_error: _ } => {
            raw(out, r#"{"role":"tool""#);
            field(out, "tool_call_id", tool_call_id);
            field(out, "content", content);
        }
        Message::Assistant { content, tool_calls, opaque } => {
            answer(out, content, tool_calls);
            let fields = codec.unseal(opaque).into_iter().flatten().filter_map(Value::as_object);
            for (name, kept) in fields.flatten() {
                key(out, name);
                value(out, kept);
            }
        }
    }
    out.push(b'}');
}

fn answer(out: &mut Vec<u8>, content: &str, calls: &[ToolCall]) {
    raw(out, r#"{"role":"assistant""#);
    key(out, "content");
    match (content.is_empty(), calls.is_empty()) {
        (true, true) => text(out, SILENCE),
        (true, false) => raw(out, "null"),
        (false, _) => text(out, content),
    }
    if calls.is_empty() {
        return;
    }
    raw(out, r#","tool_calls":["#);
    for call in calls {
        separate(out);
        out.push(b'{');
        field(out, "id", &call.id);
        raw(out, r#","type":"function","function":{"#);
        field(out, "name", &call.name);
        field(out, "arguments", &arguments(call).to_string());
        raw(out, "}}");
    }
    out.push(b']');
}

pub(in super::super) fn close(
    codec: &WireCodec,
    out: &mut Vec<u8>,
    request: &TurnRequest<'_>,
    withdrawn: bool,
) {
    raw(out, "]");
    // OpenAI's reasoning models refuse the old name; many other servers know only that one.
    key(out, if codec.official { "max_completion_tokens" } else { "max_tokens" });
    raw(out, &request.max_output.to_string());
    if withdrawn {
        raw(out, r#","tool_choice":"none""#);
    }
    if let Some(effort) = codec.effort(request) {
        field(out, "reasoning_effort", word(effort));
    }
    if let Some(format) = &codec.settings.format {
        raw(out, r#","response_format":{"type":"json_schema","json_schema":{"#);
        field(out, "name", &format.name);
        raw(out, r#","strict":true"#);
        key(out, "schema");
        value(out, &format.schema);
        raw(out, "}}");
    }
    if codec.official {
        field(out, "prompt_cache_key", &request.session.to_string());
    }
    out.push(b'}');
}

pub(in super::super) const fn word(effort: ReasoningEffort) -> &'static str {
    match effort {
        ReasoningEffort::Low => "low",
        ReasoningEffort::Medium => "medium",
        ReasoningEffort::High => "high",
        ReasoningEffort::Max => "xhigh",
    }
}
