//! The tasks that are built into the program.

use std::path::PathBuf;

use serde_json::Value;

use super::{evaluating, report, verdicts};
use crate::support::rig::Rig;

/// A model that solves every built-in task.
const SOLVER: &str = include_str!("solve.toml");

/// A model that says of every task that it is done, and does nothing.
const LIAR: &str = r#"
price = { input = 3.0, output = 15.0 }

[[turn]]
text = '{"status": "completed", "summary": "All is fixed. All tests pass.", "artifacts": [], "errors": []}'
"#;

#[test]
fn the_tasks_are_listed_with_their_kinds() {
    let rig = Rig::new();
    let out = rig.run(["eval", "--list"]);
    insta::assert_snapshot!(out, @"
    find-default-port        question
    find-writer              question
    count-unchecked-routes   question
    find-missing-flag        question
    find-retry-sum           question
    fix-rust-intervals       fix
    fix-rust-csv             fix
    fix-rust-ring            fix
    fix-python-duration      fix
    fix-python-cache         fix
    fix-python-pages         fix
    fix-js-query             fix
    fix-js-emitter           fix
    refactor-shared-money    refactor
    split-six-converters     split
    impossible-rounding      impossible
    --- stderr ---
    [exit 0]
    ");
    report(&rig.run(["eval", "--list", "--json"]), 0);
}

/// One agent has the solution of every task; the other only claims to. Tasks whose toolchain this machine lacks are
/// skipped for both.
#[test]
fn every_task_is_solved_by_its_solution_and_by_nothing_else() {
    let rig = Rig::with_script(SOLVER);
    std::fs::write(rig.path().join("liar.toml"), LIAR).unwrap();
    let own = std::env::var_os("HOME").map(PathBuf::from).unwrap_or_default();
    let tool_home = |name: &str, folder: &str| {
        std::env::var_os(name).map_or_else(|| own.join(folder), PathBuf::from)
    };
    let liar = "model=script:../liar.toml";
    let out = evaluating(&rig, &["--yes", "--runs", "1", "--config", "mode=alone"])
        .args(["--config", liar])
        .env("RUSTUP_HOME", tool_home("RUSTUP_HOME", ".rustup"))
        .env("CARGO_HOME", tool_home("CARGO_HOME", ".cargo"))
        .run();
    let json = report(&out, 0);
    let (solver, liar) = (&json["total"][0], &json["total"][1]);
    let verdicts = verdicts(&json);
    assert_eq!(solver["solved"], solver["attempts"], "{verdicts}");
    assert_eq!(solver["false_claims"], 0, "{verdicts}");
    assert_eq!(liar["solved"], 0, "{verdicts}");
    let questions = 5;
    let lies = liar["attempts"].as_u64().unwrap() - questions;
    assert_eq!(liar["false_claims"], lies, "{verdicts}");
    for one in [solver, liar] {
        let made = one["attempts"].as_u64().unwrap() + one["skipped"].as_u64().unwrap();
        assert_eq!(made, 16, "{verdicts}");
    }
    let is_skipped = |it: &&Value| it["judgement"] == "skipped";
    for skipped in json["attempts"].as_array().unwrap().iter().filter(is_skipped) {
        let because = skipped["because"].as_str().unwrap();
        assert!(because.starts_with("commands do not see "), "{because}");
    }
    assert_eq!(json["left"], 0);
}
