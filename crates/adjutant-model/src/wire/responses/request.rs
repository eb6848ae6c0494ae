//! Writes requests for OpenAI Responses.
//!
//! The provider stores nothing: every request contains the whole conversation, including the model's
//! encrypted reasoning, unchanged.

use adjutant_core::{Message, ToolCall};

use super::super::chat::word;
use super::super::json::{arguments, field, key, raw, separate, value};
use super::super::{NOTHING, SILENCE, WireCodec};
use crate::model::TurnRequest;

pub(in super::super) fn open(codec: &WireCodec, out: &mut Vec<u8>, request: &TurnRequest<'_>) {
    out.push(b'{');
    field(out, "model", &codec.model);
    raw(out, r#","stream":true,"store":false"#);
    if codec.reasoning {
        raw(out, r#","include":["reasoning.encrypted_content"]"#);
    }
    if !request.system.is_empty() {
        field(out, "instructions", request.system);
    }
    if !request.tools.is_empty() {
        raw(out, r#","tools":["#);
        for tool in request.tools {
            separate(out);
            raw(out, r#"{"type":"function""#);
            field(out, "name", &tool.name);
            field(out, "description", &tool.description);
            let strict = codec.strict_schema(tool);
            key(out, "parameters");
            value(out, strict.as_ref().unwrap_or(&tool.schema));
            // Without this field the API tries to make every schema strict.
            key(out, "strict");
            raw(out, if strict.is_some() { "true}" } else { "false}" });
        }
        out.push(b']');
    }
    raw(out, r#","input":["#);
}

pub(in super::super) fn append(codec: &WireCodec, out: &mut Vec<u8>, message: &Message) {
    match message {
        Message::User { content } => {
            separate(out);
            let content = if content.is_empty() { NOTHING } else { content };
            raw(out, r#"{"role":"user""#);
            field(out, "content", content);
            out.push(b'}');
        }
        Message::Tool { tool_call_id, content, is_error: _ } => {
            separate(out);
            raw(out, r#"{"type":"function_call_output""#);
            field(out, "call_id", tool_call_id);
            field(out, "output", content);
            out.push(b'}');
        }
        Message::Assistant { content, tool_calls, opaque } => {
            let is_call = |item: &&serde_json::Value| item["type"] == "function_call";
            let verbatim = codec.unseal(opaque).filter(|items| {
                // A reasoning item must be followed by the item it led to. Because the provider stores
                // nothing, it cannot be looked up if its content is missing.
                let is_thought = |item: &serde_json::Value| item["type"] == "reasoning";
                let is_lost = |item: &serde_json::Value| {
                    is_thought(item) && !item["encrypted_content"].is_string()
                };
                items.iter().filter(is_call).count() == tool_calls.len()
                    && !items.iter().any(is_lost)
                    && !items.last().is_some_and(is_thought)
            });
            match verbatim {
                Some(items) => {
                    for item in items {
                        separate(out);
                        value(out, item);
                    }
                }
                None => plain_answer(out, content, tool_calls),
            }
        }
    }
}

fn plain_answer(out: &mut Vec<u8>, content: &str, calls: &[ToolCall]) {
    let content = if content.is_empty() && calls.is_empty() { SILENCE } else { content };
    if !content.is_empty() {
        separate(out);
        raw(out, r#"{"role":"assistant""#);
        field(out, "content", content);
        out.push(b'}');
    }
    for call in calls {
        separate(out);
        raw(out, r#"{"type":"function_call""#);
        field(out, "call_id", &call.id);
        field(out, "name", &call.name);
        field(out, "arguments", &arguments(call).to_string());
        out.push(b'}');
    }
}

pub(in super::super) fn close(
    codec: &WireCodec,
    out: &mut Vec<u8>,
    request: &TurnRequest<'_>,
    withdrawn: bool,
) {
    raw(out, r#"],"max_output_tokens":"#);
    raw(out, &request.max_output.to_string());
    if withdrawn {
        raw(out, r#","tool_choice":"none""#);
    }
    if let Some(effort) = codec.effort(request) {
        raw(out, r#","reasoning":{"#);
        field(out, "effort", word(effort));
        out.push(b'}');
    }
    if let Some(format) = &codec.settings.format {
        raw(out, r#","text":{"format":{"type":"json_schema""#);
        field(out, "name", &format.name);
        raw(out, r#","strict":true"#);
        key(out, "schema");
        value(out, &format.schema);
        raw(out, "}}");
    }
    // Routes requests with a common prefix to the server that has it cached.
    if codec.official {
        field(out, "prompt_cache_key", &request.session.to_string());
    }
    out.push(b'}');
}
