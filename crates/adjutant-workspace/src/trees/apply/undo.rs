//! Restoring files: undoing an applied result, and recovering from interrupted applications.
//!
//! Start at [`Repository::undo`] and [`Repository::recover`]. Invariant: files that were changed meanwhile stay as
//! they are, and their earlier content is saved for the user.

use std::path::Path;

use super::error::{step_error, unfinished_undo};
use super::{ApplyError, ApplyRecovery, RecoveredApply, UnrestoredFile, journals};
use crate::PathError;
use crate::git::{GitError, Repository};
use crate::trees::journal::{self, JournalStage, ReplacePlan, StepError, sync_disk};

impl Repository {
    /// Undoes an applied result.
    ///
    /// # Errors
    ///
    /// [`ApplyError::ChangedSince`] if one of its files was changed since; then nothing changes.
    /// [`ApplyError::ChangedMeanwhile`] if one is changed during the undo; the others are restored.
    /// [`ApplyError::Unfinished`] if one could not be restored.
    pub fn undo(&self, name: &str) -> Result<(), ApplyError> {
        let _alone = self.apply_lock()?;
        let unknown = || ApplyError::Unknown(name.to_owned());
        let folder = self.journals_dir().join(name);
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
        plan.unmark_done().map_err(step_error)?;
        let left = self.restore(&plan)?;
        let Some(first) = left.first() else { return Ok(()) };
        Err(ApplyError::ChangedMeanwhile {
            path: first.path.clone(),
            left,
            source: PathError::Exists,
        })
    }

    /// Undoes applications that were interrupted.
    ///
    /// # Errors
    ///
    /// When the journals cannot be read. Why one of them could not be undone is part of the result.
    pub fn recover(&self) -> Result<ApplyRecovery, ApplyError> {
        let _alone = self.apply_lock()?;
        self.undo_unfinished()
    }

    pub(super) fn undo_unfinished(&self) -> Result<ApplyRecovery, ApplyError> {
        let mut all = ApplyRecovery::default();
        for (name, folder) in journals(&self.journals_dir())? {
            match self.finish(&folder) {
                Ok(left) => {
                    all.put_back.extend(left.map(|left| RecoveredApply { name, left }));
                }
                // The others are undone nevertheless.
                Err(error) => all.stuck = all.stuck.or(Some(error)),
            }
        }
        Ok(all)
    }

    /// Undoes a journal unless it is complete; `None` if there was nothing to undo.
    fn finish(&self, folder: &Path) -> Result<Option<Vec<UnrestoredFile>>, ApplyError> {
        let unread = |error| unfinished_undo(folder, PathError::Io(error));
        match journal::stage(folder).map_err(unread)? {
            JournalStage::Done => Ok(None),
            // It was interrupted before its first step or after its last one.
            JournalStage::Empty => {
                // Best effort: a leftover journal without a plan does no harm.
                let _ = journal::discard(folder);
                Ok(None)
            }
            JournalStage::Unfinished => {
                let plan = ReplacePlan::load(folder).map_err(unread)?;
                plan.map(|plan| self.restore(&plan)).transpose()
            }
        }
    }

    /// Restores every file that was not changed meanwhile, and removes the journal.
    ///
    /// The earlier content of changed files may exist nowhere else, so it is saved where the user finds it. The
    /// journal is removed nevertheless: a later recovery would restore files that the user has deleted by then.
    pub(super) fn restore(&self, plan: &ReplacePlan) -> Result<Vec<UnrestoredFile>, ApplyError> {
        let journal = plan.folder.as_path();
        let stopped = |StepError { path, source }| ApplyError::Unfinished {
            path,
            journal: journal.to_owned(),
            source,
        };
        let paths = plan.restore(&self.root()?, &sync_disk).map_err(stopped)?;
        let left = plan
            .keep_before(&paths, &self.state().join("left"), &sync_disk)
            .map_err(|error| unfinished_undo(journal, PathError::Io(error)))?;
        // Leftovers of a journal without a plan are removed later.
        if let Err(error) = journal::discard(journal)
            && journal.join("plan").try_exists().unwrap_or(true)
        {
            return Err(unfinished_undo(journal, PathError::Io(error)));
        }
        Ok(left.into_iter().map(|(path, before)| UnrestoredFile { path, before }).collect())
    }
}
