//! The meter against the readers of the project's own clients: both must bill alike.

use adjutant_core::{AttemptResult, ModelErrorKind, StopReason, Usage};
use adjutant_model::gateway::{AnswerEnd, MeteredAnswer, UsageMeter};
use adjutant_model::wire::Wire;
use proptest::prelude::*;
use serde_json::{Value, json};

use crate::golden::{ANTHROPIC, CHAT, GEMINI, RESPONSES, read, recorded};

fn metered<'a>(
    wire: Wire,
    is_streaming: bool,
    pieces: impl IntoIterator<Item = &'a [u8]>,
) -> MeteredAnswer {
    let mut meter = UsageMeter::new(wire, is_streaming);
    pieces.into_iter().for_each(|piece| meter.push_bytes(piece));
    meter.finish()
}

fn stream(wire: Wire, text: &str) -> MeteredAnswer {
    metered(wire, true, [text.as_bytes()])
}

fn whole(wire: Wire, body: &Value) -> MeteredAnswer {
    metered(wire, false, [body.to_string().as_bytes()])
}

/// Checks that the meter comes to the same result as the reader.
fn assert_alike(metered: &MeteredAnswer, read: &AttemptResult, what: &str) {
    match read {
        Ok(reply) => {
            let end = match reply.stop {
                StopReason::EndTurn | StopReason::ToolUse => AnswerEnd::Complete,
                StopReason::MaxOutput => AnswerEnd::Cut,
                StopReason::Refused => AnswerEnd::Refused,
            };
            assert_eq!((metered.usage, &metered.end), (reply.usage, &end), "{what}");
        }
        Err(error) if error.kind == ModelErrorKind::Refused => {
            assert_eq!(metered.end, AnswerEnd::Refused, "{what}");
        }
        Err(_) => assert!(
            matches!(metered.end, AnswerEnd::Broken | AnswerEnd::Failed { .. }),
            "{what}: {metered:?}"
        ),
    }
}

