//! Approval, budget, and evaluations that are continued.

use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use serde_json::Value;

use super::{evaluating, report, rig};
use crate::support::rig::{BINARY, Rig};
use crate::support::running::GUARD;

const HEAD: &str = "kind = \"question\"\nprompt = \"What does a.txt say?\"\nanswer = \"one\"\n";

const SCRIPT: &str = r#"
max_output = 1000
price = { input = 3.0, output = 15.0 }

[[turn]]
text = "answer: one"
usage = { input = 1000, output = 1000 }
"#;

/// Two questions; each attempt at one costs $0.018.
fn two_questions() -> Rig {
    let files = [("task.toml", HEAD), ("files/a.txt", "one\n")];
    rig(SCRIPT, &[("first", &files), ("second", &files)])
}

fn record_of(rig: &Rig, json: &Value) -> PathBuf {
    rig.state().join("evals").join(json["id"].as_str().unwrap()).join("attempts.jsonl")
}

#[test]
fn without_a_terminal_an_evaluation_is_refused_with_its_worst_case_and_leaves_nothing() {
    let rig = two_questions();
    let flags = ["--tasks", "tasks", "--runs", "2"];
    let out = evaluating(&rig, &flags).args(["--budget-usd", "3"]).run();
    insta::assert_snapshot!(out, @r"
    --- stderr ---
    adjutant: APPROVAL_DENIED: there is no terminal to ask on
      Evaluate 2 tasks under 1 configuration: 4 runs of agents that write and run commands, each in a workspace of its own. Worst case of all runs: $3.00, 20,000,000 tokens.
      Add --yes to start without asking, and --budget-usd to bound what all runs spend.
    [exit 4]
    ");
    assert!(!rig.state().join("evals").exists());
    assert_eq!(rig.runs(), Vec::<String>::new());
    let below = evaluating(&rig, &flags).args(["--budget-usd", "3", "--approve-below", "3"]).run();
    assert_eq!(report(&below, 0)["total"][0]["solved"], 4);
}

#[test]
fn a_budget_that_ends_leaves_attempts_that_a_larger_one_makes() {
    let rig = two_questions();
    let flags = ["--tasks", "tasks", "--runs", "2", "--yes", "--budget-usd", "0.05"];
    let first = report(&evaluating(&rig, &flags).run(), 3);
    let left = first["left"].as_u64().unwrap();
    assert!((1..=3).contains(&left), "{first:#}");
    let spent = first["spent_usd"].as_f64().unwrap();
    assert!(spent <= 0.05, "{spent}");

    let resumed = evaluating(&rig, &["--resume", "--yes", "--budget-usd", "5"]).run();
    let resumed = report(&resumed, 0);
    assert_eq!((&resumed["id"], &resumed["left"]), (&first["id"], &0.into()));
    assert_eq!(resumed["total"][0]["attempts"], 4, "{resumed:#}");
    // The attempts that were made were not made again.
    let made = first["attempts"].as_array().unwrap().len();
    assert_eq!(
        resumed["attempts"].as_array().unwrap()[..made],
        *first["attempts"].as_array().unwrap()
    );
}

#[test]
fn an_interrupted_attempt_is_made_again_and_what_it_cost_counts() {
    let rig = two_questions();
    let flags = ["--tasks", "tasks", "--runs", "1", "--yes"];
    let whole = report(&evaluating(&rig, &flags).run(), 0);
    let path = record_of(&rig, &whole);
    // As after a crash while the last verdict was written.
    let text = fs::read_to_string(&path).unwrap();
    let last = text.trim_end().rfind('\n').unwrap() + 1;
    fs::write(&path, &text[..last + 20]).unwrap();

    let resumed = report(&evaluating(&rig, &["--resume", "--yes"]).run(), 0);
    assert_eq!(resumed["total"][0]["attempts"], 2, "{resumed:#}");
    let cost = |json: &Value| json["spent_usd"].as_f64().unwrap();
    assert!((cost(&resumed) - 1.5 * cost(&whole)).abs() < 1e-9, "{resumed:#}");

    // Nothing is left, so nothing runs and the same report is printed.
    let runs = rig.runs();
    let again = report(&evaluating(&rig, &["--resume"]).run(), 0);
    assert_eq!(again["total"], resumed["total"]);
    assert_eq!(rig.runs(), runs);
}

#[test]
fn a_task_that_changed_since_is_not_counted_with_the_earlier_attempts() {
    let rig = two_questions();
    let flags = ["--tasks", "tasks", "--runs", "1", "--yes"];
    report(&evaluating(&rig, &flags).run(), 0);
    rig.write("tasks/second/files/a.txt", "two\n");
    let out = evaluating(&rig, &["--resume", "--yes"]).run();
    insta::assert_snapshot!(out.talk(), @r"
    adjutant: the task second has changed since the evaluation began
      Attempts at different tasks cannot be counted together: start a new evaluation.
    [exit 2]
    ");
}

/// Says whether a process with this command line runs.
fn is_running(command: &str) -> bool {
    let line = command.replace(' ', "\0") + "\0";
    let processes = fs::read_dir("/proc").unwrap().flatten();
    processes
        .into_iter()
        .any(|it| fs::read(it.path().join("cmdline")).is_ok_and(|found| found == line.as_bytes()))
}

#[test]
fn ctrl_c_during_a_check_ends_the_check_and_the_attempt_is_made_again() {
    // No other process has this command line.
    let sleep = format!("sleep 9{:07}", std::process::id());
    let head =
        format!("kind = \"fix\"\nprompt = \"Fix it\"\ncheck = \"test -e done || exec {sleep}\"\n");
    let agent = |command: &str| {
        let returned = r#"{"status": "completed", "summary": "It is done. That is all.", "artifacts": [], "errors": []}"#;
        format!(
            "price = {{ input = 3.0, output = 15.0 }}\n\
             [[turn]]\nusage = {{ input = 1000, output = 1000 }}\n[[turn.call]]\ntool = \"Run\"\n\
             args = {{ command = {command:?} }}\n[[turn]]\ntext = '{returned}'\nusage = {{ input = 0, output = 0 }}\n"
        )
    };
    let rig = rig(&agent("true"), &[("fix", &[("task.toml", &head)])]);
    let flags = ["--tasks", "tasks", "--runs", "1", "--yes"];
    let mut running = evaluating(&rig, &flags).start();
    let until = Instant::now() + GUARD;
    while !is_running(&sleep) {
        assert!(!running.has_ended() && Instant::now() < until, "the check never ran");
        thread::sleep(Duration::from_millis(1));
    }
    running.signal(Signal::INT);
    let out = running.finish();
    let cut = report(&out, 130);
    assert!(!is_running(&sleep), "the check outlived the evaluation");
    assert_eq!((&cut["left"], &cut["attempts"]), (&1.into(), &Value::Array(Vec::new())));
    let cost = |json: &Value| json["spent_usd"].as_f64().unwrap();
    assert!(cost(&cut) > 0.0, "{cut:#}");

    fs::write(rig.path().join("script.toml"), agent("touch done")).unwrap();
    let resumed = report(&evaluating(&rig, &["--resume", "--yes"]).run(), 0);
    assert_eq!((&resumed["left"], &resumed["total"][0]["solved"]), (&0.into(), &1.into()));
    assert!((cost(&resumed) - 2.0 * cost(&cut)).abs() < 1e-9, "{resumed:#}");
}

/// The sandbox needs a user namespace, which is not allowed in this one.
#[test]
fn without_a_sandbox_an_evaluation_is_refused() {
    let rig = two_questions();
    let out = Command::new("unshare")
        .args(["--user", "--map-root-user", "sh", "-c"])
        .args(["echo 0 > /proc/sys/user/max_user_namespaces && exec \"$@\"", "sh", BINARY])
        .args(["eval", "--yes", "--tasks", "tasks", "--model", rig.model()])
        .env_clear()
        .envs(rig.environment())
        .env("PATH", std::env::var_os("PATH").unwrap())
        .current_dir(rig.work())
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&out.stderr);
    assert_eq!(out.status.code(), Some(4), "{said}");
    assert!(said.contains("checks run only in the sandbox, which is not available: "), "{said}");
    assert!(!rig.state().join("evals").exists());
}
