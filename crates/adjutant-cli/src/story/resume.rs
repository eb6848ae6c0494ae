//! The steps that `resume` adds for a run on a story: claim, checks against the PRD, recording the outcome.
//!
//! Start at [`ResumedStory::claim`].

use std::collections::BTreeSet;
use std::path::Path;

use adjutant_core::RunId;
use adjutant_core::budget::BudgetCap;
use adjutant_core::story::StoryAssignment;
use adjutant_engine::prd::{PrdFile, reserved_files};
use adjutant_engine::{Archive, Engine, RegistryError, ReleaseOnDrop, ResumeInfo, WorkspaceSetup};
use adjutant_view::story::StoryReport;

use super::run_end::record_end;
use super::{names, record_outcome, report_placement, resume_conflict, show, with_flags};
use crate::args::MergeAfterRun;
use crate::execute::{DisplayOptions, ExecutedRun, exit_of};
use crate::exit::{Exit, Failure};
use crate::hints::{completed, quoted};
use crate::output::say;
use crate::results::{MergeScope, after_run};

/// The story of a resumed run.
pub(crate) struct ResumedStory<'a> {
    archive: &'a Archive,
    run: RunId,
    work: StoryAssignment,
    /// Held until the outcome is written. Absent for a story without a PRD, or if the registry is unavailable.
    claim: Option<ReleaseOnDrop>,
    /// Whether the registry recorded that the run was resumed.
    is_recorded: bool,
}

impl<'a> ResumedStory<'a> {
    /// The same default as `adjutant story`: the work becomes a branch.
    pub(crate) const USUAL_MERGE: MergeAfterRun = MergeAfterRun::Branch;

    /// Claims the story of a run, so that no other process works on it; `None` for a run without a story.
    pub(crate) fn claim(
        archive: &'a Archive,
        run: RunId,
        past: &ResumeInfo,
    ) -> Result<Option<Self>, Failure> {
        let Some(work) = past.story.clone() else { return Ok(None) };
        let registry = archive.registry();
        let claim = work.prd.as_ref().map(|prd| registry.claim_story(Path::new(prd), &work.id));
        let claim = match claim.transpose() {
            Ok(claim) => claim,
            Err(RegistryError::Refused(refusal)) => {
                let said = format!("{run} is on the story {}, and {refusal}", work.id);
                let hint = refusal.recommendation().unwrap_or_default();
                return Err(Failure::usage(said).hint(hint));
            }
            // The run is resumed anyway: its own lock keeps other processes away from it.
            Err(error @ RegistryError::Unavailable(_)) => {
                let failure = Failure::from_error(Exit::Failed, &error);
                say(&format!(
                    "adjutant: cannot claim the story {}, so another process may start it too: {failure}",
                    work.id
                ));
                None
            }
        };
        Ok(Some(Self { archive, run, work, claim, is_recorded: false }))
    }

    /// Refuses to resume a run whose outcome could not be written into the PRD.
    pub(crate) fn refuse_unwritable(&self) -> Result<(), Failure> {
        let Self { archive, run, work, .. } = self;
        let Some(why) = resume_conflict(archive, work, *run)? else { return Ok(()) };
        let prd = work.prd.as_deref().unwrap_or_default();
        let text = format!(
            "story `{}` of `{prd}` {why}, so the outcome of {run} could not be recorded",
            work.id
        );
        Err(Failure::usage(text).hint(completed(&format!(
            "`adjutant diff {run}` shows what it has, `adjutant story {}` runs what the PRD asks for now, and \
             `adjutant resume {run} --say` continues anyway.",
            quoted(prd)
        ))))
    }

    /// Keeps agents from changing the PRD.
    pub(crate) fn reserve(&self, spaces: &mut WorkspaceSetup) {
        let prd = self.work.prd.as_ref().map(Path::new);
        spaces.reserved = prd.map(reserved_files).unwrap_or_default();
    }

    /// Records that the run was resumed, and tells the engine the ids of all stories, so that none is delegated as a task.
    pub(crate) fn configure(&mut self, engine: Engine) -> Engine {
        let prd = self.work.prd.as_ref().filter(|_| self.claim.is_some()).map(Path::new);
        if let Some(prd) = prd {
            let (registry, story) = (self.archive.registry(), (prd, self.work.id.as_str()));
            // The budget was granted when the run began.
            let begun =
                registry.begin_story(story, self.run, &self.work.asked, BudgetCap::default());
            if let Err(error) = &begun {
                let failure = Failure::from_error(Exit::Failed, error);
                say(&format!(
                    "adjutant: cannot record in the registry that {} was resumed: {failure}",
                    self.run
                ));
            }
            self.is_recorded = begun.is_ok();
        }
        engine.with_stories(self.story_ids())
    }

    /// Returns the ids of all stories. Warns and returns none if the PRD cannot be read.
    fn story_ids(&self) -> BTreeSet<String> {
        match self.work.prd.as_ref().map(PrdFile::read_unlocked) {
            Some(Ok(prd)) => names(&prd),
            Some(Err(error)) => {
                let failure = Failure::from_error(Exit::Failed, &error);
                say(&format!(
                    "adjutant: cannot read the PRD, so a task with the id of another story would be started as a task: {failure}"
                ));
                BTreeSet::new()
            }
            None => BTreeSet::new(),
        }
    }

    /// Merges the work, writes the outcome into the PRD and prints it.
    pub(crate) fn conclude(
        self,
        conducted: ExecutedRun,
        showing: &DisplayOptions,
    ) -> Result<Exit, Failure> {
        let view = &conducted.view;
        if self.is_recorded {
            record_end(self.archive, view);
        }
        let placed = after_run(self.archive, view, showing.merge, MergeScope::PendingResults);
        let recorded = record_outcome(self.archive, view, placed.branch.clone());
        let is_placed = placed.exit == Exit::Completed && recorded == Exit::Completed;
        if let Some(mut report) = StoryReport::of(view).map(|report| with_flags(report, view)) {
            // After merging, because the report names the branch.
            report_placement(&mut report, placed);
            show(&report, showing)?;
        }
        self.archive.prune_daily();
        exit_of(conducted, is_placed)
    }
}
