//! One attempt at a task: an ordinary run on a fresh copy of its files, then the check.
//!
//! Start at [`AttemptRequest::make`].

use std::borrow::Cow;
use std::path::PathBuf;
use std::sync::Arc;

use adjutant_core::schema::TaskSpec;
use adjutant_core::{AgentName, ErrorCode, Outcome, Policy, RunId, Usd};
use adjutant_engine::results::{KeptResults, MergeOutcome};
use adjutant_engine::{
    ApproverAnswer, Archive, CancelHandle, Engine, Goal, WorkCheck, WorkCheckResult,
    WorkspaceSetup, guided_lead_prompt,
};
use adjutant_view::eval::{AttemptFacts, EvalAttempt, EvalJudgement, status_line};
use adjutant_view::receipt::Receipt;
use adjutant_view::results::{CallResults, synthesis};
use adjutant_view::run::DelegationWarning;
use adjutant_view::{Delegation, ProcessLiveness, RunView};

use super::configuration::{PreparedConfiguration, WorkMode};
use super::scratch::ScratchRepository;
use super::task::{EvalTask, NeededToolchain};
use crate::args::{MergeAfterRun, ResultFormat};
use crate::delegate::engine_failure;
use crate::execute::{DisplayOptions, RunRequest, execute_in_view, interrupted_failure};
use crate::exit::{Exit, Failure};
use crate::live::LiveView;
use crate::results::search;

/// What a parent agent is asked to end with, because its final text has no status of its own.
const STATUS_LINE: &str = "\n\nEnd with one line `status: completed`, `status: partial`, `status: failed` or \
    `status: blocked`, whichever is true.";

/// An attempt that is to be made.
pub(super) struct AttemptRequest<'a> {
    pub(super) task: &'a EvalTask,
    /// The number of the configuration.
    pub(super) configuration: usize,
    pub(super) prepared: &'a PreparedConfiguration,
    /// Which of the repeated attempts it is.
    pub(super) number: u32,
    pub(super) run: RunId,
    /// The toolchains that commands see, and what they do not see.
    pub(super) spaces: &'a WorkspaceSetup,
    /// What is left of the evaluation's budget.
    pub(super) left: Option<Usd>,
    pub(super) base_depth: u64,
}

/// How an attempt ended.
pub(super) enum AttemptEnd {
    /// It was judged.
    Judged(Box<EvalAttempt>),
    /// The person cancelled it after it had cost this.
    Cancelled(Option<Usd>),
    /// The evaluation's budget ended it after it had cost this.
    OutOfBudget(Option<Usd>),
}

