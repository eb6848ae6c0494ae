//! Damaged or truncated journals, journals of newer versions, and unusable state directories. Readable runs are still
//! shown.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;

use crate::delegate;
use crate::support::journal;
use crate::support::rig::Rig;

const VIEWS: [&str; 6] = ["status", "tree", "result", "transcript", "cost", "log"];

/// A place with a run, its id and its journal, and a second run that must stay readable.
fn rig() -> (Rig, String, PathBuf) {
    let rig = delegate::rig();
    assert_eq!(rig.delegate(&["-t", "echo=first"]).code, 0);
    let run = rig.only_run();
    assert_eq!(rig.delegate(&["-t", "echo=second"]).code, 0);
    let journal = rig.run_folder(&run).join("journal.jsonl");
    (rig, run, journal)
}

#[test]
fn damage_in_the_middle_is_reported_with_its_line_and_other_runs_are_still_listed() {
    let (rig, run, journal) = rig();
    journal::damage(&journal, 3);
    let out = rig.run(["status"]);
    assert_eq!((out.code, out.stdout.lines().count()), (0, 2), "{out}");
    let said = format!("adjutant: {run}: the journal cannot be read: journal is damaged at line 3");
    assert!(out.stderr.starts_with(&said), "{out}");
    let before = fs::read(&journal).unwrap();
    for view in VIEWS {
        let out = rig.run([view, &run]);
        assert!(out.stderr.starts_with(&said), "{view}: {out}");
        assert_eq!(out.code, 1, "{view}");
        let other = rig.runs().into_iter().find(|other| *other != run).unwrap();
        assert_eq!(rig.run([view, &other]).code, 0, "{view}");
    }
    assert_eq!(rig.run(["prune"]).code, 0);
    assert_eq!(fs::read(&journal).unwrap(), before, "looking at it changed it");
}

#[test]
fn a_torn_end_is_reported_and_the_rest_is_shown() {
    let (rig, run, journal) = rig();
    let whole = fs::read(&journal).unwrap();
    // The root's end and the run's are one decision and count together.
    let last: usize = journal::lines(&whole).iter().rev().take(2).map(|line| line.len()).sum();
    fs::write(&journal, &whole[..whole.len() - 7]).unwrap();
    let said = format!(
        "adjutant: {run}: the last {} bytes of the journal were incomplete and are ignored\n",
        last - 7
    );
    for view in VIEWS {
        let out = rig.run([view, &run]);
        assert!(out.stderr.starts_with(&said), "{view}: {out}");
        assert!(!out.stdout.is_empty(), "{view}");
    }
    // What was lost is the last record, which said that the run had ended.
    assert_eq!(rig.run(["status", &run, "--json"]).json()["runs"][0]["state"], "interrupted");
    assert!(rig.run(["result", &run]).stdout.contains("> You said: first"));
    assert!(rig.run(["status"]).stderr == said);
}

#[test]
fn a_journal_from_a_newer_version_is_refused_by_name() {
    let (rig, run, journal) = rig();
    journal::from_the_future(&journal, &run);
    for view in VIEWS {
        let out = rig.run([view, &run]);
        let said = format!(
            "adjutant: {run}: the journal cannot be read: journal format 2 is newer than this adjutant understands (1); read it with the adjutant that wrote it, or a newer one\n"
        );
        assert_eq!((out.stderr, out.code), (said, 1), "{view}");
    }
    assert_eq!(rig.run(["status"]).stdout.lines().count(), 2);
}

#[test]
fn a_run_that_died_before_its_first_record_is_named() {
    let (rig, run, journal) = rig();
    fs::write(&journal, "").unwrap();
    for view in ["status", "tree", "result", "transcript", "cost"] {
        let out = rig.run([view, &run]);
        assert_eq!(out.code, 1, "{view}: {out}");
        let said =
            format!("adjutant: {run}: nothing is recorded: the run died before its first step\n");
        assert_eq!(out.stderr, said, "{view}");
    }
    let list = rig.run(["status"]);
    assert!(list.stderr.contains(&run) && list.stdout.lines().count() == 2, "{list}");
}

