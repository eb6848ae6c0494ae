//! The inbox: calls that wait for a person, and their answer in a terminal.

use std::fs;

use adjutant_engine::RegistryHandle;
use serde_json::{Value, json};

use crate::support::mcp_client::{Client, SCRIPT, task};
use crate::support::rig::Rig;
use crate::support::schema::assert_fits;
use crate::support::terminal::Terminal;

pub(crate) fn rig() -> Rig {
    Rig::with_script(SCRIPT)
}

pub(crate) fn plain(rig: &Rig, args: &[&str]) -> Client {
    let mut client = Client::start(rig, args, &[]);
    client.initialize("tester", "2025-11-25");
    client
}

/// Types a command in a terminal; returns what it says and its exit code.
pub(crate) fn typed(rig: &Rig, args: &[&str]) -> (String, u32) {
    let mut terminal = Terminal::start(rig, 100, &[], args);
    let code = terminal.finish();
    (terminal.screen(), code)
}

/// The code of the only question, as a person reads it.
pub(crate) fn code(rig: &Rig, id: &str) -> String {
    let (screen, _) = typed(rig, &["approvals"]);
    let start = format!("approve {id} ");
    let rest = screen.split_once(&start).unwrap_or_else(|| panic!("{screen}")).1;
    rest.split_whitespace().next().unwrap().to_owned()
}

/// The name of the question that a call waits for.
pub(crate) fn id(data: &Value) -> String {
    assert_eq!(data["state"], "awaiting_approval", "{data}");
    data["approval"]["id"].as_str().unwrap().to_owned()
}

fn has_begun(rig: &Rig, run: &Value) -> bool {
    let events = rig.events(run.as_str().unwrap());
    events.iter().any(|event| event["type"] == "started")
}

#[test]
fn a_call_waits_for_a_person_who_reads_the_question_and_types_its_code() {
    let rig = rig();
    let mut client = plain(&rig, &[]);
    let result = client.call("Delegate", task("a"));
    let data = result["structuredContent"].clone();
    let id = id(&data);
    assert_eq!((&result["isError"], &data["done"]), (&json!(false), &json!(false)), "{result}");
    let said = result["content"][0]["text"].as_str().unwrap();
    assert!(said.contains(&format!("adjutant approve {id} CODE")), "{said}");
    assert!(data["approval"]["expires_s"].as_u64().unwrap() > 800, "{data}");

    let listed = rig.run(["approvals", "--json"]);
    assert_fits("approvals", &listed.json());
    let one = &listed.json()["approvals"][0];
    assert_eq!(
        (&one["id"], &one["run"], &one["client"]),
        (&json!(id), &data["run"], &json!("tester"))
    );
    assert_eq!(one["root"], json!(rig.work()));
    assert_eq!(one["question"]["worst_case"]["cost_usd"], 5.0);

    // The code is for eyes: no pipe and no answer of the server holds it.
    let code = code(&rig, &id);
    let piped = rig.run(["approvals"]);
    assert!(piped.stdout.contains("[a]") && piped.stdout.contains("Worst case"), "{piped}");
    let status = client.call("delegate_status", json!({ "run": data["run"] }));
    let log = rig.run(["log", data["run"].as_str().unwrap(), "--json"]);
    for text in
        [&piped.stdout, &listed.stdout, &result.to_string(), &status.to_string(), &log.stdout]
    {
        assert!(!text.contains(&code), "{code} in {text}");
    }

    let blind = rig.run(["approve", &id, &code]);
    assert_eq!(blind.code, 4, "no terminal: {blind}");
    let (said, exit) = typed(&rig, &["approve", &id, "WRONG2"]);
    assert_eq!(exit, 4, "{said}");
    assert!(!has_begun(&rig, &data["run"]));

    let call = client.begin("delegate_wait", json!({ "run": data["run"] }));
    let (said, exit) = typed(&rig, &["approve", &id, &code]);
    assert_eq!(exit, 0, "{said}");
    let done = client.answer(call)["result"]["structuredContent"].clone();
    assert_eq!((&done["state"], &done["done"]), (&json!("completed"), &json!(true)), "{done}");
    assert_eq!(done["results"]["results"][0]["report"], "quick answer");

    let (said, exit) = typed(&rig, &["approve", &id, &code]);
    assert_eq!(exit, 4, "an answer counts once: {said}");
    assert_eq!(rig.run(["approvals", "--json"]).json()["approvals"], json!([]));
    assert_eq!(RegistryHandle::at(&rig.state()).open_questions().unwrap(), []);
    rig.assert_unharmed();
}

#[test]
fn a_denied_call_starts_nothing() {
    let rig = rig();
    let mut client = plain(&rig, &[]);
    let data = client.data("delegate_start", task("a"));
    let id = id(&data);
    let (said, exit) = typed(&rig, &["approve", "--deny", &id, "--json"]);
    assert_eq!(exit, 0, "{said}");
    assert_fits("approve", &serde_json::from_str(&said).unwrap());
    let result = client.call("delegate_wait", json!({ "run": data["run"] }));
    assert_eq!(result["structuredContent"]["state"], "refused", "{result}");
    assert!(
        result["content"][0]["text"].as_str().unwrap().contains("a person said no"),
        "{result}"
    );
    let said = result.to_string();
    assert!(said.contains("Do not ask again unless the person wants it."), "{said}");
    assert!(!said.contains("--yes"), "{said}");
    assert!(!has_begun(&rig, &data["run"]));
    // A repeated call is a new question.
    let again = client.data("delegate_start", task("a"));
    assert_ne!(again["run"], data["run"]);
    assert_eq!(rig.run(["cancel", again["run"].as_str().unwrap()]).code, 0);
    let said = client.call("delegate_wait", json!({ "run": again["run"] })).to_string();
    assert!(said.contains("Nothing of it began") && !said.contains("adjutant resume"), "{said}");
    assert_eq!(rig.run(["approvals"]).stdout, "Nothing waits for your approval.\n");
}

