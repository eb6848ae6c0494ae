//! Allows one writer per run, and shows other processes whether it is alive.
//!
//! The writer holds an exclusive `flock` on the file `lock` and writes its identity into it. The kernel
//! releases the lock when the process ends, so nothing needs cleaning up after a crash.
//!
//! Readers first read the file: if a process with the recorded pid, boot and start time is alive, it is
//! the writer. Otherwise they try a shared lock for an instant, because the writer may not have
//! written its identity yet or may run in another PID namespace. A writer that collides with such an
//! attempt retries, so a reader can never make it fail; see [`RunLock`].
//!
//! The journal is opened through the held lock. [`LockError`] says why a run cannot be locked,
//! [`OpenJournalError`] why the journal of a locked run cannot be opened.
//!
//! Invariant: only the process that holds a [`RunLock`] changes the run's journal.
//!
//! [`WriterLiveness`] is the answer to readers: the run has a live writer, its writer is dead, or
//! it never had one. `LockHolder` is the content of the lock file.

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

/// How often a writer retries while the lock is held but the file names no live holder, and the pause
/// between two attempts: 250 ms in all, while a reader holds its shared lock for microseconds.
const LOCK_ATTEMPTS: u32 = 50;
const LOCK_RETRY_PAUSE: Duration = Duration::from_millis(5);

/// Whether a run has a writer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WriterLiveness {
    /// A process holds the run's lock.
    Live {
        /// The writer's pid, checked against boot and start time. `None` if it runs in another PID
        /// namespace, has not written its identity yet, or is pruning the run.
        pid: Option<u32>,
    },
    /// The run had a writer, which has ended or released the lock.
    Dead,
    /// The run was never locked.
    NeverLocked,
}

/// Why a run cannot be locked for writing.
#[derive(Debug, thiserror::Error)]
pub enum LockError {
    /// Another process holds the lock.
    #[error("the run is in use{holder}", holder = holder_suffix(*pid))]
    Held {
        /// The pid of the other process, if it could be verified.
        pid: Option<u32>,
    },
    /// The lock file cannot be used.
    #[error(transparent)]
    File(#[from] FileError),
}

fn holder_suffix(pid: Option<u32>) -> String {
    pid.map(|pid| format!(" by process {pid}")).unwrap_or_default()
}

/// Why the journal of a run that is already locked cannot be opened for writing.
#[derive(Debug, thiserror::Error)]
pub enum OpenJournalError {
    /// The run's content was pruned.
    #[error("not resumable (expired)")]
    Expired,
    /// The existing records cannot be read, so nothing may be appended to them.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// The file cannot be used.
    #[error(transparent)]
    File(#[from] FileError),
}

/// The content of the lock file.
#[derive(Debug, Serialize, Deserialize)]
struct LockHolder {
    #[serde(flatten)]
    process: ProcessIdentity,
    /// When the lock was acquired or, if `released` is set, released.
    since: Option<BootInstant>,
    released: bool,
}

/// An exclusive lock on one run, held until this value and the journal opened with it are dropped.
///
/// A child process that was forked and has not called `exec` shares the lock.
#[derive(Debug)]
pub struct RunLock {
    run: RunDir,
    file: Arc<File>,
}

impl RunLock {
    /// Locks the run and writes the identity of this process into the lock file.
    pub(crate) fn acquire(run: &RunDir) -> Result<Self, LockError> {
        let file = lock_without_holder(run)?;
        write_current_holder(&file, &run.lock_path())?;
        Ok(Self { run: run.clone(), file: Arc::new(file) })
    }

    /// Returns the run's control socket, which can be bound while the lock is held and is removed with it.
    #[must_use]
    pub fn control_socket(&self) -> ControlSocket {
        ControlSocket::new(self.run.clone(), Arc::clone(&self.file))
    }

    /// Creates the run's journal and starts its writer. For `report` see [`Journal::start`].
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

