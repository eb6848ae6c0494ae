//! The state directory: its ownership and permissions, and how runs are found in it.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

use adjutant_core::RunId;
use adjutant_store::{JournalPosition, StateDir, StateDirError};

use crate::fixture::{StoreFixture, chain, facts, mode_of, run_id, session};

#[test]
fn a_state_directory_is_created_with_its_parents() {
    let fixture = StoreFixture::new();
    let path = fixture.dir.path().join("a/b/c");
    StateDir::open(&path).unwrap();
    StateDir::open(&path).expect("it may exist");
    for folder in ["a", "a/b", "a/b/c", "a/b/c/runs"] {
        assert_eq!(mode_of(&fixture.dir.path().join(folder)), 0o700, "{folder}");
    }
}

#[test]
fn a_directory_shared_like_tmp_is_refused_and_left_unchanged() {
    let fixture = StoreFixture::new();
    let path = fixture.dir.path().join("shared");
    fs::create_dir(&path).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o1777)).unwrap();
    let error = StateDir::open(&path).unwrap_err();
    insta::assert_snapshot!(fixture.redact(&error.to_string()), @"$WORK/shared is a directory that users share (mode 1777); name one of your own, such as $WORK/shared/adjutant");
    assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o7777, 0o1777);
}

#[test]
fn a_directory_that_others_can_read_or_write_is_made_private_once() {
    let fixture = StoreFixture::new();
    let path = fixture.dir.path().join("open");
    fs::create_dir_all(path.join("runs")).unwrap();
    for mode in [0o755, 0o750, 0o701, 0o744, 0o775, 0o702, 0o777] {
        for folder in [&path, &path.join("runs")] {
            fs::set_permissions(folder, fs::Permissions::from_mode(mode)).unwrap();
        }
        assert_eq!(StateDir::open(&path).unwrap().previous_mode(), Some(mode), "{mode:o}");
        assert_eq!((mode_of(&path), mode_of(&path.join("runs"))), (0o700, 0o700));
        assert_eq!(StateDir::open(&path).unwrap().previous_mode(), None, "{mode:o}");
    }
}

#[test]
fn a_directory_of_another_user_is_refused() {
    let fixture = StoreFixture::new();
    let path = fixture.dir.path().join("theirs");
    fs::create_dir(&path).unwrap();
    if std::os::unix::fs::chown(&path, Some(12345), None).is_err() {
        return; // Only root can give a folder away.
    }
    fs::set_permissions(&path, fs::Permissions::from_mode(0o700)).unwrap();
    let error = StateDir::open(&path).unwrap_err();
    assert!(matches!(error, StateDirError::NotOurs { owner: 12345, .. }), "{error}");
    let us = rustix::process::geteuid().as_raw();
    assert!(error.to_string().contains(&format!("`chown -R {us} ")), "{error}");
}

#[test]
fn a_file_at_the_path_of_the_state_directory_is_reported() {
    let fixture = StoreFixture::new();
    let path = fixture.dir.path().join("file");
    fs::write(&path, "").unwrap();
    let error = StateDir::open(&path).unwrap_err();
    insta::assert_snapshot!(fixture.redact(&chain(&error)), @"cannot create $WORK/file: not a directory");
}

#[test]
fn creating_a_run_with_an_existing_id_fails() {
    let fixture = StoreFixture::new();
    fixture.home.create_run(run_id(0)).unwrap();
    let error = fixture.home.create_run(run_id(0)).unwrap_err();
    assert!(matches!(error, StateDirError::RunExists(id) if id == run_id(0)));
    insta::assert_snapshot!(error, @"run_1735460684_a1b2c3 exists already");
}

#[test]
fn runs_are_listed_newest_first() {
    let fixture = StoreFixture::new();
    for nth in [3, 1, 2] {
        fixture.home.create_run(run_id(nth)).unwrap();
    }
    fs::create_dir(fixture.dir.path().join("state/runs/lost+found")).unwrap();
    assert_eq!(fixture.home.list_runs().unwrap(), [run_id(3), run_id(2), run_id(1)]);
}

fn find(fixture: &StoreFixture, text: &str) -> String {
    match fixture.home.find(text) {
        Ok(run) => run.id().to_string(),
        Err(error) => format!("error: {error}"),
    }
}

