//! Directories and files out of reach, although they may lie beneath a root.
//!
//! They are known by device and inode, not by a name: links and other names of them lead to the same.
//! What is opened is judged by where it was found, after it was opened and before it is read.

use std::collections::VecDeque;
use std::fs;
use std::os::fd::{AsFd, AsRawFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::{fstat, stat};

use crate::PathError;
use crate::git_guard::{FileId, file_id};

/// How deep [`with_link_targets`] looks for links, and at how many entries.
const LINK_LEVELS: usize = 4;
const LINK_ENTRIES: usize = 1_000;

/// Returns a directory with the targets of the symbolic links in it: programs that manage dotfiles keep the files
/// elsewhere, such as `~/dotfiles/config.toml`, and put links in the directory.
///
/// A target that holds the directory itself is not among them.
#[must_use]
pub fn with_link_targets(folder: &Path) -> Vec<PathBuf> {
    let mut all = vec![folder.to_owned()];
    let mut waiting = VecDeque::from([(folder.to_owned(), 0)]);
    let mut looked = 0;
    while let Some((at, level)) = waiting.pop_front() {
        for entry in fs::read_dir(&at).into_iter().flatten().flatten() {
            looked += 1;
            let Ok(kind) = entry.file_type() else { continue };
            if looked > LINK_ENTRIES {
                return all;
            }
            if kind.is_dir() && level < LINK_LEVELS {
                waiting.push_back((entry.path(), level + 1));
            } else if kind.is_symlink()
                && let Ok(target) = entry.path().canonicalize()
                && !folder.canonicalize().is_ok_and(|folder| folder.starts_with(&target))
            {
                all.push(target);
            }
        }
    }
    all
}

/// Directories out of reach, and the root that they may lie beneath.
#[derive(Clone, Debug)]
pub(crate) struct ProtectedPaths {
    folders: Arc<[ProtectedPath]>,
    root: FileId,
}

/// One directory out of reach.
#[derive(Clone, Debug)]
struct ProtectedPath {
    path: PathBuf,
    /// Absent while the directory does not exist: it is looked for again then, since an agent may be about to make it.
    id: Option<FileId>,
}

impl ProtectedPath {
    fn id(&self) -> Option<FileId> {
        self.id.or_else(|| file_id(&self.path))
    }
}

impl ProtectedPaths {
    /// Closes a directory besides those that are closed already.
    pub(crate) fn adding(before: Option<&Self>, root: impl AsFd, folder: &Path) -> Option<Self> {
        let found = fstat(root).ok()?;
        let mut folders: Vec<ProtectedPath> =
            before.map(|it| it.folders.to_vec()).unwrap_or_default();
        folders.retain(|known| known.path != folder);
        folders.push(ProtectedPath { path: folder.to_owned(), id: file_id(folder) });
        Some(Self { folders: folders.into(), root: (found.st_dev, found.st_ino) })
    }

    /// Says whether a handle is one of the directories itself.
    pub(crate) fn is_one(&self, handle: impl AsFd) -> bool {
        fstat(handle).is_ok_and(|it| self.contains_id((it.st_dev, it.st_ino)))
    }

    /// Says whether one of them has this device and inode.
    pub(crate) fn contains_id(&self, id: FileId) -> bool {
        self.folders.iter().any(|folder| folder.id() == Some(id))
    }

    /// Refuses a handle to one of the directories or to something in it.
    pub(crate) fn check(&self, handle: impl AsFd) -> Result<(), PathError> {
        if self.contains_id(self.root) || self.is_one(&handle) {
            return Err(PathError::Protected);
        }
        let link = format!("/proc/self/fd/{}", handle.as_fd().as_raw_fd());
        let path: PathBuf = fs::read_link(link).map_err(PathError::Io)?;
        for above in path.ancestors().skip(1) {
            // One that was moved away meanwhile is judged by what is left above it.
            let Ok(found) = stat(above) else { continue };
            let found = (found.st_dev, found.st_ino);
            if self.contains_id(found) {
                return Err(PathError::Protected);
            }
            // A workspace lies in the state directory itself, and what it holds is the agent's.
            if found == self.root {
                return Ok(());
            }
        }
        Ok(())
    }
}
