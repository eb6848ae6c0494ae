//! The bench stays honest: its parts that need no release binary are run in miniature.
//!
//! Nothing here asks whether a bar holds: this is an unoptimised build on a busy machine.
#![expect(clippy::unwrap_used, reason = "a bench that cannot be run fails the test")]

use std::process::{Command, Output};

use serde_json::Value;

fn bench(args: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_adjutant-bench"));
    command.args(args).env_remove("ADJUTANT_RESTATE_SERVER").output().unwrap()
}

/// Runs a group in miniature and returns its rows.
fn rows(group: &str) -> Vec<Value> {
    let output = bench(&["--quick", "--json", "--filter", group]);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(matches!(output.status.code(), Some(0 | 1)), "{errors}");
    let table: Value = serde_json::from_slice(&output.stdout).unwrap();
    let holds = table["holds"].as_bool().unwrap();
    assert_eq!(output.status.success(), holds, "the exit code says whether every bar holds");
    let groups = table["groups"].as_array().unwrap();
    assert_eq!(groups.len(), 1, "{table}");
    groups[0]["rows"].as_array().unwrap().clone()
}

fn bars(rows: &[Value]) -> Vec<(&str, &str)> {
    let barred = rows.iter().filter(|row| row["holds"].is_boolean());
    barred.map(|row| (row["what"].as_str().unwrap(), row["bar"].as_str().unwrap())).collect()
}

#[test]
fn the_core_group_measures_every_limit() {
    let rows = rows("core");
    let bars = bars(&rows);
    assert_eq!(bars.len(), 12, "{bars:?}");
    assert_eq!(
        bars.iter().filter(|(what, bar)| what.contains("live") && *bar == "≤ 10 µs").count(),
        6
    );
    assert!(bars.contains(&("parse 1000 markers", "≤ 2 ms")));
    assert!(bars.contains(&("validate a typical return", "≤ 50 µs")));
    assert!(bars.contains(&("update a TODO.md of 50 tasks", "≤ 20 ms")));
}

#[test]
fn the_store_group_compares_appends_with_the_bare_disk() {
    let rows = rows("store");
    let bars = bars(&rows);
    assert!(bars.contains(&("synced append against a bare one, p50", "≤ 1.5×")), "{bars:?}");
    assert!(bars.contains(&("records per sync, 8 children", "> 2")), "{bars:?}");
    assert!(bars.iter().any(|(what, bar)| what.starts_with("read") && *bar == "≤ 300 ms"));
}

#[test]
fn the_text_table_has_the_rows_of_the_json_table() {
    let output = bench(&["--quick", "--filter", "core"]);
    let text = String::from_utf8(output.stdout).unwrap();
    let first = text.lines().next().unwrap();
    assert_eq!(first.split_whitespace().collect::<Vec<_>>(), ["what", "measured", "bar", "holds"]);
    assert!(text.contains("validate a typical return"), "{text}");
}

#[test]
fn without_a_server_the_cluster_group_says_how_to_name_one() {
    let rows = rows("cluster");
    assert_eq!(rows.len(), 1, "{rows:?}");
    assert_eq!(rows[0]["measured"], "not measured");
    assert!(rows[0]["note"].as_str().unwrap().contains("ADJUTANT_RESTATE_SERVER"), "{rows:?}");
}

#[test]
fn an_unknown_flag_is_named() {
    let output = bench(&["--fast"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&output.stderr).contains("--fast"));
}
