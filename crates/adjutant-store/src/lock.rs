//! One writer per run, and how others see whether it lives.
//!
//! The writer holds an exclusive `flock` on the file `lock` and writes into it who it is. The
//! kernel drops the lock with the process, so a crash needs no cleaning up.
//!
//! Readers look at what is written first: a process with that number, boot and start time that
//! lives is the writer, and nothing was locked to find out. Only when that answers no do they ask
//! the lock itself, with a shared lock held for an instant, because the writer may be one that has
//! not written its name yet or lives in another PID namespace. A writer that meets such an instant
//! tries again, so a reader can never make it fail; see [`RunLock`].
//!
//! Invariant: whoever holds a [`RunLock`] is the only one to change the run's journal.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;
use serde::{Deserialize, Serialize, de::DeserializeOwned};

use crate::control_socket::ControlSocket;
use crate::disk::FileDisk;
use crate::files::{self, FileError, FileErrorContext};
use crate::identity::{BootInstant, CurrentTime, ProcessIdentity};
use crate::journal::{Journal, JournalError};
use crate::reader::{JournalTail, ReadError};
use crate::record::{JournalPosition, JournalRecord, RecordNumber};
use crate::run_dir::{JournalStamp, RunDir};

/// How often a writer tries when the lock is taken by nobody it can name, and how long it rests
/// between tries: a quarter of a second in all, against the microseconds a reader needs.
const LOCK_ATTEMPTS: u32 = 50;
const LOCK_RETRY_PAUSE: Duration = Duration::from_millis(5);

/// Says whether a run has a writer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Liveness {
    /// A writer holds the run.
    Live {
        /// Its process number, checked against boot and start time; absent when it lives in
        /// another PID namespace, has not written its name yet, or is pruning the run.
        pid: Option<u32>,
    },
    /// There was a writer and it is gone.
    Dead,
    /// No writer ever took the run.
    NeverLocked,
}

/// Says why a run cannot be taken for writing.
#[derive(Debug, thiserror::Error)]
pub enum LockError {
    /// Another writer holds it.
    #[error("the run is in use{holder}", holder = holder_suffix(*pid))]
    Held {
        /// The other's process number, where it could be checked.
        pid: Option<u32>,
    },
    /// The lock file cannot be used.
    #[error(transparent)]
    File(#[from] FileError),
}

fn holder_suffix(pid: Option<u32>) -> String {
    pid.map(|pid| format!(" by process {pid}")).unwrap_or_default()
}

/// Says why a journal cannot be opened for writing.
#[derive(Debug, thiserror::Error)]
pub enum OpenJournalError {
    /// The run's content was pruned.
    #[error("not resumable (expired)")]
    Expired,
    /// What is there cannot be read, so nothing can be added to it.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// The file cannot be used.
    #[error(transparent)]
    File(#[from] FileError),
}

/// What the lock file says.
#[derive(Debug, Serialize, Deserialize)]
struct LockHolder {
    #[serde(flatten)]
    process: ProcessIdentity,
    /// When the lock was taken or, once `released` is set, given back.
    since: Option<BootInstant>,
    released: bool,
}

/// The right to write to one run, held until it and the journal opened with it are dropped.
///
/// A child process that was forked and has not called `exec` shares the lock.
#[derive(Debug)]
pub struct RunLock {
    run: RunDir,
    file: Arc<File>,
}

impl RunLock {
    /// Takes the run and writes down who did.
    pub(crate) fn acquire(run: &RunDir) -> Result<Self, LockError> {
        let file = lock_without_holder(run)?;
        write_current_holder(&file, &run.lock_path())?;
        Ok(Self { run: run.clone(), file: Arc::new(file) })
    }

    /// Returns the right to bind the run's control socket, which goes when the lock does.
    #[must_use]
    pub fn control_socket(&self) -> ControlSocket {
        ControlSocket::new(self.run.clone(), Arc::clone(&self.file))
    }

