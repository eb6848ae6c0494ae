//! Crashes during work in workspaces: nothing is lost and nothing is done twice.
#![expect(clippy::unwrap_used, reason = "a test that cannot build its tree has failed")]

use std::future::Future;

use adjutant_core::Outcome;
use adjutant_core::workspace::WorkspaceKind;
use adjutant_engine::{EngineError, ResumeRequest};

use crate::workspace_rig::{KINDS, UserRepository, adds, call, says, told};

const EIO: i32 = 5;

/// An edit, a command and a new file; each leaves a trace that shows how often it was done.
fn script() -> String {
    adds("w", "first")
        + &call("w", "Run", "{ command = \"echo ran >> ran\" }")
        + &call("w", "Write", "{ file_path = \"new\", content = \"new\\n\" }")
        + &says("w", "done")
}

/// Runs `work` in its own runtime, whose drop waits for blocking threads, as the end of a process would.
fn life<T>(work: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(work)
}

/// The tool results that a resumed run got.
#[derive(Debug, Default)]
struct ResumedCalls {
    crashes: usize,
    resumed: usize,
    interrupted_runs: usize,
}

/// Fails the nth write to the journal and resumes. Returns whether there were that many writes.
fn crash(kind: WorkspaceKind, nth: usize, seen: &mut ResumedCalls) -> bool {
    let yard = UserRepository::new();
    let before = yard.mine();
    let rig = yard.rig(kind, &script()).task("w", "work");
    let disk = rig.disk();
    disk.fail_write(nth, 0, EIO);
    if life(rig.delegate()).result.is_ok() {
        return false;
    }
    seen.crashes += 1;
    let at = format!("{kind:?}, write {nth}");
    assert_eq!(yard.mine(), before, "{at}");
    let journal = disk.bytes();
    if journal.is_empty() {
        return true;
    }
    let trace = life(yard.rig(kind, &script()).resume(&journal, ResumeRequest::default()));
    if matches!(trace.result, Err(EngineError::NothingToResume(_))) {
        assert!(trace.requests.is_empty(), "{at}");
        return true;
    }
    seen.resumed += 1;
    assert_eq!(trace.outcome(), Outcome::Completed, "{at}: {:?}", trace.ends());
    let told = told(&trace, "w");
    let [edit, run, write] = &told[..] else { panic!("{at}: {told:?}") };
    let files = yard.work(&trace, "w");
    let lost = |answer: &str| usize::from(answer.starts_with("Interrupted before it was done"));
    assert_eq!(files["list"].matches("first").count(), 1 - lost(edit), "{at}: {edit}");
    assert_eq!(usize::from(files.contains_key("new")), 1 - lost(write), "{at}: {write}");
    let ran = files.get("ran").map_or(0, |text| text.lines().count());
    if run.starts_with("Interrupted") {
        seen.interrupted_runs += 1;
        assert!(ran <= 1, "{at}: it was repeated");
    } else {
        assert_eq!(ran, 1, "{at}: {run}");
    }
    assert_eq!(yard.mine(), before, "{at}");
    true
}

#[test]
fn crash_at_any_record_neither_loses_nor_repeats_work() {
    for kind in KINDS {
        let mut seen = ResumedCalls::default();
        let mut nth = 1;
        while crash(kind, nth, &mut seen) {
            nth += 1;
        }
        assert!(seen.resumed >= 8, "{kind:?}: {seen:?}");
        assert!(seen.interrupted_runs >= 1, "{kind:?}: no command was cut off: {seen:?}");
    }
}
