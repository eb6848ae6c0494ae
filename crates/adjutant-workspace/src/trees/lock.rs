//! File locks (`flock`), released when dropped or when the process ends.

use std::fs::File;
use std::os::fd::OwnedFd;
use std::path::Path;

use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;

use crate::git::GitError;
use crate::private;

/// An open file or directory that can be locked.
#[derive(Debug)]
pub(crate) struct FileLock(File);

impl FileLock {
    /// Opens a file for locking, creating it if it is missing; does not lock it yet.
    pub(crate) fn open_file(path: &Path) -> Result<Self, GitError> {
        private::open_lock(path).map(Self).map_err(GitError::io("opening a lock file"))
    }

    /// Opens a directory for locking; does not lock it yet.
    pub(crate) fn open_dir(path: &Path) -> Result<Self, GitError> {
        private::open_dir(path).map(Self).map_err(GitError::io("opening a directory to lock"))
    }

    /// Acquires a lock. Returns false if a non-blocking lock is not free.
    pub(crate) fn acquire(&self, how: FlockOperation) -> Result<bool, GitError> {
        loop {
            match flock(&self.0, how) {
                Ok(()) => return Ok(true),
                Err(Errno::INTR) => {}
                Err(Errno::WOULDBLOCK) => return Ok(false),
                Err(errno) => return Err(GitError::io("locking a file")(errno)),
            }
        }
    }

    /// Returns the inode of the open file, which tells it from a newer file of the same name.
    pub(crate) fn inode(&self) -> u64 {
        rustix::fs::fstat(&self.0).map_or(0, |stat| stat.st_ino)
    }

    /// Returns a duplicate descriptor that shares the lock.
    pub(crate) fn duplicate(&self) -> Result<OwnedFd, GitError> {
        self.0.try_clone().map(OwnedFd::from).map_err(GitError::io("duplicating a lock"))
    }
}

impl Drop for FileLock {
    fn drop(&mut self) {
        // Closing is not enough: a child process that another thread is forking holds a copy of the descriptor
        // until it execs, and the lock would stay with that copy.
        let _ = flock(&self.0, FlockOperation::Unlock);
    }
}
