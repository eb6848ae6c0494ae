//! A log that several processes write, one after the other.
//!
//! Its records are those of a journal (see `record`): numbered, sealed and chained. A process locks the file
//! `NAME.lock`, reads every record, appends its own and unlocks. The records of one decision count together or
//! not at all. A log that has grown is replaced by one that begins with a record of everything before it.
//!
//! Start at [`SharedLog::lock`]. Invariant: what a lock holder appended is read by every later one, unless the
//! append failed; a torn tail is cut before anything is written behind it. A log is made whole, under another name,
//! so its first decision is never torn: a log without one is damaged.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use adjutant_core::Timestamp;
use rustix::fs::FlockOperation;
use serde::{Serialize, de::DeserializeOwned};

use crate::files::{self, FileError, FileErrorContext};
use crate::journal::Durability;
use crate::lock::try_flock;
use crate::reader::{self, JournalTail, ReadError, RecordDamage};
use crate::record::{self, GroupMark, JournalPosition, JournalRecord, RecordNumber};

/// How long other processes may hold the lock. They do so while they decide, not while they work.
const LOCK_TIMEOUT: Duration = Duration::from_secs(10);

/// The time between two attempts at the lock.
const LOCK_RETRY_PAUSE: Duration = Duration::from_millis(2);

/// Says why a shared log cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum SharedLogError {
    /// Another process did not let go of the lock.
    #[error("another process has held {path} for {seconds} s", path = path.display())]
    Busy {
        /// The lock file.
        path: PathBuf,
        /// How long this process waited.
        seconds: u64,
    },
    /// A record cannot be read; nothing may be appended behind it.
    #[error("{path} cannot be read", path = path.display())]
    Read {
        /// The log.
        path: PathBuf,
        /// Why, with the line.
        source: ReadError,
    },
    /// A file cannot be used.
    #[error(transparent)]
    File(#[from] FileError),
}

/// A log in a folder.
#[derive(Clone, Debug)]
pub struct SharedLog {
    path: PathBuf,
    name: &'static str,
}

impl SharedLog {
    /// Names the log `NAME.jsonl` in `folder`, whether it exists or not.
    #[must_use]
    pub fn new(folder: &Path, name: &'static str) -> Self {
        Self { path: folder.join(format!("{name}.jsonl")), name }
    }

    /// Returns the file.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Reads every record without a lock; says how far they reach.
    ///
    /// Whatever a writer is just appending is not seen.
    pub fn read<E: DeserializeOwned>(
        &self,
        visit: impl FnMut(JournalRecord<E>),
    ) -> Result<JournalPosition, SharedLogError> {
        Ok(self.read_all(visit)?.0)
    }

    /// Waits for the lock and reads every record.
    pub fn lock<E: DeserializeOwned>(
        &self,
        visit: impl FnMut(JournalRecord<E>),
    ) -> Result<LockedLog, SharedLogError> {
        let path = self.path.with_extension("lock");
        let lock = files::open_private(&path).during("open", &path)?;
        let begun = Instant::now();
        while !try_flock(&lock, FlockOperation::NonBlockingLockExclusive).during("lock", &path)? {
            if begun.elapsed() >= LOCK_TIMEOUT {
                return Err(SharedLogError::Busy { path, seconds: LOCK_TIMEOUT.as_secs() });
            }
            thread::sleep(LOCK_RETRY_PAUSE);
        }
        let (position, tail) = self.read_all(visit)?;
        Ok(LockedLog { log: self.clone(), position, tail, _lock: lock })
    }

