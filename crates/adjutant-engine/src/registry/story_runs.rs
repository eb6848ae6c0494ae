//! Runs on the stories of a PRD: what each may use up, and what came of it.
//!
//! A run is recorded before it begins, so a process that dies leaves a trace of it. How it ended is recorded by the
//! process that worked on it; a run without that was interrupted, and its journal says more.

use std::path::Path;

use adjutant_core::budget::{Amount, Cap};
use adjutant_core::registry::{StoryEnd, StoryRun};
use adjutant_core::{RegistryCommand, RegistryEvent, RunId};

use super::{RegistryError, RegistryHandle, RegistryUnavailable, story_key};

/// What a run on a story came to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoryOutcome {
    /// How it ended.
    pub end: StoryEnd,
    /// What it used up.
    pub spent: Amount,
    /// The commit of its work; absent where it changed nothing.
    pub commit: Option<String>,
    /// The highest number that a child of the story had.
    pub last_child: u64,
}

impl RegistryHandle {
    /// Records that `run` begins or goes on with a story that this process has claimed. Returns what the run may use
    /// up of `budget`, which all stories of the PRD share in this process.
    ///
    /// # Errors
    ///
    /// [`adjutant_core::RegistryRefusal::StoryBudgetUsedUp`] where the stories before it left nothing; otherwise why
    /// it could not be recorded.
    pub fn begin_story(
        &self,
        (prd, story): (&Path, &str),
        run: RunId,
        asked: &str,
        budget: Cap,
    ) -> Result<Cap, RegistryError> {
        let (holder, story) = (self.holder()?, story_key(prd, story));
        let asked = asked.to_owned();
        let begin = RegistryCommand::BeginStory { holder, story, run, asked, budget };
        let left = self.submit(begin)?.into_iter().find_map(|event| {
            let RegistryEvent::StoryBegun { left_usd, left_tokens, .. } = event else {
                return None;
            };
            Some(Cap { usd: left_usd, tokens: left_tokens })
        });
        Ok(left.unwrap_or(budget))
    }

    /// Records what a run on a story came to.
    ///
    /// # Errors
    ///
    /// Why it could not be recorded; the run counts as interrupted then.
    pub fn end_story(&self, run: RunId, outcome: StoryOutcome) -> Result<(), RegistryError> {
        let StoryOutcome { end, spent, commit, last_child } = outcome;
        self.submit(RegistryCommand::EndStory { run, end, spent, commit, last_child }).map(drop)
    }

    /// Returns the runs on a story, the latest first; `None` where those of the PRD that versions without a registry
    /// began are not imported yet.
    ///
    /// # Errors
    ///
    /// Why they are not known.
    pub fn story_runs(
        &self,
        prd: &Path,
        story: &str,
    ) -> Result<Option<Vec<StoryRun>>, RegistryUnavailable> {
        let (registry, key) = (self.look()?, story_key(prd, story));
        let is_complete = registry.has_imported_story_runs(&key.prd);
        Ok(is_complete.then(|| registry.story_runs(&key).cloned().collect()))
    }

    /// Records the runs on stories of a PRD that versions without a registry began, the oldest first.
    ///
    /// # Errors
    ///
    /// Why they could not be recorded.
    pub fn import_story_runs(&self, prd: &Path, runs: Vec<StoryRun>) -> Result<(), RegistryError> {
        let prd = story_key(prd, "").prd;
        match self.submit(RegistryCommand::ImportStoryRuns { prd, runs }) {
            // Another process was faster.
            Ok(_) | Err(RegistryError::Refused(_)) => Ok(()),
            Err(error @ RegistryError::Unavailable(_)) => Err(error),
        }
    }
}
