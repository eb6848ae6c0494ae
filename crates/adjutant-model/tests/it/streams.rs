//! Answers of the four APIs, read from bytes.

use adjutant_core::{ModelErrorKind, StopReason, Usage};
use adjutant_model::wire::Wire;
use serde_json::json;

use crate::golden::{codec, read, read_heard, recorded, reply};

#[test]
fn the_recorded_stream_of_every_api_gives_the_same_reply() {
    for (wire, stream) in recorded() {
        let (reply, heard) = read_heard(wire, [stream.as_bytes()]);
        let reply = reply.unwrap();
        assert_eq!(reply.text, "Größe → 🚀 \"now\"", "{wire}");
        assert_eq!(heard, reply.text, "{wire}");
        assert_eq!(reply.stop, StopReason::ToolUse, "{wire}");
        let calls: Vec<_> = reply
            .tool_calls
            .iter()
            .map(|call| (call.name.as_str(), call.arguments.clone(), call.malformed))
            .collect();
        let expected = [("Read", json!({"path": "src/ä.rs"}), false), ("Glob", json!({}), false)];
        assert_eq!(calls, expected, "{wire}");
        // The four kinds never overlap, however a provider counts.
        let usage = Usage {
            input: if wire == Wire::Gemini { 65 } else { 25 },
            output: 89,
            cache_read: 300,
            cache_write: if wire == Wire::Gemini { 0 } else { 40 },
        };
        assert_eq!(reply.usage, Some(usage), "{wire}");
    }
}

#[test]
fn a_stream_cut_at_any_byte_is_never_an_answer() {
    for (wire, stream) in recorded() {
        for cut in 0..stream.len() {
            let attempt = read_heard(wire, [&stream.as_bytes()[..cut]]).0;
            let error = attempt.expect_err(&format!("{wire} cut at {cut}"));
            assert_eq!(error.kind, ModelErrorKind::Truncated, "{wire} cut at {cut}");
        }
    }
}

#[test]
fn chunk_boundaries_do_not_change_the_reply() {
    for (wire, stream) in recorded() {
        let whole = read(wire, stream);
        let bytes = stream.as_bytes();
        assert_eq!(read_heard(wire, bytes.chunks(1)).0, whole, "{wire}");
        for cut in 0..bytes.len() {
            let (attempt, heard) = read_heard(wire, [&bytes[..cut], &bytes[cut..]]);
            assert_eq!(attempt, whole, "{wire} cut at {cut}");
            assert_eq!(heard, "Größe → 🚀 \"now\"", "{wire} cut at {cut}");
        }
    }
}

#[test]
fn calls_without_ids_get_the_same_ones_in_every_replay() {
    let ids: Vec<_> =
        recorded().map(|(wire, stream)| reply(wire, stream).tool_calls[1].id.clone()).into();
    assert_eq!(ids, ["toolu_2", "call_2", "call_2", "adjutant_call_3_1"]);
    let bare = r#"data: {"choices":[{"delta":{"tool_calls":[{"function":{"name":"Read","arguments":{"path":"a"}}}]},"finish_reason":"stop"}]}

data: [DONE]

"#;
    let reply = reply(Wire::Chat, bare);
    assert_eq!(reply.tool_calls[0].id, "adjutant_call_3_0");
    assert_eq!(reply.tool_calls[0].arguments, json!({"path": "a"}));
    assert_eq!((reply.stop, reply.usage), (StopReason::ToolUse, None));
}

#[test]
fn opaque_parts_are_kept_whole_with_their_wire_and_model() {
    for (wire, stream) in recorded() {
        let opaque = reply(wire, stream).opaque;
        let Some(opaque) = opaque else {
            assert_eq!(wire, Wire::Chat);
            continue;
        };
        assert_eq!(opaque["wire"], wire.as_str());
        assert_eq!(opaque["model"], "test-model");
        assert!(opaque["content"].to_string().contains("c2lnbmVk"), "{wire} {opaque}");
    }
}

/// Builds a Chat stream of one choice.
fn chat(delta: &str, finish: &str) -> String {
    format!(
        "data: {{\"choices\":[{{\"index\":0,\"delta\":{delta},\"finish_reason\":{finish}}}]}}\n\ndata: [DONE]\n\n"
    )
}

