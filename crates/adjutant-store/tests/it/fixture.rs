//! Shared by the tests: an event type, a temporary state directory, and journals of given events.

use std::error::Error;
use std::io::Cursor;
use std::path::Path;
use std::sync::mpsc::{Receiver, channel};

use adjutant_core::{RunId, SessionId, Timestamp};
use adjutant_store::{
    Durability, Journal, JournalError, JournalPosition, JournalReader, JournalRecord, JournalTail,
    MemoryDisk, ReadError, RecordNumber, RunDir, StateDir,
};
use serde::{Deserialize, Serialize};

pub(crate) const WALL: u64 = 1_735_460_684_000;
pub(crate) const DAY_MS: u64 = 24 * 60 * 60 * 1000;

/// A simple event type instead of the core's.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub(crate) enum TestEvent {
    Started { goal: String },
    Said { text: String },
    Cost { tokens: u64 },
}

pub(crate) fn said(text: &str) -> TestEvent {
    TestEvent::Said { text: text.to_owned() }
}

/// Returns events of different kinds and lengths.
pub(crate) fn facts(count: usize) -> Vec<TestEvent> {
    let fact = |n: usize| match n % 3 {
        0 => TestEvent::Started { goal: format!("goal {n} with \"quotes\" and \n breaks") },
        1 => TestEvent::Cost { tokens: n as u64 * 17 },
        _ => said(&"zeile ü ".repeat(n % 7)),
    };
    (0..count).map(fact).collect()
}

pub(crate) fn run_id(nth: u64) -> RunId {
    RunId::new(1_735_460_684 + nth, [0, 27, 1, 28, 2, 29])
}

pub(crate) fn session() -> SessionId {
    run_id(0).root_session()
}

/// A temporary state directory, removed on drop.
pub(crate) struct StoreFixture {
    pub(crate) dir: tempfile::TempDir,
    pub(crate) home: StateDir,
}

impl StoreFixture {
    pub(crate) fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let home = StateDir::open(&dir.path().join("state")).unwrap();
        Self { dir, home }
    }

    /// Creates an ended run whose journal contains `facts`.
    pub(crate) fn ended_run(&self, nth: u64, facts: &[TestEvent]) -> RunDir {
        let run = self.home.create_run(run_id(nth)).unwrap();
        let lock = run.lock().unwrap();
        let mut journal = lock.create_journal(|_| ()).unwrap();
        append_all(&mut journal, facts);
        journal.close().unwrap();
        run
    }

    /// Returns `text` without the path of the temporary directory.
    pub(crate) fn redact(&self, text: &str) -> String {
        text.replace(&*self.dir.path().to_string_lossy(), "$WORK")
    }
}

pub(crate) fn append_all(journal: &mut Journal<TestEvent>, facts: &[TestEvent]) {
    for (nth, fact) in facts.iter().enumerate() {
        append(journal, nth as u64, fact, Durability::Sync).unwrap();
    }
}

pub(crate) fn append(
    journal: &mut Journal<TestEvent>,
    nth: u64,
    fact: &TestEvent,
    durability: Durability,
) -> Result<RecordNumber, JournalError> {
    journal.append(Timestamp::from_millis(nth * 10), WALL + nth * 10, fact, durability)
}

/// Starts a journal on `disk`, with a receiver for its reports.
pub(crate) fn journal_on(
    disk: impl adjutant_store::Disk + 'static,
) -> (Journal<TestEvent>, Receiver<Result<RecordNumber, JournalError>>) {
    let (send, reports) = channel();
    // The receiver may be gone when the journal is dropped at the end of a test.
    let report = move |report| drop(send.send(report));
    (Journal::start(disk, JournalPosition::start(run_id(0)), report).unwrap(), reports)
}

/// Returns the bytes of a closed journal of `facts`, and where each record starts.
pub(crate) fn bytes_of(facts: &[TestEvent]) -> (Vec<u8>, Vec<usize>) {
    let disk = MemoryDisk::default();
    let (mut journal, _reports) = journal_on(disk.clone());
    append_all(&mut journal, facts);
    journal.close().unwrap();
    let bytes = disk.bytes();
    let starts = starts_of(&bytes);
    (bytes, starts)
}

/// Returns the offset at which each line starts.
pub(crate) fn starts_of(bytes: &[u8]) -> Vec<usize> {
    let breaks = bytes.iter().enumerate().filter(|(_, byte)| **byte == b'\n');
    let mut starts = vec![0];
    starts.extend(breaks.map(|(at, _)| at + 1));
    starts.pop();
    starts
}

/// Reads bytes as the journal of the first run. Returns its records, and its tail or the error.
pub(crate) fn read(
    bytes: &[u8],
) -> (Vec<JournalRecord<TestEvent>>, Result<JournalTail, ReadError>) {
    let mut reader = JournalReader::new(Cursor::new(bytes), JournalPosition::start(run_id(0)));
    let mut records = Vec::new();
    for record in &mut reader {
        match record {
            Ok(record) => records.push(record),
            Err(error) => return (records, Err(error)),
        }
    }
    let tail = reader.tail();
    (records, Ok(tail))
}

pub(crate) fn events(records: &[JournalRecord<TestEvent>]) -> Vec<TestEvent> {
    records.iter().map(|record| record.event.clone()).collect()
}

/// Formats an error and its sources as one line.
pub(crate) fn chain(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(error) = source {
        text.push_str(": ");
        text.push_str(&error.to_string());
        source = error.source();
    }
    text
}

pub(crate) fn mode_of(path: &Path) -> u32 {
    use std::os::unix::fs::PermissionsExt;
    std::fs::metadata(path).unwrap().permissions().mode() & 0o7777
}