#[test]
fn a_question_expires_and_an_answer_after_that_starts_nothing() {
    let rig = rig();
    let mut client = plain(&rig, &["--set", "approval_s=2"]);
    let data = client.data("Delegate", task("a"));
    let (id, code) = (id(&data), code(&rig, &id(&data)));
    let result = client.call("delegate_wait", json!({ "run": data["run"] }));
    let text = result["content"][0]["text"].as_str().unwrap();
    assert_eq!(result["structuredContent"]["state"], "refused", "{result}");
    assert!(text.contains("nobody answered within 2 s"), "{text}");
    let (said, exit) = typed(&rig, &["approve", &id, &code]);
    assert_eq!(exit, 4, "{said}");
    assert!(!has_begun(&rig, &data["run"]));
}

#[test]
fn an_answer_to_one_call_does_not_answer_another() {
    let rig = rig();
    let mut client = plain(&rig, &[]);
    let one = client.data("Delegate", task("a"));
    let mut altered = task("a");
    altered["tasks"][0]["prompt"] = json!("Look around the other way");
    let other = client.data("Delegate", altered);
    let (first, second) = (id(&one), id(&other));
    assert_ne!(first, second);
    let code = code(&rig, &first);
    let (said, exit) = typed(&rig, &["approve", &second, &code]);
    assert_eq!(exit, 4, "{said}");
    let (said, exit) = typed(&rig, &["approve", &first, &code]);
    assert_eq!(exit, 0, "{said}");
    assert_eq!(client.data("delegate_wait", json!({ "run": one["run"] }))["state"], "completed");
    assert!(!has_begun(&rig, &other["run"]));
    assert_eq!(rig.run(["cancel", other["run"].as_str().unwrap()]).code, 0);
}

#[test]
fn killing_the_server_between_question_and_answer_loses_neither() {
    let rig = rig();
    let can = json!({ "elicitation": {} });
    for (label, can) in [("a", json!({})), ("b", can)] {
        let mut client = Client::start(&rig, &[], &[]);
        client.initialize_with("tester", "2025-11-25", can.clone());
        client.begin("Delegate", task(label));
        if can == json!({}) {
            client.data("delegate_start", task(label));
        } else {
            client.asked("elicitation/create");
        }
        client.kill();

        let mut client = plain(&rig, &[]);
        let data = client.data("Delegate", task(label));
        assert_eq!(data["repeated"], true, "{data}");
        let id = id(&data);
        let (said, exit) = typed(&rig, &["approve", &id, &code(&rig, &id)]);
        assert_eq!(exit, 0, "{said}");
        let done = client.data("delegate_wait", json!({ "run": data["run"] }));
        assert_eq!(done["state"], "completed", "{done}");
    }
}

#[test]
fn the_question_of_a_dead_run_leaves_the_inbox() {
    let rig = rig();
    let mut client = plain(&rig, &[]);
    let data = client.data("Delegate", task("a"));
    let run = data["run"].as_str().unwrap();
    let code = code(&rig, &id(&data));
    let lock = fs::read_to_string(rig.run_folder(run).join("lock")).unwrap();
    let pid = serde_json::from_str::<Value>(&lock).unwrap()["pid"].as_i64().unwrap();
    let pid = rustix::process::Pid::from_raw(i32::try_from(pid).unwrap()).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
    let ended = client.data("delegate_wait", json!({ "run": run }));
    assert_eq!((&ended["state"], &ended["approval"]), (&json!("interrupted"), &Value::Null));
    assert_eq!(rig.run(["approvals", "--json"]).json()["approvals"], json!([]));
    let (said, exit) = typed(&rig, &["approve", &id(&data), &code]);
    assert_eq!(exit, 4, "{said}");
}

/// What cannot be read now may be read later: only what is known to be over is forgotten.
#[test]
fn a_question_whose_run_cannot_be_read_is_kept() {
    let rig = rig();
    let mut client = plain(&rig, &[]);
    let data = client.data("delegate_start", task("a"));
    let run = data["run"].as_str().unwrap();
    let journal = rig.run_folder(run).join("journal.jsonl");
    let aside = rig.path().join("aside");
    assert!(journal.exists(), "{journal:?}");
    fs::rename(&journal, &aside).unwrap();
    fs::create_dir(&journal).unwrap();
    assert_eq!(rig.run(["approvals", "--json"]).json()["approvals"], json!([]));
    fs::remove_dir(&journal).unwrap();
    fs::rename(&aside, &journal).unwrap();
    let again = rig.run(["approvals", "--json"]).json();
    assert_eq!(again["approvals"][0]["id"], json!(id(&data)), "{again}");
    assert_eq!(rig.run(["cancel", run]).code, 0);
}
