//! Disk failures: reported once, final, and without incomplete records left behind.

use adjutant_core::Timestamp;
use adjutant_store::{
    Durability, JournalError, JournalTail, MAX_RECORD_BYTES, MemoryDisk, RecordNumber,
};
use rustix::io::Errno;

use crate::fixture::{WALL, append, chain, journal_on, read, said};

const EIO: i32 = Errno::IO.raw_os_error();
const ENOSPC: i32 = Errno::NOSPC.raw_os_error();
const EDQUOT: i32 = Errno::DQUOT.raw_os_error();

#[test]
fn a_failed_write_is_reported_once_and_is_final() {
    let disk = MemoryDisk::default();
    disk.fail_write(2, 0, EIO);
    let (mut journal, reports) = journal_on(disk.clone());
    append(&mut journal, 0, &said("kept"), Durability::Sync).unwrap();
    assert_eq!(reports.recv().unwrap().unwrap(), RecordNumber::new(1));
    append(&mut journal, 1, &said("lost"), Durability::Sync).unwrap();
    let error = reports.recv().unwrap().unwrap_err();
    assert!(matches!(error, JournalError::Write(_)) && error.is_final());
    insta::assert_snapshot!(chain(&error), @"cannot write the journal: Input/output error (os error 5)");
    for _ in 0..3 {
        let error = append(&mut journal, 2, &said("refused"), Durability::Sync).unwrap_err();
        assert!(matches!(error, JournalError::Write(_)));
    }
    assert!(matches!(journal.close(), Err(JournalError::Write(_))));
    assert!(reports.recv().is_err(), "the failure is reported once");
    assert_eq!(disk.writes(), 2, "and never tried again");
    assert_eq!(read(&disk.bytes()).0.len(), 1);
}

#[test]
fn a_short_write_of_any_length_leaves_no_incomplete_record() {
    let whole = {
        let disk = MemoryDisk::default();
        let (mut journal, _reports) = journal_on(disk.clone());
        append(&mut journal, 0, &said("kept"), Durability::Sync).unwrap();
        append(&mut journal, 1, &said("lost"), Durability::Sync).unwrap();
        journal.close().unwrap();
        disk.bytes()
    };
    for keeping in 0..whole.len() / 2 {
        let disk = MemoryDisk::default();
        disk.fail_write(2, keeping, ENOSPC);
        let (mut journal, reports) = journal_on(disk.clone());
        append(&mut journal, 0, &said("kept"), Durability::Sync).unwrap();
        reports.recv().unwrap().unwrap();
        append(&mut journal, 1, &said("lost"), Durability::Sync).unwrap();
        assert!(matches!(reports.recv().unwrap(), Err(JournalError::DiskFull(_))));
        let (records, tail) = read(&disk.bytes());
        assert_eq!((records.len(), tail.unwrap()), (1, JournalTail::Clean), "keeping {keeping}");
    }
}

#[test]
fn an_incomplete_record_that_cannot_be_truncated_is_a_torn_tail() {
    let disk = MemoryDisk::default();
    disk.fail_write(2, 20, EIO);
    disk.fail_truncate(EIO);
    let (mut journal, reports) = journal_on(disk.clone());
    append(&mut journal, 0, &said("kept"), Durability::Sync).unwrap();
    reports.recv().unwrap().unwrap();
    append(&mut journal, 1, &said("lost"), Durability::Sync).unwrap();
    reports.recv().unwrap().unwrap_err();
    let (records, tail) = read(&disk.bytes());
    assert_eq!(records.len(), 1);
    assert!(matches!(tail.unwrap(), JournalTail::Torn { bytes: 20, .. }));
}

