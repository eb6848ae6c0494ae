//! `adjutant` without a command: what waits for a person in this directory, or how to begin.

use std::fs;

use rustix::process::Signal;

use crate::support::mcp_client::{Client, SCRIPT, task};
use crate::support::repository::Repo;
use crate::support::rig::{Output, Rig};
use crate::support::terminal::Terminal;

fn bare(rig: &Rig) -> Output {
    rig.run::<&str>([])
}

#[test]
fn without_any_run_adjutant_recommends_first_commands_and_creates_nothing() {
    let rig = Rig::new();
    insta::assert_snapshot!(bare(&rig), @r#"
        Nothing waits for you here. To begin:
          adjutant demo                           three subagents read this directory, without an API key
          adjutant init                           choose a model, check it, and write your configuration
          adjutant run "Why is the build slow?"   an agent works toward a goal and can delegate
          adjutant mcp install claude             let Claude Code delegate; other clients work too

        `adjutant doctor` checks your setup. `adjutant --help` lists all commands.
        --- stderr ---
        [exit 0]
    "#);
    assert!(!rig.state().exists());
}

#[test]
fn recommended_commands_repeat_the_home_flag() {
    let rig = Rig::new();
    let out = rig.run(["--home", "elsewhere"]);
    let lines: Vec<&str> = out.stdout.lines().filter(|line| line.starts_with("  ")).collect();
    assert_eq!((out.code, lines.len()), (0, 4), "{out}");
    assert!(lines.iter().all(|line| line.starts_with("  adjutant --home elsewhere ")), "{out}");
}

#[test]
fn commands_are_recommended_despite_a_damaged_state_directory() {
    let rig = Rig::new();
    let advice = bare(&rig).stdout;
    fs::write(rig.state(), "not a directory").unwrap();
    let out = bare(&rig);
    assert_eq!((out.code, out.stdout.as_str()), (0, advice.as_str()), "{out}");
    assert!(out.stderr.contains("ADJUTANT_HOME"), "{out}");

    fs::remove_file(rig.state()).unwrap();
    fs::create_dir_all(rig.state().join("runs/run_1735460684_a1b2c3")).unwrap();
    fs::write(rig.state().join("runs/run_1735460684_a1b2c3/journal.jsonl"), "nonsense\n").unwrap();
    fs::write(rig.state().join("registry.jsonl"), "nonsense\n").unwrap();
    let out = bare(&rig);
    assert_eq!((out.code, out.stdout.as_str()), (0, advice.as_str()), "{out}");
}

#[test]
fn an_interrupted_run_is_recommended_for_resume_only_in_its_own_directory() {
    let rig = Rig::with_script("[[turn]]\nlabel = \"slow\"\ntext = \"never\"\ndelay_ms = 300000\n");
    let mut run = rig.delegating(&["-t", "slow=Read everything"]).start();
    run.wait_for("[slow]");
    insta::assert_snapshot!(bare(&rig), @"
        1 run is in progress:
          adjutant watch run_0000000000_aaaaaa   slow

        `adjutant doctor` checks your setup. `adjutant --help` lists all commands.
        --- stderr ---
        [exit 0]
    ");
    run.signal(Signal::KILL);
    assert_eq!(run.finish().code, 128 + 9);
    insta::assert_snapshot!(bare(&rig), @"
        1 run was interrupted:
          adjutant resume run_0000000000_aaaaaa   slow

        `adjutant doctor` checks your setup. `adjutant --help` lists all commands.
        --- stderr ---
        [exit 0]
    ");
    let other = rig.path().join("other");
    fs::create_dir(&other).unwrap();
    let out = rig.call::<&str>([]).cwd(&other).run();
    assert!(out.stdout.starts_with("Nothing waits for you here."), "{out}");
}

#[test]
fn a_cancelled_run_is_recommended_for_resume_at_its_end_and_until_the_next_run() {
    let slow = "[[turn]]\nlabel = \"slow\"\ntext = \"never\"\ndelay_ms = 300000\n";
    let rig = Rig::with_script(&format!("{slow}[[turn]]\ntext = \"done\"\n"));
    let mut run = rig.delegating(&["-t", "slow=Read everything"]).start();
    run.wait_for("[slow] started").signal(Signal::INT);
    let out = run.finish();
    assert_eq!(out.code, 130, "{out}");
    let command =
        format!("\n  adjutant resume {}   continues what is unfinished\n", rig.only_run());
    assert!(out.stderr.ends_with(&command), "{out}");
    insta::assert_snapshot!(bare(&rig), @"
    The latest run ended before its work was done:
      adjutant resume run_0000000000_aaaaaa   slow

    `adjutant doctor` checks your setup. `adjutant --help` lists all commands.
    --- stderr ---
    [exit 0]
    ");
    assert_eq!(rig.delegate(&["-t", "quick=Read"]).code, 0);
    assert!(bare(&rig).stdout.starts_with("Nothing waits for you here."));
}

#[test]
fn the_start_page_breaks_no_word_on_a_narrow_terminal() {
    let slow = "[[turn]]\nlabel = \"slow\"\ntext = \"never\"\ndelay_ms = 300000\n";
    let rig = Rig::with_script(slow);
    let task = "a_label_that_needs_many_columns=Read";
    let mut run = rig.delegating(&["-t", "slow=Read", "-t", task]).start();
    run.wait_for("[slow] started").signal(Signal::KILL);
    assert_eq!(run.finish().code, 128 + 9);
    let mut terminal = Terminal::start(&rig, 60, &[], &[]);
    assert_eq!(terminal.finish(), 0);
    insta::assert_snapshot!(rig.redacted(&terminal.screen()), @"
    1 run was interrupted:
      adjutant resume run_0000000000_aaaaaa
          slow, a_label_that_needs_many_columns

    `adjutant doctor` checks your setup. `adjutant --help`
      lists all commands.
    ");
}

#[test]
fn unmerged_results_are_listed_until_they_are_merged_or_on_a_branch() {
    let repo = Repo::new();
    let ran = repo.ran(&["one", "two"]);
    assert!(bare(&repo.rig).stdout.starts_with("Nothing waits for you here."));
    repo.keep_lines(&ran, 0, &[(2, "of one")]);
    repo.keep_lines(&ran, 1, &[(15, "of two")]);
    insta::assert_snapshot!(bare(&repo.rig), @"
        Results that are not merged; `adjutant diff RUN` shows them:
          adjutant merge run_0000000000_aaaaaa   2 results: one, two

        `adjutant doctor` checks your setup. `adjutant --help` lists all commands.
        --- stderr ---
        [exit 0]
    ");
    assert_eq!(repo.rig.run(["merge", "one"]).code, 0);
    let out = bare(&repo.rig);
    assert!(out.stdout.contains("1 result: two\n"), "{out}");
    assert_eq!(repo.rig.run(["merge", "two", "--as", "branch"]).code, 0);
    let out = bare(&repo.rig);
    assert!(out.stdout.starts_with("Nothing waits for you here."), "{out}");
}

#[test]
fn a_call_that_waits_for_approval_is_listed_first() {
    let rig = Rig::with_script(SCRIPT);
    let mut client = Client::start(&rig, &[], &[]);
    client.initialize("tester", "2025-11-25");
    assert_eq!(client.data("Delegate", task("a"))["state"], "awaiting_approval");
    insta::assert_snapshot!(bare(&rig), @"
        1 call waits for your approval:
          adjutant approvals   show what is asked and how to answer

        1 run is in progress:
          adjutant watch run_0000000000_aaaaaa   a

        `adjutant doctor` checks your setup. `adjutant --help` lists all commands.
        --- stderr ---
        [exit 0]
    ");
}

#[test]
fn json_needs_a_command() {
    insta::assert_snapshot!(Rig::new().run(["--json"]), @"
        --- stderr ---
        adjutant: --json needs a command
          `adjutant status --json` lists the runs.
        [exit 2]
    ");
}
