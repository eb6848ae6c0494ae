//! OpenAI Chat Completions, from the outside.

use adjutant_testkit::fake::{Api, Call, FakeServer, Part, Script, Stop, Turn, Usage};
use serde_json::{Value, json};

use crate::rig::{Client, Request, ask, changed, hello, refusals};

const API: Api = Api::Chat;

#[tokio::test(start_paused = true)]
async fn a_turn_with_every_kind_of_part_streams_valid_events() {
    let call = |id: &str, raw: &str| {
        let (name, id, raw) = ("Read".into(), Some(id.into()), Some(raw.into()));
        Part::Call(Call { name, id, raw, ..Call::default() })
    };
    let turn = Turn::says("Grüße")
        .thinking("Let me see.")
        .then(call("call_a", r#"{"path": "ä.txt"}"#))
        .then(call("call_b", "{}"))
        .fragmented(&[4, 7])
        .using(Usage { input: 10, cache_read: 20, cache_write: 0, output: 40, thinking: 5 });
    let answer = ask(API, Script::always([turn]), &hello(API)).await;
    assert_eq!(answer.status, 200);
    assert!(answer.header("x-request-id").is_some());
    insta::assert_snapshot!(answer.text(), @r#"
    data: {"id":"chatcmpl-61ea0c30994de650","object":"chat.completion.chunk","created":1735460684,"model":"gpt-test","service_tier":"default","system_fingerprint":null,"choices":[{"index":0,"delta":{"role":"assistant","content":"","refusal":null},"logprobs":null,"finish_reason":null}],"usage":null}

    data: {"id":"chatcmpl-61ea0c30994de650","object":"chat.completion.chunk","created":1735460684,"model":"gpt-test","service_tier":"default","system_fingerprint":null,"choices":[{"index":0,"delta":{"reasoning_content":"Let "},"logprobs":null,"finish_reason":null}],"usage":null}

    data: {"id":"chatcmpl-61ea0c30994de650","object":"chat.completion.chunk","created":1735460684,"model":"gpt-test","service_tier":"default","system_fingerprint":null,"choices":[{"index":0,"delta":{"reasoning_content":"me see."},"logprobs":null,"finish_reason":null}],"usage":null}

    data: {"id":"chatcmpl-61ea0c30994de650","object":"chat.completion.chunk","created":1735460684,"model":"gpt-test","service_tier":"default","system_fingerprint":null,"choices":[{"index":0,"delta":{"content":"Grüß"},"logprobs":null,"finish_reason":null}],"usage":null}

    data: {"id":"chatcmpl-61ea0c30994de650","object":"chat.completion.chunk","created":1735460684,"model":"gpt-test","service_tier":"default","system_fingerprint":null,"choices":[{"index":0,"delta":{"content":"e"},"logprobs":null,"finish_reason":null}],"usage":null}

    data: {"id":"chatcmpl-61ea0c30994de650","object":"chat.completion.chunk","created":1735460684,"model":"gpt-test","service_tier":"default","system_fingerprint":null,"choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"id":"call_a","type":"function","function":{"name":"Read","arguments":""}}]},"logprobs":null,"finish_reason":null}],"usage":null}

    data: {"id":"chatcmpl-61ea0c30994de650","object":"chat.completion.chunk","created":1735460684,"model":"gpt-test","service_tier":"default","system_fingerprint":null,"choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"function":{"arguments":"{\"pa"}}]},"logprobs":null,"finish_reason":null}],"usage":null}

    data: {"id":"chatcmpl-61ea0c30994de650","object":"chat.completion.chunk","created":1735460684,"model":"gpt-test","service_tier":"default","system_fingerprint":null,"choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"function":{"arguments":"th\": \"ä"}}]},"logprobs":null,"finish_reason":null}],"usage":null}

    data: {"id":"chatcmpl-61ea0c30994de650","object":"chat.completion.chunk","created":1735460684,"model":"gpt-test","service_tier":"default","system_fingerprint":null,"choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"function":{"arguments":".txt"}}]},"logprobs":null,"finish_reason":null}],"usage":null}

    data: {"id":"chatcmpl-61ea0c30994de650","object":"chat.completion.chunk","created":1735460684,"model":"gpt-test","service_tier":"default","system_fingerprint":null,"choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"function":{"arguments":"\"}"}}]},"logprobs":null,"finish_reason":null}],"usage":null}

    data: {"id":"chatcmpl-61ea0c30994de650","object":"chat.completion.chunk","created":1735460684,"model":"gpt-test","service_tier":"default","system_fingerprint":null,"choices":[{"index":0,"delta":{"tool_calls":[{"index":1,"id":"call_b","type":"function","function":{"name":"Read","arguments":""}}]},"logprobs":null,"finish_reason":null}],"usage":null}

    data: {"id":"chatcmpl-61ea0c30994de650","object":"chat.completion.chunk","created":1735460684,"model":"gpt-test","service_tier":"default","system_fingerprint":null,"choices":[{"index":0,"delta":{"tool_calls":[{"index":1,"function":{"arguments":"{}"}}]},"logprobs":null,"finish_reason":null}],"usage":null}

    data: {"id":"chatcmpl-61ea0c30994de650","object":"chat.completion.chunk","created":1735460684,"model":"gpt-test","service_tier":"default","system_fingerprint":null,"choices":[{"index":0,"delta":{},"logprobs":null,"finish_reason":"tool_calls"}],"usage":null}

    data: {"id":"chatcmpl-61ea0c30994de650","object":"chat.completion.chunk","created":1735460684,"model":"gpt-test","service_tier":"default","system_fingerprint":null,"choices":[],"usage":{"prompt_tokens":30,"completion_tokens":40,"total_tokens":70,"prompt_tokens_details":{"cached_tokens":20,"audio_tokens":0},"completion_tokens_details":{"reasoning_tokens":5,"audio_tokens":0,"accepted_prediction_tokens":0,"rejected_prediction_tokens":0}}}

    data: [DONE]
    "#);
}

