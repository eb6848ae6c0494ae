//! Anthropic Messages, from the outside.

use adjutant_testkit::fake::{Api, Call, FakeServer, Part, Script, Stop, Turn, Usage};
use serde_json::{Value, json};

use crate::rig::{Client, Request, ask, changed, hello, refusals};

const API: Api = Api::Anthropic;

fn call(id: &str, arguments: &Value) -> Part {
    let arguments = arguments.as_object().unwrap().clone();
    Part::Call(Call { name: "Read".into(), arguments, id: Some(id.into()), raw: None })
}

#[tokio::test(start_paused = true)]
async fn a_turn_with_every_kind_of_part_streams_valid_events() {
    let turn = Turn::says("Grüße")
        .thinking("Let me see.")
        .then(Part::Redacted("secret".into()))
        .then(call("toolu_a", &json!({ "path": "ä.txt" })))
        .then(call("toolu_b", &json!({})))
        .fragmented(&[4, 7])
        .using(Usage { input: 10, cache_read: 20, cache_write: 30, output: 40, thinking: 5 });
    let answer = ask(API, Script::always([turn]), &hello(API)).await;
    assert_eq!(answer.status, 200);
    assert_eq!(answer.header("content-type"), Some("text/event-stream; charset=utf-8"));
    assert!(answer.header("request-id").unwrap().starts_with("req_"));
    insta::assert_snapshot!(answer.text(), @r#"
    event: message_start
    data: {"type":"message_start","message":{"id":"msg_ddd0b60f74e3ea58","type":"message","role":"assistant","model":"claude-test","content":[],"stop_reason":null,"stop_sequence":null,"usage":{"input_tokens":10,"cache_creation_input_tokens":30,"cache_read_input_tokens":20,"output_tokens":1}}}

    event: content_block_start
    data: {"type":"content_block_start","index":0,"content_block":{"type":"thinking","thinking":"","signature":""}}

    event: ping
    data: {"type":"ping"}

    event: content_block_delta
    data: {"type":"content_block_delta","index":0,"delta":{"type":"thinking_delta","thinking":"Let "}}

    event: content_block_delta
    data: {"type":"content_block_delta","index":0,"delta":{"type":"thinking_delta","thinking":"me see."}}

    event: content_block_delta
    data: {"type":"content_block_delta","index":0,"delta":{"type":"signature_delta","signature":"EqQBab71cf582350d79bfda0d072298c16b4"}}

    event: content_block_stop
    data: {"type":"content_block_stop","index":0}

    event: content_block_start
    data: {"type":"content_block_start","index":1,"content_block":{"type":"text","text":""}}

    event: content_block_delta
    data: {"type":"content_block_delta","index":1,"delta":{"type":"text_delta","text":"Grüß"}}

    event: content_block_delta
    data: {"type":"content_block_delta","index":1,"delta":{"type":"text_delta","text":"e"}}

    event: content_block_stop
    data: {"type":"content_block_stop","index":1}

    event: content_block_start
    data: {"type":"content_block_start","index":2,"content_block":{"type":"redacted_thinking","data":"EqQBab23f0eec020c951510ea5005d677428736563726574"}}

    event: content_block_stop
    data: {"type":"content_block_stop","index":2}

    event: content_block_start
    data: {"type":"content_block_start","index":3,"content_block":{"type":"tool_use","id":"toolu_a","name":"Read","input":{}}}

    event: content_block_delta
    data: {"type":"content_block_delta","index":3,"delta":{"type":"input_json_delta","partial_json":""}}

    event: content_block_delta
    data: {"type":"content_block_delta","index":3,"delta":{"type":"input_json_delta","partial_json":"{\"pa"}}

    event: content_block_delta
    data: {"type":"content_block_delta","index":3,"delta":{"type":"input_json_delta","partial_json":"th\":\"ä."}}

    event: content_block_delta
    data: {"type":"content_block_delta","index":3,"delta":{"type":"input_json_delta","partial_json":"txt\""}}

    event: content_block_delta
    data: {"type":"content_block_delta","index":3,"delta":{"type":"input_json_delta","partial_json":"}"}}

    event: content_block_stop
    data: {"type":"content_block_stop","index":3}

    event: content_block_start
    data: {"type":"content_block_start","index":4,"content_block":{"type":"tool_use","id":"toolu_b","name":"Read","input":{}}}

    event: content_block_delta
    data: {"type":"content_block_delta","index":4,"delta":{"type":"input_json_delta","partial_json":""}}

    event: content_block_stop
    data: {"type":"content_block_stop","index":4}

    event: message_delta
    data: {"type":"message_delta","delta":{"stop_reason":"tool_use","stop_sequence":null},"usage":{"input_tokens":10,"cache_creation_input_tokens":30,"cache_read_input_tokens":20,"output_tokens":40}}

    event: message_stop
    data: {"type":"message_stop"}
    "#);
}

#[tokio::test(start_paused = true)]
async fn each_stop_reason_has_its_value_in_the_api() {
    let mut reasons = Vec::new();
    for stop in [Stop::End, Stop::Length, Stop::Sequence, Stop::Refused, Stop::Window] {
        let script = Script::always([Turn::says("…").stopping(stop)]);
        let events = ask(API, script, &hello(API)).await.events();
        reasons.push(events[events.len() - 2]["delta"]["stop_reason"].clone());
    }
    assert_eq!(
        reasons,
        ["end_turn", "max_tokens", "stop_sequence", "refusal", "model_context_window_exceeded"]
    );
    let silent = ask(API, Script::always([Turn::default()]), &hello(API)).await.events();
    assert_eq!(silent.len(), 3, "an answer without content is an answer");
}

#[tokio::test(start_paused = true)]
async fn arguments_may_break_within_an_escape() {
    let mut turn = Turn::calls("Read", &json!({ "path": "🌍" })).fragmented(&[1]);
    turn.escape = true;
    let events = ask(API, Script::always([turn]), &hello(API)).await.events();
    let pieces = events.iter().filter_map(|event| event["delta"]["partial_json"].as_str());
    let pieces: Vec<&str> = pieces.collect();
    assert!(pieces.iter().all(|piece| piece.len() <= 1));
    assert_eq!(pieces.concat(), r#"{"path":"\ud83c\udf0d"}"#);
}

#[tokio::test(start_paused = true)]
async fn noise_adds_events_that_a_client_must_ignore() {
    let turn = Turn { noise: true, ..Turn::says("Hi.") };
    let text = ask(API, Script::always([turn]), &hello(API)).await.text();
    assert!(text.contains("event: weather") && text.matches("event: ping").count() > 3);
}

/// Takes the content blocks of a stream, as a client gives them back.
fn content(events: &[Value]) -> Vec<Value> {
    let mut blocks: Vec<Value> = Vec::new();
    let mut input = String::new();
    for event in events {
        let delta = &event["delta"];
        match event["type"].as_str().unwrap() {
            "content_block_start" => blocks.push(event["content_block"].clone()),
            "content_block_delta" => {
                for field in ["text", "thinking", "signature"] {
                    if let Some(more) = delta[field].as_str() {
                        let block = &mut blocks.last_mut().unwrap()[field];
                        *block = json!(format!("{}{more}", block.as_str().unwrap()));
                    }
                }
                input += delta["partial_json"].as_str().unwrap_or_default();
            }
            "content_block_stop" if !input.is_empty() => {
                blocks.last_mut().unwrap()["input"] = serde_json::from_str(&input).unwrap();
                input.clear();
            }
            _ => {}
        }
    }
    blocks
}

#[tokio::test(start_paused = true)]
async fn a_tool_loop_is_accepted() {
    let script = Script::always([
        Turn::calls("Read", &json!({ "path": "a" }))
            .and_calls("Read", &json!({ "path": "b" }))
            .thinking("Both.")
            .fragmented(&[3]),
        Turn::says("Done."),
    ]);
    let fake = FakeServer::anthropic(script).start().await;
    let mut client = Client::connect(&fake).await;
    let mut body = changed(API, |body| {
        body["max_tokens"] = json!(4096);
        body["thinking"] = json!({ "type": "enabled", "budget_tokens": 1024 });
    });
    let said = content(&client.send(&Request::new(API, &body)).await.events());
    let result = |block: &Value| json!({ "type": "tool_result", "tool_use_id": block["id"], "content": "…" });
    let results: Vec<Value> = said[1..].iter().map(result).collect();
    let messages = body["messages"].as_array_mut().unwrap();
    messages.push(json!({ "role": "assistant", "content": said }));
    messages.push(json!({ "role": "user", "content": results }));
    let answer = client.send(&Request::new(API, &body)).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    assert!(answer.text().contains("Done."));
    assert_eq!(fake.requests()[1].turn, Some(1));

    body["messages"][1]["content"].as_array_mut().unwrap().remove(0);
    let refused = client.send(&Request::new(API, &body)).await.json();
    let message = refused["error"]["message"].as_str().unwrap();
    assert!(message.contains("must start with a thinking block"), "{message}");
}

fn talk(messages: Value) -> Value {
    changed(API, |body| body["messages"] = messages)
}

fn uses(ids: &[&str]) -> Value {
    let block = |id: &&str| json!({ "type": "tool_use", "id": id, "name": "Read", "input": {} });
    json!({ "role": "assistant", "content": ids.iter().map(block).collect::<Vec<_>>() })
}

fn results(ids: &[&str]) -> Value {
    let block = |id: &&str| json!({ "type": "tool_result", "tool_use_id": id, "content": "…" });
    json!({ "role": "user", "content": ids.iter().map(block).collect::<Vec<_>>() })
}

#[tokio::test(start_paused = true)]
async fn wrong_fields_are_refused() {
    let set = |key: &str, value: Value| changed(API, |body| body[key] = value);
    let unset = |key: &str| {
        changed(API, |body| {
            body.as_object_mut().unwrap().remove(key);
        })
    };
    let tool = |key: &str, value: Value| changed(API, |body| body["tools"][0][key] = value);
    let marker = json!({ "type": "ephemeral" });
    let block = json!({ "type": "text", "text": "a", "cache_control": marker });
    let table = [
        ("unknown field", set("max_output_tokens", json!(1))),
        ("no model", unset("model")),
        ("no max_tokens", unset("max_tokens")),
        ("max_tokens 0", set("max_tokens", json!(0))),
        ("max_tokens text", set("max_tokens", json!("1"))),
        ("no stream", unset("stream")),
        ("no messages", unset("messages")),
        ("temperature 2", set("temperature", json!(2))),
        ("system object", set("system", json!({}))),
        ("system empty block", set("system", json!([{ "type": "text", "text": "" }]))),
        ("stop sequence of spaces", set("stop_sequences", json!([" "]))),
        ("five markers", set("system", json!([block, block, block, block, block]))),
        ("odd marker", set("cache_control", json!({ "type": "forever" }))),
        ("tool without schema", tool("input_schema", Value::Null)),
        ("tool with an array", tool("input_schema", json!({ "type": "array" }))),
        ("tool with a space", tool("name", json!("Read it"))),
        ("tool with parameters", tool("parameters", json!({}))),
        (
            "same tool twice",
            changed(API, |body| {
                let tool = body["tools"][0].clone();
                body["tools"].as_array_mut().unwrap().push(tool);
            }),
        ),
        ("choice as text", set("tool_choice", json!("auto"))),
        ("choice without name", set("tool_choice", json!({ "type": "tool" }))),
        ("small budget", set("thinking", json!({ "type": "enabled", "budget_tokens": 100 }))),
        ("large budget", set("thinking", json!({ "type": "enabled", "budget_tokens": 1024 }))),
        ("adaptive budget", set("thinking", json!({ "type": "adaptive", "budget_tokens": 1 }))),
        ("effort", set("output_config", json!({ "effort": "huge" }))),
        ("format", set("output_config", json!({ "format": { "type": "json_object" } }))),
    ];
    insta::assert_snapshot!(refusals(API, &table).await, @"
    unknown field: 400 invalid_request_error max_output_tokens: Extra inputs are not permitted
    no model: 400 invalid_request_error model: Field required
    no max_tokens: 400 invalid_request_error max_tokens: Field required
    max_tokens 0: 400 invalid_request_error max_tokens: Input should be greater than or equal to 1
    max_tokens text: 400 invalid_request_error max_tokens: Input should be a valid integer
    no stream: 400 invalid_request_error stream: this fake only streams
    no messages: 400 invalid_request_error messages: Field required
    temperature 2: 400 invalid_request_error temperature: Input should be between 0 and 1
    system object: 400 invalid_request_error system: Input should be a valid list
    system empty block: 400 invalid_request_error system: text content blocks must be non-empty
    stop sequence of spaces: 400 invalid_request_error stop_sequences: each stop sequence must contain non-whitespace
    five markers: 400 invalid_request_error A maximum of 4 blocks with cache_control may be provided. Found 5.
    odd marker: 400 invalid_request_error cache_control.type: Input should be 'ephemeral'
    tool without schema: 400 invalid_request_error tools.0.input_schema: Input should be a valid dictionary
    tool with an array: 400 invalid_request_error tools.0.input_schema.type: Input should be 'object'
    tool with a space: 400 invalid_request_error tools.0.name: String should match pattern '^[a-zA-Z0-9_-]{1,128}$'
    tool with parameters: 400 invalid_request_error tools.0.parameters: Extra inputs are not permitted
    same tool twice: 400 invalid_request_error tools: Tool names must be unique.
    choice as text: 400 invalid_request_error tool_choice: Input should be a valid dictionary
    choice without name: 400 invalid_request_error tool_choice.name: Field required
    small budget: 400 invalid_request_error thinking.budget_tokens: Input should be greater than or equal to 1024
    large budget: 400 invalid_request_error `max_tokens` must be greater than `thinking.budget_tokens`.
    adaptive budget: 400 invalid_request_error thinking.budget_tokens: Extra inputs are not permitted
    effort: 400 invalid_request_error output_config.effort: Input should be 'low' or 'medium' or 'high' or 'xhigh' or 'max'
    format: 400 invalid_request_error output_config.format.type: Input should be 'json_schema'
    ");
}

#[tokio::test(start_paused = true)]
async fn wrong_conversations_are_refused() {
    let user = json!({ "role": "user", "content": "Hi" });
    let model = json!({ "role": "assistant", "content": "Hi" });
    let said = |content: Value| talk(json!([{ "role": "user", "content": content }]));
    let thought = |block: Value| {
        talk(
            json!([user, { "role": "assistant", "content": [block, { "type": "text", "text": "a" }] }, user]),
        )
    };
    let table = [
        ("none", talk(json!([]))),
        ("system role", talk(json!([{ "role": "system", "content": "Hi" }]))),
        ("extra field", talk(json!([{ "role": "user", "content": "Hi", "name": "me" }]))),
        ("model first", talk(json!([model]))),
        ("user twice", talk(json!([user, user]))),
        ("prefill", talk(json!([user, model]))),
        ("empty text", said(json!(""))),
        ("empty list", said(json!([]))),
        ("empty block", said(json!([{ "type": "text", "text": "" }]))),
        ("blank block", said(json!([{ "type": "text", "text": " \n" }]))),
        ("unknown block", said(json!([{ "type": "input_text", "text": "a" }]))),
        ("use by user", said(json!([{ "type": "tool_use", "id": "a", "name": "R", "input": {} }]))),
        ("unanswered", talk(json!([user, uses(&["a", "b"]), results(&["a"])]))),
        ("unanswered text", talk(json!([user, uses(&["a"]), user]))),
        (
            "text before result",
            talk(json!([user, uses(&["a"]), { "role": "user", "content": [
            { "type": "text", "text": "So:" },
            { "type": "tool_result", "tool_use_id": "a" },
        ] }])),
        ),
        ("unasked", talk(json!([user, uses(&["a"]), results(&["a", "c"])]))),
        ("answered twice", talk(json!([user, uses(&["a"]), results(&["a", "a"])]))),
        ("answer out of nowhere", talk(json!([results(&["a"])]))),
        ("same id twice", talk(json!([user, uses(&["a", "a"]), results(&["a"])]))),
        ("odd id", talk(json!([user, uses(&["a b"]), results(&["a b"])]))),
        (
            "input as text",
            talk(json!([user, { "role": "assistant", "content": [
            { "type": "tool_use", "id": "a", "name": "Read", "input": "{}" },
        ] }, results(&["a"])])),
        ),
        ("no signature", thought(json!({ "type": "thinking", "thinking": "x" }))),
        ("forged", thought(json!({ "type": "thinking", "thinking": "x", "signature": "y" }))),
        ("forged seal", thought(json!({ "type": "redacted_thinking", "data": "y" }))),
        (
            "without tools",
            changed(API, |body| {
                body.as_object_mut().unwrap().remove("tools");
                body["messages"] = json!([user, uses(&["a"]), results(&["a"])]);
            }),
        ),
    ];
    insta::assert_snapshot!(refusals(API, &table).await, @r#"
    none: 400 invalid_request_error messages: at least one message is required
    system role: 400 invalid_request_error messages.0.role: Input should be 'user' or 'assistant'
    extra field: 400 invalid_request_error messages.0.name: Extra inputs are not permitted
    model first: 400 invalid_request_error messages: first message must use the "user" role
    user twice: 400 invalid_request_error messages: roles must alternate between "user" and "assistant", but found multiple "user" roles in a row
    prefill: 400 invalid_request_error messages: This model does not support assistant message prefill. The conversation must end with a user message.
    empty text: 400 invalid_request_error messages.0: user messages must have non-empty content
    empty list: 400 invalid_request_error messages.0: user messages must have non-empty content
    empty block: 400 invalid_request_error messages.0.content.0: text content blocks must be non-empty
    blank block: 400 invalid_request_error messages.0.content.0: text content blocks must contain non-whitespace text
    unknown block: 400 invalid_request_error messages.0.content.0: Input tag 'input_text' found using 'type' does not match any of the expected tags
    use by user: 400 invalid_request_error messages.0.content.0: Input tag 'tool_use' found using 'type' does not match any of the expected tags
    unanswered: 400 invalid_request_error messages.1: `tool_use` ids were found without `tool_result` blocks immediately after: b. Each `tool_use` block must have a corresponding `tool_result` block in the next message.
    unanswered text: 400 invalid_request_error messages.1: `tool_use` ids were found without `tool_result` blocks immediately after: a. Each `tool_use` block must have a corresponding `tool_result` block in the next message.
    text before result: 400 invalid_request_error messages.1: `tool_use` ids were found without `tool_result` blocks immediately after: a. Each `tool_use` block must have a corresponding `tool_result` block in the next message.
    unasked: 400 invalid_request_error messages.2: unexpected `tool_use_id` found in `tool_result` blocks: c. Each `tool_result` block must have a corresponding `tool_use` block in the previous message.
    answered twice: 400 invalid_request_error messages.2: each tool_use must have a single result. Found multiple `tool_result` blocks with id: a
    answer out of nowhere: 400 invalid_request_error messages.0: unexpected `tool_use_id` found in `tool_result` blocks: a. Each `tool_result` block must have a corresponding `tool_use` block in the previous message.
    same id twice: 400 invalid_request_error messages.1: `tool_use` ids must be unique
    odd id: 400 invalid_request_error messages.1.content.0.id: String should match pattern '^[a-zA-Z0-9_-]+$'
    input as text: 400 invalid_request_error messages.1.content.0.input: Input should be a valid dictionary
    no signature: 400 invalid_request_error messages.1.content.0.signature: Field required
    forged: 400 invalid_request_error messages.1.content.0: Invalid `signature` in `thinking` block
    forged seal: 400 invalid_request_error messages.1.content.0: Invalid `data` in `redacted_thinking` block
    without tools: 400 invalid_request_error messages: Requests which include `tool_use` or `tool_result` blocks must define tools
    "#);
}
