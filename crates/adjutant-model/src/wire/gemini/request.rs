//! Writes requests for Gemini.
//!
//! Consecutive messages of one side form one content with several parts. There are no cache markers, because
//! the provider detects repeated prefixes by itself.

use std::borrow::Cow;

use adjutant_core::{Message, ToolCall};
use serde_json::Value;

use super::super::history_repair::name;
use super::super::json::{arguments, field, key, raw, separate, value};
use super::super::session_body::OpenMessage;
use super::super::{NOTHING, OUR_ID, SILENCE, WireCodec};
use crate::model::TurnRequest;
use crate::settings::ReasoningEffort;

/// The documented placeholder signature for calls that this model did not sign, such as those of another
/// model. The API refuses calls without a signature.
const UNSIGNED: &str = "skip_thought_signature_validator";

pub(in super::super) fn open(out: &mut Vec<u8>, request: &TurnRequest<'_>) {
    out.push(b'{');
    if !request.system.is_empty() {
        raw(out, r#""systemInstruction":{"parts":[{"#);
        field(out, "text", request.system);
        raw(out, "}]}");
    }
    if !request.tools.is_empty() {
        key(out, "tools");
        raw(out, r#"[{"functionDeclarations":["#);
        for tool in request.tools {
            separate(out);
            out.push(b'{');
            field(out, "name", &tool.name);
            field(out, "description", &tool.description);
            key(out, "parametersJsonSchema");
            value(out, &tool.schema);
            out.push(b'}');
        }
        raw(out, "]}]");
    }
    key(out, "contents");
    out.push(b'[');
}

pub(in super::super) fn append(
    codec: &WireCodec,
    out: &mut Vec<u8>,
    group: &mut OpenMessage,
    before: &[Message],
    message: &Message,
) {
    match message {
        Message::User { content } => {
            let content = if content.is_empty() { NOTHING } else { content };
            user(out, group);
            out.push(b'{');
            field(out, "text", content);
        }
        Message::Tool { tool_call_id, content, is_error } => {
            user(out, group);
            raw(out, r#"{"functionResponse":{"#);
            if !tool_call_id.starts_with(OUR_ID) {
                field(out, "id", tool_call_id);
            }
            field(out, "name", &called_function(before, tool_call_id));
            key(out, "response");
            out.push(b'{');
            field(out, if *is_error { "error" } else { "output" }, content);
            raw(out, "}}");
        }
        Message::Assistant { content, tool_calls, opaque } => {
            let is_call = |part: &&Value| part.get("functionCall").is_some();
            let verbatim = codec
                .unseal(opaque)
                .filter(|parts| parts.iter().filter(is_call).count() == tool_calls.len());
            match verbatim {
                Some(parts) => {
                    for part in parts {
                        model(out, group);
                        value(out, part);
                        out.pop();
                    }
                }
                None => plain_answer(codec, out, group, content, tool_calls),
            }
        }
    }
}

/// Returns the function name of a tool result, which this API requires.
fn called_function<'m>(before: &'m [Message], id: &str) -> Cow<'m, str> {
    let calls = before.iter().enumerate().rev().find_map(|(at, message)| match message {
        Message::Assistant { tool_calls, .. } => Some((at, tool_calls)),
        Message::User { .. } | Message::Tool { .. } => None,
    });
    let Some((at, calls)) = calls else { return Cow::Borrowed("unknown") };
    // Results are in the order of the calls; if another message came in between, the id identifies the call.
    let here = calls.get(before.len() - at - 1);
    let call = calls.iter().find(|call| call.id == id).or(here);
    let call = here.filter(|call| call.id == id).or(call);
    call.map_or(Cow::Borrowed("unknown"), |call| name(&call.name))
}

fn plain_answer(
    codec: &WireCodec,
    out: &mut Vec<u8>,
    group: &mut OpenMessage,
    content: &str,
    calls: &[ToolCall],
) {
    let content = if content.is_empty() && calls.is_empty() { SILENCE } else { content };
    if !content.is_empty() {
        model(out, group);
        out.push(b'{');
        field(out, "text", content);
    }
    for (place, call) in calls.iter().enumerate() {
        model(out, group);
        raw(out, r#"{"functionCall":{"#);
        if !call.id.starts_with(OUR_ID) {
            field(out, "id", &call.id);
        }
        field(out, "name", &call.name);
        key(out, "args");
        value(out, &arguments(call));
        out.push(b'}');
        if place == 0 && codec.signs_calls() {
            field(out, "thoughtSignature", UNSIGNED);
        }
    }
}

fn user(out: &mut Vec<u8>, group: &mut OpenMessage) {
    group.begin(out, OpenMessage::User, r#"{"role":"user","parts":["#);
}

fn model(out: &mut Vec<u8>, group: &mut OpenMessage) {
    group.begin(out, OpenMessage::Model, r#"{"role":"model","parts":["#);
}

pub(in super::super) fn close(
    codec: &WireCodec,
    out: &mut Vec<u8>,
    group: OpenMessage,
    request: &TurnRequest<'_>,
    withdrawn: bool,
) {
    group.end(out);
    out.push(b']');
    if withdrawn {
        raw(out, r#","toolConfig":{"functionCallingConfig":{"mode":"NONE"}}"#);
    }
    raw(out, r#","generationConfig":{"maxOutputTokens":"#);
    raw(out, &request.max_output.to_string());
    if let Some(effort) = codec.effort(request) {
        raw(out, r#","thinkingConfig":{"#);
        // Older models have a token budget instead of levels.
        if !codec.signs_calls() {
            key(out, "thinkingBudget");
            raw(out, budget(effort));
        } else {
            field(out, "thinkingLevel", level(effort));
        }
        out.push(b'}');
    }
    if let Some(format) = &codec.settings.format {
        raw(out, r#","responseMimeType":"application/json""#);
        key(out, "responseJsonSchema");
        value(out, &format.schema);
    }
    raw(out, "}}");
}

impl WireCodec {
    /// Returns whether calls in the history need signatures; true for models with thinking levels.
    fn signs_calls(&self) -> bool {
        !self.model.starts_with("gemini-1") && !self.model.starts_with("gemini-2")
    }
}

const fn level(effort: ReasoningEffort) -> &'static str {
    match effort {
        ReasoningEffort::Low => "low",
        ReasoningEffort::Medium => "medium",
        ReasoningEffort::High | ReasoningEffort::Max => "high",
    }
}

const fn budget(effort: ReasoningEffort) -> &'static str {
    match effort {
        ReasoningEffort::Low => "1024",
        ReasoningEffort::Medium => "8192",
        ReasoningEffort::High | ReasoningEffort::Max => "24576",
    }
}
