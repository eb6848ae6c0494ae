//! The records of a journal: their fields, and how they are written and parsed.
//!
//! A record is one line:
//!
//! ```text
//! {"v":1,"seq":7,"at":1250,"wall":1735460685250,"event":{…},"crc":"1a2b3c4d"}
//! ```
//!
//! `v` is the format version; `seq` counts from 1 without gaps, so it is also the line number; `at` is
//! the time since the run started in milliseconds; `wall` is Unix milliseconds, for display only.
//! `"more":true` after it means that the record is valid only together with the next one. `event` belongs
//! to the caller. `crc` is the seal (see `seal`); the seed of the first record is made from the run's id.
//!
//! `{"v":N,` at the start and the chained seal at the end are the same in every format; `v` increases
//! when the meaning of the fields between them changes. See `docs/journal.md`.
//! Invariant: the order of the fields is fixed, so the seal is appended without serialising twice.
//!
//! A [`JournalRecord`] is one record, a [`RecordNumber`] its `seq`, a [`JournalPosition`] a place
//! between two records, and a `GroupMark` says whether more records of the same group follow.

use std::fmt;
use std::io::Write;

use adjutant_core::{RunId, Timestamp};
use serde::{Deserialize, Serialize, de::DeserializeOwned};

use crate::seal;

/// The journal format that this version writes, and the newest that it reads.
pub const FORMAT: u32 = 1;

/// The longest line that a journal may contain, including its line break.
///
/// Far above the largest model reply (10 MB of text is a test case). It bounds a reader's memory when
/// a damaged file has lost its line breaks.
pub const MAX_RECORD_BYTES: usize = 64 << 20;

/// The number of a record in its journal, counted from 1. Zero means "before the first record".
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct RecordNumber(u64);

impl RecordNumber {
    /// Before the first record.
    pub const ZERO: Self = Self(0);

    /// Converts a number into a record number.
    #[must_use]
    pub const fn new(number: u64) -> Self {
        Self(number)
    }

    /// Returns the number.
    #[must_use]
    pub const fn get(self) -> u64 {
        self.0
    }

    /// Returns the number of the next record.
    #[must_use]
    pub const fn next(self) -> Self {
        Self(self.0.saturating_add(1))
    }
}

impl fmt::Display for RecordNumber {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// One event of a journal, with its number and its times.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JournalRecord<E> {
    /// The record's number.
    pub seq: RecordNumber,
    /// When the event happened, measured from the start of the run.
    pub at: Timestamp,
    /// When the event happened by the wall clock, in Unix milliseconds. For display, never for deadlines.
    pub wall_ms: u64,
    /// The event.
    pub event: E,
}

/// Whether a record ends its group. Readers return the records of a group together or not at all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum GroupMark {
    /// The next record belongs to the same group.
    Continues,
    /// The record is the last of its group, which may consist of it alone.
    Ends,
}

/// A position between two records, with what is needed to continue reading or writing there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct JournalPosition {
    /// The byte at which the next record starts.
    pub offset: u64,
    /// The number of the record before this position.
    pub seq: RecordNumber,
    /// The checksum of the record before this position, which is the seed of the next record's checksum.
    pub crc: u32,
}

impl JournalPosition {
    /// Returns the position before the first record of `run`.
    #[must_use]
    pub fn start(run: RunId) -> Self {
        Self::start_of_log(&run.to_string())
    }

    /// Returns the position before the first record of the shared log called `name`.
    pub(crate) fn start_of_log(name: &str) -> Self {
        Self { offset: 0, seq: RecordNumber::ZERO, crc: seal::chain_seed(name) }
    }

    /// Returns the position after a record of `bytes` bytes with the checksum `crc`.
    pub(crate) fn after(self, bytes: usize, crc: u32) -> Self {
        Self { offset: self.offset + bytes as u64, seq: self.seq.next(), crc }
    }
}

/// Appends the record that follows `position` to `lines`. Returns the position after it.
///
/// Leaves `lines` unchanged on error.
pub(crate) fn encode<E: Serialize>(
    lines: &mut Vec<u8>,
    position: JournalPosition,
    at: Timestamp,
    wall_ms: u64,
    event: &E,
    group_mark: GroupMark,
) -> Result<JournalPosition, serde_json::Error> {
    let start = lines.len();
    let (seq, at) = (position.seq.next(), at.as_millis());
    let more = if group_mark == GroupMark::Continues { r#""more":true,"# } else { "" };
    let head =
        write!(lines, r#"{{"v":{FORMAT},"seq":{seq},"at":{at},"wall":{wall_ms},{more}"event":"#);
    let event = head.map_err(serde_json::Error::io).and_then(|()| {
        // This never writes a line break, because JSON escapes them.
        serde_json::to_writer(&mut *lines, event)
    });
    if let Err(error) = event {
        lines.truncate(start);
        return Err(error);
    }
    let crc = seal::append_seal(lines, start, position.crc);
    Ok(position.after(lines.len() - start, crc))
}

/// One line of a journal, parsed: number, times and event.
#[derive(Deserialize)]
struct RecordLine<E> {
    seq: RecordNumber,
    at: Timestamp,
    wall: u64,
    #[serde(default)]
    more: bool,
    event: E,
}

/// Parses a line whose seal is valid.
pub(crate) fn parse<E: DeserializeOwned>(
    line: &[u8],
) -> Result<(JournalRecord<E>, GroupMark), serde_json::Error> {
    let RecordLine { seq, at, wall, more, event } = serde_json::from_slice(line)?;
    let group_mark = if more { GroupMark::Continues } else { GroupMark::Ends };
    Ok((JournalRecord { seq, at, wall_ms: wall, event }, group_mark))
}

/// Returns the format version that a line starts with, valid or not.
pub(crate) fn claimed_format(line: &[u8]) -> Option<u32> {
    let rest = line.strip_prefix(br#"{"v":"#)?;
    let digits = rest.iter().take_while(|byte| byte.is_ascii_digit()).count();
    if rest.get(digits) != Some(&b',') {
        return None;
    }
    std::str::from_utf8(&rest[..digits]).ok()?.parse().ok()
}
