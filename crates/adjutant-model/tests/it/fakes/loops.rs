//! Tool loops: what goes out, what comes back, and what of it must be the same again.

use adjutant_core::{StopReason, Usage};
use adjutant_testkit::fake::{self, Api, Call, Part, Stop, Turn};
use serde_json::{Value, json};

use adjutant_model::{ModelSettings, OutputFormat, ReasoningEffort, open_model_with};

use super::{Agent, complaints, serve};

const ODD: &str = "a/ü/日本/🦀/\u{10FFFF} \"quoted\" \\ back\nline";

fn call(name: &str, arguments: &Value, id: &str) -> Part {
    let arguments = arguments.as_object().unwrap().clone();
    Part::Call(Call { name: name.into(), arguments, raw: None, id: Some(id.into()) })
}

fn turns() -> Vec<Turn> {
    vec![
        Turn::says("Erst lesen: äöü 🦀.")
            .thinking("Hm, was ist 日本?")
            .and_calls("Read", &json!({ "path": ODD }))
            .and_calls("Read", &json!({ "path": "b", "limit": 7 }))
            .and_calls("Read", &json!({ "path": "c" }))
            .fragmented(&[1, 2, 3]),
        Turn { escape: true, noise: true, ..Turn::calls("Read", &json!({ "path": ODD })) }
            .fragmented(&[1]),
        Turn::calls("Read", &json!({})).thinking("And one without arguments."),
        Turn::says("Fertig: 🦀."),
    ]
}

#[tokio::test]
async fn a_tool_loop_is_accepted_turn_by_turn_in_any_cut_of_its_bytes() {
    for api in Api::ALL {
        for chunks in [vec![], vec![1], vec![7, 1, 64], vec![4096]] {
            let cut = |turn: Turn| turn.delivered(|delivery| delivery.chunks = chunks.clone());
            let fake = serve(api, turns().into_iter().map(cut)).await;
            let mut agent = Agent::new(fake.model(), 1);
            let mut said = Vec::new();
            for _ in 0..4 {
                let reply = agent.ask().await;
                agent.answer(&reply);
                let calls: Vec<Value> =
                    reply.tool_calls.iter().map(|call| call.arguments.clone()).collect();
                said.push((reply.text, reply.stop, calls));
            }
            let expected = [
                (
                    "Erst lesen: äöü 🦀.".to_owned(),
                    StopReason::ToolUse,
                    vec![
                        json!({ "path": ODD }),
                        json!({ "path": "b", "limit": 7 }),
                        json!({ "path": "c" }),
                    ],
                ),
                (String::new(), StopReason::ToolUse, vec![json!({ "path": ODD })]),
                (String::new(), StopReason::ToolUse, vec![json!({})]),
                ("Fertig: 🦀.".to_owned(), StopReason::EndTurn, vec![]),
            ];
            assert_eq!(said, expected, "{api:?} in pieces of {chunks:?}");
            assert_eq!(agent.heard, "Erst lesen: äöü 🦀.Fertig: 🦀.", "{api:?}");
            assert!(agent.hidden > 0, "{api:?} tells of what it does not show");
            assert_eq!(complaints(&fake), [""; 0], "{api:?}");
            assert_eq!(fake.connections(), 1, "{api:?} uses one connection");
        }
    }
}

#[tokio::test]
async fn ids_that_a_provider_gives_come_back_with_the_results() {
    for api in Api::ALL {
        let first = Turn::default().then(call("Read", &json!({ "path": "a" }), "id_a")).then(call(
            "Read",
            &json!({ "path": "b" }),
            "id_b",
        ));
        let fake = serve(api, [first, Turn::says("Done.")]).await;
        let mut agent = Agent::new(fake.model(), 1);
        let reply = agent.ask().await;
        let ids: Vec<&str> = reply.tool_calls.iter().map(|call| call.id.as_str()).collect();
        assert_eq!(ids, ["id_a", "id_b"], "{api:?}");
        agent.answer(&reply);
        assert_eq!(agent.ask().await.text, "Done.", "{api:?}");
    }
}

