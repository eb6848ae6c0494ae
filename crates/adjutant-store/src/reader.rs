//! The reading end of a journal: any process, at any time, also while it is being written.
//!
//! Streams one line at a time, checks the seal, then parses it once. It never changes a file and
//! takes no lock; whether an unfinished last line means a crash or a writer at work is told by
//! [`RunDir::liveness`](crate::RunDir::liveness).
//!
//! Start at [`read_journal`]. Invariant: what is returned is a prefix of what was written, in
//! order; anything else ends the iteration with its place named, or is the [`JournalTail`].

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

/// How much of a file is read at once.
const BUFFER_BYTES: usize = 64 << 10;

/// What follows the last whole record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JournalTail {
    /// Nothing.
    Clean,
    /// The beginning of a record, or records that count only with one that is missing: a writer is
    /// at work on them, or was when it died.
    Torn {
        /// Where what is unfinished begins.
        offset: u64,
        /// How much of it there is.
        bytes: u64,
    },
}

/// Says why a journal cannot be read, or no further.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// The file cannot be opened.
    #[error(transparent)]
    File(#[from] FileError),
    /// The file cannot be read.
    #[error("cannot read the journal")]
    Io(#[source] io::Error),
    /// A record is not what was written, and more follows it.
    #[error("journal is damaged at line {seq} (record {seq}, byte {offset}): {damage}")]
    Damaged {
        /// The record that should be there; lines count like records.
        seq: RecordNumber,
        /// The byte at which the line begins.
        offset: u64,
        /// What is wrong with it.
        damage: RecordDamage,
    },
    /// A newer build wrote this.
    #[error(
        "journal format {found} is newer than this adjutant understands ({known}); \
         read it with the adjutant that wrote it, or a newer one",
        known = FORMAT
    )]
    Newer {
        /// The format the record has.
        found: u32,
    },
    /// The record is as it was written, but says something this build does not know.
    #[error("record {seq} (line {seq}, byte {offset}) is intact but not understood")]
    Unknown {
        /// The record's place.
        seq: RecordNumber,
        /// The byte at which the line begins.
        offset: u64,
        /// What the parser says.
        #[source]
        source: serde_json::Error,
    },
    /// The journal ends before the place to read from.
    #[error("journal has {len} bytes, reading was to go on at byte {offset}")]
    TooShort {
        /// How long the file is.
        len: u64,
        /// Where reading was to start.
        offset: u64,
    },
}

/// Says what is wrong with a damaged line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RecordDamage {
    /// The line does not end in a checksum.
    #[error("the line has no checksum")]
    NoChecksum,
    /// The line's bytes changed, or it stood behind another record when it was written.
    #[error("checksum is {stored:08x}, expected {computed:08x}")]
    Checksum {
        /// What the line says.
        stored: u32,
        /// What its bytes and its predecessor give.
        computed: u32,
    },
    /// The line break after an intact record is gone.
    #[error("the line break is missing")]
    NoLineBreak,
    /// No line break within the longest record.
    #[error("the line is longer than {max} bytes", max = MAX_RECORD_BYTES)]
    TooLong,
    /// A log that was written whole does not begin with a whole record.
    #[error("the log does not begin with a whole record")]
    NoFirstRecord,
    /// The checksum is right and the number is not: whoever wrote it miscounted.
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

/// Reads the journal of `run` in the file at `path` from its beginning.
pub fn read_journal<E: DeserializeOwned>(
    path: &Path,
    run: RunId,
) -> Result<JournalReader<E>, ReadError> {
    read_from(path, JournalPosition::start(run))
}

/// Reads the journal in the file at `path` from `position` on.
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

/// Returns a journal's records, then ends; [`JournalReader::tail`] tells how.
#[derive(Debug)]
pub struct JournalReader<E, R = File> {
    input: BufReader<R>,
    line: Vec<u8>,
    /// The place after the last line read.
    cursor: JournalPosition,
    /// The place after the last record returned.
    position: JournalPosition,
    /// Records that were read and not returned, each with the place after it: they wait for the
    /// one that makes them count.
    pending_group: VecDeque<(JournalRecord<E>, JournalPosition)>,
    tail: JournalTail,
    ended: bool,
}

impl<E: DeserializeOwned, R: Read> JournalReader<E, R> {
    /// Reads from `input`, whose next byte is the one at `position`.
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

    /// Returns the place after the last record returned; reading can go on there later.
    #[must_use]
    pub const fn position(&self) -> JournalPosition {
        self.position
    }

    /// Returns what follows the last whole record; of meaning once the iteration has ended.
    #[must_use]
    pub const fn tail(&self) -> JournalTail {
        self.tail
    }

    /// Reads up to the next record that stands for itself; says no when the journal ends before.
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
        // One byte more than allowed, to tell the longest record from one too long.
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

    /// Takes the line in hand, whose seal is right.
    fn parse_sealed_line(&mut self, crc: u32) -> Result<(JournalRecord<E>, GroupMark), ReadError> {
        let expected = self.cursor.seq.next();
        if let Some(found) = record::claimed_format(&self.line).filter(|found| *found > FORMAT) {
            return Err(ReadError::Newer { found });
        }
        // A right seal on something we cannot parse is not a torn tail, even at the end: somebody
        // wrote exactly this, and cutting it would lose a fact that another build understands.
        let (record, group_mark) = record::parse::<E>(&self.line).map_err(|source| {
            ReadError::Unknown { seq: expected, offset: self.cursor.offset, source }
        })?;
        if record.seq != expected {
            return Err(self.damage_error(RecordDamage::OutOfOrder { found: record.seq }));
        }
        self.cursor = self.cursor.after(self.line.len(), crc);
        Ok((record, group_mark))
    }

    /// Judges a line with a line break and without a right seal.
    fn judge_unsealed_line(&mut self, damage: RecordDamage) -> Result<(), ReadError> {
        let more = !self.input.fill_buf().map_err(ReadError::Io)?.is_empty();
        if more {
            Err(self.newer_format_error().unwrap_or_else(|| self.damage_error(damage)))
        } else {
            self.check_incomplete_tail()
        }
    }

    /// Judges a last line that is not whole: torn, unless a whole record hides in it.
    fn check_incomplete_tail(&self) -> Result<(), ReadError> {
        if let Some(foreign) = self.newer_format_error() {
            return Err(foreign);
        }
        // The break between the last two records may be the damage; the first of the two was
        // perhaps promised to be durable and must not be cut with the second. One byte behind an
        // intact record is only its own broken line break.
        let intact = seal::intact_prefix(&self.line, self.cursor.crc);
        if intact.is_some_and(|end| self.line.len() - end > 1) {
            return Err(self.damage_error(RecordDamage::NoLineBreak));
        }
        Ok(())
    }

    /// Says that a first line we cannot check claims a newer format.
    ///
    /// The frame is promised never to change, but a file that breaks the promise from its first
    /// byte on is better refused than cut to nothing as torn.
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
