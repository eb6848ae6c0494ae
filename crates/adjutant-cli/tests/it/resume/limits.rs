//! `resume` with changed limits.

use crate::support::rig::Rig;

const SCRIPT: &str = r#"
[[turn]]
turn = 1
usage = { input = 4000, output = 4000 }
[[turn.call]]
tool = "Note"
args = { content = "half of it" }

[[turn]]
turn = 2
text = "All of it."
usage = { input = 4200, output = 100 }
"#;

/// Delegates one task until its budget is used up, and returns the command that is recommended.
fn used_up(rig: &Rig) -> Vec<String> {
    let out = rig.delegate(&["-t", "look=Look", "--budget-tokens", "9000"]);
    assert_eq!(out.code, 3, "{out}");
    let (_, rest) = out.stdout.split_once("`adjutant ").unwrap_or_else(|| panic!("{out}"));
    let (command, _) = rest.split_once('`').unwrap_or_else(|| panic!("{out}"));
    command.split(' ').map(str::to_owned).collect()
}

#[test]
fn the_recommended_command_resumes_a_run_whose_budget_was_used_up() {
    let rig = Rig::with_script(SCRIPT);
    let command = used_up(&rig);
    assert_eq!(command[0], "resume");
    assert!(command.iter().any(|word| word == "--budget-tokens"), "{command:?}");

    let run = rig.only_run();
    let out = rig.run(["resume", &run]);
    assert_eq!(out.code, 3, "nothing is left of the budget: {out}");

    let out = rig.run(&command);
    assert_eq!(out.code, 0, "{out}");
    assert!(out.stdout.contains("All of it."), "{out}");
    let total = rig.run(["cost", "--json"]).json()["total"]["usage"].clone();
    assert_eq!(total["input"], 8_200, "what was spent before counts: {total}");
    let log = rig.run(["log"]).stdout;
    assert!(log.contains("budget_tokens_run="), "{log}");
}

#[test]
fn resume_refuses_other_limits_and_invalid_values() {
    let rig = Rig::with_script(SCRIPT);
    used_up(&rig);
    let run = rig.only_run();
    let mut told = Vec::new();
    for flags in [
        ["--set", "max_depth=2"],
        ["--set", "budget_usdd=2"],
        ["--set", "stall_s"],
        ["--set", "concurrency=0"],
        ["--budget-tokens", "-1"],
    ] {
        let out = rig.run([["resume", &run], flags].concat());
        assert_eq!(out.code, 2, "{flags:?}: {out}");
        told.push(out.stderr);
    }
    insta::assert_snapshot!(told.join(""), @"
    adjutant: --set max_depth: cannot be changed when a run is resumed; `resume` sets concurrency, concurrency_max, timeout_s, timeout_max_s, total_s, stall_s, budget_tokens, budget_tokens_run, budget_usd, approval_s
    adjutant: --set unknown policy key `budget_usdd`; did you mean `budget_usd`?
    adjutant: --set `stall_s` is not of the form key=value
    adjutant: --set concurrency: 0 is not allowed, the least is 1
    adjutant: --budget-tokens budget_tokens_run: -1 is negative
    ");
}

#[test]
fn a_new_timeout_on_resume_is_limited_by_the_new_maximum() {
    let rig = Rig::with_script("[[turn]]\ndelay_ms = 300000\ntext = 'late'\n");
    let short = ["--set", "timeout_s=1", "--set", "timeout_max_s=1"];
    let out = rig.delegate(&[&["-t", "look=Look"], &short[..]].concat());
    assert_eq!(out.code, 3, "{out}");
    rig.write("../script.toml", "[[turn]]\ntext = 'In time.'\n");
    let run = rig.only_run();
    let long = ["--set", "timeout_s=60", "--set", "timeout_max_s=60"];
    let out = rig.run([&["resume", &run], &long[..]].concat());
    assert_eq!(out.code, 0, "{out}");
    assert!(!out.stderr.contains("more than allowed"), "{out}");
    let log = rig.run(["log"]).stdout;
    assert!(log.contains("timeout_max_s=60"), "{log}");
}

#[test]
fn limits_for_a_run_with_nothing_to_resume_are_a_usage_error() {
    let rig = Rig::with_script(SCRIPT);
    let out = rig.delegate(&["-t", "look=Look", "--budget-tokens", "10"]);
    assert_eq!(out.code, 4, "{out}");
    let run = rig.only_run();
    let plain = rig.run(["resume", &run]);
    assert_eq!(plain.code, 4, "without a flag the result is shown again: {plain}");
    let mut told = Vec::new();
    for flags in [
        ["--budget-tokens", "5100"],
        ["--budget-usd", "2"],
        ["--set", "budget_tokens=5100"],
        ["--timeout", "60"],
        ["--model", "script:../script.toml"],
    ] {
        let out = rig.run([["resume", &run], flags].concat());
        assert_eq!((out.code, out.stdout.as_str()), (2, ""), "{flags:?}: {out}");
        told.push(out.stderr.replace(&run, "RUN"));
    }
    insta::assert_snapshot!(told.join(""), @"
    adjutant: nothing to resume: no task of RUN was started; repeat its command with --budget-tokens 5100
    adjutant: nothing to resume: no task of RUN was started; repeat its command with --budget-usd 2
    adjutant: nothing to resume: no task of RUN was started; repeat its command with --set budget_tokens=5100
    adjutant: nothing to resume: no task of RUN was started; repeat its command with --set timeout_s=60
    adjutant: nothing to resume: no task of RUN was started; repeat its command with --model script:../script.toml
    ");
}

#[test]
fn limits_for_a_completed_run_are_a_usage_error_that_names_what_works() {
    let rig = Rig::with_script("[[turn]]\ntext = 'Done.'\n");
    assert_eq!(rig.delegate(&["-t", "look=Look"]).code, 0);
    let run = rig.only_run();
    let out = rig.run(["resume", &run, "--budget-usd", "2"]);
    assert_eq!(out.code, 2, "{out}");
    insta::assert_snapshot!(out.stderr.replace(&run, "RUN"), @r#"
    adjutant: nothing to resume: the run ended completed and has nothing left to do
      `adjutant resume RUN` shows its result, `adjutant resume RUN --say` gives it more to do.
    "#);
    assert_eq!(rig.run(["resume", &run]).code, 0, "its result is shown again");
}
