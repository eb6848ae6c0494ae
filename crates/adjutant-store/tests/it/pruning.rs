//! What pruning removes and keeps, and that wrong clocks do not make it remove too much.

use std::fs::{self, File};
use std::time::{Duration, UNIX_EPOCH};

use adjutant_core::RunId;
use adjutant_store::{
    BootInstant, CurrentTime, OpenJournalError, PruneVerdict, Retention, RunDir, WriterLiveness,
    prune_run,
};

use crate::fixture::{DAY_MS, StoreFixture, TestEvent, WALL, chain, events, run_id, said, session};

fn secret_facts() -> Vec<TestEvent> {
    let goal = TestEvent::Started { goal: "a secret goal".to_owned() };
    vec![goal, said("a secret word"), TestEvent::Cost { tokens: 42 }, said("another secret")]
}

/// Keeps costs, blanks goals and drops messages.
fn strip(fact: &TestEvent) -> Option<TestEvent> {
    match fact {
        TestEvent::Started { .. } => Some(TestEvent::Started { goal: String::new() }),
        TestEvent::Said { .. } => None,
        TestEvent::Cost { .. } => Some(fact.clone()),
    }
}

/// Creates an ended run that was last written at `WALL`, in an earlier boot.
fn old_run(fixture: &StoreFixture, nth: u64) -> RunDir {
    let run = fixture.ended_run(nth, &secret_facts());
    run.write_scratch(session(), b"a secret note\n").unwrap();
    run.write_transcript(session(), b"{\"secret\":1}").unwrap();
    run.save_checkpoint(1, run.read_journal::<TestEvent>().unwrap().position(), &"secret").unwrap();
    touch(&run, WALL);
    held_in_boot(&run, "an earlier boot", 0);
    run
}

fn touch(run: &RunDir, wall_ms: u64) {
    let journal = File::options().append(true).open(run.journal_path()).unwrap();
    journal.set_modified(UNIX_EPOCH + Duration::from_millis(wall_ms)).unwrap();
}

/// Changes the time in the lock file at which the run was last locked.
fn held_in_boot(run: &RunDir, boot: &str, elapsed_ms: u64) {
    let path = run.path().join("lock");
    let mut holder: serde_json::Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
    holder["since"] = serde_json::json!({"boot": boot, "elapsed_ms": elapsed_ms});
    fs::write(&path, holder.to_string()).unwrap();
}

fn after_days(days: u64) -> Retention {
    let boot = BootInstant { boot: "this boot".to_owned(), elapsed_ms: 3_600_000 };
    Retention {
        now: CurrentTime { wall_ms: WALL + days * DAY_MS + 1000, boot: Some(boot) },
        days: 7,
    }
}

/// Prunes every run and returns the verdicts, newest run first.
fn prune(fixture: &StoreFixture, retention: &Retention) -> Vec<(RunId, PruneVerdict)> {
    let judge = |id| (id, prune_run(&fixture.home, id, retention, &strip));
    fixture.home.list_runs().unwrap().into_iter().map(judge).collect()
}

/// Prunes the only run and returns its verdict.
fn verdict(fixture: &StoreFixture, retention: &Retention) -> PruneVerdict {
    prune(fixture, retention).pop().unwrap().1
}

fn all_text(run: &RunDir) -> String {
    let mut text = String::new();
    let mut folders = vec![run.path().to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else {
                text.push_str(&fs::read_to_string(path).unwrap());
            }
        }
    }
    text
}

#[test]
fn an_old_run_keeps_its_metadata_and_loses_its_content() {
    let fixture = StoreFixture::new();
    let run = old_run(&fixture, 0);
    assert!(all_text(&run).contains("secret"));
    let PruneVerdict::Expired { journal_bytes } = verdict(&fixture, &after_days(7)) else {
        panic!("it is seven days old");
    };
    assert!(journal_bytes > 0);
    assert!(!all_text(&run).contains("secret"));
    let records: Vec<_> = run.read_journal().unwrap().map(Result::unwrap).collect();
    let kept = [TestEvent::Started { goal: String::new() }, TestEvent::Cost { tokens: 42 }];
    assert_eq!(events(&records), kept);
    assert_eq!(records[1].wall_ms, WALL + 20, "times are those of the original");
    assert!(run.is_expired());
    let error = run.lock().unwrap().resume_journal::<TestEvent>(|_| (), |_| ()).unwrap_err();
    assert!(matches!(error, OpenJournalError::Expired));
    insta::assert_snapshot!(error, @"not resumable (expired)");
    assert!(matches!(verdict(&fixture, &after_days(30)), PruneVerdict::AlreadyExpired));
}

