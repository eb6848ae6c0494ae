//! Opening up what a program closed to its own account, so that it can be kept.
//!
//! Git stores neither the modes of folders nor who may read a file, so nothing is lost by it.

use std::ffi::OsStr;
use std::fs;
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use rustix::fs::{AtFlags, OFlags, statat};

use crate::git::too_deep;
use crate::kernel::{self, Links};
use crate::{Dir, FileKind, PathError, RelPath, Root};

/// The most entries of one folder.
const MAX_ENTRIES: usize = 10_000_000;

/// What the owner needs to look into a folder and to remove what is in it.
const FOLDER: u32 = 0o700;

/// What the owner needs to read a file.
const FILE: u32 = 0o400;

/// Gives the owner back the right to read everything a layer holds, through the merged tree.
pub(super) fn open_up(layer: &Root, merged: &Root) -> Result<(), PathError> {
    folder(&layer.open_dir(&RelPath::default())?, Path::new(""), merged)
}

fn folder(layer: &Dir, at: &Path, merged: &Root) -> Result<(), PathError> {
    for entry in layer.list(MAX_ENTRIES)?.entries {
        let path = at.join(&entry.name);
        if too_deep(&path) {
            // Not kept, so nobody needs to read it.
            continue;
        }
        match entry.kind {
            FileKind::Directory => {
                widen(layer, &entry.name, &path, merged, FOLDER)?;
                folder(&layer.open_dir(&entry.name)?, &path, merged)?;
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
    let stat = statat(layer.handle(), name, AtFlags::SYMLINK_NOFOLLOW);
    let mode = stat.map_err(PathError::from_errno)?.st_mode & 0o777;
    if mode & wanted == wanted {
        return Ok(());
    }
    // By a handle that no link leads to: a program may be at work in the tree.
    let there = match kernel::open(merged.handle(), path, OFlags::PATH, Links::Never) {
        Ok(there) => there,
        // A layer above hides it.
        Err(rustix::io::Errno::NOENT | rustix::io::Errno::NOTDIR | rustix::io::Errno::LOOP) => {
            return Ok(());
        }
        Err(errno) => return Err(PathError::from_errno(errno)),
    };
    let handle = format!("/proc/self/fd/{}", there.as_raw_fd());
    fs::set_permissions(handle, fs::Permissions::from_mode(mode | wanted)).map_err(PathError::Io)
}
