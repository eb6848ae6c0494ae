//! Reads a journal, in any process, also while another process writes it.
//!
//! Reads one line at a time, checks its seal and parses it. It never changes a file and takes no lock.
//! Whether an incomplete last line means a crash or an active writer is told by
//! [`RunDir::liveness`](crate::RunDir::liveness).
//!
//! Start at [`read_journal`]. Invariant: the returned records are a prefix of the written ones, in order.
//! Anything else ends the iteration with an error that names the line, or is the [`JournalTail`].
//!
//! A [`ReadError`] is why reading ended early, a [`RecordDamage`] what is wrong with one line.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Seek, SeekFrom};
use std::path::Path;

use adjutant_core::RunId;
use serde::de::DeserializeOwned;

use crate::files::{self, FileError, FileErrorContext};
use crate::record::{
    self, FORMAT, GroupMark, JournalPosition, JournalRecord, MAX_RECORD_BYTES, RecordNumber,
};
use crate::seal::{self, SealError};

/// The size of the read buffer.
const BUFFER_BYTES: usize = 64 << 10;

/// What follows the last complete record of a journal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JournalTail {
    /// Nothing.
    Clean,
    /// An incomplete record, or an incomplete group of records. A writer is writing it now, or died
    /// while it did.
    Torn {
        /// The byte at which the incomplete part starts.
        offset: u64,
        /// The length of the incomplete part.
        bytes: u64,
    },
}

/// Why a journal cannot be read, or not to its end.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// The file cannot be opened.
    #[error(transparent)]
    File(#[from] FileError),
    /// The file cannot be read.
    #[error("cannot read the journal")]
    Io(#[source] io::Error),
    /// A record was changed after it was written, and it is not the last one.
    #[error("journal is damaged at line {seq} (record {seq}, byte {offset}): {damage}")]
    Damaged {
        /// The number of the expected record, which is also the line number.
        seq: RecordNumber,
        /// The byte at which the line starts.
        offset: u64,
        /// What is wrong with it.
        damage: RecordDamage,
    },
    /// A newer version of adjutant wrote the journal.
    #[error(
        "journal format {found} is newer than this adjutant understands ({known}); \
         read it with the adjutant that wrote it, or a newer one",
        known = FORMAT
    )]
    Newer {
        /// The format version of the record.
        found: u32,
    },
    /// The record's checksum is right, but this version of adjutant cannot parse it.
    #[error("record {seq} (line {seq}, byte {offset}) is intact but not understood")]
    Unknown {
        /// The number of the record.
        seq: RecordNumber,
        /// The byte at which the line starts.
        offset: u64,
        /// The parser's error.
        #[source]
        source: serde_json::Error,
    },
    /// The journal ends before the position to read from.
    #[error("journal has {len} bytes, but reading should continue at byte {offset}")]
    TooShort {
        /// The length of the file.
        len: u64,
        /// The position to read from.
        offset: u64,
    },
}

/// What is wrong with a damaged line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RecordDamage {
    /// The line does not end in a checksum.
    #[error("the line has no checksum")]
    NoChecksum,
    /// The line was changed, or it was written after another record than the one before it now.
    #[error("checksum is {stored:08x}, expected {computed:08x}")]
    Checksum {
        /// The checksum in the line.
        stored: u32,
        /// The checksum computed from the line and the record before it.
        computed: u32,
    },
    /// The line break after an intact record is missing.
    #[error("the line break is missing")]
    NoLineBreak,
    /// The line is longer than the longest allowed record.
    #[error("the line is longer than {max} bytes", max = MAX_RECORD_BYTES)]
    TooLong,
    /// A shared log, whose first record is written atomically, does not start with a complete record.
    #[error("the log does not start with a complete record")]
    NoFirstRecord,
    /// The checksum is right, but the record number is not: the process that wrote it had a bug.
    #[error("the record says it is number {found}")]
    OutOfOrder {
        /// The number in the record.
        found: RecordNumber,
    },
}

impl From<SealError> for RecordDamage {
    fn from(broken: SealError) -> Self {
        match broken {
            SealError::NoSeal => Self::NoChecksum,
            SealError::Mismatch { stored, computed } => Self::Checksum { stored, computed },
        }
    }
}

/// Opens the journal of `run` at `path` and reads it from its start.
pub fn read_journal<E: DeserializeOwned>(
    path: &Path,
    run: RunId,
) -> Result<JournalReader<E>, ReadError> {
    read_from(path, JournalPosition::start(run))
}

/// Opens the journal at `path` and reads it from `position` on.
pub fn read_from<E: DeserializeOwned>(
    path: &Path,
    position: JournalPosition,
) -> Result<JournalReader<E>, ReadError> {
    let mut file = files::open_read(path).during("open", path)?;
    let len = file.metadata().during("examine", path)?.len();
    if len < position.offset {
        return Err(ReadError::TooShort { len, offset: position.offset });
    }
    file.seek(SeekFrom::Start(position.offset)).during("read", path)?;
    Ok(JournalReader::new(file, position))
}

/// Iterates over the records of a journal. After the last one, [`JournalReader::tail`] says what follows it.
#[derive(Debug)]
pub struct JournalReader<E, R = File> {
    input: BufReader<R>,
    line: Vec<u8>,
    /// The position after the last line read.
    cursor: JournalPosition,
    /// The position after the last record returned.
    position: JournalPosition,
    /// Records of a group, each with the position after it. They are returned when the last record of the
    /// group was read.
    pending_group: VecDeque<(JournalRecord<E>, JournalPosition)>,
    tail: JournalTail,
    ended: bool,
}