impl AttemptRequest<'_> {
    /// Returns the attempt as skipped, if a toolchain is missing.
    pub(super) fn skipped(&self) -> Option<EvalAttempt> {
        let missing =
            self.task.settings.needs.iter().find_map(|it| missing_program(*it, self.spaces))?;
        Some(EvalAttempt {
            judgement: EvalJudgement::Skipped,
            because: format!("commands do not see {missing}"),
            run: None,
            ..self.blank()
        })
    }

    fn blank(&self) -> EvalAttempt {
        EvalAttempt {
            task: self.task.name.clone(),
            configuration: self.configuration,
            number: self.number,
            run: Some(self.run.to_string()),
            judgement: EvalJudgement::Unsolved,
            because: String::new(),
            outcome: None,
            false_claim: None,
            usd: None,
            tokens: 0,
            elapsed_ms: 0,
            tool_errors: 0,
        }
    }

    /// Runs the agent in `scratch`, merges its work there, and judges it.
    pub(super) fn make(
        &self,
        scratch: &ScratchRepository,
        archive: &Archive,
    ) -> Result<AttemptEnd, Failure> {
        let policy = self.prepared.policy_for(self.task, self.left);
        let spaces = WorkspaceSetup { state: scratch.state(), ..self.spaces.clone() };
        let engine = self.prepared.engine(policy.clone(), &scratch.tree())?;
        let engine =
            engine.with_spaces(spaces.clone()).with_run_id(self.run).at_depth(self.base_depth);
        let work = self.work(&engine, &policy)?;
        let showing = DisplayOptions {
            form: ResultFormat::Markdown,
            events: false,
            result_tokens: policy.result_tokens,
            merge: MergeAfterRun::Report,
        };
        // The person has approved the worst case of all attempts.
        let yes = Arc::new(|_: &_| ApproverAnswer::Yes);
        let live = (LiveView::watching(), &showing);
        let executed = execute_in_view(engine, archive, work, yes, live)?;
        let view = executed.view;
        if let Err(error) = &executed.finished {
            return Err(interrupted_failure(error, &view));
        }
        let usd = view.root().and_then(|root| root.inclusive.known_usd());
        if view.outcome() == Some(Outcome::Cancelled) {
            return Ok(AttemptEnd::Cancelled(usd));
        }
        if self.left.is_some() && policy.budget_usd == self.left && ran_out_of_budget(&view) {
            return Ok(AttemptEnd::OutOfBudget(usd));
        }
        let unmerged = self.merge(scratch)?;
        let check = match &self.task.settings.check {
            None => None,
            Some(command) => {
                let check = WorkCheck {
                    command: command.clone(),
                    timeout_s: self.task.settings.check_s,
                    files: self.task.check_files.clone(),
                };
                match run_check(spaces, scratch.tree(), check)? {
                    Some(result) => Some(result),
                    None => return Ok(AttemptEnd::Cancelled(usd)),
                }
            }
        };
        Ok(AttemptEnd::Judged(Box::new(self.judge(&view, check, unmerged))))
    }

    /// Returns the work as `delegate` or `run` would start it.
    fn work(&self, engine: &Engine, policy: &Policy) -> Result<RunRequest, Failure> {
        let prompt = self.task.prompt();
        match self.prepared.mode {
            WorkMode::Alone => {
                let task = TaskSpec::new(&self.task.name, &prompt)
                    .map_err(|error| Failure::from_error(Exit::Failed, &error))?;
                Ok(RunRequest::Tasks { briefs: engine.briefs(&[task]), concurrency: None })
            }
            WorkMode::Delegated => Ok(RunRequest::Goal(Goal {
                agent: AgentName::new("lead"),
                system: guided_lead_prompt(policy, self.base_depth),
                text: format!("{prompt}{STATUS_LINE}"),
            })),
        }
    }

    /// Merges the results of the run into the repository, in the order of their commits. Returns those that conflict.
    fn merge(&self, scratch: &ScratchRepository) -> Result<Vec<String>, Failure> {
        let failed = |error| Failure::from_error(Exit::Failed, &error);
        let kept =
            KeptResults::open(&search(), &scratch.tree(), &scratch.state()).map_err(failed)?;
        let mut unmerged = Vec::new();
        for result in kept.results(self.run).map_err(failed)? {
            match kept.apply(&result) {
                MergeOutcome::Merges { .. } | MergeOutcome::Already => {}
                MergeOutcome::Conflicts(_) | MergeOutcome::Dirty(_) => {
                    unmerged.push(result.reference)
                }
                MergeOutcome::Failed(error) => {
                    return Err(Failure::from_error(Exit::Failed, &error));
                }
            }
        }
        Ok(unmerged)
    }

    fn judge(
        &self,
        view: &RunView,
        check: Option<WorkCheckResult>,
        unmerged: Vec<String>,
    ) -> EvalAttempt {
        let items: Vec<&Delegation> = view.delegations().collect();
        let results = CallResults::of_run(view);
        let agent = results.items().first().copied();
        let agent = agent.filter(|_| self.prepared.mode == WorkMode::Alone);
        let ended = view.outcome().unwrap_or(Outcome::Failed);
        let (outcome, report) = match agent {
            Some(agent) => (ended, Cow::from(agent.last_text.as_str())),
            None => {
                let report = synthesis(view);
                let said = status_line(&report).filter(|_| ended == Outcome::Completed);
                (said.unwrap_or(ended), report)
            }
        };
        let is_false = |warning: &DelegationWarning| {
            matches!(warning, DelegationWarning::FalseClaim(_)).then(|| warning.to_string())
        };
        let facts = AttemptFacts {
            outcome,
            report,
            check: check.map(|it| (it.passed, it.ended)),
            changed_files: items.iter().filter_map(|it| Receipt::of(it).changed_files).sum(),
            contradictions: items
                .iter()
                .flat_map(|it| it.warnings.iter().filter_map(is_false))
                .collect(),
        };
        let verdict = facts.judge(self.task.expectation());
        let root = view.root().map(|root| root.inclusive).unwrap_or_default();
        let mut because = verdict.because;
        if !unmerged.is_empty() {
            because += &format!("; {} results conflict with the others", unmerged.len());
        }
        let elapsed = view.elapsed(view.latest().at, ProcessLiveness::Alive);
        let errors = |it: &Delegation| it.failed_calls + it.refused_calls;
        let of_lead = view.root().map(errors).unwrap_or_default();
        EvalAttempt {
            judgement: verdict.judgement,
            because,
            outcome: Some(outcome),
            false_claim: verdict.false_claim,
            usd: root.known_usd(),
            tokens: root.usage.total(),
            elapsed_ms: u64::try_from(elapsed.as_millis()).unwrap_or(u64::MAX),
            tool_errors: of_lead + items.iter().map(|it| errors(it)).sum::<u32>(),
            ..self.blank()
        }
    }
}

/// Returns a program of a toolchain that commands do not see.
fn missing_program(needed: NeededToolchain, spaces: &WorkspaceSetup) -> Option<&'static str> {
    let is_seen = |name: &&str| {
        spaces.toolchains.iter().flat_map(|it| &it.tools).any(|tool| tool.name == **name)
    };
    let missing = needed.programs().iter().find(|group| !group.iter().any(&is_seen));
    missing.and_then(|group| group.first().copied())
}

fn ran_out_of_budget(view: &RunView) -> bool {
    // The code also stands for tokens, turns and cut-off answers. Only where money is short is this flag recommended.
    let is_over = |it: &Delegation| {
        it.reason.as_ref().is_some_and(|reason| {
            reason.code == ErrorCode::BudgetExceeded
                && reason.recommendation.contains("--budget-usd")
        })
    };
    view.root().is_some_and(is_over) || view.delegations().any(is_over)
}

/// Runs a check; `None` if the person cancelled it.
fn run_check(
    spaces: WorkspaceSetup,
    tree: PathBuf,
    check: WorkCheck,
) -> Result<Option<WorkCheckResult>, Failure> {
    let failed = |error: std::io::Error| {
        Failure::new(Exit::Failed, format!("cannot run the check: {error}"))
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let (runtime, cancel) = (runtime.map_err(failed)?, CancelHandle::new().map_err(failed)?);
    runtime.block_on(async {
        let handle = cancel.clone();
        let mut checked =
            tokio::task::spawn_blocking(move || spaces.run_check(&tree, &check, &handle));
        let mut is_cancelled = false;
        // The handler of an earlier run is still installed, so without this a signal would be ignored.
        let ended = tokio::select! {
            ended = &mut checked => ended,
            _ = tokio::signal::ctrl_c() => {
                is_cancelled = true;
                cancel.cancel();
                checked.await
            }
        };
        let ended = ended.map_err(|error| Failure::new(Exit::Failed, error.to_string()))?;
        let result = ended.map_err(|error| engine_failure(&error))?;
        Ok(Some(result).filter(|_| !is_cancelled))
    })
}
