//! Applying a result to the user's own work tree, all of it or nothing.
//!
//! The result is merged with the current tree in the object store; the differences are written to the files under a
//! journal that survives a crash and serves for undoing. The user's index and references stay unchanged: the work
//! appears as uncommitted changes.
//!
//! Start at [`Repository::apply`]: `merge` checks what may be replaced, `prepare` fills the journal, `undo`
//! restores files. Invariant: neither uncommitted content that the child did not start from nor a file unknown to
//! git is overwritten.

mod error;
mod merge;
mod prepare;
mod undo;

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use rustix::fs::FlockOperation;

use super::journal::{self, JournalStage, StepError, sync_disk};
use super::lock::FileLock;
use crate::Root;
use crate::git::{Diff, GitError, ObjectId, Repository};
use crate::private;

pub use error::ApplyError;
pub(super) use merge::{CleanMerge, MergeTarget};
pub(super) use prepare::{LINK, save_before, state_after};

/// The directory of the journals in a state directory.
const APPLIES: &str = "applies";

/// A result that was applied to the work tree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AppliedResult {
    /// The name for undoing it; empty if the work tree already contained everything.
    pub name: String,
    /// What changed.
    pub diff: Diff,
    /// Submodules the result changes; they are not applied.
    pub submodules: Vec<PathBuf>,
}

/// An interrupted application that was undone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecoveredApply {
    /// Its name.
    pub name: String,
    /// Files that were changed meanwhile and therefore stay as they are.
    pub left: Vec<UnrestoredFile>,
}

/// The outcome of undoing all interrupted applications.
#[derive(Debug, Default)]
pub struct ApplyRecovery {
    /// Applications whose files were restored.
    pub put_back: Vec<RecoveredApply>,
    /// Why one could not be undone; its journal stays.
    pub stuck: Option<ApplyError>,
}

/// A file that was not restored, because it was changed meanwhile.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnrestoredFile {
    /// The file.
    pub path: PathBuf,
    /// A copy of its earlier content; `None` if there was no file.
    pub before: Option<PathBuf>,
}

impl Repository {
    /// Merges the work of the commit `result` into the work tree's files.
    ///
    /// # Errors
    ///
    /// See [`ApplyError`]; except for [`ApplyError::ChangedMeanwhile`] and [`ApplyError::Unfinished`], the work
    /// tree is unchanged.
    pub fn apply(&self, result: &ObjectId, at: SystemTime) -> Result<AppliedResult, ApplyError> {
        let _alone = self.apply_lock()?;
        if let Some(stuck) = self.undo_unfinished()?.stuck {
            return Err(stuck);
        }
        let ours = self.capture(at)?;
        let onto = MergeTarget { tree: &ours.tree, known: &BTreeSet::new() };
        let CleanMerge { tree, diff, submodules } = self.merge_onto(result, &ours, onto)?;
        if diff.entries.is_empty() {
            return Ok(AppliedResult { name: String::new(), diff, submodules });
        }
        let shown = self.diff(&ours.tree, &tree)?;
        let root = self.root()?;
        let (name, plan) = self.plan(result, &root, &diff)?;
        if let Err(StepError { path, source }) = plan.carry_out(&root, &sync_disk) {
            let left = self.restore(&plan)?;
            return Err(if left.is_empty() {
                ApplyError::Stuck { path, source }
            } else {
                ApplyError::ChangedMeanwhile { path, left, source }
            });
        }
        Ok(AppliedResult { name, diff: shown, submodules })
    }

    /// Lists the names of applied results that can be undone.
    ///
    /// # Errors
    ///
    /// When the journals cannot be read.
    pub fn applied_results(&self) -> Result<Vec<String>, ApplyError> {
        let _alone = self.apply_lock()?;
        let mut names = Vec::new();
        for (name, folder) in journals(&self.journals_dir())? {
            if journal::stage(&folder).map_err(GitError::io("reading a journal"))?
                == JournalStage::Done
            {
                names.push(name);
            }
        }
        names.sort();
        Ok(names)
    }

    pub(super) fn apply_lock(&self) -> Result<FileLock, GitError> {
        let folder = self.journals_dir();
        private::ensure_dir(&folder).map_err(GitError::io("creating the directory of journals"))?;
        lock(&folder)
    }

    fn journals_dir(&self) -> PathBuf {
        self.state().join(APPLIES)
    }

    pub(super) fn root(&self) -> Result<Root, GitError> {
        let root = Root::open(self.work_tree())
            .map_err(|source| GitError::Path { path: self.work_tree().to_owned(), source })?;
        let mut root = root.with_git_guard(self.git_guard());
        for path in self.protected_paths() {
            root.protect(path);
        }
        Ok(root)
    }
}

/// Removes the journals of applications completed before `before`, which can then no longer be undone; returns how
/// many.
///
/// # Errors
///
/// When a journal cannot be read or removed.
pub fn forget_applied(state: &Path, before: SystemTime) -> Result<usize, GitError> {
    let folder = state.join(APPLIES);
    if !folder.is_dir() {
        return Ok(0);
    }
    let _alone = lock(&folder)?;
    let mut count = 0;
    for (_, folder) in journals(&folder)? {
        let forgotten = || -> io::Result<bool> {
            // An incomplete journal still has to be undone, however old it is.
            let old = journal::stage(&folder)? == JournalStage::Done
                && folder.join("done").metadata()?.modified()? < before;
            if old {
                journal::discard(&folder)?;
            }
            Ok(old)
        };
        count += usize::from(forgotten().map_err(GitError::io("removing a journal"))?);
    }
    Ok(count)
}

/// Locks the journals of a work tree.
fn lock(applies: &Path) -> Result<FileLock, GitError> {
    let held = FileLock::open_file(&applies.join("lock"))?;
    held.acquire(FlockOperation::LockExclusive)?;
    Ok(held)
}

/// Lists the journals with their directories.
fn journals(applies: &Path) -> Result<Vec<(String, PathBuf)>, GitError> {
    let mut all = Vec::new();
    let listing = || GitError::io("listing the journals");
    for entry in fs::read_dir(applies).map_err(listing())? {
        let entry = entry.map_err(listing())?;
        if entry.file_type().map_err(listing())?.is_dir() {
            all.push((entry.file_name().to_string_lossy().into_owned(), entry.path()));
        }
    }
    Ok(all)
}
