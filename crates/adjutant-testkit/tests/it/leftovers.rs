//! The program that CI runs tests under, which fails when they leave processes behind.

use std::process::{Command, Output};

fn under(script: &str) -> (Option<i32>, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_no-leftovers"));
    let Output { status, stdout, stderr } = command.args(["sh", "-c", script]).output().unwrap();
    assert_eq!(stdout, b"");
    (status.code(), String::from_utf8(stderr).unwrap())
}

#[test]
fn a_command_that_leaves_nothing_keeps_its_exit_code() {
    assert_eq!(under("sleep 0 & exit 0"), (Some(0), String::new()));
    assert_eq!(under("exit 7"), (Some(7), String::new()));
    assert_eq!(under("kill -9 $$"), (Some(137), String::new()));
}

#[test]
fn a_process_that_outlives_the_command_fails_it_and_is_killed() {
    // In a session of its own, without an environment, orphaned: nothing but its ancestry tells whose it is.
    let script = "env -i setsid sh -c 'sleep 1234 & exec sleep 1234' >/dev/null 2>&1 & ";
    let (code, said) = under(script);
    assert_eq!(code, Some(1), "{said}");
    let first = "no-leftovers: 2 still running after `sh`, killed now:";
    assert_eq!(said.lines().next(), Some(first), "{said}");
    let pids: Vec<&str> =
        said.lines().skip(1).filter_map(|it| it.split_whitespace().next()).collect();
    assert_eq!(said.matches("sleep 1234").count(), 2, "{said}");
    for pid in pids {
        assert!(!std::path::Path::new("/proc").join(pid).exists(), "{pid} lives on");
    }
}

#[test]
fn without_a_command_the_program_prints_its_usage() {
    let output = Command::new(env!("CARGO_BIN_EXE_no-leftovers")).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&output.stderr).starts_with("usage: no-leftovers"));
}
