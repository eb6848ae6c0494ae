//! Approval through a client that can ask the user: yes, every form of no, and everything that may
//! happen in between.

use std::fs;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use crate::support::mcp_client::{Client, SCRIPT, task};
use crate::support::rig::Rig;

const QUESTION: &str = "elicitation/create";

fn rig() -> Rig {
    Rig::with_script(SCRIPT)
}

/// A client that can show a form to the user.
fn asking(rig: &Rig, args: &[&str], version: &str) -> Client {
    let mut client = Client::start(rig, args, &[]);
    client.initialize_with("tester", version, json!({ "elicitation": {} }));
    client
}

fn accept(answer: &str) -> Value {
    json!({ "action": "accept", "content": { "answer": answer } })
}

fn kinds(rig: &Rig, run: &str) -> Vec<String> {
    let events = rig.events(run);
    events.iter().map(|event| event["type"].as_str().unwrap().to_owned()).collect()
}

fn has_begun(rig: &Rig, run: &str) -> bool {
    kinds(rig, run).iter().any(|kind| kind == "started")
}

/// Clients drop progress values that do not grow.
#[test]
fn progress_values_keep_growing_across_a_question() {
    let rig = rig();
    let mut client = asking(&rig, &[], "2025-11-25");
    let call = client.begin("Delegate", task("slow"));
    let question = client.asked(QUESTION);
    let before = client.progress(call)["progress"].as_f64();
    client.reply(&question, accept("start"));
    let after = client.progress(call)["progress"].as_f64();
    assert!(after > before, "{before:?} {after:?}");
    let run = rig.only_run();
    assert_eq!(rig.run(["cancel", &run]).code, 0);
}

#[test]
fn a_person_is_asked_through_the_client_and_yes_starts_the_run() {
    for version in ["2025-06-18", "2025-11-25"] {
        let rig = rig();
        let mut client = asking(&rig, &[], version);
        let call = client.begin("Delegate", task("a"));
        let question = client.asked(QUESTION);
        let run = rig.only_run();
        assert!(!has_begun(&rig, &run), "nothing is spent before the answer");

        let params = &question["params"];
        let message = params["message"].as_str().unwrap();
        for part in
            ["Spawn 1 subagent", "risk: medium", "[a]", "Look around", "Tools", "Worst case"]
        {
            assert!(message.contains(part), "no {part} in {message}");
        }
        assert!(message.contains("$5.00"), "{message}");
        assert!(message.contains(&rig.work().display().to_string()), "{message}");
        let schema = &params["requestedSchema"];
        assert_eq!(schema["required"], json!(["answer"]), "{schema}");
        assert_eq!(schema["properties"]["answer"]["enum"], json!(["start", "refuse"]));
        assert_eq!(schema["properties"].as_object().unwrap().len(), 1);

        client.reply(&question, accept("start"));
        let result = &client.answer(call)["result"];
        assert_eq!(result["structuredContent"]["state"], "completed", "{result}");
        assert_eq!(result["structuredContent"]["approval"], Value::Null);
        assert_eq!(kinds(&rig, &run).iter().filter(|kind| *kind == "approved").count(), 1);
        rig.assert_unharmed();
    }
}

#[test]
fn anything_but_yes_is_a_no_and_a_repeated_call_asks_again() {
    let rig = rig();
    let mut client = asking(&rig, &[], "2025-11-25");
    for (nth, (answer, said)) in [
        (json!({ "action": "decline" }), "the person said no"),
        (accept("refuse"), "the person said no"),
        (accept("Start"), "the person said no"),
        (json!({ "action": "accept" }), "the person said no"),
        (json!({ "action": "accept", "content": { "answer": true } }), "the person said no"),
        (json!({ "action": "decline", "content": { "answer": "start" } }), "the person said no"),
    ]
    .into_iter()
    .enumerate()
    {
        let call = client.begin("Delegate", task("a"));
        let question = client.asked(QUESTION);
        client.reply(&question, answer.clone());
        let result = &client.answer(call)["result"];
        assert_eq!(result["isError"], true, "{answer}: {result}");
        assert_eq!(result["structuredContent"]["state"], "refused", "{result}");
        let text = result["content"][0]["text"].as_str().unwrap();
        assert!(text.contains("Not approved") && text.contains(said), "{answer}: {text}");
        let run = result["structuredContent"]["run"].as_str().unwrap();
        assert!(!has_begun(&rig, run), "{answer}");
        assert_eq!(rig.runs().len(), nth + 1, "each question is another run");
    }
}

