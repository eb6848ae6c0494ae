//! Requests that are refused, with the reason that the agent is given.

use std::fmt::Write;

use adjutant_model::gateway::{MAX_REQUEST_BYTES, RequestProblem, ServedRequest};
use adjutant_model::wire::Wire;
use serde_json::{Value, json};

use super::{endpoint, parse, served};

fn request(wire: Wire, fields: Value) -> Value {
    let mut body = if wire == Wire::Gemini { json!({}) } else { json!({"model":"m"}) };
    let Value::Object(fields) = fields else { panic!("fields") };
    body.as_object_mut().unwrap().extend(fields);
    body
}

#[test]
fn each_thing_that_cannot_be_bounded_is_refused_by_name() {
    let user = |content: Value| json!({"messages":[{"role":"user","content":[content]}]});
    let input = |content: Value| json!({"input":[{"role":"user","content":[content]}]});
    let part = |part: Value| json!({"contents":[{"role":"user","parts":[part]}]});
    let web = json!([{"type":"web_search_20250305","name":"web_search"},{"name":"Read"}]);
    let mut shown = String::new();
    use Wire::{Anthropic, Chat, Gemini, Responses};
    for (wire, fields) in [
        (Anthropic, json!({"tools":web,"tool_choice":{"type":"tool","name":"web_search"}})),
        (Anthropic, json!({"tools":[web[0]],"tool_choice":{"type":"any"}})),
        (Anthropic, json!({"service_tier":"priority"})),
        (Anthropic, json!({"speed":"fast"})),
        (Anthropic, json!({"inference_geo":"us"})),
        (
            Anthropic,
            user(json!({"type":"image","source":{"type":"url","url":"https://example.com/a.png"}})),
        ),
        (Anthropic, user(json!({"type":"document","source":{"type":"file","file_id":"f"}}))),
        (Anthropic, user(json!({"type":"container_upload","file_id":"f"}))),
        (
            Anthropic,
            user(json!({"type":"tool_result","content":[
            {"type":"image","source":{"type":"url","url":"http://example.com"}}]})),
        ),
        (Responses, json!({"previous_response_id":"resp_1"})),
        (Responses, json!({"conversation":{"id":"c"}})),
        (Responses, json!({"prompt":{"id":"p"}})),
        (Responses, json!({"input":[{"type":"item_reference","id":"i"}]})),
        (Responses, json!({"background":true})),
        (Responses, json!({"service_tier":"priority"})),
        (Responses, json!({"service_tier":"flex"})),
        (Responses, json!({"tools":[{"type":"web_search"}],"tool_choice":{"type":"web_search"}})),
        (Responses, json!({"tools":[{"type":"web_search"}],"tool_choice":"required"})),
        (
            Responses,
            json!({"tools":[{"type":"shell","environment":{"type":"container_auto"}},
            {"type":"function","name":"a"}],"tool_choice":{"type":"shell"}}),
        ),
        (Responses, json!({"tool_choice":{"type":"mcp","server_label":"x"}})),
        (
            Responses,
            json!({"tools":[{"type":"web_search"},{"type":"function","name":"a"}],
            "tool_choice":{"type":"allowed_tools","mode":"required","tools":[{"type":"web_search"}]}}),
        ),
        (Responses, input(json!({"type":"input_image","image_url":"https://example.com/a.png"}))),
        (Responses, input(json!({"type":"input_file","file_url":"https://example.com/a.pdf"}))),
        (Responses, input(json!({"type":"input_file","file_id":"f"}))),
        (
            Responses,
            json!({"input":[{"type":"function_call_output","call_id":"c",
            "output":[{"type":"input_image","image_url":"http://example.com"}]}]}),
        ),
        (Chat, json!({"n":2})),
        (Chat, json!({"best_of":"3"})),
        (Chat, json!({"service_tier":"flex"})),
        (Chat, json!({"modalities":["text","audio"]})),
        (Chat, json!({"tools":[{"type":"web_search"}],"tool_choice":"required"})),
        (Chat, user(json!({"type":"image_url","image_url":{"url":"https://example.com/a.png"}}))),
        (Chat, user(json!({"type":"video_url","video_url":{"url":"gs://bucket/a"}}))),
        (Chat, user(json!({"type":"file","file":{"file_id":"f"}}))),
        (Gemini, json!({"cachedContent":"cachedContents/c"})),
        (Gemini, json!({"cached_content":"cachedContents/c"})),
        (Gemini, json!({"serviceTier":"priority"})),
        (Gemini, json!({"generationConfig":{"candidateCount":2}})),
        (Gemini, json!({"generation_config":{"candidate_count":"2"}})),
        (Gemini, json!({"generationConfig":{"responseModalities":["IMAGE"]}})),
        (
            Gemini,
            json!({"tools":[{"googleSearch":{}}],"toolConfig":{"functionCallingConfig":{"mode":"ANY"}}}),
        ),
        (Gemini, part(json!({"fileData":{"fileUri":"https://example.com"}}))),
        (Gemini, part(json!({"file_data":{"file_uri":"gs://a"}}))),
        (
            Gemini,
            part(json!({"functionResponse":{"name":"f","parts":[{"fileData":{"fileUri":"u"}}]}})),
        ),
    ] {
        let problem = parse(wire, &request(wire, fields.clone()));
        let problem = problem.map_or_else(|p| p.to_string(), |_| format!("SERVED: {fields}"));
        writeln!(shown, "{wire}: {problem}").unwrap();
    }
    insta::assert_snapshot!(shown, @r##"
    anthropic: web search is not available here
    anthropic: web search is not available here
    anthropic: service_tier `priority` is not available here
    anthropic: speed `fast` is not available here
    anthropic: inference_geo `us` is not available here
    anthropic: remote content (`url`) is not available here: send the data itself
    anthropic: remote content (`file_id`) is not available here: send the data itself
    anthropic: remote content (`container_upload`) is not available here: send the data itself
    anthropic: remote content (`url`) is not available here: send the data itself
    responses: `previous_response_id` is not available here: a request must contain its whole conversation
    responses: `conversation` is not available here: a request must contain its whole conversation
    responses: `prompt` is not available here: a request must contain its whole conversation
    responses: `item_reference` is not available here: a request must contain its whole conversation
    responses: background responses are not available here
    responses: service_tier `priority` is not available here
    responses: service_tier `flex` is not available here
    responses: web search is not available here
    responses: web search is not available here
    responses: shell is not available here
    responses: mcp is not available here
    responses: web search is not available here
    responses: remote content (`image_url`) is not available here: send the data itself
    responses: remote content (`file_url`) is not available here: send the data itself
    responses: remote content (`file_id`) is not available here: send the data itself
    responses: remote content (`image_url`) is not available here: send the data itself
    chat: several answers to one request are not available here: `n` must be 1
    chat: several answers to one request are not available here: `best_of` must be 1
    chat: service_tier `flex` is not available here
    chat: output as audio is not available here
    chat: web search is not available here
    chat: remote content (`image_url`) is not available here: send the data itself
    chat: remote content (`video_url`) is not available here: send the data itself
    chat: remote content (`file_id`) is not available here: send the data itself
    gemini: `cachedContent` is not available here: a request must contain its whole conversation
    gemini: `cached_content` is not available here: a request must contain its whole conversation
    gemini: serviceTier `priority` is not available here
    gemini: several answers to one request are not available here: `candidateCount` must be 1
    gemini: several answers to one request are not available here: `candidate_count` must be 1
    gemini: output as image is not available here
    gemini: google search is not available here
    gemini: remote content (`fileData`) is not available here: send the data itself
    gemini: remote content (`file_data`) is not available here: send the data itself
    gemini: remote content (`fileData`) is not available here: send the data itself
    "##);
}

#[test]
fn data_in_the_request_and_the_agent_s_own_words_are_served() {
    use Wire::{Anthropic, Chat, Gemini, Responses};
    let url = "https://example.com/a.png";
    for (wire, fields) in [
        (
            Anthropic,
            json!({"messages":[{"role":"user","content":[
                {"type":"image","source":{"type":"base64","media_type":"image/png","data":"aGk="}},
                {"type":"tool_use","id":"t","name":"n","input":{"type":"image","source":{"type":"url","url":url}}},
                {"type":"text","text":url},
            ]}]}),
        ),
        (
            Anthropic,
            json!({"service_tier":"standard_only","speed":"standard","tool_choice":{"type":"any"},
            "tools":[{"type":"web_search_20250305","name":"w"},{"name":"Read"}]}),
        ),
        (
            Responses,
            json!({"input":[{"role":"user","content":[
            {"type":"input_image","image_url":"DATA:image/png;base64,aGk=","file_id":null},
            {"type":"input_file","filename":"a","file_data":"data:application/pdf;base64,aGk="},
        ]},{"type":"function_call","arguments":format!("{{\"image_url\":\"{url}\"}}")}]}),
        ),
        (
            Responses,
            json!({"input":url,"previous_response_id":null,"background":false,"service_tier":"default"}),
        ),
        (
            Chat,
            json!({"n":1,"modalities":["text"],"messages":[{"role":"user","content":[
            {"type":"image_url","image_url":{"url":"data:image/png;base64,aGk="}},
            {"type":"file","file":{"filename":"a","file_data":"data:,x"}},
        ]},{"role":"user","content":url}]}),
        ),
        (
            Gemini,
            json!({"generationConfig":{"candidateCount":1,"responseModalities":["TEXT"]},
            "cachedContent":null,"contents":[{"parts":[{"inlineData":{"mimeType":"image/png","data":"aGk="}},
            {"functionResponse":{"name":"f","response":{"fileData":{"fileUri":url}}}}]}]}),
        ),
    ] {
        let body = request(wire, fields);
        let before = body["messages"].clone();
        let forwarded = served(wire, &body).rewritten("m", 100);
        let forwarded: Value = serde_json::from_slice(&forwarded).unwrap();
        assert_eq!(forwarded["messages"], before, "{wire}");
    }
}

#[test]
fn a_body_that_is_no_request_is_refused() {
    let parse = |wire, body: &[u8]| ServedRequest::parse(&endpoint(wire), body).unwrap_err();
    for wire in Wire::ALL {
        for body in ["", "[]", "7", "{", "{\"model\":\"m\"} x"] {
            assert_eq!(parse(wire, body.as_bytes()), RequestProblem::NotJson, "{wire} {body}");
        }
        let deep = format!("{{\"a\":{}{}}}", "[".repeat(10_000), "]".repeat(10_000));
        assert_eq!(parse(wire, deep.as_bytes()), RequestProblem::NotJson, "{wire}");
        let large = vec![b' '; usize::try_from(MAX_REQUEST_BYTES).unwrap() + 1];
        insta::allow_duplicates! {
            insta::assert_snapshot!(parse(wire, &large), @"the request has 33554433 bytes, limit 33554432");
        }
    }
    for wire in [Wire::Anthropic, Wire::Chat, Wire::Responses] {
        for body in ["{}", r#"{"model":""}"#, r#"{"model":7}"#] {
            assert_eq!(parse(wire, body.as_bytes()), RequestProblem::NoModel, "{wire} {body}");
        }
    }
}