#[test]
fn a_run_is_found_by_id_by_prefix_and_as_latest() {
    let fixture = StoreFixture::new();
    assert_eq!(find(&fixture, "latest"), "error: there are no runs yet");
    for stamp in [1_735_460_684, 1_735_460_700, 1_800_000_000] {
        let run = fixture.home.create_run(RunId::new(stamp, [0; 6])).unwrap();
        fs::write(run.journal_path(), "begun").unwrap();
    }
    // It has no records and no live process, so it is not the latest run.
    fixture.home.create_run(RunId::new(1_900_000_000, [0; 6])).unwrap();
    let asked = [
        "latest",
        "run_1735460684_aaaaaa",
        "run_18",
        "18",
        "17354606",
        "173546",
        "run_",
        "",
        "21",
        "run_1735460684_zzzzzz",
        "../runs",
    ];
    let answers: Vec<String> =
        asked.iter().map(|text| format!("`{text}` -> {}", find(&fixture, text))).collect();
    insta::assert_snapshot!(answers.join("\n"), @r"
    `latest` -> run_1800000000_aaaaaa
    `run_1735460684_aaaaaa` -> run_1735460684_aaaaaa
    `run_18` -> run_1800000000_aaaaaa
    `18` -> run_1800000000_aaaaaa
    `17354606` -> run_1735460684_aaaaaa
    `173546` -> error: `173546` matches 2 runs: run_1735460700_aaaaaa, run_1735460684_aaaaaa
    `run_` -> error: `run_` matches 4 runs: run_1900000000_aaaaaa, run_1800000000_aaaaaa, run_1735460700_aaaaaa, run_1735460684_aaaaaa
    `` -> error: there is no run ``
    `21` -> error: there is no run `21`
    `run_1735460684_zzzzzz` -> error: there is no run `run_1735460684_zzzzzz`
    `../runs` -> error: there is no run `../runs`
    ");
}

#[test]
fn writing_a_projection_again_replaces_it() {
    let fixture = StoreFixture::new();
    let run = fixture.home.create_run(run_id(0)).unwrap();
    run.write_scratch(session(), b"first\n").unwrap();
    run.write_scratch(session(), b"first\nsecond\n").unwrap();
    assert_eq!(fs::read_to_string(run.scratch_path(session())).unwrap(), "first\nsecond\n");
    run.write_transcript(session(), b"{\"long\":\"one\"}").unwrap();
    run.write_transcript(session(), b"{}").unwrap();
    assert_eq!(fs::read_to_string(run.transcript_path(session())).unwrap(), "{}");
    let names = fs::read_dir(run.path().join("transcripts")).unwrap().count();
    assert_eq!(names, 1, "no temporary file is left");
}

/// Creates every kind of file and asserts that all of them are private.
fn assert_every_file_is_private(state: &Path) {
    let home = StateDir::open(state).unwrap();
    let run = home.create_run(run_id(0)).unwrap();
    let lock = run.lock().unwrap();
    let mut journal = lock.create_journal(|_| ()).unwrap();
    crate::fixture::append_all(&mut journal, &facts(2));
    journal.close().unwrap();
    run.write_scratch(session(), b"note\n").unwrap();
    run.write_transcript(session(), b"{}").unwrap();
    run.save_checkpoint(1, JournalPosition::start(run_id(0)), &1).unwrap();
    let mut seen = 0;
    let mut folders = vec![state.to_owned()];
    while let Some(folder) = folders.pop() {
        assert_eq!(mode_of(&folder), 0o700, "{folder:?}");
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else {
                assert_eq!(mode_of(&path), 0o600, "{path:?}");
                seen += 1;
            }
        }
    }
    assert_eq!(seen, 5);
}

#[test]
fn files_are_private_under_any_umask() {
    // The umask is a property of the process, so each umask is tested in a child process.
    if let Some(state) = std::env::var_os("ADJUTANT_TEST_UMASK_STATE") {
        return assert_every_file_is_private(state.as_ref());
    }
    for umask in ["000", "022", "777"] {
        let fixture = tempfile::tempdir().unwrap();
        let output = Command::new("sh")
            .args([
                "-c",
                "umask \"$1\" && exec \"$2\" --exact state_dir::files_are_private_under_any_umask",
                "sh",
                umask,
            ])
            .arg(std::env::current_exe().unwrap())
            .env("ADJUTANT_TEST_UMASK_STATE", fixture.path().join("state"))
            .output()
            .unwrap();
        let text = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success() && text.contains("1 passed"), "umask {umask}: {text}");
    }
}
