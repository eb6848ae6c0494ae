//! Forwarding to the strict fakes of the four APIs, and to a server that records every header.

use adjutant_core::{ModelErrorKind, Usage};
use adjutant_model::gateway::{
    AnswerEnd, GeminiDelivery, GenerateEndpoint, Upstream, UpstreamAnswer, UsageMeter,
};
use adjutant_model::wire::Wire;
use adjutant_model::{ModelSources, OpenModelError, ProviderConfig, Secret};
use adjutant_testkit::fake::{Api, FakeServer, FaultClass, Script, Turn, Usage as FakeUsage};
use bytes::Bytes;
use serde_json::{Value, json};

use super::{endpoint, served};
use crate::golden::recorded;
use crate::server::{Act, Server};

const KEY: &str = "real-key-of-the-person";

/// Headers of an agent, its own keys included.
fn agent_headers() -> Vec<(String, String)> {
    [
        ("Authorization", "Bearer agent-key"),
        ("X-Api-Key", "agent-key"),
        ("x-goog-api-key", "agent-key"),
        ("cookie", "agent-key"),
        ("host", "agent-key"),
        ("accept-encoding", "gzip"),
        ("Anthropic-Version", "2023-06-01"),
        (
            "anthropic-beta",
            "claude-code-20250219,context-1m-2025-08-07, interleaved-thinking-2025-05-14",
        ),
        ("anthropic-beta", "mcp-client-2025-11-20,web-fetch-2025-09-10"),
        ("x-claude-code-session-id", "agent-key"),
    ]
    .map(|(name, value)| (name.to_owned(), value.to_owned()))
    .into()
}

/// Returns a request of an agent with a tool of the provider.
fn request(wire: Wire) -> Value {
    match wire {
        Wire::Anthropic => json!({"model":"small","max_tokens":128_000,"stream":true,
            "thinking":{"type":"enabled","budget_tokens":31_999},
            "tools":[{"type":"web_search_20250305","name":"web_search"},
                     {"name":"Read","description":"Reads.","input_schema":{"type":"object"}}],
            "messages":[{"role":"user","content":"Hi"}]}),
        Wire::Chat => json!({"model":"small","stream":true,"web_search_options":{},
            "messages":[{"role":"user","content":"Hi"}]}),
        Wire::Responses => json!({"model":"small","stream":true,"tools":[{"type":"web_search"}],
            "input":[{"role":"user","content":"Hi"}]}),
        Wire::Gemini => json!({"contents":[{"role":"user","parts":[{"text":"Hi"}]}],
            "tools":[{"googleSearch":{}}],"generationConfig":{"temperature":1}}),
    }
}

fn at(url: &str, wire: Wire) -> Upstream {
    let sources = ModelSources::default().with_provider(ProviderConfig {
        name: "home".to_owned(),
        wire,
        base_url: url.to_owned(),
        key: Secret::new(KEY),
        needs_key: true,
    });
    Upstream::open("home/big", &sources).unwrap()
}

async fn bytes_of(answer: &mut UpstreamAnswer) -> Vec<u8> {
    let mut bytes = Vec::new();
    while let Some(chunk) = answer.next_chunk().await.unwrap() {
        bytes.extend_from_slice(&chunk);
    }
    bytes
}

#[tokio::test]
async fn a_rewritten_request_is_accepted_by_each_strict_api_and_metered_to_the_token() {
    for api in Api::ALL {
        let usage =
            FakeUsage { input: 100, cache_read: 40, cache_write: 0, output: 30, thinking: 10 };
        let turn = Turn::says("Hello from the other side.").thinking("Hm.").using(usage);
        let fake = FakeServer::new(api, Script::always([turn])).start().await;
        let upstream = Upstream::open(api.model(), &fake.sources()).unwrap();
        let wire = upstream.wire();
        let request = served(wire, &request(wire));
        assert_eq!(request.removed.len(), 1, "{wire} {:?}", request.removed);
        let body = upstream.body_of(&request, 2_000);
        let mut answer = upstream.forward(&endpoint(wire), body, &agent_headers()).await.unwrap();
        assert_eq!((answer.status, &answer.error), (200, &None), "{wire}");
        assert!(answer.content_type.as_ref().unwrap().starts_with("text/event-stream"), "{wire}");
        let mut meter = UsageMeter::new(wire, true);
        while let Some(chunk) = answer.next_chunk().await.unwrap() {
            meter.push_bytes(&chunk);
        }
        let metered = meter.finish();
        assert_eq!(metered.end, AnswerEnd::Complete, "{wire}");
        let expected = Usage { input: 100, cache_read: 40, cache_write: 0, output: 30 };
        assert_eq!(metered.usage, Some(expected), "{wire}");
        let got = fake.single_request();
        assert_eq!((got.complaint.clone(), got.status), (None, 200), "{wire}");
        assert!(got.headers.iter().all(|(_, value)| !value.contains("agent-key")), "{wire}");
        let betas = "claude-code-20250219,interleaved-thinking-2025-05-14";
        let expected = Some(betas).filter(|_| wire == Wire::Anthropic);
        assert_eq!(got.header("anthropic-beta"), expected, "{wire}");
        assert_eq!(got.header("accept-encoding"), None, "{wire}");
    }
}

