//! Approval in the era without sessions: a call is answered with the question, and made again with
//! the answer of the user.

use std::fs;

use serde_json::{Value, json};

use crate::support::mcp_client::{Client, SCRIPT, task};
use crate::support::rig::Rig;

const NEW: &str = "2026-07-28";

fn rig() -> Rig {
    Rig::with_script(SCRIPT)
}

/// Calls a tool as a client that can ask the user; `more` is added to the parameters.
pub(crate) fn call(client: &mut Client, tool: &str, arguments: &Value, more: &Value) -> Value {
    call_as(client, "new", tool, arguments, more)
}

fn call_as(client: &mut Client, name: &str, tool: &str, arguments: &Value, more: &Value) -> Value {
    let mut params = json!({
        "name": tool, "arguments": arguments, "_meta": {
            "io.modelcontextprotocol/protocolVersion": NEW,
            "io.modelcontextprotocol/clientInfo": { "name": name, "version": "1" },
            "io.modelcontextprotocol/clientCapabilities": { "elicitation": {} },
        },
    });
    for (key, value) in more.as_object().unwrap() {
        params[key] = value.clone();
    }
    let answer = client.request("tools/call", params);
    assert!(answer["error"].is_null(), "{answer}");
    answer["result"].clone()
}

/// The question in place of an answer; returns the sealed state.
pub(crate) fn state(result: &Value) -> String {
    assert_eq!(result["resultType"], "input_required", "{result}");
    result["requestState"].as_str().unwrap().to_owned()
}

/// The parameters that a repeated call adds to carry the answer.
pub(crate) fn says(state: &str, answer: &Value) -> Value {
    json!({ "requestState": state, "inputResponses": { "approval": answer } })
}

fn yes() -> Value {
    json!({ "action": "accept", "content": { "answer": "start" } })
}

fn has_begun(rig: &Rig) -> bool {
    let runs = rig.runs();
    runs.iter().any(|run| rig.events(run).iter().any(|event| event["type"] == "started"))
}

#[test]
fn a_call_is_answered_with_the_question_and_starts_with_its_answer() {
    let rig = rig();
    for (tool, label) in [("Delegate", "a"), ("delegate_start", "b")] {
        let mut client = Client::start(&rig, &[], &[]);
        let asked = call(&mut client, tool, &task(label), &json!({}));
        let state = state(&asked);
        let question = &asked["inputRequests"]["approval"];
        assert_eq!(question["method"], "elicitation/create", "{asked}");
        let message = question["params"]["message"].as_str().unwrap();
        assert!(message.contains("Worst case") && message.contains("Look around"), "{message}");
        assert!(tool != "Delegate" || !has_begun(&rig));

        // Another server of the same user accepts the answer: the first may have ended by then.
        client.kill();
        let mut client = Client::start(&rig, &[], &[]);
        let result = call(&mut client, tool, &task(label), &says(&state, &yes()));
        let run = result["structuredContent"]["run"].clone();
        assert_eq!(result["structuredContent"]["repeated"], false, "{result}");
        let done = call(&mut client, "delegate_wait", &json!({ "run": run }), &json!({}));
        assert_eq!(done["structuredContent"]["state"], "completed", "{done}");

        // The same state again approves nothing more: there is nothing left to approve.
        let again = call(&mut client, tool, &task(label), &says(&state, &yes()));
        assert_eq!(again["structuredContent"]["run"], run, "{again}");
        let approved = rig.events(run.as_str().unwrap());
        assert_eq!(approved.iter().filter(|event| event["type"] == "approved").count(), 1);
    }
}

#[test]
fn a_declined_question_refuses_the_call() {
    let rig = rig();
    let mut client = Client::start(&rig, &[], &[]);
    for (label, answer) in [
        ("a", json!({ "action": "decline" })),
        ("c", json!({ "action": "accept", "content": { "answer": "refuse" } })),
    ] {
        let state = state(&call(&mut client, "Delegate", &task(label), &json!({})));
        let result = call(&mut client, "Delegate", &task(label), &says(&state, &answer));
        assert_eq!(result["isError"], true, "{result}");
        assert_eq!(result["structuredContent"]["state"], "refused", "{result}");
        // An answer to a closed question opens no other.
        let stale = call(&mut client, "Delegate", &task(label), &says(&state, &yes()));
        assert_eq!(stale["resultType"], "input_required", "{stale}");
    }
    assert!(!has_begun(&rig));
    for run in rig.runs() {
        let _ = rig.run(["cancel", &run]);
    }
}

