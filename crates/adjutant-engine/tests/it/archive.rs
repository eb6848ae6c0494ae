//! Following a journal while it grows, and appending to a run that is not live.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on says where")]

use std::fs;

use adjutant_core::{Event, RunId, SessionId, Timestamp};
use adjutant_engine::{Archive, ArchiveError, RunFiles};
use adjutant_store::{Durability, Journal, RunLock, StateDir};
use tempfile::TempDir;

fn run() -> RunId {
    RunId::new(1_738_326_896, [0; 6])
}

fn beat(number: u64) -> Event {
    let session = SessionId::new(1_738_326_896, [0; 6]);
    Event::Progressed { session, bytes: number }
}

/// A run whose journal is open for writing.
struct JournalWriter {
    _lock: RunLock,
    journal: Journal<Event>,
}

impl JournalWriter {
    fn begin(home: &StateDir) -> Self {
        let lock = home.create_run(run()).unwrap().lock().unwrap();
        let journal = lock.create_journal::<Event>(drop).unwrap();
        Self { _lock: lock, journal }
    }

    fn write(&mut self, number: u64) {
        let at = Timestamp::from_millis(number);
        self.journal.append(at, number, &beat(number), Durability::Sync).unwrap();
    }

    fn close(self) {
        self.journal.close().unwrap();
    }
}

fn place() -> (TempDir, StateDir, Archive) {
    let dir = TempDir::new().unwrap();
    let home = StateDir::open(&dir.path().join("home")).unwrap();
    let archive = Archive::open(&dir.path().join("home")).unwrap();
    (dir, home, archive)
}

fn files(archive: &Archive) -> RunFiles {
    archive.find("latest").unwrap().0
}

#[test]
fn follower_returns_each_record_once() {
    let (_dir, home, archive) = place();
    let mut writer = JournalWriter::begin(&home);
    writer.write(1);
    writer.write(2);
    writer.close();
    let files = files(&archive);
    let mut follow = files.follow();
    let mut seen = Vec::new();
    assert!(follow.read_new(|record| seen.push(record.seq.get())).unwrap());
    assert!(!follow.read_new(|record| seen.push(record.seq.get())).unwrap(), "nothing grew");
    files.append(&beat(3)).unwrap();
    assert!(follow.read_new(|record| seen.push(record.seq.get())).unwrap());
    assert_eq!(seen, [1, 2, 3]);
}

/// The follower reports a record only once it is complete.
#[test]
fn follower_skips_an_incomplete_record() {
    let (_dir, home, archive) = place();
    let mut writer = JournalWriter::begin(&home);
    writer.write(1);
    writer.write(2);
    writer.close();
    let path = home.run(run()).journal_path();
    let whole = fs::read(&path).unwrap();
    fs::write(&path, &whole[..whole.len() - 9]).unwrap();
    let mut follow = files(&archive).follow();
    let mut seen = Vec::new();
    assert!(follow.read_new(|record| seen.push(record.seq.get())).unwrap());
    assert!(follow.torn_bytes() > 0);
    assert!(!follow.read_new(|record| seen.push(record.seq.get())).unwrap());
    fs::write(&path, &whole).unwrap();
    assert!(follow.read_new(|record| seen.push(record.seq.get())).unwrap());
    assert_eq!((seen.as_slice(), follow.torn_bytes()), ([1, 2].as_slice(), 0));
}

#[test]
fn append_to_a_live_run_is_refused() {
    let (_dir, home, archive) = place();
    let mut writer = JournalWriter::begin(&home);
    writer.write(7);
    let refused = files(&archive).append(&beat(8));
    assert!(matches!(refused, Err(ArchiveError::Live(id)) if id == run()), "{refused:?}");
    writer.close();
    files(&archive).append(&beat(8)).unwrap();
    let records: Vec<_> = files(&archive).records().unwrap().map(Result::unwrap).collect();
    assert_eq!(records.len(), 2);
    assert_eq!(records[1].at, records[0].at, "the run's own time does not go on by it");
}