    /// Creates the run's journal and starts its writer; `report` as in [`Journal::start`].
    pub fn create_journal<E: Serialize>(
        &self,
        report: impl FnMut(Result<RecordNumber, JournalError>) + Send + 'static,
    ) -> Result<Journal<E>, OpenJournalError> {
        let path = self.run.journal_path();
        let file = files::create_new(&path).during("create", &path)?;
        let disk = FileDisk::new(file, self.dirs_to_sync(), Arc::clone(&self.file));
        Ok(Journal::start(disk, JournalPosition::start(self.run.id()), report)
            .during("write", &path)?)
    }

    /// Returns the folders that hold the names of the journal and of the run.
    fn dirs_to_sync(&self) -> Vec<PathBuf> {
        let folders = [Some(self.run.path()), self.run.path().parent()];
        folders.into_iter().flatten().map(Path::to_owned).collect()
    }

    /// Opens the run's journal to go on with it; `report` as in [`Journal::start`].
    ///
    /// Reads all of it first, handing each record to `visit`, and cuts a torn tail, which is
    /// returned. Sequence and chain go on where they ended.
    pub fn resume_journal<E: Serialize + DeserializeOwned>(
        &self,
        mut visit: impl FnMut(JournalRecord<E>),
        report: impl FnMut(Result<RecordNumber, JournalError>) + Send + 'static,
    ) -> Result<(Journal<E>, JournalTail), OpenJournalError> {
        if self.run.is_expired() {
            return Err(OpenJournalError::Expired);
        }
        let path = self.run.journal_path();
        let mut reader = self.run.read_journal()?;
        for record in &mut reader {
            visit(record?);
        }
        let (position, tail) = (reader.position(), reader.tail());
        if tail != JournalTail::Clean {
            let file = files::open_existing(&path).during("open", &path)?;
            file.set_len(position.offset).during("cut the torn tail of", &path)?;
        }
        Ok((self.append_at(position, report)?, tail))
    }

    /// Opens the run's journal to go on at `position`, where a reader ended that began at `stamp`.
    ///
    /// Returns `None` if the journal was changed since or ends in a torn record: [`Self::resume_journal`] reads it.
    pub fn continue_journal<E: Serialize>(
        &self,
        position: JournalPosition,
        stamp: JournalStamp,
        report: impl FnMut(Result<RecordNumber, JournalError>) + Send + 'static,
    ) -> Result<Option<Journal<E>>, OpenJournalError> {
        let is_unchanged = !self.run.is_expired()
            && stamp.bytes == position.offset
            && self.run.journal_stamp() == Some(stamp);
        is_unchanged.then(|| self.append_at(position, report)).transpose()
    }

