//! Predicting what applying several results in order would do, without touching a file.
//!
//! Each result is merged in the object store with what the results before it would have left. Start at
//! [`Repository::rehearse`]. Invariant: results are judged by the same code that applies them.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::time::SystemTime;

use super::apply::{ApplyError, CleanMerge, MergeTarget};
use crate::git::{Diff, DiffEntry, GitError, ObjectId, Repository};

/// A result that could be applied.
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
        let (mut commit, mut tree) = (ours.commit.clone(), ours.tree.clone());
        let mut known = BTreeSet::new();
        let mut all = Vec::new();
        for result in results {
            let onto = MergeTarget { commit: &commit, tree: &tree, known: &known };
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
            commit = self.temporary_commit(&next, &commit)?;
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

    /// Creates a commit for a tree so that it can be merged with; no reference points to it.
    fn temporary_commit(&self, tree: &ObjectId, parent: &ObjectId) -> Result<ObjectId, GitError> {
        let scratch = self.scratch(None)?;
        let mut call = scratch.call("commit-tree").args(["-m", "rehearsal", "-p"]);
        for name in ["GIT_AUTHOR_NAME", "GIT_COMMITTER_NAME"] {
            call = call.env(name, "Adjutant");
        }
        for email in ["GIT_AUTHOR_EMAIL", "GIT_COMMITTER_EMAIL"] {
            call = call.env(email, "adjutant@localhost");
        }
        for date in ["GIT_AUTHOR_DATE", "GIT_COMMITTER_DATE"] {
            // A fixed date, so that repeating the rehearsal creates no new objects.
            call = call.env(date, "@0 +0000");
        }
        let output = call.args([parent.as_str(), tree.as_str()]).run()?;
        ObjectId::from_bytes(&output.bytes)
            .ok_or_else(|| GitError::Unreadable { command: "commit-tree".to_owned() })
    }
}
