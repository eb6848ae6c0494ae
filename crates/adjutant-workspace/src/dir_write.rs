//! A directory that is written in: making it, locking it, making its names durable.
//!
//! The files in it are written through their [`FileTarget`]. Invariant: every name is a single one, so
//! nothing is made outside the directory.

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
    /// With others who only read.
    Shared,
    /// Alone.
    Exclusive,
}

/// A lock on a directory, given back when it is dropped or the process ends.
#[derive(Debug)]
pub struct DirLock {
    _handle: OwnedFd,
}

impl Dir {
    /// Opens the directory called `name`, creating it where there is none.
    ///
    /// # Errors
    ///
    /// Why it was not opened; a symbolic link of that name is refused as [`PathError::Loop`].
    pub fn ensure_dir(&self, name: &OsStr) -> Result<Self, PathError> {
        match self.open_dir(name) {
            Err(PathError::NotFound) => {}
            opened => return opened,
        }
        // The umask has its say.
        match mkdirat(self.handle(), single_name(name)?, Mode::from_raw_mode(0o777)) {
            // Someone else was faster; whether it is a folder is seen below.
            Ok(()) | Err(Errno::EXIST) => {}
            Err(errno) => return Err(PathError::from_errno(errno)),
        }
        self.sync()?;
        self.open_dir(name)
    }

    /// Says what `name` names, without following a link; none where there is nothing.
    ///
    /// # Errors
    ///
    /// When that cannot be told.
    pub fn kind_of(&self, name: &OsStr) -> Result<Option<FileKind>, PathError> {
        match statat(self.handle(), single_name(name)?, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) => Ok(Some(FileKind::of(FileType::from_raw_mode(stat.st_mode)))),
            Err(Errno::NOENT) => Ok(None),
            Err(errno) => Err(PathError::from_errno(errno)),
        }
    }

    /// Returns the place of a file in the directory.
    ///
    /// # Errors
    ///
    /// [`PathError::Outside`] when `name` is more than one name.
    pub fn file_target(&self, name: &OsStr) -> Result<FileTarget, PathError> {
        let folder = self.handle().try_clone().map_err(PathError::Io)?;
        Ok(FileTarget::new(Some(folder), single_name(name)?.as_os_str()))
    }

    /// Makes the names in the directory durable.
    ///
    /// # Errors
    ///
    /// When the disk does not confirm it.
    pub fn sync(&self) -> Result<(), PathError> {
        fsync(self.handle()).map_err(PathError::from_errno)
    }

    /// Locks the directory against others who lock it; none while somebody else holds it.
    ///
    /// # Errors
    ///
    /// When the file system knows no locks.
    pub fn try_lock(&self, lock: LockMode) -> Result<Option<DirLock>, PathError> {
        // A fresh handle: a lock belongs to the open description, and a second one on the same
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
