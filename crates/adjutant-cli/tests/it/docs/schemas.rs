//! Every JSON that no other test holds to its schema, and the list of schemas itself.

use std::collections::BTreeSet;

use adjutant_core::Event;
use serde_json::{Value, json};

use crate::check::judging::a_return;
use crate::delegate;
use crate::support::journal;
use crate::support::rig::{Output, Rig};
use crate::support::schema::{assert_fits, folder, read};

/// A parent that hands one task down and concludes.
const LEAD: &str = r#"
price = { input = 3.0, output = 15.0 }

[[turn]]
agent = "lead"
text = "I will ask."
usage = { input = 900, output = 30 }
[[turn.call]]
tool = "Delegate"
args = { tasks = [{ label = "left", prompt = "Look left", context = ["map.txt", "none.txt"] }] }

[[turn]]
agent = "lead"
text = "There is a tree."
usage = { input = 1200, output = 40 }

[[turn]]
label = "left"
text = "a tree"
usage = { input = 500, output = 20 }
"#;

/// Runs a command with `--json` and holds its only object to a schema.
#[track_caller]
fn printed(rig: &Rig, schema: &str, args: &[&str], stdin: &str, code: i32) -> Value {
    let out: Output = rig.call(args).arg("--json").stdin(stdin).run();
    assert_eq!(out.code, code, "{out}");
    let json = out.json();
    assert_fits(schema, &json);
    json
}

fn is_empty(list: &Value) -> bool {
    list.as_array().unwrap().is_empty()
}

#[test]
fn check_fits_its_schema() {
    let rig = Rig::new();
    let ask = |agent: &str| {
        let tree = json!([{ "id": "r", "agent": "implement" }]);
        json!({ "tree": tree, "request": { "parent": "r", "agent": agent } }).to_string()
    };
    for preset in ["scout", "command"] {
        let args = ["check", "--preset", preset];
        assert_eq!(printed(&rig, "check", &args, &ask("other"), 0)["granted"], true);
    }
    let args = ["check", "--preset", "command"];
    assert_eq!(printed(&rig, "check", &args, &ask("implement"), 4)["granted"], false);
}

#[test]
fn parse_fits_its_schema() {
    let rig = Rig::new();
    let args = ["parse", "--parent", "US-007"];
    let clean = printed(&rig, "parse", &args, "[delegate:Write the parser:2]", 0);
    assert!(!is_empty(&clean["delegations"]) && is_empty(&clean["errors"]), "{clean}");
    let rejected = printed(&rig, "parse", &args, "[delegate:a:1] [delegate:no hours]", 0);
    assert!(!is_empty(&rejected["delegations"]) && !is_empty(&rejected["errors"]), "{rejected}");
    printed(&rig, "parse", &args, "", 0);
}

#[test]
fn validate_fits_its_schema() {
    let rig = Rig::new();
    let mut good = a_return();
    good["next_steps"] = json!("Merge it.");
    good["artifacts"][0]["summary"] = json!("What was found.");
    good["surplus"] = json!(1);
    let verdict = printed(&rig, "validate", &["validate"], &good.to_string(), 0);
    assert!(!is_empty(&verdict["warnings"]), "{verdict}");
    let mut failed = a_return();
    failed["status"] = json!("failed");
    failed["errors"] = json!([{
        "type": "timeout", "message": "Too late", "code": "TIMEOUT", "recoverable": true,
        "recommendation": "Try again",
    }]);
    printed(&rig, "validate", &["validate"], &failed.to_string(), 0);
    for bad in [r#"{"status":"done"}"#, "[]", "no JSON at all"] {
        let verdict = printed(&rig, "validate", &["validate"], bad, 1);
        assert!(!is_empty(&verdict["errors"]), "{verdict}");
    }
}

#[test]
fn policy_fits_its_schema() {
    let rig = Rig::new();
    for preset in ["scout", "command", "story"] {
        printed(&rig, "policy", &["policy", "--preset", preset], "", 0);
        let explained = printed(&rig, "policy", &["policy", "explain", "--preset", preset], "", 0);
        assert!(explained["keys"]["enabled"]["bounds"].is_string(), "{explained}");
    }
}

