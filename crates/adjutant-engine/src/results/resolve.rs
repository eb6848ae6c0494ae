//! Resolving the conflicts of a result in a worktree; `adjutant-workspace` does the git work.

use std::path::PathBuf;
use std::time::SystemTime;

use adjutant_workspace::{ConflictResolution, ResolveError};

use super::{KeptResult, KeptResults, ResultsError, reference_of};

impl KeptResults {
    /// Makes a worktree with the merge of a result and the user's files, or finds the existing one.
    ///
    /// # Errors
    ///
    /// Git failed.
    pub fn begin_resolution(
        &self,
        result: &KeptResult,
    ) -> Result<ConflictResolution, ResultsError> {
        Ok(self.repository.begin_resolution(&reference_of(result)?, SystemTime::now())?)
    }

    /// Commits the files of that worktree as the result, which is returned. It is not merged yet, and the worktree stays.
    ///
    /// # Errors
    ///
    /// See [`ResolveError`].
    pub fn commit_resolution(&self, result: &KeptResult) -> Result<KeptResult, ResolveError> {
        let reference = reference_of(result)?;
        let commit = self.repository.commit_resolution(&reference, SystemTime::now())?;
        Ok(KeptResult { commit: commit.to_string(), ..result.clone() })
    }

    /// Removes that worktree and returns where it was. The result stays.
    ///
    /// # Errors
    ///
    /// See [`ResolveError`].
    pub fn end_resolution(&self, result: &KeptResult) -> Result<PathBuf, ResolveError> {
        self.repository.end_resolution(&reference_of(result)?)
    }

    /// Returns the worktree in which the conflicts of a result are being resolved.
    #[must_use]
    pub fn resolution_in_progress(&self, result: &KeptResult) -> Option<PathBuf> {
        self.repository.resolution_in_progress(&reference_of(result).ok()?)
    }
}
