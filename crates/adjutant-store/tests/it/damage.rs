//! Damaged journals: at the end a torn tail, anywhere else an error that names the line.

use adjutant_store::{JournalTail, ReadError, RecordDamage, RecordNumber};
use proptest::prelude::*;

use crate::fixture::{TestEvent, bytes_of, chain, events, facts, read, said, starts_of};

#[test]
fn any_byte_prefix_of_a_journal_yields_a_record_prefix() {
    let facts = facts(8);
    let (bytes, starts) = bytes_of(&facts);
    for len in 0..=bytes.len() {
        let (records, tail) = read(&bytes[..len]);
        let whole = starts.iter().skip(1).chain([&bytes.len()]).filter(|end| **end <= len).count();
        assert_eq!(events(&records), facts[..whole], "cut at {len}");
        let end = starts.get(whole).copied().unwrap_or(bytes.len());
        let expected = match len - end {
            0 => JournalTail::Clean,
            rest => JournalTail::Torn { offset: end as u64, bytes: rest as u64 },
        };
        assert_eq!(tail.unwrap(), expected, "cut at {len}");
    }
}

#[test]
fn a_bit_flip_anywhere_is_detected_and_located() {
    let facts: Vec<TestEvent> = ["one", "two", "three"].map(said).into();
    let (bytes, starts) = bytes_of(&facts);
    for at in 0..bytes.len() {
        let nth = starts.iter().filter(|start| **start <= at).count();
        for bit in 0..8 {
            let mut flipped = bytes.clone();
            flipped[at] ^= 1 << bit;
            let (records, tail) = read(&flipped);
            let place = format!("byte {at}, bit {bit}");
            assert_eq!(events(&records), facts[..nth - 1], "{place}");
            match tail {
                Ok(JournalTail::Torn { offset, .. }) => {
                    assert_eq!((nth, offset), (3, starts[2] as u64), "{place}");
                }
                Ok(JournalTail::Clean) => panic!("unnoticed: {place}"),
                Err(ReadError::Damaged { seq, offset, .. }) => {
                    assert_eq!(seq, RecordNumber::new(nth as u64), "{place}");
                    assert_eq!(offset, starts[nth - 1] as u64, "{place}");
                    assert!(nth < 3, "{place}");
                }
                // A first line that claims a newer format is refused before its checksum is checked.
                Err(ReadError::Newer { .. }) => assert_eq!(at, 5, "{place}"),
                Err(other) => panic!("{place}: {other}"),
            }
        }
    }
}

#[test]
fn a_lost_line_break_before_the_last_record_is_reported_as_damage() {
    let (mut bytes, starts) = bytes_of(&facts(3));
    bytes[starts[2] - 1] = b' ';
    let (records, error) = read(&bytes);
    assert_eq!(records.len(), 1);
    insta::assert_snapshot!(error.unwrap_err(), @"journal is damaged at line 2 (record 2, byte 134): the line break is missing");
}

#[test]
fn moved_repeated_and_missing_records_are_detected() {
    let (bytes, starts) = bytes_of(&facts(5));
    let lines: Vec<&[u8]> = bytes.split_inclusive(|byte| *byte == b'\n').collect();
    let swapped = [lines[0], lines[2], lines[1], lines[3], lines[4]].concat();
    let repeated = [lines[0], lines[1], lines[1], lines[2], lines[3], lines[4]].concat();
    let missing = [lines[0], lines[2], lines[3], lines[4]].concat();
    for (bytes, good) in [(swapped, 1), (repeated, 2), (missing, 1)] {
        let (records, error) = read(&bytes);
        assert_eq!(records.len(), good);
        let Err(ReadError::Damaged { seq, offset, damage: RecordDamage::Checksum { .. } }) = error
        else {
            panic!("{error:?}");
        };
        assert_eq!(seq, RecordNumber::new(good as u64 + 1));
        assert_eq!(offset, starts[good] as u64);
    }
}

#[test]
fn the_journal_of_another_run_is_damage_from_its_first_line() {
    let (bytes, _) = bytes_of(&facts(3));
    let start = adjutant_store::JournalPosition::start(crate::fixture::run_id(1));
    let reader = adjutant_store::JournalReader::<TestEvent, _>::new(bytes.as_slice(), start);
    let errors: Vec<_> = reader.map(|record| record.unwrap_err()).collect();
    assert_eq!(errors.len(), 1, "the first error ends the iteration");
    insta::assert_snapshot!(errors[0], @"journal is damaged at line 1 (record 1, byte 0): checksum is 84dcbc15, expected 19c02350");
}