    /// Returns the directories that contain the journal and the run's directory.
    fn dirs_to_sync(&self) -> Vec<PathBuf> {
        let folders = [Some(self.run.path()), self.run.path().parent()];
        folders.into_iter().flatten().map(Path::to_owned).collect()
    }

    /// Opens the existing journal of the run to append to it. For `report` see [`Journal::start`].
    ///
    /// First reads the whole journal and passes each record to `visit`, then truncates a torn tail, which
    /// is returned. Record numbers and checksums continue from the last record.
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

    /// Opens the existing journal to append at `position`, up to which the caller has read it after taking `stamp`.
    ///
    /// Returns `None` if the journal changed since or ends in a torn record; use [`Self::resume_journal`] then.
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
        // The caller acts on the records it has just read, and the process that wrote them may have
        // died before it synced them.
        file.sync_data().during("sync", &path)?;
        // The same is true of the directory entries of the file and of the run's directory.
        let disk = FileDisk::new(file, self.dirs_to_sync(), Arc::clone(&self.file));
        Ok(Journal::start(disk, position, report).during("write", &path)?)
    }
}

impl Drop for RunLock {
    fn drop(&mut self) {
        // The listener is closed by now. This also removes a socket that a killed writer left.
        let _ = files::remove(&self.run.control_socket_path());
        // This process may go on, as a server does, and without this mark it would still look like the
        // writer. If writing fails, the run looks live until the process ends, which is harmless.
        if let Some(process) = ProcessIdentity::current() {
            let holder = LockHolder { process, since: CurrentTime::read().boot, released: true };
            let _ = write_holder(&self.file, &holder);
        }
    }
}

/// Locks the run without writing to the lock file, so that the entry of the last holder stays.
pub(crate) fn lock_without_holder(run: &RunDir) -> Result<File, LockError> {
    lock_file_without_holder(&run.lock_path())
}

/// Writes the identity of this process into a lock file that it has locked.
pub(crate) fn write_current_holder(file: &File, path: &Path) -> Result<(), FileError> {
    let process =
        ProcessIdentity::current().ok_or_else(|| io::Error::other("/proc cannot be read"));
    let process = process.during("describe this process in", path)?;
    let holder = LockHolder { process, since: CurrentTime::read().boot, released: false };
    write_holder(file, &holder).during("write", path)
}

/// Locks the file at `path` without writing to it.
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

/// Returns whether the run has a writer; the header of this module describes how.
pub(crate) fn liveness(run: &RunDir) -> Result<WriterLiveness, FileError> {
    liveness_at(&run.lock_path())
}

/// Returns whether a process holds the lock file at `path`.
pub(crate) fn liveness_at(path: &Path) -> Result<WriterLiveness, FileError> {
    let file = match files::open_read(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            return Ok(WriterLiveness::NeverLocked);
        }
        other => other.during("open", path)?,
    };
    if let Some(pid) = live_holder_pid(&file) {
        return Ok(WriterLiveness::Live { pid: Some(pid) });
    }
    // The shared lock is released when `file` is dropped at the end of this function.
    if try_flock(&file, FlockOperation::NonBlockingLockShared).during("lock", path)? {
        return Ok(WriterLiveness::Dead);
    }
    Ok(WriterLiveness::Live { pid: live_holder_pid(&file) })
}

/// Returns when the run was last locked or released, if its lock file can be read.
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

/// Returns the process named by the run's lock file, if it is alive and has not released the run.
pub(crate) fn live_writer(run: &RunDir) -> Result<Option<ProcessIdentity>, FileError> {
    let path = run.lock_path();
    match files::open_read(&path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        other => Ok(live_holder(&other.during("open", &path)?)),
    }
}

/// Returns the pid of the live process that the lock file names.
fn live_holder_pid(file: &File) -> Option<u32> {
    live_holder(file).map(|process| process.pid)
}

/// Returns the process that the lock file names, if it is alive and has not released the run.
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
