//! Removing directories with unknown content: any depth, missing permissions, no link followed.
//!
//! Walks down by handles and back up by `..`, so that it runs out of neither descriptors nor stack, and no path
//! gets too long for the kernel.

use std::ffi::{OsStr, OsString};
use std::io;
use std::path::Path;

use rustix::fs::{AtFlags, Mode, OFlags, fchmod, fstat, openat, unlinkat};
use rustix::io::Errno;

use super::owner_access::{allow, grant_top_access};
use crate::kernel::{self, SymlinkPolicy};
use crate::{Dir, FileKind, PathError, RelPath, Root};

/// The most entries of one directory.
const MAX_ENTRIES: usize = 10_000_000;

/// The permissions the owner needs to empty a directory.
const MODE: Mode = Mode::RWXU;

/// Removes a file or a directory with everything in it; a missing path is fine.
pub(crate) fn remove_all(path: &Path) -> io::Result<()> {
    let Ok(found) = path.symlink_metadata() else { return Ok(()) };
    let gone = |error: &io::Error| error.kind() == io::ErrorKind::NotFound;
    let removed = if found.is_dir() {
        // Most directories are empty at this point.
        std::fs::remove_dir(path).or_else(|_| empty(path).and_then(|()| std::fs::remove_dir(path)))
    } else {
        std::fs::remove_file(path)
    };
    removed.or_else(|error| if gone(&error) { Ok(()) } else { Err(error) })
}

/// A directory that is being emptied, and its remaining subdirectories.
struct DirLevel {
    name: OsString,
    id: (u64, u64),
    folders: Vec<OsString>,
}

fn empty(path: &Path) -> io::Result<()> {
    grant_top_access(path).map_err(as_io)?;
    let root = Root::open(path).map_err(as_io)?;
    empty_from(root.open_dir(&RelPath::default()).map_err(as_io)?)
}

fn empty_from(mut at: Dir) -> io::Result<()> {
    let mut levels = vec![enter(&at, OsString::new())?];
    while let Some(level) = levels.last_mut() {
        if let Some(name) = level.folders.pop() {
            let below = open(&at, &name)?;
            levels.push(enter(&below, name)?);
            at = below;
            continue;
        }
        let Some(done) = levels.pop() else { break };
        let Some(parent) = levels.last() else { break };
        let up = openat(at.handle(), "..", OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
        let up = Dir::new(up);
        if id(&up)? != parent.id {
            return Err(io::Error::other("a directory was moved while it was being removed"));
        }
        match unlinkat(up.handle(), Path::new(&done.name), AtFlags::REMOVEDIR) {
            Ok(()) | Err(Errno::NOENT) => {}
            Err(errno) => return Err(errno.into()),
        }
        at = up;
    }
    Ok(())
}

/// Removes the files of a directory and returns its subdirectories.
fn enter(folder: &Dir, name: OsString) -> io::Result<DirLevel> {
    let stat = fstat(folder.handle())?;
    if Mode::from_raw_mode(stat.st_mode) & MODE != MODE {
        fchmod(folder.handle(), MODE)?;
    }
    let mut folders = Vec::new();
    for entry in folder.list(MAX_ENTRIES).map_err(as_io)?.entries {
        if entry.kind == FileKind::Directory {
            folders.push(entry.name);
            continue;
        }
        match unlinkat(folder.handle(), Path::new(&entry.name), AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => {}
            Err(errno) => return Err(errno.into()),
        }
    }
    Ok(DirLevel { name, id: (stat.st_dev, stat.st_ino), folders })
}

/// Opens a directory, even one that its owner may not list.
fn open(folder: &Dir, name: &OsStr) -> io::Result<Dir> {
    match kernel::open_directory(folder.handle(), Path::new(name), SymlinkPolicy::Refuse) {
        Err(PathError::PermissionDenied) => {
            // Via a handle, because a link may have replaced the directory since it was listed.
            let flags = OFlags::PATH | OFlags::DIRECTORY;
            let there =
                kernel::open(folder.handle(), Path::new(name), flags, SymlinkPolicy::Refuse)?;
            allow(&there, MODE.as_raw_mode()).map_err(as_io)?;
            kernel::open_directory(folder.handle(), Path::new(name), SymlinkPolicy::Refuse)
        }
        opened => opened,
    }
    .map(Dir::new)
    .map_err(as_io)
}

fn id(folder: &Dir) -> io::Result<(u64, u64)> {
    let stat = fstat(folder.handle())?;
    Ok((stat.st_dev, stat.st_ino))
}

fn as_io(error: PathError) -> io::Error {
    if let PathError::Io(error) = error { error } else { io::Error::other(error) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn directories_of_any_depth_and_mode_are_removed_and_links_are_not_followed() {
        let outer = tempfile::tempdir().unwrap();
        let kept = outer.path().join("kept");
        std::fs::create_dir(&kept).unwrap();
        std::fs::write(kept.join("file"), "mine").unwrap();
        let top = outer.path().join("top");
        std::fs::create_dir(&top).unwrap();
        std::os::unix::fs::symlink(&kept, top.join("link")).unwrap();
        let root = Root::open(&top).unwrap();
        let mut at = root.open_dir(&RelPath::default()).unwrap();
        // More levels than a process may have descriptors, and a path longer than the kernel accepts.
        for _ in 0..5_000 {
            rustix::fs::mkdirat(at.handle(), "n", MODE).unwrap();
            let below = at.open_dir(OsStr::new("n")).unwrap();
            drop(kernel::create(below.handle(), Path::new("file"), MODE).unwrap());
            at = below;
        }
        for name in ["wide", "wide/closed", "wide/closed/below"] {
            std::fs::create_dir(top.join(name)).unwrap();
        }
        std::fs::write(top.join("wide/closed/below/file"), "x").unwrap();
        let closed = std::os::unix::fs::PermissionsExt::from_mode(0o000);
        std::fs::set_permissions(top.join("wide/closed"), closed).unwrap();
        remove_all(&top).unwrap();
        assert!(top.symlink_metadata().is_err());
        assert_eq!(std::fs::read_to_string(kept.join("file")).unwrap(), "mine");
        remove_all(&top).unwrap();
    }
}
