//! Changes relative to a base: paths that were written, and paths that were deleted.
//!
//! They are found in a work tree or in the upper layer of an overlay, which are read by handle. No link is
//! followed; a link is content of its own.
//!
//! Start at [`FileChange`] and [`layer_changes`].

use std::fs::File;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};

use rustix::fs::{AtFlags, FileType, Stat, fgetxattr, readlinkat, statat};
use rustix::io::Errno;

use super::GitError;
use super::repository::path_of;
use crate::kernel::{self, SymlinkPolicy};
use crate::{Dir, FileKind, PathError, RelPath, Root};

/// Overlay attributes that mark a directory as hiding the one below it; the first is used in user namespaces.
const OPAQUE: [&str; 2] = ["user.overlay.opaque", "trusted.overlay.opaque"];

/// The most entries of all directories of a layer together.
const MAX_LAYER_ENTRIES: usize = 1_000_000;

/// The deepest path that is committed: one descriptor is open for each level.
pub(crate) const MAX_DEPTH: usize = 200;

/// The longest path that is committed; hundreds of paths are passed to git on one command line.
const MAX_PATH_BYTES: usize = 2_000;

/// The most files that one commit may change.
const MAX_CHANGES: usize = 200_000;

/// A path that differs from the base.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum FileChange {
    /// The file, or everything below the directory, was deleted. Deletions sort before writes.
    Deleted(RelPath),
    /// The file or link is new or changed; its content is in the directory.
    Written(RelPath),
}

impl FileChange {
    /// Returns the path.
    #[must_use]
    pub const fn path(&self) -> &RelPath {
        match self {
            Self::Deleted(path) | Self::Written(path) => path,
        }
    }
}

/// A path that was left out, and why.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct SkippedPath {
    /// The path.
    pub path: PathBuf,
    /// The reason.
    pub reason: SkipReason,
}

impl SkippedPath {
    /// Says whether it may be an agent's work that exists nowhere else, so that it must not be removed.
    #[must_use]
    pub const fn is_work(&self) -> bool {
        matches!(self.reason, SkipReason::TooLarge(_) | SkipReason::Unreadable)
    }
}

/// Why a path was left out of a commit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum SkipReason {
    /// It is in a git directory or in a nested repository.
    NestedRepository,
    /// Agents must not change it.
    Reserved,
    /// It is a pipe, a socket or a device.
    Special,
    /// The user account may not read it.
    Unreadable,
    /// It is ignored by the repository.
    Ignored,
    /// Its path has too many levels or is too long.
    TooDeep,
    /// It has this many bytes, which exceeds the limit for a file or for the whole commit.
    TooLarge(u64),
}

/// The opened content of a path.
pub(crate) enum OpenedContent {
    /// A regular file.
    File { file: File, len: u64, executable: bool },
    /// A link and its target.
    Link(Vec<u8>),
    /// Nothing, or a directory.
    Nothing,
}

/// Opens the content at `path`. The inner error says why it cannot be committed.
pub(crate) fn content_at(
    root: &Root,
    path: &RelPath,
) -> Result<Result<OpenedContent, SkipReason>, PathError> {
    match kernel::open_regular(root.handle(), path.to_open(), SymlinkPolicy::Refuse) {
        Ok(opened) => {
            let stat = rustix::fs::fstat(&opened.file).map_err(PathError::from_errno)?;
            let executable = stat.st_mode & 0o100 != 0;
            Ok(Ok(OpenedContent::File { file: opened.file, len: opened.len, executable }))
        }
        Err(PathError::Loop) => read_link(root, path).map(Ok),
        Err(PathError::NotFound | PathError::NotDirectory)
        | Err(PathError::NotRegular(FileKind::Directory)) => Ok(Ok(OpenedContent::Nothing)),
        Err(PathError::NotRegular(_)) => Ok(Err(SkipReason::Special)),
        Err(PathError::PermissionDenied) => Ok(Err(SkipReason::Unreadable)),
        Err(error) => Err(error),
    }
}

fn read_link(root: &Root, path: &RelPath) -> Result<OpenedContent, PathError> {
    let parent = path.as_path().parent().filter(|parent| !parent.as_os_str().is_empty());
    let parent = parent.unwrap_or(Path::new("."));
    let Some(name) = path.as_path().file_name() else { return Ok(OpenedContent::Nothing) };
    let folder = match kernel::open_directory(root.handle(), parent, SymlinkPolicy::Refuse) {
        Ok(folder) => folder,
        // A parent is a link: beneath the root there is nothing of that name.
        Err(PathError::Loop | PathError::NotFound | PathError::NotDirectory) => {
            return Ok(OpenedContent::Nothing);
        }
        Err(error) => return Err(error),
    };
    match readlinkat(&folder, name, Vec::new()) {
        Ok(target) => Ok(OpenedContent::Link(target.into_bytes())),
        Err(Errno::NOENT | Errno::INVAL) => Ok(OpenedContent::Nothing),
        Err(errno) => Err(PathError::from_errno(errno)),
    }
}

