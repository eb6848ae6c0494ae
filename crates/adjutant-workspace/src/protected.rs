//! Directories and files that agents must not open or change, although they may lie beneath a root.
//!
//! They are identified by device and inode, not by name, so that symbolic links and other paths to them are refused
//! too. A file is checked after it was opened and before it is read.

use std::collections::VecDeque;
use std::fs;
use std::os::fd::{AsFd, AsRawFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::{fstat, stat};

use crate::PathError;
use crate::git_guard::{FileId, file_id};

/// Levels of directories that [`with_link_targets`] searches for symbolic links, and the entries it looks at.
const LINK_LEVELS: usize = 4;
const LINK_ENTRIES: usize = 1_000;

/// Returns a directory and the targets of the symbolic links in it: dotfile managers keep the files elsewhere, such
/// as `~/dotfiles/config.toml`, and put links in the directory.
///
/// A target that contains the directory itself is left out.
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

/// Protected paths, and the root that they may lie beneath.
#[derive(Clone, Debug)]
pub(crate) struct ProtectedPaths {
    folders: Arc<[ProtectedPath]>,
    root: FileId,
}

/// One protected directory or file.
#[derive(Clone, Debug)]
struct ProtectedPath {
    path: PathBuf,
    /// `None` while the path does not exist. Then it is looked up at each check, because an agent may create it.
    id: Option<FileId>,
}

impl ProtectedPath {
    fn id(&self) -> Option<FileId> {
        self.id.or_else(|| file_id(&self.path))
    }
}

impl ProtectedPaths {
    /// Adds a path to those in `before`. Returns `None` if the root cannot be examined.
    pub(crate) fn with_added(
        before: Option<&Self>,
        root: impl AsFd,
        folder: &Path,
    ) -> Option<Self> {
        let found = fstat(root).ok()?;
        let mut folders: Vec<ProtectedPath> =
            before.map(|it| it.folders.to_vec()).unwrap_or_default();
        folders.retain(|known| known.path != folder);
        folders.push(ProtectedPath { path: folder.to_owned(), id: file_id(folder) });
        Some(Self { folders: folders.into(), root: (found.st_dev, found.st_ino) })
    }

    /// Says whether a handle is open on one of the protected paths itself.
    pub(crate) fn is_one(&self, handle: impl AsFd) -> bool {
        fstat(handle).is_ok_and(|it| self.contains_id((it.st_dev, it.st_ino)))
    }

    /// Says whether a protected path has this device and inode.
    pub(crate) fn contains_id(&self, id: FileId) -> bool {
        self.folders.iter().any(|folder| folder.id() == Some(id))
    }

    /// Refuses a handle to a protected path or to something below one.
    pub(crate) fn check(&self, handle: impl AsFd) -> Result<(), PathError> {
        if self.contains_id(self.root) || self.is_one(&handle) {
            return Err(PathError::Protected);
        }
        let link = format!("/proc/self/fd/{}", handle.as_fd().as_raw_fd());
        let path: PathBuf = fs::read_link(link).map_err(PathError::Io)?;
        for above in path.ancestors().skip(1) {
            // A parent that was moved away meanwhile is skipped; the parents above it are still checked.
            let Ok(found) = stat(above) else { continue };
            let found = (found.st_dev, found.st_ino);
            if self.contains_id(found) {
                return Err(PathError::Protected);
            }
            // Workspaces lie in the protected state directory, and agents may open what is in their workspace.
            if found == self.root {
                return Ok(());
            }
        }
        Ok(())
    }
}
