//! The examples print what their descriptions promise.

use std::process::Command;

/// Runs an example that cargo has built beside this test.
fn output_of(example: &str) -> String {
    let mut program = std::env::current_exe().unwrap();
    program.pop();
    program.set_file_name("examples");
    let output = Command::new(program.join(example)).current_dir("..").output().unwrap();
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{example}: {error}");
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn a_tool_of_the_program_is_called() {
    assert_eq!(output_of("custom_tool"), "The lamp costs 39 EUR\n");
}

#[test]
fn a_rule_of_the_program_decides_what_starts() {
    insta::assert_snapshot!(output_of("approval"), @"
    2 tasks: completed 
    3 tasks: refused Not approved: 3 tasks, at most 2.
    ");
}

#[test]
fn a_killed_run_continues() {
    let said = output_of("resume_after_crash");
    let (first, rest) = said.split_once('\n').unwrap();
    assert!(first.starts_with("killed in the second step of run_"), "{first}");
    assert_eq!(rest, "completed: step two is done\n");
}

#[test]
fn two_tasks_are_delegated() {
    let said = output_of("delegate");
    assert!(said.contains("one completed: one: "), "{said}");
    assert!(said.contains("two completed: two: "), "{said}");
}

#[test]
fn agents_write_in_workspaces_of_their_own() {
    assert_eq!(output_of("write"), "left completed: left.txt\nright completed: right.txt\n");
}
