//! Resuming a damaged run truncates a torn tail and changes nothing else.

use std::fs;

use adjutant_store::{Durability, JournalTail, OpenJournalError, ReadError, RecordNumber, RunDir};

use crate::fixture::{StoreFixture, TestEvent, append, bytes_of, facts, run_id, said, starts_of};

/// The seed of all random numbers here; a failing test names the offset it used.
const SEED: u64 = 0x5eed;

/// Returns a generator of reproducible pseudorandom numbers (SplitMix64).
fn numbers(mut state: u64) -> impl FnMut(usize) -> usize {
    move |bound| {
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = state;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        usize::try_from((mixed ^ (mixed >> 31)) % bound as u64).unwrap()
    }
}

/// Creates a run whose journal the test writes itself.
fn run_of(fixture: &StoreFixture) -> RunDir {
    fixture.ended_run(0, &[])
}

/// Resumes the run. Returns the number of records and the tail.
fn resume(run: &RunDir) -> Result<(usize, JournalTail), OpenJournalError> {
    let mut count = 0;
    let (journal, tail) =
        run.lock().unwrap().resume_journal::<TestEvent>(|_| count += 1, |_| ())?;
    journal.close().unwrap();
    Ok((count, tail))
}

#[test]
fn a_run_cut_at_any_byte_resumes_from_its_last_complete_record() {
    let fixture = StoreFixture::new();
    let run = run_of(&fixture);
    let (bytes, starts) = bytes_of(&facts(3));
    for len in 0..=bytes.len() {
        fs::write(run.journal_path(), &bytes[..len]).unwrap();
        let lock = run.lock().unwrap();
        let mut seen = 0;
        let (mut journal, tail) =
            lock.resume_journal::<TestEvent>(|_| seen += 1, |_| ()).unwrap_or_else(|error| {
                panic!("cut at {len}: {error}");
            });
        let whole = starts.iter().skip(1).chain([&bytes.len()]).filter(|end| **end <= len).count();
        assert_eq!(seen, whole, "cut at {len}");
        assert_eq!(tail == JournalTail::Clean, starts.contains(&len) || len == bytes.len());
        let next = append(&mut journal, 9, &said("goes on"), Durability::Lazy).unwrap();
        assert_eq!(next, RecordNumber::new(whole as u64 + 1));
        journal.close().unwrap();
        let mut reader = run.read_journal::<TestEvent>().unwrap();
        assert_eq!((&mut reader).map(Result::unwrap).count(), whole + 1, "cut at {len}");
        assert_eq!(reader.tail(), JournalTail::Clean);
    }
}

#[test]
fn five_hundred_flipped_bits_are_located_or_truncated_as_a_torn_tail() {
    let fixture = StoreFixture::new();
    let run = run_of(&fixture);
    let (bytes, starts) = bytes_of(&facts(40));
    let mut draw = numbers(SEED);
    for _ in 0..500 {
        let (at, bit) = (draw(bytes.len()), draw(8));
        let nth = starts.iter().filter(|start| **start <= at).count();
        let mut flipped = bytes.clone();
        flipped[at] ^= 1 << bit;
        fs::write(run.journal_path(), &flipped).unwrap();
        let place = format!("seed {SEED:#x}: byte {at}, bit {bit}");
        match resume(&run) {
            Ok((count, JournalTail::Torn { offset, .. })) => {
                assert_eq!((nth, count), (40, 39), "{place}: only the last may be cut");
                assert_eq!(offset, starts[39] as u64, "{place}");
                assert_eq!(fs::read(run.journal_path()).unwrap(), bytes[..starts[39]], "{place}");
            }
            Ok((_, JournalTail::Clean)) => panic!("unnoticed: {place}"),
            Err(OpenJournalError::Read(ReadError::Damaged { seq, offset, .. })) => {
                assert_eq!(
                    (seq, offset),
                    (RecordNumber::new(nth as u64), starts[nth - 1] as u64),
                    "{place}"
                );
                assert_eq!(fs::read(run.journal_path()).unwrap(), flipped, "{place}: untouched");
            }
            Err(OpenJournalError::Read(ReadError::Newer { .. })) => assert_eq!(at, 5, "{place}"),
            Err(error) => panic!("{place}: {error}"),
        }
    }
}

