//! Which failed attempts the provider never began, so that they cost nothing.

use std::time::Duration;

use adjutant_core::AttemptError;
use adjutant_model::{HttpTimeouts, ModelSources, ProviderConfig, open_model};
use adjutant_testkit::fake::{Api, Fault, FaultClass, RawAnswer, Turn};
use tokio::io::AsyncWriteExt;
use tokio::net::TcpListener;

use super::{Agent, serve};

fn answers(status: u16, kind: &str, body: &str) -> Turn {
    let headers = vec![("content-type".to_owned(), kind.to_owned())];
    Turn { answer: Some(RawAnswer { status, headers, body: body.into() }), ..Turn::default() }
}

async fn error_of(api: Api, turn: Turn) -> AttemptError {
    let fake = serve(api, [turn]).await;
    Agent::new(fake.model(), 1).attempt().await.unwrap_err()
}

/// Asks a model at `base_url`; no strict server of `api` listens there.
async fn error_at(api: Api, base_url: &str) -> AttemptError {
    let fake = serve(api, []).await;
    let provider = ProviderConfig { base_url: base_url.to_owned(), ..fake.provider() };
    let model = open_model(api.model(), &ModelSources::default().with_provider(provider)).unwrap();
    Agent::new(model, 1).attempt().await.unwrap_err()
}

#[tokio::test]
async fn the_status_of_an_error_tells_whether_the_provider_began_to_work() {
    let never_began = [400, 401, 402, 403, 404, 407, 409, 413, 422, 429, 451, 499, 503, 529];
    let began = [302, 408, 500, 501, 502, 504, 520, 524];
    for api in Api::ALL {
        for (statuses, expected) in [(&never_began[..], true), (&began[..], false)] {
            for &status in statuses {
                let turn = answers(status, "application/json", r#"{"error":{"message":"no"}}"#);
                let error = error_of(api, turn).await;
                assert_eq!(error.never_began, expected, "{api:?} {status}: {error}");
            }
        }
    }
}

#[tokio::test]
async fn the_errors_of_each_api_tell_whether_the_provider_began_to_work() {
    for api in Api::ALL {
        for (class, expected) in [
            (FaultClass::ContextLength, true),
            (FaultClass::RateLimited, true),
            (FaultClass::Quota, true),
            (FaultClass::Auth, true),
            (FaultClass::Permission, true),
            (FaultClass::NotFound, true),
            (FaultClass::BadRequest, true),
            (FaultClass::Overloaded, true),
            (FaultClass::Server, false),
        ] {
            let error = error_of(api, Turn::fails(class)).await;
            assert_eq!(error.never_began, expected, "{api:?} {class:?}: {error}");
        }
    }
}

#[tokio::test]
async fn a_failed_stream_counts_as_begun() {
    for api in Api::ALL {
        for class in [FaultClass::RateLimited, FaultClass::Overloaded, FaultClass::ContextLength] {
            let fault = Fault { class, after_events: Some(2), ..Fault::default() };
            let turn = Turn { error: Some(fault), ..Turn::says("Half an answer.") };
            let error = error_of(api, turn.fragmented(&[4])).await;
            assert!(!error.never_began, "{api:?} {class:?}: {error}");
        }
        let cut = Turn::says("Half an answer.").delivered(|way| way.cut_after = Some(200));
        for turn in [
            cut,
            answers(200, "text/event-stream", ""),
            answers(200, "text/html", "<html>Log in</html>"),
            answers(200, "application/json", r#"{"error":{"message":"no","code":429}}"#),
        ] {
            let error = error_of(api, turn.clone()).await;
            assert!(!error.never_began, "{api:?} {turn:?}: {error}");
        }
    }
}

#[tokio::test]
async fn a_provider_that_is_silent_after_the_request_counts_as_begun() {
    for api in Api::ALL {
        for turn in [
            Turn::says("Late.").delivered(|way| way.delay_ms = 60_000),
            Turn::says("Half an answer.").delivered(|way| way.stall_after = Some(100)),
        ] {
            let fake = serve(api, [turn]).await;
            let idle = Duration::from_millis(100);
            let timeouts = HttpTimeouts { idle, ..HttpTimeouts::default() };
            let sources =
                ModelSources::default().with_timeouts(timeouts).with_provider(fake.provider());
            let model = open_model(api.model(), &sources).unwrap();
            let error = Agent::new(model, 1).attempt().await.unwrap_err();
            assert!(!error.never_began, "{api:?}: {error}");
        }
    }
}

#[tokio::test]
async fn a_connection_that_breaks_after_the_request_counts_as_begun() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let server = tokio::spawn(async move {
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            stream.readable().await.unwrap();
            let mut request = [0; 4096];
            let _ = stream.try_read(&mut request);
        }
    });
    for api in Api::ALL {
        let error = error_at(api, &url).await;
        assert!(!error.never_began, "{api:?}: {error}");
    }
    server.abort();
}

#[tokio::test]
async fn a_request_to_a_closed_port_never_began() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    drop(listener);
    for api in Api::ALL {
        let error = error_at(api, &url).await;
        assert!(error.never_began, "{api:?}: {error}");
        assert!(error.message.contains("cannot connect to 127.0.0.1:"), "{error}");
    }
}

#[tokio::test]
async fn a_request_to_an_unresolvable_name_never_began() {
    // A label above 63 characters: the resolver refuses it without asking a server.
    let url = format!("http://{}.invalid", "a".repeat(80));
    for api in Api::ALL {
        let error = error_at(api, &url).await;
        assert!(error.never_began, "{api:?}: {error}");
    }
}

#[tokio::test]
async fn a_request_with_a_failed_tls_handshake_never_began() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("https://{}", listener.local_addr().unwrap());
    let server = tokio::spawn(async move {
        loop {
            let (mut stream, _) = listener.accept().await.unwrap();
            let _ = stream.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n").await;
        }
    });
    for api in Api::ALL {
        let error = error_at(api, &url).await;
        assert!(error.never_began, "{api:?}: {error}");
        assert!(error.message.contains("no encrypted connection to 127.0.0.1:"), "{error}");
    }
    server.abort();
}
