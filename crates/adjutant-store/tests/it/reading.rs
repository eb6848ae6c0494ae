//! Reading journal files: while they are written, from the middle, and if they are missing.

use std::fs;
use std::os::unix::fs::symlink;
use std::sync::mpsc::channel;

use adjutant_store::{Durability, JournalPosition, JournalTail, ReadError, RecordNumber};

use crate::fixture::{StoreFixture, TestEvent, append, chain, events, facts, run_id, said};

#[test]
fn a_journal_is_read_while_it_is_written() {
    let fixture = StoreFixture::new();
    let run = fixture.home.create_run(run_id(0)).unwrap();
    let lock = run.lock().unwrap();
    let (send, reports) = channel();
    let report = move |report| drop(send.send(report));
    let mut journal = lock.create_journal::<TestEvent>(report).unwrap();
    let writer = std::thread::spawn(move || {
        let long = said(&"long text ".repeat(2000));
        for nth in 0..300 {
            append(&mut journal, nth, &long, Durability::Lazy).unwrap();
        }
        append(&mut journal, 300, &said("end"), Durability::Sync).unwrap();
        journal
    });
    // A reader sees a prefix of the journal at any time, and the prefix contains all durable records.
    let mut position = JournalPosition::start(run_id(0));
    let mut durable = RecordNumber::ZERO;
    while durable < RecordNumber::new(301) {
        let mut expected = position.seq;
        let mut reader = run.read_from::<TestEvent>(position).unwrap();
        for record in &mut reader {
            expected = expected.next();
            assert_eq!(record.unwrap().seq, expected);
        }
        position = reader.position();
        assert!(position.seq >= durable);
        durable = reports.try_recv().map_or(durable, Result::unwrap);
    }
    writer.join().unwrap().close().unwrap();
    assert_eq!(run.read_journal::<TestEvent>().unwrap().count(), 301);
}

#[test]
fn reading_continues_from_any_position_between_records() {
    let fixture = StoreFixture::new();
    let facts = facts(10);
    let run = fixture.ended_run(0, &facts);
    let mut reader = run.read_journal::<TestEvent>().unwrap();
    for nth in 1..=10 {
        reader.next().unwrap().unwrap();
        let rest: Vec<_> = run.read_from(reader.position()).unwrap().map(Result::unwrap).collect();
        assert_eq!(events(&rest), facts[nth..]);
    }
}

#[test]
fn reading_from_a_position_beyond_the_end_is_an_error() {
    let fixture = StoreFixture::new();
    let run = fixture.ended_run(0, &facts(1));
    let beyond = JournalPosition { offset: 5000, ..JournalPosition::start(run_id(0)) };
    insta::assert_snapshot!(run.read_from::<TestEvent>(beyond).unwrap_err(), @"journal has 134 bytes, but reading should continue at byte 5000");
}

#[test]
fn an_empty_journal_has_no_records_and_no_tail() {
    let fixture = StoreFixture::new();
    let run = fixture.ended_run(0, &[]);
    let mut reader = run.read_journal::<TestEvent>().unwrap();
    assert!(reader.next().is_none());
    assert_eq!(reader.tail(), JournalTail::Clean);
}

#[test]
fn a_missing_journal_is_an_error_with_its_path() {
    let fixture = StoreFixture::new();
    let run = fixture.home.create_run(run_id(0)).unwrap();
    let error = run.read_journal::<TestEvent>().unwrap_err();
    insta::assert_snapshot!(fixture.redact(&chain(&error)), @"cannot open $WORK/state/runs/run_1735460684_a1b2c3/journal.jsonl: No such file or directory (os error 2)");
}

#[test]
fn a_symbolic_link_or_pipe_instead_of_the_journal_is_refused() {
    let fixture = StoreFixture::new();
    let run = fixture.home.create_run(run_id(0)).unwrap();
    fs::write(fixture.dir.path().join("elsewhere"), "{}").unwrap();
    symlink(fixture.dir.path().join("elsewhere"), run.journal_path()).unwrap();
    assert!(matches!(run.read_journal::<TestEvent>(), Err(ReadError::File(_))));
    fs::remove_file(run.journal_path()).unwrap();
    let mode = rustix::fs::Mode::RUSR;
    let kind = rustix::fs::FileType::Fifo;
    rustix::fs::mknodat(rustix::fs::CWD, run.journal_path(), kind, mode, 0).unwrap();
    let error = run.read_journal::<TestEvent>().unwrap_err();
    insta::assert_snapshot!(fixture.redact(&chain(&error)), @"cannot open $WORK/state/runs/run_1735460684_a1b2c3/journal.jsonl: not a regular file");
}
