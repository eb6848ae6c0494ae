//! The same task file on every API, and costs compared with what the fake servers reported. `tests/foreign` does the
//! same with third-party servers.

use adjutant_testkit::fake::{Api, DeliveryOutcome, RecordedRequest, Script, Turn, Usage};
use serde_json::{Value, json};

use crate::support::rig::{Output, Rig};
use crate::support::server::Server;

const TASKS: &str = include_str!("../../../../../tests/foreign/tasks.json");

const fn used(input: u64, cache_read: u64, output: u64) -> Usage {
    Usage { input, cache_read, cache_write: 0, output, thinking: 1 }
}

fn read(path: &str) -> Turn {
    Turn::calls("Read", &json!({ "path": path }))
}

fn script() -> Script {
    let both = read("a.rs").and_calls("Read", &json!({ "path": "b.rs" })).thinking("Both.");
    let answer = Turn::says("Auth is fine: ä🦀").fragmented(&[4]);
    let docs = [read("missing.md").using(used(900, 0, 40)), Turn::says("No docs.")];
    Script::new()
        .on("Check auth", [both.using(used(1_000, 0, 20)), answer.using(used(120, 1_000, 30))])
        .on("Check docs", docs)
        .on("Check luck", [Turn::says("I am lucky.").using(used(800, 0, 60))])
        .using(used(50, 900, 50))
}

/// Delegates the task file and returns the output, the costs, and the requests to the server.
fn delegate(api: Api, script: Script) -> (Output, Value, Vec<RecordedRequest>) {
    let rig = Rig::new();
    rig.write("a.rs", "fn a() {}\n");
    rig.write("b.rs", "fn b() {}\n");
    let tasks = rig.write("tasks.json", TASKS);
    let server = Server::start(api, script);
    let tasks = tasks.to_str().unwrap();
    let args = ["delegate", tasks, "--yes", "--json", "--model", "fake/priced"];
    let output = server.call(&rig, &args).run();
    let bill = server.call(&rig, &["cost", "--json"]).run().json();
    (output, bill, server.stop())
}

/// Sums the usage that the server reported in complete answers, counted like the costs: input with
/// what the cache held.
fn reported(requests: &[RecordedRequest]) -> (u64, u64, u64) {
    let whole = requests.iter().filter(|request| request.delivered == Some(DeliveryOutcome::Whole));
    let usage = whole.filter_map(|request| request.usage);
    usage.fold((0, 0, 0), |(input, cached, output), usage| {
        (input + usage.all_input(), cached + usage.cache_read, output + usage.output)
    })
}

fn number(value: &Value) -> u64 {
    value.as_u64().unwrap()
}

#[test]
fn the_same_task_file_runs_on_every_api_and_is_billed_by_reported_usage() {
    for api in Api::ALL {
        let (output, bill, requests) = delegate(api, script());
        assert_eq!(output.code, 0, "{api:?}: {output}");
        let results = output.json();
        let told = results["results"].as_array().unwrap().iter();
        let told: Vec<_> = told.map(|one| json!([one["label"], one["report"]])).collect();
        let expected =
            json!([["auth", "Auth is fine: ä🦀"], ["docs", "No docs."], ["luck", "I am lucky."]]);
        assert_eq!(json!(told), expected, "{api:?}");

        let (input, cached, output) = reported(&requests);
        let total = &bill["total"];
        let usage = json!({
            "input": input, "output": output, "cache_read": cached, "cache_write": 0,
        });
        assert_eq!(total["usage"], usage, "{api:?}");
        assert_eq!((number(&total["calls"]), requests.len()), (5, 5), "{api:?}");
        assert_eq!(number(&total["estimated_tokens"]), 0, "{api:?}");
        let millionths = (input - cached) * 20 + cached * 2 + output * 100;
        let usd = total["cost_usd"].as_f64().unwrap();
        assert!((usd - millionths as f64 / 1e7).abs() < 1e-9, "{api:?}: {total}");
        let own = bill["nodes"].as_array().unwrap().iter().map(|node| &node["own"]["usage"]);
        let sum: u64 = own.map(|usage| number(&usage["input"]) + number(&usage["output"])).sum();
        assert_eq!(sum, input + output, "{api:?}: the nodes add up to the total");
    }
}