#[test]
fn a_failed_sync_is_final_and_keeps_only_durable_records() {
    let disk = MemoryDisk::default();
    disk.fail_sync(2, EIO);
    let (mut journal, reports) = journal_on(disk.clone());
    append(&mut journal, 0, &said("durable"), Durability::Sync).unwrap();
    reports.recv().unwrap().unwrap();
    append(&mut journal, 1, &said("lazy"), Durability::Lazy).unwrap();
    append(&mut journal, 2, &said("never durable"), Durability::Sync).unwrap();
    let error = reports.recv().unwrap().unwrap_err();
    insta::assert_snapshot!(chain(&error), @"cannot sync the journal: Input/output error (os error 5)");
    assert!(matches!(
        append(&mut journal, 3, &said("refused"), Durability::Lazy),
        Err(JournalError::Sync(_))
    ));
    drop(journal);
    assert_eq!(disk.syncs(), 2, "a failed sync is not tried again");
    assert_eq!(read(&disk.bytes()).0.len(), 1);
}

#[test]
fn a_full_disk_is_distinguished_from_a_failing_one() {
    for (errno, in_sync) in [(ENOSPC, false), (EDQUOT, false), (ENOSPC, true)] {
        let disk = MemoryDisk::default();
        if in_sync {
            disk.fail_sync(1, errno)
        } else {
            disk.fail_write(1, 0, errno)
        }
        let (mut journal, reports) = journal_on(disk);
        append(&mut journal, 0, &said("lost"), Durability::Sync).unwrap();
        let error = reports.recv().unwrap().unwrap_err();
        assert!(matches!(error, JournalError::DiskFull(_)), "{error:?}");
    }
}

#[test]
fn closing_fails_if_its_sync_fails() {
    let disk = MemoryDisk::default();
    disk.fail_sync(1, EIO);
    let (mut journal, reports) = journal_on(disk);
    append(&mut journal, 0, &said("lazy"), Durability::Lazy).unwrap();
    assert!(matches!(journal.close(), Err(JournalError::Sync(_))));
    assert!(matches!(reports.recv().unwrap(), Err(JournalError::Sync(_))));
    assert!(reports.recv().is_err());
}

#[test]
fn a_record_that_is_too_large_is_refused_and_the_journal_stays_usable() {
    let disk = MemoryDisk::default();
    let (mut journal, _reports) = journal_on(disk.clone());
    let large = said(&"x".repeat(MAX_RECORD_BYTES));
    let error = append(&mut journal, 0, &large, Durability::Sync).unwrap_err();
    assert!(!error.is_final());
    insta::assert_snapshot!(error, @"record of 67108959 bytes exceeds the limit of 67108864");
    assert_eq!(
        append(&mut journal, 1, &said("small"), Durability::Sync).unwrap(),
        RecordNumber::new(1)
    );
    journal.close().unwrap();
    assert_eq!(read(&disk.bytes()).0.len(), 1);
}

#[test]
fn a_report_that_panics_closes_the_journal_instead_of_hanging_it() {
    let (send, panicked) = std::sync::mpsc::channel::<()>();
    let start = adjutant_store::JournalPosition::start(crate::fixture::run_id(0));
    let mut journal = adjutant_store::Journal::start(MemoryDisk::default(), start, move |_| {
        let _send = &send;
        std::panic::resume_unwind(Box::new("on purpose"));
    })
    .unwrap();
    append(&mut journal, 0, &said("reported"), Durability::Sync).unwrap();
    // Unwinding the writer thread drops the sender.
    panicked.recv().unwrap_err();
    assert!(matches!(journal.close(), Err(JournalError::WriterGone)));
}

/// An event that cannot be JSON, because its map keys are not strings.
#[derive(serde::Serialize)]
struct NonJsonEvent(std::collections::BTreeMap<Vec<u8>, u8>);

#[test]
fn an_event_that_cannot_be_json_writes_nothing() {
    let disk = MemoryDisk::default();
    let start = adjutant_store::JournalPosition::start(crate::fixture::run_id(0));
    let mut journal = adjutant_store::Journal::start(disk.clone(), start, |_| ()).unwrap();
    let event = NonJsonEvent([(vec![1], 1)].into());
    let error = journal.append(Timestamp::ZERO, WALL, &event, Durability::Sync).unwrap_err();
    assert!(matches!(error, JournalError::Serialize(_)));
    assert_eq!(journal.close().unwrap(), start);
    assert!(disk.bytes().is_empty());
}
