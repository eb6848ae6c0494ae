//! The right to work on a story of a PRD: one process has it at a time, until it ends.
//!
//! A story is known by the resolved path of its file and its id. The same file in two work trees is two files, and
//! so is one that was moved. Start at [`RegistryHandle::claim_story`]. Invariant: no story of a PRD is begun or gone
//! on with by a process that has not claimed it, and what ran before is read after the claim.

use std::path::Path;

use adjutant_core::RegistryCommand;
use adjutant_core::registry::StoryKey;

use super::{RegistryError, RegistryHandle, RegistryUnavailable, ReleaseOnDrop};
use crate::prd::resolved;

/// Returns what a story of the PRD at `prd` is known by in the registry.
#[must_use]
pub fn story_key(prd: &Path, story: &str) -> StoryKey {
    StoryKey { prd: resolved(prd).to_string_lossy().into_owned(), id: story.to_owned() }
}

impl RegistryHandle {
    /// Claims a story of the PRD at `prd` for this process, until what is returned is dropped.
    ///
    /// # Errors
    ///
    /// [`adjutant_core::RegistryRefusal::StoryHeld`] while another process has it; otherwise why it could not be
    /// claimed.
    pub fn claim_story(&self, prd: &Path, story: &str) -> Result<ReleaseOnDrop, RegistryError> {
        let (holder, story) = (self.holder()?, story_key(prd, story));
        let claim = RegistryCommand::ClaimStory { holder: holder.clone(), story: story.clone() };
        self.submit(claim)?;
        Ok(self.on_drop(RegistryCommand::ReleaseStory { holder, story }))
    }

    /// Says whether a live process has claimed a story of the PRD at `prd`, without claiming it.
    ///
    /// # Errors
    ///
    /// Why that is not known.
    pub fn is_story_claimed(&self, prd: &Path, story: &str) -> Result<bool, RegistryUnavailable> {
        let registry = self.look()?;
        match registry.story_holder(&story_key(prd, story)) {
            Some((holder, _)) => self.is_alive(holder),
            None => Ok(false),
        }
    }
}
