//! Renders a turn as the chunks of a Chat Completions stream.

use serde_json::{Value, json};

use super::super::api::Exchange;
use super::super::script::Cue;
use super::super::sse::{CREATED, ascii, data, fragments};
use super::super::turn::{Call, Part, Stop, Turn, Usage};

/// Renders a turn.
pub(in super::super) fn stream(exchange: &Exchange, cue: &Cue<'_>) -> Vec<String> {
    let reports = exchange.usage && !cue.turn.no_usage;
    let chunk = |choices: Value, usage: Value| {
        let mut chunk = json!({
            "id": format!("chatcmpl-{:016x}", cue.key),
            "object": "chat.completion.chunk",
            "created": CREATED,
            "model": exchange.model,
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
    let deltas = deltas(cue).into_iter();
    let mut events: Vec<String> =
        deltas.map(|delta| chunk(choice(delta, None), Value::Null)).collect();
    events.push(chunk(choice(json!({}), Some(reason(cue.turn))), Value::Null));
    if reports {
        events.push(chunk(json!([]), usage(&cue.usage)));
    }
    events.push("data: [DONE]\n\n".to_owned());
    events
}

fn deltas(cue: &Cue<'_>) -> Vec<Value> {
    let talks = cue.turn.parts.iter().any(|part| !matches!(part, Part::Call(_)));
    let content = if talks { json!("") } else { Value::Null };
    let mut deltas = vec![json!({ "role": "assistant", "content": content, "refusal": null })];
    let mut calls = 0;
    for part in &cue.turn.parts {
        match part {
            Part::Text(text) => spoken(&mut deltas, "content", text, cue),
            Part::Refusal(text) => spoken(&mut deltas, "refusal", text, cue),
            // OpenAI keeps thoughts to itself; compatible servers show them under this name.
            Part::Thinking(text) => spoken(&mut deltas, "reasoning_content", text, cue),
            Part::Redacted(_) => {}
            Part::Call(call) => {
                deltas.extend(call_deltas(call, calls, cue));
                calls += 1;
            }
        }
    }
    deltas
}

fn spoken(deltas: &mut Vec<Value>, field: &str, text: &str, cue: &Cue<'_>) {
    let pieces = fragments(text, &cue.turn.fragment).into_iter();
    deltas.extend(pieces.map(|piece| json!({ field: piece })));
}

fn call_deltas(call: &Call, index: usize, cue: &Cue<'_>) -> Vec<Value> {
    let id = call.id.clone().unwrap_or_else(|| format!("call_{:016x}{index:02}", cue.key));
    let start = json!({
        "index": index,
        "id": id,
        "type": "function",
        "function": { "name": call.name, "arguments": "" },
    });
    let text = if cue.turn.escape { ascii(&call.text()) } else { call.text() };
    let pieces = fragments(&text, &cue.turn.fragment).into_iter();
    let more = pieces.map(|piece| json!({ "index": index, "function": { "arguments": piece } }));
    std::iter::once(start).chain(more).map(|call| json!({ "tool_calls": [call] })).collect()
}

fn reason(turn: &Turn) -> &'static str {
    // A refusal in words of its own is a whole answer; only a filter cuts one short.
    let spoken = turn.stop.is_none() && turn.stop() == Stop::Refused;
    match turn.stop() {
        Stop::Refused if spoken => "stop",
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
