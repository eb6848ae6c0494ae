//! Large reads do not delay other requests, and nothing is read more often than necessary.

use std::fs;

use serde_json::{Value, json};

use crate::support::mcp_client::Client;
use crate::support::rig::Rig;

fn text(data: &Value, key: &str) -> String {
    data[key].as_str().unwrap_or_else(|| panic!("no {key} in {data}")).to_owned()
}

fn tasks() -> Value {
    (0..8).map(|n| json!({ "label": format!("t{n}"), "prompt": "Look" })).collect()
}

/// A rig with a run of eight subagents that write long reports, a client, and the run.
fn long_run(words: usize) -> (Rig, Client, String) {
    let rig = Rig::new();
    let turn = json!({ "text": "all there is to say ".repeat(words) });
    let script = json!({ "price": { "input": 1.0, "output": 1.0 }, "turn": [turn] });
    fs::write(rig.path().join("script.json"), script.to_string()).unwrap();
    let args = ["--approve-below", "10000", "--set", "result_tokens=null"];
    let mut client = Client::start_on(&rig, "script:../script.json", &args, &[]);
    client.initialize("tester", "2025-11-25");
    let data = client.data("Delegate", json!({ "tasks": tasks() }));
    assert_eq!(data["state"], "completed", "{}", data["next"]);
    let run = text(&data, "run");
    (rig, client, run)
}

/// Sends slow requests and a ping in one write; returns the id that is answered
/// first.
fn first_answer(client: &mut Client, asked: &[(&str, Value)]) -> Value {
    let mut lines = String::new();
    for (nth, (method, params)) in asked.iter().enumerate() {
        let id = format!("long {nth}");
        let line = json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params });
        lines += &format!("{line}\n");
    }
    lines += &format!("{}\n", json!({ "jsonrpc": "2.0", "id": "ping", "method": "ping" }));
    client.write(lines.as_bytes());
    let answers: Vec<_> =
        (0..=asked.len()).map(|_| client.message().unwrap()["id"].clone()).collect();
    answers[0].clone()
}

#[test]
fn slow_requests_do_not_delay_other_requests() {
    let (rig, mut client, run) = long_run(40_000);
    let status = client.data("delegate_status", json!({ "run": run }));
    let session = text(&status["runs"][0]["delegations"][7], "session_id");
    let tool = |name: &str, arguments: &Value| json!({ "name": name, "arguments": arguments });
    for n in 0..300 {
        rig.write(&format!(".claude/commands/c{n}.md"), "a word ".repeat(1000));
    }
    let uri = |rest: &str| json!({ "uri": format!("adjutant://run/{run}{rest}") });
    for (method, params) in [
        ("resources/list", json!({})),
        ("resources/read", uri("")),
        ("resources/read", uri("/result")),
        ("resources/read", uri("/transcript")),
        ("tools/call", tool("delegate_status", &json!({}))),
        ("tools/call", tool("delegate_status", &json!({ "run": run }))),
        ("tools/call", tool("delegate_result", &json!({ "run": run }))),
        ("tools/call", tool("delegate_result", &json!({ "run": session }))),
        ("tools/call", tool("delegate_wait", &json!({ "run": run }))),
        ("tools/call", tool("Delegate", &json!({ "tasks": tasks() }))),
        ("tools/call", tool("validate_return", &json!({ "return": "{ \"a\": [".repeat(200_000) }))),
        ("prompts/list", json!({})),
        ("prompts/get", json!({ "name": "plan" })),
    ] {
        let first = first_answer(&mut client, &[(method, params.clone())]);
        assert_eq!(first, "ping", "{method} {params}");
    }
}

/// The journal is read once for the run and once for its content, however many subagents there are.
#[test]
fn a_transcript_of_many_subagents_reads_the_journal_at_most_twice() {
    let (rig, mut client, run) = long_run(10_000);
    let journal = rig.run_folder(&run).join("journal.jsonl").metadata().unwrap().len();
    for rest in ["", "?offset=500000"] {
        let uri = format!("adjutant://run/{run}/transcript{rest}");
        let before = client.read_bytes();
        let page = client.request("resources/read", json!({ "uri": uri }));
        let read = client.read_bytes() - before;
        assert!(page["result"].to_string().contains("all there is to say"), "{page}");
        assert!(read < 3 * journal, "{read} bytes were read of a journal of {journal}");
    }
}
