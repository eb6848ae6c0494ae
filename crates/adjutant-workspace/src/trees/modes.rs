//! The permissions of files and folders, of which git stores next to nothing.
//!
//! Start at [`inhabitants`]. Invariant: everything is reached by handle beneath the root, and no link is followed.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use rustix::fs::{OFlags, fstat};

use super::opening::allow;
use crate::git::too_deep;
use crate::kernel::{self, Links};
use crate::{Dir, FileKind, PathError, RelPath, Root};

/// The most entries of one folder.
const MAX_ENTRIES: usize = 10_000_000;

/// What git and the tools of agents give where the umask takes nothing away.
const FILE: u32 = 0o666;
const RUNNABLE: u32 = 0o777;

/// What most umasks take away.
const USUAL_UMASK: u32 = 0o022;

/// The bits that say who may do what.
const BITS: u32 = 0o777;

/// The permissions of a file or folder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Bits {
    /// Whether it is a folder.
    pub(crate) is_folder: bool,
    /// Who may do what.
    pub(crate) mode: u32,
}

/// What a new file or folder of this process gets.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Umask(u32);

impl Umask {
    /// Returns that of this process.
    pub(crate) fn now() -> Self {
        let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
        let word = status.lines().find_map(|line| line.strip_prefix("Umask:"));
        let found = word.and_then(|word| u32::from_str_radix(word.trim(), 8).ok());
        Self(found.unwrap_or(USUAL_UMASK))
    }

    /// Returns what a folder gets, or a file that can be run.
    pub(crate) const fn runnable(self) -> u32 {
        RUNNABLE & !self.0
    }

    /// Returns what a file gets that cannot be run.
    pub(crate) const fn plain(self) -> u32 {
        FILE & !self.0
    }

    /// Says whether somebody chose these permissions.
    pub(crate) const fn is_unusual(self, bits: Bits) -> bool {
        let is_plain = !bits.is_folder && bits.mode == self.plain();
        !is_plain && bits.mode != self.runnable()
    }
}

/// Lists the files and folders below a root, the root itself as an empty path; git's own folders are left out, and
/// so is what nobody may look into.
pub(crate) fn inhabitants(root: &Root, found: &mut BTreeSet<PathBuf>) -> Result<(), PathError> {
    found.insert(PathBuf::new());
    walk(&root.open_dir(&RelPath::default())?, Path::new(""), found)
}

fn walk(folder: &Dir, at: &Path, found: &mut BTreeSet<PathBuf>) -> Result<(), PathError> {
    for entry in folder.list(MAX_ENTRIES)?.entries {
        let path = at.join(&entry.name);
        if entry.name.eq_ignore_ascii_case(".git") || too_deep(&path) {
            continue;
        }
        if entry.kind == FileKind::Directory {
            found.insert(path.clone());
            match folder.open_dir(&entry.name) {
                Ok(below) => walk(&below, &path, found)?,
                Err(PathError::NotFound | PathError::PermissionDenied) => {}
                Err(error) => return Err(error),
            }
        } else if entry.kind == FileKind::Regular {
            found.insert(path);
        }
    }
    Ok(())
}

/// Returns the permissions of what is at a path; nothing where there is no file and no folder.
pub(crate) fn bits_at(root: &Root, path: &Path) -> Option<Bits> {
    let stat = fstat(handle(root, path).ok()?).ok()?;
    let kind = FileKind::of(rustix::fs::FileType::from_raw_mode(stat.st_mode));
    let is_folder = kind == FileKind::Directory;
    (is_folder || kind == FileKind::Regular)
        .then_some(Bits { is_folder, mode: stat.st_mode & BITS })
}

/// Sets the permissions of what is at a path.
pub(crate) fn set_bits(root: &Root, path: &Path, mode: u32) -> Result<(), PathError> {
    let there = handle(root, path)?;
    let found = fstat(&there).map_err(PathError::from_errno)?.st_mode & 0o7777;
    allow(&there, (found & !BITS) | mode)
}

fn handle(root: &Root, path: &Path) -> Result<std::os::fd::OwnedFd, PathError> {
    let path = if path.as_os_str().is_empty() { Path::new(".") } else { path };
    let flags = OFlags::PATH | OFlags::NOFOLLOW;
    kernel::open(root.handle(), path, flags, Links::Never).map_err(PathError::from_errno)
}