#[test]
fn swapped_or_repeated_records_are_reported_and_the_file_is_unchanged() {
    let fixture = StoreFixture::new();
    let run = run_of(&fixture);
    let (bytes, starts) = bytes_of(&facts(12));
    let lines: Vec<&[u8]> = bytes.split_inclusive(|byte| *byte == b'\n').collect();
    let check = |lines: &[&[u8]], good: usize, what: &str| {
        let changed = lines.concat();
        fs::write(run.journal_path(), &changed).unwrap();
        match resume(&run) {
            Err(OpenJournalError::Read(ReadError::Damaged { seq, offset, .. })) => {
                assert_eq!(seq, RecordNumber::new(good as u64 + 1), "{what}");
                assert_eq!(offset, starts_of(&changed)[good] as u64, "{what}");
                assert_eq!(fs::read(run.journal_path()).unwrap(), changed, "{what}: untouched");
            }
            // A last line that does not belong here looks like a torn write; only that line is truncated.
            Ok((count, JournalTail::Torn { .. })) => {
                assert_eq!((count, good), (lines.len() - 1, lines.len() - 1), "{what}");
            }
            other => panic!("{what}: {other:?}"),
        }
    };
    for first in 0..12 {
        for second in first + 1..12 {
            let mut swapped = lines.clone();
            swapped.swap(first, second);
            check(&swapped, first, &format!("{first} and {second} swapped"));
        }
        for place in first + 1..=12 {
            let mut repeated = lines.clone();
            repeated.insert(place, lines[first]);
            check(&repeated, place, &format!("{first} repeated at {place}"));
        }
        let mut missing = lines.clone();
        missing.remove(first);
        if first < 11 {
            check(&missing, first, &format!("{first} missing"));
        }
    }
    assert_eq!(starts.len(), 12);
}

#[test]
fn a_second_process_finds_the_run_locked_and_leaves_the_journal_unchanged() {
    let fixture = StoreFixture::new();
    let run = fixture.ended_run(0, &facts(3));
    let before = fs::read(run.journal_path()).unwrap();
    let lock = run.lock().unwrap();
    let other = std::process::Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "recovery::try_to_resume_the_run", "--nocapture"])
        .env("ADJUTANT_TEST_TAKEN", fixture.dir.path().join("state"))
        .output()
        .unwrap();
    let said = String::from_utf8(other.stdout).unwrap();
    let refused = format!("refused: the run is in use by process {}", std::process::id());
    assert!(said.contains(&refused), "{said}");
    assert_eq!(fs::read(run.journal_path()).unwrap(), before);
    drop(lock);
}

#[test]
fn try_to_resume_the_run() {
    // Not a test: the code of the second process in the test above.
    let Some(state) = std::env::var_os("ADJUTANT_TEST_TAKEN") else { return };
    let home = adjutant_store::StateDir::open(state.as_ref()).unwrap();
    match home.run(run_id(0)).lock() {
        Ok(_) => println!("taken"),
        Err(error) => println!("refused: {error}"),
    }
}

#[test]
fn a_journal_that_was_read_is_continued_unless_it_has_changed() {
    let fixture = StoreFixture::new();
    let run = fixture.ended_run(0, &facts(3));
    let read = || {
        let stamp = run.journal_stamp().unwrap();
        let mut reader = run.read_journal::<TestEvent>().unwrap();
        assert!(reader.all(|record| record.is_ok()));
        (reader.position(), stamp)
    };
    let goes_on = |(position, stamp)| {
        let lock = run.lock().unwrap();
        let journal = lock.continue_journal(position, stamp, |_| ()).unwrap();
        journal.map(|mut journal| {
            append(&mut journal, 9, &said("goes on"), Durability::Sync).unwrap();
            journal.close().unwrap();
        })
    };
    let before = read();
    assert!(goes_on(before).is_some());
    assert!(goes_on(before).is_none(), "a record was added since");
    assert_eq!(resume(&run).unwrap(), (4, JournalTail::Clean));
    let bytes = fs::read(run.journal_path()).unwrap();
    fs::write(run.journal_path(), &bytes[..bytes.len() - 1]).unwrap();
    assert!(goes_on(read()).is_none(), "its last record is torn");
}
