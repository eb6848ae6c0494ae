//! Confined opening with the `openat2` system call, and its retries.
//!
//! The confined file access of this crate goes through [`open`] and [`create`]. Invariant: `RESOLVE_BENEATH` and
//! `RESOLVE_NO_MAGICLINKS` are set on every call.

use std::fs::File;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

use rustix::fs::{FileType, Mode, OFlags, ResolveFlags, fstat, openat2};
use rustix::io::Errno;

use crate::root::OpenedFile;
use crate::{FileKind, PathError};

/// Attempts for an open that races with renames.
///
/// The kernel returns EAGAIN when something was renamed meanwhile and it cannot prove that a `..` stayed beneath
/// the root. A process that renames without pause could block us forever, so the attempts are bounded; the race
/// test needs a handful.
const MAX_ATTEMPTS: usize = 256;

/// How symbolic links in a path are treated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SymlinkPolicy {
    /// They are followed as long as they stay beneath the handle.
    FollowBeneath,
    /// The open fails.
    Refuse,
}

impl SymlinkPolicy {
    fn flags(self) -> ResolveFlags {
        let always = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS;
        match self {
            Self::FollowBeneath => always,
            Self::Refuse => always | ResolveFlags::NO_SYMLINKS,
        }
    }
}

/// Opens `path` beneath `at`, trying again while renames race with the resolution.
pub(crate) fn open(
    at: impl AsFd,
    path: &Path,
    flags: OFlags,
    links: SymlinkPolicy,
) -> Result<OwnedFd, Errno> {
    let mut attempt = 0;
    loop {
        attempt += 1;
        match openat2(&at, path, flags | OFlags::CLOEXEC, Mode::empty(), links.flags()) {
            Err(Errno::AGAIN | Errno::INTR) if attempt < MAX_ATTEMPTS => {}
            done => return done,
        }
    }
}

/// Creates a file for writing, which must not exist; the umask applies to the mode.
pub(crate) fn create(at: impl AsFd, path: &Path, mode: Mode) -> Result<OwnedFd, Errno> {
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
    let mut attempt = 0;
    loop {
        attempt += 1;
        match openat2(&at, path, flags, mode, SymlinkPolicy::Refuse.flags()) {
            Err(Errno::AGAIN | Errno::INTR) if attempt < MAX_ATTEMPTS => {}
            done => return done,
        }
    }
}

/// Opens a regular file for reading; other kinds are refused with their kind in the error.
pub(crate) fn open_regular(
    at: impl AsFd,
    path: &Path,
    links: SymlinkPolicy,
) -> Result<OpenedFile, PathError> {
    // O_NONBLOCK: opening a FIFO without a writer would block before its kind can be checked.
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY;
    let handle = match open(&at, path, flags, links) {
        Ok(handle) => handle,
        // A socket, or a device without a driver, cannot be opened; its kind can still be reported.
        Err(Errno::NXIO) => return Err(not_regular(at, path, links)),
        Err(errno) => return Err(PathError::from_errno(errno)),
    };
    let stat = fstat(&handle).map_err(PathError::from_errno)?;
    match FileKind::of(FileType::from_raw_mode(stat.st_mode)) {
        FileKind::Regular => Ok(OpenedFile {
            file: File::from(handle),
            len: u64::try_from(stat.st_size).unwrap_or_default(),
        }),
        kind @ (FileKind::Directory
        | FileKind::Symlink
        | FileKind::Fifo
        | FileKind::Socket
        | FileKind::CharDevice
        | FileKind::BlockDevice
        | FileKind::Unknown) => Err(PathError::NotRegular(kind)),
    }
}

/// Opens a directory for listing and for opening its entries.
pub(crate) fn open_directory(
    at: impl AsFd,
    path: &Path,
    links: SymlinkPolicy,
) -> Result<OwnedFd, PathError> {
    open(at, path, OFlags::RDONLY | OFlags::DIRECTORY, links).map_err(PathError::from_errno)
}

fn not_regular(at: impl AsFd, path: &Path, links: SymlinkPolicy) -> PathError {
    let stat = open(at, path, OFlags::PATH, links).and_then(fstat);
    match stat {
        Ok(stat) => PathError::NotRegular(FileKind::of(FileType::from_raw_mode(stat.st_mode))),
        Err(errno) => PathError::from_errno(errno),
    }
}
