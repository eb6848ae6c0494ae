//! A disk that fails at its Nth write or sync, for every N: the run can be resumed to the same end, no turn with a
//! reply is paid again, and no effect happens twice.
#![expect(clippy::unwrap_used, reason = "the helpers of these tests are test code too")]

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use adjutant_core::{Event, Outcome};
use adjutant_engine::{EngineError, ResumeRequest};
use adjutant_testkit::{AppendTool, ModelRequest, Rig, RunTrace};

const SCRIPT: &str = r#"
    [[turn]]
    label = "left"
    text = "I write it down twice."
    [[turn.call]]
    tool = "Append"
    args = { line = "left 1 0" }
    [[turn.call]]
    tool = "Append"
    args = { line = "left 1 1" }
    [[turn]]
    label = "left"
    [[turn.call]]
    tool = "Note"
    args = { content = "both are down" }
    [[turn.call]]
    tool = "Append"
    args = { line = "left 2 1" }
    [[turn]]
    label = "left"
    text = "it is written"
    [[turn]]
    label = "right"
    [[turn.call]]
    tool = "Append"
    args = { line = "right 1 0" }
    [[turn]]
    label = "right"
    text = "here too"
"#;

const EIO: i32 = 5;

/// A fault at the Nth call of a kind.
#[derive(Clone, Copy, Debug)]
enum DiskFault {
    /// A write stops after this many bytes.
    Write(usize),
    Sync,
}

fn rig(ledger: &Path) -> Rig {
    Rig::new()
        .script(SCRIPT)
        .task("left", "Write left")
        .task("right", "Write right")
        .tool(AppendTool::to(ledger))
}

/// The lines of the ledger with their counts.
fn lines(ledger: &Path) -> BTreeMap<String, usize> {
    let mut lines = BTreeMap::new();
    for line in fs::read_to_string(ledger).unwrap_or_default().lines() {
        *lines.entry(line.to_owned()).or_default() += 1;
    }
    lines
}

/// The turns that have a reply, by label.
fn answered(trace: &RunTrace) -> Vec<(String, u32)> {
    let recalled = trace.events[..trace.recalled].iter();
    let turn = |event: &Event| match event {
        Event::Replied { session, turn, .. } => Some((trace.label(*session)?, *turn)),
        _ => None,
    };
    recalled.filter_map(|(_, event)| turn(event)).collect()
}

/// The results of the Append calls, by the appended line.
fn told(trace: &RunTrace) -> BTreeMap<String, String> {
    let mut calls: BTreeMap<_, Vec<_>> = BTreeMap::new();
    let mut told = BTreeMap::new();
    for (_, event) in &trace.events {
        match event {
            Event::Replied { session, tool_calls, .. } => {
                drop(calls.insert(*session, tool_calls.clone()));
            }
            Event::ToolReturned { session, call, output } => {
                let request = &calls[session][*call as usize];
                if let Some(line) = request.arguments["line"].as_str() {
                    let before = told.insert(line.to_owned(), output.content.clone());
                    assert_eq!(before, None, "{line} was answered twice");
                }
            }
            _ => {}
        }
    }
    told
}

fn key(request: &ModelRequest) -> (&str, u32) {
    (&request.label, request.turn)
}

/// Resumes from `journal` and checks all guarantees.
async fn goes_on(first: &RunTrace, journal: &[u8], ledger: &Path, fault: &str) {
    if !journal.contains(&b'\n') {
        assert!(first.requests.is_empty(), "{fault}: asked before anything was on disk");
        return;
    }
    let own = ledger.with_extension("again");
    fs::write(&own, fs::read(ledger).unwrap_or_default()).unwrap();
    let trace = rig(&own).resume(journal, ResumeRequest::default()).await;
    if let Err(EngineError::NothingToResume(_)) = &trace.result {
        let over = trace.events.iter().any(|(_, event)| matches!(event, Event::RunEnded { .. }));
        assert!(over || first.requests.is_empty(), "{fault}: it had begun and cannot go on");
        return;
    }
    assert_eq!(trace.outcome(), Outcome::Completed, "{fault}");
    let answered = answered(&trace);
    for request in &trace.requests {
        let turn = (request.label.clone(), request.turn);
        assert!(!answered.contains(&turn), "{fault}: {turn:?} was bought twice");
        let before = first.requests.iter().find(|before| key(before) == key(request));
        if let Some(before) = before {
            assert_eq!(request.messages, before.messages, "{fault}: {turn:?}");
        }
    }
    let written = lines(&own);
    for (line, said) in told(&trace) {
        let times = written.get(&line).copied().unwrap_or_default();
        if said.starts_with("Interrupted") {
            assert!(times <= 1, "{fault}: {line} happened {times} times");
        } else {
            assert_eq!(times, 1, "{fault}: {line} was told as done");
        }
    }
    assert!(written.values().all(|times| *times == 1), "{fault}: {written:?}");
}

/// Runs once for each call of one kind, which fails. Returns their number.
async fn sweep(fault: DiskFault, cut_fails: bool) -> usize {
    for nth in 1.. {
        let folder = tempfile::tempdir().unwrap();
        let ledger = folder.path().join("ledger");
        let rig = rig(&ledger);
        let disk = rig.disk();
        match fault {
            DiskFault::Write(keeping) => disk.fail_write(nth, keeping, EIO),
            DiskFault::Sync => disk.fail_sync(nth, EIO),
        }
        if cut_fails {
            disk.fail_truncate(EIO);
        }
        let first = rig.delegate().await;
        if let Ok(finished) = &first.result {
            assert_eq!(finished.outcome, Outcome::Completed);
            return nth - 1;
        }
        let name = format!("{fault:?} {nth}, cut fails: {cut_fails}");
        goes_on(&first, &disk.bytes(), &ledger, &format!("{name}, all that was written")).await;
        goes_on(&first, &disk.synced_bytes(), &ledger, &format!("{name}, all that is safe")).await;
    }
    unreachable!("a run ends")
}

#[tokio::test(start_paused = true)]
async fn run_can_be_resumed_after_any_failed_write_or_sync() {
    for cut_fails in [false, true] {
        for fault in [
            DiskFault::Write(0),
            DiskFault::Write(100),
            DiskFault::Write(usize::MAX),
            DiskFault::Sync,
        ] {
            let count = sweep(fault, cut_fails).await;
            assert!(count > 5, "{fault:?} hit only {count} calls");
        }
    }
}