#[test]
fn a_run_without_a_journal_is_named() {
    let (rig, run, journal) = rig();
    fs::remove_file(journal).unwrap();
    let out = rig.run(["tree", &run]);
    insta::assert_snapshot!(out, @"
        --- stderr ---
        adjutant: run_0000000000_aaaaaa: the journal cannot be read: cannot open $PLACE/state/runs/run_0000000000_aaaaaa/journal.jsonl: No such file or directory (os error 2)
        [exit 1]
    ");
    assert_eq!(rig.run(["status"]).stdout.lines().count(), 2);
}

#[test]
fn unknown_files_in_the_state_directory_are_ignored() {
    let (rig, ..) = rig();
    fs::write(rig.state().join("runs/notes.txt"), "mine").unwrap();
    fs::create_dir(rig.state().join("runs/run_x")).unwrap();
    let out = rig.run(["status"]);
    assert_eq!((out.code, out.stderr.as_str(), out.stdout.lines().count()), (0, "", 3));
}

/// The tests may run as root, whom no permission stops. A file where a directory should be fails
/// for everyone, at the same system calls.
#[test]
fn a_state_directory_that_cannot_be_created_is_named_and_nothing_runs() {
    let rig = delegate::rig();
    fs::write(rig.path().join("file"), "").unwrap();
    for command in ["status", "demo"] {
        let out = rig.run([command, "--home", "../file"]);
        insta::allow_duplicates! { insta::assert_snapshot!(out, @"
            --- stderr ---
            adjutant: cannot create ../file: not a directory
              Set ADJUTANT_HOME, or use --home DIR, to keep runs elsewhere.
            [exit 1]
        "); }
    }
    insta::assert_snapshot!(rig.delegate(&["-t", "a=x", "--home", "../file/below"]), @"
        --- stderr ---
        adjutant: cannot create ../file/below: not a directory
          Set ADJUTANT_HOME, or use --home DIR, to keep runs elsewhere.
        [exit 1]
    ");
    insta::assert_snapshot!(rig.delegate(&["-t", "a=x", "--home", "/proc/adjutant"]), @"
        --- stderr ---
        adjutant: cannot create /proc/adjutant: No such file or directory (os error 2)
          Set ADJUTANT_HOME, or use --home DIR, to keep runs elsewhere.
        [exit 1]
    ");
    assert_eq!(fs::read(rig.path().join("file")).unwrap(), b"");
}

#[test]
fn a_run_folder_that_cannot_be_created_ends_the_command_before_any_model_call() {
    let rig = delegate::rig();
    fs::create_dir(rig.state()).unwrap();
    fs::set_permissions(rig.state(), fs::Permissions::from_mode(0o700)).unwrap();
    fs::write(rig.state().join("runs"), "").unwrap();
    insta::assert_snapshot!(rig.delegate(&["-t", "a=x"]), @"
        --- stderr ---
        adjutant: cannot create $PLACE/state/runs: File exists (os error 17)
          Set ADJUTANT_HOME, or use --home DIR, to keep runs elsewhere.
        [exit 1]
    ");
}

#[test]
fn a_state_directory_that_users_share_is_refused() {
    let rig = delegate::rig();
    fs::create_dir(rig.state()).unwrap();
    fs::set_permissions(rig.state(), fs::Permissions::from_mode(0o1777)).unwrap();
    insta::assert_snapshot!(rig.delegate(&["-t", "a=x"]), @"
        --- stderr ---
        adjutant: $PLACE/state is a directory that users share (mode 1777); name one of your own, such as $PLACE/state/adjutant
          Set ADJUTANT_HOME, or use --home DIR, to keep runs elsewhere.
        [exit 1]
    ");
    assert_eq!(rig.run(["status"]).code, 1);
    let own = rig.state().join("adjutant");
    assert_eq!(rig.call(["status", "--home"]).arg(own).run().code, 0, "the advice works");
}

#[test]
fn without_a_home_directory_the_error_names_the_options() {
    let rig = Rig::new();
    let mut call = rig.call(["status"]);
    for name in ["HOME", "ADJUTANT_HOME", "XDG_STATE_HOME", "XDG_CONFIG_HOME"] {
        call = call.env_remove(name);
    }
    insta::assert_snapshot!(call.run(), @"
        --- stderr ---
        adjutant: no state directory: HOME is not set
          Set ADJUTANT_HOME, or use --home DIR.
        [exit 2]
    ");
}

#[test]
fn the_state_directory_follows_the_xdg_variables() {
    let rig = delegate::rig();
    let call = || rig.delegating(&["-t", "a=x"]).env_remove("ADJUTANT_HOME");
    assert_eq!(call().run().code, 0);
    assert!(rig.home().join(".local/state/adjutant/runs").is_dir());
    assert_eq!(call().env("XDG_STATE_HOME", rig.path().join("xdg")).run().code, 0);
    assert!(rig.path().join("xdg/adjutant/runs").is_dir());
}