    fn read_all<E: DeserializeOwned>(
        &self,
        mut visit: impl FnMut(JournalRecord<E>),
    ) -> Result<(JournalPosition, JournalTail), SharedLogError> {
        let start = JournalPosition::start_of_log(self.name);
        let read_error = |source| SharedLogError::Read { path: self.path.clone(), source };
        let mut reader = match reader::read_from::<E>(&self.path, start) {
            Err(ReadError::File(error)) if error.io().kind() == io::ErrorKind::NotFound => {
                return Ok((start, JournalTail::Clean));
            }
            opened => opened.map_err(read_error)?,
        };
        for record in &mut reader {
            visit(record.map_err(read_error)?);
        }
        let (position, tail) = (reader.position(), reader.tail());
        if position.seq == RecordNumber::ZERO {
            let (seq, offset, damage) = (RecordNumber::ZERO.next(), 0, RecordDamage::NoFirstRecord);
            return Err(read_error(ReadError::Damaged { seq, offset, damage }));
        }
        Ok((position, tail))
    }
}

/// A log that only this process writes, until this is dropped.
#[derive(Debug)]
pub struct LockedLog {
    log: SharedLog,
    position: JournalPosition,
    tail: JournalTail,
    _lock: File,
}

impl LockedLog {
    /// Returns how many records the log has.
    #[must_use]
    pub const fn records(&self) -> u64 {
        self.position.seq.get()
    }

    /// Appends events that count together or not at all.
    pub fn append<E: Serialize>(
        &mut self,
        wall_ms: u64,
        events: &[E],
        durability: Durability,
    ) -> Result<(), SharedLogError> {
        let path = &self.log.path;
        let (mut lines, mut position) = (Vec::new(), self.position);
        for (number, event) in events.iter().enumerate() {
            let group_mark =
                if number + 1 < events.len() { GroupMark::Continues } else { GroupMark::Ends };
            let at = Timestamp::ZERO;
            let encoded = record::encode(&mut lines, position, at, wall_ms, event, group_mark);
            position = encoded.during("serialise a record of", path)?;
        }
        if self.records() == 0 {
            return self.replace_file(&lines, position);
        }
        let mut file = files::open_existing(path).during("open", path)?;
        if self.tail != JournalTail::Clean {
            file.set_len(self.position.offset).during("cut the torn tail of", path)?;
            self.tail = JournalTail::Clean;
        }
        let written = file.write_all(&lines).and_then(|()| match durability {
            Durability::Sync => file.sync_data(),
            Durability::Lazy => Ok(()),
        });
        if written.is_err() {
            // The caller is told that nothing happened. Where cutting fails too, a later reader finds either a torn
            // tail, which it cuts, or a whole decision of a process that did not act on it.
            let _ = file.set_len(self.position.offset);
        }
        written.during("append to", path)?;
        self.position = position;
        Ok(())
    }

    /// Replaces the log by one whose only record is `first`, all of it or nothing, and durable.
    pub fn replace<E: Serialize>(&mut self, wall_ms: u64, first: &E) -> Result<(), SharedLogError> {
        let start = JournalPosition::start_of_log(self.log.name);
        let mut line = Vec::new();
        let encoded =
            record::encode(&mut line, start, Timestamp::ZERO, wall_ms, first, GroupMark::Ends);
        let position = encoded.during("serialise a record of", &self.log.path)?;
        self.replace_file(&line, position)
    }

    /// Makes the log consist of `lines`, which end at `position`; all of it or nothing, and durable.
    fn replace_file(
        &mut self,
        lines: &[u8],
        position: JournalPosition,
    ) -> Result<(), SharedLogError> {
        let path = &self.log.path;
        // One name is enough: only the lock holder writes it, and one that was killed left it to the next.
        let next = path.with_extension("jsonl.new");
        let mut file = files::open_private(&next).during("open", &next)?;
        let written = file.set_len(0).and_then(|()| file.write_all(lines));
        written.and_then(|()| file.sync_all()).during("write", &next)?;
        fs::rename(&next, path).during("replace", path)?;
        let synced = path.parent().map_or(Ok(()), files::sync_dir);
        synced.during("sync the folder of", path)?;
        (self.position, self.tail) = (position, JournalTail::Clean);
        Ok(())
    }
}
