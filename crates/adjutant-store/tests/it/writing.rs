//! Writing without failures: round trips, group commit, closing.

use std::io;
use std::sync::mpsc::{Receiver, Sender, channel};

use adjutant_core::Timestamp;
use adjutant_store::{
    Disk, Durability, Journal, JournalPosition, JournalTail, MemoryDisk, RecordNumber,
};
use proptest::prelude::*;

use crate::fixture::{
    StoreFixture, TestEvent, WALL, append, bytes_of, events, facts, journal_on, read, run_id, said,
};

#[test]
fn a_record_is_one_line_that_jq_reads() {
    let disk = MemoryDisk::default();
    let (mut journal, _reports) = journal_on(disk.clone());
    let fact = said("a \"b\"\n");
    journal.append(Timestamp::from_millis(1250), WALL, &fact, Durability::Sync).unwrap();
    journal.append(Timestamp::from_millis(1251), WALL, &fact, Durability::Lazy).unwrap();
    journal.close().unwrap();
    insta::assert_snapshot!(String::from_utf8(disk.bytes()).unwrap(), @r#"
    {"v":1,"seq":1,"at":1250,"wall":1735460684000,"event":{"type":"said","text":"a \"b\"\n"},"crc":"0e784e5e"}
    {"v":1,"seq":2,"at":1251,"wall":1735460684000,"event":{"type":"said","text":"a \"b\"\n"},"crc":"02d2d179"}
    "#);
}

#[test]
fn every_record_is_read_back_in_order() {
    let facts = facts(50);
    let (bytes, starts) = bytes_of(&facts);
    let (records, tail) = read(&bytes);
    assert_eq!(events(&records), facts);
    assert_eq!(starts.len(), 50);
    assert_eq!(tail.unwrap(), JournalTail::Clean);
    let last = records.last().unwrap();
    assert_eq!(
        (last.seq, last.at, last.wall_ms),
        (RecordNumber::new(50), Timestamp::from_millis(490), WALL + 490)
    );
}

proptest! {
    #[test]
    fn any_text_is_read_back_unchanged(texts in proptest::collection::vec(any::<String>(), 0..8)) {
        let facts: Vec<TestEvent> = texts.iter().map(|text| said(text)).collect();
        let (records, tail) = read(&bytes_of(&facts).0);
        prop_assert_eq!(events(&records), facts);
        prop_assert_eq!(tail.unwrap(), JournalTail::Clean);
    }
}

/// A disk whose first sync blocks until the test allows it.
struct GatedDisk {
    disk: MemoryDisk,
    entered: Sender<()>,
    gate: Receiver<()>,
}

impl Disk for GatedDisk {
    fn write_all_at_end(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.disk.write_all_at_end(bytes)
    }

    fn sync(&mut self) -> io::Result<()> {
        if self.disk.syncs() == 0 {
            self.entered.send(()).unwrap();
            self.gate.recv().unwrap();
        }
        self.disk.sync()
    }

    fn truncate(&mut self, len: u64) -> io::Result<()> {
        self.disk.truncate(len)
    }
}

#[test]
fn records_queued_during_a_sync_share_the_next_one() {
    let (entered, has_entered) = channel();
    let (open, gate) = channel();
    let disk = MemoryDisk::default();
    let (mut journal, reports) = journal_on(GatedDisk { disk: disk.clone(), entered, gate });
    append(&mut journal, 0, &said("first"), Durability::Sync).unwrap();
    has_entered.recv().unwrap();
    for nth in 1..=100 {
        append(&mut journal, nth, &said("queued"), Durability::Sync).unwrap();
    }
    assert!(reports.try_recv().is_err(), "nothing is durable before its sync returned");
    open.send(()).unwrap();
    assert_eq!(reports.recv().unwrap().unwrap(), RecordNumber::new(1));
    assert_eq!(reports.recv().unwrap().unwrap(), RecordNumber::new(101));
    journal.close().unwrap();
    assert_eq!((disk.writes(), disk.syncs()), (2, 2));
    assert_eq!(read(&disk.bytes()).0.len(), 101);
}

#[test]
fn records_staged_together_cost_one_sync() {
    let disk = MemoryDisk::default();
    let (mut journal, reports) = journal_on(disk.clone());
    for fact in facts(20) {
        journal.stage(Timestamp::ZERO, WALL, &fact, Durability::Sync).unwrap();
    }
    assert_eq!(disk.writes(), 0);
    journal.submit().unwrap();
    assert_eq!(reports.recv().unwrap().unwrap(), RecordNumber::new(20));
    journal.close().unwrap();
    assert_eq!((disk.writes(), disk.syncs()), (1, 1));
}

/// A disk that sends a message after each write.
struct ReportingDisk {
    disk: MemoryDisk,
    written: Sender<()>,
}

impl Disk for ReportingDisk {
    fn write_all_at_end(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.disk.write_all_at_end(bytes)?;
        self.written.send(()).map_err(io::Error::other)
    }

    fn sync(&mut self) -> io::Result<()> {
        self.disk.sync()
    }

    fn truncate(&mut self, len: u64) -> io::Result<()> {
        self.disk.truncate(len)
    }
}

#[test]
fn lazy_records_are_written_at_once_without_a_sync_or_a_report() {
    let (written, is_written) = channel();
    let disk = MemoryDisk::default();
    let (mut journal, reports) = journal_on(ReportingDisk { disk: disk.clone(), written });
    append(&mut journal, 0, &said("lazy"), Durability::Lazy).unwrap();
    is_written.recv().unwrap();
    append(&mut journal, 1, &said("lazy"), Durability::Lazy).unwrap();
    is_written.recv().unwrap();
    append(&mut journal, 2, &said("sync"), Durability::Sync).unwrap();
    assert_eq!(reports.recv().unwrap().unwrap(), RecordNumber::new(3));
    assert_eq!((disk.writes(), disk.syncs()), (3, 1));
    drop(journal);
    assert!(reports.recv().is_err(), "one report for three records");
}

#[test]
fn closing_writes_and_syncs_the_remaining_records() {
    let disk = MemoryDisk::default();
    let (mut journal, _reports) = journal_on(disk.clone());
    append(&mut journal, 0, &said("lazy"), Durability::Lazy).unwrap();
    journal.stage(Timestamp::ZERO, WALL, &said("staged"), Durability::Lazy).unwrap();
    let end = journal.close().unwrap();
    assert_eq!(end.offset, disk.bytes().len() as u64);
    assert_eq!(disk.synced_bytes(), disk.bytes());
    assert_eq!(read(&disk.bytes()).0.len(), 2);
}

#[test]
fn dropping_a_journal_closes_it() {
    let disk = MemoryDisk::default();
    let (mut journal, _reports) = journal_on(disk.clone());
    append(&mut journal, 0, &said("lazy"), Durability::Lazy).unwrap();
    drop(journal);
    assert_eq!(read(&disk.synced_bytes()).0.len(), 1);
}

#[test]
fn a_resumed_journal_continues_where_it_ended() {
    let fixture = StoreFixture::new();
    let run = fixture.ended_run(0, &facts(5));
    let lock = run.lock().unwrap();
    let mut seen = Vec::new();
    let (mut journal, tail) =
        lock.resume_journal::<TestEvent>(|record| seen.push(record.event), |_| ()).unwrap();
    assert_eq!((seen, tail), (facts(5), JournalTail::Clean));
    assert_eq!(
        append(&mut journal, 5, &said("more"), Durability::Sync).unwrap(),
        RecordNumber::new(6)
    );
    journal.close().unwrap();
    let records: Vec<_> = run.read_journal::<TestEvent>().unwrap().map(Result::unwrap).collect();
    assert_eq!(records.len(), 6);
}

#[test]
fn a_torn_tail_is_truncated_before_anything_is_appended() {
    let fixture = StoreFixture::new();
    let run = fixture.ended_run(0, &facts(5));
    let whole = std::fs::read(run.journal_path()).unwrap();
    for cut in [1, 2, 30] {
        std::fs::write(run.journal_path(), &whole[..whole.len() - cut]).unwrap();
        let lock = run.lock().unwrap();
        let (mut journal, tail) = lock.resume_journal::<TestEvent>(|_| (), |_| ()).unwrap();
        assert!(matches!(tail, JournalTail::Torn { .. }), "{tail:?}");
        assert_eq!(
            append(&mut journal, 5, &said("again"), Durability::Sync).unwrap(),
            RecordNumber::new(5)
        );
        journal.close().unwrap();
        let records: Vec<_> =
            run.read_journal::<TestEvent>().unwrap().map(Result::unwrap).collect();
        assert_eq!(events(&records)[..4], facts(5)[..4]);
        assert_eq!(records[4].event, said("again"));
    }
}

#[test]
fn creating_an_existing_journal_fails() {
    let fixture = StoreFixture::new();
    let run = fixture.ended_run(0, &facts(1));
    let error = run.lock().unwrap().create_journal::<TestEvent>(|_| ()).unwrap_err();
    let text = fixture.redact(&crate::fixture::chain(&error));
    insta::assert_snapshot!(text, @"cannot create $WORK/state/runs/run_1735460684_a1b2c3/journal.jsonl: File exists (os error 17)");
}

#[test]
fn a_full_queue_blocks_the_caller_and_loses_no_records() {
    // Exceeds the queue's limit: 40 records of 1 MiB, and 16 MiB may be queued.
    let (entered, has_entered) = channel();
    let (open, gate) = channel();
    let disk = MemoryDisk::default();
    let gated = GatedDisk { disk: disk.clone(), entered, gate };
    let mut journal: Journal<TestEvent> =
        Journal::start(gated, JournalPosition::start(run_id(0)), |_| ()).unwrap();
    append(&mut journal, 0, &said("first"), Durability::Sync).unwrap();
    has_entered.recv().unwrap();
    let writer = std::thread::spawn(move || {
        let large = said(&"x".repeat(1 << 20));
        for nth in 1..=40 {
            append(&mut journal, nth, &large, Durability::Lazy).unwrap();
        }
        journal.close().unwrap();
    });
    open.send(()).unwrap();
    writer.join().unwrap();
    let (records, tail) = read(&disk.bytes());
    assert_eq!((records.len(), tail.unwrap()), (41, JournalTail::Clean));
}
