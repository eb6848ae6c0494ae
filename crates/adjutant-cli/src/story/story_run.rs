//! Executes the run of one story: prompt, workspaces, verify command, merge and recorded outcome.
//!
//! Start at [`PrdSession::work_on`]. Whether the story may begin was decided before.

use adjutant_core::story::{MarkedTask, StoryAssignment};
use adjutant_core::{AgentName, Outcome, Policy, RunId, VerifyCommand};
use adjutant_engine::prd::reserved_files;
use adjutant_engine::{Engine, EngineSetup, Goal, WorkspaceSetup};
use adjutant_formats::prd::{Story, story_digest, story_prompt};

use super::run_end::record_end;
use super::{PrdSession, names, record};
use crate::args::MergeAfterRun;
use crate::ask::{Terminal, approver, may_ask};
use crate::delegate::engine_failure;
use crate::detached;
use crate::execute::{DisplayOptions, ExecutedRun, RunRequest, execute_run};
use crate::exit::{Exit, Failure};
use crate::hints::typed_flags;
use crate::output::say;
use crate::results::{MergeScope, after_run};
use crate::runtime;
use crate::wiring::ChosenModel;

/// What to do if the agent of a story gets no workspace.
const NEEDS_SPACE: &str = "`adjutant doctor` says what this machine allows.";

/// The most columns of a title in the line that announces a story.
const TITLE_COLUMNS: usize = 80;