/// Returns streams of every end: the recorded ones, and those with another reason.
fn streams() -> Vec<(Wire, String)> {
    let mut streams: Vec<(Wire, String)> =
        recorded().into_iter().map(|(wire, stream)| (wire, stream.to_owned())).collect();
    for reason in ["end_turn", "max_tokens", "refusal", "pause_turn", "stop_sequence"] {
        let from = "\"tool_use\",\"stop_sequence\"";
        let to = format!("\"{reason}\",\"stop_sequence\"");
        streams.push((Wire::Anthropic, ANTHROPIC.replace(from, &to)));
    }
    for reason in ["stop", "length", "content_filter", "error", "insufficient_system_resource"] {
        let to = format!("\"{reason}\"}}]");
        streams.push((Wire::Chat, CHAT.replace("\"tool_calls\"}]", &to)));
    }
    for reason in ["max_output_tokens", "content_filter"] {
        let incomplete = RESPONSES
            .replace("\"response.completed\"", "\"response.incomplete\"")
            .replace("\"status\":\"completed\",\"error\":null,\"incomplete_details\":null,\"output\":[],\"usage\":{", &format!(
                "\"status\":\"incomplete\",\"error\":null,\"incomplete_details\":{{\"reason\":\"{reason}\"}},\"output\":[],\"usage\":{{"
            ));
        streams.push((Wire::Responses, incomplete));
    }
    for reason in ["MAX_TOKENS", "SAFETY", "MALFORMED_FUNCTION_CALL", "OTHER"] {
        streams.push((Wire::Gemini, GEMINI.replace("STOP", reason)));
    }
    let refusal = |delta: &str| {
        format!(
            "data: {{\"choices\":[{{\"index\":0,\"delta\":{delta},\"finish_reason\":\"stop\"}}],\"usage\":{{\"prompt_tokens\":9,\"completion_tokens\":2,\"prompt_cache_hit_tokens\":4}}}}\n\ndata: [DONE]\n\n"
        )
    };
    for (wire, text) in [
        (Wire::Chat, refusal(r#"{"refusal":"no"}"#)),
        (Wire::Chat, refusal(r#"{"refusal":"","content":"hi"}"#)),
        (Wire::Chat, refusal(r#"{"content":"\ud83e"}"#)),
        (Wire::Chat, "data: [DONE]\n\n".to_owned()),
        (Wire::Responses, "data: [DONE]\n\n".to_owned()),
        (Wire::Chat, "data: <html>\n\n".to_owned()),
        (Wire::Anthropic, String::new()),
        (Wire::Gemini, "data: {\"promptFeedback\":{\"blockReason\":\"SAFETY\"}}\n\n".to_owned()),
        (Wire::Anthropic, "data: {\"type\":\"error\",\"error\":{\"type\":\"overloaded_error\",\"message\":\"Overloaded\"}}\n\n".to_owned()),
        (Wire::Chat, "data: {\"error\":{\"code\":429,\"message\":\"slow down\"}}\n\n".to_owned()),
        (Wire::Responses, "data: {\"type\":\"response.failed\",\"response\":{\"status\":\"failed\",\"error\":{\"code\":\"rate_limit_exceeded\",\"message\":\"x\"}}}\n\n".to_owned()),
        (Wire::Responses, "data: {\"type\":\"error\",\"code\":\"context_length_exceeded\",\"message\":\"x\",\"param\":null}\n\n".to_owned()),
        (Wire::Gemini, "data: {\"error\":{\"code\":503,\"message\":\"x\",\"status\":\"UNAVAILABLE\"}}\n\n".to_owned()),
    ] {
        streams.push((wire, text));
    }
    streams
}

#[test]
fn every_recorded_stream_is_billed_as_by_our_own_clients() {
    let mut usages = 0;
    for (wire, text) in streams() {
        let metered = stream(wire, &text);
        usages += u32::from(metered.usage.is_some());
        assert_alike(&metered, &read(wire, &text), &format!("{wire} {text}"));
    }
    assert!(usages > 15, "{usages}");
    let used = Usage { input: 25, output: 89, cache_read: 300, cache_write: 40 };
    assert_eq!(stream(Wire::Anthropic, ANTHROPIC).usage, Some(used));
}

#[test]
fn a_stream_cut_at_any_byte_is_not_complete() {
    for (wire, text) in recorded() {
        for cut in 0..text.len() {
            let metered = metered(wire, true, [&text.as_bytes()[..cut]]);
            assert_eq!(metered.end, AnswerEnd::Broken, "{wire} cut at {cut}");
        }
    }
    // What Anthropic reports at the start is known even if the rest is lost.
    let half = &ANTHROPIC[..ANTHROPIC.len() / 2];
    let usage = stream(Wire::Anthropic, half).usage.unwrap();
    assert_eq!((usage.input, usage.cache_read), (25, 300));
}

#[test]
fn errors_of_a_provider_are_reported_without_keys() {
    let text = "data: {\"type\":\"error\",\"error\":{\"type\":\"overloaded_error\",\"message\":\"no: sk-abc\"}}\n\n";
    let AnswerEnd::Failed { message } = stream(Wire::Anthropic, text).end else { panic!() };
    assert_eq!(message, "overloaded_error: no: ***");
    for wire in Wire::ALL {
        let body = json!({"type":"error","error":{"message":"broken","code":"x","status":"y"}});
        let metered = whole(wire, &body);
        assert!(matches!(metered.end, AnswerEnd::Failed { .. }), "{wire}: {metered:?}");
    }
}

#[test]
fn whole_answers_are_billed_like_streams() {
    let used = Usage { input: 25, output: 89, cache_read: 300, cache_write: 40 };
    let anthropic = |stop: &str| {
        json!({"type":"message","content":[{"type":"text","text":"hi"}],"stop_reason":stop,
        "usage":{"input_tokens":25,"output_tokens":89,"cache_creation_input_tokens":40,"cache_read_input_tokens":300}})
    };
    let chat = |stop: &str, message: Value| {
        json!({"choices":[{"index":0,"message":message,"finish_reason":stop}],
        "usage":{"prompt_tokens":365,"completion_tokens":89,
                 "prompt_tokens_details":{"cached_tokens":300,"cache_write_tokens":40}}})
    };
    let responses = |status: &str, reason: Value, output: Value| {
        json!({"object":"response","status":status,
        "error":null,"incomplete_details":reason,"output":output,
        "usage":{"input_tokens":365,"output_tokens":89,
                 "input_tokens_details":{"cached_tokens":300,"cache_write_tokens":40}}})
    };
    let text = json!([{"type":"message","content":[{"type":"output_text","text":"hi"}]}]);
    let refusal = json!([{"type":"message","content":[{"type":"refusal","refusal":"no"}]}]);
    let length = json!({"reason":"max_output_tokens"});
    use AnswerEnd::{Broken, Complete, Cut, Refused};
    for (wire, body, end) in [
        (Wire::Anthropic, anthropic("end_turn"), Complete),
        (Wire::Anthropic, anthropic("max_tokens"), Cut),
        (Wire::Anthropic, anthropic("refusal"), Refused),
        (Wire::Chat, chat("stop", json!({"content":"hi","refusal":null})), Complete),
        (Wire::Chat, chat("tool_calls", json!({"content":null,"tool_calls":[{}]})), Complete),
        (Wire::Chat, chat("stop", json!({"content":null,"refusal":"no"})), Refused),
        (Wire::Chat, chat("length", json!({"content":"hi"})), Cut),
        (Wire::Responses, responses("completed", Value::Null, text.clone()), Complete),
        (Wire::Responses, responses("completed", Value::Null, refusal), Refused),
        (Wire::Responses, responses("incomplete", length, text.clone()), Cut),
        (
            Wire::Responses,
            responses("completed", Value::Null, json!([{"type":"other","content":"x"}])),
            Complete,
        ),
        (Wire::Responses, responses("in_progress", Value::Null, text), Broken),
    ] {
        assert_eq!(whole(wire, &body), MeteredAnswer { usage: Some(used), end }, "{wire} {body}");
    }
    let chunk = |text: &str, reason: Value, output: u64| {
        json!({
        "candidates":[{"content":{"parts":[{"text":text}]},"finishReason":reason,"index":0}],
        "usageMetadata":{"promptTokenCount":365,"cachedContentTokenCount":300,"candidatesTokenCount":output,
                         "thoughtsTokenCount":20}})
    };
    let used = Usage { input: 65, output: 89, cache_read: 300, cache_write: 0 };
    let list = json!([chunk("a", Value::Null, 1), chunk("b", json!("STOP"), 69)]);
    for (body, end) in [
        (chunk("a", json!("STOP"), 69), Complete),
        (chunk("a", json!("MAX_TOKENS"), 69), Cut),
        (chunk("a", Value::Null, 69), Broken),
        (list, Complete),
    ] {
        assert_eq!(whole(Wire::Gemini, &body), MeteredAnswer { usage: Some(used), end }, "{body}");
    }
    for wire in Wire::ALL {
        for body in ["", "<html>", "{\"usage\":"] {
            let metered = metered(wire, false, [body.as_bytes()]);
            assert_eq!(metered, MeteredAnswer { usage: None, end: Broken }, "{wire} {body}");
        }
    }
}

#[test]
fn an_answer_above_the_limit_has_no_usage() {
    let piece = vec![b' '; 1 << 20];
    for wire in Wire::ALL {
        let metered = metered(wire, false, std::iter::repeat_n(piece.as_slice(), 65));
        assert_eq!(metered, MeteredAnswer { usage: None, end: AnswerEnd::Broken }, "{wire}");
    }
}

proptest! {
    #[test]
    fn chunk_boundaries_do_not_change_the_bill(
        which in 0..200_usize,
        sizes in prop::collection::vec(1..300_usize, 1..20),
    ) {
        let streams = streams();
        let (wire, text) = &streams[which % streams.len()];
        let mut rest = text.as_bytes();
        let mut pieces = Vec::new();
        for size in sizes.into_iter().cycle() {
            if rest.is_empty() {
                break;
            }
            let (piece, after) = rest.split_at(size.min(rest.len()));
            pieces.push(piece);
            rest = after;
        }
        prop_assert_eq!(metered(*wire, true, pieces), stream(*wire, text), "{} {}", wire, text);
    }
}
