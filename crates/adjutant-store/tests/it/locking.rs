//! Only one process writes a run, and readers can tell whether it is alive.

use std::fs;
use std::sync::atomic::{AtomicBool, Ordering};

use adjutant_store::{Durability, LockError, WriterLiveness};
use rustix::fs::{FlockOperation, flock};

use crate::fixture::{StoreFixture, TestEvent, append, run_id, said};

#[test]
fn a_second_writer_is_refused_with_the_pid_of_the_first() {
    let fixture = StoreFixture::new();
    let run = fixture.home.create_run(run_id(0)).unwrap();
    let lock = run.lock().unwrap();
    let error = run.lock().unwrap_err();
    let us = std::process::id();
    assert!(matches!(error, LockError::Held { pid: Some(pid) } if pid == us));
    assert_eq!(error.to_string(), format!("the run is in use by process {us}"));
    drop(lock);
    run.lock().unwrap();
}

#[test]
fn a_run_is_never_locked_then_live_then_dead() {
    let fixture = StoreFixture::new();
    let run = fixture.home.create_run(run_id(0)).unwrap();
    assert_eq!(run.liveness().unwrap(), WriterLiveness::NeverLocked);
    let lock = run.lock().unwrap();
    assert_eq!(run.liveness().unwrap(), WriterLiveness::Live { pid: Some(std::process::id()) });
    drop(lock);
    // This process is still alive, as a server would be, so its pid alone does not prove that it holds the run.
    assert_eq!(run.liveness().unwrap(), WriterLiveness::Dead);
}

#[test]
fn a_reused_pid_in_the_lock_file_is_not_the_writer() {
    let fixture = StoreFixture::new();
    let run = fixture.home.create_run(run_id(0)).unwrap();
    let lock_file = run.path().join("lock");
    drop(run.lock().unwrap());
    let ours =
        fs::read_to_string(&lock_file).unwrap().replace("\"released\":true", "\"released\":false");
    let holder: serde_json::Value = serde_json::from_str(&ours).unwrap();
    for (field, other) in [("start", 1.into()), ("boot", "another boot".into())] {
        let mut holder = holder.clone();
        holder[field] = other;
        fs::write(&lock_file, holder.to_string()).unwrap();
        assert_eq!(run.liveness().unwrap(), WriterLiveness::Dead, "{field}");
        drop(run.lock().unwrap());
    }
}

#[test]
fn a_holder_that_has_not_written_its_identity_is_live() {
    let fixture = StoreFixture::new();
    let run = fixture.home.create_run(run_id(0)).unwrap();
    for content in ["", "{\"pid\":", "nonsense"] {
        fs::write(run.path().join("lock"), content).unwrap();
        assert_eq!(run.liveness().unwrap(), WriterLiveness::Dead, "{content}");
        let file = fs::File::open(run.path().join("lock")).unwrap();
        flock(&file, FlockOperation::NonBlockingLockExclusive).unwrap();
        assert_eq!(run.liveness().unwrap(), WriterLiveness::Live { pid: None }, "{content}");
        assert!(matches!(run.lock(), Err(LockError::Held { pid: None })));
    }
}

#[test]
fn the_lock_outlives_its_guard_while_the_journal_is_open() {
    let fixture = StoreFixture::new();
    let run = fixture.home.create_run(run_id(0)).unwrap();
    let lock = run.lock().unwrap();
    let mut journal = lock.create_journal::<TestEvent>(|_| ()).unwrap();
    drop(lock);
    assert!(matches!(run.liveness().unwrap(), WriterLiveness::Live { .. }));
    assert!(matches!(run.lock(), Err(LockError::Held { .. })));
    append(&mut journal, 0, &said("still ours"), Durability::Sync).unwrap();
    journal.close().unwrap();
    run.lock().unwrap();
}

#[test]
fn constant_liveness_checks_never_make_a_writer_fail() {
    let fixture = StoreFixture::new();
    let run = fixture.home.create_run(run_id(0)).unwrap();
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while !stop.load(Ordering::Relaxed) {
                    run.liveness().unwrap();
                }
            });
        }
        for _ in 0..200 {
            let lock = run.lock().expect("a reader is not a writer");
            assert!(matches!(run.liveness().unwrap(), WriterLiveness::Live { .. }));
            drop(lock);
        }
        stop.store(true, Ordering::Relaxed);
    });
}

#[test]
fn a_killed_writer_is_dead_at_once() {
    let fixture = StoreFixture::new();
    let run = fixture.home.create_run(run_id(0)).unwrap();
    // A child process that locks the run and waits to be killed.
    let mut child = std::process::Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "locking::hold_the_run_until_killed", "--nocapture"])
        .env("ADJUTANT_TEST_STATE", fixture.dir.path().join("state"))
        .stdout(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = std::io::BufRead::lines(std::io::BufReader::new(child.stdout.take().unwrap()));
    assert!(lines.any(|line| line.unwrap().contains("locked")));
    assert_eq!(run.liveness().unwrap(), WriterLiveness::Live { pid: Some(child.id()) });
    assert!(matches!(run.lock(), Err(LockError::Held { pid: Some(pid) }) if pid == child.id()));
    child.kill().unwrap();
    child.wait().unwrap();
    assert_eq!(run.liveness().unwrap(), WriterLiveness::Dead);
    run.lock().unwrap();
}

#[test]
fn hold_the_run_until_killed() {
    // Not a test: the code of the child process that the test above kills.
    let Some(state) = std::env::var_os("ADJUTANT_TEST_STATE") else { return };
    let home = adjutant_store::StateDir::open(state.as_ref()).unwrap();
    let _lock = home.run(run_id(0)).lock().unwrap();
    println!("locked");
    loop {
        std::thread::park();
    }
}