#[test]
fn run_and_its_log_fit_their_schemas() {
    let rig = Rig::with_script(LEAD);
    rig.write("map.txt", "x marks the spot");
    let args = ["run", "Where are we?", "--yes", "--model", rig.model()];
    let json = printed(&rig, "run", &args, "", 0);
    assert_eq!(json["synthesis"], "There is a tree.");
    assert_eq!(json["tree"]["root"]["children"][0]["label"], "left");
    let status = printed(&rig, "status", &["status", "latest"], "", 0);
    assert_eq!(status["runs"][0]["lead"]["turns"], 2, "the agent at the root works too");
    let seen: BTreeSet<String> = (rig.events(&rig.only_run()).iter())
        .map(|event| event["type"].as_str().unwrap().to_owned())
        .collect();
    for kind in ["run_started", "agent_defined", "delegated", "granted", "replied", "run_ended"] {
        assert!(seen.contains(kind), "{kind} is not in {seen:?}");
    }
}

/// Here the schema is asked, not the output: no run has every event.
#[test]
fn the_schema_of_the_log_describes_every_event() {
    let complaint = serde_json::from_value::<Event>(json!({ "type": "?" })).unwrap_err();
    let complaint = complaint.to_string();
    let (_, expected) = complaint.split_once("expected one of").unwrap();
    let events: BTreeSet<&str> = expected.split('`').skip(1).step_by(2).collect();
    let schema = read("log.json");
    let described: BTreeSet<&str> = (schema["$defs"]["event"]["oneOf"].as_array().unwrap().iter())
        .map(|one| one["properties"]["type"]["const"].as_str().unwrap())
        .collect();
    assert_eq!(described, events);
}

#[test]
fn prune_and_the_log_of_a_pruned_run_fit_their_schemas() {
    let rig = delegate::rig();
    assert_eq!(rig.delegate(&["-t", "reader=Look at the notes"]).code, 0);
    assert!(is_empty(&printed(&rig, "prune", &["prune"], "", 0)["expired"]));
    let run = rig.only_run();
    journal::age(&rig.run_folder(&run), &run);
    assert_eq!(printed(&rig, "prune", &["prune"], "", 0)["expired"], json!([run]));
    assert!(!rig.events(&run).is_empty());
}

#[test]
fn models_and_doctor_fit_their_schemas_with_and_without_a_key() {
    let rig = Rig::new();
    for (schema, place) in [("models", "/models/0/usable"), ("doctor", "/findings/0/ok")] {
        let without = printed(&rig, schema, &[schema], "", 0);
        assert!(without.pointer(place).is_some(), "{without}");
        let with = rig.call([schema, "--json"]).env("ANTHROPIC_API_KEY", "sk-ant-test").run();
        assert_fits(schema, &with.json());
        assert_ne!(with.json(), without, "the key was not seen");
    }
}

#[test]
fn workers_fits_its_schema_with_and_without_a_problem() {
    let rig = Rig::new();
    let without = printed(&rig, "workers", &["workers"], "", 0);
    let is_usable = |it: &Value| it["usable"] == true && it["problem"].is_null();
    assert!(!without["workers"].as_array().unwrap().iter().any(is_usable), "{without}");
    let folder = rig.home().join(".config/adjutant");
    std::fs::create_dir_all(&folder).unwrap();
    let config = "[workers.mine]\ncommand = [\"/bin/sh\"]\nwires = [\"chat\"]\n";
    std::fs::write(folder.join("config.toml"), config).unwrap();
    let with = printed(&rig, "workers", &["workers"], "", 0);
    let mine = with["workers"].as_array().unwrap().iter().find(|it| it["name"] == "mine");
    assert!(mine.is_some_and(is_usable), "{with}");
}

#[test]
fn the_list_names_exactly_the_existing_schemas() {
    let readme = std::fs::read_to_string(folder().join("README.md")).unwrap();
    let listed: BTreeSet<String> = (readme.lines())
        .filter_map(|line| line.strip_prefix("| [")?.split_once("](")?.1.split_once(')'))
        .map(|(file, _)| file.to_owned())
        .collect();
    let files: BTreeSet<String> = std::fs::read_dir(folder())
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .filter(|name| name != "README.md")
        .collect();
    assert_eq!(listed, files);
    for file in &files {
        let schema = read(file);
        assert_eq!(schema["$schema"], "https://json-schema.org/draft/2020-12/schema", "{file}");
    }
}
