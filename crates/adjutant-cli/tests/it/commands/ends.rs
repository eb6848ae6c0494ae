//! Slash commands that do not complete: a different error for a fault in each of the five stages,
//! and a question that the user answers.

use std::fs;

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::support::rig::{Output, Rig};
use crate::support::schema::assert_fits;

const REPORT: &str = ".adjutant/specs/1_add_jwt/reports/research-001.md";

/// A place with a task, and a script in which `/research` hands it to `researcher`, who does `rest`.
fn rig(rest: &str) -> Rig {
    let rig = Rig::with_script(&format!(
        r#"
[[turn]]
agent = "research"
[[turn.call]]
tool = "Task"
args = {{ agent = "researcher", prompt = "Task: 1" }}
[[turn]]
agent = "research"
text = "That is all."
{rest}
"#
    ));
    assert_eq!(rig.run(["run", "/task \"Add JWT\""]).code, 0);
    rig
}

/// The answer of a researcher who wrote its report.
fn writes() -> String {
    let returned = json!({ "status": "completed", "summary": "It is done. It is here.",
        "artifacts": [{ "type": "research", "path": REPORT }], "errors": [] });
    format!(
        r#"
[[turn]]
agent = "researcher"
[[turn.call]]
tool = "Write"
args = {{ path = "{REPORT}", content = "{{{{last}}}}" }}
[[turn]]
agent = "researcher"
text = '{returned}'
"#
    )
}

fn research(rig: &Rig, flags: &[&str]) -> Output {
    rig.call(["run", "/research 1", "--model", rig.model()]).args(flags).run()
}

/// The stages that did not go well: which, and the error it gave.
fn faults(out: &Output) -> Vec<(String, String)> {
    let events: Vec<Value> = out.lines().inspect(|event| assert_fits("events", event)).collect();
    let stages = events.iter().filter(|it| it["event"] == "stage" && it["ok"] == false);
    let named = stages.filter(|it| it["detail"]["reason"].is_string());
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    named.map(|it| (text(&it["stage"]), text(&it["detail"]["reason"]))).collect()
}

/// The code and the advice of the latest error that was kept, be it the command's or its agent's.
/// What an agent says is kept once; a refusal is the command's as well, which has nothing to show.
fn reason(rig: &Rig) -> (String, String) {
    let json = rig.run(["errors", "--json"]).json();
    let errors = json["errors"].as_array().unwrap();
    let own = errors.last().unwrap();
    assert_eq!(errors.len(), if own["code"] == "CYCLE_DETECTED" { 2 } else { 1 }, "{json}");
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    (text(&own["code"]), text(&own["recovery"]["suggested_action"]))
}

/// What each fault does to the run: the stage, the error, the exit code, how the task is marked.
const FAULTS: [(&str, &str, i32, &str); 4] = [
    ("prepare", "CYCLE_DETECTED", 1, "NOT STARTED"),
    ("invoke", "PROVIDER_ERROR", 1, "IN PROGRESS"),
    ("receive", "TIMEOUT", 3, "IN PROGRESS"),
    ("validate", "VALIDATION_FAILED", 1, "IN PROGRESS"),
];

#[test]
fn a_fault_in_each_stage_gives_its_own_error() {
    for (stage, code, exit, status) in FAULTS {
        let agent = match stage {
            "prepare" => "",
            "invoke" => "error = 'bad_request'\nmessage = 'no such model'",
            "receive" => "delay_ms = 300000\ntext = 'too late'",
            "validate" => "times = 'forever'\ntext = 'I think it went well.'",
            other => panic!("{other}"),
        };
        let rig = rig(&format!("[[turn]]\nagent = \"researcher\"\n{agent}"));
        if stage == "prepare" {
            // The command asks for itself.
            let script = rig.path().join("script.toml");
            let text = fs::read_to_string(&script).unwrap();
            let text = text.replace("{ agent = \"researcher\"", "{ agent = \"research\"");
            fs::write(&script, text.replace("[[turn]]\nagent = \"researcher\"\n", "")).unwrap();
        }
        if stage == "receive" {
            rig.write(
                ".claude/agents/researcher.md",
                "---\ndescription: Works.\nadjutant: { timeout_s: 1 }\n---\nWork.",
            );
        }
        let out = research(&rig, &["--events"]);
        assert_eq!(out.code, exit, "{stage}: {out}");
        let expected = [(stage.to_owned(), code.to_lowercase())];
        assert_eq!(faults(&out), expected, "{stage}: {out}");
        assert_eq!(reason(&rig).0, code, "{stage}: {out}");
        let todo = fs::read_to_string(rig.work().join(".adjutant/specs/TODO.md")).unwrap();
        assert!(todo.contains(&format!("- **Status**: [{status}]\n")), "{stage}: {todo}");
    }
}