#[tokio::test(start_paused = true)]
async fn usage_is_sent_only_when_it_is_requested_and_scripted() {
    let quiet = changed(API, |body| {
        body.as_object_mut().unwrap().remove("stream_options");
    });
    let script = || Script::always([Turn::says("Hi.")]);
    assert!(!ask(API, script(), &quiet).await.text().contains("usage"));
    assert!(ask(API, script(), &hello(API)).await.text().contains("prompt_tokens"));
    let mean = Script::always([Turn { no_usage: true, ..Turn::says("Hi.") }]);
    assert!(!ask(API, mean, &hello(API)).await.text().contains("usage"));
}

#[tokio::test(start_paused = true)]
async fn each_stop_reason_has_its_value_in_the_api() {
    let mut reasons = Vec::new();
    let turns = [
        Turn::says("…"),
        Turn::says("…").stopping(Stop::Length),
        Turn::says("…").stopping(Stop::Refused),
        Turn::default().then(Part::Refusal("No.".into())),
    ];
    for turn in turns {
        let events = ask(API, Script::always([turn]), &hello(API)).await.events();
        reasons.push(events[events.len() - 2]["choices"][0]["finish_reason"].clone());
    }
    assert_eq!(reasons, ["stop", "length", "content_filter", "stop"]);
}

fn talk(messages: &[Value]) -> Value {
    changed(API, |body| body["messages"] = json!(messages))
}

fn calls(ids: &[&str]) -> Value {
    let call = |id: &&str| json!({ "id": id, "type": "function", "function": { "name": "Read", "arguments": "{}" } });
    json!({ "role": "assistant", "content": null, "tool_calls": ids.iter().map(call).collect::<Vec<_>>() })
}

fn result(id: &str) -> Value {
    json!({ "role": "tool", "tool_call_id": id, "content": "…" })
}

#[tokio::test(start_paused = true)]
async fn a_tool_loop_is_accepted() {
    let first = Turn::calls("Read", &json!({ "path": "a" })).and_calls("Read", &json!({}));
    let fake = FakeServer::chat(Script::always([first, Turn::says("Done.")])).start().await;
    let mut client = Client::connect(&fake).await;
    let events = client.send(&Request::new(API, &hello(API))).await.events();
    let ids = events
        .iter()
        .filter_map(|event| event["choices"][0]["delta"]["tool_calls"][0]["id"].as_str());
    let ids: Vec<&str> = ids.collect();
    let user = json!({ "role": "user", "content": "Hello" });
    let body = talk(&[user, calls(&ids), result(ids[1]), result(ids[0])]);
    let answer = client.send(&Request::new(API, &body)).await;
    assert!(answer.text().contains("Done."), "{}", answer.text());
    assert_eq!(fake.requests()[1].turn, Some(1));
}

