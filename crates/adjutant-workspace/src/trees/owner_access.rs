//! Restoring the owner's permissions on files that a program made inaccessible, so that they can be committed.
//!
//! Git stores neither the modes of directories nor who may read a file, so nothing is lost.

use std::ffi::OsStr;
use std::fs;
use std::os::fd::{AsFd, AsRawFd as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use rustix::fs::{AtFlags, CWD, Mode, OFlags, fstat, openat, statat};
use rustix::io::Errno;

use crate::git::is_too_deep;
use crate::kernel::{self, SymlinkPolicy};
use crate::{Dir, FileKind, PathError, RelPath, Root};

/// The most entries of one directory.
const MAX_ENTRIES: usize = 10_000_000;

/// The permissions the owner needs to list a directory and remove its entries.
const FOLDER: u32 = 0o700;

/// The permission the owner needs to read a file.
const FILE: u32 = 0o400;

/// Makes everything in a layer readable for the owner, by changing modes through the merged tree. Without layers
/// both are the same.
pub(crate) fn grant_owner_access(layer: &Root, merged: &Root) -> Result<(), PathError> {
    folder(&layer.open_dir(&RelPath::default())?, Path::new(""), merged)
}

/// Makes the root directory of a work tree accessible for the owner.
pub(super) fn grant_top_access(path: &Path) -> Result<(), PathError> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let top = openat(CWD, path, flags, Mode::empty()).map_err(PathError::from_errno)?;
    grant_top_access_by_handle(top)
}

/// Makes the root directory of a merged tree accessible for the owner.
pub(crate) fn grant_top_access_by_handle(merged: impl AsFd) -> Result<(), PathError> {
    let mode = fstat(&merged).map_err(PathError::from_errno)?.st_mode & 0o777;
    if mode & FOLDER == FOLDER { Ok(()) } else { allow(merged, mode | FOLDER) }
}

fn folder(layer: &Dir, at: &Path, merged: &Root) -> Result<(), PathError> {
    for entry in layer.list(MAX_ENTRIES)?.entries {
        let path = at.join(&entry.name);
        if is_too_deep(&path) {
            // Paths this deep are not committed.
            continue;
        }
        match entry.kind {
            FileKind::Directory => {
                widen(layer, &entry.name, &path, merged, FOLDER)?;
                match layer.open_dir(&entry.name) {
                    Ok(below) => folder(&below, &path, merged)?,
                    // A running program removed it.
                    Err(PathError::NotFound) => {}
                    Err(error) => return Err(error),
                }
            }
            FileKind::Regular => widen(layer, &entry.name, &path, merged, FILE)?,
            FileKind::Symlink
            | FileKind::Fifo
            | FileKind::Socket
            | FileKind::CharDevice
            | FileKind::BlockDevice
            | FileKind::Unknown => {}
        }
    }
    Ok(())
}

fn widen(
    layer: &Dir,
    name: &OsStr,
    path: &Path,
    merged: &Root,
    wanted: u32,
) -> Result<(), PathError> {
    let mode = match statat(layer.handle(), name, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(stat) => stat.st_mode & 0o777,
        Err(Errno::NOENT) => return Ok(()),
        Err(errno) => return Err(PathError::from_errno(errno)),
    };
    if mode & wanted == wanted {
        return Ok(());
    }
    // Opened without following links: a program may be changing the tree.
    let there = match kernel::open(merged.handle(), path, OFlags::PATH, SymlinkPolicy::Refuse) {
        Ok(there) => there,
        // An upper layer hides it.
        Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => return Ok(()),
        Err(errno) => return Err(PathError::from_errno(errno)),
    };
    allow(&there, mode | wanted)
}

/// Sets the mode of an open file, even of an `O_PATH` descriptor.
pub(super) fn allow(handle: impl AsFd, mode: u32) -> Result<(), PathError> {
    let path = format!("/proc/self/fd/{}", handle.as_fd().as_raw_fd());
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).map_err(PathError::Io)
}
