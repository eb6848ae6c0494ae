//! The `Return` tool is strict where the API offers it for single tools.

use adjutant_core::schema::return_spec;
use adjutant_core::{Message, SessionId, ToolSpec};
use adjutant_model::TurnRequest;
use adjutant_model::wire::{SessionBody, Wire, WireCodec};
use adjutant_testkit::fake::{Api, FakeServer, KEY, Script, Turn};
use serde_json::{Value, json};
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;

use crate::golden::codec;

/// Returns the body of a request with the tools Read and Return.
fn body(codec: &WireCodec) -> Vec<u8> {
    let read = ToolSpec {
        name: "Read".to_owned(),
        description: "Reads a file.".to_owned(),
        schema: json!({"type":"object","properties":{"path":{"type":"string","minLength":1}}}),
    };
    let request = TurnRequest {
        agent: "scout",
        label: "look",
        session: SessionId::new(1_735_460_684, [0; 6]),
        turn: 1,
        attempt: 1,
        system: "Be brief.",
        messages: &[Message::User { content: "Look.".to_owned() }],
        tools: &[read, return_spec()],
        may_call_tools: true,
        max_output: 100,
        effort: None,
        context_tokens: 0,
    };
    codec.encode(&mut SessionBody::default(), &request).to_vec()
}

/// Returns the declarations of the two tools.
fn tools(codec: &WireCodec) -> [Value; 2] {
    let body: Value = serde_json::from_slice(&body(codec)).unwrap();
    let list = match codec.wire {
        Wire::Gemini => &body["tools"][0]["functionDeclarations"],
        Wire::Anthropic | Wire::Chat | Wire::Responses => &body["tools"],
    };
    [0, 1].map(|place| match codec.wire {
        Wire::Chat => list[place]["function"].clone(),
        Wire::Anthropic | Wire::Responses | Wire::Gemini => list[place].clone(),
    })
}

#[test]
fn only_the_return_tool_is_strict_and_only_at_the_providers_own_address() {
    let flags = Wire::ALL.map(|wire| {
        let flags = [true, false].map(|official| {
            let tools = tools(&WireCodec { official, ..codec(wire) });
            tools.map(|tool| tool["strict"].to_string()).join(" ")
        });
        format!("{wire}: {}; elsewhere {}", flags[0], flags[1])
    });
    insta::assert_snapshot!(flags.join("\n"), @"
    anthropic: null true; elsewhere null null
    chat: null true; elsewhere null null
    responses: false true; elsewhere false false
    gemini: null null; elsewhere null null
    ");
}

#[test]
fn strict_schemas_are_closed_and_leave_lengths_to_the_contract() {
    let schema = |wire, key: &str| {
        let [_, mut tool] = tools(&WireCodec { official: true, ..codec(wire) });
        let mut schema = tool[key].take();
        let artifact = schema["properties"]["artifacts"]["items"].take();
        let required = json!([schema["required"], artifact["required"]]);
        let closed = [&schema, &artifact].map(|it| it["additionalProperties"].clone());
        let kinds = ["summary", "next_steps"].map(|name| schema["properties"][name].clone());
        format!("{wire}: {required}\n  closed {}\n  {}", json!(closed), json!(kinds))
    };
    insta::assert_snapshot!([
        schema(Wire::Anthropic, "input_schema"),
        schema(Wire::Chat, "parameters"),
    ].join("\n"), @r#"
    anthropic: [["status","summary","artifacts"],["type","path"]]
      closed [false,false]
      [{"type":"string","description":"2 to 5 plain sentences about the outcome."},{"type":"string","description":"At most 2 sentences."}]
    chat: [["status","summary","artifacts","errors","next_steps"],["type","path","summary"]]
      closed [false,false]
      [{"type":"string","description":"2 to 5 plain sentences about the outcome."},{"type":["string","null"],"description":"At most 2 sentences."}]
    "#);
    let [_, responses] = tools(&WireCodec { official: true, ..codec(Wire::Responses) });
    let [_, chat] = tools(&WireCodec { official: true, ..codec(Wire::Chat) });
    assert_eq!(responses["parameters"], chat["parameters"]);
    let [_, gemini] = tools(&codec(Wire::Gemini));
    assert_eq!(gemini["parametersJsonSchema"], return_spec().schema);
}

#[tokio::test]
async fn strict_schemas_are_accepted_by_the_apis() {
    for (api, wire) in Api::ALL.into_iter().zip(Wire::ALL) {
        let fake = FakeServer::new(api, Script::always([Turn::says("Hi.")])).start().await;
        let codec = WireCodec { official: true, ..codec(wire) };
        let (path, header) = match wire {
            Wire::Anthropic => ("/v1/messages", "x-api-key"),
            Wire::Chat => ("/v1/chat/completions", "authorization"),
            Wire::Responses => ("/v1/responses", "authorization"),
            Wire::Gemini => {
                ("/v1beta/models/test-model:streamGenerateContent?alt=sse", "x-goog-api-key")
            }
        };
        let key = if header == "authorization" { format!("Bearer {KEY}") } else { KEY.to_owned() };
        let (body, address) = (body(&codec), fake.address());
        let head = format!(
            "POST {path} HTTP/1.1\r\nhost: {address}\r\n{header}: {key}\r\nanthropic-version: 2023-06-01\r\n\
             content-type: application/json\r\ncontent-length: {}\r\n\r\n",
            body.len()
        );
        let mut connection = TcpStream::connect(address).await.unwrap();
        connection.write_all(&[head.as_bytes(), &body].concat()).await.unwrap();
        fake.wait_for_requests(1).await;
        let request = fake.single_request();
        assert_eq!((request.status, request.complaint), (200, None), "{wire}");
    }
}