/// Headless Claude Code says `cancel` after 12 ms, headless Codex `decline` after 1 ms; others accept everything.
#[test]
fn an_unanswered_question_stays_in_the_inbox_and_the_client_is_informed() {
    let (patient, strict) = ("answer_min_ms=none", "answer_min_ms=600000");
    for (setting, answer) in [
        (patient, json!({ "action": "cancel" })),
        (strict, json!({ "action": "cancel" })),
        (strict, json!({ "action": "decline" })),
        (strict, accept("start")),
        (strict, accept("refuse")),
    ] {
        let rig = rig();
        let mut client = asking(&rig, &["--set", setting], "2025-11-25");
        let call = client.begin("Delegate", task("a"));
        let question = client.asked(QUESTION);
        client.reply(&question, answer.clone());
        let result = client.answer(call)["result"].clone();
        let data = &result["structuredContent"];
        assert_eq!(result["isError"], false, "{answer}: {result}");
        assert_eq!(data["state"], "awaiting_approval", "{answer}: {result}");
        let text = result["content"][0]["text"].as_str().unwrap();
        let id = data["approval"]["id"].as_str().unwrap();
        for part in ["not a person's answer", "adjutant approvals", &format!("approve {id} CODE")] {
            assert!(text.contains(part), "{answer}: no {part} in {text}");
        }
        let listed = rig.run(["approvals", "--json"]).json();
        assert_eq!(listed["approvals"][0]["id"], id, "{listed}");
        let run = rig.only_run();
        assert!(!has_begun(&rig, &run) && !kinds(&rig, &run).contains(&"denied".to_owned()));
        // An equal call does not ask the client again; it gets the same answer.
        let again = client.data("Delegate", task("a"));
        assert_eq!((&again["run"], &again["repeated"]), (&json!(run), &json!(true)), "{again}");
        assert_eq!(again["state"], "awaiting_approval", "{again}");
        assert_eq!(rig.run(["cancel", &run]).code, 0);
    }
}

/// The error names the run that did not receive the answer, not the client.
#[test]
fn an_answer_that_does_not_reach_the_run_is_reported_with_the_reason() {
    let rig = rig();
    let mut client = asking(&rig, &["--set", "answer_min_ms=none"], "2025-11-25");
    let call = client.begin("Delegate", task("a"));
    let question = client.asked(QUESTION);
    let run = rig.only_run();
    let pid = holder_of(&rig, &run);
    kill_process(pid, Signal::STOP).unwrap();
    client.reply(&question, accept("start"));
    let result = client.answer(call)["result"].clone();
    kill_process(pid, Signal::CONT).unwrap();
    assert_eq!(result["structuredContent"]["state"], "awaiting_approval", "{result}");
    let text = result["content"][0]["text"].as_str().unwrap();
    let reason = format!("the run's process {} does not answer", pid.as_raw_nonzero());
    for part in ["The person answered", &reason, "adjutant approvals"] {
        assert!(text.contains(part), "no {part} in {text}");
    }
    assert!(!text.contains("not a person's answer"), "{text}");
}

/// Returns the process that holds the lock of a run.
fn holder_of(rig: &Rig, run: &str) -> Pid {
    let lock = fs::read(rig.state().join("runs").join(run).join("lock")).unwrap();
    let lock: Value = serde_json::from_slice(&lock).unwrap();
    Pid::from_raw(i32::try_from(lock["pid"].as_i64().unwrap()).unwrap()).unwrap()
}

#[test]
fn an_approval_covers_one_call_and_an_altered_call_asks_again() {
    let rig = rig();
    let mut client = asking(&rig, &[], "2025-11-25");
    let call = client.begin("Delegate", task("a"));
    let question = client.asked(QUESTION);
    client.reply(&question, accept("start"));
    let first = client.answer(call)["result"]["structuredContent"].clone();
    // The same answer a second time belongs to no question.
    client.reply(&question, accept("start"));
    client.ping();

    let again = client.data("Delegate", task("a"));
    assert_eq!((&again["run"], &again["repeated"]), (&first["run"], &json!(true)));
    let mut altered = task("a");
    altered["tasks"][0]["prompt"] = json!("Look around and then some");
    let call = client.begin("Delegate", altered);
    let question = client.asked(QUESTION);
    assert!(question["params"]["message"].as_str().unwrap().contains("and then some"));
    client.reply(&question, json!({ "action": "decline" }));
    assert_eq!(client.answer(call)["result"]["isError"], true);
}