#[tokio::test]
async fn the_real_key_is_sent_and_the_agent_s_key_is_not() {
    for (wire, stream) in recorded() {
        let server = Server::start([Act::Stream(stream, 50)]).await;
        let upstream = at(&server.url, wire);
        let request = served(wire, &request(wire));
        let body = upstream.body_of(&request, 2_000);
        let mut answer =
            upstream.forward(&endpoint(wire), body.clone(), &agent_headers()).await.unwrap();
        assert_eq!(bytes_of(&mut answer).await, stream.as_bytes(), "{wire}");
        let got = server.got().remove(0);
        assert!(got.head.contains(KEY) && !got.head.contains("agent-key"), "{}", got.head);
        assert_eq!(got.body.as_bytes(), body, "{wire}");
        assert!(!format!("{upstream:?} {answer:?}").contains(KEY));
    }
}

#[tokio::test]
async fn gemini_is_asked_in_the_form_that_the_agent_wants() {
    for (delivery, path) in [
        (GeminiDelivery::Whole, "/v1beta/models/big:generateContent "),
        (GeminiDelivery::List, "/v1beta/models/big:streamGenerateContent "),
        (GeminiDelivery::Events, "/v1beta/models/big:streamGenerateContent?alt=sse "),
    ] {
        let json = "content-type: application/json\r\n";
        let server = Server::start([Act::Status(200, json, "[{}]")]).await;
        let to = GenerateEndpoint::Gemini { model: "small".to_owned(), delivery };
        let body = Bytes::from_static(b"{}");
        let mut answer = at(&server.url, Wire::Gemini).forward(&to, body, &[]).await.unwrap();
        assert_eq!(answer.content_type.as_deref(), Some("application/json"));
        assert_eq!(bytes_of(&mut answer).await, b"[{}]");
        let head = server.got().remove(0).head;
        assert!(head.starts_with(&format!("POST {path}")), "{head}");
    }
}

#[tokio::test]
async fn both_apis_of_openai_are_asked_at_one_provider_and_no_wire_is_translated() {
    for provider in Wire::ALL {
        let ok = Act::Status(200, "content-type: application/json\r\n", "{}");
        let server = Server::start(vec![ok; 4]).await;
        let upstream = at(&server.url, provider);
        for wire in Wire::ALL {
            let answer = upstream.forward(&endpoint(wire), Bytes::from_static(b"{}"), &[]).await;
            let is_openai = |wire| matches!(wire, Wire::Chat | Wire::Responses);
            let expected = wire == provider || is_openai(wire) && is_openai(provider);
            assert_eq!(upstream.serves(wire), expected);
            match answer {
                Ok(_) => assert!(expected, "{wire} at {provider}"),
                Err(error) => {
                    assert!(!expected && error.never_began, "{wire} at {provider}: {error}");
                    assert_eq!(error.kind, ModelErrorKind::BadRequest);
                }
            }
        }
        if matches!(provider, Wire::Chat | Wire::Responses) {
            let paths: Vec<String> =
                server.got().iter().map(|got| got.head[..24].to_owned()).collect();
            assert_eq!(paths, ["POST /v1/chat/completion", "POST /v1/responses HTTP/"]);
        }
    }
}

