//! Requests for the four APIs, byte by byte.

use adjutant_core::{Message, SessionId, ToolCall, ToolSpec};
use adjutant_model::wire::{SessionBody, Wire, WireCodec};
use adjutant_model::{ModelSettings, OutputFormat, ReasoningEffort, TurnRequest};
use serde_json::{Value, json};

use crate::golden::{codec, recorded, reply};

fn tools() -> Vec<ToolSpec> {
    let schema = json!({"type":"object","properties":{"path":{"type":"string"}}});
    ["Read", "Glob"]
        .map(|name| ToolSpec {
            name: name.to_owned(),
            description: format!("{name} things."),
            schema: schema.clone(),
        })
        .to_vec()
}

fn request<'a>(messages: &'a [Message], tools: &'a [ToolSpec], max_output: u64) -> TurnRequest<'a> {
    TurnRequest {
        agent: "scout",
        label: "look",
        session: SessionId::new(1_735_460_684, [0; 6]),
        turn: 1,
        attempt: 1,
        system: "Be brief.",
        messages,
        tools,
        may_call_tools: true,
        max_output,
        effort: None,
        context_tokens: 0,
    }
}

fn user(content: &str) -> Message {
    Message::User { content: content.to_owned() }
}

fn result(id: &str, content: &str, is_error: bool) -> Message {
    Message::Tool { tool_call_id: id.to_owned(), content: content.to_owned(), is_error }
}

/// The conversation after the tools of the recorded answer have run, and a message of the engine.
fn talk(wire: Wire, stream: &str) -> Vec<Message> {
    let reply = reply(wire, stream);
    let ids: Vec<String> = reply.tool_calls.iter().map(|call| call.id.clone()).collect();
    vec![
        user("Look around."),
        Message::Assistant {
            content: reply.text,
            tool_calls: reply.tool_calls,
            opaque: reply.opaque,
        },
        result(&ids[0], "fn ä() {}", false),
        result(&ids[1], "no such folder", true),
        user("Report now."),
    ]
}

fn body(codec: &WireCodec, request: &TurnRequest<'_>) -> String {
    let mut kept = SessionBody::default();
    String::from_utf8(codec.encode(&mut kept, request).to_vec()).unwrap()
}

/// Shows a body with a line for each part, so that a difference is seen.
fn lines(body: &str) -> String {
    let _valid: Value = serde_json::from_str(body).unwrap();
    body.replace("},{", "},\n{")
        .replace(",\"messages\"", ",\n\"messages\"")
        .replace("],\"", "],\n\"")
}

fn golden(wire: Wire) -> String {
    let (_, stream) = recorded().into_iter().find(|(of, _)| *of == wire).unwrap();
    lines(&body(&codec(wire), &request(&talk(wire, stream), &tools(), 4_096)))
}

