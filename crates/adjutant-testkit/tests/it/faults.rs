//! Each class of failure, in the words of each API, before and within a stream.

use adjutant_testkit::fake::{Api, Fault, FaultClass, Script, Turn};
use serde_json::Value;

use crate::rig::{APIS, ask, hello};

const CLASSES: [FaultClass; 10] = [
    FaultClass::ContextLength,
    FaultClass::RateLimited,
    FaultClass::Quota,
    FaultClass::Overloaded,
    FaultClass::Auth,
    FaultClass::Permission,
    FaultClass::NotFound,
    FaultClass::BadRequest,
    FaultClass::Refused,
    FaultClass::Server,
];

fn failing(class: FaultClass, change: impl FnOnce(&mut Fault)) -> Script {
    let mut fault = Fault { class, ..Fault::default() };
    change(&mut fault);
    Script::always([Turn { error: Some(fault), ..Turn::says("Well, …") }])
}

#[tokio::test(start_paused = true)]
async fn every_class_has_its_status_and_body() {
    let mut lines = String::new();
    for api in APIS {
        for class in CLASSES {
            let answer = ask(api, failing(class, |_| {}), &hello(api)).await;
            assert!(answer.whole);
            lines +=
                &format!("{api:?} {class:?}: {} {}\n", answer.status, answer.text().trim_end());
        }
    }
    insta::assert_snapshot!(lines, @r#"
    Anthropic ContextLength: 400 {"type":"error","error":{"type":"invalid_request_error","message":"prompt is too long: 208310 tokens > 200000 maximum"},"request_id":"req_011CSHoEeqs5C35K2UUqR7Fy"}
    Anthropic RateLimited: 429 {"type":"error","error":{"type":"rate_limit_error","message":"This request would exceed your organization's rate limit of 50 requests per minute."},"request_id":"req_011CSHoEeqs5C35K2UUqR7Fy"}
    Anthropic Quota: 400 {"type":"error","error":{"type":"invalid_request_error","message":"Your credit balance is too low to access the Anthropic API."},"request_id":"req_011CSHoEeqs5C35K2UUqR7Fy"}
    Anthropic Overloaded: 529 {"type":"error","error":{"type":"overloaded_error","message":"Overloaded"},"request_id":"req_011CSHoEeqs5C35K2UUqR7Fy"}
    Anthropic Auth: 401 {"type":"error","error":{"type":"authentication_error","message":"invalid x-api-key"},"request_id":"req_011CSHoEeqs5C35K2UUqR7Fy"}
    Anthropic Permission: 403 {"type":"error","error":{"type":"permission_error","message":"Your API key does not have permission to use the specified resource."},"request_id":"req_011CSHoEeqs5C35K2UUqR7Fy"}
    Anthropic NotFound: 404 {"type":"error","error":{"type":"not_found_error","message":"model: claude-none"},"request_id":"req_011CSHoEeqs5C35K2UUqR7Fy"}
    Anthropic BadRequest: 400 {"type":"error","error":{"type":"invalid_request_error","message":"messages: invalid"},"request_id":"req_011CSHoEeqs5C35K2UUqR7Fy"}
    Anthropic Refused: 400 {"type":"error","error":{"type":"invalid_request_error","message":"Output blocked by content filtering policy"},"request_id":"req_011CSHoEeqs5C35K2UUqR7Fy"}
    Anthropic Server: 500 {"type":"error","error":{"type":"api_error","message":"Internal server error"},"request_id":"req_011CSHoEeqs5C35K2UUqR7Fy"}
    Chat ContextLength: 400 {"error":{"message":"This model's maximum context length is 128000 tokens. However, your messages resulted in 130221 tokens.","type":"invalid_request_error","param":"messages","code":"context_length_exceeded"}}
    Chat RateLimited: 429 {"error":{"message":"Rate limit reached for this model on tokens per min (TPM): Limit 30000, Used 29000.","type":"tokens","param":null,"code":"rate_limit_exceeded"}}
    Chat Quota: 429 {"error":{"message":"You exceeded your current quota, please check your plan and billing details.","type":"insufficient_quota","param":null,"code":"insufficient_quota"}}
    Chat Overloaded: 503 {"error":{"message":"The engine is currently overloaded, please try again later.","type":"server_error","param":null,"code":"server_is_overloaded"}}
    Chat Auth: 401 {"error":{"message":"Incorrect API key provided: ***.","type":"invalid_request_error","param":null,"code":"invalid_api_key"}}
    Chat Permission: 403 {"error":{"message":"Project does not have access to this model.","type":"invalid_request_error","param":null,"code":"model_not_found"}}
    Chat NotFound: 404 {"error":{"message":"The model `gpt-none` does not exist.","type":"invalid_request_error","param":null,"code":"model_not_found"}}
    Chat BadRequest: 400 {"error":{"message":"Invalid request.","type":"invalid_request_error","param":null,"code":null}}
    Chat Refused: 400 {"error":{"message":"Your request was rejected as a result of our safety system.","type":"invalid_request_error","param":null,"code":"content_policy_violation"}}
    Chat Server: 500 {"error":{"message":"The server had an error while processing your request. Sorry about that!","type":"server_error","param":null,"code":null}}
    Responses ContextLength: 400 {"error":{"message":"Your input exceeds the context window of this model.","type":"invalid_request_error","param":"input","code":"context_length_exceeded"}}
    Responses RateLimited: 429 {"error":{"message":"Rate limit reached for this model on tokens per min (TPM): Limit 30000, Used 29000.","type":"tokens","param":null,"code":"rate_limit_exceeded"}}
    Responses Quota: 429 {"error":{"message":"You exceeded your current quota, please check your plan and billing details.","type":"insufficient_quota","param":null,"code":"insufficient_quota"}}
    Responses Overloaded: 503 {"error":{"message":"The engine is currently overloaded, please try again later.","type":"server_error","param":null,"code":"server_is_overloaded"}}
    Responses Auth: 401 {"error":{"message":"Incorrect API key provided: ***.","type":"invalid_request_error","param":null,"code":"invalid_api_key"}}
    Responses Permission: 403 {"error":{"message":"Project does not have access to this model.","type":"invalid_request_error","param":null,"code":"model_not_found"}}
    Responses NotFound: 404 {"error":{"message":"The model `gpt-none` does not exist.","type":"invalid_request_error","param":null,"code":"model_not_found"}}
    Responses BadRequest: 400 {"error":{"message":"Invalid request.","type":"invalid_request_error","param":null,"code":null}}
    Responses Refused: 400 {"error":{"message":"Invalid prompt: your prompt was flagged as potentially violating our usage policy.","type":"invalid_request_error","param":null,"code":"invalid_prompt"}}
    Responses Server: 500 {"error":{"message":"The server had an error while processing your request. Sorry about that!","type":"server_error","param":null,"code":"server_error"}}
    Gemini ContextLength: 400 {"error":{"code":400,"message":"The input token count (1200000) exceeds the maximum number of tokens allowed (1048576).","status":"INVALID_ARGUMENT"}}
    Gemini RateLimited: 429 {"error":{"code":429,"message":"You exceeded your current quota, please check your plan and billing details.","status":"RESOURCE_EXHAUSTED","details":[{"@type":"type.googleapis.com/google.rpc.QuotaFailure","violations":[{"quotaMetric":"generativelanguage.googleapis.com/generate_content_requests","quotaId":"GenerateRequestsPerMinutePerProjectPerModel"}]}]}}
    Gemini Quota: 429 {"error":{"code":429,"message":"You exceeded your current quota, please check your plan and billing details.","status":"RESOURCE_EXHAUSTED","details":[{"@type":"type.googleapis.com/google.rpc.QuotaFailure","violations":[{"quotaMetric":"generativelanguage.googleapis.com/generate_content_requests","quotaId":"GenerateRequestsPerDayPerProjectPerModel"}]}]}}
    Gemini Overloaded: 503 {"error":{"code":503,"message":"The model is overloaded. Please try again later.","status":"UNAVAILABLE"}}
    Gemini Auth: 400 {"error":{"code":400,"message":"API key not valid. Please pass a valid API key.","status":"INVALID_ARGUMENT","details":[{"@type":"type.googleapis.com/google.rpc.ErrorInfo","reason":"API_KEY_INVALID","domain":"googleapis.com","metadata":{"service":"generativelanguage.googleapis.com"}}]}}
    Gemini Permission: 403 {"error":{"code":403,"message":"The caller does not have permission.","status":"PERMISSION_DENIED"}}
    Gemini NotFound: 404 {"error":{"code":404,"message":"models/none is not found for API version v1beta.","status":"NOT_FOUND"}}
    Gemini BadRequest: 400 {"error":{"code":400,"message":"Request contains an invalid argument.","status":"INVALID_ARGUMENT"}}
    Gemini Refused: 200 data: {"promptFeedback":{"blockReason":"PROHIBITED_CONTENT"},"usageMetadata":{"promptTokenCount":8,"totalTokenCount":8},"modelVersion":"gemini"}
    Gemini Server: 500 {"error":{"code":500,"message":"An internal error has occurred.","status":"INTERNAL"}}
    "#);
}

#[tokio::test(start_paused = true)]
async fn a_fault_can_be_sent_in_the_middle_of_a_stream() {
    let mut lines = String::new();
    for api in APIS {
        let script = failing(FaultClass::Overloaded, |fault| fault.after_events = Some(1));
        let answer = ask(api, script, &hello(api)).await;
        assert_eq!((answer.status, answer.whole), (200, true));
        assert_eq!(answer.events().len(), 2, "{}", answer.text());
        let event = answer.events().pop().unwrap();
        let event = if api == Api::Responses { event["response"]["error"].clone() } else { event };
        lines += &format!("{api:?}: {event}\n");
    }
    insta::assert_snapshot!(lines, @r#"
    Anthropic: {"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}
    Chat: {"error":{"message":"The engine is currently overloaded, please try again later.","type":"server_error","param":null,"code":"server_is_overloaded"}}
    Responses: {"code":"server_is_overloaded","message":"The engine is currently overloaded, please try again later."}
    Gemini: {"error":{"code":503,"message":"The model is overloaded. Please try again later.","status":"UNAVAILABLE"}}
    "#);
}

#[tokio::test(start_paused = true)]
async fn the_retry_delay_is_sent_in_headers_and_for_gemini_in_the_body_too() {
    for api in APIS {
        let answer = ask(
            api,
            failing(FaultClass::RateLimited, |fault| {
                fault.retry_after = Some("2".into());
                fault.retry_after_ms = Some("1500".into());
                fault.message = Some("Slow down.".into());
            }),
            &hello(api),
        )
        .await;
        assert_eq!(answer.header("retry-after"), Some("2"));
        assert_eq!(answer.header("retry-after-ms"), Some("1500"));
        assert_eq!(answer.json()["error"]["message"], "Slow down.");
        if api == Api::Gemini {
            assert_eq!(answer.json()["error"]["details"][1]["retryDelay"], "1.500s");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn gemini_answers_a_blocked_prompt_without_candidates() {
    let answer = ask(Api::Gemini, failing(FaultClass::Refused, |_| {}), &hello(Api::Gemini)).await;
    let events: Vec<Value> = answer.events();
    assert_eq!(answer.status, 200);
    assert_eq!(events[0]["promptFeedback"]["blockReason"], "PROHIBITED_CONTENT");
    assert_eq!(events[0].get("candidates"), None);
}
