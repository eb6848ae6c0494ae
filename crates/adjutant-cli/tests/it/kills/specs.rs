//! Kills a change of a task at every step. Afterwards every command shows both task files in the same state.

use std::fs;
use std::process::Stdio;

use serde_json::Value;

use super::cast::{Inject, under};
use super::sweep::has_strace;
use super::tell;
use crate::support::rig::{BINARY, Rig};

/// The system calls that put the files in their places and remove what was only for that.
const CALLS: [&str; 5] = ["write", "fdatasync", "fsync", "/^rename", "/^unlink"];

/// What reads the files first after the kill, one of them in turn.
const READERS: [&[&str]; 3] = [
    &["task", "show", "1", "--json"],
    &["task", "list", "--json"],
    &["task", "set", "1", "blocked", "--reason", "x"],
];

/// Reads the status of the task from both files as a program would that knows nothing of the journal.
fn plain(rig: &Rig) -> (String, String) {
    let read =
        |name: &str| fs::read_to_string(rig.work().join(".adjutant/specs").join(name)).unwrap();
    let (todo, state) = (read("TODO.md"), read("state.json"));
    let marker = todo.split('[').nth(1).and_then(|rest| rest.split(']').next()).unwrap();
    let state: Value = serde_json::from_str(&state).unwrap();
    let status = state["active_projects"][0]["status"].as_str().unwrap();
    (marker.to_lowercase().replace(' ', "_"), status.to_owned())
}

#[test]
fn after_a_kill_every_command_shows_both_files_in_one_state() {
    if !has_strace() {
        tell("NOT CHECKED: there is no strace here, so no change of a task was killed");
        return;
    }
    let (mut kills, mut apart) = (0, 0);
    for call in CALLS {
        for nth in 1.. {
            let rig = Rig::new();
            assert_eq!(rig.run(["task", "add", "Fix it"]).code, 0);
            let mut command = under(Some(Inject { call, nth }), BINARY.as_ref());
            command.args(["task", "set", "1", "in_progress"]).env_clear().envs(rig.environment());
            command.env("PATH", std::env::var_os("PATH").unwrap()).current_dir(rig.work());
            command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
            if command.status().unwrap().success() {
                // So many of these calls are not made.
                break;
            }
            kills += 1;
            let (todo, state) = plain(&rig);
            apart += u32::from(todo != state);
            let reader = READERS[usize::try_from(nth).unwrap() % READERS.len()];
            let out = rig.run(reader);
            assert_eq!(out.code, 0, "{call} {nth}: {out}");
            if reader.contains(&"--json") {
                let json = out.json();
                assert_eq!(json["disagreements"], Value::Array(Vec::new()), "{call} {nth}: {out}");
            }
            let (todo, state) = plain(&rig);
            assert_eq!(todo, state, "{call} {nth}: {out}");
        }
    }
    tell(&format!(
        "{kills} kills of a change of a task; the files were apart {apart} times until the next command"
    ));
    assert!(kills > 10, "only {kills} kills");
}
