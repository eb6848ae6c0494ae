//! Space reserved beyond the end of the journal: invisible to readers, freed on close, refused on a full disk.

use std::fs;
use std::os::unix::fs::MetadataExt;

use adjutant_store::{Durability, JournalError, MemoryDisk, RecordNumber, RunDir};

use crate::fixture::{
    StoreFixture, TestEvent, append, chain, facts, journal_on, read, run_id, said,
};

/// Returns the allocated size of the journal on disk.
fn allocated(run: &RunDir) -> u64 {
    fs::metadata(run.journal_path()).unwrap().blocks() * 512
}

#[test]
fn space_is_allocated_invisibly_and_freed_on_close() {
    let fixture = StoreFixture::new();
    let run = fixture.home.create_run(run_id(0)).unwrap();
    let lock = run.lock().unwrap();
    let mut journal = lock.create_journal::<TestEvent>(|_| ()).unwrap();
    journal.ensure_space(100_000).unwrap();
    let reserved = allocated(&run);
    // Not every file system reports allocated blocks; tmpfs, ext4, xfs and btrfs do.
    assert!(reserved >= 100_000, "{reserved} bytes are allocated");
    assert_eq!(fs::metadata(run.journal_path()).unwrap().len(), 0, "readers see nothing of it");
    append(&mut journal, 0, &said("one"), Durability::Sync).unwrap();
    journal.ensure_space(100_000).unwrap();
    assert_eq!(allocated(&run), reserved, "there was room enough");
    journal.ensure_space(10 << 20).unwrap();
    assert!(allocated(&run) >= 10 << 20);
    journal.close().unwrap();
    assert!(allocated(&run) <= 8192, "{} bytes stay", allocated(&run));
    assert_eq!(run.read_journal::<TestEvent>().unwrap().count(), 1);
}

#[test]
fn a_resumed_journal_uses_the_space_a_killed_writer_left() {
    let fixture = StoreFixture::new();
    let run = fixture.ended_run(0, &facts(3));
    let lock = run.lock().unwrap();
    let (mut journal, _) = lock.resume_journal::<TestEvent>(|_| (), |_| ()).unwrap();
    journal.ensure_space(1 << 20).unwrap();
    assert!(allocated(&run) >= 1 << 20);
    append(&mut journal, 3, &said("four"), Durability::Sync).unwrap();
    journal.close().unwrap();
    assert_eq!(run.read_journal::<TestEvent>().unwrap().count(), 4);
}

#[test]
fn space_is_refused_on_a_full_disk_and_the_journal_stays_usable() {
    let disk = MemoryDisk::default();
    disk.set_capacity(Some(10_000));
    let (mut journal, reports) = journal_on(disk.clone());
    journal.ensure_space(10_000).unwrap();
    let error = journal.ensure_space(10_001).unwrap_err();
    assert!(matches!(error, JournalError::DiskFull(_)));
    insta::assert_snapshot!(chain(&error), @"no space left for the journal: No space left on device (os error 28)");
    append(&mut journal, 0, &said("goes on"), Durability::Sync).unwrap();
    assert_eq!(reports.recv().unwrap().unwrap(), RecordNumber::new(1));
    assert!(journal.ensure_space(10_000).is_err(), "a record is in it now");
    disk.set_capacity(None);
    journal.ensure_space(10_000).unwrap();
}

#[test]
fn unstaged_records_leave_no_trace() {
    let disk = MemoryDisk::default();
    let (mut journal, _reports) = journal_on(disk.clone());
    let at = adjutant_core::Timestamp::ZERO;
    append(&mut journal, 0, &said("kept"), Durability::Sync).unwrap();
    journal.stage(at, 0, &said("staged"), Durability::Sync).unwrap();
    let place = journal.position();
    for text in ["taken", "back"] {
        journal.stage(at, 0, &said(text), Durability::Sync).unwrap();
    }
    journal.unstage(place);
    assert_eq!(journal.position(), place);
    assert_eq!(
        append(&mut journal, 1, &said("next"), Durability::Sync).unwrap(),
        RecordNumber::new(3)
    );
    journal.close().unwrap();
    let said: Vec<TestEvent> =
        read(&disk.bytes()).0.into_iter().map(|record| record.event).collect();
    assert_eq!(said, ["kept", "staged", "next"].map(crate::fixture::said));
}
