//! Whole exchanges with a server on the loopback interface.

use std::sync::Arc;
use std::time::{Duration, Instant};

use adjutant_core::{AttemptResult, Message, ModelErrorKind, SessionId, StopReason};
use adjutant_model::wire::Wire;
use adjutant_model::{
    HttpTimeouts, Model, ModelSources, ProviderConfig, Secret, TurnProgress, TurnRequest,
    open_model,
};

use crate::golden::{ANTHROPIC, CHAT, recorded};
use crate::server::{Act, Server};

const FAKE: &str = "fake-key-for-tests";

fn sources(server: &Server, wire: Wire) -> ModelSources {
    ModelSources::default().with_provider(ProviderConfig {
        name: "home".to_owned(),
        wire,
        base_url: server.url.clone(),
        key: Secret::new(FAKE),
        needs_key: true,
    })
}

fn model(server: &Server, wire: Wire) -> Arc<dyn Model> {
    open_model("home/test-model", &sources(server, wire)).unwrap()
}

fn session(number: u8) -> SessionId {
    SessionId::new(1_735_460_684, [number; 6])
}

async fn ask(model: &dyn Model, number: u8) -> AttemptResult {
    let messages = [Message::User { content: "Hi".to_owned() }];
    let request = TurnRequest {
        agent: "scout",
        label: "look",
        session: session(number),
        turn: 1,
        attempt: 1,
        system: "Be brief.",
        messages: &messages,
        tools: &[],
        may_call_tools: true,
        max_output: 100,
        effort: None,
        context_tokens: 10,
    };
    model.turn(request, &mut |_: TurnProgress<'_>| {}).await
}

#[tokio::test]
async fn each_api_gets_the_request_at_its_address_with_its_key() {
    for (wire, stream) in recorded() {
        let server = Server::start([Act::Stream(stream, 7)]).await;
        let reply = ask(&*model(&server, wire), 1).await.unwrap();
        assert_eq!(reply.stop, StopReason::ToolUse, "{wire}");
        let got = server.got().remove(0);
        let (path, key) = match wire {
            Wire::Anthropic => ("/v1/messages", format!("x-api-key: {FAKE}")),
            Wire::Chat => ("/v1/chat/completions", format!("authorization: Bearer {FAKE}")),
            Wire::Responses => ("/v1/responses", format!("authorization: Bearer {FAKE}")),
            Wire::Gemini => (
                "/v1beta/models/test-model:streamGenerateContent?alt=sse",
                format!("x-goog-api-key: {FAKE}"),
            ),
        };
        assert!(got.head.starts_with(&format!("POST {path} HTTP/1.1")), "{}", got.head);
        assert!(got.head.contains(&key), "{}", got.head);
        assert!(got.head.contains("content-type: application/json"), "{}", got.head);
        assert!(!got.body.contains(FAKE), "{}", got.body);
        let version = got.head.contains("anthropic-version: 2023-06-01");
        assert_eq!(version, wire == Wire::Anthropic);
    }
}

#[tokio::test]
async fn a_connection_serves_one_request_after_the_other() {
    for (wire, stream) in recorded() {
        let server = Server::start(vec![Act::Stream(stream, 64); 5]).await;
        // On a busy machine the end of a body may come later than a client usually waits for it.
        let patient = HttpTimeouts { drain: Duration::from_secs(10), ..HttpTimeouts::default() };
        let sources = sources(&server, wire).with_timeouts(patient);
        for number in 0..5 {
            // Another model of the same process shares the connection too.
            let model = open_model("home/test-model", &sources).unwrap();
            ask(&*model, number).await.unwrap();
        }
        let connections: Vec<_> = server.got().iter().map(|got| got.connection).collect();
        assert_eq!(connections, [0; 5], "{wire}");
    }
}

#[tokio::test]
async fn dropping_a_turn_closes_its_connection_at_once() {
    for act in [Act::Silent("data: {\"choices\":[]}\n\n"), Act::Mute] {
        let mut server = Server::start([act]).await;
        let model = model(&server, Wire::Chat);
        let turn = tokio::spawn(async move { ask(&*model, 1).await });
        server.acted().await;
        let begun = Instant::now();
        turn.abort();
        server.closed().await;
        assert!(begun.elapsed() < Duration::from_secs(1), "{:?}", begun.elapsed());
    }
}

#[tokio::test]
async fn silence_before_or_inside_an_answer_is_an_idle_error() {
    for act in [Act::Mute, Act::Silent("data: {\"choices\":[]}\n\n")] {
        let server = Server::start([act]).await;
        let timeouts = HttpTimeouts {
            connect: Duration::from_secs(5),
            idle: Duration::from_millis(60),
            ..HttpTimeouts::default()
        };
        let sources = sources(&server, Wire::Chat).with_timeouts(timeouts);
        let model = open_model("home/test-model", &sources).unwrap();
        let error = ask(&*model, 1).await.unwrap_err();
        assert_eq!(error.kind, ModelErrorKind::Idle, "{error}");
        assert!(error.kind.is_transient());
    }
}

#[tokio::test]
async fn a_connection_that_breaks_right_before_the_end_is_an_error() {
    for (wire, stream) in recorded() {
        // Without the end of the transfer, and without the end of the last event.
        let whole = Server::start([Act::Cut(stream)]).await;
        let error = match ask(&*model(&whole, wire), 1).await {
            Ok(_) => {
                assert_ne!(wire, Wire::Gemini, "only the connection's good end ends this one");
                continue;
            }
            Err(error) => error,
        };
        assert_eq!((wire, error.kind), (Wire::Gemini, ModelErrorKind::Truncated));
    }
    for (wire, stream) in recorded() {
        let server = Server::start([Act::Cut(&stream[..stream.len() - 1])]).await;
        let error = ask(&*model(&server, wire), 1).await.unwrap_err();
        assert_eq!(error.kind, ModelErrorKind::Truncated, "{wire} {error}");
    }
}

#[tokio::test]
async fn a_closed_port_is_a_network_error_that_hides_secrets_of_the_url() {
    let closed = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let place = closed.local_addr().unwrap();
    let url = format!("http://{place}/?token={FAKE}");
    drop(closed);
    let sources = ModelSources::default().with_provider(ProviderConfig {
        name: "home".to_owned(),
        wire: Wire::Chat,
        base_url: url,
        key: None,
        needs_key: false,
    });
    let error = ask(&*open_model("home/x", &sources).unwrap(), 1).await.unwrap_err();
    let message = format!("cannot connect to {place}; is the server running?");
    assert_eq!((error.kind, error.message), (ModelErrorKind::Network, message));
}

#[tokio::test]
async fn an_https_url_of_a_plain_http_server_is_a_network_error() {
    // Also proves that a client with TLS can be made at all; the first one reads the roots.
    let server = Server::start([]).await;
    let mut encrypted = sources(&server, Wire::Chat).provider("home").unwrap().clone();
    encrypted.base_url = server.url.replace("http:", "https:");
    let sources = ModelSources::default().with_provider(encrypted);
    let error = ask(&*open_model("home/x", &sources).unwrap(), 1).await.unwrap_err();
    assert_eq!(error.kind, ModelErrorKind::Network, "{error}");
    assert!(server.got().is_empty(), "nothing was sent in the clear");
}

#[tokio::test]
async fn rejections_are_classified_and_never_show_the_key() {
    const OVERLOADED: &str =
        r#"{"type":"error","error":{"type":"overloaded_error","message":"fake-key-for-tests"}}"#;
    for (act, kind, message, wish) in [
        (
            Act::Status(529, "retry-after-ms: 1\r\n", OVERLOADED),
            ModelErrorKind::Overloaded,
            "HTTP 529, overloaded_error: ***",
            Some(1),
        ),
        (
            Act::Status(
                401,
                "",
                r#"{"error":{"code":"invalid_api_key","message":"fake-key-for-tests"}}"#,
            ),
            ModelErrorKind::Authentication,
            "HTTP 401, invalid_api_key: ***",
            None,
        ),
        (
            Act::Status(302, "location: http://127.0.0.1:1/\r\n", ""),
            ModelErrorKind::BadRequest,
            "HTTP 302, a redirect, is not followed; is the base URL right?",
            None,
        ),
        (
            Act::Status(200, "content-type: text/html\r\n", "<h1>Hello</h1>"),
            ModelErrorKind::BadRequest,
            "the server answered with a web page, not as wire `anthropic` does; is the base URL right?",
            None,
        ),
        (
            Act::Status(200, "content-type: application/json\r\n", r#"{"error":{"message":"no"}}"#),
            ModelErrorKind::BadRequest,
            "HTTP 400: no",
            None,
        ),
    ] {
        let server = Server::start([act]).await;
        let error = ask(&*model(&server, Wire::Anthropic), 1).await.unwrap_err();
        assert_eq!((error.kind, error.message.as_str()), (kind, message));
        assert_eq!(error.retry_after_ms, wish);
        assert!(!format!("{error:?}").contains(FAKE));
    }
}

#[tokio::test]
async fn after_a_retry_delay_every_session_of_the_provider_waits() {
    let limited =
        Act::Status(429, "retry-after-ms: 80\r\n", r#"{"error":{"type":"rate_limit_error"}}"#);
    let server = Server::start([limited, Act::Stream(ANTHROPIC, 999)]).await;
    let sources = sources(&server, Wire::Anthropic);
    let one = open_model("home/test-model", &sources).unwrap();
    let other = open_model("home/other-model", &sources.clone()).unwrap();
    let begun = Instant::now();
    let error = ask(&*one, 1).await.unwrap_err();
    assert_eq!((error.kind, error.retry_after_ms), (ModelErrorKind::RateLimited, Some(80)));
    ask(&*other, 2).await.unwrap();
    assert!(begun.elapsed() >= Duration::from_millis(80), "{:?}", begun.elapsed());
}

#[tokio::test]
async fn forget_drops_the_cached_request_of_a_session() {
    let server = Server::start(vec![Act::Stream(CHAT, 999); 2]).await;
    let model = model(&server, Wire::Chat);
    ask(&*model, 1).await.unwrap();
    model.forget(session(1));
    ask(&*model, 1).await.unwrap();
    let got = server.got();
    assert_eq!(got[0].body, got[1].body);
}
