//! HTTP: connections are reused, secrets masked, invalid requests refused.

use adjutant_testkit::fake::{Api, DeliveryOutcome, FakeServer, Script, Turn};
use serde_json::json;

use crate::rig::{APIS, Client, Request, hello};

#[tokio::test(start_paused = true)]
async fn a_connection_is_kept_for_the_next_request() {
    for api in APIS {
        let fake = FakeServer::new(api, Script::always([Turn::says("Hi.")])).start().await;
        let request = Request::new(api, &hello(api));
        let mut client = Client::connect(&fake).await;
        for _ in 0..3 {
            assert!(client.send(&request).await.whole);
        }
        let mut other = Client::connect(&fake).await;
        assert!(other.send(&request).await.whole);
        let seen: Vec<_> = fake.requests().iter().map(|r| (r.order, r.connection)).collect();
        assert_eq!(seen, [(0, 0), (1, 0), (2, 0), (3, 1)]);
        assert_eq!((fake.request_count(), fake.connections(), fake.open_connections()), (4, 2, 2));
        drop((client, other));
        fake.wait_until_closed().await;
    }
}

#[tokio::test(start_paused = true)]
async fn requests_can_be_pipelined() {
    let fake = FakeServer::chat(Script::always([Turn::says("Hi.")]).delayed(20)).start().await;
    let request = Request::new(Api::Chat, &hello(Api::Chat)).bytes();
    let mut client = Client::connect(&fake).await;
    client.write(&[request.clone(), request].concat()).await;
    assert!(client.answer().await.whole);
    assert!(client.answer().await.whole);
}

#[tokio::test(start_paused = true)]
async fn a_request_is_remembered_with_its_bytes_and_without_its_key() {
    for api in APIS {
        let fake = FakeServer::new(api, Script::always([Turn::says("Hi.")])).start().await;
        let request = Request::new(api, &hello(api));
        Client::connect(&fake).await.send(&request).await;
        let seen = fake.single_request();
        assert_eq!(seen.body, request.body.as_bytes());
        assert_eq!(seen.json(), hello(api));
        assert_eq!(format!("{}?{}", seen.path, seen.query).trim_end_matches('?'), request.target);
        assert!(!format!("{seen:?}").contains("test-key"), "{seen:?}");
        assert_eq!((seen.status, seen.turn, seen.attempt), (200, Some(0), Some(0)));
        assert_eq!(seen.delivered, Some(DeliveryOutcome::Whole));
        assert_eq!(seen.complaint, None);
    }
}

