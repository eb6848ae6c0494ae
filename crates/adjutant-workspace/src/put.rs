//! Writing into a directory by its handle: whole files or nothing, never through a link.
//!
//! A file is written beside its place, synced and renamed over it, so that a reader sees the old
//! or the new one. It does not know what the files mean or who may write them.
//!
//! Invariant: every name is a single one, so nothing is created outside the directory.

use std::ffi::OsStr;
use std::fs::File;
use std::io::Write;
use std::os::fd::OwnedFd;
use std::path::Path;

use rustix::fs::{
    AtFlags, FileType, FlockOperation, Mode, fchmod, flock, fstat, fsync, mkdirat, renameat,
    statat, unlinkat,
};
use rustix::io::Errno;

use crate::dir::{Dir, single};
use crate::kernel::{self, Links};
use crate::{FileKind, PathError};

/// How a directory is locked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lock {
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
        match mkdirat(self.handle(), single(name)?, Mode::from_raw_mode(0o755)) {
            Ok(()) => fsync(self.handle()).map_err(PathError::from_errno)?,
            Err(Errno::EXIST) => {}
            Err(errno) => return Err(PathError::from_errno(errno)),
        }
        self.open_dir(name)
    }

    /// Says what `name` names, without following a link; none where there is nothing.
    ///
    /// # Errors
    ///
    /// When that cannot be told.
    pub fn kind_of(&self, name: &OsStr) -> Result<Option<FileKind>, PathError> {
        match statat(self.handle(), single(name)?, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) => Ok(Some(FileKind::of(FileType::from_raw_mode(stat.st_mode)))),
            Err(Errno::NOENT) => Ok(None),
            Err(errno) => Err(PathError::from_errno(errno)),
        }
    }

    /// Creates a file that is not there yet, whole and synced, with the mode of the regular file
    /// called `like` where there is one.
    ///
    /// # Errors
    ///
    /// Why it was not written; what was begun is removed again.
    pub fn create_file(
        &self,
        name: &OsStr,
        bytes: &[u8],
        like: Option<&OsStr>,
    ) -> Result<(), PathError> {
        let path = single(name)?;
        let mode = match like {
            Some(like) => self.mode_of(like)?,
            None => None,
        };
        let file = kernel::create(self.handle(), path).map_err(PathError::from_errno)?;
        let mut file = File::from(file);
        let written = (|| {
            file.write_all(bytes).map_err(PathError::Io)?;
            if let Some(mode) = mode {
                fchmod(&file, mode).map_err(PathError::from_errno)?;
            }
            file.sync_all().map_err(PathError::Io)
        })();
        if written.is_err() {
            // Best effort: the error that matters is the one above.
            let _ = self.remove_file(name);
        }
        written
    }

    /// Renames within the directory, over what has the new name.
    ///
    /// # Errors
    ///
    /// Why it was not renamed.
    pub fn rename(&self, from: &OsStr, to: &OsStr) -> Result<(), PathError> {
        renameat(self.handle(), single(from)?, self.handle(), single(to)?)
            .map_err(PathError::from_errno)
    }

    /// Removes a file, or a link without what it leads to; says whether there was one.
    ///
    /// # Errors
    ///
    /// Why it was not removed.
    pub fn remove_file(&self, name: &OsStr) -> Result<bool, PathError> {
        match unlinkat(self.handle(), single(name)?, AtFlags::empty()) {
            Ok(()) => Ok(true),
            Err(Errno::NOENT) => Ok(false),
            Err(errno) => Err(PathError::from_errno(errno)),
        }
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
    pub fn try_lock(&self, lock: Lock) -> Result<Option<DirLock>, PathError> {
        // A fresh handle: a lock belongs to the open description, and a second one on the same
        // description would succeed.
        let handle = kernel::open_directory(self.handle(), Path::new("."), Links::Never)?;
        let operation = match lock {
            Lock::Shared => FlockOperation::NonBlockingLockShared,
            Lock::Exclusive => FlockOperation::NonBlockingLockExclusive,
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

    fn mode_of(&self, name: &OsStr) -> Result<Option<Mode>, PathError> {
        match self.open_file(name) {
            Ok(opened) => {
                let stat = fstat(&opened.file).map_err(PathError::from_errno)?;
                // Set-id bits do not pass on to a file with new content.
                Ok(Some(Mode::from_raw_mode(stat.st_mode & 0o777)))
            }
            Err(PathError::NotFound) => Ok(None),
            Err(error) => Err(error),
        }
    }
}
