//! The lock that says a process lives: one file per process, locked until the process ends.
//!
//! The kernel drops the lock with the process, however that ends, so what the process held can be given to
//! others. A process number is never asked.
//!
//! Start at [`HolderLock::take`]. Invariant: only the process that has the lock removes the file, and a process
//! makes its name known to others only after it has the lock.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustix::fs::FlockOperation;

use crate::files::{self, FileError, FileErrorContext};
use crate::lock::try_flock;

/// The folder with the lock files, in the state directory.
const FOLDER: &str = "holders";

/// How often a lock is taken anew because another process removed the file a moment before.
const LOCK_ATTEMPTS: u32 = 100;

/// A lock that this process has until this is dropped.
#[derive(Debug)]
pub struct HolderLock {
    path: PathBuf,
    _file: File,
}

impl HolderLock {
    /// Makes and locks the file `name`, which no other process uses.
    pub fn take(home: &Path, name: &str) -> Result<Self, FileError> {
        let folder = home.join(FOLDER);
        files::ensure_private_dir(&folder).during("create", &folder)?;
        let path = folder.join(name);
        for _ in 0..LOCK_ATTEMPTS {
            let file = files::open_private(&path).during("open", &path)?;
            let exclusive = FlockOperation::NonBlockingLockExclusive;
            let is_locked = try_flock(&file, exclusive).during("lock", &path)?;
            // Whoever clears up may have removed it between these two steps.
            if is_locked && file.metadata().during("examine", &path)?.nlink() > 0 {
                return Ok(Self { path, _file: file });
            }
        }
        Err(io::Error::from(io::ErrorKind::WouldBlock)).during("lock", &path)
    }

    /// Says whether a process has the lock `name`. A file that no process has locked is removed.
    pub fn is_held(home: &Path, name: &str) -> Result<bool, FileError> {
        let path = home.join(FOLDER).join(name);
        let file = match files::open_read(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
            opened => opened.during("open", &path)?,
        };
        if !try_flock(&file, FlockOperation::NonBlockingLockExclusive).during("lock", &path)? {
            return Ok(true);
        }
        // One that stays is removed another time.
        let _ = fs::remove_file(&path);
        Ok(false)
    }

    /// Removes the files that no process has locked, except those that `is_known` is true of.
    pub fn sweep(home: &Path, is_known: impl Fn(&str) -> bool) {
        let Ok(entries) = fs::read_dir(home.join(FOLDER)) else { return };
        for entry in entries.flatten() {
            if let Some(name) = entry.file_name().to_str().filter(|name| !is_known(name)) {
                let _ = Self::is_held(home, name);
            }
        }
    }
}

impl Drop for HolderLock {
    fn drop(&mut self) {
        // While the lock is held: another process that opens the file sees that it has no name any more.
        let _ = fs::remove_file(&self.path);
    }
}
