//! What an earlier run on a story means for it: whether it may be begun, and what the PRD still lacks.
//!
//! What ran is found by `earlier`; here it is judged, and written down where the run could not do it.
//! Start at [`PrdSession::decide`]. Invariant: what a run achieved is not done again unless a person says so.

use adjutant_core::{Outcome, RunId};
use adjutant_engine::results::ResultLocation;
use adjutant_formats::prd::{Story, asked};
use adjutant_view::story::StoryReport;

use super::history::EarlierOutcome;
use super::{PrdSession, record};
use crate::args::MergeAfter;
use crate::exit::{Exit, Failure};
use crate::hints::advise;
use crate::output::say;
use crate::results::{MergeScope, WorkPlacement, after_run};

/// What an earlier run means for a story.
pub(super) enum StoryDecision {
    /// It may be begun; one that is begun again although it was done says why.
    Begin(Option<String>),
    /// It was done, which is not written down.
    Done(RunId),
    /// It is not begun, for this reason.
    Leave(String),
}

impl PrdSession<'_> {
    /// Looks at what ran before on a story, and what that means for it.
    pub(super) fn decide(&mut self, story: &Story) -> Result<StoryDecision, Failure> {
        self.history.load(&story.id)?;
        let asked = asked(story, self.verify_of(story).as_deref());
        Ok(match self.history.latest_outcome(&asked) {
            Some(EarlierOutcome::Running(run)) => {
                StoryDecision::Leave(format!("{run} works on it: `adjutant wait {run}` waits for its end"))
            }
            Some(_) if self.args.again => StoryDecision::Begin(None),
            Some(EarlierOutcome::Unread(run)) => StoryDecision::Leave(format!(
                "{run} cannot be read ({}); {} begins it anew",
                self.history.problem(run),
                self.advised(&story.id, "--again")
            )),
            Some(EarlierOutcome::Passed(run)) if self.is_unrecorded(&story.id, run)? => {
                match self.history.lost_work(run)? {
                    None => StoryDecision::Done(run),
                    Some(why) => StoryDecision::Begin(Some(format!("{why}, so it was begun anew"))),
                }
            }
            Some(EarlierOutcome::Open(run)) => StoryDecision::Leave(format!(
                "{run} can go on with it: `adjutant resume {run}`; {} begins it anew",
                self.advised(&story.id, "--again")
            )),
            Some(EarlierOutcome::Spent(run)) => {
                let goes_on = self.raised(run).map(|command| format!("`{command}` goes on with it, "));
                StoryDecision::Leave(format!(
                    "{run} used up what it was given; {}{} begins it anew, with a higher --budget-usd, \
                     --budget-tokens or the limit that `adjutant result {run}` names",
                    goes_on.unwrap_or_default(),
                    self.advised(&story.id, "--again")
                ))
            }
            Some(EarlierOutcome::Passed(_) | EarlierOutcome::Over) => StoryDecision::Begin(None),
            None => StoryDecision::Begin(self.history.unfinished().map(|run| {
                format!(
                    "{run} was left unfinished and was asked for something else (the story or its verify command \
                     is another one), so it was begun anew; `adjutant diff {run}` shows what that run has"
                )
            })),
        })
    }

    /// Returns the command that goes on with a run under a larger budget, where a budget was used up.
    fn raised(&self, run: RunId) -> Option<String> {
        let (files, _) = self.archive.find(&run.to_string()).ok()?;
        let (view, _) = crate::records::numbers(&files).ok()?;
        StoryReport::of(&view)?.resume
    }

    /// Says whether the file lacks what came of a run that completed a story.
    ///
    /// Whoever took `passes` back after it was written down wants the story done again, and what a
    /// later run came to is not taken back by an earlier one.
    fn is_unrecorded(&self, id: &str, run: RunId) -> Result<bool, Failure> {
        Ok(match record::recorded(self.file.prd(), id) {
            None => true,
            Some(it) if it.run == run => !it.is_completed,
            Some(it) => record::began_later(self.archive, run, it.run)?,
        })
    }

    /// Writes down what the latest run on a story came to, where that ended and could not write it itself.
    pub(super) fn record_latest_end(&mut self, story: &Story) -> Result<(), Failure> {
        let asked = asked(story, self.verify_of(story).as_deref());
        let Some(EarlierOutcome::Open(run) | EarlierOutcome::Spent(run)) =
            self.history.latest_outcome(&asked)
        else {
            return Ok(());
        };
        let found = self.archive.find(&run.to_string()).map_err(crate::records::failed);
        let need = crate::records::ViewDetail::Texts;
        let Ok((view, _)) = found.and_then(|(files, _)| crate::records::fold(&files, need)) else {
            return Ok(());
        };
        let Some(outcome) = view.outcome() else { return Ok(()) };
        let is_new = match record::recorded(self.file.prd(), &story.id) {
            None => true,
            Some(it) if it.run == run => it.status != outcome.word(),
            Some(it) => record::began_later(self.archive, run, it.run)?,
        };
        if is_new {
            match record::save(&mut self.file, self.archive, &view, None) {
                Ok(()) => {
                    say(&format!("adjutant: {}: what came of {run} is written down now", story.id));
                }
                Err(failure) => say(&format!("adjutant: {failure}")),
            }
        }
        Ok(())
    }

    /// Writes down what an earlier run achieved and could not write: nothing is done twice.
    pub(super) fn record_earlier_success(
        &mut self,
        id: &str,
        run: RunId,
    ) -> Result<Option<Outcome>, Failure> {
        let (files, _) = self.archive.find(&run.to_string()).map_err(crate::records::failed)?;
        let (view, _) = crate::records::fold(&files, crate::records::ViewDetail::Texts)?;
        let again = self.advised(id, "--again");
        let remark = format!("was done by {run}; it is written down now, {again} begins it anew");
        advise(&format!("adjutant: {id} {remark}"));
        let merge = self.merge();
        // A branch is only a name that may be missing; files are changed once.
        let is_due = match merge {
            MergeAfter::Branch => true,
            MergeAfter::Apply => self.history.work_location(&view)? == Some(ResultLocation::Kept),
            MergeAfter::Report => false,
        };
        let placed = if is_due {
            after_run(self.archive, &view, merge, MergeScope::EveryResult)
        } else {
            WorkPlacement::nowhere()
        };
        let is_placed = placed.exit == Exit::Completed;
        record::save(&mut self.file, self.archive, &view, placed.branch.clone())?;
        self.add_report(&view, placed, |report| {
            report.earlier = true;
            report.remarks.push(remark);
        });
        Ok(view.outcome().map(|outcome| if is_placed { outcome } else { Outcome::Partial }))
    }
}
