//! Putting files back: of a result that is taken back, and of applications that were cut short.
//!
//! Start at [`Repository::undo`] and [`Repository::recover`]. Invariant: what somebody changed meanwhile
//! is left as it is, and what it was before is kept for them.

use std::path::Path;

use super::error::{step_error, unfinished};
use super::{ApplyError, ApplyRecovery, RecoveredApply, UnrestoredFile, journals};
use crate::PathError;
use crate::git::{GitError, Repository};
use crate::trees::journal::{self, JournalStage, ReplacePlan, StepError, sync_disk};

impl Repository {
    /// Takes an applied result back.
    ///
    /// # Errors
    ///
    /// [`ApplyError::ChangedSince`] when one of its files is not as it was left; nothing changes then.
    /// [`ApplyError::ChangedMeanwhile`] when one was changed in this very moment; the others are taken back.
    /// [`ApplyError::Unfinished`] when one could not be put back.
    pub fn undo(&self, name: &str) -> Result<(), ApplyError> {
        let _alone = self.apply_lock()?;
        let unknown = || ApplyError::Unknown(name.to_owned());
        let folder = self.applies().join(name);
        let reading = || GitError::io("reading a journal");
        if name.contains('/') || journal::stage(&folder).map_err(reading())? != JournalStage::Done {
            return Err(unknown());
        }
        let plan = ReplacePlan::load(&folder).map_err(reading())?.ok_or_else(unknown)?;
        let root = self.root()?;
        let paths = plan.changed_since(&root).map_err(step_error)?;
        if !paths.is_empty() {
            return Err(ApplyError::ChangedSince { paths });
        }
        plan.reopen().map_err(step_error)?;
        let left = self.put_back(&plan)?;
        let Some(first) = left.first() else { return Ok(()) };
        Err(ApplyError::ChangedMeanwhile {
            path: first.path.clone(),
            left,
            source: PathError::Exists,
        })
    }

    /// Puts back what applications that were cut short had replaced.
    ///
    /// # Errors
    ///
    /// When the journals cannot be read. Why one of them could not be put back is in the answer.
    pub fn recover(&self) -> Result<ApplyRecovery, ApplyError> {
        let _alone = self.apply_lock()?;
        self.put_back_unfinished()
    }

    pub(super) fn put_back_unfinished(&self) -> Result<ApplyRecovery, ApplyError> {
        let mut all = ApplyRecovery::default();
        for (name, folder) in journals(&self.applies())? {
            match self.finish(&folder) {
                Ok(left) => {
                    all.put_back.extend(left.map(|left| RecoveredApply { name, left }));
                }
                // The others are put back all the same.
                Err(error) => all.stuck = all.stuck.or(Some(error)),
            }
        }
        Ok(all)
    }

    /// Puts back what a journal says, unless it is done; none where there is nothing to put back.
    fn finish(&self, folder: &Path) -> Result<Option<Vec<UnrestoredFile>>, ApplyError> {
        let unread = |error| unfinished(folder, PathError::Io(error));
        match journal::stage(folder).map_err(unread)? {
            JournalStage::Done => Ok(None),
            // It ended before its first step or after its last one.
            JournalStage::Empty => {
                // Best effort: it is in nobody's way.
                let _ = journal::discard(folder);
                Ok(None)
            }
            JournalStage::Unfinished => {
                let plan = ReplacePlan::load(folder).map_err(unread)?;
                plan.map(|plan| self.put_back(&plan)).transpose()
            }
        }
    }

    /// Puts back everything nobody changed meanwhile, and removes the journal.
    ///
    /// Of what somebody did change, the earlier content may be nowhere else, so it moves to where a
    /// person finds it. The journal goes all the same: with it a later recovery would bring back what
    /// they have deleted by then.
    pub(super) fn put_back(&self, plan: &ReplacePlan) -> Result<Vec<UnrestoredFile>, ApplyError> {
        let journal = plan.folder.as_path();
        let stopped = |StepError { path, source }| ApplyError::Unfinished {
            path,
            journal: journal.to_owned(),
            source,
        };
        let paths = plan.put_back(&self.root()?, &sync_disk).map_err(stopped)?;
        let left = plan
            .keep_before(&paths, &self.state().join("left"), &sync_disk)
            .map_err(|error| unfinished(journal, PathError::Io(error)))?;
        // What is left of a journal without its plan is removed by the next one.
        if let Err(error) = journal::discard(journal)
            && journal.join("plan").try_exists().unwrap_or(true)
        {
            return Err(unfinished(journal, PathError::Io(error)));
        }
        Ok(left.into_iter().map(|(path, before)| UnrestoredFile { path, before }).collect())
    }
}