impl PrdSession<'_> {
    pub(super) fn work_on(
        &mut self,
        story: &Story,
        work: StoryAssignment,
        (run, mut policy): (RunId, Policy),
        chosen: ChosenModel,
        remarks: Vec<String>,
    ) -> Result<Outcome, Failure> {
        let spaces = self.spaces()?;
        if !self.has_begun {
            // Checked before the story is announced.
            let network = policy.network;
            let checked =
                spaces.check(&self.workdir, network).map_err(|error| engine_failure(&error));
            checked.map_err(|failure| failure.hint(NEEDS_SPACE))?;
        }
        let title = adjutant_view::layout::fit(&story.title, TITLE_COLUMNS);
        say(&format!("adjutant: {} {title}", adjutant_view::sanitize::line(&story.id)));
        if let Some(terms) = &self.terms {
            terms.bound_policy(&mut policy, chosen.model.spec().price.is_some());
        }
        let setup = EngineSetup {
            policy: policy.clone(),
            opener: Some(chosen.opener(&self.wiring)),
            model: chosen.model,
            web: self.settings.web(),
            tools: Vec::new(),
            workdir: self.workdir.clone(),
            system: None,
            secrets: [self.settings.secrets.clone(), self.wiring.secrets()].concat(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            workers: Some(self.wiring.workers(&self.settings)?),
        };
        let engine = Engine::new(setup).map_err(|error| engine_failure(&error))?.with_guidance();
        let agents = self.roster.agents.iter().cloned();
        let engine = engine
            .with_efforts(self.settings.efforts.clone())
            .with_agents(agents, &self.settings.models_allowed)
            .with_story(work)
            .with_run_id(run)
            .at_depth(self.base_depth)
            .with_stories(names(self.file.prd()))
            .with_spaces(spaces)
            .with_worker(self.args.work.spaces.worker.clone())
            .with_runtime(runtime::of_flags(&self.args.work, &self.settings, self.archive.path())?);
        let mut terms = self.terms.take();
        let mut engine = detached::hand_to_engine(engine, terms.as_mut());
        let goal = Goal {
            agent: AgentName::new("story"),
            system: String::new(),
            text: story_prompt(story),
        };
        let terminal =
            if self.args.work.yes || !may_ask(&policy) { None } else { Terminal::open() };
        let approver = match &mut terms {
            Some(terms) => {
                engine = engine.with_approval_first(None);
                let preview =
                    engine.preview_run(goal.clone()).map_err(|error| engine_failure(&error))?;
                terms.approver_of_run(&preview.events)
            }
            None => approver(self.args.work.yes, terminal, self.archive.registry(), None),
        };
        self.has_begun = true;
        let showing = DisplayOptions {
            form: self.form,
            events: self.args.work.events,
            result_tokens: policy.result_tokens,
            merge: self.merge(),
        };
        let ExecutedRun { view, finished } =
            execute_run(engine, self.archive, RunRequest::Goal(goal), approver, &showing)?;
        if let Some(terms) = terms {
            terms.settle(&view, finished.is_ok());
        }
        record_end(self.archive, &view);
        let placed = after_run(self.archive, &view, showing.merge, MergeScope::EveryResult);
        let is_placed = placed.exit == Exit::Completed;
        let saved = record::save(&mut self.file, self.archive, &view, placed.branch.clone());
        if let Err(failure) = &saved {
            say(&format!("adjutant: {failure}"));
            self.unsaved = true;
        }
        let passes = self.add_report(&view, placed, |report| report.remarks.extend(remarks));
        let finished = finished.map_err(|error| {
            let failure = crate::execute::interrupted_failure(&error, &view);
            // Agents of stories always write, so a missing workspace is fatal.
            let needs_space = matches!(error, adjutant_engine::EngineError::Workspaces(_));
            if needs_space { failure.hint(NEEDS_SPACE) } else { failure }
        })?;
        let is_done = passes && is_placed && saved.is_ok();
        let is_whole = is_done || finished.outcome != Outcome::Completed;
        Ok(if is_whole { finished.outcome } else { Outcome::Partial })
    }

    /// Returns the workspace setup. Agents cannot change the PRD.
    fn spaces(&self) -> Result<WorkspaceSetup, Failure> {
        let mut setup =
            self.args.work.spaces.setup(self.archive.path(), &self.workdir, &self.settings)?;
        setup.reserved = reserved_files(self.file.path());
        setup.merge = self.merge().request();
        Ok(setup)
    }

    /// Returns the verify command of a story: the person's own, otherwise the PRD's, if they consented.
    pub(super) fn verify_of(&self, story: &Story) -> Option<VerifyCommand> {
        let flags = &self.args.work.spaces;
        let own = flags.verify.clone().or_else(|| self.settings.verify.clone());
        let mut verify = match own {
            Some(command) => VerifyCommand::new(command),
            None => VerifyCommand {
                command: story.verify.clone().filter(|_| self.consent.is_given())?,
                keep: story.verify_keep.clone(),
            },
        };
        verify.keep.extend(flags.verify_keep.iter().cloned());
        Some(verify)
    }

    /// Returns the digest of what a story asks for now.
    pub(super) fn digest_of(&self, story: &Story) -> String {
        story_digest(story, self.verify_of(story).as_ref().map(|it| it.command.as_str()))
    }

    pub(super) fn work_of(&self, story: &Story, takes_in: Vec<String>) -> StoryAssignment {
        let plan = story.planned.iter().map(|planned| MarkedTask {
            description: planned.task(),
            hours: planned.hours,
            verify: planned.verify.as_ref().filter(|_| self.consent.is_given()).map(|command| {
                let (command, keep) = (command.clone(), planned.verify_keep.clone());
                VerifyCommand { command, keep }
            }),
        });
        let verify = self.verify_of(story);
        let written = u64::from(self.file.prd().last_child_number(&story.id));
        StoryAssignment {
            id: story.id.clone(),
            title: story.title.clone(),
            prd: Some(self.file.path().display().to_string()),
            asked: story_digest(story, verify.as_ref().map(|it| it.command.as_str())),
            verify,
            plan: plan.collect(),
            takes_in,
            numbered: written.max(self.history.last_child()),
            typed: typed_flags().to_vec(),
            ..StoryAssignment::default()
        }
    }

    /// Returns what happens to the work: `--merge`, otherwise the PRD's choice with consent, otherwise a branch.
    pub(super) fn merge(&self) -> MergeAfterRun {
        let wish = self.file.prd().merge().filter(|_| self.consent.is_given());
        let wish = wish.and_then(MergeAfterRun::parse);
        self.args.work.merge.or(wish).unwrap_or(MergeAfterRun::Branch)
    }
}
