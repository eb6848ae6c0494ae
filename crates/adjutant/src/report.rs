//! What came back from a run: a [`Report`] with a [`TaskResult`] for each task.

use std::path::PathBuf;
use std::time::Duration;

use adjutant_core::workspace::KeptWork;
use adjutant_core::{DelegationState, Outcome, OutcomeReason, RunId, SessionId};
use adjutant_formats::contract::Artifact;
use adjutant_view::results::{CallResults, ResultJson, ResultOptions};
use adjutant_view::{Delegation, RunView, Spend};

use crate::advice;

/// What came back from a run.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Report {
    /// The run; `adjutant status RUN` and [`crate::Adjutant::resume`] take it.
    pub run: RunId,
    /// How the run as a whole ended.
    pub outcome: Outcome,
    /// One result for each task, in the order of the tasks.
    pub results: Vec<TaskResult>,
    /// The tokens and cost of everything in the run.
    pub spent: Spend,
    /// The directory with the journal of the run.
    pub directory: Option<PathBuf>,
}

/// What came back from one task.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct TaskResult {
    /// The label of the task.
    pub label: String,
    /// The session of its agent.
    pub session: SessionId,
    /// How it ended.
    pub outcome: Outcome,
    /// The report if it completed, otherwise the latest text of its agent. May be empty.
    pub text: String,
    /// What the agent noted down. Kept also if it ran out of time, context or money.
    pub notes: String,
    /// The files that its tools read or wrote.
    pub files: Vec<String>,
    /// The files that it declares as its result. Empty under the contract `Report`, which `Preset::Scout` has: set
    /// [`Policy::contract`](crate::Policy::contract) to
    /// [`ContractKind::Standard`](crate::policy::ContractKind::Standard) to get them.
    pub artifacts: Vec<Artifact>,
    /// The commit with its work, if it wrote in a workspace of its own.
    pub work: Option<KeptWork>,
    /// The model that it used; absent if it never started.
    pub model: Option<String>,
    /// The tokens and cost of its own model calls.
    pub spent: Spend,
    /// How long it worked.
    pub duration: Option<Duration>,
    /// Why it ended as it did, and what to do next; absent if it completed.
    pub reason: Option<OutcomeReason>,
}

impl Report {
    /// Returns whether every task completed.
    #[must_use]
    pub fn is_completed(&self) -> bool {
        self.outcome == Outcome::Completed
    }

    /// Returns the tasks that a limit or a person refused. They cost nothing.
    pub fn refusals(&self) -> impl Iterator<Item = &TaskResult> {
        self.results.iter().filter(|it| it.outcome == Outcome::Refused)
    }

    pub(crate) fn of(
        view: &RunView,
        run: RunId,
        outcome: Outcome,
        directory: Option<PathBuf>,
    ) -> Self {
        let results = CallResults::of_run(view);
        let texts = results.json(&ResultOptions::default()).results;
        let entries = results.items().into_iter().zip(texts);
        Self {
            run,
            outcome,
            results: entries.map(|(item, texts)| TaskResult::of(item, texts)).collect(),
            spent: *view.total(),
            directory,
        }
    }
}

impl TaskResult {
    fn of(item: &Delegation, texts: ResultJson) -> Self {
        let outcome = match item.state {
            DelegationState::Ended(outcome) => outcome,
            // Only in a run that stopped before its end.
            DelegationState::AwaitingApproval
            | DelegationState::Queued
            | DelegationState::Running => Outcome::Partial,
        };
        Self {
            label: texts.label,
            session: item.session,
            outcome,
            text: texts.report.or(texts.last_text).unwrap_or_default(),
            notes: texts.scratchpad.unwrap_or_default(),
            files: texts.files,
            artifacts: texts.returned.map(|it| it.artifacts).unwrap_or_default(),
            work: texts.kept.map(|it| it.work),
            model: texts.model,
            spent: item.own,
            duration: texts.duration_s.map(Duration::from_secs_f64),
            reason: item.reason.as_ref().map(advice::for_program),
        }
    }
}
