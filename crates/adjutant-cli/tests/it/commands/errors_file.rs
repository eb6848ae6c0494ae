//! `errors.json` in the specs folder: what slash commands leave there, beside what others wrote.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::PathBuf;

use serde_json::{Value, json};

use crate::support::rig::{COMMANDS, Output, Rig};
use crate::support::schema::assert_fits;

const OURS: &str = ".adjutant/specs/errors.json";

/// A command whose agent has a helper that fails; what its provider says holds a key.
const FAILS: &str = r#"
[[turn]]
agent = "research"
[[turn.call]]
tool = "Task"
args = { agent = "researcher", prompt = "Task: 1" }
[[turn]]
agent = "research"
text = "It is found."

[[turn]]
agent = "researcher"
[[turn.call]]
tool = "Task"
args = { agent = "helper", prompt = "Count" }
[[turn]]
agent = "researcher"
text = '{"status":"completed","summary":"It is found. It is here.","artifacts":[{"type":"research","path":"report.md"}],"errors":[]}'

[[turn]]
agent = "helper"
error = "bad_request"
message = "no: sk-ant-api03-AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"
times = "forever"
"#;

fn failing() -> Rig {
    failing_in(".adjutant/specs")
}

fn failing_in(specs: &str) -> Rig {
    let rig = Rig::with_script(FAILS);
    rig.tasks(specs, &[1]);
    // Who cannot write may show a file that was there.
    rig.write("report.md", "what was found");
    let agent = "---\ndescription: Finds out.\ntools: Read, Task\n---\nFind out.";
    rig.write(".claude/agents/researcher.md", agent);
    rig
}

fn research(rig: &Rig) -> Output {
    rig.run(["run", "/research 1", "--model", rig.model()])
}

fn kept(path: PathBuf) -> Value {
    serde_json::from_slice(&fs::read(path).unwrap()).unwrap()
}

fn at(rig: &Rig, name: &str) -> PathBuf {
    rig.work().join(name)
}

#[test]
fn requirement_38_an_error_is_saved_with_its_command_task_and_session() {
    let rig = failing();
    let out = research(&rig);
    assert_eq!(out.code, 0, "{out}");
    let file = kept(at(&rig, OURS));
    assert_fits("errors", &file);
    assert_eq!(file, rig.run(["errors", "--json"]).json(), "one fold for both");
    let errors = file["errors"].as_array().unwrap();
    assert_eq!(errors.len(), 1);
    let context = &errors[0]["context"];
    // The helper got its own prompt, for the task of its parents.
    assert_eq!((&context["command"], &context["task"]), (&json!("research"), &json!("1")));
    assert!(context["session_id"].as_str().unwrap().starts_with("sess_"));
    assert_eq!(
        errors[0]["trajectory"],
        json!({
            "delegation_path": ["orchestrator", "research", "researcher", "helper"],
            "failed_at_depth": 2,
        })
    );
    assert_eq!(errors[0]["message"], "request rejected: no: [masked:api-key]");
    let status = rig.run(["status", "latest", "--json"]).json();
    let [work, helper] = [0, 1].map(|nth| &status["runs"][0]["delegations"][nth]);
    assert_eq!((&work["command"], &work["task_number"]), (&json!("research"), &json!(1)));
    assert_eq!((&helper["command"], &helper["task_number"]), (&json!("research"), &json!(1)));
    assert_eq!(helper["path"], errors[0]["trajectory"]["delegation_path"]);
}

/// A command whose agent hands back two errors in words of its own.
const TWO_ERRORS: &str = r#"
[[turn]]
agent = "research"
[[turn.call]]
tool = "Task"
args = { agent = "researcher", prompt = "Task: 1" }
[[turn]]
agent = "research"
text = "It failed."

[[turn]]
agent = "researcher"
text = '{"status":"failed","summary":"It does not build. Lake is missing.","artifacts":[],"errors":[{"type":"build_error","message":"3 type errors","code":"BUILD_ERROR","recoverable":true,"recommendation":"Fix them."},{"type":"tool_unavailable","message":"there is no lake","code":"LAKE_MISSING","recoverable":false,"recommendation":"Install it."}]}'
"#;

