//! OpenAI Responses, from the outside.

use adjutant_testkit::fake::{Api, FakeServer, Part, Script, Stop, Turn, Usage};
use serde_json::{Value, json};

use crate::rig::{Client, Request, ask, changed, hello, refusals};

const API: Api = Api::Responses;

#[tokio::test(start_paused = true)]
async fn a_turn_with_every_kind_of_part_streams_valid_events() {
    let turn = Turn::says("Grüße")
        .thinking("Hm.")
        .and_calls("Read", &json!({ "path": "ä" }))
        .fragmented(&[4, 9])
        .using(Usage { input: 10, cache_read: 20, cache_write: 0, output: 40, thinking: 5 });
    let answer = ask(API, Script::always([turn]), &hello(API)).await;
    assert_eq!(answer.status, 200);
    let numbers: Vec<u64> =
        answer.events().iter().map(|event| event["sequence_number"].as_u64().unwrap()).collect();
    assert!(numbers.iter().copied().eq(0..numbers.len() as u64));
    insta::assert_snapshot!(answer.text(), @r#"
    event: response.created
    data: {"type":"response.created","response":{"id":"resp_b42de40cf8739255","object":"response","created_at":1735460684,"status":"in_progress","background":false,"error":null,"incomplete_details":null,"instructions":null,"max_output_tokens":null,"model":"gpt-test","output":[],"parallel_tool_calls":true,"previous_response_id":null,"reasoning":{"effort":null,"summary":null},"store":false,"temperature":1.0,"text":{"format":{"type":"text"}},"tool_choice":"auto","tools":[],"top_p":1.0,"truncation":"disabled","usage":null,"user":null,"metadata":{}},"sequence_number":0}

    event: response.in_progress
    data: {"type":"response.in_progress","response":{"id":"resp_b42de40cf8739255","object":"response","created_at":1735460684,"status":"in_progress","background":false,"error":null,"incomplete_details":null,"instructions":null,"max_output_tokens":null,"model":"gpt-test","output":[],"parallel_tool_calls":true,"previous_response_id":null,"reasoning":{"effort":null,"summary":null},"store":false,"temperature":1.0,"text":{"format":{"type":"text"}},"tool_choice":"auto","tools":[],"top_p":1.0,"truncation":"disabled","usage":null,"user":null,"metadata":{}},"sequence_number":1}

    event: response.output_item.added
    data: {"type":"response.output_item.added","output_index":0,"item":{"id":"rs_b42de40cf8739255","type":"reasoning","summary":[],"encrypted_content":"EqQB496e6e19cdb3904041a54719c98a2fbf486d2e"},"sequence_number":2}

    event: response.reasoning_summary_part.added
    data: {"type":"response.reasoning_summary_part.added","item_id":"rs_b42de40cf8739255","output_index":0,"summary_index":0,"part":{"type":"summary_text","text":""},"sequence_number":3}

    event: response.reasoning_summary_text.delta
    data: {"type":"response.reasoning_summary_text.delta","item_id":"rs_b42de40cf8739255","output_index":0,"summary_index":0,"delta":"Hm.","sequence_number":4}

    event: response.reasoning_summary_text.done
    data: {"type":"response.reasoning_summary_text.done","item_id":"rs_b42de40cf8739255","output_index":0,"summary_index":0,"text":"Hm.","sequence_number":5}

    event: response.reasoning_summary_part.done
    data: {"type":"response.reasoning_summary_part.done","item_id":"rs_b42de40cf8739255","output_index":0,"summary_index":0,"part":{"type":"summary_text","text":"Hm."},"sequence_number":6}

    event: response.output_item.done
    data: {"type":"response.output_item.done","output_index":0,"item":{"id":"rs_b42de40cf8739255","type":"reasoning","summary":[{"type":"summary_text","text":"Hm."}],"encrypted_content":"EqQB496e6e19cdb3904041a54719c98a2fbf486d2e"},"sequence_number":7}

    event: response.output_item.added
    data: {"type":"response.output_item.added","output_index":1,"item":{"id":"msg_b42de40cf8739255t01","type":"message","status":"in_progress","content":[],"role":"assistant"},"sequence_number":8}

    event: response.content_part.added
    data: {"type":"response.content_part.added","item_id":"msg_b42de40cf8739255t01","output_index":1,"content_index":0,"part":{"type":"output_text","annotations":[],"logprobs":[],"text":""},"sequence_number":9}

    event: response.output_text.delta
    data: {"type":"response.output_text.delta","item_id":"msg_b42de40cf8739255t01","output_index":1,"content_index":0,"delta":"Grüß","sequence_number":10}

    event: response.output_text.delta
    data: {"type":"response.output_text.delta","item_id":"msg_b42de40cf8739255t01","output_index":1,"content_index":0,"delta":"e","sequence_number":11}

    event: response.output_text.done
    data: {"type":"response.output_text.done","item_id":"msg_b42de40cf8739255t01","output_index":1,"content_index":0,"text":"Grüße","sequence_number":12}

    event: response.content_part.done
    data: {"type":"response.content_part.done","item_id":"msg_b42de40cf8739255t01","output_index":1,"content_index":0,"part":{"type":"output_text","annotations":[],"logprobs":[],"text":"Grüße"},"sequence_number":13}

    event: response.output_item.done
    data: {"type":"response.output_item.done","output_index":1,"item":{"id":"msg_b42de40cf8739255t01","type":"message","status":"completed","content":[{"type":"output_text","annotations":[],"logprobs":[],"text":"Grüße"}],"role":"assistant"},"sequence_number":14}

    event: response.output_item.added
    data: {"type":"response.output_item.added","output_index":2,"item":{"id":"fc_b42de40cf8739255t02","type":"function_call","status":"in_progress","arguments":"","call_id":"call_b42de40cf873925502","name":"Read"},"sequence_number":15}

    event: response.function_call_arguments.delta
    data: {"type":"response.function_call_arguments.delta","item_id":"fc_b42de40cf8739255t02","output_index":2,"delta":"{\"pa","sequence_number":16}

    event: response.function_call_arguments.delta
    data: {"type":"response.function_call_arguments.delta","item_id":"fc_b42de40cf8739255t02","output_index":2,"delta":"th\":\"ä\"}","sequence_number":17}

    event: response.function_call_arguments.done
    data: {"type":"response.function_call_arguments.done","item_id":"fc_b42de40cf8739255t02","output_index":2,"arguments":"{\"path\":\"ä\"}","sequence_number":18}

    event: response.output_item.done
    data: {"type":"response.output_item.done","output_index":2,"item":{"id":"fc_b42de40cf8739255t02","type":"function_call","status":"completed","arguments":"{\"path\":\"ä\"}","call_id":"call_b42de40cf873925502","name":"Read"},"sequence_number":19}

    event: response.completed
    data: {"type":"response.completed","response":{"id":"resp_b42de40cf8739255","object":"response","created_at":1735460684,"status":"completed","background":false,"error":null,"incomplete_details":null,"instructions":null,"max_output_tokens":null,"model":"gpt-test","output":[{"id":"rs_b42de40cf8739255","type":"reasoning","summary":[{"type":"summary_text","text":"Hm."}],"encrypted_content":"EqQB496e6e19cdb3904041a54719c98a2fbf486d2e"},{"id":"msg_b42de40cf8739255t01","type":"message","status":"completed","content":[{"type":"output_text","annotations":[],"logprobs":[],"text":"Grüße"}],"role":"assistant"},{"id":"fc_b42de40cf8739255t02","type":"function_call","status":"completed","arguments":"{\"path\":\"ä\"}","call_id":"call_b42de40cf873925502","name":"Read"}],"parallel_tool_calls":true,"previous_response_id":null,"reasoning":{"effort":null,"summary":null},"store":false,"temperature":1.0,"text":{"format":{"type":"text"}},"tool_choice":"auto","tools":[],"top_p":1.0,"truncation":"disabled","usage":{"input_tokens":30,"input_tokens_details":{"cached_tokens":20},"output_tokens":40,"output_tokens_details":{"reasoning_tokens":5},"total_tokens":70},"user":null,"metadata":{}},"sequence_number":20}
    "#);
}

#[tokio::test(start_paused = true)]
async fn each_stop_reason_has_its_value_in_the_api() {
    let mut ends = Vec::new();
    let turns = [
        Turn::says("…"),
        Turn::says("…").stopping(Stop::Length),
        Turn::says("…").stopping(Stop::Refused),
        Turn::default().then(Part::Refusal("No.".into())),
        Turn::default(),
    ];
    for turn in turns {
        let last = ask(API, Script::always([turn]), &hello(API)).await.events().pop().unwrap();
        let (kind, response) = (last["type"].as_str().unwrap(), &last["response"]);
        ends.push(format!("{kind} {} {}", response["status"], response["incomplete_details"]));
    }
    insta::assert_snapshot!(ends.join("\n"), @r#"
    response.completed "completed" null
    response.incomplete "incomplete" {"reason":"max_output_tokens"}
    response.incomplete "incomplete" {"reason":"content_filter"}
    response.completed "completed" null
    response.completed "completed" null
    "#);
}

fn talk(items: &[Value]) -> Value {
    changed(API, |body| body["input"] = json!(items))
}

fn call(id: &str) -> Value {
    json!({ "type": "function_call", "call_id": id, "name": "Read", "arguments": "{}" })
}

fn output(id: &str) -> Value {
    json!({ "type": "function_call_output", "call_id": id, "output": "…" })
}

#[tokio::test(start_paused = true)]
async fn a_tool_loop_is_accepted_in_either_order() {
    let first = Turn::calls("Read", &json!({ "path": "a" }))
        .and_calls("Read", &json!({ "path": "b" }))
        .thinking("Both.");
    let fake = FakeServer::responses(Script::always([first, Turn::says("Done.")])).start().await;
    let mut client = Client::connect(&fake).await;
    let last = client.send(&Request::new(API, &hello(API))).await.events().pop().unwrap();
    let said = last["response"]["output"].as_array().unwrap().clone();
    let user = hello(API)["input"][0].clone();
    let [thought, one, two] = [0, 1, 2].map(|index: usize| said[index].clone());
    let [first, second] = [&one, &two].map(|item| output(item["call_id"].as_str().unwrap()));
    let all = [&user, &thought, &one, &two, &first, &second].map(Clone::clone);
    let mixed = [&user, &thought, &one, &first, &two, &second].map(Clone::clone);
    for items in [all, mixed] {
        let answer = client.send(&Request::new(API, &talk(&items))).await;
        assert!(answer.text().contains("Done."), "{}", answer.text());
        assert_eq!(fake.requests().last().unwrap().turn, Some(1));
    }
    let thoughtless = [&user, &one, &two, &first, &second].map(Clone::clone);
    let refused = client.send(&Request::new(API, &talk(&thoughtless))).await.json();
    let message = refused["error"]["message"].as_str().unwrap();
    assert!(message.contains("without its required 'reasoning' item"), "{message}");
}

#[tokio::test(start_paused = true)]
async fn encrypted_thoughts_are_sent_only_on_request() {
    let script = || Script::always([Turn::says("Hi.").thinking("Hm.")]);
    let open = changed(API, |body| body["include"] = json!([]));
    assert!(!ask(API, script(), &open).await.text().contains("encrypted_content"));
    assert!(ask(API, script(), &hello(API)).await.text().contains("encrypted_content"));
}

#[tokio::test(start_paused = true)]
async fn wrong_fields_are_refused() {
    let set = |key: &str, value: Value| changed(API, |body| body[key] = value);
    let unset = |key: &str| {
        changed(API, |body| {
            body.as_object_mut().unwrap().remove(key);
        })
    };
    let table = [
        ("messages", set("messages", json!([]))),
        ("max_tokens", set("max_tokens", json!(100))),
        ("no model", unset("model")),
        ("no input", unset("input")),
        ("no stream", unset("stream")),
        ("small limit", set("max_output_tokens", json!(1))),
        ("instructions", set("instructions", json!([]))),
        ("include", set("include", json!(["everything"]))),
        ("previous response", set("previous_response_id", json!("resp_1"))),
        ("effort", set("reasoning", json!({ "effort": "huge" }))),
        ("reasoning field", set("reasoning", json!({ "budget": 1 }))),
        ("format", set("text", json!({ "format": { "type": "json_schema", "name": "a" } }))),
        ("nested tool", set("tools", json!([{ "type": "function", "function": {} }]))),
        ("choice", set("tool_choice", json!({ "type": "function", "function": {} }))),
        ("stream option", set("stream_options", json!({ "include_usage": true }))),
        ("strict and open", changed(API, |body| body["tools"][0]["strict"] = json!(true))),
    ];
    insta::assert_snapshot!(refusals(API, &table).await, @r#"
    messages: 400 invalid_request_error ["messages"] Unknown parameter: 'messages'.
    max_tokens: 400 invalid_request_error ["max_tokens"] Unknown parameter: 'max_tokens'.
    no model: 400 invalid_request_error ["model"] Missing required parameter: 'model'.
    no input: 400 invalid_request_error ["input"] Missing required parameter: 'input'.
    no stream: 400 invalid_request_error [null] This fake only streams.
    small limit: 400 invalid_request_error ["max_output_tokens"] Invalid 'max_output_tokens': expected a value greater than or equal to 16, but got 1.
    instructions: 400 invalid_request_error ["instructions"] Invalid type for 'instructions': expected a string, but got an array instead.
    include: 400 invalid_request_error ["include[0]"] Invalid value: 'everything'. Supported values are: 'reasoning.encrypted_content', 'message.output_text.logprobs', 'message.input_image.image_url', 'file_search_call.results', 'web_search_call.results', 'web_search_call.action.sources', 'computer_call_output.output.image_url', 'code_interpreter_call.outputs'.
    previous response: 400 invalid_request_error ["previous_response_id"] Previous response with id 'resp_1' not found.
    effort: 400 invalid_request_error ["reasoning.effort"] Invalid value: 'huge'. Supported values are: 'none', 'minimal', 'low', 'medium', 'high', 'xhigh', 'max'.
    reasoning field: 400 invalid_request_error ["reasoning.budget"] Unknown parameter: 'reasoning.budget'.
    format: 400 invalid_request_error ["text.format.schema"] Missing required parameter: 'text.format.schema'.
    nested tool: 400 invalid_request_error ["tools[0].function"] Unknown parameter: 'tools[0].function'.
    choice: 400 invalid_request_error ["tool_choice.function"] Unknown parameter: 'tool_choice.function'.
    stream option: 400 invalid_request_error ["stream_options.include_usage"] Unknown parameter: 'stream_options.include_usage'.
    strict and open: 400 invalid_request_error ["tools[0].parameters"] Invalid schema for function 'Read': 'additionalProperties' is required to be supplied and to be false.
    "#);
}

#[tokio::test(start_paused = true)]
async fn wrong_conversations_are_refused() {
    let user = json!({ "role": "user", "content": "Hi" });
    let thought = json!({ "type": "reasoning", "id": "rs_1", "summary": [] });
    let with = |key: &str, value: Value| {
        let mut item = call("a");
        item[key] = value;
        talk(&[item, output("a")])
    };
    let table = [
        ("none", talk(&[])),
        ("unknown item", talk(&[json!({ "type": "tool_result" })])),
        ("unknown role", talk(&[json!({ "role": "tool", "content": "Hi" })])),
        ("no content", talk(&[json!({ "role": "user" })])),
        (
            "text by user",
            talk(&[json!({ "role": "user", "content": [{ "type": "output_text", "text": "a" }] })]),
        ),
        (
            "text by model",
            talk(&[
                json!({ "role": "assistant", "content": [{ "type": "input_text", "text": "a" }] }),
            ]),
        ),
        ("unanswered", talk(&[user.clone(), call("a"), call("b"), output("a")])),
        ("unasked", talk(&[user.clone(), output("a")])),
        ("answered before it was asked", talk(&[output("a"), call("a")])),
        ("answered twice", talk(&[call("a"), output("a"), output("a")])),
        ("same id twice", talk(&[call("a"), call("a"), output("a")])),
        ("odd id", with("id", json!("call_1"))),
        ("arguments as object", with("arguments", json!({}))),
        ("extra field", with("function", json!({}))),
        ("thought not kept", talk(&[thought.clone(), call("a"), output("a")])),
        (
            "thought alone",
            changed(API, |body| {
                body["store"] = json!(true);
                body["input"] = json!([thought, user]);
            }),
        ),
        (
            "forged thought",
            talk(&[
                json!({ "type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "x" }),
                call("a"),
                output("a"),
            ]),
        ),
        ("thought without id", talk(&[json!({ "type": "reasoning", "summary": [] })])),
        (
            "output as object",
            talk(&[
                call("a"),
                json!({ "type": "function_call_output", "call_id": "a", "output": {} }),
            ]),
        ),
    ];
    insta::assert_snapshot!(refusals(API, &table).await, @r#"
    none: 400 invalid_request_error ["input"] Missing required parameter: 'input'.
    unknown item: 400 invalid_request_error ["input[0].type"] Invalid value: 'tool_result'. Supported values are: 'message', 'reasoning', 'function_call', 'function_call_output'.
    unknown role: 400 invalid_request_error ["input[0].role"] Invalid value: 'tool'. Supported values are: 'user', 'assistant', 'system', 'developer'.
    no content: 400 invalid_request_error ["input[0].content"] Missing required parameter: 'input[0].content'.
    text by user: 400 invalid_request_error ["input[0].content[0].type"] Invalid value: 'output_text'. Supported values are: 'input_text', 'input_image'.
    text by model: 400 invalid_request_error ["input[0].content[0].type"] Invalid value: 'input_text'. Supported values are: 'output_text', 'refusal'.
    unanswered: 400 invalid_request_error ["input"] No tool output found for function call b.
    unasked: 400 invalid_request_error ["input"] No tool call found for function call output with call_id a.
    answered before it was asked: 400 invalid_request_error ["input"] No tool call found for function call output with call_id a.
    answered twice: 400 invalid_request_error ["input[2]"] Duplicate function call output for call_id a.
    same id twice: 400 invalid_request_error ["input[1]"] Duplicate function call with call_id a.
    odd id: 400 invalid_request_error ["input[0].id"] Invalid 'id': 'call_1'. Expected an ID that begins with 'fc'.
    arguments as object: 400 invalid_request_error ["input[0].arguments"] Invalid type for 'input[0].arguments': expected a string, but got an object instead.
    extra field: 400 invalid_request_error ["input[0].function"] Unknown parameter: 'input[0].function'.
    thought not kept: 400 invalid_request_error ["input[0]"] Item with id 'rs_1' not found. Items are not persisted when `store` is set to false. Try again with `store` set to true, or remove this item from your input.
    thought alone: 400 invalid_request_error ["input[1]"] Item 'rs_1' of type 'reasoning' was provided without its required following item.
    forged thought: 400 invalid_request_error ["input[0].encrypted_content"] The encrypted content for item rs_1 could not be verified.
    thought without id: 400 invalid_request_error ["input[0].id"] Missing required parameter: 'input[0].id'.
    output as object: 400 invalid_request_error ["input[1].output"] Invalid type for 'input[1].output': expected an array, but got an object instead.
    "#);
}
