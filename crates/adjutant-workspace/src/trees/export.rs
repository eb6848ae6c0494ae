//! Writing what a tree holds into a folder: all of it, or what differs.
//!
//! Contents are written as they are stored; no filter, attribute or line ending has a say.
//! Submodules become empty folders.

use std::collections::BTreeSet;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, unlinkat};
use rustix::io::Errno;

use crate::git::{
    Diff, DiffEntry, DiffStatus, GitError, ObjectId, Repository, Running, Scratch, bytes_of,
};
use crate::kernel::{self, SymlinkPolicy};
use crate::private::make_private;
use crate::{PathError, Root};

/// How many processes of git write files at the same time. More than there are processors: two on two of them
/// take as long as one.
const WORKERS: usize = 4;

/// From how many files on they do.
const PARALLEL_FILES: usize = 1_000;

/// The mode of a plain file.
pub(super) const PLAIN: u32 = 0o100_644;

impl Repository {
    /// Writes the files that `to` has and `from` has not, or has differently, into an empty folder;
    /// returns the paths that are gone.
    ///
    /// This is the layer that lies over a checkout of `from` so that `to` is seen. Paths whose place
    /// is taken by a file or a folder of the layer are not among those gone.
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

    /// Does the same where the difference is known.
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

/// Writes the whole tree into an empty folder; the scratch has the index of it then.
pub(crate) fn check_out(
    scratch: &Scratch<'_>,
    tree: &ObjectId,
    into: &Path,
    lock: OwnedFd,
) -> Result<(), GitError> {
    begin_check_out(scratch, tree, into, lock)?.answer().map(drop)
}

/// Begins to do so.
pub(crate) fn begin_check_out<'s>(
    scratch: &'s Scratch<'_>,
    tree: &ObjectId,
    into: &Path,
    lock: OwnedFd,
) -> Result<Running<'s>, GitError> {
    let (workers, from) = (WORKERS, PARALLEL_FILES);
    let call = scratch.call_in("read-tree", into).config(format!("checkout.workers={workers}"));
    let call = call.config(format!("checkout.thresholdForParallelism={from}"));
    let call = call.args(["-u", "--reset", "--no-sparse-checkout"]).arg(tree.as_str());
    call.holding(lock).begin()
}

/// Writes these files of a tree over what is in the folder.
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
    scratch.call("update-index").args(["-z", "--index-info"]).feed(&list)?;
    let mut call = scratch.call_in("checkout-index", into);
    if let Some(lock) = lock {
        call = call.holding(lock);
    }
    call.args(["--all", "--force", "--quiet"]).run().map(drop)
}

/// Writes contents into a folder, each as a plain file named by its number; that of a link too.
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
    // Git made them with the modes of a checkout.
    let mut paths = images.iter().map(|image| into.join(&image.path));
    paths.try_for_each(|path| make_private(&path)).map_err(GitError::io("making a file private"))
}

/// Removes files, links and emptied folders; what is not there is fine.
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
            // Of the folders on the way perhaps only the first ones were made.
            Err(PathError::NotFound) => None,
            Err(PathError::NotDirectory | PathError::Loop) => return Ok(()),
            Err(error) => return Err(error),
        };
        match folder.map_or(Ok(()), |folder| unlink(&folder, name.as_ref(), flags)) {
            Ok(()) | Err(Errno::NOENT) => {}
            // Something else lives in the folder, which therefore stays.
            Err(Errno::NOTEMPTY | Errno::EXIST) => return Ok(()),
            // So does one that may not be removed: the file is gone, and git knows no folders.
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
        // A submodule is an empty folder.
        Err(Errno::ISDIR) => unlinkat(&folder, name, AtFlags::REMOVEDIR),
        done => done,
    }
}