#[test]
fn anthropic_requests_return_thinking_and_have_two_cache_markers() {
    insta::assert_snapshot!(golden(Wire::Anthropic), @r##"
    {"model":"test-model","stream":true,"system":[{"type":"text","text":"Be brief.","cache_control":{"type":"ephemeral"}}],
    "tools":[{"name":"Read","description":"Read things.","input_schema":{"type":"object","properties":{"path":{"type":"string"}}}},
    {"name":"Glob","description":"Glob things.","input_schema":{"type":"object","properties":{"path":{"type":"string"}}}}],
    "messages":[{"role":"user","content":[{"type":"text","text":"Look around."}]},
    {"role":"assistant","content":[{"type":"thinking","thinking":"Two files.","signature":"c2lnbmVk"},
    {"type":"text","text":"Größe → 🚀 \"now\""},
    {"type":"tool_use","id":"toolu_1","name":"Read","input":{"path":"src/ä.rs"}},
    {"type":"tool_use","id":"toolu_2","name":"Glob","input":{}}]},
    {"role":"user","content":[{"type":"tool_result","tool_use_id":"toolu_1","content":"fn ä() {}"},
    {"type":"tool_result","tool_use_id":"toolu_2","content":"no such folder","is_error":true},
    {"type":"text","text":"Report now.","cache_control":{"type":"ephemeral"}}]}],
    "max_tokens":4096}
    "##);
}

#[test]
fn chat_requests_use_only_widely_supported_fields() {
    insta::assert_snapshot!(golden(Wire::Chat), @r##"
    {"model":"test-model","stream":true,"stream_options":{"include_usage":true},"tools":[{"type":"function","function":{"name":"Read","description":"Read things.","parameters":{"type":"object","properties":{"path":{"type":"string"}}}}},
    {"type":"function","function":{"name":"Glob","description":"Glob things.","parameters":{"type":"object","properties":{"path":{"type":"string"}}}}}],
    "messages":[{"role":"system","content":"Be brief."},
    {"role":"user","content":"Look around."},
    {"role":"assistant","content":"Größe → 🚀 \"now\"","tool_calls":[{"id":"call_1","type":"function","function":{"name":"Read","arguments":"{\"path\":\"src/ä.rs\"}"}},
    {"id":"call_2","type":"function","function":{"name":"Glob","arguments":"{}"}}]},
    {"role":"tool","tool_call_id":"call_1","content":"fn ä() {}"},
    {"role":"tool","tool_call_id":"call_2","content":"no such folder"},
    {"role":"user","content":"Report now."}],
    "max_tokens":4096}
    "##);
}

#[test]
fn responses_requests_return_the_items_of_the_provider() {
    insta::assert_snapshot!(golden(Wire::Responses), @r##"
    {"model":"test-model","stream":true,"store":false,"include":["reasoning.encrypted_content"],
    "instructions":"Be brief.","tools":[{"type":"function","name":"Read","description":"Read things.","parameters":{"type":"object","properties":{"path":{"type":"string"}}},"strict":false},
    {"type":"function","name":"Glob","description":"Glob things.","parameters":{"type":"object","properties":{"path":{"type":"string"}}},"strict":false}],
    "input":[{"role":"user","content":"Look around."},
    {"id":"rs_1","type":"reasoning","summary":[],
    "encrypted_content":"c2lnbmVk"},
    {"id":"msg_1","type":"message","status":"completed","role":"assistant","content":[{"type":"output_text","text":"Größe → 🚀 \"now\"","annotations":[]}]},
    {"id":"fc_1","type":"function_call","status":"completed","call_id":"call_1","name":"Read","arguments":"{\"path\": \"src/ä.rs\"}"},
    {"id":"fc_2","type":"function_call","status":"completed","call_id":"call_2","name":"Glob","arguments":"{}"},
    {"type":"function_call_output","call_id":"call_1","output":"fn ä() {}"},
    {"type":"function_call_output","call_id":"call_2","output":"no such folder"},
    {"role":"user","content":"Report now."}],
    "max_output_tokens":4096}
    "##);
}

#[test]
fn gemini_requests_return_signatures_on_the_same_parts() {
    insta::assert_snapshot!(golden(Wire::Gemini), @r##"
    {"systemInstruction":{"parts":[{"text":"Be brief."}]},"tools":[{"functionDeclarations":[{"name":"Read","description":"Read things.","parametersJsonSchema":{"type":"object","properties":{"path":{"type":"string"}}}},
    {"name":"Glob","description":"Glob things.","parametersJsonSchema":{"type":"object","properties":{"path":{"type":"string"}}}}]}],
    "contents":[{"role":"user","parts":[{"text":"Look around."}]},
    {"role":"model","parts":[{"text":"Größe → 🚀 \"now\""},
    {"functionCall":{"name":"Read","args":{"path":"src/ä.rs"}},"thoughtSignature":"c2lnbmVk"},
    {"functionCall":{"name":"Glob","args":{}}}]},
    {"role":"user","parts":[{"functionResponse":{"name":"Read","response":{"output":"fn ä() {}"}}},
    {"functionResponse":{"name":"Glob","response":{"error":"no such folder"}}},
    {"text":"Report now."}]}],
    "generationConfig":{"maxOutputTokens":4096}}
    "##);
}

#[test]
fn settings_are_written_in_the_form_of_each_api() {
    let settings = ModelSettings {
        effort: None,
        format: Some(OutputFormat { name: "report".into(), schema: json!({"type":"object"}) }),
    };
    let messages = [user("Hi")];
    let tails = Wire::ALL.map(|wire| {
        let codec = WireCodec { settings: settings.clone(), official: true, ..codec(wire) };
        let asked =
            TurnRequest { effort: Some(ReasoningEffort::High), ..request(&messages, &[], 100) };
        let mut kept = SessionBody::default();
        let body = codec.encode(&mut kept, &asked).to_vec();
        let tail = String::from_utf8(body[kept.stable_len()..].to_vec()).unwrap();
        format!("{wire}: {tail}")
    });
    insta::assert_snapshot!(tails.join("\n"), @r##"
    anthropic: ,"cache_control":{"type":"ephemeral"}}]}],"max_tokens":100,"output_config":{"effort":"high","format":{"type":"json_schema","schema":{"type":"object"}}}}
    chat: ],"max_completion_tokens":100,"reasoning_effort":"high","response_format":{"type":"json_schema","json_schema":{"name":"report","strict":true,"schema":{"type":"object"}}},"prompt_cache_key":"sess_1735460684_aaaaaa"}
    responses: ],"max_output_tokens":100,"reasoning":{"effort":"high"},"text":{"format":{"type":"json_schema","name":"report","strict":true,"schema":{"type":"object"}}},"prompt_cache_key":"sess_1735460684_aaaaaa"}
    gemini: }]}],"generationConfig":{"maxOutputTokens":100,"thinkingConfig":{"thinkingLevel":"high"},"responseMimeType":"application/json","responseJsonSchema":{"type":"object"}}}
    "##);
}