#[test]
fn old_temporary_files_are_removed_even_from_a_run_that_stays() {
    let fixture = StoreFixture::new();
    let run = old_run(&fixture, 0);
    let transcripts = run.path().join("transcripts");
    let [abandoned, beside, fresh, other] = [
        transcripts.join(".sess_1735460684_a1b2c3.transcript.json.77.0.tmp"),
        run.path().join(".checkpoint.json.77.1.tmp"),
        transcripts.join(".sess_1735460684_a1b2c3.transcript.json.78.0.tmp"),
        transcripts.join("notes.tmp"),
    ];
    for path in [&abandoned, &beside, &fresh, &other] {
        let file = File::create(path).unwrap();
        if path != &fresh {
            file.set_modified(UNIX_EPOCH + Duration::from_millis(WALL)).unwrap();
        }
    }
    assert!(matches!(verdict(&fixture, &after_days(0)), PruneVerdict::Fresh));
    let is_there = [&abandoned, &beside, &fresh, &other].map(|path| path.exists());
    // A recent temporary file and a file with another name stay.
    assert_eq!(is_there, [false, false, true, true]);
    assert!(all_text(&run).contains("secret"), "the transcript itself stays");
}

#[test]
fn a_run_is_fresh_until_the_last_millisecond() {
    let fixture = StoreFixture::new();
    let run = old_run(&fixture, 0);
    let mut retention = after_days(7);
    retention.now.wall_ms = WALL + 30 + 7 * DAY_MS - 1;
    assert!(matches!(verdict(&fixture, &retention), PruneVerdict::Fresh));
    assert!(all_text(&run).contains("secret"));
    retention.now.wall_ms += 1;
    assert!(matches!(verdict(&fixture, &retention), PruneVerdict::Expired { .. }));
}

#[test]
fn both_the_last_record_and_the_file_must_be_old() {
    let fixture = StoreFixture::new();
    let run = old_run(&fixture, 0);
    touch(&run, WALL + 6 * DAY_MS);
    assert!(matches!(verdict(&fixture, &after_days(8)), PruneVerdict::Fresh), "the file is young");
    touch(&run, WALL - 60 * DAY_MS);
    assert!(
        matches!(verdict(&fixture, &after_days(5)), PruneVerdict::Fresh),
        "the record is young"
    );
    assert!(all_text(&run).contains("secret"));
    assert!(!run.is_expired());
}

#[test]
fn times_in_the_future_count_as_young() {
    let fixture = StoreFixture::new();
    let run = old_run(&fixture, 0);
    let mut past = after_days(0);
    past.now.wall_ms = WALL - 3650 * DAY_MS;
    past.days = 0;
    assert!(
        matches!(verdict(&fixture, &past), PruneVerdict::Fresh),
        "the clock was set back ten years"
    );
    touch(&run, WALL + 3650 * DAY_MS);
    assert!(
        matches!(verdict(&fixture, &after_days(100)), PruneVerdict::Fresh),
        "the file is from the future"
    );
}

#[test]
fn a_clock_set_ten_years_ahead_does_not_expire_runs_of_this_boot() {
    let fixture = StoreFixture::new();
    let run = old_run(&fixture, 0);
    held_in_boot(&run, "this boot", 60_000);
    assert!(matches!(verdict(&fixture, &after_days(3650)), PruneVerdict::Fresh));
    let mut later = after_days(3650);
    later.now.boot =
        Some(BootInstant { boot: "this boot".to_owned(), elapsed_ms: 60_000 + 7 * DAY_MS });
    assert!(matches!(verdict(&fixture, &later), PruneVerdict::Expired { .. }));
}

/// Days by which the clock is wrong: ten years back, a year back, right, a year ahead, ten years ahead.
const CLOCKS: [i64; 5] = [-3653, -365, 0, 365, 3653];

fn moved(days: i64) -> CurrentTime {
    let mut now = CurrentTime::read();
    now.wall_ms = now.wall_ms.checked_add_signed(days * 86_400_000).unwrap();
    now
}

#[test]
fn no_wrong_clock_expires_a_young_or_live_run() {
    for written in CLOCKS {
        let fixture = StoreFixture::new();
        let fresh = fixture.ended_run(0, &secret_facts());
        touch(&fresh, moved(written).wall_ms);
        let running = fixture.home.create_run(run_id(1)).unwrap();
        let lock = running.lock().unwrap();
        let mut journal = lock.create_journal(|_| ()).unwrap();
        crate::fixture::append_all(&mut journal, &secret_facts());
        journal.close().unwrap();
        for read in CLOCKS {
            let report = prune(&fixture, &Retention { now: moved(read), days: 7 });
            let [(_, PruneVerdict::Live), (_, PruneVerdict::Fresh)] = report.as_slice() else {
                panic!("written {written} days off, read {read} days off: {report:?}");
            };
            for run in [&fresh, &running] {
                assert!(all_text(run).contains("secret") && !run.is_expired());
            }
        }
        drop(lock);
    }
}

#[test]
fn the_time_since_locking_is_measured_by_the_boot_clock() {
    let fixture = StoreFixture::new();
    let run = fixture.ended_run(0, &[]);
    held_in_boot(&run, "this boot", 60_000);
    let boot = |boot: &str| Some(BootInstant { boot: boot.to_owned(), elapsed_ms: 65_000 });
    for wall_ms in [0, WALL, u64::MAX] {
        assert_eq!(
            run.ms_since_lock_change(&CurrentTime { wall_ms, boot: boot("this boot") }),
            Some(5_000)
        );
        assert_eq!(run.ms_since_lock_change(&CurrentTime { wall_ms, boot: boot("another") }), None);
        assert_eq!(run.ms_since_lock_change(&CurrentTime { wall_ms, boot: None }), None);
    }
}

