//! A log that several processes write, one at a time.
//!
//! Its records have the format of a journal (see `record`). A process locks the file `NAME.lock`, reads every
//! record, appends its own as one group and unlocks. A log that has grown long is replaced by one that starts with a
//! record of the whole state.
//!
//! Start at [`SharedLog::lock`]. Invariant: a successful append is seen by every later lock holder, and a torn tail is
//! truncated before anything is appended. A new log is written under another name and renamed, so a log without
//! a complete first record is damaged.
//!
//! A [`SharedLog`] is only its path, a [`LockedLog`] the log while this process has it locked;
//! [`SharedLogError`] says why it cannot be used.

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

/// How long to wait for the lock. Other processes hold it only while they read and append.
pub const LOCK_TIMEOUT: Duration = Duration::from_secs(10);

/// The pause between two attempts to lock.
const LOCK_RETRY_PAUSE: Duration = Duration::from_millis(2);

/// Why a shared log cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum SharedLogError {
    /// Another process did not release the lock in time.
    #[error("another process has held {path} for {seconds} s", path = path.display())]
    Busy {
        /// The lock file.
        path: PathBuf,
        /// How long this process waited.
        seconds: u64,
    },
    /// A record cannot be read, so nothing may be appended after it.
    #[error("{path} cannot be read", path = path.display())]
    Read {
        /// The log.
        path: PathBuf,
        /// The error, which names the line.
        source: ReadError,
    },
    /// A file cannot be used.
    #[error(transparent)]
    File(#[from] FileError),
}

/// The path of a shared log.
#[derive(Clone, Debug)]
pub struct SharedLog {
    path: PathBuf,
    name: &'static str,
}

impl SharedLog {
    /// Returns the log `NAME.jsonl` in `folder`, which need not exist.
    #[must_use]
    pub fn new(folder: &Path, name: &'static str) -> Self {
        Self { path: folder.join(format!("{name}.jsonl")), name }
    }

    /// Returns the path of the log file.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Passes every record to `visit` without taking the lock. Returns the position after the last one.
    ///
    /// A group that another process is appending at the moment is not seen.
    pub fn read<E: DeserializeOwned>(
        &self,
        visit: impl FnMut(JournalRecord<E>),
    ) -> Result<JournalPosition, SharedLogError> {
        Ok(self.read_all(visit)?.0)
    }

    /// Waits for the lock, then passes every record to `visit`.
    pub fn lock<E: DeserializeOwned>(
        &self,
        visit: impl FnMut(JournalRecord<E>),
    ) -> Result<LockedLog, SharedLogError> {
        self.lock_within(LOCK_TIMEOUT, visit)
    }

    /// Like [`SharedLog::lock`], but waits at most `patience` for the lock.
    pub fn lock_within<E: DeserializeOwned>(
        &self,
        patience: Duration,
        visit: impl FnMut(JournalRecord<E>),
    ) -> Result<LockedLog, SharedLogError> {
        let path = self.path.with_extension("lock");
        let lock = files::open_private(&path).during("open", &path)?;
        let begun = Instant::now();
        while !try_flock(&lock, FlockOperation::NonBlockingLockExclusive).during("lock", &path)? {
            if begun.elapsed() >= patience {
                return Err(SharedLogError::Busy { path, seconds: patience.as_secs() });
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

/// A shared log that this process holds the lock of until the value is dropped.
#[derive(Debug)]
pub struct LockedLog {
    log: SharedLog,
    position: JournalPosition,
    tail: JournalTail,
    _lock: File,
}

impl LockedLog {
    /// Returns the number of records in the log.
    #[must_use]
    pub const fn records(&self) -> u64 {
        self.position.seq.get()
    }

    /// Appends events as one group: later readers see all of them or none.
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
            // The caller is told that nothing was appended. If truncating fails too, a later reader finds a torn
            // tail, which it truncates, or a complete group of a process that did not act on it.
            let _ = file.set_len(self.position.offset);
        }
        written.during("append to", path)?;
        self.position = position;
        Ok(())
    }

    /// Replaces the log atomically by one whose only record is `first`, and syncs it.
    pub fn replace<E: Serialize>(&mut self, wall_ms: u64, first: &E) -> Result<(), SharedLogError> {
        let start = JournalPosition::start_of_log(self.log.name);
        let mut line = Vec::new();
        let encoded =
            record::encode(&mut line, start, Timestamp::ZERO, wall_ms, first, GroupMark::Ends);
        let position = encoded.during("serialise a record of", &self.log.path)?;
        self.replace_file(&line, position)
    }

    /// Replaces the log file atomically by `lines`, which end at `position`, and syncs it.
    fn replace_file(
        &mut self,
        lines: &[u8],
        position: JournalPosition,
    ) -> Result<(), SharedLogError> {
        let path = &self.log.path;
        // A fixed name is enough: only the lock holder writes the file, and overwrites one that a killed holder left.
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
