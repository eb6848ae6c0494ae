//! Writes requests for Anthropic Messages.
//!
//! There are two cache markers: one after the fixed start (tools, then system prompt), and one on the last
//! part of the conversation. The second one is part of the tail, which is rewritten for each request, so the
//! kept prefix never contains it.

use adjutant_core::{Message, ToolCall};

use super::super::json::{arguments, field, key, raw, separate, text, value};
use super::super::session_body::OpenMessage;
use super::super::{NOTHING, SILENCE, WireCodec};
use crate::model::TurnRequest;
use crate::settings::{OutputFormat, ReasoningEffort};

const MARKER: &str = r#","cache_control":{"type":"ephemeral"}"#;

pub(in super::super) fn open(codec: &WireCodec, out: &mut Vec<u8>, request: &TurnRequest<'_>) {
    out.push(b'{');
    field(out, "model", &codec.model);
    raw(out, r#","stream":true"#);
    if !request.system.is_empty() {
        raw(out, r#","system":[{"type":"text""#);
        field(out, "text", request.system);
        raw(out, MARKER);
        raw(out, "}]");
    }
    if !request.tools.is_empty() {
        raw(out, r#","tools":["#);
        for (place, tool) in request.tools.iter().enumerate() {
            separate(out);
            out.push(b'{');
            field(out, "name", &tool.name);
            field(out, "description", &tool.description);
            let strict = codec.strict_schema(tool);
            key(out, "input_schema");
            value(out, strict.as_ref().unwrap_or(&tool.schema));
            if strict.is_some() {
                raw(out, r#","strict":true"#);
            }
            // The marker on the system prompt covers the tools before it; without a system prompt the tools
            // need their own.
            if request.system.is_empty() && place + 1 == request.tools.len() {
                raw(out, MARKER);
            }
            out.push(b'}');
        }
        out.push(b']');
    }
    raw(out, r#","messages":["#);
}

pub(in super::super) fn append(
    codec: &WireCodec,
    out: &mut Vec<u8>,
    group: &mut OpenMessage,
    message: &Message,
) {
    match message {
        Message::User { content } => {
            // The API refuses blank text like empty text.
            let content = if content.trim().is_empty() { NOTHING } else { content };
            user(out, group);
            raw(out, r#"{"type":"text""#);
            field(out, "text", content);
        }
        Message::Tool { tool_call_id, content, is_error } => {
            user(out, group);
            raw(out, r#"{"type":"tool_result""#);
            field(out, "tool_use_id", tool_call_id);
            field(out, "content", content);
            if *is_error {
                raw(out, r#","is_error":true"#);
            }
        }
        Message::Assistant { content, tool_calls, opaque } => {
            let is_call = |block: &&serde_json::Value| block["type"] == "tool_use";
            let verbatim = codec.unseal(opaque).filter(|blocks| {
                // Calls that were never executed must not appear in the history, and then the rest of the raw
                // reply does not fit either. The API also refuses an answer that consists only of thinking.
                let is_thought = |block: &serde_json::Value| {
                    block["type"].as_str().is_some_and(|kind| kind.ends_with("thinking"))
                };
                blocks.iter().filter(is_call).count() == tool_calls.len()
                    && !blocks.last().is_some_and(is_thought)
            });
            match verbatim {
                Some(blocks) => {
                    for block in blocks {
                        model(out, group);
                        value(out, block);
                        // The last part is left open, like every last part.
                        out.pop();
                    }
                }
                None => plain_answer(out, group, content, tool_calls),
            }
        }
    }
}

fn plain_answer(out: &mut Vec<u8>, group: &mut OpenMessage, content: &str, calls: &[ToolCall]) {
    let blank = content.trim().is_empty();
    let content = if blank && calls.is_empty() { SILENCE } else { content };
    if !content.trim().is_empty() {
        model(out, group);
        raw(out, r#"{"type":"text""#);
        field(out, "text", content);
    }
    for call in calls {
        model(out, group);
        raw(out, r#"{"type":"tool_use""#);
        field(out, "id", &call.id);
        field(out, "name", &call.name);
        key(out, "input");
        value(out, &arguments(call));
    }
}

fn user(out: &mut Vec<u8>, group: &mut OpenMessage) {
    group.begin(out, OpenMessage::User, r#"{"role":"user","content":["#);
}

fn model(out: &mut Vec<u8>, group: &mut OpenMessage) {
    group.begin(out, OpenMessage::Model, r#"{"role":"assistant","content":["#);
}

pub(in super::super) fn close(
    codec: &WireCodec,
    out: &mut Vec<u8>,
    group: OpenMessage,
    request: &TurnRequest<'_>,
    withdrawn: bool,
) {
    if group == OpenMessage::User {
        raw(out, MARKER);
    }
    group.end(out);
    raw(out, r#"],"max_tokens":"#);
    raw(out, &request.max_output.to_string());
    if withdrawn {
        raw(out, r#","tool_choice":{"type":"none"}"#);
    }
    output_config(out, codec.effort(request), codec.settings.format.as_ref());
    out.push(b'}');
}

fn output_config(
    out: &mut Vec<u8>,
    effort: Option<ReasoningEffort>,
    format: Option<&OutputFormat>,
) {
    if effort.is_none() && format.is_none() {
        return;
    }
    raw(out, r#","output_config":{"#);
    if let Some(effort) = effort {
        key(out, "effort");
        text(out, effort.as_str());
    }
    if let Some(format) = format {
        key(out, "format");
        raw(out, r#"{"type":"json_schema","schema":"#);
        value(out, &format.schema);
        out.push(b'}');
    }
    out.push(b'}');
}