#[test]
fn thinking_of_a_chat_server_is_sent_back_in_one_piece() {
    let stream = "data: {\"choices\":[{\"delta\":{\"reasoning\":\"a\",\"reasoning_details\":[{\"type\":\"reasoning.text\",\"index\":0,\"text\":\"a\"}]}}]}\n\n".to_owned()
        + "data: {\"choices\":[{\"delta\":{\"reasoning_details\":[{\"type\":\"reasoning.text\",\"index\":0,\"text\":\"b\",\"signature\":\"s\"}]}}]}\n\n"
        + &chat(r#"{"content":"hi"}"#, r#""stop""#);
    let opaque = reply(Wire::Chat, &stream).opaque.unwrap();
    let details = json!([{"type":"reasoning.text","index":0,"text":"ab","signature":"s"}]);
    assert_eq!(opaque["content"], json!([{ "reasoning_details": details }]));
    let stream = chat(r#"{"reasoning_content":"hm","content":"hi"}"#, r#""stop""#);
    let opaque = reply(Wire::Chat, &stream).opaque.unwrap();
    assert_eq!(opaque["content"], json!([{"reasoning_content": "hm"}]));
    // Empty thinking must be sent back too.
    let stream = chat(r#"{"reasoning_content":"","content":"hi"}"#, r#""stop""#);
    let opaque = reply(Wire::Chat, &stream).opaque.unwrap();
    assert_eq!(opaque["content"], json!([{"reasoning_content": ""}]));
    let stream = chat(r#"{"reasoning_content":null,"content":"hi"}"#, r#""stop""#);
    assert_eq!(reply(Wire::Chat, &stream).opaque, None);
}

#[test]
fn a_character_split_between_chunks_is_joined() {
    let delta = |delta: &str| format!("data: {{\"choices\":[{{\"delta\":{delta}}}]}}\n\n");
    let call = |piece: &str| {
        delta(&format!(
            r#"{{"tool_calls":[{{"index":0,"function":{{"name":"Read","arguments":"{piece}"}}}}]}}"#
        ))
    };
    let stream = delta(r#"{"content":"A crab: \ud83e"}"#)
        + &delta(r#"{"content":"\udd80."}"#)
        + &call(r#"{\"path\":\"\ud83e"#)
        + &call(r#"\udd80.rs\"}"#)
        + &chat("{}", "\"tool_calls\"");
    let (attempt, heard) = read_heard(Wire::Chat, [stream.as_bytes()]);
    let reply = attempt.unwrap();
    assert_eq!((reply.text.as_str(), heard.as_str()), ("A crab: 🦀.", "A crab: 🦀."));
    assert_eq!(reply.tool_calls[0].arguments, json!({ "path": "🦀.rs" }));
}

#[test]
fn an_endless_event_or_answer_is_an_error_that_names_the_limit() {
    let line = format!("data: {}", "a".repeat(49 << 20));
    let error = read(Wire::Chat, &line).unwrap_err();
    assert_eq!(error.message, "one event of the answer is larger than 48 MiB");
    let many = format!(": {}\n", "a".repeat(1 << 20)).repeat(65);
    let error = read(Wire::Chat, &many).unwrap_err();
    assert_eq!(error.message, "the answer is larger than 64 MiB");
}

#[test]
fn broken_arguments_are_marked_and_kept() {
    let deep = format!("{}{}", "[".repeat(10_000), "]".repeat(10_000));
    for written in [r#"{"path": "#, "nonsense", &deep] {
        let fragment = json!({"tool_calls":[{"index":0,"id":"c","function":{"name":"Read","arguments":written}}]});
        let reply = reply(Wire::Chat, &chat(&fragment.to_string(), r#""tool_calls""#));
        let call = &reply.tool_calls[0];
        assert!(call.malformed);
        assert_eq!(call.arguments, json!(written.trim()));
    }
}

#[test]
fn an_answer_cut_off_at_its_limit_runs_no_tool() {
    let cut = |text: &str| {
        text.replace("\"tool_use\",\"stop_sequence\"", "\"max_tokens\",\"stop_sequence\"")
    };
    for (wire, stream) in [
        (Wire::Anthropic, cut(crate::golden::ANTHROPIC)),
        (Wire::Chat, crate::golden::CHAT.replace("\"tool_calls\"}]", "\"length\"}]")),
        (
            Wire::Responses,
            crate::golden::RESPONSES
                .replace("\"response.completed\"", "\"response.incomplete\"")
                .replace(
                    "\"completed\",\"error\":null,\"incomplete_details\":null,\"output\":[],\"usage\":{",
                    "\"incomplete\",\"error\":null,\"incomplete_details\":{\"reason\":\"max_output_tokens\"},\"output\":[],\"usage\":{",
                ),
        ),
        (Wire::Gemini, crate::golden::GEMINI.replace("STOP", "MAX_TOKENS")),
    ] {
        let reply = reply(wire, &stream);
        assert_eq!(reply.stop, StopReason::MaxOutput, "{wire}");
        assert_eq!(reply.text, "Größe → 🚀 \"now\"", "{wire}");
        assert!(reply.tool_calls.is_empty() && reply.opaque.is_none(), "{wire}");
        assert!(reply.usage.is_some(), "{wire}");
    }
}

#[test]
fn stop_reasons_are_recognised() {
    let anthropic = |reason: &str| {
        format!(
            "data: {{\"type\":\"message_delta\",\"delta\":{{\"stop_reason\":\"{reason}\"}},\"usage\":{{\"output_tokens\":1}}}}\n\ndata: {{\"type\":\"message_stop\"}}\n\n"
        )
    };
    let gemini = |reason: &str| {
        format!(
            "data: {{\"candidates\":[{{\"content\":{{\"parts\":[{{\"text\":\"x\"}}]}},\"finishReason\":\"{reason}\"}}]}}\n\n"
        )
    };
    let gemini_call = |reason: &str| {
        gemini(reason).replace(r#""text":"x""#, r#""functionCall":{"name":"Read","args":{}}"#)
    };
    for (wire, stream, expected) in [
        (Wire::Anthropic, anthropic("end_turn"), StopReason::EndTurn),
        (Wire::Anthropic, anthropic("stop_sequence"), StopReason::EndTurn),
        (Wire::Anthropic, anthropic("refusal"), StopReason::Refused),
        (Wire::Anthropic, anthropic("model_context_window_exceeded"), StopReason::MaxOutput),
        (Wire::Chat, chat("{}", "\"stop\""), StopReason::EndTurn),
        (Wire::Chat, chat("{}", "\"content_filter\""), StopReason::Refused),
        (Wire::Chat, chat("{\"refusal\":\"no\"}", "\"stop\""), StopReason::Refused),
        (Wire::Gemini, gemini("STOP"), StopReason::EndTurn),
        (Wire::Gemini, gemini_call("FUNCTION_CALL"), StopReason::ToolUse),
        (Wire::Gemini, gemini("SAFETY"), StopReason::Refused),
        (Wire::Gemini, gemini("PROHIBITED_CONTENT"), StopReason::Refused),
        (Wire::Gemini, gemini("MODEL_ARMOR"), StopReason::Refused),
    ] {
        assert_eq!(reply(wire, &stream).stop, expected, "{stream}");
    }
    let interrupted = chat("{\"content\":\"Half\"}", "\"insufficient_system_resource\"");
    assert_eq!(read(Wire::Chat, &interrupted).unwrap_err().kind, ModelErrorKind::Overloaded);
    for (wire, stream) in [
        (Wire::Anthropic, anthropic("pause_turn")),
        (Wire::Anthropic, "data: {\"type\":\"message_stop\"}\n\n".to_owned()),
        (Wire::Chat, "data: [DONE]\n\n".to_owned()),
        (Wire::Gemini, gemini("MALFORMED_FUNCTION_CALL")),
        (Wire::Gemini, gemini("OTHER")),
        (Wire::Gemini, gemini("FUNCTION_CALL")),
        (Wire::Responses, "data: [DONE]\n\n".to_owned()),
    ] {
        assert_eq!(read(wire, &stream).unwrap_err().kind, ModelErrorKind::Truncated, "{stream}");
    }
}

#[test]
fn an_error_or_invalid_data_inside_a_stream_ends_it() {
    for (wire, stream, expected) in [
        (
            Wire::Anthropic,
            r#"data: {"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}"#,
            ModelErrorKind::Overloaded,
        ),
        (
            Wire::Chat,
            r#"data: {"error":{"code":429,"message":"slow down"},"choices":[{"delta":{"content":""},"finish_reason":"error"}]}"#,
            ModelErrorKind::RateLimited,
        ),
        (
            Wire::Responses,
            r#"data: {"type":"response.failed","response":{"status":"failed","error":{"code":"rate_limit_exceeded","message":"x"}}}"#,
            ModelErrorKind::RateLimited,
        ),
        (
            Wire::Responses,
            r#"data: {"type":"error","code":"context_length_exceeded","message":"x","param":null}"#,
            ModelErrorKind::ContextExhausted,
        ),
        (
            Wire::Gemini,
            r#"data: {"error":{"code":503,"message":"x","status":"UNAVAILABLE"}}"#,
            ModelErrorKind::Overloaded,
        ),
        (
            Wire::Gemini,
            r#"data: {"promptFeedback":{"blockReason":"SAFETY"}}"#,
            ModelErrorKind::Refused,
        ),
        (Wire::Chat, "data: <html>", ModelErrorKind::Truncated),
        (Wire::Anthropic, "data: {\"type\":", ModelErrorKind::Truncated),
        (
            Wire::Anthropic,
            r#"data: {"type":"content_block_delta","index":7,"delta":{"type":"text_delta","text":"x"}}"#,
            ModelErrorKind::Truncated,
        ),
    ] {
        let error = read(wire, &format!("{stream}\n\n")).unwrap_err();
        assert_eq!(error.kind, expected, "{stream}");
    }
}

#[test]
fn a_thousand_calls_in_one_turn_are_read() {
    let calls: Vec<_> = (0..1_000_u32)
        .map(|n| json!({"index": u64::from(n) << 32, "function":{"name":"Read","arguments":"{}"}}))
        .collect();
    let stream = chat(&json!({ "tool_calls": calls }).to_string(), "\"tool_calls\"");
    let reply = reply(Wire::Chat, &stream);
    assert_eq!(reply.tool_calls.len(), 1_000);
    assert_eq!(reply.tool_calls[999].id, "adjutant_call_3_999");
}

#[test]
fn wire_names_parse_and_every_wire_has_a_reader() {
    for wire in Wire::ALL {
        assert_eq!(wire.as_str().parse(), Ok(wire));
        assert!(format!("{:?}", codec(wire).reader(1)).starts_with("AnswerReader"));
    }
    insta::assert_snapshot!("chatt".parse::<Wire>().unwrap_err(), @"`chatt` is not a wire format; known are anthropic, chat, responses, gemini; did you mean chat");
}
