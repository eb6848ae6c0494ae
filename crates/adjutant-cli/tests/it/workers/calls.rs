//! The model calls of a worker: forwarded, metered, lowered, refused.

use std::fs;

use adjutant_testkit::fake::{Api, Script, Turn};
use serde_json::{Value, json};

use super::site::{CALL_USD, WorkerSite, call, done, prompts};
use crate::support::schema::assert_fits;
use crate::support::server::KEY;

/// Each API, and what the scripted agent calls it.
const WIRES: [(Api, &str); 4] = [
    (Api::Chat, "chat"),
    (Api::Anthropic, "messages"),
    (Api::Responses, "responses"),
    (Api::Gemini, "gemini"),
];

/// Returns a site of an API whose model always answers.
fn site(api: Api) -> WorkerSite {
    WorkerSite::with(api, Script::always([Turn::says("ok")]))
}

/// Returns the total of `adjutant cost --json`.
fn bill(site: &WorkerSite) -> Value {
    let cost = site.call(&["cost", "--json"]).run().json();
    assert_fits("cost", &cost);
    cost["total"].clone()
}

fn assert_billed(site: &WorkerSite, calls: u64) {
    let bill = bill(site);
    assert_eq!(bill["calls"], calls, "{bill}");
    assert_eq!(bill["usage"]["input"], calls * 100, "{bill}");
    assert_eq!(bill["usage"]["output"], calls * 10, "{bill}");
    #[expect(clippy::cast_precision_loss, reason = "a handful of calls")]
    let usd = calls as f64 * CALL_USD;
    assert!((bill["cost_usd"].as_f64().unwrap() - usd).abs() < 1e-12, "{bill}");
    assert_eq!(site.provider.served_tokens(), calls * 110);
}

#[test]
fn a_worker_writes_runs_and_calls_and_its_bill_is_the_provider_s() {
    let site = WorkerSite::new();
    let script = prompts([json!([
        {"think": "Let me look."},
        call(),
        {"write": {"path": "a.txt", "text": "hello\n"}},
        {"run": "wc -c < a.txt > count && env > environment && cat /proc/*/environ >> environment"},
        call(),
        {"say": "The work is done. Violations: {violations}"},
    ])]);
    let run = site.run(&script, &[]);
    assert_eq!(run.status(), "completed", "{}", run.out);
    assert!(run.report().contains("Violations: []"), "{}", run.report());
    assert_eq!(site.kept("a.txt"), "hello");
    assert_eq!(site.kept("count").trim(), "6");
    assert_billed(&site, 2);
    site.assert_settled_once();
    let diff = site.repo.json(&["diff"], 0);
    let files: Vec<&str> = diff["results"][0]["files"]
        .as_array()
        .unwrap()
        .iter()
        .map(|file| file["path"].as_str().unwrap())
        .collect();
    assert_eq!(files, ["a.txt", "count", "environment"]);
    // The key and the addresses of the provider stay outside.
    let environment = site.kept("environment");
    assert!(environment.contains("ACP_AGENT_BASE_URL=http://127.0.0.1:"), "{environment}");
    let state = site.rig().state();
    let transcript = site.call(&["transcript", "a"]).run();
    assert_eq!(transcript.code, 0, "{transcript}");
    for (place, text) in [
        ("environment", environment),
        ("journal", fs::read_to_string(site.journal()).unwrap()),
        ("transcript", transcript.stdout),
        ("stdout", run.out.stdout),
        ("stderr", run.out.stderr),
    ] {
        assert!(!text.contains(KEY), "{place} of {}: {text}", state.display());
    }
}

#[test]
fn all_four_apis_are_served_and_output_caps_are_lowered_or_added() {
    for (api, wire) in WIRES {
        let site = site(api);
        let script = prompts([json!([
            {"call_model": {"wire": wire}},
            {"call_model": {"wire": wire, "max_tokens": 1_000_000_000_u64}},
            {"call_model": {"wire": wire, "max_tokens": 150}},
            {"say": "{calls} {violations}"},
        ])]);
        let run = site.run(&script, &[]);
        assert_eq!(run.status(), "completed", "{wire}: {}", run.out);
        assert_billed(&site, 3);
        let caps: Vec<Option<u64>> =
            site.provider.requests().iter().map(|request| output_cap(&request.json())).collect();
        // An absent cap is added and a huge one is lowered: the model allows 4,000. A small one stays.
        assert_eq!(caps, [Some(4_000), Some(4_000), Some(150)], "{wire}");
    }
}

/// Returns the output cap of a request of any API.
fn output_cap(body: &Value) -> Option<u64> {
    let places = [
        "/max_tokens",
        "/max_completion_tokens",
        "/max_output_tokens",
        "/generationConfig/maxOutputTokens",
    ];
    places.iter().find_map(|place| body.pointer(place)).and_then(Value::as_u64)
}

