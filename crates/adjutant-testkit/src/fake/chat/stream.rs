//! Renders a turn as the chunks of a Chat Completions stream.

use serde_json::{Value, json};

use super::super::api::ValidRequest;
use super::super::script::SelectedTurn;
use super::super::sse::{CREATED, ascii, data, fragments};
use super::super::turn::{Call, Part, Stop, Turn, Usage};

/// Renders a turn.
pub(in super::super) fn stream(request: &ValidRequest, selected: &SelectedTurn<'_>) -> Vec<String> {
    let reports = request.usage && !selected.turn.no_usage;
    let chunk = |choices: Value, usage: Value| {
        let mut chunk = json!({
            "id": format!("chatcmpl-{:016x}", selected.key),
            "object": "chat.completion.chunk",
            "created": CREATED,
            "model": request.model,
            "service_tier": "default",
            "system_fingerprint": null,
            "choices": choices,
        });
        if reports {
            chunk["usage"] = usage;
        }
        data(&chunk)
    };
    let choice = |delta: Value, reason: Option<&str>| json!([{ "index": 0, "delta": delta, "logprobs": null, "finish_reason": reason }]);
    let deltas = deltas(selected).into_iter();
    let mut events: Vec<String> =
        deltas.map(|delta| chunk(choice(delta, None), Value::Null)).collect();
    events.push(chunk(choice(json!({}), Some(reason(selected.turn))), Value::Null));
    if reports {
        events.push(chunk(json!([]), usage(&selected.usage)));
    }
    events.push("data: [DONE]\n\n".to_owned());
    events
}

fn deltas(selected: &SelectedTurn<'_>) -> Vec<Value> {
    let talks = selected.turn.parts.iter().any(|part| !matches!(part, Part::Call(_)));
    let content = if talks { json!("") } else { Value::Null };
    let mut deltas = vec![json!({ "role": "assistant", "content": content, "refusal": null })];
    let mut calls = 0;
    for part in &selected.turn.parts {
        match part {
            Part::Text(text) => push_text_deltas(&mut deltas, "content", text, selected),
            Part::Refusal(text) => push_text_deltas(&mut deltas, "refusal", text, selected),
            // OpenAI keeps thoughts to itself; compatible servers show them under this name.
            Part::Thinking(text) => {
                push_text_deltas(&mut deltas, "reasoning_content", text, selected)
            }
            Part::Redacted(_) => {}
            Part::Call(call) => {
                deltas.extend(call_deltas(call, calls, selected));
                calls += 1;
            }
        }
    }
    deltas
}

fn push_text_deltas(deltas: &mut Vec<Value>, field: &str, text: &str, selected: &SelectedTurn<'_>) {
    let pieces = fragments(text, &selected.turn.fragment).into_iter();
    deltas.extend(pieces.map(|piece| json!({ field: piece })));
}

fn call_deltas(call: &Call, index: usize, selected: &SelectedTurn<'_>) -> Vec<Value> {
    let id = call.id.clone().unwrap_or_else(|| format!("call_{:016x}{index:02}", selected.key));
    let start = json!({
        "index": index,
        "id": id,
        "type": "function",
        "function": { "name": call.name, "arguments": "" },
    });
    let text = if selected.turn.escape { ascii(&call.text()) } else { call.text() };
    let pieces = fragments(&text, &selected.turn.fragment).into_iter();
    let more = pieces.map(|piece| json!({ "index": index, "function": { "arguments": piece } }));
    std::iter::once(start).chain(more).map(|call| json!({ "tool_calls": [call] })).collect()
}

fn reason(turn: &Turn) -> &'static str {
    // A refusal in words of its own is a whole answer; only a filter cuts one short.
    let push_text_deltas = turn.stop.is_none() && turn.stop() == Stop::Refused;
    match turn.stop() {
        Stop::Refused if push_text_deltas => "stop",
        Stop::End | Stop::Sequence | Stop::Malformed => "stop",
        Stop::Calls => "tool_calls",
        Stop::Length | Stop::Window => "length",
        Stop::Refused => "content_filter",
    }
}

fn usage(usage: &Usage) -> Value {
    json!({
        "prompt_tokens": usage.all_input(),
        "completion_tokens": usage.output,
        "total_tokens": usage.all_input() + usage.output,
        "prompt_tokens_details": { "cached_tokens": usage.cache_read, "audio_tokens": 0 },
        "completion_tokens_details": {
            "reasoning_tokens": usage.thinking,
            "audio_tokens": 0,
            "accepted_prediction_tokens": 0,
            "rejected_prediction_tokens": 0,
        },
    })
}
