//! Records in the registry how a run on a story ended. Later runs decide by it.

use adjutant_core::Outcome;
use adjutant_core::budget::BudgetAmount;
use adjutant_core::registry::StoryEnd;
use adjutant_engine::{Archive, StoryOutcome};
use adjutant_formats::prd::child_number;
use adjutant_view::RunView;
use adjutant_view::story::StoryReport;

use crate::exit::{Exit, Failure};
use crate::output::say;

/// Records the end of a run on a story. A failure is only printed, because the journal has the end too.
pub(super) fn record_end(archive: &Archive, view: &RunView) {
    let Some(run) = view.run() else { return };
    let spent = view.total();
    let outcome = StoryOutcome {
        end: story_end(view),
        spent: BudgetAmount { tokens: spent.usage.total(), usd: spent.usd },
        commit: commit_of(view),
        last_child: last_child_of(view),
    };
    if let Err(error) = archive.registry().end_story(run, outcome) {
        let failure = Failure::from_error(Exit::Failed, &error);
        say(&format!("adjutant: cannot record in the registry how {run} ended: {failure}"));
    }
}

/// Returns how a run ended, for a run without a live process.
pub(super) fn story_end(view: &RunView) -> StoryEnd {
    let is = |what: fn(&StoryReport) -> bool| StoryReport::of(view).is_some_and(|it| what(&it));
    match view.outcome() {
        Some(Outcome::Completed) if is(|report| report.passes) => StoryEnd::Passed,
        Some(Outcome::Partial) if is(|report| report.again.is_some()) => StoryEnd::LimitsUsedUp,
        None | Some(Outcome::Partial | Outcome::Cancelled | Outcome::Blocked) => {
            StoryEnd::Resumable
        }
        Some(Outcome::Completed | Outcome::Failed | Outcome::Refused) => StoryEnd::Over,
    }
}

/// Returns the commit with the work of the root agent; `None` if it changed nothing.
pub(super) fn commit_of(view: &RunView) -> Option<String> {
    view.root()?.kept.as_ref()?.0.commit.clone()
}

/// Returns the highest number of a child of the story, admitted or not.
pub(super) fn last_child_of(view: &RunView) -> u64 {
    let Some(story) = view.story() else { return 0 };
    let ids = view.delegations().filter_map(|child| child.story.as_deref());
    ids.filter_map(|id| child_number(&story.id, id)).max().unwrap_or(0).into()
}