/// Says whether a path has a component `.git`, in any case.
pub(crate) fn is_in_dot_git(path: &Path) -> bool {
    path.components().any(|part| part.as_os_str().eq_ignore_ascii_case(".git"))
}

/// Says whether a path has only normal components: no `..`, not absolute.
pub(crate) fn has_only_normal_components(path: &Path) -> bool {
    path.components().all(|part| matches!(part, Component::Normal(_)))
}

/// Lists the changes in the upper layer of an overlay.
///
/// A character device 0/0 is a deletion; an opaque directory counts as deleted first. Paths that are left out are
/// returned, too.
///
/// # Errors
///
/// When the layer cannot be read.
pub fn layer_changes(upper: &Root) -> Result<(Vec<FileChange>, Vec<SkippedPath>), PathError> {
    layer_changes_within(upper, MAX_LAYER_ENTRIES)
}

fn layer_changes_within(
    upper: &Root,
    max: usize,
) -> Result<(Vec<FileChange>, Vec<SkippedPath>), PathError> {
    let mut found = (Vec::new(), Vec::new());
    let top = upper.open_dir(&RelPath::default())?;
    let mut left = max;
    walk(&top, Path::new(""), &mut found, &mut left)?;
    found.0.sort();
    Ok(found)
}

/// Says whether a path is too long or too deep to be committed.
pub(crate) fn is_too_deep(path: &Path) -> bool {
    path.as_os_str().len() > MAX_PATH_BYTES || path.components().count() > MAX_DEPTH
}

/// Refuses work that changes too many files.
pub(crate) fn check_change_count(changes: &[FileChange]) -> Result<(), GitError> {
    check_count(changes.len(), MAX_CHANGES)
}

fn check_count(count: usize, max: usize) -> Result<(), GitError> {
    if count <= max {
        return Ok(());
    }
    let text = format!(
        "{count} files changed, limit {max}; the work is not committed and stays in the workspace"
    );
    Err(GitError::io("committing the work")(io::Error::other(text)))
}

fn walk(
    folder: &Dir,
    at: &Path,
    found: &mut (Vec<FileChange>, Vec<SkippedPath>),
    left: &mut usize,
) -> Result<(), PathError> {
    let listed = folder.list(*left)?;
    if listed.truncated {
        let text = format!(
            "more than {MAX_LAYER_ENTRIES} files and directories were written; the work is not committed and stays in the workspace"
        );
        return Err(PathError::Io(io::Error::other(text)));
    }
    *left = left.saturating_sub(listed.entries.len());
    for entry in listed.entries {
        let path = at.join(&entry.name);
        if is_too_deep(&path) {
            found.1.push(SkippedPath { path, reason: SkipReason::TooDeep });
            continue;
        }
        if entry.name.eq_ignore_ascii_case(".git") {
            found.1.push(SkippedPath { path, reason: SkipReason::NestedRepository });
            continue;
        }
        let named = RelPath::new(&path)?;
        match entry.kind {
            FileKind::Directory => {
                let below = folder.open_dir(&entry.name)?;
                if is_opaque(&below) {
                    found.0.push(FileChange::Deleted(named));
                }
                walk(&below, &path, found, left)?;
            }
            FileKind::Regular | FileKind::Symlink => found.0.push(FileChange::Written(named)),
            FileKind::CharDevice if is_whiteout(folder, entry.name.as_bytes())? => {
                found.0.push(FileChange::Deleted(named));
            }
            FileKind::CharDevice
            | FileKind::BlockDevice
            | FileKind::Fifo
            | FileKind::Socket
            | FileKind::Unknown => {
                found.1.push(SkippedPath { path, reason: SkipReason::Special });
            }
        }
    }
    Ok(())
}

fn is_whiteout(folder: &Dir, name: &[u8]) -> Result<bool, PathError> {
    let stat: Stat = statat(folder.handle(), path_of(name), AtFlags::SYMLINK_NOFOLLOW)
        .map_err(PathError::from_errno)?;
    Ok(FileType::from_raw_mode(stat.st_mode) == FileType::CharacterDevice && stat.st_rdev == 0)
}

fn is_opaque(folder: &Dir) -> bool {
    let mut value = [0_u8; 4];
    OPAQUE.iter().any(|name| {
        fgetxattr(folder.handle(), *name, &mut value[..]).is_ok_and(|count| count == 1)
            && value[0] == b'y'
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn too_many_files_are_refused() {
        let folder = tempfile::tempdir().unwrap();
        for name in 0..10 {
            std::fs::create_dir(folder.path().join(name.to_string())).unwrap();
            std::fs::write(folder.path().join(format!("{name}/file")), "").unwrap();
        }
        let root = Root::open(folder.path()).unwrap();
        assert_eq!(layer_changes_within(&root, 20).unwrap().0.len(), 10);
        assert!(layer_changes_within(&root, 19).is_err());
        let refused = check_count(6, 5).unwrap_err();
        let GitError::Io { source, .. } = refused else { panic!("{refused}") };
        assert!(source.to_string().contains("6 files changed, limit 5"), "{source}");
        check_count(5, 5).unwrap();
    }
}