impl<E: DeserializeOwned, R: Read> JournalReader<E, R> {
    /// Reads from `input`, which must be at `position`.
    pub fn new(input: R, position: JournalPosition) -> Self {
        Self {
            input: BufReader::with_capacity(BUFFER_BYTES, input),
            line: Vec::new(),
            cursor: position,
            position,
            pending_group: VecDeque::new(),
            tail: JournalTail::Clean,
            ended: false,
        }
    }

    /// Returns the position after the last record returned. Reading can continue there later.
    #[must_use]
    pub const fn position(&self) -> JournalPosition {
        self.position
    }

    /// Returns what follows the last complete record. Valid once the iteration has ended.
    #[must_use]
    pub const fn tail(&self) -> JournalTail {
        self.tail
    }

    /// Reads the next record or group of records. Returns `false` if the journal ends before it is complete.
    fn read_group(&mut self) -> Result<bool, ReadError> {
        loop {
            match self.read_line()? {
                Some((record, group_mark)) => {
                    self.pending_group.push_back((record, self.cursor));
                    if group_mark == GroupMark::Ends {
                        return Ok(true);
                    }
                }
                None => {
                    let bytes = self.cursor.offset - self.position.offset + self.line.len() as u64;
                    if bytes > 0 {
                        self.tail = JournalTail::Torn { offset: self.position.offset, bytes };
                    }
                    return Ok(false);
                }
            }
        }
    }

    fn read_line(&mut self) -> Result<Option<(JournalRecord<E>, GroupMark)>, ReadError> {
        self.line.clear();
        // One byte more than allowed, to distinguish the longest record from one that is too long.
        let mut limited = (&mut self.input).take(MAX_RECORD_BYTES as u64 + 1);
        limited.read_until(b'\n', &mut self.line).map_err(ReadError::Io)?;
        match self.line.split_last() {
            None => Ok(None),
            Some(_) if self.line.len() > MAX_RECORD_BYTES => {
                Err(self.damage_error(RecordDamage::TooLong))
            }
            Some((b'\n', line)) => match seal::check(line, self.cursor.crc) {
                Ok(crc) => self.parse_sealed_line(crc).map(Some),
                Err(broken) => self.judge_unsealed_line(broken.into()).map(|()| None),
            },
            Some(_) => self.check_incomplete_tail().map(|()| None),
        }
    }

    /// Parses the current line, whose seal is valid.
    fn parse_sealed_line(&mut self, crc: u32) -> Result<(JournalRecord<E>, GroupMark), ReadError> {
        let expected = self.cursor.seq.next();
        if let Some(found) = record::claimed_format(&self.line).filter(|found| *found > FORMAT) {
            return Err(ReadError::Newer { found });
        }
        // A line with a valid seal is not a torn tail even if it cannot be parsed: another version wrote
        // exactly this line, and truncating it would lose an event that the other version understands.
        let (record, group_mark) = record::parse::<E>(&self.line).map_err(|source| {
            ReadError::Unknown { seq: expected, offset: self.cursor.offset, source }
        })?;
        if record.seq != expected {
            return Err(self.damage_error(RecordDamage::OutOfOrder { found: record.seq }));
        }
        self.cursor = self.cursor.after(self.line.len(), crc);
        Ok((record, group_mark))
    }

    /// Handles a line that has a line break but no valid seal: damage, or a torn tail if it is the last line.
    fn judge_unsealed_line(&mut self, damage: RecordDamage) -> Result<(), ReadError> {
        let more = !self.input.fill_buf().map_err(ReadError::Io)?.is_empty();
        if more {
            Err(self.newer_format_error().unwrap_or_else(|| self.damage_error(damage)))
        } else {
            self.check_incomplete_tail()
        }
    }

    /// Handles an incomplete last line: a torn tail, unless it contains a complete record.
    fn check_incomplete_tail(&self) -> Result<(), ReadError> {
        if let Some(foreign) = self.newer_format_error() {
            return Err(foreign);
        }
        // The line break between the last two records may be what is damaged. The first of the two may
        // have been reported durable and must not be truncated with the second. A single byte after an
        // intact record is its own damaged line break.
        let intact = seal::intact_prefix(&self.line, self.cursor.crc);
        if intact.is_some_and(|end| self.line.len() - end > 1) {
            return Err(self.damage_error(RecordDamage::NoLineBreak));
        }
        Ok(())
    }

    /// Returns an error if the first line has no valid seal and claims a newer format.
    ///
    /// The seal is the same in all formats. But should a newer version change it, the file must be
    /// refused instead of truncated to nothing as a torn tail.
    fn newer_format_error(&self) -> Option<ReadError> {
        let first = self.cursor.seq == RecordNumber::ZERO;
        let claimed = record::claimed_format(&self.line).filter(|found| first && *found > FORMAT);
        claimed.map(|found| ReadError::Newer { found })
    }

    fn damage_error(&self, damage: RecordDamage) -> ReadError {
        ReadError::Damaged { seq: self.cursor.seq.next(), offset: self.cursor.offset, damage }
    }
}

impl<E: DeserializeOwned, R: Read> Iterator for JournalReader<E, R> {
    type Item = Result<JournalRecord<E>, ReadError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.ended {
            return None;
        }
        if self.pending_group.is_empty() {
            match self.read_group() {
                Ok(true) => {}
                Ok(false) => {
                    self.ended = true;
                    return None;
                }
                Err(error) => {
                    self.ended = true;
                    return Some(Err(error));
                }
            }
        }
        let (record, after) = self.pending_group.pop_front()?;
        self.position = after;
        Some(Ok(record))
    }
}
