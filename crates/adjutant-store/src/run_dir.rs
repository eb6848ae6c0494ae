//! The directory of one run: the paths of its files, and functions that read and write them.
//!
//! `journal.jsonl` is written only by the process that holds `lock`; every other file can be rebuilt
//! from it. File names are made from ids, never from labels (D17).
//!
//! Invariant: nothing is written outside the directory, and other users cannot read it.
//!
//! A [`JournalStamp`] is the length and modification time of the journal.

use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

use adjutant_core::{RunId, SessionId};
use serde::{Deserialize, Serialize, de::DeserializeOwned};

use crate::control_socket;
use crate::files::{self, FileError, FileErrorContext};
use crate::identity::CurrentTime;
use crate::lock::{self, LockError, RunLock, WriterLiveness};
use crate::reader::{self, JournalReader, ReadError};
use crate::record::JournalPosition;
use crate::writer_process::WriterProcess;

/// The subdirectories with content of the run, which are removed when it expires.
pub(crate) const CONTENT_DIRS: [&str; 4] = ["scratch", "transcripts", "projections", "before"];
/// The file with the address of the runtime that decides the run; a run of this machine has none.
const RUNTIME: &str = "runtime";
/// The file that says that a run which has ended was continued at that runtime.
const CONTINUED: &str = "continued";

const CHECKPOINT: &str = "checkpoint.json";

const NS_PER_SECOND: i64 = 1_000_000_000;

/// The length and modification time of a journal, to detect that it was changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct JournalStamp {
    pub(crate) bytes: u64,
    /// Nanoseconds since 1970.
    modified_ns: i64,
}

/// The directory of one run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunDir {
    id: RunId,
    path: PathBuf,
}

impl RunDir {
    pub(crate) fn new(runs: &Path, id: RunId) -> Self {
        Self { id, path: runs.join(id.to_string()) }
    }

    /// Returns the run's id, which is also the directory's name.
    #[must_use]
    pub const fn id(&self) -> RunId {
        self.id
    }

    /// Returns the path of the directory.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the path of the journal.
    #[must_use]
    pub fn journal_path(&self) -> PathBuf {
        self.path.join("journal.jsonl")
    }

    /// Returns the path of the control socket, which exists while the run is live.
    #[must_use]
    pub fn control_socket_path(&self) -> PathBuf {
        self.path.join("control.sock")
    }

    /// Returns the path of a session's scratchpad.
    #[must_use]
    pub fn scratch_path(&self, session: SessionId) -> PathBuf {
        self.path.join(format!("scratch/{session}.md"))
    }

    /// Returns the path of a session's transcript.
    #[must_use]
    pub fn transcript_path(&self, session: SessionId) -> PathBuf {
        self.path.join(format!("transcripts/{session}.transcript.json"))
    }

    /// Returns the path of the checkpoint.
    #[must_use]
    pub fn checkpoint_path(&self) -> PathBuf {
        self.path.join(CHECKPOINT)
    }

    pub(crate) fn lock_path(&self) -> PathBuf {
        self.path.join("lock")
    }

    pub(crate) fn expired_path(&self) -> PathBuf {
        self.path.join("expired.json")
    }

    /// Locks the run for writing.
    pub fn lock(&self) -> Result<RunLock, LockError> {
        RunLock::acquire(self)
    }

    /// Returns whether the run has a writer. Never makes a writer fail.
    pub fn liveness(&self) -> Result<WriterLiveness, FileError> {
        lock::liveness(self)
    }

    /// Returns the milliseconds since the run was last locked or released, by the boot clock.
    ///
    /// Returns `None` if that was before the last boot.
    #[must_use]
    pub fn ms_since_lock_change(&self, now: &CurrentTime) -> Option<u64> {
        now.boot.as_ref()?.since(&lock::last_lock_change(self)?)
    }

    /// Connects to the run's control socket. Never blocks: a full queue is
    /// [`std::io::ErrorKind::WouldBlock`].
    pub fn connect_control(&self) -> std::io::Result<UnixStream> {
        control_socket::connect(&self.path)
    }

    /// Finds the process that holds the run. Returns `None` if there is none or it is not visible in this PID namespace.
    pub fn writer(&self) -> Result<Option<WriterProcess>, FileError> {
        WriterProcess::find(self)
    }

    /// Returns whether the run's content was pruned, even partly. Such a run cannot be resumed.
    #[must_use]
    pub fn is_expired(&self) -> bool {
        self.expired_path().exists()
    }

    /// Returns whether the run's journal exists and is not empty.
    #[must_use]
    pub fn has_records(&self) -> bool {
        self.journal_bytes() > 0
    }