/// The task list is damaged while the run is down: the work exists, and the report says what is left to do.
#[test]
fn a_fault_in_the_last_stage_says_that_the_work_is_done_and_how_to_mark_it() {
    let slow = "[[turn]]\nagent = \"researcher\"\ndelay_ms = 300000\n";
    let rig = rig(&writes().replace("[[turn]]\nagent = \"researcher\"\n", slow));
    let mut run = rig.call(["run", "/research 1", "--model", rig.model()]).start();
    run.wait_for("[researcher] task 1 is [RESEARCHING]").signal(Signal::KILL);
    assert_eq!(run.finish().code, 128 + 9);
    let todo = rig.work().join(".adjutant/specs/TODO.md");
    fs::write(&todo, b"### 1. Add\xff").unwrap();
    let script = rig.path().join("script.toml");
    let text = fs::read_to_string(&script).unwrap();
    fs::write(&script, text.replace("delay_ms = 300000\n", "")).unwrap();

    let out = rig.run(["resume", "--events"]);
    assert_eq!(out.code, 3, "{out}");
    let expected = [("process".to_owned(), "status_sync_failed".to_owned())];
    assert_eq!(faults(&out), expected, "{out}");
    let (code, advice) = reason(&rig);
    assert_eq!(code, "STATUS_SYNC_FAILED");
    assert!(advice.contains("`adjutant task set 1 researched`"), "{advice}");
    assert!(rig.work().join(REPORT).is_file());
    assert_eq!(fs::read(&todo).unwrap(), b"### 1. Add\xff", "a broken list is left alone");
    // The recommended command works.
    fs::write(&todo, "# TODO\n\n## Tasks\n").unwrap();
    let out = rig.run(["task", "set", "1", "researched"]);
    assert_eq!(out.code, 0, "{out}");
}

#[test]
fn an_agent_that_cannot_write_completes_without_a_file() {
    let returned = json!({ "status": "completed", "summary": "It is done. It is here.",
        "artifacts": [], "errors": [] });
    let answers =
        format!("[[turn]]\nagent = \"researcher\"\ntimes = 'forever'\ntext = '{returned}'");
    for (tools, code) in [("Read, Grep", 0), ("Read, Write", 1), ("Read, Edit", 1)] {
        let rig = rig(&answers);
        rig.write(
            ".claude/agents/researcher.md",
            format!("---\ndescription: Works.\ntools: {tools}\n---\nWork."),
        );
        let out = research(&rig, &[]);
        assert_eq!(out.code, code, "{tools}: {out}");
    }
}

#[test]
fn the_recommended_resume_command_repeats_the_in_place_flag() {
    let fails = "[[turn]]\nagent = \"researcher\"\nerror = 'bad_request'\nmessage = 'not now'";
    for flags in [&["--in-place"][..], &[]] {
        let rig = rig(fails);
        let out = research(&rig, flags);
        assert_eq!(out.code, 1, "{out}");
        let line = out.stdout.lines().find_map(|it| it.strip_prefix("Resume with: adjutant "));
        let words: Vec<&str> = line.unwrap().split(' ').collect();
        assert_eq!(words[2..], *flags, "{out}");
        // The recommended command works.
        let script = rig.path().join("script.toml");
        let text = fs::read_to_string(&script).unwrap();
        fs::write(&script, text.replace(fails, &writes())).unwrap();
        let out = rig.run(words);
        assert_eq!(out.code, 0, "{out}");
        assert!(rig.work().join(REPORT).is_file());
    }
}

#[test]
fn a_question_is_asked_answered_and_the_work_continues() {
    let error = json!({ "type": "execution", "message": "Which of the two libraries?",
        "code": "QUESTION", "recoverable": true, "recommendation": "Choose one." });
    let asks = json!({ "status": "blocked", "summary": "Two ways are open. A person must choose.",
        "artifacts": [], "errors": [error] });
    let rig = rig(&format!("[[turn]]\nagent = \"researcher\"\ntext = '{asks}'\n{}", writes()));
    let out = research(&rig, &[]);
    insta::assert_snapshot!(out.data(), @r#"
    Task: 1

    That is all.

    Status: Blocked
    Question: Which of the two libraries?
    Answer with: adjutant resume sess_0000000000_aaaaaa --say
    Task 1 is [BLOCKED]
    "#);
    assert_eq!(out.code, 5, "{out}");
    let task = rig.run(["task", "show", "1", "--json"]).json();
    assert_eq!(task["task"]["status"], "blocked", "{task}");
    assert_eq!(task["task"]["reason"], "Which of the two libraries?", "{task}");
    let line = out.stdout.lines().find_map(|it| it.strip_prefix("Answer with: adjutant resume "));
    let session = line.unwrap().split(' ').next().unwrap();

    let out = rig.run(["resume", session, "--say", "the second"]);
    insta::assert_snapshot!(out.data(), @r"
    Task: 1

    It is done. It is here.

    Research: .adjutant/specs/1_add_jwt/reports/research-001.md
    Task 1 is [RESEARCHED]
    ");
    assert_eq!(out.code, 0, "{out}");
    let again = rig.run(["result"]);
    assert!(again.stdout.starts_with("It is done. It is here.\n"), "{again}");
    assert_eq!(fs::read_to_string(rig.work().join(REPORT)).unwrap(), "the second");
    let task = rig.run(["task", "show", "1", "--json"]).json();
    assert_eq!(task["task"]["status"], "researched", "{task}");
    // Nothing is open any more, for the command as for its agent.
    let tree = rig.run(["tree", "--json"]).json();
    assert_eq!(tree["root"]["state"], "completed", "{tree}");
    assert_eq!(rig.run(["errors", "--json"]).json()["errors"], json!([]));
}
