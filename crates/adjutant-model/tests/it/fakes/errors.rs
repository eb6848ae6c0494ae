//! Failures are classified and never show a key.

use adjutant_core::{ModelErrorKind, Secret};
use adjutant_model::{ModelSources, OpenModelError, ProviderConfig, open_model};
use adjutant_testkit::fake::{Api, FakeServer, Fault, FaultClass, KEY, RawAnswer, Script, Turn};

use super::{Agent, serve};

const CLASSES: [(FaultClass, ModelErrorKind); 10] = [
    (FaultClass::ContextLength, ModelErrorKind::ContextExhausted),
    (FaultClass::RateLimited, ModelErrorKind::RateLimited),
    (FaultClass::Quota, ModelErrorKind::OutOfCredit),
    (FaultClass::Overloaded, ModelErrorKind::Overloaded),
    (FaultClass::Auth, ModelErrorKind::Authentication),
    (FaultClass::Permission, ModelErrorKind::Authentication),
    (FaultClass::NotFound, ModelErrorKind::BadRequest),
    (FaultClass::BadRequest, ModelErrorKind::BadRequest),
    (FaultClass::Refused, ModelErrorKind::Refused),
    (FaultClass::Server, ModelErrorKind::Overloaded),
];

fn expected(api: Api, class: FaultClass, kind: ModelErrorKind) -> ModelErrorKind {
    // Gemini has one status for the limits per minute and per day, with a retry delay in both cases.
    if api == Api::Gemini && class == FaultClass::Quota {
        ModelErrorKind::RateLimited
    } else {
        kind
    }
}

#[tokio::test]
async fn each_class_of_failure_is_recognised() {
    for api in Api::ALL {
        for (class, kind) in CLASSES {
            let fake = serve(api, [Turn::fails(class)]).await;
            let error = Agent::new(fake.model(), 1).attempt().await.unwrap_err();
            assert_eq!(error.kind, expected(api, class, kind), "{api:?} {class:?}: {error}");
            assert_eq!(error.retry_after_ms, None, "{api:?} {class:?}");
            assert!(!error.message.is_empty() && !error.message.contains(KEY), "{error}");
            assert!(error.message.len() < 400 && !error.message.contains('{'), "{error}");
        }
    }
}

#[tokio::test]
async fn a_failure_within_a_stream_is_recognised_too() {
    for api in Api::ALL {
        for (class, kind) in CLASSES {
            // Gemini blocks a prompt before a stream begins.
            if api == Api::Gemini && class == FaultClass::Refused {
                continue;
            }
            let fault = Fault { class, after_events: Some(2), ..Fault::default() };
            let turn = Turn { error: Some(fault), ..Turn::says("Half an answer.") };
            let fake = serve(api, [turn.fragmented(&[4])]).await;
            let error = Agent::new(fake.model(), 1).attempt().await.unwrap_err();
            let mut kind = expected(api, class, kind);
            // Without a status, `model_not_found` is all there is.
            if class == FaultClass::Permission && matches!(api, Api::Chat | Api::Responses) {
                kind = ModelErrorKind::BadRequest;
            }
            // A failed response has a code for everything, and for this one `server_error`.
            if class == FaultClass::BadRequest && api == Api::Responses {
                kind = ModelErrorKind::Overloaded;
            }
            assert_eq!(error.kind, kind, "{api:?} {class:?}: {error}");
        }
    }
}

#[tokio::test]
async fn the_retry_delay_of_a_provider_is_read() {
    for api in Api::ALL {
        for (seconds, ms, expected) in [
            (Some("7"), None, Some(7_000)),
            (None, Some("1500"), Some(1_500)),
            (Some("0.5"), None, Some(500)),
            (Some("soon"), None, None),
        ] {
            for class in [FaultClass::RateLimited, FaultClass::Overloaded] {
                let (retry_after, retry_after_ms) =
                    (seconds.map(str::to_owned), ms.map(str::to_owned));
                let fault = Fault { class, retry_after, retry_after_ms, ..Fault::default() };
                let turn = Turn { error: Some(fault), ..Turn::default() };
                let fake = serve(api, [turn]).await;
                let error = Agent::new(fake.model(), 1).attempt().await.unwrap_err();
                assert_eq!(error.retry_after_ms, expected, "{api:?} {class:?} {seconds:?} {ms:?}");
            }
        }
    }
}

#[tokio::test]
async fn a_wrong_key_and_an_unknown_model_are_reported() {
    for api in Api::ALL {
        let fake = FakeServer::new(api, Script::always([Turn::says("Hi.")]));
        let fake = fake.key("another-key").start().await;
        let error = Agent::new(fake.model(), 1).attempt().await.unwrap_err();
        assert_eq!(error.kind, ModelErrorKind::Authentication, "{api:?}: {error}");
        assert!(!error.message.contains(KEY), "{error}");

        let fake = FakeServer::new(api, Script::always([Turn::says("Hi.")]))
            .model("another")
            .start()
            .await;
        let error = Agent::new(fake.model(), 1).attempt().await.unwrap_err();
        assert_eq!(error.kind, ModelErrorKind::BadRequest, "{api:?}: {error}");
    }
}

