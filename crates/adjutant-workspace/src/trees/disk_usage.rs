//! The disk space that the workspaces of all repositories occupy, and removing unused bases to stay within a bound.
//!
//! Start at [`DiskUsage::measure`]. The size of a base is recorded beside it, so that measuring does not visit its files
//! again.

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use rustix::fs::FlockOperation;

use super::lock::FileLock;
use crate::git::GitError;
use crate::private;

/// The file in a base that contains its size in bytes.
pub(super) const SIZE_FILE: &str = "size";

/// The disk space that all workspaces below a state directory occupy, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DiskUsage {
    /// Base checkouts that workspaces share; they are made again when needed.
    pub bases: u64,
    /// Workspaces, in use or left behind by a crash, and the layers they share.
    pub workspaces: u64,
    /// The home directories of delegations and their `/tmp`.
    pub homes: u64,
    /// What commands wrote to package caches.
    pub caches: u64,
}

impl DiskUsage {
    /// Measures everything below `spaces`, the directory of all repositories' workspaces. Unreadable paths count as
    /// nothing: they may be gone, or mounts of a live run.
    #[must_use]
    pub fn measure(spaces: &Path) -> Self {
        let mut usage = Self::default();
        for repository in entries(spaces) {
            for run in entries(&repository) {
                if run.file_name().is_some_and(|name| name == ".private") {
                    usage.add_private(&run);
                } else {
                    usage.add_run(&run);
                }
            }
        }
        usage
    }

    /// Returns the sum of all kinds.
    #[must_use]
    pub const fn total(self) -> u64 {
        self.bases + self.workspaces + self.homes + self.caches
    }

    fn add_private(&mut self, private: &Path) {
        for path in entries(private) {
            match path.file_name().and_then(|name| name.to_str()) {
                Some("bases") => {
                    self.bases += entries(&path).map(|base| base_size(&base)).sum::<u64>()
                }
                Some("worktrees") => entries(&path).for_each(|run| self.add_run(&run)),
                _ => self.workspaces += size_on_disk(&path),
            }
        }
    }

    fn add_run(&mut self, run: &Path) {
        for part in entries(run).flat_map(|workspace| entries(&workspace).collect::<Vec<_>>()) {
            let bytes = size_on_disk(&part);
            match part.file_name().and_then(|name| name.to_str()) {
                Some("home" | "tmp") => self.homes += bytes,
                Some("caches") => self.caches += bytes,
                _ => self.workspaces += bytes,
            }
        }
    }
}

/// Removes unused bases of any repository below `spaces`, the oldest first, until everything there occupies at most
/// `bound` bytes. Nothing else is removed.
///
/// # Errors
///
/// [`GitError::DiskBound`] if what is in use occupies more.
pub(super) fn make_room(spaces: &Path, bound: u64) -> Result<(), GitError> {
    let mut used = DiskUsage::measure(spaces).total();
    if used <= bound {
        return Ok(());
    }
    let of = |repository: PathBuf| entries(&repository.join(".private/bases")).collect::<Vec<_>>();
    let made = |base: &PathBuf| {
        let state = fs::metadata(base.join("state")).and_then(|state| state.modified());
        state.unwrap_or(SystemTime::UNIX_EPOCH)
    };
    let mut bases: Vec<PathBuf> = entries(spaces).flat_map(of).collect();
    bases.sort_by_key(made);
    for base in bases {
        if used <= bound {
            return Ok(());
        }
        let Ok(held) = FileLock::open_file(&base.join("lock")) else { continue };
        if held.acquire(FlockOperation::NonBlockingLockExclusive)? {
            let freed = base_size(&base);
            // Without its state file a base counts as broken, if removing it is interrupted.
            let _ = fs::remove_file(base.join("state"));
            fs::remove_dir_all(&base).map_err(GitError::io("removing an unused base checkout"))?;
            used = used.saturating_sub(freed);
        }
    }
    if used <= bound { Ok(()) } else { Err(GitError::DiskBound { used, bound }) }
}

/// Returns the size of a base; measures and records it if it is not recorded.
fn base_size(base: &Path) -> u64 {
    let file = base.join(SIZE_FILE);
    let recorded = fs::read_to_string(&file).ok().and_then(|text| text.trim().parse().ok());
    recorded.unwrap_or_else(|| {
        let measured = size_on_disk(base);
        if base.join("state").exists() {
            // Best effort: without it, the next call measures again.
            let _ = private::write(&file, format!("{measured}\n"));
        }
        measured
    })
}

/// Returns the bytes that a file, or everything in a directory, occupies.
#[must_use]
pub fn size_on_disk(path: &Path) -> u64 {
    match path.symlink_metadata() {
        Ok(found) if found.is_dir() => entries(path).map(|entry| size_on_disk(&entry)).sum(),
        // `st_blocks` counts units of 512 bytes on every file system.
        Ok(found) => found.blocks() * 512,
        Err(_) => 0,
    }
}

fn entries(folder: &Path) -> impl Iterator<Item = PathBuf> {
    fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path())
}
