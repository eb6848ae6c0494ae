//! Tests of `adjutant eval`: scripted agents that solve tasks, fail at them and lie about them.

mod built_in;
mod own_tasks;
mod record;

use crate::support::rig::{Call, Output, Rig};
use crate::support::schema::assert_fits;

/// A folder of tasks in a rig, each with these files.
pub(crate) fn rig(script: &str, tasks: &[(&str, &[(&str, &str)])]) -> Rig {
    let rig = Rig::with_script(script);
    for (task, files) in tasks {
        for (path, text) in *files {
            rig.write(&format!("tasks/{task}/{path}"), text);
        }
    }
    rig
}

/// Prepares an evaluation of the tasks in the rig.
pub(crate) fn evaluating<'rig>(rig: &'rig Rig, flags: &[&str]) -> Call<'rig> {
    let path = std::env::var_os("PATH").unwrap();
    let args = ["eval", "--json", "--model", rig.model()];
    rig.call(args).args(flags).env("PATH", path)
}

/// Evaluates the tasks in the rig once without asking; every attempt must be made.
#[track_caller]
pub(crate) fn evaluate(rig: &Rig, flags: &[&str]) -> serde_json::Value {
    let out = evaluating(rig, &["--tasks", "tasks", "--runs", "1", "--yes"]).args(flags).run();
    report(&out, 0)
}

/// The report that was printed.
#[track_caller]
pub(crate) fn report(out: &Output, code: i32) -> serde_json::Value {
    assert_eq!(out.code, code, "{out}");
    let json = out.json();
    assert_fits("eval", &json);
    json
}

/// What each attempt came to, one per line.
pub(crate) fn verdicts(report: &serde_json::Value) -> String {
    let attempts = report["attempts"].as_array().unwrap().iter();
    let line = |it: &serde_json::Value| {
        let text = |name: &str| it[name].as_str().unwrap_or("no").to_owned();
        let claim = text("false_claim");
        format!(
            "{}: {}, {}, false claim: {claim}",
            text("task"),
            text("judgement"),
            text("because")
        )
    };
    attempts.map(line).collect::<Vec<_>>().join("\n")
}