/// The time of the question travels in the seal, so that another server judges it too.
#[test]
fn a_question_without_an_answer_stays_open() {
    for (setting, answer) in [
        ("answer_min_ms=none", json!({ "action": "cancel" })),
        ("answer_min_ms=600000", json!({ "action": "decline" })),
        ("answer_min_ms=600000", yes()),
    ] {
        let rig = rig();
        let mut client = Client::start(&rig, &["--set", setting], &[]);
        let state = state(&call(&mut client, "Delegate", &task("a"), &json!({})));
        client.kill();
        let mut client = Client::start(&rig, &["--set", setting], &[]);
        let result = call(&mut client, "Delegate", &task("a"), &says(&state, &answer));
        let data = &result["structuredContent"];
        assert_eq!(data["state"], "awaiting_approval", "{answer}: {result}");
        assert_eq!(data["repeated"], false, "{answer}: {result}");
        assert!(data["next"].as_str().unwrap().contains("not a person's answer"), "{result}");
        assert!(!has_begun(&rig));
        assert_eq!(rig.run(["cancel", &rig.only_run()]).code, 0);
    }
}

/// A seal is bound to the exact call and cannot be made up.
#[test]
fn a_question_sealed_for_one_call_cannot_be_used_for_another() {
    let rig = rig();
    let mut client = Client::start(&rig, &[], &[]);
    let state = state(&call(&mut client, "Delegate", &task("a"), &json!({})));
    let runs = rig.runs();
    let mut altered = task("a");
    altered["tasks"][0]["prompt"] = json!("Look around and then some");
    let mut forged = state.clone();
    let last = forged.pop().unwrap();
    forged.push(if last == 'A' { 'B' } else { 'A' });
    for (name, tool, arguments, state) in [
        ("new", "Delegate", &altered, state.as_str()),
        ("new", "delegate_start", &task("a"), state.as_str()),
        ("other", "Delegate", &task("a"), state.as_str()),
        ("new", "Delegate", &task("a"), forged.as_str()),
        ("new", "Delegate", &task("a"), ""),
        ("new", "Delegate", &task("a"), "rs1.e30.AAAA"),
    ] {
        let result = call_as(&mut client, name, tool, arguments, &says(state, &yes()));
        assert_eq!(result["isError"], true, "{name} {tool}: {result}");
        assert!(
            result["content"][0]["text"].as_str().unwrap().contains("requestState"),
            "{result}"
        );
    }
    assert_eq!(rig.runs(), runs, "nothing was begun");
    assert!(!has_begun(&rig));
    assert_eq!(rig.run(["cancel", &runs[0]]).code, 0);
}

/// A retry without an answer gets the same question again, as the protocol requires.
#[test]
fn a_retry_without_an_answer_is_asked_again() {
    let rig = rig();
    let mut client = Client::start(&rig, &[], &[]);
    let asked = call(&mut client, "Delegate", &task("a"), &json!({}));
    let first = state(&asked);
    for silent in [
        json!({ "requestState": first }),
        json!({ "requestState": first, "inputResponses": {} }),
        json!({ "requestState": first, "inputResponses": { "other": yes() } }),
    ] {
        let again = call(&mut client, "Delegate", &task("a"), &silent);
        state(&again);
        assert_eq!(again["inputRequests"], asked["inputRequests"], "{again}");
    }
    assert!(!has_begun(&rig));
    let run = rig.only_run();
    let result = call(&mut client, "Delegate", &task("a"), &says(&first, &yes()));
    assert_eq!(result["structuredContent"]["state"], "completed", "{result}");
    assert_eq!(rig.only_run(), run);
}

/// The seal may outlive the question by a moment; the call then asks anew.
#[test]
fn a_sealed_question_expires() {
    let rig = rig();
    let mut client = Client::start(&rig, &["--set", "approval_s=5"], &[]);
    let state = state(&call(&mut client, "Delegate", &task("a"), &json!({})));
    let run = rig.only_run();
    assert_eq!(rig.run(["wait", &run, "--timeout", "50"]).code, 4);
    let result = call(&mut client, "Delegate", &task("a"), &says(&state, &yes()));
    let is_refused = result["isError"] == true;
    assert!(is_refused || result["resultType"] == "input_required", "{result}");
    assert!(!has_begun(&rig));
    for run in rig.runs() {
        let _ = rig.run(["cancel", &run]);
    }
}

#[test]
fn a_server_starts_despite_a_partly_written_key_file() {
    let rig = rig();
    let folder = rig.state().join("approvals");
    for (label, left) in [("a", &b""[..]), ("b", b"half of it")] {
        fs::create_dir_all(&folder).unwrap();
        fs::write(folder.join("seal"), left).unwrap();
        let mut client = Client::start(&rig, &[], &[]);
        let state = state(&call(&mut client, "Delegate", &task(label), &json!({})));
        client.kill();
        // The next server has the key that this one made.
        let mut client = Client::start(&rig, &[], &[]);
        let result = call(&mut client, "Delegate", &task(label), &says(&state, &yes()));
        assert_eq!(result["structuredContent"]["state"], "completed", "{result}");
    }
}
