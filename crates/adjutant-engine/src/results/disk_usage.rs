//! How much room the folders of workspaces take.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use super::{MERGES, SPACES};

/// Room on disk, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DiskUsage {
    /// Warm checkouts that workspaces stand on; they are made again when they are needed.
    pub bases: u64,
    /// Workspaces, at work or left behind by a crash.
    pub spaces: u64,
    /// What is kept for taking merges back.
    pub merges: u64,
}

/// Adds up the room that workspaces and merges take below a state directory.
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

/// What lies in a folder: one that is there and empty takes no room worth telling.
fn below(folder: &Path) -> u64 {
    let Ok(entries) = fs::read_dir(folder) else { return 0 };
    entries.flatten().map(|entry| room(&entry.path())).sum()
}

/// How far below the folder of workspaces a repository keeps its bases.
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

/// What cannot be read is not counted: it may be gone by now, or a mount of somebody at work.
fn room(path: &Path) -> u64 {
    let Ok(found) = path.symlink_metadata() else { return 0 };
    if !found.is_dir() {
        // Blocks are counted in 512 bytes, whatever the file system uses.
        return found.blocks() * 512;
    }
    below(path)
}