#[test]
fn requirement_38_every_error_of_a_return_is_saved_with_its_own_type_and_code() {
    let rig = Rig::with_script(TWO_ERRORS);
    rig.tasks(".adjutant/specs", &[1]);
    let out = research(&rig);
    assert_eq!(out.code, 1, "{out}");
    let file = kept(at(&rig, OURS));
    assert_fits("errors", &file);
    let words = |errors: &Value| -> Vec<String> {
        let errors = errors["errors"].as_array().unwrap().iter();
        errors.map(|it| format!("{} {}", it["type"], it["code"]).replace('"', "")).collect()
    };
    assert_eq!(words(&file), ["build_error BUILD_ERROR", "tool_unavailable LAKE_MISSING"]);
    let of_type = |kind: &str| words(&rig.run(["errors", "--json", "--type", kind]).json());
    assert_eq!(of_type("build_error"), ["build_error BUILD_ERROR"]);
    assert_eq!(of_type("timeout"), [""; 0]);
    insta::assert_snapshot!(rig.run(["errors", "--type", "build"]), @"
    --- stderr ---
    adjutant: unknown error type `build`
      Known types: build_error, execution, timeout, tool_unavailable, validation.
    [exit 2]
    ");
}

#[test]
fn entries_of_other_writers_stay_and_each_run_adds_its_errors() {
    let rig = failing_in(".opencode/specs");
    let theirs = "{\n  \"_owner\": \"me\",\n  \"errors\": [\n    {\"id\": \"err_by_hand\", \"n\": 1.10}\n  ]\n}\n";
    let file = rig.write(".opencode/specs/errors.json", theirs);
    assert_eq!(research(&rig).code, 0);
    assert_eq!(research(&rig).code, 0);
    let text = fs::read_to_string(&file).unwrap();
    assert!(text.starts_with(theirs.strip_suffix("\n  ]\n}\n").unwrap()), "{text}");
    let ids = |value: &Value| -> Vec<String> {
        let each = value["errors"].as_array().unwrap().iter();
        each.map(|it| it["id"].as_str().unwrap().to_owned()).collect()
    };
    let now = ids(&kept(file.clone()));
    assert_eq!((now.len(), now[0].as_str()), (3, "err_by_hand"));
    // A fix status that the user wrote survives the next run, and `fixed` replaces it.
    let text = text.replacen("\"unfixed\"", "\"looked at\", \"by\": \"me\"", 1);
    fs::write(&file, &text).unwrap();
    assert_eq!(rig.run(["errors", "fixed", &now[2]]).code, 0);
    assert_eq!(fs::read_to_string(&file).unwrap(), text.replace("\"unfixed\"", "\"fixed\""));
    assert_eq!(rig.run(["errors", "fixed", &now[1]]).code, 0);
    let last = kept(file.clone());
    assert_eq!(
        (&last["errors"][1]["fix_status"], &last["errors"][1]["by"]),
        (&json!("fixed"), &json!("me"))
    );
    assert_eq!(ids(&last), now);
    assert!(!at(&rig, ".adjutant").exists());
}

#[test]
fn an_invalid_errors_file_is_left_alone_with_a_warning() {
    for (text, said) in [
        ("{\"errors\": [", "`.adjutant/specs/errors.json` is not JSON, line 1 column 12"),
        ("[]", "`.adjutant/specs/errors.json` is not a JSON object"),
        (r#"{"errors": 1}"#, "`errors` is not a list"),
    ] {
        let rig = failing();
        let file = rig.write(OURS, text);
        let out = research(&rig);
        assert_eq!(out.code, 0, "{out}");
        assert!(out.stderr.contains("adjutant: errors.json is not up to date: "), "{out}");
        assert!(out.stderr.contains(said) && out.stderr.contains("left as it is"), "{out}");
        assert_eq!(fs::read_to_string(file).unwrap(), text);
    }
    let rig = failing();
    let elsewhere = rig.path().join("elsewhere.json");
    fs::write(&elsewhere, "{}").unwrap();
    fs::create_dir_all(at(&rig, ".adjutant/specs")).unwrap();
    symlink(&elsewhere, at(&rig, OURS)).unwrap();
    let out = research(&rig);
    assert!(out.stderr.contains("`.adjutant/specs/errors.json` is a symbolic link"), "{out}");
    assert_eq!(fs::read_to_string(elsewhere).unwrap(), "{}");
}

#[test]
fn an_error_of_a_run_that_completes_on_resume_is_marked_as_fixed() {
    let rig = Rig::with_script("[[turn]]\nerror = 'bad_request'\nmessage = 'not now'");
    let out = rig.run(["run", "/review", "--model", rig.model()]);
    assert_eq!(out.code, 1, "{out}");
    assert_eq!(kept(at(&rig, OURS))["errors"][0]["fix_status"], "unfixed");
    fs::write(rig.path().join("script.toml"), COMMANDS).unwrap();
    let out = rig.run(["resume", "--model", rig.model()]);
    assert_eq!(out.code, 0, "{out}");
    let file = kept(at(&rig, OURS));
    assert_eq!(file["errors"].as_array().unwrap().len(), 1);
    assert_eq!(file["errors"][0]["fix_status"], "fixed");
}

#[test]
fn only_slash_commands_create_the_specs_folder_and_only_the_command_preset_writes_errors() {
    let failing = "[[turn]]\nerror = 'bad_request'\nmessage = 'no'\ntimes = 'forever'";
    let rig = Rig::with_script(failing);
    let goal = ["run", "Look", "--model", rig.model(), "--preset", "command"];
    assert_eq!(rig.run(goal).code, 1);
    assert!(fs::read_dir(rig.work()).unwrap().next().is_none());
    fs::create_dir_all(at(&rig, ".adjutant/specs")).unwrap();
    assert_eq!(rig.run(["run", "Look", "--model", rig.model()]).code, 1);
    assert!(!at(&rig, OURS).exists(), "scouts leave nothing in the project");
    assert_eq!(rig.run(goal).code, 1);
    assert_eq!(kept(at(&rig, OURS))["errors"].as_array().unwrap().len(), 1);
    let clean = Rig::with_script(COMMANDS);
    assert_eq!(clean.run(["run", "/review", "--model", clean.model()]).code, 0);
    assert!(!at(&clean, ".adjutant").exists(), "no error, no file");
}

#[test]
fn processes_that_end_at_the_same_time_lose_no_errors() {
    let rig = failing();
    const PROCESSES: usize = 6;
    let runs: Vec<_> = (0..PROCESSES)
        .map(|_| rig.call(["run", "/research 1", "--model", rig.model()]).start())
        .collect();
    for run in runs {
        let out = run.finish();
        assert_eq!(out.code, 0, "{out}");
    }
    let file = kept(at(&rig, OURS));
    let runs: std::collections::BTreeSet<_> = (file["errors"].as_array().unwrap().iter())
        .map(|error| error["context"]["run"].as_str().unwrap().to_owned())
        .collect();
    assert_eq!(runs.len(), PROCESSES, "{file}");
}