/// A goal is untrusted text: it must not forge lines of the question.
#[test]
fn a_goal_cannot_forge_the_question() {
    let rig = rig();
    let mut client = asking(&rig, &[], "2025-11-25");
    let long = format!("Begin {} the end", "x".repeat(5000));
    let evil = "a\u{1b}[2J\u{202e}b\nWorst case  0 tokens, $0.00";
    let tasks = json!({ "tasks": [
        { "label": "one", "prompt": evil }, { "label": "two", "prompt": long },
    ] });
    let call = client.begin("Delegate", tasks);
    let question = client.asked(QUESTION);
    let message = question["params"]["message"].as_str().unwrap();
    assert!(!message.contains('\u{1b}') && !message.contains('\u{202e}'), "{message}");
    let worst: Vec<&str> = message.lines().filter(|it| it.starts_with("Worst case")).collect();
    assert!(matches!(worst.as_slice(), [only] if only.contains("$5.00")), "{message}");
    assert!(message.contains("Begin") && message.contains("the end"), "{message}");
    assert!(message.len() < 3000, "{}", message.len());
    client.reply(&question, json!({ "action": "decline" }));
    client.answer(call);
}

#[test]
fn a_question_that_the_client_cannot_ask_stays_in_the_inbox() {
    let rig = rig();
    let mut client = asking(&rig, &[], "2025-11-25");
    let call = client.begin("Delegate", task("a"));
    let question = client.asked(QUESTION);
    let error = json!({ "code": -32601, "message": "no such method" });
    client.send(&json!({ "jsonrpc": "2.0", "id": question["id"], "error": error }));
    let data = client.answer(call)["result"]["structuredContent"].clone();
    assert_eq!((&data["state"], &data["done"]), (&json!("awaiting_approval"), &json!(false)));
    assert!(data["approval"]["id"].is_string(), "{data}");
    let listed = rig.run(["approvals", "--json"]).json();
    assert_eq!(listed["approvals"][0]["id"], data["approval"]["id"], "{listed}");

    assert_eq!(rig.run(["cancel", data["run"].as_str().unwrap()]).code, 0);
}

/// With `--approval deny` the user is not asked either, whatever the client supports.
#[test]
fn with_approval_deny_a_client_that_can_ask_is_refused_too() {
    let rig = rig();
    for version in ["2025-06-18", "2025-11-25"] {
        let mut client = asking(&rig, &["--approval", "deny"], version);
        let said = client.failure("Delegate", task("a"));
        assert!(said.contains("Not approved") && said.contains("lets nothing start"), "{said}");
    }
    assert!(rig.runs().is_empty(), "{:?}", rig.runs());
}

/// `--ask-client false` disables asking, whatever the client supports.
#[test]
fn a_client_is_not_asked_if_asking_is_disabled_or_unsupported() {
    let rig = rig();
    for url_only in [false, true] {
        let args: &[&str] = if url_only { &[] } else { &["--ask-client", "false"] };
        let can = if url_only { json!({ "url": {} }) } else { json!({ "form": {} }) };
        let mut client = Client::start(&rig, args, &[]);
        client.initialize_with("tester", "2025-11-25", json!({ "elicitation": can }));
        let data = client.data("Delegate", task(if url_only { "a" } else { "b" }));
        assert_eq!(data["state"], "awaiting_approval", "{data}");
        assert_eq!(rig.run(["cancel", data["run"].as_str().unwrap()]).code, 0);
    }
}

#[test]
fn an_unanswered_question_returns_a_handle_and_waiting_asks_again() {
    let rig = rig();
    let mut client = asking(&rig, &["--detach-after", "1"], "2025-11-25");
    let call = client.begin("Delegate", task("a"));
    let question = client.asked(QUESTION);
    let data = client.answer(call)["result"]["structuredContent"].clone();
    assert_eq!(data["state"], "awaiting_approval", "{data}");
    let taken_back = client.asked("notifications/cancelled");
    assert_eq!(taken_back["params"]["requestId"], question["id"]);
    // An answer to a withdrawn question approves nothing.
    client.reply(&question, accept("start"));
    client.ping();
    let run = data["run"].as_str().unwrap();
    assert!(!has_begun(&rig, run));

    let call = client.begin("delegate_wait", json!({ "run": run, "timeout_s": 60 }));
    let again = client.asked(QUESTION);
    client.reply(&again, accept("start"));
    let data = client.answer(call)["result"]["structuredContent"].clone();
    assert_eq!(data["state"], "completed", "{data}");
}

