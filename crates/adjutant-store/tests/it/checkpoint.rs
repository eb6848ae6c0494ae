//! Checkpoints are used only if they are intact and belong to the journal.

use std::fs;

use adjutant_store::{JournalPosition, RunDir};

use crate::fixture::{StoreFixture, TestEvent, facts, run_id};

/// Creates a run with a checkpoint whose state is the number of records.
fn saved(fixture: &StoreFixture) -> (RunDir, JournalPosition) {
    let run = fixture.ended_run(0, &facts(6));
    let mut reader = run.read_journal::<TestEvent>().unwrap();
    let count = reader.by_ref().take(4).count();
    run.save_checkpoint(1, reader.position(), &count).unwrap();
    (run, reader.position())
}

#[test]
fn a_checkpoint_returns_its_state_and_the_position_to_continue_from() {
    let fixture = StoreFixture::new();
    let (run, position) = saved(&fixture);
    let (found, count) = run.load_checkpoint::<usize>(1).unwrap();
    assert_eq!((found, count), (position, 4));
    assert_eq!(run.read_from::<TestEvent>(found).unwrap().count(), 2);
}

#[test]
fn loading_a_missing_checkpoint_returns_none() {
    let fixture = StoreFixture::new();
    let run = fixture.ended_run(0, &facts(2));
    assert!(run.load_checkpoint::<usize>(1).is_none());
}

#[test]
fn a_checkpoint_of_another_fold_version_or_type_is_ignored() {
    let fixture = StoreFixture::new();
    let (run, _) = saved(&fixture);
    assert!(run.load_checkpoint::<usize>(2).is_none());
    assert!(run.load_checkpoint::<String>(1).is_none());
}

#[test]
fn a_checkpoint_with_any_damaged_byte_is_ignored() {
    let fixture = StoreFixture::new();
    let (run, _) = saved(&fixture);
    let whole = fs::read(run.checkpoint_path()).unwrap();
    for at in 0..whole.len() {
        fs::write(run.checkpoint_path(), &whole[..at]).unwrap();
        assert!(run.load_checkpoint::<usize>(1).is_none(), "cut at {at}");
        let mut flipped = whole.clone();
        flipped[at] ^= 4;
        fs::write(run.checkpoint_path(), &flipped).unwrap();
        assert!(run.load_checkpoint::<usize>(1).is_none(), "flipped at {at}");
    }
}

#[test]
fn a_checkpoint_that_does_not_match_the_journal_is_ignored() {
    let fixture = StoreFixture::new();
    let (run, position) = saved(&fixture);
    let journal = fs::read(run.journal_path()).unwrap();
    let offset = usize::try_from(position.offset).unwrap();
    fs::write(run.journal_path(), &journal[..offset - 1]).unwrap();
    assert!(run.load_checkpoint::<usize>(1).is_none(), "the journal is shorter");
    let mut rewritten = journal.clone();
    rewritten[offset - 4] ^= 1;
    fs::write(run.journal_path(), &rewritten).unwrap();
    assert!(run.load_checkpoint::<usize>(1).is_none(), "the journal is another one");
    fs::remove_file(run.journal_path()).unwrap();
    assert!(run.load_checkpoint::<usize>(1).is_none(), "the journal is gone");
    fs::write(run.journal_path(), &journal).unwrap();
    assert!(run.load_checkpoint::<usize>(1).is_some());
}

#[test]
fn the_checkpoint_of_another_run_is_ignored() {
    let fixture = StoreFixture::new();
    let (run, _) = saved(&fixture);
    let other = fixture.ended_run(1, &facts(6));
    fs::copy(run.checkpoint_path(), other.checkpoint_path()).unwrap();
    assert!(other.load_checkpoint::<usize>(1).is_none());
    assert_ne!(run.id(), run_id(1));
}

#[test]
fn a_checkpoint_before_the_first_record_is_valid() {
    let fixture = StoreFixture::new();
    let run = fixture.ended_run(0, &facts(2));
    let start = JournalPosition::start(run.id());
    run.save_checkpoint(1, start, &0).unwrap();
    assert_eq!(run.load_checkpoint::<usize>(1), Some((start, 0)));
}