#[tokio::test]
async fn an_invalid_base_url_is_refused_before_anything_is_sent() {
    for api in Api::ALL {
        for url in
            ["", "ftp://127.0.0.1", "file:///etc/passwd", "127.0.0.1:80", "http://", "nonsense"]
        {
            let fake = serve(api, []).await;
            let provider = ProviderConfig { base_url: url.to_owned(), ..fake.provider() };
            let sources = ModelSources::default().with_provider(provider);
            let error = open_model(api.model(), &sources).unwrap_err();
            assert!(matches!(error, OpenModelError::BaseUrl { .. }), "{url}: {error}");
            assert_eq!(fake.connections(), 0);
        }
    }
}

#[tokio::test]
async fn a_base_url_of_another_path_or_api_is_reported() {
    for api in Api::ALL {
        // Another path of the same server, and a server of another API.
        let fake = serve(api, []).await;
        let base_url = format!("{}/elsewhere/v1", fake.url);
        let sources =
            ModelSources::default().with_provider(ProviderConfig { base_url, ..fake.provider() });
        let model = open_model(api.model(), &sources).unwrap();
        let error = Agent::new(model, 1).attempt().await.unwrap_err();
        assert_eq!(error.kind, ModelErrorKind::BadRequest, "{api:?}: {error}");
        let other = Api::ALL.into_iter().find(|other| *other != api).unwrap();
        let foreign = serve(other, []).await;
        let provider = ProviderConfig { base_url: foreign.url.clone(), ..fake.provider() };
        let model =
            open_model(api.model(), &ModelSources::default().with_provider(provider)).unwrap();
        let error = Agent::new(model, 1).attempt().await.unwrap_err();
        assert_eq!(error.kind, ModelErrorKind::BadRequest, "{api:?} at {other:?}: {error}");
    }
}

#[tokio::test]
async fn a_server_that_is_not_a_model_api_is_reported() {
    let answer = |status: u16, kind: &str, body: &str| {
        let headers = vec![("content-type".to_owned(), kind.to_owned())];
        Turn { answer: Some(RawAnswer { status, headers, body: body.into() }), ..Turn::default() }
    };
    for api in Api::ALL {
        for (turn, kind) in [
            (answer(200, "text/html", "<html>Log in</html>"), ModelErrorKind::BadRequest),
            (answer(200, "application/json", r#"{"hello":"world"}"#), ModelErrorKind::BadRequest),
            (answer(200, "text/plain", "hello"), ModelErrorKind::Truncated),
            (answer(200, "text/event-stream", ""), ModelErrorKind::Truncated),
            (answer(200, "text/event-stream", "data: <html>\n\n"), ModelErrorKind::Truncated),
            (answer(404, "text/html", "<html>no</html>"), ModelErrorKind::BadRequest),
            (answer(502, "text/html", "<html>bad gateway</html>"), ModelErrorKind::Overloaded),
            (answer(407, "text/plain", "proxy"), ModelErrorKind::BadRequest),
        ] {
            let fake = serve(api, [turn.clone()]).await;
            let error = Agent::new(fake.model(), 1).attempt().await.unwrap_err();
            assert_eq!(error.kind, kind, "{api:?} {turn:?}: {error}");
            assert!(!error.message.contains('<'), "{error}");
        }
    }
}

#[tokio::test]
async fn a_redirect_is_not_followed_with_a_key() {
    for api in Api::ALL {
        let target = serve(api, [Turn::says("Hi.")]).await;
        let headers = vec![("location".to_owned(), format!("{}/v1/messages", target.url))];
        let away = RawAnswer { status: 307, headers, body: String::new() };
        let fake = serve(api, [Turn { answer: Some(away), ..Turn::default() }]).await;
        let error = Agent::new(fake.model(), 1).attempt().await.unwrap_err();
        assert_eq!(error.kind, ModelErrorKind::BadRequest, "{api:?}: {error}");
        assert_eq!(target.connections(), 0, "{api:?}");
    }
}

#[tokio::test]
async fn a_key_that_the_provider_quotes_is_masked() {
    for api in Api::ALL {
        let long_key = "sk-verysecret-0123456789";
        let fault = Fault {
            class: FaultClass::BadRequest,
            message: Some(format!("header {long_key} is odd")),
            ..Fault::default()
        };
        let turn = Turn { error: Some(fault), ..Turn::default() };
        let fake = FakeServer::new(api, Script::always([turn])).key(long_key).start().await;
        let provider = ProviderConfig { key: Secret::new(long_key), ..fake.provider() };
        let model =
            open_model(api.model(), &ModelSources::default().with_provider(provider)).unwrap();
        let error = Agent::new(model, 1).attempt().await.unwrap_err();
        assert_eq!(error.kind, ModelErrorKind::BadRequest, "{api:?}");
        assert!(error.message.contains("header ***"), "{error}");
        assert!(!error.message.contains("verysecret"), "{error}");
        assert!(!format!("{:?}", fake.requests()).contains("verysecret"));
    }
}
