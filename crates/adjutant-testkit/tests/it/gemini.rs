//! Gemini, from the outside.

use adjutant_testkit::fake::{Api, Call, FakeServer, Part, Script, Stop, Turn, Usage};
use serde_json::{Value, json};

use crate::rig::{Client, Request, ask, changed, hello, refusals};

const API: Api = Api::Gemini;

#[tokio::test(start_paused = true)]
async fn a_turn_with_every_kind_of_part_streams_valid_events() {
    let turn = Turn::says("Grüße")
        .thinking("Hm.")
        .and_calls("Read", &json!({ "path": "ä" }))
        .and_calls("Read", &json!({}))
        .fragmented(&[4])
        .using(Usage { input: 10, cache_read: 20, cache_write: 0, output: 40, thinking: 5 });
    let answer = ask(API, Script::always([turn]), &hello(API)).await;
    assert_eq!(answer.status, 200);
    assert_eq!(answer.header("content-type"), Some("text/event-stream"));
    assert_eq!(answer.text().matches("\r\n\r\n").count(), answer.events().len());
    insta::assert_snapshot!(answer.text().replace('\r', ""), @r#"
    data: {"candidates":[{"content":{"parts":[{"text":"Hm.","thought":true}],"role":"model"},"index":0}],"usageMetadata":{"promptTokenCount":30,"candidatesTokenCount":35,"totalTokenCount":70,"promptTokensDetails":[{"modality":"TEXT","tokenCount":30}],"cachedContentTokenCount":20,"thoughtsTokenCount":5},"modelVersion":"gemini-3-pro","responseId":"61ea0c30994de650"}

    data: {"candidates":[{"content":{"parts":[{"text":"Grüß"}],"role":"model"},"index":0}],"usageMetadata":{"promptTokenCount":30,"candidatesTokenCount":35,"totalTokenCount":70,"promptTokensDetails":[{"modality":"TEXT","tokenCount":30}],"cachedContentTokenCount":20,"thoughtsTokenCount":5},"modelVersion":"gemini-3-pro","responseId":"61ea0c30994de650"}

    data: {"candidates":[{"content":{"parts":[{"text":"e"}],"role":"model"},"index":0}],"usageMetadata":{"promptTokenCount":30,"candidatesTokenCount":35,"totalTokenCount":70,"promptTokensDetails":[{"modality":"TEXT","tokenCount":30}],"cachedContentTokenCount":20,"thoughtsTokenCount":5},"modelVersion":"gemini-3-pro","responseId":"61ea0c30994de650"}

    data: {"candidates":[{"content":{"parts":[{"functionCall":{"name":"Read","args":{"path":"ä"}},"thoughtSignature":"EqQB740d542bbe696de55795e224d567d998"}],"role":"model"},"index":0}],"usageMetadata":{"promptTokenCount":30,"candidatesTokenCount":35,"totalTokenCount":70,"promptTokensDetails":[{"modality":"TEXT","tokenCount":30}],"cachedContentTokenCount":20,"thoughtsTokenCount":5},"modelVersion":"gemini-3-pro","responseId":"61ea0c30994de650"}

    data: {"candidates":[{"content":{"parts":[{"functionCall":{"name":"Read","args":{}}}],"role":"model"},"index":0}],"usageMetadata":{"promptTokenCount":30,"candidatesTokenCount":35,"totalTokenCount":70,"promptTokensDetails":[{"modality":"TEXT","tokenCount":30}],"cachedContentTokenCount":20,"thoughtsTokenCount":5},"modelVersion":"gemini-3-pro","responseId":"61ea0c30994de650"}

    data: {"candidates":[{"content":{"parts":[{"text":""}],"role":"model"},"finishReason":"STOP","index":0}],"usageMetadata":{"promptTokenCount":30,"candidatesTokenCount":35,"totalTokenCount":70,"promptTokensDetails":[{"modality":"TEXT","tokenCount":30}],"cachedContentTokenCount":20,"thoughtsTokenCount":5},"modelVersion":"gemini-3-pro","responseId":"61ea0c30994de650"}
    "#);
}

#[tokio::test(start_paused = true)]
async fn each_stop_reason_has_its_value_in_the_api() {
    let mut reasons = Vec::new();
    for stop in [Stop::End, Stop::Length, Stop::Refused, Stop::Malformed] {
        let script = Script::always([Turn::says("…").stopping(stop)]);
        let last = ask(API, script, &hello(API)).await.events().pop().unwrap();
        reasons.push(last["candidates"][0]["finishReason"].clone());
    }
    assert_eq!(reasons, ["STOP", "MAX_TOKENS", "SAFETY", "MALFORMED_FUNCTION_CALL"]);
}

#[tokio::test(start_paused = true)]
async fn arguments_can_be_nested_ten_thousand_levels_deep() {
    let depth = 10_000;
    let raw = format!("{}1{}", "{\"a\":".repeat(depth), "}".repeat(depth));
    let call = Call { name: "Read".into(), raw: Some(raw.clone()), ..Call::default() };
    let script = Script::always([Turn::default().then(Part::Call(call))]);
    assert!(ask(API, script, &hello(API)).await.text().contains(&raw));
}

/// Takes the parts of a stream, as a client gives them back.
fn parts(events: &[Value]) -> Vec<Value> {
    let parts = events.iter().map(|event| event["candidates"][0]["content"]["parts"][0].clone());
    parts.filter(|part| part["text"] != "" || part.get("thoughtSignature").is_some()).collect()
}

#[tokio::test(start_paused = true)]
async fn a_tool_loop_is_accepted() {
    let first = Turn::calls("Read", &json!({ "path": "a" }))
        .and_calls("Read", &json!({ "path": "b" }))
        .thinking("Both.");
    let script = Script::always([first, Turn::says("Done.").thinking("So."), Turn::says("Bye.")]);
    let fake = FakeServer::gemini(script).start().await;
    let mut client = Client::connect(&fake).await;
    let mut body = hello(API);
    let said = parts(&client.send(&Request::new(API, &body)).await.events());
    let result = json!({ "functionResponse": { "name": "Read", "response": { "output": "…" } } });
    let contents = body["contents"].as_array_mut().unwrap();
    contents.push(json!({ "role": "model", "parts": said }));
    contents.push(json!({ "role": "user", "parts": [result, result] }));
    let mut unsigned = body.clone();

    let answer = client.send(&Request::new(API, &body)).await;
    assert!(answer.text().contains("Done."), "{}", answer.text());
    let contents = body["contents"].as_array_mut().unwrap();
    contents.push(json!({ "role": "model", "parts": parts(&answer.events()) }));
    contents.push(json!({ "role": "user", "parts": [{ "text": "Thanks" }] }));
    let answer = client.send(&Request::new(API, &body)).await;
    assert!(answer.text().contains("Bye."), "{}", answer.text());

    let call = unsigned["contents"][1]["parts"][1].as_object_mut().unwrap();
    assert!(call.remove("thoughtSignature").is_some());
    let refused = client.send(&Request::new(API, &unsigned)).await;
    assert_eq!(refused.status, 400);
    assert!(refused.text().contains("missing a thought_signature"), "{}", refused.text());

    let mut lenient = Request::new(API, &unsigned);
    lenient.target = lenient.target.replace("gemini-3-pro", "gemini-2.5-pro");
    assert_eq!(client.send(&lenient).await.status, 200, "this family does not ask for them");

    unsigned["contents"][1]["parts"][1]["thoughtSignature"] = json!("AAAA");
    let forged = client.send(&Request::new(API, &unsigned)).await;
    assert!(forged.text().contains("Corrupted thought signature"), "{}", forged.text());
}

fn talk(contents: &[Value]) -> Value {
    changed(API, |body| body["contents"] = json!(contents))
}

fn said(role: &str, parts: Value) -> Value {
    json!({ "role": role, "parts": parts })
}

fn calls(ids: &[&str]) -> Value {
    // Signed as the fake signs, which it does by the name of the function.
    let mut parts: Vec<Value> = ids
        .iter()
        .map(|id| json!({ "functionCall": { "id": id, "name": "Read", "args": {} } }))
        .collect();
    parts[0]["thoughtSignature"] = json!("EqQB740d542bbe696de55795e224d567d998");
    said("model", json!(parts))
}

fn results(ids: &[&str]) -> Value {
    let part =
        |id: &&str| json!({ "functionResponse": { "id": id, "name": "Read", "response": {} } });
    said("user", json!(ids.iter().map(part).collect::<Vec<_>>()))
}

#[tokio::test(start_paused = true)]
async fn wrong_fields_are_refused() {
    let set = |key: &str, value: Value| changed(API, |body| body[key] = value);
    let config =
        |key: &str, value: Value| changed(API, |body| body["generationConfig"][key] = value);
    let declare = |key: &str, value: Value| {
        changed(API, |body| body["tools"][0]["functionDeclarations"][0][key] = value)
    };
    let table = [
        ("snake case", set("system_instruction", json!({}))),
        ("model", set("model", json!("gemini"))),
        ("stream", set("stream", json!(true))),
        ("system as text", set("systemInstruction", json!("Hi"))),
        ("system without parts", set("systemInstruction", json!({ "parts": [] }))),
        ("config field", config("max_tokens", json!(1))),
        ("limit as text", config("maxOutputTokens", json!("1"))),
        ("temperature 3", config("temperature", json!(3))),
        ("schema without mime", config("responseSchema", json!({ "type": "OBJECT" }))),
        (
            "both thinking",
            config("thinkingConfig", json!({ "thinkingBudget": 1, "thinkingLevel": "low" })),
        ),
        ("level", config("thinkingConfig", json!({ "thinkingLevel": "huge" }))),
        ("function tool", set("tools", json!([{ "type": "function" }]))),
        ("no description", set("tools", json!([{ "functionDeclarations": [{ "name": "Read" }] }]))),
        ("name with a space", declare("name", json!("Read it"))),
        (
            "json schema",
            declare("parameters", json!({ "type": "object", "additionalProperties": false })),
        ),
        (
            "nested json schema",
            declare(
                "parameters",
                json!({ "type": "object", "properties": { "a": { "$ref": "b" } } }),
            ),
        ),
        ("type list", declare("parameters", json!({ "type": ["string", "null"] }))),
        ("no properties", declare("parameters", json!({ "type": "object", "properties": {} }))),
        ("array without items", declare("parameters", json!({ "type": "array" }))),
        ("both schemas", declare("parametersJsonSchema", json!({}))),
        ("mode", set("toolConfig", json!({ "functionCallingConfig": { "mode": "any" } }))),
        (
            "names without any",
            set("toolConfig", json!({ "functionCallingConfig": { "allowedFunctionNames": [] } })),
        ),
    ];
    insta::assert_snapshot!(refusals(API, &table).await, @r#"
    snake case: 400 INVALID_ARGUMENT Invalid JSON payload received. Unknown name "system_instruction": Cannot find field.
    model: 400 INVALID_ARGUMENT Invalid JSON payload received. Unknown name "model": Cannot find field.
    stream: 400 INVALID_ARGUMENT Invalid JSON payload received. Unknown name "stream": Cannot find field.
    system as text: 400 INVALID_ARGUMENT Invalid value at 'systemInstruction' (TYPE_MESSAGE), "Hi"
    system without parts: 400 INVALID_ARGUMENT * GenerateContentRequest.system_instruction.parts: must not be empty.
    config field: 400 INVALID_ARGUMENT Invalid JSON payload received. Unknown name "max_tokens" at 'generationConfig': Cannot find field.
    limit as text: 400 INVALID_ARGUMENT Invalid value at 'generationConfig.maxOutputTokens' (TYPE_INT32), "1"
    temperature 3: 400 INVALID_ARGUMENT * GenerateContentRequest.generationConfig.temperature: generationConfig.temperature must be between 0 and 2
    schema without mime: 400 INVALID_ARGUMENT responseSchema is only supported with a responseMimeType of application/json.
    both thinking: 400 INVALID_ARGUMENT You can only set only one of thinking budget and thinking level.
    level: 400 INVALID_ARGUMENT Invalid value at 'generationConfig.thinkingConfig.thinkingLevel' (TYPE_ENUM), "huge"
    function tool: 400 INVALID_ARGUMENT Invalid JSON payload received. Unknown name "type" at 'tools[0]': Cannot find field.
    no description: 400 INVALID_ARGUMENT * GenerateContentRequest.tools[0].functionDeclarations[0].description: tools[0].functionDeclarations[0].description is not specified
    name with a space: 400 INVALID_ARGUMENT Invalid function name. Must start with a letter or an underscore. Must be alphanumeric (a-z, A-Z, 0-9), underscores (_), dots (.), colons (:), or dashes (-), with a maximum length of 64.
    json schema: 400 INVALID_ARGUMENT Invalid JSON payload received. Unknown name "additionalProperties" at 'tools[0].functionDeclarations[0].parameters': Cannot find field.
    nested json schema: 400 INVALID_ARGUMENT Invalid JSON payload received. Unknown name "$ref" at 'tools[0].functionDeclarations[0].parameters.properties.a': Cannot find field.
    type list: 400 INVALID_ARGUMENT Invalid value at 'tools[0].functionDeclarations[0].parameters.type' (TYPE_STRING), ["string","null"]
    no properties: 400 INVALID_ARGUMENT properties: should be non-empty for OBJECT type
    array without items: 400 INVALID_ARGUMENT * GenerateContentRequest.tools[0].functionDeclarations[0].parameters.items: tools[0].functionDeclarations[0].parameters.items is not specified
    both schemas: 400 INVALID_ARGUMENT Only one of parameters and parametersJsonSchema may be set.
    mode: 400 INVALID_ARGUMENT Invalid value at 'toolConfig.functionCallingConfig.mode' (TYPE_ENUM), "any"
    names without any: 400 INVALID_ARGUMENT Allowed function names should only be set when the mode is ANY.
    "#);
}

#[tokio::test(start_paused = true)]
async fn wrong_conversations_are_refused() {
    let user = said("user", json!([{ "text": "Hi" }]));
    let model = said("model", json!([{ "text": "Hi" }]));
    let table = [
        ("none", talk(&[])),
        ("assistant", talk(&[said("assistant", json!([{ "text": "Hi" }]))])),
        ("no parts", talk(&[said("user", json!([]))])),
        ("empty part", talk(&[said("user", json!([{}]))])),
        ("empty text", talk(&[said("user", json!([{ "text": "" }]))])),
        ("two in one", talk(&[said("user", json!([{ "text": "a", "inlineData": {} }]))])),
        ("content", talk(&[json!({ "role": "user", "content": "Hi" })])),
        ("model last", talk(&[user.clone(), model.clone()])),
        ("unanswered", talk(&[user.clone(), calls(&["a", "b"]), results(&["a"])])),
        ("unanswered text", talk(&[user.clone(), calls(&["a"]), user.clone()])),
        ("unasked", talk(&[user.clone(), calls(&["a"]), results(&["c"])])),
        ("answer out of nowhere", talk(&[user.clone(), results(&["a"])])),
        ("call after model", talk(&[user.clone(), model, calls(&["a"]), results(&["a"])])),
        ("call by user", talk(&[said("user", json!([{ "functionCall": { "name": "Read" } }]))])),
        (
            "result as text",
            talk(&[said(
                "user",
                json!([{ "functionResponse": { "name": "Read", "response": "a" } }]),
            )]),
        ),
        ("nameless", talk(&[user, said("model", json!([{ "functionCall": { "name": "" } }]))])),
    ];
    insta::assert_snapshot!(refusals(API, &table).await, @r#"
    none: 400 INVALID_ARGUMENT * GenerateContentRequest.contents: contents is not specified
    assistant: 400 INVALID_ARGUMENT Please use a valid role: user, model.
    no parts: 400 INVALID_ARGUMENT * GenerateContentRequest.contents.parts: contents.parts must not be empty.
    empty part: 400 INVALID_ARGUMENT * GenerateContentRequest.contents.parts.data: required oneof field 'data' must have one initialized field
    empty text: 400 INVALID_ARGUMENT * GenerateContentRequest.contents.parts.data: required oneof field 'data' must have one initialized field
    two in one: 400 INVALID_ARGUMENT * GenerateContentRequest.contents.parts.data: required oneof field 'data' must have one initialized field
    content: 400 INVALID_ARGUMENT Invalid JSON payload received. Unknown name "content" at 'contents[0]': Cannot find field.
    model last: 400 INVALID_ARGUMENT Please ensure that multiturn requests end with a user role or a function response.
    unanswered: 400 INVALID_ARGUMENT Please ensure that the number of function response parts is equal to the number of function call parts of the function call turn.
    unanswered text: 400 INVALID_ARGUMENT Please ensure that the number of function response parts is equal to the number of function call parts of the function call turn.
    unasked: 400 INVALID_ARGUMENT Function response `Read` does not match a function call of the turn before.
    answer out of nowhere: 400 INVALID_ARGUMENT Please ensure that function response turn comes immediately after a function call turn.
    call after model: 400 INVALID_ARGUMENT Please ensure that function call turn comes immediately after a user turn or after a function response turn.
    call by user: 400 INVALID_ARGUMENT Function calls are only valid in contents with role model.
    result as text: 400 INVALID_ARGUMENT Invalid value at 'contents[0].parts[0].functionResponse.response' (TYPE_MESSAGE), "a"
    nameless: 400 INVALID_ARGUMENT Name cannot be empty.
    "#);
}