    /// Removes the directory of a run without records or other content. Returns whether it did.
    ///
    /// Only the process that created the directory or holds its lock may call this.
    pub(crate) fn remove_without_records(&self) -> Result<bool, FileError> {
        let runtime = self.path.join(RUNTIME);
        let mine = [self.lock_path(), self.journal_path(), self.control_socket_path(), runtime];
        for entry in std::fs::read_dir(&self.path).during("list", &self.path)? {
            let path = entry.during("list", &self.path)?.path();
            if self.has_records() || !mine.contains(&path) {
                return Ok(false);
            }
        }
        // The lock file is removed last: until then other processes see that the run is in use.
        for path in mine.iter().rev() {
            files::remove(path).during("remove", path)?;
        }
        std::fs::remove_dir(&self.path).during("remove", &self.path)?;
        Ok(true)
    }

    /// Removes the directory of a run that could not be started.
    ///
    /// Ignores errors: the error that matters to the caller is why the run could not be started.
    pub fn remove_if_no_records(&self) {
        let _ = self.remove_without_records();
    }

    /// Returns the length and modification time of the journal, or `None` if they cannot be read.
    #[must_use]
    pub fn journal_stamp(&self) -> Option<JournalStamp> {
        let found = std::fs::metadata(self.journal_path()).ok()?;
        let modified_ns = found.mtime().saturating_mul(NS_PER_SECOND) + found.mtime_nsec();
        Some(JournalStamp { bytes: found.len(), modified_ns })
    }

    /// Returns the length of the journal; 0 if it cannot be read.
    #[must_use]
    pub fn journal_bytes(&self) -> u64 {
        std::fs::metadata(self.journal_path()).map_or(0, |journal| journal.len())
    }

    /// Reads the run's journal from its start.
    pub fn read_journal<E: DeserializeOwned>(&self) -> Result<JournalReader<E>, ReadError> {
        reader::read_journal(&self.journal_path(), self.id)
    }

    /// Reads the run's journal from `position` on.
    pub fn read_from<E: DeserializeOwned>(
        &self,
        position: JournalPosition,
    ) -> Result<JournalReader<E>, ReadError> {
        reader::read_from(&self.journal_path(), position)
    }

    /// Replaces a session's scratchpad by one rebuilt from the journal.
    pub fn write_scratch(&self, session: SessionId, text: &[u8]) -> Result<(), FileError> {
        self.write(&self.scratch_path(session), text)
    }

    /// Replaces a session's transcript (requirement 47).
    pub fn write_transcript(&self, session: SessionId, json: &[u8]) -> Result<(), FileError> {
        self.write(&self.transcript_path(session), json)
    }

    /// Saves the content that a file had before a change, under the hash of that content. Synced on return.
    pub fn save_before_image(&self, hash: &str, bytes: &[u8]) -> Result<(), FileError> {
        let path = self.before_image_path(hash);
        self.ensure_parent(&path)?;
        files::replace_synced(&path, bytes).during("write", &path)
    }

    /// Reads the content that a file had before a change.
    pub fn read_before_image(&self, hash: &str) -> Result<Vec<u8>, FileError> {
        let path = self.before_image_path(hash);
        let mut bytes = Vec::new();
        let read = files::open_read(&path).and_then(|mut file| file.read_to_end(&mut bytes));
        read.during("read", &path).map(|_| bytes)
    }

    /// Saves the address of the runtime that decides the run. Synced on return.
    pub fn save_runtime(&self, address: &str) -> Result<(), FileError> {
        let path = self.path.join(RUNTIME);
        files::replace_synced(&path, format!("{address}\n").as_bytes()).during("write", &path)
    }

    /// Returns the address of the runtime that decides the run; `None` for a run of this machine.
    #[must_use]
    pub fn runtime(&self) -> Option<String> {
        let text = std::fs::read_to_string(self.path.join(RUNTIME)).ok()?;
        Some(text.trim().to_owned())
    }

    /// Records whether the runtime was asked to continue the run, and its new end is not in the journal yet.
    pub fn mark_continued(&self, is_continued: bool) -> Result<(), FileError> {
        let path = self.path.join(CONTINUED);
        if is_continued {
            files::replace_synced(&path, b"").during("write", &path)
        } else {
            files::remove(&path).during("remove", &path).map(drop)
        }
    }

    /// Returns whether the runtime was asked to continue the run, and its new end may be missing in the journal.
    #[must_use]
    pub fn is_continued(&self) -> bool {
        self.path.join(CONTINUED).is_file()
    }

    /// Drops all characters that a hash does not have, so that a forged name cannot escape the directory.
    fn before_image_path(&self, hash: &str) -> PathBuf {
        let plain: String = hash.chars().filter(char::is_ascii_alphanumeric).collect();
        self.path.join("before").join(plain)
    }

    pub(crate) fn write(&self, path: &Path, bytes: &[u8]) -> Result<(), FileError> {
        self.ensure_parent(path)?;
        files::replace(path, bytes).during("write", path)
    }

    fn ensure_parent(&self, path: &Path) -> Result<(), FileError> {
        match path.parent() {
            Some(parent) if parent != self.path => {
                files::ensure_dir(parent).during("create", parent)
            }
            _ => Ok(()),
        }
    }
}
