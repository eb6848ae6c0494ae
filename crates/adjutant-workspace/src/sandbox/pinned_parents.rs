//! Keeps programs from renaming or replacing the parents of mount points.
//!
//! A home directory is kept between runs, and mount points lie in it: the workspace, toolchains, caches. A program that
//! could rename a parent of a mount point and put a link in its place would choose where the next run mounts. So each
//! parent in a writable directory is mounted on itself: the kernel refuses to rename or remove a mount point.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use rustix::mount::{OpenTreeFlags, open_tree};

use super::plan::{SetupFailure, StepErrorContext as _};
use super::skeleton::{NewRoot, attach};

/// The writable mounts of a root, and the parents of mount points in them that were pinned.
pub(crate) struct PinnedParents {
    writable: Vec<PathBuf>,
    pinned: BTreeSet<PathBuf>,
}

impl PinnedParents {
    /// Starts with the directories that are writable in every sandbox.
    pub(crate) fn new() -> Self {
        Self { writable: ["tmp", "dev/shm"].map(PathBuf::from).into(), pinned: BTreeSet::new() }
    }

    /// Adds a mount that programs can write.
    pub(crate) fn add_writable(&mut self, at: PathBuf) {
        self.pinned.insert(at.clone());
        self.writable.push(at);
    }

    /// Makes every directory between a writable mount and `at` a mount point, creating it if it is missing.
    pub(crate) fn pin(&mut self, root: &NewRoot, at: &Path) -> Result<(), SetupFailure> {
        let around = |writable: &&PathBuf| at.starts_with(writable) && at != writable.as_path();
        let deepest = self.writable.iter().filter(around).max_by_key(|it| it.components().count());
        let Some(writable) = deepest.cloned() else { return Ok(()) };
        let mut parents: Vec<&Path> =
            at.ancestors().skip(1).take_while(|parent| *parent != writable).collect();
        parents.reverse();
        for parent in parents {
            if self.pinned.insert(parent.to_owned()) {
                let directory = root.ensure_directory(parent)?;
                let flags = OpenTreeFlags::OPEN_TREE_CLONE
                    | OpenTreeFlags::OPEN_TREE_CLOEXEC
                    | OpenTreeFlags::AT_EMPTY_PATH;
                let tree = open_tree(&directory, "", flags).step("pin a directory")?;
                attach(&tree, &directory, parent)?;
            }
        }
        Ok(())
    }
}
