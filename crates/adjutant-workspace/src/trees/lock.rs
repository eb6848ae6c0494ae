//! Locks of the kernel's on files and folders, given back when dropped or when the process ends.

use std::fs::File;
use std::os::fd::OwnedFd;
use std::path::Path;

use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;

use crate::git::GitError;
use crate::private;

/// An open file that may hold a lock.
#[derive(Debug)]
pub(crate) struct FileLock(File);

impl FileLock {
    /// Opens a file to lock, making it where there is none; nothing is locked yet.
    pub(crate) fn open_file(path: &Path) -> Result<Self, GitError> {
        private::open_lock(path).map(Self).map_err(GitError::io("opening a lock"))
    }

    /// Opens a folder to lock.
    pub(crate) fn open_dir(path: &Path) -> Result<Self, GitError> {
        private::open_dir(path).map(Self).map_err(GitError::io("opening a folder to lock"))
    }

    /// Takes a lock; says whether it was free.
    pub(crate) fn acquire(&self, how: FlockOperation) -> Result<bool, GitError> {
        loop {
            match flock(&self.0, how) {
                Ok(()) => return Ok(true),
                Err(Errno::INTR) => {}
                Err(Errno::WOULDBLOCK) => return Ok(false),
                Err(errno) => return Err(GitError::io("taking a lock")(errno)),
            }
        }
    }

    /// Returns the number of the open file, by which it is told from another of the same name.
    pub(crate) fn inode(&self) -> u64 {
        rustix::fs::fstat(&self.0).map_or(0, |stat| stat.st_ino)
    }

    /// Returns a second handle that holds the same lock.
    pub(crate) fn duplicate(&self) -> Result<OwnedFd, GitError> {
        self.0.try_clone().map(OwnedFd::from).map_err(GitError::io("sharing a lock"))
    }
}

impl Drop for FileLock {
    fn drop(&mut self) {
        // Closing is not enough: a process that another thread is just starting has a copy of the
        // handle until it runs its program, and the lock would stay with that copy.
        let _ = flock(&self.0, FlockOperation::Unlock);
    }
}