#[test]
fn usage_that_no_server_reported_is_billed_as_an_estimate() {
    for api in Api::ALL {
        let mut script = script();
        let luck = &mut script.conversations[2].turns[0];
        luck.first = vec![luck.clone().delivered(|way| way.cut_after = Some(150))];
        let (output, bill, requests) = delegate(api, script);
        assert_eq!((output.code, requests.len()), (0, 6), "{api:?}: {output}");
        let (input, _, output) = reported(&requests);
        let total = &bill["total"];
        let all = number(&total["usage"]["input"]) + number(&total["usage"]["output"]);
        let estimated = number(&total["estimated_tokens"]);
        assert!(estimated > 4_000, "{api:?}: the cut attempt counts at its reservation");
        assert_eq!(all - estimated, input + output, "{api:?}");
    }
}

/// Writes how hard the model should think into the config that a call brings along.
fn with_effort(rig: &Rig, word: &str) {
    let config = rig.home().join(".config/adjutant/config.toml");
    let text = std::fs::read_to_string(&config).unwrap();
    std::fs::write(&config, format!("{text}effort = \"{word}\"\n")).unwrap();
}

#[test]
fn the_reasoning_effort_reaches_every_api() {
    for api in Api::ALL {
        let rig = Rig::new();
        let server = Server::start(api, Script::new().on("Think", [Turn::says("Thought.")]));
        let args = ["delegate", "-t", "a=Think", "--yes", "--model", "fake/priced"];
        let call = server.call(&rig, &args);
        with_effort(&rig, "high");
        let output = call.run();
        assert_eq!(output.code, 0, "{api:?}: {output}");
        let requests = server.stop();
        let body = String::from_utf8_lossy(&requests[0].body).into_owned();
        let said = ["effort\":\"high\"", "thinkingLevel\":\"high\"", "thinkingBudget\":"];
        assert!(said.iter().any(|said| body.contains(said)), "{api:?}: {body}");
    }
}

#[test]
fn the_effort_of_an_agent_goes_before_that_of_its_model_and_a_project_only_lowers_it() {
    for (user, project, expected) in [
        ("scout = \"medium\"", "", "medium"),
        ("scout = \"medium\"", "scout = \"max\"", "medium"),
        ("lead = \"max\"", "scout = \"low\"", "low"),
    ] {
        let rig = Rig::new();
        rig.write(".adjutant/config.toml", format!("[effort]\n{project}\n"));
        let server = Server::start(Api::Anthropic, Script::new().on("Think", [Turn::says("Hm.")]));
        let args = ["delegate", "-t", "a=Think", "--yes", "--model", "fake/priced"];
        let call = server.call(&rig, &args);
        with_effort(&rig, "high");
        let config = rig.home().join(".config/adjutant/config.toml");
        let text = std::fs::read_to_string(&config).unwrap();
        std::fs::write(&config, format!("{text}\n[effort]\n{user}\n")).unwrap();
        let output = call.run();
        assert_eq!(output.code, 0, "{output}");
        let body = server.stop()[0].json();
        assert_eq!(body["output_config"]["effort"], expected, "{user}, {project}");
    }
}

#[test]
fn an_unknown_effort_is_reported_before_anything_starts() {
    let rig = Rig::new();
    let server = Server::start(Api::Chat, Script::new());
    let call = server.call(&rig, &["delegate", "-t", "a=Think", "--yes", "--model", "fake/priced"]);
    with_effort(&rig, "hard");
    let output = call.run();
    assert_eq!(output.code, 2, "{output}");
    assert!(output.stderr.contains("`hard` is not low, medium, high or max"), "{output}");
    assert!(server.stop().is_empty());
}
