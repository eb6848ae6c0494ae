//! `--record` and `--model replay:FILE`, with a strict fake of a provider in this process.

use std::fs;

use adjutant_testkit::fake::{Api, Script, Turn};
use serde_json::{Value, json};

use crate::support::rig::{Call, Output, Rig};
use crate::support::server::{KEY, Server};

const MODEL: &str = "anthropic/claude-sonnet-5-5";

/// Two children that read, then report; a root agent that delegates the work of one.
fn script() -> Script {
    let read = || Turn::calls("Read", &json!({ "path": "a.txt" }));
    let task = json!({ "tasks": [{ "label": "inner", "prompt": "task-inner" }] });
    Script::new()
        .on("task-one", [read(), Turn::says("One: it has a line.")])
        .on("task-two", [read(), Turn::says("Two: it has a line.")])
        .on("task-inner", [read(), Turn::says("Inner: it has a line.")])
        .on("goal-lead", [Turn::calls("Delegate", &task), Turn::says("All in all: a line.")])
}

fn rig() -> Rig {
    let rig = Rig::new();
    rig.write("a.txt", "a line\n");
    rig
}

fn recording<'rig>(rig: &'rig Rig, server: &Server, args: &[&str]) -> Call<'rig> {
    rig.call(args)
        .args(["--yes", "--json", "--model", MODEL, "--record", "../kept.jsonl"])
        .env("ANTHROPIC_API_KEY", KEY)
        .env("ANTHROPIC_BASE_URL", &server.url)
}

fn replay(rig: &Rig, args: &[&str]) -> Output {
    rig.call(args).args(["--yes", "--json", "--model", "replay:../kept.jsonl"]).run()
}

const TASKS: [&str; 5] = ["delegate", "-t", "one=task-one", "-t", "two=task-two"];

/// The results without what differs between any two runs.
fn lasting(output: &Output) -> Value {
    fn strip(value: &mut Value) {
        match value {
            Value::Object(map) => {
                map.retain(|key, _| {
                    !["duration_s", "elapsed_s", "transcript"].contains(&key.as_str())
                });
                map.values_mut().for_each(strip);
            }
            Value::Array(items) => items.iter_mut().for_each(strip),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
        }
    }
    let mut value = serde_json::from_str(&output.data()).unwrap_or_else(|_| panic!("{output}"));
    strip(&mut value);
    value
}

#[test]
fn a_recorded_delegation_is_replayed_without_key_or_server() {
    let rig = rig();
    let server = Server::start(Api::Anthropic, script());
    let recorded = recording(&rig, &server, &TASKS).run();
    assert_eq!(recorded.code, 0, "{recorded}");
    drop(server);
    let kept = fs::read_to_string(rig.path().join("kept.jsonl")).unwrap();
    assert!(!kept.contains(KEY));
    assert_eq!(kept.lines().count(), 6, "a head, a model, four exchanges: {kept}");
    let played = replay(&rig, &TASKS);
    assert_eq!(played.code, 0, "{played}");
    assert!(played.stderr.contains(&format!("replaying {MODEL}: nothing is sent")), "{played}");
    assert_eq!(lasting(&played), lasting(&recorded));

    rig.write("a.txt", "another line\n");
    let changed = replay(&rig, &TASKS);
    assert_eq!(changed.code, 1, "{changed}");
    assert!(changed.stdout.contains("is not the recorded one: /messages/2/"), "{changed}");
    assert!(changed.stdout.contains("another line"), "{changed}");
}

#[test]
fn a_recorded_goal_is_replayed_with_its_delegations() {
    let rig = rig();
    let server = Server::start(Api::Anthropic, script());
    let recorded = recording(&rig, &server, &["run", "goal-lead"]).run();
    assert_eq!(recorded.code, 0, "{recorded}");
    drop(server);
    let played = replay(&rig, &["run", "goal-lead"]);
    assert_eq!(played.code, 0, "{played}");
    let (played, recorded) = (lasting(&played), lasting(&recorded));
    assert_eq!(played["synthesis"], "All in all: a line.");
    assert_eq!(played["cost"], recorded["cost"]);
}

#[test]
fn an_unusable_recording_is_reported_before_anything_starts() {
    let rig = rig();
    let server = Server::start(Api::Anthropic, script());
    assert_eq!(recording(&rig, &server, &TASKS).run().code, 0);
    let again = recording(&rig, &server, &TASKS).run();
    insta::assert_snapshot!(again.talk(), @"
    adjutant: ../kept.jsonl already exists; a recording never replaces a file
    [exit 2]
    ");
    let scripted =
        rig.call(TASKS).args(["--model", "script:x.toml", "--record", "new.jsonl"]).run();
    insta::assert_snapshot!(scripted.talk(), @"
    adjutant: --record needs a provider; script:x.toml does not call one
      Record with --model provider/model, or leave --record out.
    [exit 2]
    ");
    assert!(!rig.work().join("new.jsonl").exists(), "nothing was recorded");

    let path = rig.path().join("kept.jsonl");
    let kept = fs::read(&path).unwrap();
    fs::write(&path, &kept[..kept.len() / 2]).unwrap();
    insta::assert_snapshot!(replay(&rig, &TASKS).talk(), @"
    adjutant: ../kept.jsonl:4: the line is cut off; the recording is incomplete
    [exit 2]
    ");
    fs::write(&path, "{\"recording\":{\"version\":7}}\n").unwrap();
    insta::assert_snapshot!(replay(&rig, &TASKS).talk(), @"
    adjutant: ../kept.jsonl is a recording of version 7; this build reads up to 1
    [exit 2]
    ");
    fs::remove_file(&path).unwrap();
    insta::assert_snapshot!(replay(&rig, &TASKS).talk(), @"
    adjutant: cannot read the recording ../kept.jsonl: No such file or directory (os error 2)
    [exit 2]
    ");
    assert_eq!(rig.runs().len(), 1, "only the recorded run was started");
}