/// A question goes to the client of the call: other clients cannot answer it.
#[test]
fn a_question_is_asked_only_through_the_client_of_its_call() {
    let rig = rig();
    let mut first = Client::start(&rig, &[], &[]);
    first.initialize_with("first", "2025-11-25", json!({}));
    let begun = first.data("delegate_start", task("a"));
    let run = begun["run"].as_str().unwrap().to_owned();
    let mut other = asking(&rig, &["--detach-after", "1"], "2025-11-25");
    let told = other.data("delegate_wait", json!({ "run": run }));
    assert_eq!(told["state"], "awaiting_approval", "{told}");
    assert!(!has_begun(&rig, &run));
    // An equal call of this client asks its own question.
    let call = other.begin("Delegate", task("a"));
    let question = other.asked(QUESTION);
    other.reply(&question, accept("start"));
    assert_eq!(other.answer(call)["result"]["structuredContent"]["state"], "completed");
    assert!(!has_begun(&rig, &run), "the other waits on");
}

#[test]
fn concurrent_equal_calls_ask_one_question() {
    let rig = rig();
    let mut client = asking(&rig, &[], "2025-11-25");
    let call = client.begin("delegate_start", task("a"));
    let question = client.asked(QUESTION);
    let other = client.data("delegate_start", task("a"));
    assert_eq!((&other["state"], &other["repeated"]), (&json!("awaiting_approval"), &json!(true)));
    client.reply(&question, accept("start"));
    assert_eq!(client.answer(call)["result"]["isError"], false);
    let done = client.data("delegate_wait", json!({ "run": other["run"] }));
    assert_eq!(done["state"], "completed");
    assert_eq!(rig.runs().len(), 1);
}

#[test]
fn cancelling_a_call_during_its_question_ends_its_run() {
    let rig = rig();
    let mut client = asking(&rig, &[], "2025-11-25");
    let call = client.begin("Delegate", task("a"));
    let question = client.asked(QUESTION);
    client.send(&json!({
        "jsonrpc": "2.0", "method": "notifications/cancelled", "params": { "requestId": call },
    }));
    let taken_back = client.asked("notifications/cancelled");
    assert_eq!(taken_back["params"]["requestId"], question["id"]);
    let run = rig.only_run();
    assert_eq!(rig.run(["wait", &run, "--timeout", "10"]).code, 130);
    assert!(!has_begun(&rig, &run));
}

/// Whatever a client sends, only the answer to the question starts anything.
#[test]
fn no_tool_can_approve_or_widen_anything() {
    let rig = rig();
    let mut client = Client::start(&rig, &[], &[]);
    client.initialize("tester", "2025-11-25");
    let data = client.data("Delegate", task("a"));
    let (run, id) = (data["run"].clone(), data["approval"]["id"].clone());
    let tools = client.request("tools/list", json!({}))["result"]["tools"].clone();
    let wishes = [
        ("approve", json!(true)),
        ("approval", json!("auto-below 100")),
        ("yes", json!(true)),
        ("code", json!("AAAAAA")),
        ("hash", json!("00")),
        ("root", json!("/")),
        ("base_url", json!("http://127.0.0.1:1")),
        ("key", json!("secret")),
        ("model", json!("acme/large")),
        ("set", json!(["approval=none"])),
        ("budget_usd", json!(100)),
        ("in_place", json!(true)),
        ("allow_network", json!(true)),
    ];
    for tool in tools.as_array().unwrap() {
        let name = tool["name"].as_str().unwrap();
        for word in ["approve", "deny", "answer", "config", "set_"] {
            assert!(!name.to_lowercase().contains(word), "{name}");
        }
        for (key, value) in &wishes {
            let mut arguments = match name {
                "Delegate" | "delegate_start" => task("b"),
                "delegate_command" => json!({ "command": "/plan 1" }),
                "delegate_story" => json!({ "prd": "prd.json" }),
                "validate_return" => json!({ "return": {} }),
                _ => json!({ "run": run }),
            };
            arguments[key] = value.clone();
            let said = client.failure(name, arguments);
            assert!(said.contains(key), "{name} {key}: {said}");
        }
    }
    for method in ["adjutant/approve", "approve", "elicitation/create"] {
        let answer = client.request(method, json!({ "id": id, "answer": "start" }));
        assert!(answer["error"].is_object(), "{answer}");
    }
    // An answer without a question.
    client.send(&json!({ "jsonrpc": "2.0", "id": 0, "result": accept("start") }));
    client.ping();
    let run = run.as_str().unwrap();
    assert_eq!(rig.runs(), [run]);
    assert!(!has_begun(&rig, run));
    assert_eq!(rig.run(["cancel", run]).code, 0);
}
