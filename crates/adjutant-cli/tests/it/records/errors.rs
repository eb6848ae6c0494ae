//! `errors` of all runs, `log --delegations`, and runs whose content has expired.

use std::fs;

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::delegate::signals;
use crate::support::journal;
use crate::support::rig::Rig;
use crate::support::schema::assert_fits;

/// A script for one task that completes; every other task reaches the end of the script and fails.
const SCRIPT: &str =
    "[[turn]]\nlabel = 'good'\ntext = 'done'\nusage = { input = 100, output = 10 }";

/// A place in which one task completed, one failed and one was refused.
fn rig() -> Rig {
    let rig = Rig::with_script(SCRIPT);
    let tasks = json!({ "tasks": [
        { "label": "good", "prompt": "Do it" },
        { "label": "bad", "prompt": "Fail" },
        { "label": "out", "prompt": "Look", "context": ["../../etc/passwd"] },
    ]});
    let out = rig.delegating(&["-"]).stdin(tasks.to_string()).run();
    assert_eq!(out.code, 3, "{out}");
    rig
}

fn errors(rig: &Rig, args: &[&str]) -> Vec<Value> {
    let out = rig.call(["errors", "--json"]).args(args).run();
    assert_eq!((out.code, out.stderr.as_str()), (0, ""), "{out}");
    let json = out.json();
    assert_fits("errors", &json);
    json["errors"].as_array().unwrap().clone()
}