/// Removes what may differ between the requests of two turns.
fn without_markers(body: &[u8]) -> String {
    let body = String::from_utf8(body.to_vec()).unwrap();
    body.replace(r#","cache_control":{"type":"ephemeral"}"#, "")
}

#[tokio::test]
async fn each_request_starts_with_the_previous_one_except_for_cache_markers_and_the_tail() {
    for api in Api::ALL {
        let fake = serve(api, turns()).await;
        let mut agent = Agent::new(fake.model(), 1);
        for _ in 0..4 {
            let reply = agent.ask().await;
            agent.answer(&reply);
        }
        let bodies: Vec<String> =
            fake.requests().iter().map(|request| without_markers(&request.body)).collect();
        for pair in bodies.windows(2) {
            let same =
                pair[0].bytes().zip(pair[1].bytes()).take_while(|(old, new)| old == new).count();
            // The tail: what closes the conversation, and the settings behind it.
            let tail = &pair[0][same..];
            assert!(tail.len() < 120, "{api:?}: {tail}");
            let settings = ["max_tokens", "max_output_tokens", "maxOutputTokens"];
            assert!(settings.iter().any(|name| tail.contains(name)), "{api:?}: {tail}");
            for word in ["role", "content\"", "parts", "input\"", "text\""] {
                assert!(!tail.contains(word), "{api:?}: {tail}");
            }
        }
    }
}

#[tokio::test]
async fn caching_is_requested_where_the_api_needs_it() {
    for api in Api::ALL {
        let fake = serve(api, turns()).await;
        let mut agent = Agent::new(fake.model(), 1);
        for _ in 0..3 {
            let reply = agent.ask().await;
            agent.answer(&reply);
        }
        for request in fake.requests() {
            let body = request.json();
            let markers = String::from_utf8_lossy(&request.body).matches("cache_control").count();
            if api != Api::Anthropic {
                assert_eq!(markers, 0, "{api:?} caches by itself");
                continue;
            }
            assert_eq!(markers, 2);
            let marker = json!({ "type": "ephemeral" });
            assert_eq!(body["system"][0]["cache_control"], marker);
            let last = body["messages"].as_array().unwrap().last().unwrap();
            let last = last["content"].as_array().unwrap().last().unwrap();
            assert_eq!(last["cache_control"], marker, "{last}");
        }
    }
}

#[tokio::test]
async fn thoughts_are_sent_back_unchanged() {
    for api in Api::ALL {
        let think = Turn {
            parts: vec![
                Part::Thinking("First 日本,\nthen the rest.".into()),
                Part::Redacted("secret".into()),
                Part::Text("I read.".into()),
                call("Read", &json!({ "path": "a" }), "id_a"),
                call("Read", &json!({ "path": "b" }), "id_b"),
            ],
            ..Turn::default()
        };
        let fake = serve(api, [think.fragmented(&[5]), Turn::says("Done.")]).await;
        let mut agent = Agent::new(fake.model(), 1);
        let reply = agent.ask().await;
        assert_eq!(reply.text, "I read.", "{api:?}");
        agent.answer(&reply);
        // The server checks signatures and seals; here is what it got.
        agent.ask().await;
        let body = fake.requests()[1].json();
        match api {
            Api::Anthropic => {
                let said = &body["messages"][1]["content"];
                assert_eq!(said[0]["thinking"], "First 日本,\nthen the rest.");
                assert_eq!(said[1]["type"], "redacted_thinking");
                assert_eq!(said[2], json!({ "type": "text", "text": "I read." }));
            }
            Api::Chat => {
                let said = &body["messages"][2]["reasoning_content"];
                assert_eq!(said, "First 日本,\nthen the rest.");
            }
            Api::Responses => {
                let said = &body["input"][1];
                assert_eq!(said["type"], "reasoning");
                assert!(said["encrypted_content"].is_string());
            }
            Api::Gemini => {
                let parts = body["contents"][1]["parts"].as_array().unwrap();
                let calls: Vec<&Value> =
                    parts.iter().filter(|part| part["functionCall"].is_object()).collect();
                assert!(calls[0]["thoughtSignature"].is_string());
                assert!(calls[1].get("thoughtSignature").is_none());
            }
        }
    }
}

#[tokio::test]
async fn an_answer_of_only_thoughts_or_blanks_keeps_the_conversation_valid() {
    for api in Api::ALL {
        let silent = [
            Turn::default(),
            Turn::default().thinking("Just thinking."),
            Turn::says(" \n"),
            Turn::says("\n\n").and_calls("Read", &json!({ "path": "a" })),
            Turn::says("\n\n").thinking("Hm.").and_calls("Read", &json!({ "path": "a" })),
            Turn::says("Done."),
        ];
        let fake = serve(api, silent).await;
        let mut agent = Agent::new(fake.model(), 1);
        let mut reply = agent.ask().await;
        while fake.request_count() < 6 {
            match reply.stop {
                StopReason::ToolUse => agent.answer(&reply),
                StopReason::EndTurn | StopReason::MaxOutput | StopReason::Refused => {
                    assert_eq!(reply.text.trim(), "", "{api:?}");
                    agent.says("Your answer was empty.");
                }
            }
            reply = agent.ask().await;
        }
        assert_eq!(reply.text, "Done.", "{api:?}");
    }
}

#[tokio::test]
async fn calls_without_a_name_or_with_the_same_id_keep_the_conversation_valid() {
    for api in Api::ALL {
        for thinks in [false, true] {
            let mut first = Turn::default()
                .then(call("", &json!({ "path": "a" }), "id_a"))
                .then(call("Read", &json!({ "path": "b" }), "id_a"))
                .then(call("Read it!", &json!({ "path": "c" }), "id_a"));
            if thinks {
                first = first.thinking("Hm.");
            }
            let fake = serve(api, [first, Turn::says("Done.")]).await;
            let mut agent = Agent::new(fake.model(), 1);
            let reply = agent.ask().await;
            let calls: Vec<_> = reply
                .tool_calls
                .iter()
                .map(|call| (call.id.as_str(), call.name.as_str()))
                .collect();
            let expected = [("id_a", ""), ("id_a", "Read"), ("id_a", "Read it!")];
            assert_eq!(calls, expected, "{api:?} reports what was said");
            agent.answer(&reply);
            assert_eq!(agent.ask().await.text, "Done.", "{api:?}");
        }
    }
}

#[tokio::test]
async fn usage_is_normalised_and_nothing_is_counted_twice() {
    let sent =
        fake::Usage { input: 1_000, cache_read: 300, cache_write: 50, output: 77, thinking: 7 };
    for api in Api::ALL {
        let fake = serve(api, [Turn::says("Hi.").using(sent)]).await;
        let usage = Agent::new(fake.model(), 1).ask().await.usage.unwrap();
        // Only one API tells what it wrote to the cache; with the others it is plain input.
        let (input, cache_write) = if api == Api::Anthropic { (1_000, 50) } else { (1_050, 0) };
        let expected = Usage { input, output: 77, cache_read: 300, cache_write };
        assert_eq!(usage, expected, "{api:?}");
        let silent = Turn { no_usage: true, ..Turn::says("Hi.") };
        let fake = serve(api, [silent]).await;
        let usage = Agent::new(fake.model(), 1).ask().await.usage;
        if api != Api::Anthropic {
            assert_eq!(usage, None, "{api:?}: no bill is not a bill of nothing");
        }
    }
}

#[tokio::test]
async fn each_stop_reason_is_recognised() {
    for api in Api::ALL {
        for (stop, expected) in [
            (Stop::End, StopReason::EndTurn),
            (Stop::Sequence, StopReason::EndTurn),
            (Stop::Length, StopReason::MaxOutput),
            (Stop::Window, StopReason::MaxOutput),
            (Stop::Refused, StopReason::Refused),
        ] {
            let fake = serve(api, [Turn::says("Hi.").stopping(stop)]).await;
            let reply = Agent::new(fake.model(), 1).ask().await;
            assert_eq!(reply.stop, expected, "{api:?} {stop:?}");
            assert_eq!(reply.text, "Hi.", "{api:?} {stop:?}");
        }
        let refusal = Turn::default().then(Part::Refusal("I will not.".into()));
        let fake = serve(api, [refusal.stopping(Stop::Refused)]).await;
        let reply = Agent::new(fake.model(), 1).ask().await;
        assert_eq!((reply.stop, reply.text.as_str()), (StopReason::Refused, "I will not."));
    }
}

#[tokio::test]
async fn truncated_calls_are_not_made_and_the_conversation_continues() {
    for api in Api::ALL {
        let whole =
            Call { name: "Read".into(), raw: Some(r#"{"path":"a"}"#.into()), ..Call::default() };
        // Where arguments come in pieces, the last one is missing.
        let raw = if api == Api::Gemini { r#"{"path":"b"}"# } else { r#"{"path":"b"# };
        let cut = Call { name: "Read".into(), raw: Some(raw.into()), ..Call::default() };
        let turn = Turn::says("I rea")
            .thinking("Hm.")
            .then(Part::Call(whole))
            .then(Part::Call(cut))
            .stopping(Stop::Length);
        let fake = serve(api, [turn, Turn::says("Done.")]).await;
        let mut agent = Agent::new(fake.model(), 1);
        let reply = agent.ask().await;
        assert_eq!(reply.stop, StopReason::MaxOutput, "{api:?}");
        assert!(reply.tool_calls.is_empty(), "{api:?}");
        assert_eq!(reply.text, "I rea", "{api:?}");
        agent.says("Say it shorter.");
        assert_eq!(agent.ask().await.text, "Done.", "{api:?}");
    }
}

#[tokio::test]
async fn one_connection_serves_the_turns_of_many_sessions() {
    for api in Api::ALL {
        let turns = [Turn::calls("Read", &json!({ "path": "a" })), Turn::says("Done.")];
        let fake = serve(api, turns).await;
        let model = fake.model();
        for number in 1..=5 {
            let mut agent = Agent::new(model.clone(), number);
            let reply = agent.ask().await;
            agent.answer(&reply);
            agent.ask().await;
        }
        assert_eq!((fake.request_count(), fake.connections()), (10, 1), "{api:?}");
    }
}

#[tokio::test]
async fn a_conversation_continues_with_another_api() {
    for first in Api::ALL {
        for second in Api::ALL {
            let turns = turns();
            let fake = serve(first, turns.clone()).await;
            let mut agent = Agent::new(fake.model(), 1);
            for _ in 0..3 {
                let reply = agent.ask().await;
                agent.answer(&reply);
            }
            let other = serve(second, turns).await;
            agent.model = other.model();
            assert_eq!(agent.ask().await.text, "Fertig: 🦀.", "{first:?} then {second:?}");
        }
    }
}

#[tokio::test]
async fn tools_that_are_withdrawn_stay_listed_and_are_forbidden() {
    for api in Api::ALL {
        let fake = serve(api, turns()).await;
        let mut agent = Agent::new(fake.model(), 1);
        let reply = agent.ask().await;
        agent.answer(&reply);
        agent.may_call_tools = false;
        agent.says("Report now.");
        agent.ask().await;
        let body = fake.requests()[1].json();
        assert!(body["tools"].is_array(), "{api:?}");
        let choice = match api {
            Api::Anthropic => &body["tool_choice"]["type"],
            Api::Chat | Api::Responses => &body["tool_choice"],
            Api::Gemini => &body["toolConfig"]["functionCallingConfig"]["mode"],
        };
        assert!(matches!(choice.as_str(), Some("none" | "NONE")), "{api:?}: {choice}");
    }
}

#[tokio::test]
async fn every_setting_is_accepted_by_the_api() {
    let schema = json!({
        "type": "object",
        "properties": { "found": { "type": "string" } },
        "required": ["found"],
        "additionalProperties": false,
    });
    for api in Api::ALL {
        for effort in [
            ReasoningEffort::Low,
            ReasoningEffort::Medium,
            ReasoningEffort::High,
            ReasoningEffort::Max,
        ] {
            let format = Some(OutputFormat { name: "report".to_owned(), schema: schema.clone() });
            let settings = ModelSettings { effort: Some(effort), format };
            let fake = serve(api, [Turn::says("{}")]).await;
            let model = open_model_with(api.model(), &fake.sources(), settings).unwrap();
            assert_eq!(Agent::new(model, 1).ask().await.text, "{}", "{api:?} {effort:?}");
        }
    }
}
