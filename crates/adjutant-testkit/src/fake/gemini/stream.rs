//! Renders a turn as the chunks of a Gemini stream. Arguments are never cut: a call is one part.

use serde_json::{Value, json};

use super::super::api::ValidRequest;
use super::super::script::SelectedTurn;
use super::super::sse::{ascii, fragments, sign};
use super::super::turn::{Call, Part, Stop, Usage};

/// Renders a turn.
pub(in super::super) fn stream(request: &ValidRequest, selected: &SelectedTurn<'_>) -> Vec<String> {
    let mut events = Vec::new();
    let mut calls = 0;
    for part in &selected.turn.parts {
        match part {
            Part::Text(text) | Part::Refusal(text) => {
                for piece in fragments(text, &selected.turn.fragment) {
                    events.push(chunk(
                        request,
                        selected,
                        &json!({ "text": piece }).to_string(),
                        None,
                    ));
                }
            }
            Part::Thinking(text) => {
                for piece in fragments(text, &selected.turn.fragment) {
                    let part = json!({ "text": piece, "thought": true }).to_string();
                    events.push(chunk(request, selected, &part, None));
                }
            }
            Part::Redacted(_) => {}
            Part::Call(call) => {
                let part = call_part(call, request.sealed && calls == 0, selected);
                events.push(chunk(request, selected, &part, None));
                calls += 1;
            }
        }
    }
    let thought = selected.turn.parts.iter().any(|part| matches!(part, Part::Thinking(_)));
    let last = if thought && calls == 0 {
        json!({ "text": "", "thoughtSignature": sign("") })
    } else {
        json!({ "text": "" })
    };
    events.push(chunk(request, selected, &last.to_string(), Some(reason(selected.turn.stop()))));
    events
}

/// Writes a call; by hand, because its arguments may be deeper than a JSON value may be.
fn call_part(call: &Call, signed: bool, selected: &SelectedTurn<'_>) -> String {
    let id = call.id.as_ref().map(|id| format!("\"id\":{},", json!(id))).unwrap_or_default();
    let args = if selected.turn.escape { ascii(&call.text()) } else { call.text() };
    let signature = if signed {
        format!(",\"thoughtSignature\":{}", json!(sign(&call.name)))
    } else {
        String::new()
    };
    let name = json!(call.name);
    format!("{{\"functionCall\":{{{id}\"name\":{name},\"args\":{args}}}{signature}}}")
}

fn chunk(
    request: &ValidRequest,
    selected: &SelectedTurn<'_>,
    part: &str,
    reason: Option<&str>,
) -> String {
    let reason = reason.map(|reason| format!(",\"finishReason\":{}", json!(reason)));
    let usage = if selected.turn.no_usage {
        String::new()
    } else {
        format!("\"usageMetadata\":{},", usage(&selected.usage))
    };
    format!(
        "data: {{\"candidates\":[{{\"content\":{{\"parts\":[{part}],\"role\":\"model\"}}{},\
         \"index\":0}}],{usage}\"modelVersion\":{},\"responseId\":\"{:016x}\"}}\r\n\r\n",
        reason.unwrap_or_default(),
        json!(request.model),
        selected.key,
    )
}

const fn reason(stop: Stop) -> &'static str {
    match stop {
        Stop::End | Stop::Calls | Stop::Sequence => "STOP",
        Stop::Length | Stop::Window => "MAX_TOKENS",
        Stop::Refused => "SAFETY",
        Stop::Malformed => "MALFORMED_FUNCTION_CALL",
    }
}

fn usage(usage: &Usage) -> Value {
    let input = usage.all_input();
    let mut all = json!({
        "promptTokenCount": input,
        "candidatesTokenCount": usage.output - usage.thinking,
        "totalTokenCount": input + usage.output,
        "promptTokensDetails": [{ "modality": "TEXT", "tokenCount": input }],
    });
    if usage.cache_read > 0 {
        all["cachedContentTokenCount"] = json!(usage.cache_read);
    }
    if usage.thinking > 0 {
        all["thoughtsTokenCount"] = json!(usage.thinking);
    }
    all
}