#[tokio::test]
async fn an_error_of_the_provider_reaches_the_agent_without_keys() {
    for api in Api::ALL {
        for (class, never_began, kind) in [
            (FaultClass::ContextLength, true, ModelErrorKind::ContextExhausted),
            (FaultClass::RateLimited, true, ModelErrorKind::RateLimited),
            (FaultClass::Overloaded, true, ModelErrorKind::Overloaded),
            (FaultClass::Server, false, ModelErrorKind::Overloaded),
        ] {
            let fake = FakeServer::new(api, Script::always([Turn::fails(class)])).start().await;
            let upstream = Upstream::open(api.model(), &fake.sources()).unwrap();
            let wire = upstream.wire();
            let body = upstream.body_of(&served(wire, &request(wire)), 2_000);
            let mut answer = upstream.forward(&endpoint(wire), body, &[]).await.unwrap();
            let error = answer.error.clone().unwrap();
            assert_eq!((error.never_began, error.kind), (never_began, kind), "{wire} {class:?}");
            assert!(answer.status >= 400, "{wire}");
            let body: Value = serde_json::from_slice(&bytes_of(&mut answer).await).unwrap();
            assert!(body.to_string().contains("message"), "{wire} {body}");
        }
    }
    const QUOTED: &str = r#"{"error":{"message":"Incorrect API key provided: real-k******person.","code":"invalid_api_key","param":null,"limit":7,"list":["real-key-of-the-person"]}}"#;
    for (status, body, shown) in [
        (
            401,
            QUOTED,
            r#"{"error":{"message":"Incorrect API key provided: ***","code":"invalid_api_key","param":null,"limit":7,"list":["***"]}}"#,
        ),
        (502, "<html>real-key-of-the-person</html>", "<html>***</html>"),
        (302, "", ""),
    ] {
        let server = Server::start([Act::Status(status, "retry-after-ms: 5\r\n", body)]).await;
        let upstream = at(&server.url, Wire::Chat);
        let sent = upstream.forward(&endpoint(Wire::Chat), Bytes::from_static(b"{}"), &[]).await;
        let mut answer = sent.unwrap();
        assert_eq!(answer.status, status);
        let error = answer.error.clone().unwrap();
        assert_eq!((error.never_began, error.retry_after_ms), (status == 401, Some(5)));
        assert_eq!(String::from_utf8_lossy(&bytes_of(&mut answer).await), shown);
        assert!(!format!("{error:?}").contains("person"), "{error:?}");
    }
}

#[tokio::test]
async fn a_broken_connection_is_an_error_and_dropping_an_answer_closes_it() {
    let (wire, stream) = recorded()[0];
    let mut server = Server::start([Act::Cut(&stream[..100]), Act::Silent("data: {}\n\n")]).await;
    let upstream = at(&server.url, wire);
    let mut answer =
        upstream.forward(&endpoint(wire), Bytes::from_static(b"{}"), &[]).await.unwrap();
    assert_eq!(answer.next_chunk().await.unwrap().unwrap(), stream.as_bytes()[..100]);
    let error = answer.next_chunk().await.unwrap_err();
    assert!(error.kind == ModelErrorKind::Truncated && !error.never_began, "{error}");
    server.closed().await;
    let mut answer =
        upstream.forward(&endpoint(wire), Bytes::from_static(b"{}"), &[]).await.unwrap();
    answer.next_chunk().await.unwrap().unwrap();
    drop(answer);
    server.closed().await;
    let closed = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", closed.local_addr().unwrap());
    drop(closed);
    let sent = at(&url, wire).forward(&endpoint(wire), Bytes::from_static(b"{}"), &[]).await;
    assert!(sent.unwrap_err().never_began);
}

#[test]
fn an_upstream_is_opened_with_the_checks_of_a_model() {
    let sources = ModelSources::default();
    let open = |name: &str| Upstream::open(name, &sources).unwrap_err();
    assert!(matches!(open("claude"), OpenModelError::Name { .. }));
    assert!(matches!(open("nobody/x"), OpenModelError::UnknownProvider { .. }));
    assert!(matches!(open("anthropic/a..b"), OpenModelError::ModelName { .. }));
    assert!(matches!(open("anthropic/claude-x"), OpenModelError::NoKey { .. }));
    let upstream = Upstream::open("ollama/llama:8b", &sources).unwrap();
    assert_eq!((upstream.wire(), upstream.provider_model()), (Wire::Chat, "llama:8b"));
    let openai = sources.provider("openai").unwrap().clone();
    let openai = ProviderConfig { key: Secret::new("k"), ..openai };
    let openai = Upstream::open("openai/gpt", &sources.with_provider(openai)).unwrap();
    let request = served(Wire::Chat, &json!({"model":"m"}));
    assert_eq!(openai.body_of(&request, 9), r#"{"model":"gpt","max_completion_tokens":9}"#);
    assert_eq!(upstream.body_of(&request, 9), r#"{"model":"llama:8b","max_tokens":9}"#);
}
