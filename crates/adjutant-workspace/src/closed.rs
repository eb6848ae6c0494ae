//! A directory out of reach, although it may lie beneath a root.
//!
//! It is known by its device and number, not by a name: links and other names of it lead to the same.
//! What is opened is judged by where it was found, after it was opened and before it is read.

use std::os::fd::{AsFd, AsRawFd};
use std::path::{Path, PathBuf};

use rustix::fs::{fstat, stat};

use crate::PathError;

/// A directory out of reach, and the root that it may lie beneath.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Closed {
    folder: (u64, u64),
    root: (u64, u64),
}

impl Closed {
    /// Remembers a directory; nothing where there is none that we could open ourselves.
    pub(crate) fn new(root: impl AsFd, folder: &Path) -> Option<Self> {
        let (root, found) = (fstat(root).ok()?, stat(folder).ok()?);
        let root = (root.st_dev, root.st_ino);
        Some(Self { folder: (found.st_dev, found.st_ino), root })
    }

    /// Says whether a handle is the directory itself.
    pub(crate) fn is(self, handle: impl AsFd) -> bool {
        fstat(handle).is_ok_and(|it| (it.st_dev, it.st_ino) == self.folder)
    }

    /// Refuses a handle to the directory or to something in it.
    pub(crate) fn judge(self, handle: impl AsFd) -> Result<(), PathError> {
        if self.root == self.folder || self.is(&handle) {
            return Err(PathError::Closed);
        }
        let link = format!("/proc/self/fd/{}", handle.as_fd().as_raw_fd());
        let path: PathBuf = std::fs::read_link(link).map_err(PathError::Io)?;
        for above in path.ancestors().skip(1) {
            // One that was moved away meanwhile is judged by what is left above it.
            let Ok(found) = stat(above) else { continue };
            let found = (found.st_dev, found.st_ino);
            if found == self.folder {
                return Err(PathError::Closed);
            }
            // A workspace lies in the directory itself, and what it holds is the agent's.
            if found == self.root {
                return Ok(());
            }
        }
        Ok(())
    }
}