#[tokio::test(start_paused = true)]
async fn wrong_keys_models_paths_and_bodies_are_refused() {
    let mut lines = String::new();
    for api in APIS {
        let fake = FakeServer::new(api, Script::new()).model("known").start().await;
        let valid = Request::new(api, &hello(api));
        let key = ["x-api-key", "authorization", "authorization", "x-goog-api-key"][api as usize];
        let altered = |change: &dyn Fn(&mut Request)| {
            let mut request = valid.clone();
            change(&mut request);
            request
        };
        let table = [
            ("path", altered(&|request| request.target = "/v2/messages".into())),
            ("method", altered(&|request| request.method = "PUT".into())),
            ("no key", valid.clone().without(key)),
            ("wrong key", valid.clone().with(key, "Bearer wrong")),
            ("bare key", valid.clone().with(key, "test-key2")),
            ("no type", valid.clone().without("content-type")),
            ("form", valid.clone().with("content-type", "application/x-www-form-urlencoded")),
            ("not JSON", altered(&|request| request.body = "{".into())),
            ("not an object", altered(&|request| request.body = "[]".into())),
            ("model", valid.clone()),
        ];
        for (name, request) in table {
            let answer = Client::connect(&fake).await.send(&request).await;
            lines += &format!("{api:?} {name}: {} {}\n", answer.status, answer.text());
        }
    }
    insta::assert_snapshot!(lines, @r#"
    Anthropic path: 404 {"type":"error","error":{"type":"not_found_error","message":"Not Found"},"request_id":"req_011CSHoEeqs5C35K2UUqR7Fy"}
    Anthropic method: 405 {"type":"error","error":{"type":"invalid_request_error","message":"Method Not Allowed"},"request_id":"req_011CSHoEeqs5C35K2UUqR7Fy"}
    Anthropic no key: 401 {"type":"error","error":{"type":"authentication_error","message":"x-api-key header is required"},"request_id":"req_011CSHoEeqs5C35K2UUqR7Fy"}
    Anthropic wrong key: 401 {"type":"error","error":{"type":"authentication_error","message":"invalid x-api-key"},"request_id":"req_011CSHoEeqs5C35K2UUqR7Fy"}
    Anthropic bare key: 401 {"type":"error","error":{"type":"authentication_error","message":"invalid x-api-key"},"request_id":"req_011CSHoEeqs5C35K2UUqR7Fy"}
    Anthropic no type: 400 {"type":"error","error":{"type":"invalid_request_error","message":"content-type: header is required"},"request_id":"req_011CSHoEeqs5C35K2UUqR7Fy"}
    Anthropic form: 400 {"type":"error","error":{"type":"invalid_request_error","message":"content-type: \"application/x-www-form-urlencoded\" is not a valid value"},"request_id":"req_011CSHoEeqs5C35K2UUqR7Fy"}
    Anthropic not JSON: 400 {"type":"error","error":{"type":"invalid_request_error","message":"The request body is not valid JSON: EOF while parsing an object at line 1 column 1"},"request_id":"req_011CSHoEeqs5C35K2UUqR7Fy"}
    Anthropic not an object: 400 {"type":"error","error":{"type":"invalid_request_error","message":"Input should be a valid dictionary"},"request_id":"req_011CSHoEeqs5C35K2UUqR7Fy"}
    Anthropic model: 404 {"type":"error","error":{"type":"not_found_error","message":"model: claude-test"},"request_id":"req_011CSHoEeqs5C35K2UUqR7Fy"}
    Chat path: 404 {"error":{"message":"Unknown request URL: POST /v2/messages.","type":"invalid_request_error","param":null,"code":"unknown_url"}}
    Chat method: 405 {"error":{"message":"Not allowed to PUT on /v1/chat/completions.","type":"invalid_request_error","param":null,"code":"method_not_supported"}}
    Chat no key: 401 {"error":{"message":"You didn't provide an API key. You need to provide your API key in an Authorization header using Bearer auth.","type":"invalid_request_error","param":null,"code":null}}
    Chat wrong key: 401 {"error":{"message":"Incorrect API key provided: ***.","type":"invalid_request_error","param":null,"code":"invalid_api_key"}}
    Chat bare key: 401 {"error":{"message":"Incorrect API key provided: ***.","type":"invalid_request_error","param":null,"code":"invalid_api_key"}}
    Chat no type: 415 {"error":{"message":"Unsupported content type. Expected 'application/json'.","type":"invalid_request_error","param":null,"code":"unsupported_content_type"}}
    Chat form: 415 {"error":{"message":"Unsupported content type. Expected 'application/json'.","type":"invalid_request_error","param":null,"code":"unsupported_content_type"}}
    Chat not JSON: 400 {"error":{"message":"We could not parse the JSON body of your request: EOF while parsing an object at line 1 column 1","type":"invalid_request_error","param":null,"code":null}}
    Chat not an object: 400 {"error":{"message":"Invalid type for '': expected an object, but got an array instead.","type":"invalid_request_error","param":null,"code":"invalid_type"}}
    Chat model: 404 {"error":{"message":"The model `gpt-test` does not exist or you do not have access.","type":"invalid_request_error","param":null,"code":"model_not_found"}}
    Responses path: 404 {"error":{"message":"Unknown request URL: POST /v2/messages.","type":"invalid_request_error","param":null,"code":"unknown_url"}}
    Responses method: 405 {"error":{"message":"Not allowed to PUT on /v1/responses.","type":"invalid_request_error","param":null,"code":"method_not_supported"}}
    Responses no key: 401 {"error":{"message":"You didn't provide an API key. You need to provide your API key in an Authorization header using Bearer auth.","type":"invalid_request_error","param":null,"code":null}}
    Responses wrong key: 401 {"error":{"message":"Incorrect API key provided: ***.","type":"invalid_request_error","param":null,"code":"invalid_api_key"}}
    Responses bare key: 401 {"error":{"message":"Incorrect API key provided: ***.","type":"invalid_request_error","param":null,"code":"invalid_api_key"}}
    Responses no type: 415 {"error":{"message":"Unsupported content type. Expected 'application/json'.","type":"invalid_request_error","param":null,"code":"unsupported_content_type"}}
    Responses form: 415 {"error":{"message":"Unsupported content type. Expected 'application/json'.","type":"invalid_request_error","param":null,"code":"unsupported_content_type"}}
    Responses not JSON: 400 {"error":{"message":"We could not parse the JSON body of your request: EOF while parsing an object at line 1 column 1","type":"invalid_request_error","param":null,"code":null}}
    Responses not an object: 400 {"error":{"message":"Invalid type for '': expected an object, but got an array instead.","type":"invalid_request_error","param":null,"code":"invalid_type"}}
    Responses model: 404 {"error":{"message":"The model `gpt-test` does not exist or you do not have access.","type":"invalid_request_error","param":null,"code":"model_not_found"}}
    Gemini path: 404 {"error":{"code":404,"message":"The requested URL was not found on this server.","status":"NOT_FOUND"}}
    Gemini method: 404 {"error":{"code":404,"message":"The requested URL was not found on this server.","status":"NOT_FOUND"}}
    Gemini no key: 403 {"error":{"code":403,"message":"Method doesn't allow unregistered callers (callers without established identity). Please use API Key or other form of API consumer identity to call this API.","status":"PERMISSION_DENIED"}}
    Gemini wrong key: 400 {"error":{"code":400,"message":"API key not valid. Please pass a valid API key.","status":"INVALID_ARGUMENT","details":[{"@type":"type.googleapis.com/google.rpc.ErrorInfo","reason":"API_KEY_INVALID","domain":"googleapis.com","metadata":{"service":"generativelanguage.googleapis.com"}}]}}
    Gemini bare key: 400 {"error":{"code":400,"message":"API key not valid. Please pass a valid API key.","status":"INVALID_ARGUMENT","details":[{"@type":"type.googleapis.com/google.rpc.ErrorInfo","reason":"API_KEY_INVALID","domain":"googleapis.com","metadata":{"service":"generativelanguage.googleapis.com"}}]}}
    Gemini no type: 400 {"error":{"code":400,"message":"Invalid JSON payload received. Unexpected token.","status":"INVALID_ARGUMENT"}}
    Gemini form: 400 {"error":{"code":400,"message":"Invalid JSON payload received. Unexpected token.","status":"INVALID_ARGUMENT"}}
    Gemini not JSON: 400 {"error":{"code":400,"message":"Invalid JSON payload received. Unexpected token.","status":"INVALID_ARGUMENT"}}
    Gemini not an object: 404 {"error":{"code":404,"message":"models/gemini-3-pro is not found for API version v1beta, or is not supported for generateContent.","status":"NOT_FOUND"}}
    Gemini model: 404 {"error":{"code":404,"message":"models/gemini-3-pro is not found for API version v1beta, or is not supported for generateContent.","status":"NOT_FOUND"}}
    "#);
}

#[tokio::test(start_paused = true)]
async fn gemini_without_server_sent_events_and_anthropic_without_a_version_are_refused() {
    let fake = FakeServer::gemini(Script::always([Turn::says("Hi.")])).start().await;
    let mut request = Request::new(Api::Gemini, &hello(Api::Gemini));
    request.target = request.target.replace("?alt=sse", "");
    assert_eq!(Client::connect(&fake).await.send(&request).await.status, 404);

    let fake = FakeServer::anthropic(Script::always([Turn::says("Hi.")])).start().await;
    let request = Request::new(Api::Anthropic, &hello(Api::Anthropic));
    let answer =
        Client::connect(&fake).await.send(&request.clone().without("anthropic-version")).await;
    assert_eq!(answer.json()["error"]["message"], "anthropic-version: header is required");
    let answer = Client::connect(&fake).await.send(&request.with("anthropic-version", "1")).await;
    assert_eq!(answer.status, 400);
}

#[tokio::test(start_paused = true)]
async fn a_server_without_a_key_accepts_any_request() {
    let fake = FakeServer::chat(Script::always([Turn::says("Hi.")])).without_key().start().await;
    let request = Request::new(Api::Chat, &hello(Api::Chat)).without("authorization");
    assert_eq!(Client::connect(&fake).await.send(&request).await.status, 200);
}

#[tokio::test(start_paused = true)]
async fn a_request_that_is_not_http_is_refused_and_the_connection_closed() {
    let fake = FakeServer::chat(Script::new()).start().await;
    for (bytes, why) in [
        ("POST /v1/chat/completions HTTP/1.0\r\n\r\n", "the request line"),
        ("nonsense\r\n\r\n", "the request line"),
        ("POST / HTTP/1.1\r\nhost: a\r\nbad\r\n\r\n", "a header has no colon"),
        ("POST / HTTP/1.1\r\nhost : a\r\n\r\n", "a header's name"),
        ("POST / HTTP/1.1\r\ncontent-length: 0\r\n\r\n", "there is no host"),
        ("POST / HTTP/1.1\r\nhost: a\r\n\r\n", "there is no content-length"),
        ("POST / HTTP/1.1\r\nhost: a\r\ncontent-length: x\r\n\r\n", "the content length"),
        ("POST / HTTP/1.1\r\nhost: a\r\ntransfer-encoding: chunked\r\n\r\n", "requests with"),
    ] {
        let mut client = Client::connect(&fake).await;
        client.write(bytes.as_bytes()).await;
        let answer = client.answer().await;
        assert_eq!(answer.status, 400);
        assert!(answer.text().starts_with(why), "{bytes}: {}", answer.text());
        fake.wait_until_closed().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_body_that_is_too_large_is_refused_before_it_is_read() {
    for (api, status) in APIS.into_iter().zip([413, 413, 413, 400]) {
        let fake = FakeServer::new(api, Script::new()).start().await;
        let mut client = Client::connect(&fake).await;
        client.write(b"POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 99999999\r\n\r\n").await;
        let answer = client.answer().await;
        assert_eq!(answer.status, status);
        assert!(answer.json()["error"]["message"].is_string());
    }
}

#[tokio::test(start_paused = true)]
async fn shutting_down_closes_open_connections() {
    let stalling = Turn::says("Hi.").delivered(|how| how.stall_after = Some(0));
    let fake = FakeServer::anthropic(Script::always([stalling])).start().await;
    let mut client = Client::connect(&fake).await;
    client.write(&Request::new(Api::Anthropic, &hello(Api::Anthropic)).bytes()).await;
    fake.wait_for_requests(1).await;
    fake.shutdown().await;
    assert!(!client.answer().await.whole);
}

#[tokio::test(start_paused = true)]
async fn every_request_can_be_logged_to_a_file() {
    let file = tempfile::NamedTempFile::new().unwrap();
    let script = Script::always([Turn::says("Hi.")]);
    let fake =
        FakeServer::gemini(script).without_recording().log_to(file.reopen().unwrap()).start().await;
    Client::connect(&fake).await.send(&Request::new(Api::Gemini, &hello(Api::Gemini))).await;
    assert_eq!(fake.request_count(), 1);
    assert!(fake.requests().is_empty());
    let line = std::fs::read_to_string(file.path()).unwrap();
    let line: serde_json::Value = serde_json::from_str(&line).unwrap();
    assert_eq!(line["body"], hello(Api::Gemini));
    assert_eq!(line["status"], 200);
    assert!(line["headers"].as_array().unwrap().contains(&json!(["x-goog-api-key", "***"])));
}
