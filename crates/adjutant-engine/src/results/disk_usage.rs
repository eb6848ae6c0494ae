//! The disk usage of workspaces and merges.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use super::{MERGES, SPACES};

/// Disk usage below a state directory, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DiskUsage {
    /// Base checkouts that workspaces share; they are made again when needed.
    pub bases: u64,
    /// Workspaces, in use or left behind by a crash.
    pub spaces: u64,
    /// The data to undo merges.
    pub merges: u64,
}

/// Computes the disk usage of workspaces and merges below a state directory.
#[must_use]
pub fn disk_usage(state: &Path) -> DiskUsage {
    let spaces = state.join(SPACES);
    let bases = bases(&spaces, BASES_DEPTH);
    DiskUsage {
        bases,
        spaces: below(&spaces).saturating_sub(bases),
        merges: below(&state.join(MERGES)),
    }
}

/// Returns the disk usage of a directory's entries, without the directory itself.
fn below(folder: &Path) -> u64 {
    let Ok(entries) = fs::read_dir(folder) else { return 0 };
    entries.flatten().map(|entry| room(&entry.path())).sum()
}

/// The depth of `bases` directories below the directory of workspaces.
const BASES_DEPTH: usize = 3;

fn bases(folder: &Path, depth: usize) -> u64 {
    let Ok(entries) = fs::read_dir(folder) else { return 0 };
    let each = entries.flatten().filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
    let of = |entry: fs::DirEntry| match depth {
        _ if entry.file_name() == "bases" => room(&entry.path()),
        0 => 0,
        depth => bases(&entry.path(), depth - 1),
    };
    each.map(of).sum()
}

/// Returns the disk usage of a path. Unreadable paths count as zero: they may be gone, or mounts of a live run.
fn room(path: &Path) -> u64 {
    let Ok(found) = path.symlink_metadata() else { return 0 };
    if !found.is_dir() {
        // `st_blocks` counts units of 512 bytes on every file system.
        return found.blocks() * 512;
    }
    below(path)
}
