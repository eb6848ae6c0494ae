//! One run's folder: where its files are, and how the projections among them are written.
//!
//! `journal.jsonl` is the truth and has one writer, who holds `lock`; everything else can be
//! rebuilt from it. File names come from ids, never from labels (D17).
//!
//! Invariant: nothing is written outside the folder, and nothing in it is readable by others.

use std::io::Read;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use adjutant_core::{RunId, SessionId};
use serde::de::DeserializeOwned;

use crate::control_socket;
use crate::files::{self, FileError, FileErrorContext};
use crate::identity::CurrentTime;
use crate::lock::{self, Liveness, LockError, RunLock};
use crate::reader::{self, JournalReader, ReadError};
use crate::record::JournalPosition;
use crate::writer_process::WriterProcess;

/// The folders below a run that hold what was said: pruned when the run expires.
pub(crate) const CONTENT_DIRS: [&str; 4] = ["scratch", "transcripts", "projections", "before"];
const CHECKPOINT: &str = "checkpoint.json";

/// The length of a journal and when it was written last, which together tell whether it was changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct JournalStamp {
    pub(crate) bytes: u64,
    modified: SystemTime,
}

/// The folder of one run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunDir {
    id: RunId,
    path: PathBuf,
}

impl RunDir {
    pub(crate) fn new(runs: &Path, id: RunId) -> Self {
        Self { id, path: runs.join(id.to_string()) }
    }

    /// Returns the run's id, which is also the folder's name.
    #[must_use]
    pub const fn id(&self) -> RunId {
        self.id
    }

    /// Returns the folder.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the journal's file.
    #[must_use]
    pub fn journal_path(&self) -> PathBuf {
        self.path.join("journal.jsonl")
    }

    /// Returns the place of a live run's control socket.
    #[must_use]
    pub fn control_socket_path(&self) -> PathBuf {
        self.path.join("control.sock")
    }

    /// Returns the file of a session's scratchpad.
    #[must_use]
    pub fn scratch_path(&self, session: SessionId) -> PathBuf {
        self.path.join(format!("scratch/{session}.md"))
    }

    /// Returns the file of a session's transcript.
    #[must_use]
    pub fn transcript_path(&self, session: SessionId) -> PathBuf {
        self.path.join(format!("transcripts/{session}.transcript.json"))
    }

    /// Returns the file of the checkpoint.
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

    /// Takes the run for writing.
    pub fn lock(&self) -> Result<RunLock, LockError> {
        RunLock::acquire(self)
    }

    /// Says whether the run has a writer, without disturbing it.
    pub fn liveness(&self) -> Result<Liveness, FileError> {
        lock::liveness(self)
    }

    /// Returns the milliseconds since the run was last taken or given back, by the clock that
    /// nobody can set; nothing when that was before the machine's boot.
    #[must_use]
    pub fn ms_since_lock_change(&self, now: &CurrentTime) -> Option<u64> {
        now.boot.as_ref()?.since(&lock::last_lock_change(self)?)
    }

    /// Reaches the run's control socket. Never waits: a full queue is
    /// [`std::io::ErrorKind::WouldBlock`].
    pub fn connect_control(&self) -> std::io::Result<UnixStream> {
        control_socket::connect(&self.path)
    }

    /// Finds the process that holds the run, unless there is none that can be seen from here.
    pub fn writer(&self) -> Result<Option<WriterProcess>, FileError> {
        WriterProcess::find(self)
    }

    /// Says whether the run's content was pruned, or began to be: it cannot be resumed.
    #[must_use]
    pub fn is_expired(&self) -> bool {
        self.expired_path().exists()
    }

    /// Says whether anything was ever written to the run's journal.
    #[must_use]
    pub fn has_records(&self) -> bool {
        std::fs::metadata(self.journal_path()).is_ok_and(|journal| journal.len() > 0)
    }

    /// Removes the folder of a run that never began and left nothing else; says whether it did.
    ///
    /// Nobody may be at work in it: whoever made the folder or holds its lock calls this.
    pub(crate) fn remove_without_records(&self) -> Result<bool, FileError> {
        let mine = [self.lock_path(), self.journal_path(), self.control_socket_path()];
        for entry in std::fs::read_dir(&self.path).during("list", &self.path)? {
            let path = entry.during("list", &self.path)?.path();
            if self.has_records() || !mine.contains(&path) {
                return Ok(false);
            }
        }
        // The lock is last: until then it says that somebody is at it.
        for path in mine.iter().rev() {
            files::remove(path).during("remove", path)?;
        }
        std::fs::remove_dir(&self.path).during("remove", &self.path)?;
        Ok(true)
    }

    /// Takes back a folder that was made for a run which could not begin.
    ///
    /// What cannot be removed is passed over: the reason why it could not begin is what matters.
    pub fn remove_if_no_records(&self) {
        let _ = self.remove_without_records();
    }

    /// Returns what tells whether the run's journal is changed later; none where it cannot be looked at.
    #[must_use]
    pub fn journal_stamp(&self) -> Option<JournalStamp> {
        let found = std::fs::metadata(self.journal_path()).ok()?;
        Some(JournalStamp { bytes: found.len(), modified: found.modified().ok()? })
    }

    /// Reads the run's journal from its beginning.
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

    /// Replaces a session's scratchpad, to rebuild it from the journal.
    pub fn write_scratch(&self, session: SessionId, text: &[u8]) -> Result<(), FileError> {
        self.write(&self.scratch_path(session), text)
    }

    /// Replaces a session's transcript (requirement 47).
    pub fn write_transcript(&self, session: SessionId, json: &[u8]) -> Result<(), FileError> {
        self.write(&self.transcript_path(session), json)
    }

    /// Keeps what a file held before it was changed, under the hash of that; on disk when this returns.
    pub fn save_before_image(&self, hash: &str, bytes: &[u8]) -> Result<(), FileError> {
        let path = self.before_image_path(hash);
        self.ensure_parent(&path)?;
        files::replace_synced(&path, bytes).during("write", &path)
    }

    /// Reads what a file held before it was changed.
    pub fn read_before_image(&self, hash: &str) -> Result<Vec<u8>, FileError> {
        let path = self.before_image_path(hash);
        let mut bytes = Vec::new();
        let read = files::open_read(&path).and_then(|mut file| file.read_to_end(&mut bytes));
        read.during("read", &path).map(|_| bytes)
    }

    /// Hashes are ours and plain; a name from elsewhere must not lead elsewhere.
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
