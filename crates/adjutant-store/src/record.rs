//! One record of a journal: how a line is written and what it says.
//!
//! A record is one line:
//!
//! ```text
//! {"v":1,"seq":7,"at":1250,"wall":1735460685250,"event":{…},"crc":"1a2b3c4d"}
//! ```
//!
//! `v` is the format, `seq` counts from 1 without gaps (so it is also the line number), `at` is
//! milliseconds of the run's own life, `wall` is Unix milliseconds for people, `"more":true` after
//! it says that the record counts only together with the next, `event` is the caller's, `crc` is the CRC32C of the line's bytes before `,"crc"`, seeded with the checksum of
//! the record before, or for the first one with that of the run's id.
//!
//! The frame (`{"v":N,` in front, the seal at the end, the chain) is the same in every format;
//! `v` rises when the meaning of what stands between changes. `docs/journal.md` tells the rest.
//! Invariant: the order of the fields is fixed, so the seal is appended without serialising twice.

use std::fmt;
use std::io::Write;

use adjutant_core::{RunId, Timestamp};
use serde::{Deserialize, Serialize, de::DeserializeOwned};

use crate::seal;

/// The journal format this build writes, and the newest it reads.
pub const FORMAT: u32 = 1;

/// The longest line a journal may hold. Inclusive, line break included.
///
/// Far above the largest reply a model sends (10 MB of text is a test case); the bound keeps a
/// reader's memory finite when a damaged file has lost its line breaks.
pub const MAX_RECORD_BYTES: usize = 64 << 20;

/// The place of a record in its journal. The first is 1; zero is the place before it.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct RecordNumber(u64);

impl RecordNumber {
    /// The place before the first record.
    pub const ZERO: Self = Self(0);

    /// Takes a number as a place.
    #[must_use]
    pub const fn new(number: u64) -> Self {
        Self(number)
    }

    /// Returns the place as a number.
    #[must_use]
    pub const fn get(self) -> u64 {
        self.0
    }

    /// Returns the place after this one.
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

/// One fact of a run, with its place and its times.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JournalRecord<E> {
    /// The record's place in the journal.
    pub seq: RecordNumber,
    /// When it happened in the life of the run.
    pub at: Timestamp,
    /// When it happened by the wall clock, in Unix milliseconds; for people, never for deadlines.
    pub wall_ms: u64,
    /// What happened.
    pub event: E,
}

/// Says whether a record stands for itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum GroupMark {
    /// It counts only together with the record after it.
    Continues,
    /// It, and whatever was open before it, counts.
    Ends,
}

/// A place between two records, with what is needed to go on reading or writing there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct JournalPosition {
    /// The byte at which the next record begins.
    pub offset: u64,
    /// The record before this place.
    pub seq: RecordNumber,
    /// The checksum of the record before this place, which seeds the next.
    pub crc: u32,
}

impl JournalPosition {
    /// Returns the place before the first record of `run`.
    #[must_use]
    pub fn start(run: RunId) -> Self {
        Self::start_of_log(&run.to_string())
    }

    /// Returns the place before the first record of a log whose chain belongs to `name`.
    pub(crate) fn start_of_log(name: &str) -> Self {
        Self { offset: 0, seq: RecordNumber::ZERO, crc: seal::chain_seed(name) }
    }

    /// Returns the place after a record of `bytes` bytes whose checksum is `crc`.
    pub(crate) fn after(self, bytes: usize, crc: u32) -> Self {
        Self { offset: self.offset + bytes as u64, seq: self.seq.next(), crc }
    }
}

/// Appends the record that follows `position` to `lines`; returns the place after it.
///
/// On an error `lines` is as it was.
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
        // One line per record holds because JSON text escapes line breaks.
        serde_json::to_writer(&mut *lines, event)
    });
    if let Err(error) = event {
        lines.truncate(start);
        return Err(error);
    }
    let crc = seal::append_seal(lines, start, position.crc);
    Ok(position.after(lines.len() - start, crc))
}

/// The fields of a line as they are parsed.
#[derive(Deserialize)]
struct RecordLine<E> {
    seq: RecordNumber,
    at: Timestamp,
    wall: u64,
    #[serde(default)]
    more: bool,
    event: E,
}

/// Parses a line whose seal was checked.
pub(crate) fn parse<E: DeserializeOwned>(
    line: &[u8],
) -> Result<(JournalRecord<E>, GroupMark), serde_json::Error> {
    let RecordLine { seq, at, wall, more, event } = serde_json::from_slice(line)?;
    let group_mark = if more { GroupMark::Continues } else { GroupMark::Ends };
    Ok((JournalRecord { seq, at, wall_ms: wall, event }, group_mark))
}

/// Reads the format a line claims to have.
pub(crate) fn claimed_format(line: &[u8]) -> Option<u32> {
    let rest = line.strip_prefix(br#"{"v":"#)?;
    let digits = rest.iter().take_while(|byte| byte.is_ascii_digit()).count();
    if rest.get(digits) != Some(&b',') {
        return None;
    }
    std::str::from_utf8(&rest[..digits]).ok()?.parse().ok()
}