#[test]
fn models_that_refuse_an_effort_are_not_asked_for_one() {
    let messages = [user("Hi")];
    let asked = TurnRequest { effort: Some(ReasoningEffort::Low), ..request(&messages, &[], 100) };
    for (wire, model, reasoning, expected) in [
        (Wire::Anthropic, "claude-opus-5-5", true, true),
        (Wire::Anthropic, "claude-haiku-4-5-20251001", true, false),
        (Wire::Anthropic, "claude-sonnet-4-5", true, false),
        (Wire::Anthropic, "claude-sonnet-4-6", true, true),
        (Wire::Responses, "gpt-6.1-sol", true, true),
        (Wire::Chat, "gpt-4.1", false, false),
        (Wire::Gemini, "gemini-2.5-pro", true, true),
    ] {
        let codec = WireCodec { model: model.to_owned(), reasoning, ..codec(wire) };
        let body = body(&codec, &asked);
        let is_asked = body.contains("effort") || body.contains("thinking");
        assert_eq!(is_asked, expected, "{model}: {body}");
    }
}

/// Walks through a conversation and passes each request body and the previous one to `check`.
fn walk(wire: Wire, mut check: impl FnMut(&str, usize, &str)) {
    let (_, stream) = recorded().into_iter().find(|(of, _)| *of == wire).unwrap();
    let (codec, tools) = (codec(wire), tools());
    let mut kept = SessionBody::default();
    let mut messages: Vec<Message> = Vec::new();
    let mut before: Option<(String, usize)> = None;
    for turn in 0..6 {
        messages.extend(talk(wire, stream).into_iter().skip(usize::from(turn > 0)));
        let request = request(&messages, &tools, 4_096 - turn);
        let kept_body = String::from_utf8(codec.encode(&mut kept, &request).to_vec()).unwrap();
        assert_eq!(kept_body, body(&codec, &request), "{wire}: keeping changes nothing");
        let _valid: Value = serde_json::from_str(&kept_body).unwrap();
        if let Some((old, stable)) = &before {
            check(old, *stable, &kept_body);
        }
        before = Some((kept_body, kept.stable_len()));
    }
}

#[test]
fn each_request_starts_with_the_previous_one_except_for_its_tail() {
    for wire in Wire::ALL {
        walk(wire, |old, stable, new| {
            assert_eq!(&old[..stable], &new[..stable], "{wire}");
            let tail = &old[stable..];
            assert!(tail.len() < 120, "{wire}: the tail is small: {tail}");
            assert!(!tail.contains("role"), "{wire}: no message is in the tail: {tail}");
        });
    }
}