#[test]
fn errors_are_listed_with_what_to_do_about_them() {
    let rig = rig();
    insta::assert_snapshot!(rig.run(["errors"]), @"
       1×  2000-01-01T00:00:00Z  VALIDATION_FAILED · low · validation
          what  Context file `../../etc/passwd`: path is outside the workspace.
          next  Name regular files inside the working tree, below the size cap.
          like  err_0000000000_xxxxxx in run_0000000000_aaaaaa
       1×  2000-01-01T00:00:00Z  PROVIDER_ERROR · high · execution
          what  script ended: script has no turn 1 for label `bad` (agent `scout`); it has turns for the labels `good`
          next  Add the missing turn to the script, or record again.
          like  err_0000000000_xxxxxx in run_0000000000_aaaaaa
    --- stderr ---
    2 errors; `adjutant errors fixed err_0000000000_xxxxxx` ticks one off
    [exit 0]
    ");
    let found = errors(&rig, &[]);
    assert_eq!(found.len(), 2);
    let bad = found.iter().find(|error| error["context"]["task"] == "bad").unwrap();
    let id = bad["id"].as_str().unwrap();
    assert!(id.starts_with("err_") && id.len() == "err_1738326967_x1y2z3".len(), "{id}");
    assert_eq!(
        bad["trajectory"],
        json!({ "delegation_path": ["delegate", "scout"], "failed_at_depth": 1 })
    );
    assert_eq!((&bad["type"], &bad["fix_status"]), (&json!("execution"), &json!("unfixed")));
    assert_eq!(errors(&rig, &["latest"]), found, "the same whichever way it is asked for");
    assert_eq!(errors(&rig, &["--type", "validation"]).len(), 1);
    assert_eq!(errors(&rig, &["--type", "timeout"]), Vec::<Value>::new());
    assert_eq!(rig.run(["errors", "--type", "odd"]).code, 2);
}

#[test]
fn an_error_is_marked_as_fixed_by_an_event_of_its_run() {
    let rig = rig();
    let run = rig.only_run();
    let before = rig.run(["status", &run]).stdout;
    let id = errors(&rig, &[])[0]["id"].as_str().unwrap().to_owned();
    insta::assert_snapshot!(rig.run(["errors", "fixed", &id]).talk(), @"
        adjutant: err_0000000000_xxxxxx is fixed
        [exit 0]
    ");
    assert_eq!(rig.events(&run).last().unwrap(), &json!({ "type": "error_fixed", "id": id }));
    assert_eq!(errors(&rig, &[]).len(), 1);
    let all = errors(&rig, &["--all"]);
    assert_eq!((all.len(), &all[0]["fix_status"]), (2, &json!("fixed")));
    assert!(rig.run(["errors"]).stderr.contains("1 fixed not shown, --all shows them"));
    assert_eq!(rig.run(["status", &run]).stdout, before, "the run itself is as it was");
    let again = rig.run(["errors", "fixed", &id]);
    assert!(again.stderr.contains("was already fixed"), "{again}");
    assert_eq!(rig.events(&run).iter().filter(|event| event["type"] == "error_fixed").count(), 1);
    insta::assert_snapshot!(rig.run(["errors", "fixed", "err_1_abcdef"]), @"
        --- stderr ---
        adjutant: no run has the error err_1_abcdef
          `adjutant errors --all` lists them.
        [exit 2]
    ");
}

#[test]
fn the_errors_of_a_live_run_are_listed_but_cannot_be_marked_as_fixed() {
    let rig = signals::rig();
    let tasks = json!({ "tasks": [
        { "label": "slow", "prompt": "think" },
        { "label": "out", "prompt": "Look", "context": ["../../etc/passwd"] },
    ]});
    let mut run = rig.delegating(&["-"]).stdin(tasks.to_string()).start();
    run.wait_for("[slow] note: half of it is done");
    let id = errors(&rig, &[])[0]["id"].as_str().unwrap().to_owned();
    insta::assert_snapshot!(rig.run(["errors", "fixed", &id]), @"
        --- stderr ---
        adjutant: run_0000000000_aaaaaa is still running; only its own process may write to it
          `adjutant wait run_0000000000_aaaaaa` waits until it has ended; mark the error as fixed then.
        [exit 1]
    ");
    run.signal(Signal::INT);
    assert_eq!(run.finish().code, 130);
    assert_eq!(rig.run(["errors", "fixed", &id]).code, 0);
}

#[test]
fn errors_write_saves_all_errors_in_a_file() {
    let rig = rig();
    let file = rig.state().join("errors.json");
    assert!(!file.exists(), "nothing is a second truth unless asked for");
    let out = rig.run(["errors", "--write", "--json"]);
    assert_eq!(out.code, 0, "{out}");
    let kept: Value = serde_json::from_slice(&fs::read(&file).unwrap()).unwrap();
    assert_fits("errors", &kept);
    assert_eq!(kept, out.json());
}

#[test]
fn req_60_the_log_of_delegations_has_a_line_for_each_beginning_and_end() {
    let rig = rig();
    let out = rig.run(["log", "--delegations"]);
    assert_eq!(out.code, 0, "{out}");
    let lines: Vec<Value> = out.lines().inspect(|line| assert_fits("delegations", line)).collect();
    let said: Vec<(&str, &str)> = lines
        .iter()
        .map(|line| (line["child_story"].as_str().unwrap(), line["status"].as_str().unwrap()))
        .collect();
    for expected in
        [("good", "started"), ("good", "completed"), ("bad", "failed"), ("out", "failed")]
    {
        assert!(said.contains(&expected), "{expected:?} in {said:?}");
    }
    let good = lines.iter().find(|line| line["status"] == "completed").unwrap();
    let spent = ["tokens_in", "tokens_out", "success"].map(|name| good[name].clone());
    assert_eq!(spent, [json!(100), json!(10), json!(true)]);
    assert_eq!(good["parent_story"], "root");
}

/// The content has expired, and the remaining records say that the run cannot be resumed.
#[test]
fn an_interrupted_run_that_expired_is_not_resumable_and_keeps_its_costs() {
    let rig = signals::rig();
    let mut run = signals::hanging(&rig);
    run.wait_for("[quick] ✓ complete").signal(Signal::KILL);
    assert_eq!(run.finish().code, 128 + 9);
    let (run, cost) = (rig.only_run(), rig.run(["cost"]).stdout);
    let resume = rig.run(["status", "--json"]).json()["runs"][0]["resume"].clone();
    assert_eq!(resume, format!("adjutant resume {run}"));
    assert_eq!(errors(&rig, &[])[0]["code"], "INTERRUPTED");
    journal::age(&rig.run_folder(&run), &run);
    assert_eq!(rig.run(["prune", "--json"]).json()["expired"], json!([run]));
    let status = rig.run(["status"]);
    assert!(
        status.stdout.contains("! interrupted")
            && status.stdout.contains("\n  not resumable (expired)\n"),
        "{status}"
    );
    let json = rig.run(["status", &run, "--json"]).json();
    assert_fits("status", &json);
    assert_eq!(
        (&json["runs"][0]["resume"], &json["runs"][0]["expired"]),
        (&Value::Null, &json!(true))
    );
    let result = rig.run(["result"]);
    assert!(result.stdout.contains("not resumable (expired)"), "{result}");
    assert_eq!(rig.run(["cost"]).stdout, cost, "the bill stays");
    for view in ["tree", "result", "errors", "log"] {
        let out = rig.run([view, &run]);
        assert!(!out.stdout.contains("half of it is done"), "{view}: {out}");
        assert!(!out.stdout.is_empty(), "{view}: {out}");
    }
    let id = errors(&rig, &[])[0]["id"].as_str().unwrap().to_owned();
    let fixed = rig.run(["errors", "fixed", &id]);
    assert!(fixed.code == 1 && fixed.stderr.contains("not resumable (expired)"), "{fixed}");
}

#[test]
fn status_and_cost_of_a_session_exclude_other_sessions() {
    let rig = rig();
    let all = rig.run(["status", "latest", "--json"]).json();
    let good = all["runs"][0]["delegations"][0]["session_id"].as_str().unwrap().to_owned();
    let status = rig.run(["status", &good, "--json"]).json();
    assert_fits("status", &status);
    assert_eq!(status["runs"][0]["delegations"].as_array().unwrap().len(), 1);
    let text = rig.run(["status", &good]).stdout;
    assert!(text.contains("[good] ✓ complete") && !text.contains("[bad]"), "{text}");
    let cost = rig.run(["cost", &good, "--json"]).json();
    assert_fits("cost", &cost);
    assert_eq!(
        (cost["nodes"].as_array().unwrap().len(), &cost["total"]["usage"]["input"]),
        (1, &json!(100))
    );
}

/// Views only read files, so a process that writes them makes no difference.
#[test]
fn every_view_works_during_a_run_and_after_its_process_died() {
    let rig = signals::rig();
    let mut run = signals::hanging(&rig);
    run.wait_for("[quick] ✓ complete");
    let status = rig.run(["status", "latest", "--json"]).json();
    let slow = &status["runs"][0]["delegations"][0];
    assert_eq!((&slow["state"], &slow["activity"]), (&json!("running"), &json!("thinking")));
    let slow = slow["session_id"].as_str().unwrap().to_owned();
    let look = |state: &str| {
        for (schema, view, code) in [
            ("status", vec!["status", "latest"], 0),
            ("status", vec!["status", &slow], 0),
            ("tree", vec!["tree"], 0),
            ("result", vec!["result"], 3),
            ("transcript", vec!["transcript", &slow], 0),
            ("cost", vec!["cost"], 0),
            ("errors", vec!["errors"], 0),
        ] {
            let out = rig.call(&view).arg("--json").run();
            assert_eq!((out.code, out.stderr.as_str()), (code, ""), "{state} {view:?}: {out}");
            assert_fits(schema, &out.json());
            assert_eq!(rig.run(&view).code, code, "{state} {view:?}");
        }
        let shown = rig.run(["status", "--json"]).json()["runs"][0]["state"].clone();
        assert_eq!(shown, state);
    };
    look("running");
    run.signal(Signal::KILL);
    assert_eq!(run.finish().code, 128 + 9);
    look("interrupted");
}

#[test]
fn a_log_without_delegations_says_that_there_are_none() {
    let rig = Rig::with_script("[[turn]]\ntext = 'done'\n");
    let out = rig.call(["run", "Look.", "--yes", "--model", rig.model()]).run();
    assert_eq!(out.code, 0, "{out}");
    let out = rig.run(["log", "--delegations"]);
    assert_eq!((out.code, out.stdout.as_str()), (0, ""), "{out}");
    assert!(out.stderr.contains("delegated nothing"), "{out}");
}