#[tokio::test(start_paused = true)]
async fn wrong_fields_are_refused() {
    let set = |key: &str, value: Value| changed(API, |body| body[key] = value);
    let unset = |key: &str| {
        changed(API, |body| {
            body.as_object_mut().unwrap().remove(key);
        })
    };
    let function =
        |key: &str, value: Value| changed(API, |body| body["tools"][0]["function"][key] = value);
    let table = [
        ("unknown field", set("system", json!("Hi"))),
        ("no model", unset("model")),
        ("no messages", unset("messages")),
        ("no stream", unset("stream")),
        ("temperature 3", set("temperature", json!(3))),
        ("limit as text", set("max_completion_tokens", json!("1"))),
        (
            "both limits",
            changed(API, |body| {
                body["max_tokens"] = json!(1);
                body["max_completion_tokens"] = json!(1);
            }),
        ),
        ("effort", set("reasoning_effort", json!("huge"))),
        ("stream option", set("stream_options", json!({ "usage": true }))),
        ("no tools", set("tools", json!([]))),
        ("bare tool", set("tools", json!([{ "type": "function", "name": "Read" }]))),
        ("tool with a space", function("name", json!("Read it"))),
        ("tool with input_schema", function("input_schema", json!({}))),
        ("strict and open", function("strict", json!(true))),
        ("choice", set("tool_choice", json!("any"))),
        (
            "choice without tools",
            changed(API, |body| {
                body.as_object_mut().unwrap().remove("tools");
                body["tool_choice"] = json!("auto");
            }),
        ),
        ("format", set("response_format", json!({ "type": "json_schema" }))),
    ];
    insta::assert_snapshot!(refusals(API, &table).await, @r#"
    unknown field: 400 invalid_request_error ["system"] Unknown parameter: 'system'.
    no model: 400 invalid_request_error ["model"] Missing required parameter: 'model'.
    no messages: 400 invalid_request_error ["messages"] Missing required parameter: 'messages'.
    no stream: 400 invalid_request_error [null] This fake only streams.
    temperature 3: 400 invalid_request_error ["temperature"] Invalid 'temperature': expected a value between 0 and 2, but got 3.
    limit as text: 400 invalid_request_error ["max_completion_tokens"] Invalid type for 'max_completion_tokens': expected an integer, but got a string instead.
    both limits: 400 invalid_request_error [null] Setting 'max_tokens' and 'max_completion_tokens' at the same time is not supported.
    effort: 400 invalid_request_error ["reasoning_effort"] Invalid value: 'huge'. Supported values are: 'none', 'minimal', 'low', 'medium', 'high', 'xhigh', 'max'.
    stream option: 400 invalid_request_error ["stream_options.usage"] Unknown parameter: 'stream_options.usage'.
    no tools: 400 invalid_request_error ["tools"] Invalid 'tools': empty array. Expected an array with minimum length 1, but got an empty array instead.
    bare tool: 400 invalid_request_error ["tools[0].name"] Unknown parameter: 'tools[0].name'.
    tool with a space: 400 invalid_request_error ["tools[0].function.name"] Invalid 'tools[0].function.name': 'Read it' does not match pattern '^[a-zA-Z0-9_-]+$' of at most 64.
    tool with input_schema: 400 invalid_request_error ["tools[0].function.input_schema"] Unknown parameter: 'tools[0].function.input_schema'.
    strict and open: 400 invalid_request_error ["tools[0].function.parameters"] Invalid schema for function 'Read': 'additionalProperties' is required to be supplied and to be false.
    choice: 400 invalid_request_error ["tool_choice"] Invalid value: 'any'. Supported values are: 'none', 'auto', 'required'.
    choice without tools: 400 invalid_request_error ["tool_choice"] Invalid value for 'tool_choice': 'tool_choice' is only allowed when 'tools' are specified.
    format: 400 invalid_request_error ["response_format.json_schema"] Missing required parameter: 'response_format.json_schema'.
    "#);
}

#[tokio::test(start_paused = true)]
async fn wrong_conversations_are_refused() {
    let user = json!({ "role": "user", "content": "Hi" });
    let table = [
        ("none", talk(&[])),
        ("unknown role", talk(&[json!({ "role": "model", "content": "Hi" })])),
        ("no content", talk(&[json!({ "role": "user" })])),
        ("null content", talk(&[json!({ "role": "user", "content": null })])),
        ("silent reply", talk(&[user.clone(), json!({ "role": "assistant", "content": null })])),
        ("extra field", talk(&[json!({ "role": "assistant", "content": "Hi", "thinking": "…" })])),
        ("cache marker", talk(&[json!({ "role": "user", "content": "Hi", "cache_control": {} })])),
        (
            "part of another API",
            talk(&[json!({ "role": "user", "content": [{ "type": "input_text" }] })]),
        ),
        ("unanswered", talk(&[user.clone(), calls(&["a", "b"]), result("a"), user.clone()])),
        ("unanswered at the end", talk(&[user.clone(), calls(&["a"])])),
        ("unasked", talk(&[user.clone(), calls(&["a"]), result("c")])),
        ("answered twice", talk(&[user.clone(), calls(&["a", "b"]), result("a"), result("a")])),
        ("answer out of nowhere", talk(&[user.clone(), result("a")])),
        (
            "answer too late",
            talk(&[user.clone(), calls(&["a"]), result("a"), user.clone(), result("a")]),
        ),
        ("same id twice", talk(&[user.clone(), calls(&["a", "a"])])),
        ("no calls", talk(&[user.clone(), calls(&[])])),
        (
            "arguments as object",
            talk(&[
                user,
                json!({ "role": "assistant", "tool_calls": [
            { "id": "a", "type": "function", "function": { "name": "Read", "arguments": {} } },
        ] }),
            ]),
        ),
    ];
    insta::assert_snapshot!(refusals(API, &table).await, @r#"
    none: 400 invalid_request_error ["messages"] Invalid 'messages': empty array. Expected an array with minimum length 1, but got an empty array instead.
    unknown role: 400 invalid_request_error ["messages[0].role"] Invalid value: 'model'. Supported values are: 'system', 'developer', 'user', 'assistant', 'tool'.
    no content: 400 invalid_request_error ["messages[0].content"] Missing required parameter: 'messages[0].content'.
    null content: 400 invalid_request_error ["messages[0].content"] Invalid type for 'messages[0].content': expected a string, but got null instead.
    silent reply: 400 invalid_request_error ["messages[1].content"] Invalid value for 'content': expected a string, got null.
    extra field: 400 invalid_request_error ["messages[0].thinking"] Unknown parameter: 'messages[0].thinking'.
    cache marker: 400 invalid_request_error ["messages[0].cache_control"] Unknown parameter: 'messages[0].cache_control'.
    part of another API: 400 invalid_request_error ["messages[0].content[0].type"] Invalid value: 'input_text'. Supported values are: 'text', 'image_url', 'refusal'.
    unanswered: 400 invalid_request_error ["messages"] An assistant message with 'tool_calls' must be followed by tool messages responding to each 'tool_call_id'. The following tool_call_ids did not have response messages: b
    unanswered at the end: 400 invalid_request_error ["messages"] An assistant message with 'tool_calls' must be followed by tool messages responding to each 'tool_call_id'. The following tool_call_ids did not have response messages: a
    unasked: 400 invalid_request_error ["messages[2]"] Invalid parameter: 'tool_call_id' of 'c' not found in 'tool_calls' of previous message.
    answered twice: 400 invalid_request_error ["messages[3]"] Invalid parameter: 'tool_call_id' of 'a' already answered in 'tool_calls' of previous message.
    answer out of nowhere: 400 invalid_request_error ["messages[1].role"] Invalid parameter: messages with role 'tool' must be a response to a preceeding message with 'tool_calls'.
    answer too late: 400 invalid_request_error ["messages[4].role"] Invalid parameter: messages with role 'tool' must be a response to a preceeding message with 'tool_calls'.
    same id twice: 400 invalid_request_error ["messages[1].tool_calls[1]"] Duplicate tool call id 'a'.
    no calls: 400 invalid_request_error ["messages[1].tool_calls"] Invalid 'tool_calls': empty array. Expected an array with minimum length 1, but got an empty array instead.
    arguments as object: 400 invalid_request_error ["messages[1].tool_calls[0].function.arguments"] Invalid type for 'messages[1].tool_calls[0].function.arguments': expected a string, but got an object instead.
    "#);
}
