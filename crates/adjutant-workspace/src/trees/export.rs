//! Writing the files of a git tree into a directory: all of them, or the differences.
//!
//! Content is written as it is stored; filters, attributes and line-ending settings do not apply. Submodules become
//! empty directories.

use std::collections::BTreeSet;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, unlinkat};
use rustix::io::Errno;

use crate::git::{
    Diff, DiffEntry, DiffStatus, GitError, ObjectId, Repository, RunningGit, ScratchGitDir,
    bytes_of,
};
use crate::kernel::{self, SymlinkPolicy};
use crate::private::make_private;
use crate::{PathError, Root};

/// Git processes that write files at the same time. More than CPUs: with two on two CPUs the writing takes as long
/// as with one.
const WORKERS: usize = 4;

/// The number of files from which git writes in parallel.
const PARALLEL_FILES: usize = 1_000;

/// Git's mode of a plain file.
pub(super) const PLAIN: u32 = 0o100_644;

impl Repository {
    /// Writes the files that were added or changed between `from` and `to` into an empty directory, and returns the
    /// deleted paths.
    ///
    /// Laid over a checkout of `from`, the directory shows `to`. Deleted paths that a file or directory of the
    /// layer replaces are not returned.
    ///
    /// # Errors
    ///
    /// Why it could not be written.
    pub fn write_layer(
        &self,
        from: &ObjectId,
        to: &ObjectId,
        into: &Path,
    ) -> Result<Vec<PathBuf>, GitError> {
        self.write_layer_of(&self.differences(from, to)?, into)
    }

    /// Like [`Repository::write_layer`], for a known difference.
    pub(crate) fn write_layer_of(
        &self,
        diff: &Diff,
        into: &Path,
    ) -> Result<Vec<PathBuf>, GitError> {
        let (gone, written): (Vec<&DiffEntry>, Vec<&DiffEntry>) =
            diff.entries.iter().partition(|entry| entry.new_mode == 0);
        write(self, &written, into, None)?;
        let files: BTreeSet<&Path> = written.iter().map(|entry| entry.path.as_path()).collect();
        let folders: BTreeSet<&Path> =
            files.iter().flat_map(|file| file.ancestors().skip(1)).collect();
        let open = |path: &&Path| {
            !folders.contains(path) && !path.ancestors().any(|above| files.contains(above))
        };
        Ok(gone.iter().map(|entry| entry.path.as_path()).filter(open).map(Path::to_owned).collect())
    }
}

/// Checks a tree out into an empty directory; afterwards `scratch` has its index.
pub(crate) fn check_out(
    scratch: &ScratchGitDir<'_>,
    tree: &ObjectId,
    into: &Path,
    lock: OwnedFd,
) -> Result<(), GitError> {
    begin_check_out(scratch, tree, into, lock)?.wait_output().map(drop)
}

/// Starts git for [`check_out`] without waiting for it.
pub(crate) fn begin_check_out<'s>(
    scratch: &'s ScratchGitDir<'_>,
    tree: &ObjectId,
    into: &Path,
    lock: OwnedFd,
) -> Result<RunningGit<'s>, GitError> {
    let (workers, from) = (WORKERS, PARALLEL_FILES);
    let call = scratch.call_in("read-tree", into).config(format!("checkout.workers={workers}"));
    let call = call.config(format!("checkout.thresholdForParallelism={from}"));
    let call = call.args(["-u", "--reset", "--no-sparse-checkout"]).arg(tree.as_str());
    call.holding_lock(lock).begin()
}

/// Writes these files of a tree over those in the directory.
pub(crate) fn write(
    repository: &Repository,
    entries: &[&DiffEntry],
    into: &Path,
    lock: Option<OwnedFd>,
) -> Result<(), GitError> {
    if entries.is_empty() {
        return Ok(());
    }
    let scratch = repository.scratch(None)?;
    let mut list = Vec::new();
    for entry in entries {
        list.extend_from_slice(format!("{:06o} {} 0\t", entry.new_mode, entry.new_id).as_bytes());
        list.extend_from_slice(bytes_of(&entry.path));
        list.push(0);
    }
    scratch.call("update-index").args(["-z", "--index-info"]).run_with_input(&list)?;
    let mut call = scratch.call_in("checkout-index", into);
    if let Some(lock) = lock {
        call = call.holding_lock(lock);
    }
    call.args(["--all", "--force", "--quiet"]).run().map(drop)
}

/// Writes blobs into a directory, each as a plain file named by its number, link targets included.
pub(crate) fn write_images<'c>(
    repository: &Repository,
    contents: impl Iterator<Item = (usize, &'c ObjectId)>,
    into: &Path,
) -> Result<(), GitError> {
    let image = |(number, id): (usize, &ObjectId)| DiffEntry {
        status: DiffStatus::Added,
        path: PathBuf::from(number.to_string()),
        old_mode: 0,
        new_mode: PLAIN,
        old_id: id.clone(),
        new_id: id.clone(),
        lines: None,
    };
    let images: Vec<DiffEntry> = contents.map(image).collect();
    write(repository, &images.iter().collect::<Vec<_>>(), into, None)?;
    // Git created them with the modes of a checkout.
    let mut paths = images.iter().map(|image| into.join(&image.path));
    paths.try_for_each(|path| make_private(&path)).map_err(GitError::io("making a file private"))
}

/// Removes a file or link and then its parents as far as they are empty; a missing file is fine.
pub(crate) fn remove_with_empty_parents(root: &Root, path: &Path) -> Result<(), PathError> {
    let mut at = path;
    let mut flags = AtFlags::empty();
    while let Some(name) = at.file_name() {
        let parent = at.parent().filter(|parent| !parent.as_os_str().is_empty());
        let folder = match kernel::open_directory(
            root.handle(),
            parent.unwrap_or(Path::new(".")),
            SymlinkPolicy::Refuse,
        ) {
            Ok(folder) => {
                root.check_write(&folder, at, 0)?;
                Some(folder)
            }
            // Perhaps only some of the parent directories exist.
            Err(PathError::NotFound) => None,
            Err(PathError::NotDirectory | PathError::Loop) => return Ok(()),
            Err(error) => return Err(error),
        };
        match folder.map_or(Ok(()), |folder| unlink(&folder, name.as_ref(), flags)) {
            Ok(()) | Err(Errno::NOENT) => {}
            // The directory is not empty, so it stays.
            Err(Errno::NOTEMPTY | Errno::EXIST) => return Ok(()),
            // A directory that may not be removed stays, too: the file is gone, and git does not store directories.
            Err(Errno::ACCESS | Errno::PERM | Errno::BUSY | Errno::ROFS) if at != path => {
                return Ok(());
            }
            Err(errno) => return Err(PathError::from_errno(errno)),
        }
        let Some(parent) = parent else { return Ok(()) };
        at = parent;
        flags = AtFlags::REMOVEDIR;
    }
    Ok(())
}

fn unlink(folder: impl AsFd, name: &Path, flags: AtFlags) -> Result<(), Errno> {
    match unlinkat(&folder, name, flags) {
        // A submodule is an empty directory.
        Err(Errno::ISDIR) => unlinkat(&folder, name, AtFlags::REMOVEDIR),
        done => done,
    }
}
