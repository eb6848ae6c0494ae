//! Renders a turn as the events of a Messages stream.

use serde_json::{Value, json};

use super::super::api::ValidRequest;
use super::super::script::SelectedTurn;
use super::super::sse::{ascii, event, fragments, seal, sign};
use super::super::turn::{Call, Part, Stop, Usage};

/// Renders a turn.
pub(in super::super) fn stream(request: &ValidRequest, selected: &SelectedTurn<'_>) -> Vec<String> {
    let mut events = vec![start(request, selected)];
    for (index, part) in selected.turn.parts.iter().enumerate() {
        let (block, deltas) = block(part, index, selected);
        events
            .push(typed("content_block_start", json!({ "index": index, "content_block": block })));
        if index == 0 {
            events.push(typed("ping", json!({})));
        }
        for delta in deltas {
            events.push(typed("content_block_delta", json!({ "index": index, "delta": delta })));
        }
        events.push(typed("content_block_stop", json!({ "index": index })));
    }
    events.push(end(selected));
    events.push(typed("message_stop", json!({})));
    events
}

fn typed(name: &str, fields: Value) -> String {
    let mut data = json!({ "type": name });
    if let (Some(data), Value::Object(fields)) = (data.as_object_mut(), fields) {
        data.extend(fields);
    }
    event(name, &data)
}

fn start(request: &ValidRequest, selected: &SelectedTurn<'_>) -> String {
    let usage = if selected.turn.no_usage {
        json!({ "input_tokens": 0, "output_tokens": 0 })
    } else {
        usage(&selected.usage, 1)
    };
    let message = json!({
        "id": format!("msg_{:016x}", selected.key),
        "type": "message",
        "role": "assistant",
        "model": request.model,
        "content": [],
        "stop_reason": null,
        "stop_sequence": null,
        "usage": usage,
    });
    typed("message_start", json!({ "message": message }))
}

fn usage(usage: &Usage, output: u64) -> Value {
    json!({
        "input_tokens": usage.input,
        "cache_creation_input_tokens": usage.cache_write,
        "cache_read_input_tokens": usage.cache_read,
        "output_tokens": output,
    })
}

/// Returns how a block starts and what is added to it.
fn block(part: &Part, index: usize, selected: &SelectedTurn<'_>) -> (Value, Vec<Value>) {
    let sizes = &selected.turn.fragment;
    match part {
        Part::Text(text) | Part::Refusal(text) => {
            let pieces = fragments(text, sizes).into_iter();
            let deltas = pieces.map(|text| json!({ "type": "text_delta", "text": text }));
            (json!({ "type": "text", "text": "" }), deltas.collect())
        }
        Part::Thinking(text) => {
            let pieces = fragments(text, sizes).into_iter();
            let mut deltas: Vec<Value> =
                pieces.map(|text| json!({ "type": "thinking_delta", "thinking": text })).collect();
            deltas.push(json!({ "type": "signature_delta", "signature": sign(text) }));
            (json!({ "type": "thinking", "thinking": "", "signature": "" }), deltas)
        }
        Part::Redacted(text) => {
            (json!({ "type": "redacted_thinking", "data": seal(text) }), Vec::new())
        }
        Part::Call(call) => (
            json!({
                "type": "tool_use",
                "id": id(call, index, selected),
                "name": call.name,
                "input": {},
            }),
            arguments(call, selected),
        ),
    }
}

fn id(call: &Call, index: usize, selected: &SelectedTurn<'_>) -> String {
    call.id.clone().unwrap_or_else(|| format!("toolu_{:016x}{index:02}", selected.key))
}

/// Returns the deltas of a call; a call without arguments has one that is empty, as the real ones.
fn arguments(call: &Call, selected: &SelectedTurn<'_>) -> Vec<Value> {
    let text = if selected.turn.escape { ascii(&call.text()) } else { call.text() };
    let bare = call.raw.is_none() && call.arguments.is_empty();
    let pieces = if bare { Vec::new() } else { fragments(&text, &selected.turn.fragment) };
    let first = std::iter::once(String::new());
    let all = first.chain(pieces);
    all.map(|piece| json!({ "type": "input_json_delta", "partial_json": piece })).collect()
}

fn end(selected: &SelectedTurn<'_>) -> String {
    let reason = match selected.turn.stop() {
        Stop::End | Stop::Malformed => "end_turn",
        Stop::Calls => "tool_use",
        Stop::Length => "max_tokens",
        Stop::Sequence => "stop_sequence",
        Stop::Refused => "refusal",
        Stop::Window => "model_context_window_exceeded",
    };
    let sequence = (selected.turn.stop() == Stop::Sequence).then_some("STOP");
    let delta = json!({ "stop_reason": reason, "stop_sequence": sequence });
    let usage = if selected.turn.no_usage {
        json!({ "output_tokens": 0 })
    } else {
        usage(&selected.usage, selected.usage.output)
    };
    typed("message_delta", json!({ "delta": delta, "usage": usage }))
}
