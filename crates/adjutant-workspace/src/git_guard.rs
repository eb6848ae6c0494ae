//! Git directories that must not be written to, identified by device and inode, whatever their names are.
//!
//! Git runs hooks and configured helpers without asking. The git directory of a directory need not be called
//! `.git`: a `.git` file may name any directory, even one inside the work tree.
//!
//! Start at [`GitGuard::around`] and [`GitGuard::check_write`]. Invariant: while a git directory cannot be
//! resolved, every write is refused.

use std::ffi::OsStr;
use std::fs;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, Mode, OFlags, fstat, openat, statat};
use rustix::io::Errno;

use crate::PathError;
use crate::git::read_pointer;

/// The device and inode numbers of a file or directory.
pub(crate) type FileId = (u64, u64);

/// Whether writes to git directories of other repositories are refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OtherGitDirs {
    /// Refused: every directory that looks like a git directory, and every file that would make a directory look
    /// like one.
    Refused,
    /// Allowed: the user sees them when merging.
    Allowed,
}

/// The git directories that may not be written through a root.
#[derive(Clone, Debug)]
pub(crate) enum GitGuard {
    /// The git directory and the common directory of the repository, if there is one.
    Known(Vec<FileId>, OtherGitDirs),
    /// There is a repository, but its git directory could not be found.
    Unresolved,
}

impl GitGuard {
    /// Finds the git directories of the repositories around a directory.
    ///
    /// The nearest repository must be resolved. Outer repositories are guarded as far as they can be found, because
    /// git does not use them here.
    pub(crate) fn around(folder: &Path) -> Self {
        let Ok(folder) = fs::canonicalize(folder) else { return Self::Unresolved };
        let mut known = Vec::new();
        let mut is_nearest = true;
        for at in folder.ancestors() {
            match git_dirs_of(at) {
                Ok(None) => {}
                Ok(Some(dirs)) => {
                    known.extend(dirs.iter().filter_map(|dir| file_id(dir)));
                    is_nearest = false;
                }
                Err(_) if is_nearest => return Self::Unresolved,
                Err(_) => {}
            }
        }
        Self::Known(known, OtherGitDirs::Refused)
    }

    /// Guards the given git directories and allows all others.
    pub(crate) fn for_dirs(dirs: [&Path; 2]) -> Self {
        let ids: Option<Vec<FileId>> = dirs.into_iter().map(file_id).collect();
        ids.map_or(Self::Unresolved, |ids| Self::Known(ids, OtherGitDirs::Allowed))
    }

    /// Refuses to write `path` if it is or lies in a git directory. `path` is relative to `root`; `folder` is its
    /// last existing parent, and `missing` counts the directories after it that do not exist yet.
    ///
    /// Walks up by `..` from the open directory, so that no name, link or renamed parent hides a git directory.
    pub(crate) fn check_write(
        &self,
        root: impl AsFd,
        folder: impl AsFd,
        path: &Path,
        missing: usize,
    ) -> Result<(), PathError> {
        let Self::Known(own, others) = self else { return Err(PathError::GitDirUnknown) };
        let root = id_of(root)?;
        let names: Vec<&OsStr> = path.iter().collect();
        let mut depth = names.len().saturating_sub(1 + missing);
        let (mut at, mut is_below_root) = (open_path(&folder, ".")?, true);
        loop {
            let id = id_of(&at)?;
            let next = if is_below_root { names.get(depth).copied() } else { None };
            let is_refused = *others == OtherGitDirs::Refused && looks_like_git_dir(&at, next);
            if own.contains(&id) || is_refused {
                return Err(PathError::InGitDir);
            }
            is_below_root &= id != root;
            // A work tree may lie inside the git directory that it shares with others.
            if !is_below_root && is_there(&at, ".git") {
                return Ok(());
            }
            let above = open_path(&at, "..")?;
            if id_of(&above)? == id {
                return Ok(());
            }
            depth = depth.wrapping_sub(1);
            at = above;
        }
    }
}

/// Says whether git would take a directory for a git directory, once `next` is created in it.
///
/// With a `commondir` file, `objects` and `refs` lie elsewhere.
fn looks_like_git_dir(folder: impl AsFd, next: Option<&OsStr>) -> bool {
    let has = |name: &str| {
        next.is_some_and(|next| next.eq_ignore_ascii_case(name)) || is_there(&folder, name)
    };
    is_git_dir_shape(has)
}

/// Says whether a directory with these names is a git directory.
pub(crate) fn is_git_dir_shape(has: impl Fn(&str) -> bool) -> bool {
    has("HEAD") && (has("commondir") || (has("objects") && has("refs")))
}

fn is_there(folder: impl AsFd, name: &str) -> bool {
    !matches!(statat(folder, name, AtFlags::SYMLINK_NOFOLLOW), Err(Errno::NOENT))
}

fn open_path(from: impl AsFd, name: &str) -> Result<OwnedFd, PathError> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    openat(from, name, flags, Mode::empty()).map_err(PathError::from_errno)
}

fn id_of(handle: impl AsFd) -> Result<FileId, PathError> {
    let stat = fstat(handle).map_err(PathError::from_errno)?;
    Ok((stat.st_dev, stat.st_ino))
}

/// Returns the device and inode of the file that a path leads to.
pub(crate) fn file_id(path: &Path) -> Option<FileId> {
    fs::metadata(path).ok().map(|found| (found.dev(), found.ino()))
}

/// Returns the git directories of all repositories around a directory, as far as they can be found.
#[must_use]
pub fn git_dirs_around(folder: &Path) -> Vec<PathBuf> {
    let Ok(folder) = fs::canonicalize(folder) else { return Vec::new() };
    folder.ancestors().filter_map(|at| git_dirs_of(at).ok()?).flatten().collect()
}

/// Returns the git directory that `.git` in a directory is or names, and the common directory; `None` without
/// `.git`.
///
/// Unlike `Repository::open`, this accepts a damaged git directory, because that is guarded too.
fn git_dirs_of(folder: &Path) -> io::Result<Option<Vec<PathBuf>>> {
    let path = folder.join(".git");
    if let Err(error) = path.symlink_metadata() {
        let is_none =
            matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory);
        return if is_none { Ok(None) } else { Err(error) };
    }
    let found = fs::canonicalize(&path)?;
    let git_dir = if found.is_dir() {
        found
    } else {
        // A relative path is relative to the directory of the `.git` file.
        let beside = found.parent().unwrap_or(folder);
        let named = read_pointer(&found, "gitdir: ").ok_or(io::ErrorKind::InvalidData)?;
        fs::canonicalize(beside.join(named))?
    };
    if !git_dir.is_dir() {
        return Err(io::ErrorKind::NotADirectory.into());
    }
    let mut dirs = vec![git_dir.clone()];
    let common = git_dir.join("commondir");
    if common.symlink_metadata().is_ok() {
        let named = read_pointer(&common, "").ok_or(io::ErrorKind::InvalidData)?;
        dirs.push(fs::canonicalize(git_dir.join(named))?);
    }
    Ok(Some(dirs))
}
