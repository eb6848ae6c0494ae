//! Merging a result with a state of the work tree in the object store, and checking whether the changed files may
//! be replaced.
//!
//! Start at [`Repository::merge_onto`]. No file is touched here; files on disk that git does not know are checked
//! when the change is prepared (see `prepare`).

use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};

use super::error::step_error;
use super::{ApplyError, journals};
use crate::git::{
    Conflict, Diff, DiffEntry, GitError, MergePreview, ObjectId, Repository, WorkTreeSnapshot,
};
use crate::trees::journal::{self, JournalStage, ReplacePlan};

/// Git's mode of a submodule entry.
const SUBMODULE: u32 = 0o160_000;

/// The state a result is merged with.
#[derive(Clone, Copy)]
pub(in crate::trees) struct MergeTarget<'a> {
    pub(in crate::trees) tree: &'a ObjectId,
    /// Files whose uncommitted content may be replaced, because it can be restored.
    pub(in crate::trees) known: &'a BTreeSet<PathBuf>,
}

/// A merge without conflicts that may be applied.
pub(in crate::trees) struct CleanMerge {
    pub(in crate::trees) tree: ObjectId,
    pub(in crate::trees) diff: Diff,
    pub(in crate::trees) submodules: Vec<PathBuf>,
}

impl Repository {
    /// Merges a result with a state of the work tree in the object store, and checks whether the changed files may
    /// be replaced.
    pub(in crate::trees) fn merge_onto(
        &self,
        result: &ObjectId,
        ours: &WorkTreeSnapshot,
        onto: MergeTarget<'_>,
    ) -> Result<CleanMerge, ApplyError> {
        let preview = self.preview(result, onto.tree)?;
        if !preview.is_clean() {
            // Uncommitted changes have to be dealt with first, so they are reported instead of the conflict.
            let touched = preview.conflicts.iter().map(|it| it.path.as_path()).collect();
            self.refuse_uncommitted(ours, result, &touched, onto.known)?;
            return Err(ApplyError::Conflicts { preview });
        }
        let mut diff = self.differences(onto.tree, &preview.tree)?;
        let submodule = |entry: &DiffEntry| [entry.old_mode, entry.new_mode].contains(&SUBMODULE);
        let submodules: Vec<PathBuf> =
            diff.entries.iter().filter(|entry| submodule(entry)).map(|e| e.path.clone()).collect();
        // Files below a submodule's directory are not applied either.
        diff.entries.retain(|entry| !submodules.iter().any(|it| entry.path.starts_with(it)));
        let mut own = self.excluded_dirs();
        let guarded =
            |entry: &DiffEntry| Some((entry.path.clone(), own.guarding_owner(&entry.path)?));
        if let Some((path, owner)) = diff.entries.iter().find_map(guarded) {
            return Err(ApplyError::Stuck { path, source: owner.refusal() });
        }
        let written = diff.entries.iter().filter(|entry| entry.new_mode != 0);
        let written: Vec<PathBuf> = written.map(|entry| entry.path.clone()).collect();
        let marked = self.marked_files(&preview.tree, &written)?;
        if !marked.is_empty() {
            let conflicts = marked.into_iter().map(Conflict::marked).collect();
            return Err(ApplyError::Conflicts { preview: MergePreview { conflicts, ..preview } });
        }
        let touched = diff.entries.iter().map(|entry| entry.path.as_path()).collect();
        self.refuse_uncommitted(ours, result, &touched, onto.known)?;
        self.refuse_sparse(&diff, onto.known)?;
        Ok(CleanMerge { tree: preview.tree, diff, submodules })
    }

    /// Refuses to change or remove files that a sparse checkout excludes: a removal would be invisible, and the
    /// index, which marks the excluded files, must not be changed.
    fn refuse_sparse(&self, diff: &Diff, known: &BTreeSet<PathBuf>) -> Result<(), ApplyError> {
        // Deleted files are not in the captured tree, so a file of the tree that is missing on disk is excluded by
        // the sparse checkout.
        let is_left_out = |path: &&PathBuf| {
            let found = self.work_tree().join(path).symlink_metadata();
            let is_gone = |error: io::Error| {
                matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory)
            };
            !known.contains(*path) && found.is_err_and(is_gone)
        };
        let old = diff.entries.iter().filter(|entry| entry.old_mode != 0).map(|entry| &entry.path);
        let paths: Vec<PathBuf> = old.filter(is_left_out).cloned().collect();
        if paths.is_empty() { Ok(()) } else { Err(ApplyError::Sparse { paths }) }
    }

    /// Refuses files whose uncommitted content is not what the child started from.
    ///
    /// Content that another application left is accepted: its journal can restore it.
    fn refuse_uncommitted(
        &self,
        ours: &WorkTreeSnapshot,
        result: &ObjectId,
        touched: &BTreeSet<&Path>,
        known: &BTreeSet<PathBuf>,
    ) -> Result<(), ApplyError> {
        let dirty: BTreeSet<&Path> =
            ours.changes.iter().map(|change| change.path().as_path()).collect();
        let dirty: BTreeSet<&Path> = touched.intersection(&dirty).copied().collect();
        if dirty.is_empty() {
            return Ok(());
        }
        let since = self.differences(&self.base_of(result)?, &ours.commit)?;
        let unseen = since.entries.into_iter().map(|entry| entry.path);
        let unseen = unseen.filter(|path| dirty.contains(path.as_path()) && !known.contains(path));
        let mut paths: BTreeSet<PathBuf> = unseen.collect();
        if !paths.is_empty() {
            self.subtract_applied(&mut paths)?;
        }
        let paths: Vec<PathBuf> = paths.into_iter().collect();
        if paths.is_empty() { Ok(()) } else { Err(ApplyError::Dirty { paths }) }
    }

    /// Removes the paths that are exactly as an earlier application left them.
    fn subtract_applied(&self, paths: &mut BTreeSet<PathBuf>) -> Result<(), ApplyError> {
        let root = self.root()?;
        let reading = || GitError::io("reading a journal");
        for (_, folder) in journals(&self.journals_dir())? {
            if journal::stage(&folder).map_err(reading())? != JournalStage::Done {
                continue;
            }
            let Some(plan) = ReplacePlan::load(&folder).map_err(reading())? else { continue };
            for path in plan.still_as_left(&root, paths).map_err(step_error)? {
                paths.remove(&path);
            }
        }
        Ok(())
    }
}