#[test]
fn damage_in_the_middle_is_reported_with_its_line() {
    let (mut bytes, starts) = bytes_of(&facts(5));
    bytes[starts[2] + 30] ^= 1;
    insta::assert_snapshot!(read(&bytes).1.unwrap_err(), @"journal is damaged at line 3 (record 3, byte 232): checksum is 3ef5ca59, expected dfbab441");
    bytes.splice(starts[3]..starts[4], *b"not a record\n");
    bytes[starts[2] + 30] ^= 1;
    insta::assert_snapshot!(read(&bytes).1.unwrap_err(), @"journal is damaged at line 4 (record 4, byte 346): the line has no checksum");
}

#[test]
fn zeros_at_the_end_are_a_torn_tail() {
    // Some file systems leave zeros after a power failure.
    let (mut bytes, _) = bytes_of(&facts(3));
    let end = bytes.len() as u64;
    bytes.extend([0; 4096]);
    let (records, tail) = read(&bytes);
    assert_eq!((records.len(), tail.unwrap()), (3, JournalTail::Torn { offset: end, bytes: 4096 }));
}

/// Seals `line` as the record after `bytes`, by the rule of `docs/journal.md`.
fn seal(bytes: &mut Vec<u8>, line: &str) {
    let seed = match starts_of(bytes).last() {
        None => crc32c::crc32c(crate::fixture::run_id(0).to_string().as_bytes()),
        Some(_) => {
            let hex = std::str::from_utf8(&bytes[bytes.len() - 11..bytes.len() - 3]).unwrap();
            u32::from_str_radix(hex, 16).unwrap()
        }
    };
    let crc = crc32c::crc32c_append(seed, line.as_bytes());
    bytes.extend(format!("{line},\"crc\":\"{crc:08x}\"}}\n").bytes());
}

#[test]
fn records_sealed_by_the_documented_rule_are_valid() {
    let (mut bytes, _) = bytes_of(&facts(2));
    seal(&mut bytes, r#"{"v":1,"seq":3,"at":5,"wall":6,"event":{"type":"cost","tokens":7}"#);
    let (records, tail) = read(&bytes);
    assert_eq!(
        (records[2].event.clone(), tail.unwrap()),
        (TestEvent::Cost { tokens: 7 }, JournalTail::Clean)
    );
}

#[test]
fn a_newer_format_is_refused_with_its_version() {
    let mut bytes = Vec::new();
    seal(&mut bytes, r#"{"v":2,"seq":1,"happened":"something"#);
    insta::assert_snapshot!(read(&bytes).1.unwrap_err(), @"journal format 2 is newer than this adjutant understands (1); read it with the adjutant that wrote it, or a newer one");
    // Also without a valid seal, complete or not, so that it is never truncated as a torn tail.
    for foreign in ["{\"v\":2,\"new\":1}\n", "{\"v\":2,\"n", "{\"v\":2,\"a\":1}\n{\"v\":2}\n"] {
        assert!(matches!(read(foreign.as_bytes()).1, Err(ReadError::Newer { found: 2 })));
    }
    let (mut bytes, _) = bytes_of(&facts(2));
    seal(&mut bytes, r#"{"v":12,"seq":3,"new":1"#);
    let (records, error) = read(&bytes);
    assert_eq!(records.len(), 2);
    assert!(matches!(error, Err(ReadError::Newer { found: 12 })));
}

#[test]
fn an_intact_record_that_cannot_be_parsed_is_never_truncated() {
    let (mut bytes, _) = bytes_of(&facts(2));
    seal(&mut bytes, r#"{"v":1,"seq":3,"at":5,"wall":6,"event":{"type":"dreamt"}"#);
    let (records, error) = read(&bytes);
    assert_eq!(records.len(), 2);
    insta::assert_snapshot!(chain(&error.unwrap_err()), @"record 3 (line 3, byte 232) is intact but not understood: unknown variant `dreamt`, expected one of `started`, `said`, `cost` at line 1 column 55");
}

#[test]
fn a_record_with_a_wrong_number_is_damage() {
    let (mut bytes, _) = bytes_of(&facts(2));
    seal(&mut bytes, r#"{"v":1,"seq":4,"at":5,"wall":6,"event":{"type":"cost","tokens":7}"#);
    insta::assert_snapshot!(read(&bytes).1.unwrap_err(), @"journal is damaged at line 3 (record 3, byte 232): the record says it is number 4");
}

proptest! {
    #[test]
    fn reading_arbitrary_bytes_ends_and_returns_no_records_that_were_not_written(
        noise in proptest::collection::vec(any::<u8>(), 0..200),
        at in any::<prop::sample::Index>(),
    ) {
        let facts = facts(4);
        let (mut bytes, _) = bytes_of(&facts);
        let at = at.index(bytes.len() + 1);
        bytes.splice(at..at, noise);
        let (records, _) = read(&bytes);
        let found = events(&records);
        prop_assert_eq!(found.as_slice(), &facts[..found.len()]);
    }
}