#[test]
fn cache_markers_and_keys_are_in_each_of_twenty_turns() {
    for (wire, stream) in recorded() {
        let (codec, tools) = (WireCodec { official: true, ..codec(wire) }, tools());
        let (mut kept, mut messages) = (SessionBody::default(), Vec::new());
        for turn in 0..20 {
            messages.extend(talk(wire, stream).into_iter().skip(usize::from(turn > 0)));
            let body = codec.encode(&mut kept, &request(&messages, &tools, 9)).to_vec();
            let body = String::from_utf8(body).unwrap();
            let key = r#""prompt_cache_key":"sess_1735460684_aaaaaa"}"#;
            let found = (body.matches("cache_control").count(), body.ends_with(key));
            let expected = match wire {
                Wire::Anthropic => (2, false),
                Wire::Chat | Wire::Responses => (0, true),
                Wire::Gemini => (0, false),
            };
            assert_eq!(found, expected, "{wire}, turn {turn}");
        }
    }
}

#[test]
fn a_conversation_encodes_to_the_same_bytes_in_one_step_or_many() {
    // `walk` compares with a fresh body at each step; here a retry and a forgotten past are added.
    for wire in Wire::ALL {
        let (codec, tools) = (codec(wire), tools());
        let messages = [user("One"), user("Two")];
        let mut kept = SessionBody::default();
        let first = codec.encode(&mut kept, &request(&messages, &tools, 9)).to_vec();
        let again = codec.encode(&mut kept, &request(&messages, &tools, 9)).to_vec();
        assert_eq!(first, again, "{wire}");
        let shorter = codec.encode(&mut kept, &request(&messages[..1], &tools, 9)).to_vec();
        assert_eq!(
            String::from_utf8(shorter).unwrap(),
            body(&codec, &request(&messages[..1], &tools, 9))
        );
    }
}

#[test]
fn tools_that_are_withdrawn_stay_listed_and_may_not_be_called() {
    for (wire, choice) in [
        (Wire::Anthropic, r#""tool_choice":{"type":"none"}"#),
        (Wire::Chat, r#""tool_choice":"none""#),
        (Wire::Responses, r#""tool_choice":"none""#),
        (Wire::Gemini, r#""toolConfig":{"functionCallingConfig":{"mode":"NONE"}}"#),
    ] {
        let (codec, tools) = (codec(wire), tools());
        let messages = [user("One"), user("Report now.")];
        let mut kept = SessionBody::default();
        codec.encode(&mut kept, &request(&messages[..1], &tools, 9));
        let without_calls = TurnRequest { may_call_tools: false, ..request(&messages, &tools, 9) };
        let last = codec.encode(&mut kept, &without_calls).to_vec();
        let last = String::from_utf8(last).unwrap();
        assert!(last.contains(choice) && last.contains("Glob things."), "{wire}: {last}");
        assert_eq!(last, body(&codec, &without_calls), "{wire}: a new process sends the same");
        let toolless = TurnRequest { may_call_tools: false, ..request(&messages, &[], 9) };
        let toolless = body(&codec, &toolless);
        assert!(!toolless.contains("none") && !toolless.contains("NONE"), "{wire}: {toolless}");
    }
}

#[test]
fn opaque_parts_of_another_model_and_calls_not_made_are_left_out() {
    for (wire, stream) in recorded() {
        let mut messages = talk(wire, stream);
        let other = WireCodec { model: "other-model".to_owned(), ..codec(wire) };
        let foreign = body(&other, &request(&messages, &tools(), 9));
        assert!(!foreign.contains("c2lnbmVk"), "{wire}: {foreign}");
        if let Message::Assistant { tool_calls, .. } = &mut messages[1] {
            tool_calls.clear();
        }
        let unmade = body(&codec(wire), &request(&messages[..2], &tools(), 9));
        assert!(!unmade.contains("ä.rs") && !unmade.contains("c2lnbmVk"), "{wire}: {unmade}");
    }
}

#[test]
fn empty_and_malformed_messages_are_encoded_validly() {
    let broken = ToolCall {
        id: "c1".into(),
        name: "Read".into(),
        arguments: json!("{\"path\": "),
        malformed: true,
    };
    let messages = [
        user(""),
        Message::Assistant { content: String::new(), tool_calls: vec![], opaque: None },
        user("Go on."),
        Message::Assistant { content: String::new(), tool_calls: vec![broken], opaque: None },
        result("c1", "", true),
    ];
    for wire in Wire::ALL {
        let body = body(&codec(wire), &request(&messages, &tools(), 9));
        let _valid: Value = serde_json::from_str(&body).unwrap();
        assert!(body.contains("(empty)") && body.contains("(no answer)"), "{wire}: {body}");
        assert!(body.contains("malformed"), "{wire}: {body}");
    }
}