#[test]
fn calls_at_the_same_time_are_all_paid() {
    let slow = Turn::says("ok").delivered(|it| it.delay_ms = 200);
    let site = WorkerSite::with(Api::Chat, Script::always([slow]));
    let at_once = json!({"call_models_at_once": {"times": 6, "call": {"max_tokens": 200}}});
    let run = site.run(&prompts([json!([at_once, done()])]), &[]);
    assert_eq!(run.status(), "completed", "{}", run.out);
    assert_billed(&site, 6);
    site.assert_settled_once();
    // All were admitted before the first was answered.
    let kinds = site.rig().events(&site.rig().only_run());
    let kinds: Vec<&str> = kinds.iter().map(|event| event["type"].as_str().unwrap()).collect();
    let first_settled = kinds.iter().position(|kind| *kind == "worker_call_settled").unwrap();
    let reserved = kinds[..first_settled].iter().filter(|kind| **kind == "worker_call_reserved");
    assert_eq!(reserved.count(), 6);
}

/// Makes one call that is not served and one that is, and returns what the worker got for the first.
#[track_caller]
fn refused_call(api: Api, first: Value, wire: &str) -> (WorkerSite, Value) {
    let site = site(api);
    let first = json!({"call_model": first});
    let good = json!({"call_model": {"wire": wire, "max_tokens": 200}});
    let run = site.run(&prompts([json!([first, good, {"say": "Calls: {calls}"}])]), &[]);
    assert_eq!(run.status(), "completed", "{}", run.out);
    assert_billed(&site, 1);
    let said = site.events("worker_acted").pop().unwrap();
    let calls = said["text"].as_str().unwrap().strip_prefix("Calls: ").unwrap().to_owned();
    let calls: Value = serde_json::from_str(&calls).unwrap();
    (site, calls[0].clone())
}

#[test]
fn a_model_that_is_not_listed_is_refused_and_harms_nothing() {
    for (api, wire) in WIRES {
        let (site, answer) = refused_call(api, json!({"wire": wire, "model": "other"}), wire);
        assert_eq!(answer["status"], 402, "{wire}: {answer}");
        let body = answer["body"].as_str().unwrap();
        assert!(body.contains("model other is not allowed here"), "{wire}: {body}");
        assert_eq!(site.events("worker_call_refused")[0]["why"], "model", "{wire}");
    }
}

#[test]
fn a_path_that_is_no_endpoint_is_not_found() {
    for path in ["/v1/embeddings", "/v1/responses/resp_1", "/", "/v1/files", "//v1/messages"] {
        let (site, answer) = refused_call(Api::Chat, json!({"path": path}), "chat");
        assert_eq!(answer["status"], 404, "{path}: {answer}");
        assert!(site.events("worker_call_refused").is_empty(), "{path}");
    }
}

#[test]
fn tools_of_the_provider_are_removed_from_requests_and_that_is_recorded() {
    let function = |wire: &str| match wire {
        "messages" => json!({"name": "mine", "input_schema": {"type": "object"}}),
        "responses" => {
            json!({"type": "function", "name": "mine", "parameters": {"type": "object"}, "strict": false})
        }
        _ => json!({"functionDeclarations": [{"name": "mine", "description": "Mine"}]}),
    };
    for (api, wire, tool) in [
        (Api::Anthropic, "messages", json!({"type": "web_search_20250305", "name": "web_search"})),
        (Api::Responses, "responses", json!({"type": "web_search"})),
        (Api::Gemini, "gemini", json!({"googleSearch": {}})),
    ] {
        let site = site(api);
        let with_tool = json!({"call_model": {
            "wire": wire, "max_tokens": 200, "fields": {"tools": [function(wire), tool]},
        }});
        let run = site.run(&prompts([json!([with_tool, done()])]), &[]);
        assert_eq!(run.status(), "completed", "{wire}: {}", run.out);
        let sent = site.provider.requests()[0].json();
        assert_eq!(sent["tools"], json!([function(wire)]), "{wire}");
        let reserved = site.events("worker_call_reserved");
        let removed = reserved[0]["removed"].to_string();
        assert!(removed.to_lowercase().contains("search"), "{wire}: {removed}");
    }
}

#[test]
fn requests_that_cannot_be_bounded_are_refused_by_name() {
    for (fields, reason) in [
        (json!({"previous_response_id": "resp_1"}), "previous_response_id"),
        (json!({"background": true}), "background"),
        (json!({"service_tier": "priority"}), "service_tier"),
        (
            json!({"tools": [{"type": "web_search"}], "tool_choice": {"type": "web_search"}}),
            "web search",
        ),
    ] {
        let call = json!({"wire": "responses", "fields": fields});
        let (site, answer) = refused_call(Api::Responses, call, "responses");
        assert_eq!(answer["status"], 402, "{answer}");
        let body = answer["body"].as_str().unwrap();
        assert!(body.contains(reason), "{body}");
        assert_eq!(site.events("worker_call_refused")[0]["why"], "request");
    }
}

#[test]
fn requests_that_are_not_json_or_too_large_are_refused() {
    let huge = json!({"wire": "chat", "padding": 33 << 20});
    let (_site, answer) = refused_call(Api::Chat, huge, "chat");
    // The gateway may answer before it has read everything, and then the agent cannot read the answer.
    assert!(answer["status"] == 402 || answer.get("error").is_some(), "{answer}");
    let wrong = json!({"wire": "chat", "fields": {"model": 7}});
    let (_site, answer) = refused_call(Api::Chat, wrong, "chat");
    assert_eq!(answer["status"], 402, "{answer}");
}
