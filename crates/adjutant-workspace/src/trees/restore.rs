//! Making single paths of a workspace what they are in a tree, whatever a program left there.
//!
//! Start at [`put`] and [`take_out`]. Invariant: everything is reached by handle beneath the root, and no
//! link is followed.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, symlinkat};

use super::apply::LINK;
use super::export;
use super::remove::{open, remove_in};
use crate::git::{Content, FILE_BYTES, GitError, PATTERNS, TreeEntry, blob_id, content, too_deep};
use crate::kernel::{self, Links};
use crate::{Dir, FileKind, PathError, RelPath, Root};

/// The most entries of one folder.
const MAX_ENTRIES: usize = 10_000_000;

/// The mode of a submodule's entry.
pub(super) const SUBMODULE: u32 = 0o160_000;

/// Names what git says nothing of when it looks at files: pipes, sockets and devices, what lies too deep,
/// git's own folders but the one at the top, and files with patterns, which may hide themselves.
pub(crate) fn oddities(root: &Root) -> Result<Vec<PathBuf>, PathError> {
    let mut found = Vec::new();
    walk(&root.open_dir(&RelPath::default())?, Path::new(""), &mut found)?;
    Ok(found)
}

fn walk(folder: &Dir, at: &Path, found: &mut Vec<PathBuf>) -> Result<(), PathError> {
    for entry in folder.list(MAX_ENTRIES)?.entries {
        let path = at.join(&entry.name);
        if entry.name.eq_ignore_ascii_case(".git") || too_deep(&path) {
            if path != Path::new(".git") {
                found.push(path);
            }
            continue;
        }
        match entry.kind {
            FileKind::Directory => match folder.open_dir(&entry.name) {
                Ok(below) => walk(&below, &path, found)?,
                // A program at work has removed it.
                Err(PathError::NotFound) => {}
                Err(PathError::PermissionDenied) => found.push(path),
                Err(error) => return Err(error),
            },
            FileKind::Regular | FileKind::Symlink if entry.name != PATTERNS => {}
            FileKind::Regular
            | FileKind::Symlink
            | FileKind::Fifo
            | FileKind::Socket
            | FileKind::CharDevice
            | FileKind::BlockDevice
            | FileKind::Unknown => found.push(path),
        }
    }
    Ok(())
}

/// Says whether a path is what a tree has there; nothing is stored to find out.
pub(crate) fn is_as(root: &Root, path: &Path, entry: &TreeEntry) -> Result<bool, GitError> {
    if entry.mode == SUBMODULE {
        return Ok(true);
    }
    let named =
        RelPath::new(path).map_err(|source| GitError::Path { path: path.to_owned(), source })?;
    // What cannot be read is not what it was.
    let Ok(Ok(found)) = content(root, &named) else { return Ok(false) };
    let found = match found {
        Content::Nothing => None,
        Content::Link(target) if entry.mode == LINK => {
            blob_id(&mut target.as_slice(), target.len() as u64, &entry.id)?
        }
        Content::File { mut file, len, executable }
            if entry.mode != LINK
                && executable == (entry.mode & 0o100 != 0)
                && len <= FILE_BYTES =>
        {
            blob_id(&mut file, len, &entry.id)?
        }
        Content::Link(_) | Content::File { .. } => None,
    };
    Ok(found.as_ref() == Some(&entry.id))
}

/// Says what is at a path, if anything can be seen there.
pub(crate) fn kind_at(root: &Root, path: &Path) -> Option<FileKind> {
    folder_of(root, path).ok()??.kind_of(path.file_name()?).ok()?
}

/// Says whether the folder is there that a path lies in.
pub(crate) fn has_folder(root: &Root, path: &Path) -> bool {
    matches!(folder_of(root, path), Ok(Some(_)))
}

/// Puts a file or a link at a path, with the content of `image`; whatever is there or in the way goes.
pub(crate) fn put(root: &Root, path: &Path, mode: u32, image: &Path) -> Result<(), PathError> {
    let name = path.file_name().ok_or(PathError::NotRegular(FileKind::Directory))?;
    let folder = make_way(root, path.parent().unwrap_or(Path::new("")))?;
    remove_in(&folder, name)?;
    if mode == LINK {
        let target = fs::read(image).map_err(PathError::Io)?;
        return symlinkat(OsStr::from_bytes(&target), folder.handle(), Path::new(name))
            .map_err(PathError::from_errno);
    }
    // The umask has its say.
    let mode = Mode::from_raw_mode(if mode & 0o100 == 0 { 0o666 } else { 0o777 });
    let created = kernel::create(folder.handle(), Path::new(name), mode);
    let mut file = File::from(created.map_err(PathError::from_errno)?);
    let copied = File::open(image).and_then(|mut image| io::copy(&mut image, &mut file));
    copied.map(drop).map_err(PathError::Io)
}

/// Removes what is at a path with everything in it, and folders that it leaves empty.
pub(crate) fn take_out(root: &Root, path: &Path) -> Result<(), PathError> {
    let (Some(folder), Some(name)) = (folder_of(root, path)?, path.file_name()) else {
        return Ok(());
    };
    remove_in(&folder, name)?;
    if let Some(parent) = path.parent().filter(|parent| !parent.as_os_str().is_empty()) {
        // Best effort: git knows no folders.
        let _ = export::remove(root, parent);
    }
    Ok(())
}

/// Opens the folder that a path lies in; none where there is none.
fn folder_of(root: &Root, path: &Path) -> Result<Option<Dir>, PathError> {
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    match kernel::open_directory(root.handle(), parent.unwrap_or(Path::new(".")), Links::Never) {
        Ok(folder) => Ok(Some(Dir::new(folder))),
        Err(PathError::NotFound | PathError::NotDirectory | PathError::Loop) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Opens a folder; what is on the way and is none goes.
fn make_way(root: &Root, path: &Path) -> Result<Dir, PathError> {
    let mut at = root.open_dir(&RelPath::default())?;
    for name in path {
        at = match at.kind_of(name)? {
            Some(FileKind::Directory) => open(&at, name).map_err(PathError::Io)?,
            Some(_) => {
                remove_in(&at, name)?;
                at.ensure_dir(name)?
            }
            None => at.ensure_dir(name)?,
        };
    }
    Ok(at)
}
