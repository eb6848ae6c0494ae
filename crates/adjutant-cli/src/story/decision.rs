//! Decides whether a story is begun, given its earlier runs, and completes what they did not record in the PRD.
//!
//! `history` finds the earlier runs; this module judges them.
//! Start at [`PrdSession::decide`]. Invariant: completed work is not repeated unless a person asks for it.

use adjutant_core::{Outcome, RunId};
use adjutant_engine::results::ResultLocation;
use adjutant_formats::prd::Story;
use adjutant_view::story::StoryReport;

use super::history::EarlierOutcome;
use super::{PrdSession, record};
use crate::args::MergeAfterRun;
use crate::exit::{Exit, Failure};
use crate::hints::advise;
use crate::output::say;
use crate::results::{MergeScope, WorkPlacement, after_run};

/// What to do with a story.
pub(super) enum StoryDecision {
    /// Begin it. If it was completed before, the reason why it is begun again.
    Begin(Option<String>),
    /// Do not begin it: this run completed it, and the PRD does not say so yet.
    Done(RunId),
    /// Do not begin it, for this reason.
    Leave(String),
}

impl PrdSession<'_> {
    /// Decides about a story by the latest run that had the same request.
    pub(super) fn decide(&mut self, story: &Story) -> Result<StoryDecision, Failure> {
        self.history.load(&story.id)?;
        let asked = self.digest_of(story);
        Ok(match self.history.latest_outcome(&asked) {
            Some(EarlierOutcome::Running(run)) => {
                StoryDecision::Leave(format!("{run} is working on it: `adjutant wait {run}` waits until it ends"))
            }
            Some(_) if self.args.again => StoryDecision::Begin(None),
            Some(EarlierOutcome::Unread(run)) => StoryDecision::Leave(format!(
                "{run} cannot be read ({}); {} starts the story over in a new run",
                self.history.problem(run),
                self.command_with_flag(&story.id, "--again")
            )),
            Some(EarlierOutcome::Passed(run)) if self.is_unrecorded(&story.id, run)? => {
                match self.history.lost_work(run)? {
                    None => StoryDecision::Done(run),
                    Some(why) => StoryDecision::Begin(Some(format!("{why}, so the story was started again"))),
                }
            }
            Some(EarlierOutcome::Open(run)) => StoryDecision::Leave(format!(
                "continue {run} with `adjutant resume {run}`, or start the story over with {}",
                self.command_with_flag(&story.id, "--again")
            )),
            Some(EarlierOutcome::Spent(run)) => {
                let resume = self.resume_with_larger_budget(run).map(|command| format!("continue it with `{command}`, or "));
                StoryDecision::Leave(format!(
                    "{run} reached a limit; {}start the story over with {} and a higher --budget-usd, \
                     --budget-tokens or the limit that `adjutant result {run}` names",
                    resume.unwrap_or_default(),
                    self.command_with_flag(&story.id, "--again")
                ))
            }
            Some(EarlierOutcome::Passed(_) | EarlierOutcome::Over) => StoryDecision::Begin(None),
            None => StoryDecision::Begin(self.history.resumable_run().map(|run| {
                format!(
                    "{run} did not finish and had a different request (the story or its verify command has \
                     changed), so the story was started again; `adjutant diff {run}` shows what that run has"
                )
            })),
        })
    }

    /// Returns the command that resumes a run with a larger budget, if a budget was used up.
    fn resume_with_larger_budget(&self, run: RunId) -> Option<String> {
        let (files, _) = self.archive.find(&run.to_string()).ok()?;
        let (view, _) = crate::records::numbers(&files).ok()?;
        StoryReport::of(&view)?.resume
    }

    /// Returns whether the PRD lacks the outcome of a run that completed a story.
    ///
    /// A person who reset `passes` after it was recorded wants the story done again, so that counts as recorded. The
    /// outcome of a later run is never replaced by an earlier one.
    fn is_unrecorded(&self, id: &str, run: RunId) -> Result<bool, Failure> {
        Ok(match record::recorded_outcome(self.file.prd(), id) {
            None => true,
            Some(it) if it.run == run => !it.is_completed,
            Some(it) => record::began_later(self.archive, run, it.run)?,
        })
    }

    /// Records the outcome of the latest run on a story in the PRD, if it ended without recording it.
    pub(super) fn record_latest_end(&mut self, story: &Story) -> Result<(), Failure> {
        let asked = self.digest_of(story);
        let Some(EarlierOutcome::Open(run) | EarlierOutcome::Spent(run)) =
            self.history.latest_outcome(&asked)
        else {
            return Ok(());
        };
        let found = self.archive.find(&run.to_string()).map_err(crate::records::archive_failure);
        let need = crate::records::ViewDetail::Texts;
        let Ok((view, _)) = found.and_then(|(files, _)| crate::records::fold(&files, need)) else {
            return Ok(());
        };
        let Some(outcome) = view.outcome() else { return Ok(()) };
        let is_new = match record::recorded_outcome(self.file.prd(), &story.id) {
            None => true,
            Some(it) if it.run == run => it.status != outcome.word(),
            Some(it) => record::began_later(self.archive, run, it.run)?,
        };
        if is_new {
            match record::save(&mut self.file, self.archive, &view, None) {
                Ok(()) => {
                    say(&format!(
                        "adjutant: {}: the outcome of {run} is now recorded in the PRD",
                        story.id
                    ));
                }
                Err(failure) => say(&format!("adjutant: {failure}")),
            }
        }
        Ok(())
    }

    /// Records in the PRD that an earlier run completed the story, instead of running it again.
    pub(super) fn record_earlier_success(
        &mut self,
        id: &str,
        run: RunId,
    ) -> Result<Option<Outcome>, Failure> {
        let (files, _) =
            self.archive.find(&run.to_string()).map_err(crate::records::archive_failure)?;
        let (view, _) = crate::records::fold(&files, crate::records::ViewDetail::Texts)?;
        let again = self.command_with_flag(id, "--again");
        let remark = format!(
            "was completed by {run}, which is now recorded in the PRD; {again} starts the story over"
        );
        advise(&format!("adjutant: {id} {remark}"));
        let merge = self.merge();
        // Creating a branch again is harmless. The files must not be changed a second time.
        let is_due = match merge {
            MergeAfterRun::Branch => true,
            MergeAfterRun::Apply => {
                self.history.work_location(&view)? == Some(ResultLocation::Kept)
            }
            MergeAfterRun::Report => false,
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
