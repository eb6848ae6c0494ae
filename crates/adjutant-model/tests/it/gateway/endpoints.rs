//! Which paths are served, and the bodies that the gateway writes itself.

use std::fmt::Write;

use adjutant_model::gateway::{
    ListedModel, find_endpoint, model_body, model_list_body, refusal_body,
};
use adjutant_model::wire::Wire;
use serde_json::Value;

#[test]
fn only_listed_paths_are_served() {
    let mut shown = String::new();
    for request in [
        "POST /v1/messages?beta=true",
        "POST /messages",
        "POST /v1/chat/completions",
        "POST /chat/completions",
        "POST /v1/responses",
        "POST /responses",
        "POST /v1beta/models/m-1:generateContent",
        "POST /v1/models/m-1:generateContent?key=x",
        "POST /v1beta/models/m-1:streamGenerateContent?alt=sse",
        "POST /v1beta/models/m-1:streamGenerateContent?x=1&alt=sse",
        "POST /v1beta/models/m-1:streamGenerateContent",
        "GET /v1/models?limit=1000",
        "GET /models",
        "GET /v1beta/models",
        "GET /v1/models/m-1",
        "GET /v1beta/models/m-1",
        "HEAD /api/hello",
        "POST /v1/messages/count_tokens",
        "POST /v1/messages/batches",
        "POST /v1/messages/",
        "POST /v1beta/models/m-1:countTokens",
        "POST /v1beta/models/m-1:batchGenerateContent",
        "POST /v1beta/models/:generateContent",
        "POST /v1beta/models/a/b:generateContent",
        "POST /v1/responses/compact",
        "GET /v1/responses",
        "GET /v1/responses/resp_1",
        "POST /v1/conversations",
        "POST /v1/files",
        "POST /v1/embeddings",
        "DELETE /v1/models/m-1",
        "GET /v1/models/",
        "GET /v1/modelsx",
        "GET /",
    ] {
        let (method, path) = request.split_once(' ').unwrap();
        let found = find_endpoint(method, path);
        let found = found.map_or_else(|| "404".to_owned(), |found| format!("{found:?}"));
        writeln!(shown, "{request} -> {found}").unwrap();
    }
    insta::assert_snapshot!(shown, @r##"
    POST /v1/messages?beta=true -> Generate(Messages)
    POST /messages -> Generate(Messages)
    POST /v1/chat/completions -> Generate(ChatCompletions)
    POST /chat/completions -> Generate(ChatCompletions)
    POST /v1/responses -> Generate(Responses)
    POST /responses -> Generate(Responses)
    POST /v1beta/models/m-1:generateContent -> Generate(Gemini { model: "m-1", delivery: Whole })
    POST /v1/models/m-1:generateContent?key=x -> Generate(Gemini { model: "m-1", delivery: Whole })
    POST /v1beta/models/m-1:streamGenerateContent?alt=sse -> Generate(Gemini { model: "m-1", delivery: Events })
    POST /v1beta/models/m-1:streamGenerateContent?x=1&alt=sse -> Generate(Gemini { model: "m-1", delivery: Events })
    POST /v1beta/models/m-1:streamGenerateContent -> Generate(Gemini { model: "m-1", delivery: List })
    GET /v1/models?limit=1000 -> ListModels(Chat)
    GET /models -> ListModels(Chat)
    GET /v1beta/models -> ListModels(Gemini)
    GET /v1/models/m-1 -> ShowModel { wire: Chat, model: "m-1" }
    GET /v1beta/models/m-1 -> ShowModel { wire: Gemini, model: "m-1" }
    HEAD /api/hello -> Probe
    POST /v1/messages/count_tokens -> 404
    POST /v1/messages/batches -> 404
    POST /v1/messages/ -> 404
    POST /v1beta/models/m-1:countTokens -> 404
    POST /v1beta/models/m-1:batchGenerateContent -> 404
    POST /v1beta/models/:generateContent -> 404
    POST /v1beta/models/a/b:generateContent -> 404
    POST /v1/responses/compact -> 404
    GET /v1/responses -> 404
    GET /v1/responses/resp_1 -> 404
    POST /v1/conversations -> 404
    POST /v1/files -> 404
    POST /v1/embeddings -> 404
    DELETE /v1/models/m-1 -> 404
    GET /v1/models/ -> 404
    GET /v1/modelsx -> 404
    GET / -> 404
    "##);
}

#[test]
fn lists_of_models_and_refusals_have_the_form_of_each_api() {
    let models = [("small", 200_000, 32_000), ("large", 1_000_000, 128_000)].map(
        |(name, context_window, max_output)| ListedModel {
            name: name.to_owned(),
            context_window,
            max_output,
        },
    );
    let mut shown = String::new();
    for wire in Wire::ALL {
        let list: Value = serde_json::from_slice(&model_list_body(wire, &models)).unwrap();
        let entries = list.get("data").or(list.get("models")).unwrap();
        let one: Value = serde_json::from_slice(&model_body(wire, &models[1])).unwrap();
        assert_eq!(entries[1], one, "{wire}");
        let refusal = refusal_body(wire, 402, "budget exhausted");
        writeln!(shown, "{wire}: {}", String::from_utf8_lossy(&refusal)).unwrap();
    }
    for wire in [Wire::Chat, Wire::Gemini] {
        let list = model_list_body(wire, &models[..1]);
        writeln!(shown, "{wire}: {}", String::from_utf8_lossy(&list)).unwrap();
    }
    insta::assert_snapshot!(shown, @r##"
    anthropic: {"type":"error","error":{"type":"invalid_request_error","message":"adjutant: budget exhausted"}}
    chat: {"error":{"message":"adjutant: budget exhausted","type":"invalid_request_error","param":null,"code":"refused_by_adjutant"}}
    responses: {"error":{"message":"adjutant: budget exhausted","type":"invalid_request_error","param":null,"code":"refused_by_adjutant"}}
    gemini: {"error":{"code":402,"message":"adjutant: budget exhausted","status":"FAILED_PRECONDITION"}}
    chat: {"object":"list","data":[{"id":"small","object":"model","type":"model","display_name":"small","created":1735689600,"created_at":"2025-01-01T00:00:00Z","owned_by":"adjutant","max_input_tokens":200000,"max_tokens":32000}],"has_more":false,"first_id":"small","last_id":"small"}
    gemini: {"models":[{"name":"models/small","baseModelId":"small","version":"1","displayName":"small","inputTokenLimit":200000,"outputTokenLimit":32000,"supportedGenerationMethods":["generateContent","streamGenerateContent"]}]}
    "##);
}
