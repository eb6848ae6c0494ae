//! Predicting what applying several results in order would do, without touching a file.
//!
//! Each result is merged in the object store with what the results before it would have left. Start at
//! [`Repository::rehearse`]. Invariant: results are judged by the same code that applies them.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::time::SystemTime;

use super::apply::{ApplyError, CleanMerge, MergeTarget};
use crate::git::{Diff, DiffEntry, ObjectId, Repository};

/// What applying a result would change; nothing was changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ApplyRehearsal {
    /// What would change.
    pub diff: Diff,
    /// Submodules the result changes; they would not be applied.
    pub submodules: Vec<PathBuf>,
}

impl Repository {
    /// Returns for each result what applying it in this order would do.
    ///
    /// A result that could not be applied is skipped, and the next one is judged without it.
    ///
    /// # Errors
    ///
    /// When the work tree cannot be examined. Problems with one result are returned in its place.
    pub fn rehearse(
        &self,
        results: &[ObjectId],
        at: SystemTime,
    ) -> Result<Vec<Result<ApplyRehearsal, ApplyError>>, ApplyError> {
        let _alone = self.apply_lock()?;
        let ours = self.capture(at)?;
        let mut tree = ours.tree.clone();
        let mut known = BTreeSet::new();
        let mut all = Vec::new();
        for result in results {
            let onto = MergeTarget { tree: &tree, known: &known };
            let merged = self.merge_onto(result, &ours, onto).and_then(|merge| {
                self.refuse_unknown_files(&merge.diff, &known)?;
                // The files of earlier results are not on disk yet.
                let there =
                    |entry: &&DiffEntry| entry.old_mode != 0 && !known.contains(&entry.path);
                let entries = merge.diff.entries.iter().filter(there).cloned().collect();
                self.refuse_hidden(result, &Diff { entries })?;
                Ok(merge)
            });
            let CleanMerge { tree: next, diff, submodules } = match merged {
                Ok(merge) => merge,
                Err(error) => {
                    all.push(Err(error));
                    continue;
                }
            };
            known.extend(diff.entries.into_iter().map(|entry| entry.path));
            all.push(Ok(ApplyRehearsal { diff: self.diff(&tree, &next)?, submodules }));
            tree = next;
        }
        Ok(all)
    }

    /// Refuses the result if it adds files where files unknown to git exist.
    fn refuse_unknown_files(
        &self,
        diff: &Diff,
        known: &BTreeSet<PathBuf>,
    ) -> Result<(), ApplyError> {
        let new = diff.entries.iter().filter(|entry| entry.old_mode == 0).map(|entry| &entry.path);
        let there = |path: &&PathBuf| {
            let found = self.work_tree().join(path).symlink_metadata();
            found.is_ok_and(|found| !found.is_dir()) && !known.contains(*path)
        };
        let paths: Vec<PathBuf> = new.filter(there).cloned().collect();
        if paths.is_empty() { Ok(()) } else { Err(ApplyError::Dirty { paths }) }
    }
}
