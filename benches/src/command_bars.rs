//! The bar of nested delegation: what three levels of delegation add to the time of a command.

use std::ffi::OsString;
use std::fs;

use serde_json::json;
use tempfile::TempDir;

use crate::Failure;
use crate::sample::{Plan, Spread};
use crate::spawn::{Binary, target_dir};
use crate::table::{FINE_MILLIS, Row};

/// Rounds; the difference of two processes needs more of them than either alone.
const ROUNDS: usize = 31;

/// The command, and who works for whom below it.
const LINE: [&str; 4] = ["down", "researcher", "specialist", "helper"];

const ADDS: &str = "a command whose researcher, specialist and helper each answer, less the same command alone; syncs \
and transcripts included";

/// Measures what a three-level delegation adds to a command.
pub(crate) fn measure_three_levels(plan: &Plan, binary: &Binary) -> Result<Row, Failure> {
    let dir = TempDir::new_in(target_dir()?)?;
    let commands = dir.path().join(".adjutant/commands");
    fs::create_dir_all(&commands)?;
    fs::write(commands.join("down.md"), "---\ndescription: Hands work down.\n---\nDo it.\n")?;
    for (name, line) in [("alone", &LINE[..1]), ("three", &LINE[..])] {
        fs::write(dir.path().join(format!("{name}.json")), script(line))?;
    }
    let mut round = 0;
    let mut cpu_ms = |name: &str| -> Result<f64, Failure> {
        round += 1;
        let model = format!("script:{name}.json");
        let home = format!("home_{round}");
        let args = ["run", "/down", "--model", &model, "--home", &home].map(OsString::from);
        Ok(binary.run(dir.path(), &args)?.cpu_ms)
    };
    let mut added = Vec::new();
    for _ in 0..plan.pick(ROUNDS, 2) {
        let alone = cpu_ms("alone")?;
        added.push(cpu_ms("three")? - alone);
    }
    let what = "a three-level delegation adds, CPU";
    Ok(Row::at_most(what, Spread::of(added), 3.0, FINE_MILLIS).note(ADDS))
}

/// Returns a script in which each agent delegates to the next level and then reports.
fn script(line: &[&str]) -> String {
    let answer = json!({ "status": "completed", "summary": "It is done. It is here.",
        "artifacts": [], "errors": [] });
    let mut turns = Vec::new();
    for (at, agent) in line.iter().enumerate() {
        if let Some(below) = line.get(at + 1) {
            let call = json!({ "tool": "Task", "args": { "agent": below, "prompt": "Go on." } });
            turns.push(json!({ "agent": agent, "call": [call] }));
        }
        turns.push(json!({ "agent": agent, "text": answer.to_string() }));
    }
    json!({ "turn": turns }).to_string()
}