#[test]
fn checking_a_run_does_not_make_it_younger() {
    let fixture = StoreFixture::new();
    let run = old_run(&fixture, 0);
    // Old by its file's time, young by its record's: the prune locks the run before it finds out.
    touch(&run, WALL - 60 * DAY_MS);
    let before = fs::read(run.path().join("lock")).unwrap();
    assert!(matches!(verdict(&fixture, &after_days(5)), PruneVerdict::Fresh));
    assert_eq!(fs::read(run.path().join("lock")).unwrap(), before);
}

#[test]
fn a_live_run_is_never_pruned() {
    let fixture = StoreFixture::new();
    let run = old_run(&fixture, 0);
    let lock = run.lock().unwrap();
    held_in_boot(&run, "an earlier boot", 0);
    assert!(matches!(verdict(&fixture, &after_days(3650)), PruneVerdict::Live));
    assert!(all_text(&run).contains("secret"));
    assert!(matches!(run.liveness().unwrap(), WriterLiveness::Live { .. }));
    drop(lock);
}

#[test]
fn a_damaged_run_is_reported_and_left_unchanged_and_the_others_are_pruned() {
    let fixture = StoreFixture::new();
    let damaged = old_run(&fixture, 0);
    let whole = old_run(&fixture, 1);
    let mut bytes = fs::read(damaged.journal_path()).unwrap();
    bytes[60] ^= 1;
    fs::write(damaged.journal_path(), &bytes).unwrap();
    touch(&damaged, WALL);
    let report = prune(&fixture, &after_days(8));
    let [(first, PruneVerdict::Expired { .. }), (second, PruneVerdict::Damaged(error))] =
        report.as_slice()
    else {
        panic!("{report:?}");
    };
    assert_eq!((*first, *second), (whole.id(), damaged.id()));
    insta::assert_snapshot!(chain(error), @"journal is damaged at line 1 (record 1, byte 0): checksum is cf4febf7, expected f2e93b3c");
    assert!(all_text(&damaged).contains("secret note"));
    assert_eq!(fs::read(damaged.journal_path()).unwrap(), bytes);
}

#[test]
fn an_interrupted_prune_is_finished_by_the_next() {
    let fixture = StoreFixture::new();
    let run = old_run(&fixture, 0);
    // The state after a crash right after the journal was replaced: a young file, and content still there.
    fs::write(run.path().join("expired.json"), "{\"v\":1,\"wall\":1,\"done\":false}").unwrap();
    fs::write(run.path().join(".journal.jsonl.1.1.tmp"), "secret").unwrap();
    touch(&run, WALL + 8 * DAY_MS);
    assert!(run.is_expired(), "it is not resumable from the first step on");
    assert!(matches!(verdict(&fixture, &after_days(8)), PruneVerdict::Expired { .. }));
    assert!(!all_text(&run).contains("secret"));
    assert!(matches!(verdict(&fixture, &after_days(8)), PruneVerdict::AlreadyExpired));
}

#[test]
fn a_torn_tail_is_not_damage_and_is_removed_with_the_content() {
    let fixture = StoreFixture::new();
    let run = old_run(&fixture, 0);
    let bytes = fs::read(run.journal_path()).unwrap();
    fs::write(run.journal_path(), &bytes[..bytes.len() - 5]).unwrap();
    touch(&run, WALL);
    assert!(matches!(verdict(&fixture, &after_days(8)), PruneVerdict::Expired { .. }));
    assert!(!all_text(&run).contains("secret"));
}

#[test]
fn a_run_without_a_journal_is_removed_unless_it_is_locked() {
    let fixture = StoreFixture::new();
    let run = fixture.home.create_run(run_id(0)).unwrap();
    let lock = run.lock().unwrap();
    assert!(matches!(verdict(&fixture, &after_days(0)), PruneVerdict::Live));
    drop(lock);
    assert!(matches!(verdict(&fixture, &after_days(0)), PruneVerdict::Removed));
    assert!(!run.path().exists());
}

#[test]
fn an_old_run_whose_journal_is_missing_expires_too() {
    let fixture = StoreFixture::new();
    let run = fixture.home.create_run(run_id(0)).unwrap();
    run.write_transcript("sess_1700000000_abcdef".parse().unwrap(), b"{}").unwrap();
    let now = CurrentTime { wall_ms: CurrentTime::read().wall_ms + 8 * DAY_MS, boot: None };
    assert!(matches!(verdict(&fixture, &Retention { now, days: 7 }), PruneVerdict::Expired { .. }));
    assert!(run.is_expired());
}

#[test]
fn with_no_retention_every_ended_run_of_this_boot_expires() {
    let fixture = StoreFixture::new();
    fixture.ended_run(0, &secret_facts());
    let mut retention = Retention { now: CurrentTime::read(), days: 0 };
    retention.now.wall_ms += 1000;
    assert!(matches!(verdict(&fixture, &retention), PruneVerdict::Expired { .. }));
}
