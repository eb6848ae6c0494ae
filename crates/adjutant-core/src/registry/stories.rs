//! Decisions about stories: each has one process, and the stories of one process share a budget.

use crate::budget::BudgetCap;
use crate::ids::RunId;
use crate::money::Usd;

use super::decide::RegistryDecision;
use super::event::RegistryEvent as Event;
use super::refusal::RegistryRefusal;
use super::state::{HolderId, Registry, StoryKey, StoryRun, StoryRunState};

impl Registry {
    pub(super) fn claim_story(&self, holder: HolderId, story: StoryKey) -> RegistryDecision {
        self.must_know(&holder)?;
        if let Some((held_by, record)) = self.story_holder(&story) {
            let (holder, pid) = (held_by.clone(), record.pid);
            return Err(RegistryRefusal::StoryHeld { holder, pid });
        }
        Ok(vec![Event::StoryClaimed { holder, story }])
    }

    /// Refuses a process that has not claimed the story.
    pub(super) fn must_hold(
        &self,
        holder: &HolderId,
        story: &StoryKey,
    ) -> Result<(), RegistryRefusal> {
        if self.story_holder(story).is_some_and(|(held_by, _)| held_by == holder) {
            return Ok(());
        }
        Err(RegistryRefusal::StoryNotClaimed { story: story.clone() })
    }

    /// Starts a run on a story with the rest of the budget that earlier stories left.
    pub(super) fn begin_story(
        &self,
        holder: HolderId,
        story: StoryKey,
        run: RunId,
        asked: String,
        budget: BudgetCap,
    ) -> RegistryDecision {
        self.must_hold(&holder, &story)?;
        if let Some(run) = self.run_at_work_on(&story) {
            return Err(RegistryRefusal::StoryHasRun { run });
        }
        let spent = self.story_spending.get(&holder).and_then(|by_prd| by_prd.get(&story.prd));
        let spent = spent.copied().unwrap_or_default();
        let left_usd = budget.usd.map(|cap| cap.saturating_sub(spent.usd));
        let left_tokens = budget.tokens.map(|cap| cap.saturating_sub(spent.tokens));
        let is_used_up = left_usd == Some(Usd::ZERO) || left_tokens == Some(0);
        // A budget that is zero from the start is reported by the run itself.
        if is_used_up && !spent.is_zero() {
            return Err(RegistryRefusal::StoryBudgetUsedUp);
        }
        Ok(vec![Event::StoryBegun { holder, story, run, asked, left_usd, left_tokens }])
    }

    fn run_at_work_on(&self, story: &StoryKey) -> Option<RunId> {
        let is_at_work = |it: &&StoryRun| matches!(it.state, StoryRunState::Running(_));
        self.story_runs(story).find(is_at_work).map(|it| it.run)
    }

    /// Refuses a run that is not running on a story.
    pub(super) fn must_work_on_story(&self, run: RunId) -> Result<(), RegistryRefusal> {
        let is_at_work = self
            .story_runs
            .iter()
            .any(|it| it.run == run && matches!(it.state, StoryRunState::Running(_)));
        if is_at_work { Ok(()) } else { Err(RegistryRefusal::RunUnknown { run }) }
    }
}
