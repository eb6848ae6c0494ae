//! The hidden part of the binary that becomes the sandbox.

use std::process::Command;

fn adjutant(arguments: &[&str]) -> (Option<i32>, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_adjutant")).args(arguments).output().unwrap();
    let said = [output.stdout, output.stderr].concat();
    (output.status.code(), String::from_utf8_lossy(&said).into_owned())
}

#[test]
fn the_binary_acts_as_sandbox_helper_before_parsing_arguments() {
    let said = "adjutant sandbox: unknown role\n".to_owned();
    assert_eq!(adjutant(&["__sandbox", "no-such-role"]), (Some(125), said));
}

#[test]
fn the_helper_is_not_a_command_for_people() {
    let (code, said) = adjutant(&["--help"]);
    assert_eq!(code, Some(0));
    assert!(!said.contains("__sandbox"), "{said}");
}
