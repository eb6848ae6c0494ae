//! Changing a directory: creating, locking and fsyncing it.
//!
//! Files in it are written through [`FileTarget`]. Invariant: every name is a single path component, so nothing is
//! created outside the directory.

use std::ffi::OsStr;
use std::os::fd::OwnedFd;
use std::path::Path;

use rustix::fs::{AtFlags, FileType, FlockOperation, Mode, flock, fsync, mkdirat, statat};
use rustix::io::Errno;

use crate::dir::{Dir, single_name};
use crate::kernel::{self, SymlinkPolicy};
use crate::{FileKind, FileTarget, PathError};

/// How a directory is locked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LockMode {
    /// Shared with other readers.
    Shared,
    /// Exclusive.
    Exclusive,
}

/// A lock on a directory, released when it is dropped or the process ends.
#[derive(Debug)]
pub struct DirLock {
    _handle: OwnedFd,
}

impl Dir {
    /// Opens the directory called `name`, creating it if it is missing.
    ///
    /// # Errors
    ///
    /// Why it was not opened; a symbolic link of that name is refused as [`PathError::Loop`].
    pub fn ensure_dir(&self, name: &OsStr) -> Result<Self, PathError> {
        match self.open_dir(name) {
            Err(PathError::NotFound) => {}
            opened => return opened,
        }
        // The umask is applied.
        match mkdirat(self.handle(), single_name(name)?, Mode::from_raw_mode(0o777)) {
            // Another process created it first; `open_dir` below checks that it is a directory.
            Ok(()) | Err(Errno::EXIST) => {}
            Err(errno) => return Err(PathError::from_errno(errno)),
        }
        self.sync()?;
        self.open_dir(name)
    }

    /// Returns the kind of the file called `name` without following a link; `None` if it does not exist.
    ///
    /// # Errors
    ///
    /// When the file system reports another error.
    pub fn kind_of(&self, name: &OsStr) -> Result<Option<FileKind>, PathError> {
        match statat(self.handle(), single_name(name)?, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) => Ok(Some(FileKind::of(FileType::from_raw_mode(stat.st_mode)))),
            Err(Errno::NOENT) => Ok(None),
            Err(errno) => Err(PathError::from_errno(errno)),
        }
    }

    /// Returns the file called `name` in the directory, which need not exist.
    ///
    /// # Errors
    ///
    /// [`PathError::Outside`] if `name` is not a single path component.
    pub fn file_target(&self, name: &OsStr) -> Result<FileTarget, PathError> {
        let folder = self.handle().try_clone().map_err(PathError::Io)?;
        Ok(FileTarget::new(Some(folder), single_name(name)?.as_os_str()))
    }

    /// Fsyncs the directory, which makes created and renamed entries durable.
    ///
    /// # Errors
    ///
    /// When the fsync fails.
    pub fn sync(&self) -> Result<(), PathError> {
        fsync(self.handle()).map_err(PathError::from_errno)
    }

    /// Locks the directory. Returns `None` while another process holds a conflicting lock.
    ///
    /// # Errors
    ///
    /// When the file system does not support locks.
    pub fn try_lock(&self, lock: LockMode) -> Result<Option<DirLock>, PathError> {
        // Opens the directory again: a lock belongs to the open file description, and a second lock on the same
        // description would succeed.
        let handle = kernel::open_directory(self.handle(), Path::new("."), SymlinkPolicy::Refuse)?;
        let operation = match lock {
            LockMode::Shared => FlockOperation::NonBlockingLockShared,
            LockMode::Exclusive => FlockOperation::NonBlockingLockExclusive,
        };
        loop {
            match flock(&handle, operation) {
                Ok(()) => return Ok(Some(DirLock { _handle: handle })),
                Err(Errno::INTR) => {}
                Err(Errno::WOULDBLOCK) => return Ok(None),
                Err(errno) => return Err(PathError::from_errno(errno)),
            }
        }
    }
}
