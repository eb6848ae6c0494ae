//! Runs on the stories of a PRD: the budget and the outcome of each.
//!
//! A run is recorded before it starts, and its end by the process that worked on it. A run without a recorded end
//! was interrupted; its journal has the details.

use std::path::Path;

use adjutant_core::budget::{BudgetAmount, BudgetCap};
use adjutant_core::registry::{StoryEnd, StoryRun};
use adjutant_core::{RegistryCommand, RegistryEvent, RunId};

use super::{RegistryError, RegistryHandle, RegistryUnavailable, story_key};

/// The outcome of a run on a story.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoryOutcome {
    /// How it ended.
    pub end: StoryEnd,
    /// The tokens and money it used.
    pub spent: BudgetAmount,
    /// The commit with its work; absent if it changed nothing.
    pub commit: Option<String>,
    /// The highest number of a child of the story.
    pub last_child: u64,
}

impl RegistryHandle {
    /// Records that `run` starts or resumes a story that this process has claimed. Returns what is left for the run of
    /// `budget`, which all stories of the PRD share in this process.
    ///
    /// # Errors
    ///
    /// [`adjutant_core::RegistryRefusal::StoryBudgetUsedUp`] if earlier stories used all of it; otherwise why it
    /// could not be recorded.
    pub fn begin_story(
        &self,
        (prd, story): (&Path, &str),
        run: RunId,
        asked: &str,
        budget: BudgetCap,
    ) -> Result<BudgetCap, RegistryError> {
        let (holder, story) = (self.holder()?, story_key(prd, story));
        let asked = asked.to_owned();
        let begin = RegistryCommand::BeginStory { holder, story, run, asked, budget };
        let left = self.submit(begin)?.into_iter().find_map(|event| {
            let RegistryEvent::StoryBegun { left_usd, left_tokens, .. } = event else {
                return None;
            };
            Some(BudgetCap { usd: left_usd, tokens: left_tokens })
        });
        Ok(left.unwrap_or(budget))
    }

    /// Records the outcome of a run on a story.
    ///
    /// # Errors
    ///
    /// Why it could not be recorded. The run counts as interrupted then.
    pub fn end_story(&self, run: RunId, outcome: StoryOutcome) -> Result<(), RegistryError> {
        let StoryOutcome { end, spent, commit, last_child } = outcome;
        self.submit(RegistryCommand::EndStory { run, end, spent, commit, last_child }).map(drop)
    }

    /// Returns the runs on a story, latest first; `None` if the PRD's runs of versions without a registry are not
    /// imported yet.
    ///
    /// # Errors
    ///
    /// Why the registry cannot be read.
    pub fn story_runs(
        &self,
        prd: &Path,
        story: &str,
    ) -> Result<Option<Vec<StoryRun>>, RegistryUnavailable> {
        let (registry, key) = (self.read_unlocked()?, story_key(prd, story));
        let is_complete = registry.has_imported_story_runs(&key.prd);
        Ok(is_complete.then(|| registry.story_runs(&key).cloned().collect()))
    }

    /// Imports the runs on stories of a PRD that versions without a registry started, oldest first.
    ///
    /// # Errors
    ///
    /// Why they could not be recorded.
    pub fn import_story_runs(&self, prd: &Path, runs: Vec<StoryRun>) -> Result<(), RegistryError> {
        let prd = story_key(prd, "").prd;
        match self.submit(RegistryCommand::ImportStoryRuns { prd, runs }) {
            // Refused if another process has imported them.
            Ok(_) | Err(RegistryError::Refused(_)) => Ok(()),
            Err(error @ RegistryError::Unavailable(_)) => Err(error),
        }
    }
}