    fn append_at<E: Serialize>(
        &self,
        position: JournalPosition,
        report: impl FnMut(Result<RecordNumber, JournalError>) + Send + 'static,
    ) -> Result<Journal<E>, OpenJournalError> {
        let path = self.run.journal_path();
        let file = files::open_existing(&path).during("open", &path)?;
        // The caller acts on what it was just told, and the one who wrote it may have died before
        // it was durable.
        file.sync_data().during("sync", &path)?;
        // Nor need the names of the file and its folder be, if the one who made them died early.
        let disk = FileDisk::new(file, self.dirs_to_sync(), Arc::clone(&self.file));
        Ok(Journal::start(disk, position, report).during("write", &path)?)
    }
}

impl Drop for RunLock {
    fn drop(&mut self) {
        // Nobody listens any more; one that a dead writer left goes as well.
        let _ = files::remove(&self.run.control_socket_path());
        // The process may live on, as a server does; without this word it would seem to hold the
        // run. If writing fails the run looks live until the process ends, which harms nothing.
        if let Some(process) = ProcessIdentity::current() {
            let holder = LockHolder { process, since: CurrentTime::read().boot, released: true };
            let _ = write_holder(&self.file, &holder);
        }
    }
}

/// Takes the lock without a word about who did, which leaves the last holder's traces in place.
pub(crate) fn lock_without_holder(run: &RunDir) -> Result<File, LockError> {
    lock_file_without_holder(&run.lock_path())
}

/// Writes down that this process holds what it locked.
pub(crate) fn write_current_holder(file: &File, path: &Path) -> Result<(), FileError> {
    let process =
        ProcessIdentity::current().ok_or_else(|| io::Error::other("/proc cannot be read"));
    let process = process.during("describe this process in", path)?;
    let holder = LockHolder { process, since: CurrentTime::read().boot, released: false };
    write_holder(file, &holder).during("write", path)
}

/// Takes the lock that a file is, without a word about who did.
pub(crate) fn lock_file_without_holder(path: &Path) -> Result<File, LockError> {
    let file = files::open_private(path).during("open", path)?;
    for _ in 0..LOCK_ATTEMPTS {
        if try_flock(&file, FlockOperation::NonBlockingLockExclusive).during("lock", path)? {
            return Ok(file);
        }
        if let Some(pid) = live_holder_pid(&file) {
            return Err(LockError::Held { pid: Some(pid) });
        }
        thread::sleep(LOCK_RETRY_PAUSE);
    }
    Err(LockError::Held { pid: None })
}

/// Says whether the run has a writer; described at the head of this module.
pub(crate) fn liveness(run: &RunDir) -> Result<Liveness, FileError> {
    liveness_at(&run.lock_path())
}

/// Says whether a process holds the lock that a file is.
pub(crate) fn liveness_at(path: &Path) -> Result<Liveness, FileError> {
    let file = match files::open_read(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Liveness::NeverLocked),
        other => other.during("open", path)?,
    };
    if let Some(pid) = live_holder_pid(&file) {
        return Ok(Liveness::Live { pid: Some(pid) });
    }
    // The instant ends when `file` is dropped, a few lines on.
    if try_flock(&file, FlockOperation::NonBlockingLockShared).during("lock", path)? {
        return Ok(Liveness::Dead);
    }
    Ok(Liveness::Live { pid: live_holder_pid(&file) })
}

/// Returns when the run was last taken or given back, as far as its lock file tells.
pub(crate) fn last_lock_change(run: &RunDir) -> Option<BootInstant> {
    read_holder(&files::open_read(&run.lock_path()).ok()?)?.since
}

pub(crate) fn try_flock(file: &File, operation: FlockOperation) -> io::Result<bool> {
    loop {
        match flock(file, operation) {
            Ok(()) => return Ok(true),
            Err(Errno::WOULDBLOCK) => return Ok(false),
            Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

/// Returns the process that holds the run, as far as its lock file names one that lives.
pub(crate) fn live_writer(run: &RunDir) -> Result<Option<ProcessIdentity>, FileError> {
    let path = run.lock_path();
    match files::open_read(&path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        other => Ok(live_holder(&other.during("open", &path)?)),
    }
}

/// Returns the number of the process that the file names.
fn live_holder_pid(file: &File) -> Option<u32> {
    live_holder(file).map(|process| process.pid)
}

/// Returns the process that the file names, if it lives and has not given the run back.
fn live_holder(file: &File) -> Option<ProcessIdentity> {
    let holder = read_holder(file)?;
    (!holder.released && holder.process.is_alive()).then_some(holder.process)
}

fn read_holder(mut file: &File) -> Option<LockHolder> {
    let mut text = Vec::new();
    file.seek(SeekFrom::Start(0)).ok()?;
    file.take(4096).read_to_end(&mut text).ok()?;
    serde_json::from_slice(&text).ok()
}

fn write_holder(mut file: &File, holder: &LockHolder) -> io::Result<()> {
    let mut line = serde_json::to_vec(holder)?;
    line.push(b'\n');
    file.seek(SeekFrom::Start(0))?;
    file.set_len(0)?;
    file.write_all(&line)
}
