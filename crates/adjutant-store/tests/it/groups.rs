//! Groups of records: a journal that ends within a group yields none of its records.

use adjutant_core::Timestamp;
use adjutant_store::{Durability, JournalTail, MemoryDisk};

use crate::fixture::{StoreFixture, WALL, events, facts, journal_on, read, run_id, starts_of};

/// The group each of the eight records belongs to.
const GROUPS: [usize; 8] = [0, 1, 1, 1, 2, 3, 3, 4];

/// Returns the bytes of a journal of eight events in those groups, and where each record starts.
fn grouped() -> (Vec<u8>, Vec<usize>) {
    let disk = MemoryDisk::default();
    let (mut journal, _reports) = journal_on(disk.clone());
    for (nth, fact) in facts(GROUPS.len()).iter().enumerate() {
        let at = Timestamp::from_millis(nth as u64);
        let open = GROUPS.get(nth + 1) == Some(&GROUPS[nth]);
        let stage = if open {
            journal.stage_continued(at, WALL, fact, Durability::Sync)
        } else {
            journal.stage(at, WALL, fact, Durability::Sync)
        };
        stage.unwrap();
    }
    journal.close().unwrap();
    let bytes = disk.bytes();
    let starts = starts_of(&bytes);
    (bytes, starts)
}

/// Returns how many records a reader returns if only the first `whole` records are complete.
fn counting(whole: usize) -> usize {
    (0..=whole).rev().find(|&n| n == 0 || n == GROUPS.len() || GROUPS[n - 1] != GROUPS[n]).unwrap()
}

#[test]
fn a_journal_cut_at_any_byte_yields_only_complete_groups() {
    let (bytes, mut starts) = grouped();
    starts.push(bytes.len());
    for cut in 0..=bytes.len() {
        let whole = starts.iter().filter(|end| **end <= cut).count() - 1;
        let counting = counting(whole);
        let (records, tail) = read(&bytes[..cut]);
        assert_eq!(events(&records), facts(GROUPS.len())[..counting], "cut at {cut}");
        let kept = starts[counting];
        let expected = if kept == cut {
            JournalTail::Clean
        } else {
            JournalTail::Torn { offset: kept as u64, bytes: (cut - kept) as u64 }
        };
        assert_eq!(tail.unwrap(), expected, "cut at {cut}");
    }
}

#[test]
fn resuming_after_an_incomplete_group_removes_all_of_it() {
    let (bytes, starts) = grouped();
    // Two of the three records of a group are complete.
    let cut = &bytes[..starts[3]];
    let fixture = StoreFixture::new();
    let run = fixture.ended_run(0, &[]);
    assert_eq!(run.id(), run_id(0));
    std::fs::write(run.journal_path(), cut).unwrap();
    let lock = run.lock().unwrap();
    let mut seen = Vec::new();
    let (mut journal, tail) = lock.resume_journal(|record| seen.push(record), |_| ()).unwrap();
    assert!(matches!(tail, JournalTail::Torn { .. }));
    assert_eq!(events(&seen), facts(1));
    let news = &facts(2)[1];
    journal.append(Timestamp::ZERO, WALL, news, Durability::Sync).unwrap();
    journal.close().unwrap();
    let (records, tail) = read(&std::fs::read(run.journal_path()).unwrap());
    assert_eq!(events(&records), facts(2));
    assert_eq!(tail.unwrap(), JournalTail::Clean);
}
