//! A lock that shows that a process is alive: one file per process, locked until the process ends.
//!
//! The kernel releases the lock when the process ends for any reason; other processes then take over what it
//! had claimed in the registry. Pids are not used.
//!
//! Start at [`LivenessLock::take`]. Invariant: only the lock holder unlinks the file, and a process writes its
//! name into the registry only after it has the lock.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustix::fs::FlockOperation;

use crate::files::{self, FileError, FileErrorContext};
use crate::lock::try_flock;

/// The directory of the lock files, in the state directory.
const FOLDER: &str = "holders";

/// How often to retry when another process unlinks the file between open and lock.
const LOCK_ATTEMPTS: u32 = 100;

/// A lock that this process holds until the value is dropped.
#[derive(Debug)]
pub struct LivenessLock {
    path: PathBuf,
    _file: File,
}

impl LivenessLock {
    /// Creates and locks the file `name`, which must be unique to this process.
    pub fn take(home: &Path, name: &str) -> Result<Self, FileError> {
        let folder = home.join(FOLDER);
        files::ensure_private_dir(&folder).during("create", &folder)?;
        let path = folder.join(name);
        for _ in 0..LOCK_ATTEMPTS {
            let file = files::open_private(&path).during("open", &path)?;
            let exclusive = FlockOperation::NonBlockingLockExclusive;
            let is_locked = try_flock(&file, exclusive).during("lock", &path)?;
            // Another process may have unlinked the file between open and lock; a lock on it is then worthless.
            if is_locked && file.metadata().during("examine", &path)?.nlink() > 0 {
                return Ok(Self { path, _file: file });
            }
        }
        Err(io::Error::from(io::ErrorKind::WouldBlock)).during("lock", &path)
    }

    /// Returns whether a process holds the lock `name`. Removes the file if no process does.
    pub fn is_held(home: &Path, name: &str) -> Result<bool, FileError> {
        let path = home.join(FOLDER).join(name);
        let file = match files::open_read(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
            opened => opened.during("open", &path)?,
        };
        if !try_flock(&file, FlockOperation::NonBlockingLockExclusive).during("lock", &path)? {
            return Ok(true);
        }
        // If this fails, the next call removes the file.
        let _ = fs::remove_file(&path);
        Ok(false)
    }

    /// Removes the lock files that no process holds, except those for which `is_known` is true.
    pub fn sweep(home: &Path, is_known: impl Fn(&str) -> bool) {
        let Ok(entries) = fs::read_dir(home.join(FOLDER)) else { return };
        for entry in entries.flatten() {
            if let Some(name) = entry.file_name().to_str().filter(|name| !is_known(name)) {
                let _ = Self::is_held(home, name);
            }
        }
    }
}

impl Drop for LivenessLock {
    fn drop(&mut self) {
        // Unlinked while the lock is held: a process that has opened the file sees that its link count is 0.
        let _ = fs::remove_file(&self.path);
    }
}
