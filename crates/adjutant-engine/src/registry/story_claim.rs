//! Claims on stories of a PRD: only one process works on a story at a time.
//!
//! A story is identified by the resolved path of its PRD and its id, so copies of a PRD in two work trees have
//! separate stories. Start at [`RegistryHandle::claim_story`]. Invariant: a process starts or resumes a story only
//! after claiming it, and reads the story's earlier runs only after the claim.

use std::path::Path;

use adjutant_core::RegistryCommand;
use adjutant_core::registry::StoryKey;

use super::{RegistryError, RegistryHandle, RegistryUnavailable, ReleaseOnDrop};
use crate::prd::with_canonical_dir;

/// Returns the registry key of a story of the PRD at `prd`.
#[must_use]
pub fn story_key(prd: &Path, story: &str) -> StoryKey {
    StoryKey { prd: with_canonical_dir(prd).to_string_lossy().into_owned(), id: story.to_owned() }
}

impl RegistryHandle {
    /// Claims a story of the PRD at `prd` for this process. Dropping the guard releases it.
    ///
    /// # Errors
    ///
    /// [`adjutant_core::RegistryRefusal::StoryHeld`] while another process has the claim; otherwise why it could
    /// not be claimed.
    pub fn claim_story(&self, prd: &Path, story: &str) -> Result<ReleaseOnDrop, RegistryError> {
        let (holder, story) = (self.holder()?, story_key(prd, story));
        let claim = RegistryCommand::ClaimStory { holder: holder.clone(), story: story.clone() };
        self.submit(claim)?;
        Ok(self.on_drop(RegistryCommand::ReleaseStory { holder, story }))
    }

    /// Returns whether a live process has claimed a story of the PRD at `prd`.
    ///
    /// # Errors
    ///
    /// Why the registry cannot be read.
    pub fn is_story_claimed(&self, prd: &Path, story: &str) -> Result<bool, RegistryUnavailable> {
        let registry = self.read_unlocked()?;
        match registry.story_holder(&story_key(prd, story)) {
            Some((holder, _)) => self.is_alive(holder),
            None => Ok(false),
        }
    }
}
