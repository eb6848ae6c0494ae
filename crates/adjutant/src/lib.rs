//! Bounded delegation for AI agents.
//!
//! A program hands tasks to subagents. Adjutant admits them under hard limits (depth, cycles, fan-out, tokens, money,
//! time), runs them as agents with tools, records every step in a journal, and always returns a [`Report`]. Start at
//! [`Adjutant::builder`].
//!
//! # Delegate
//!
//! The model here follows a script, so this example needs no key and no network. With a key in the environment,
//! `.model("anthropic/claude-haiku-5-5")` asks a real one.
//!
//! ```
//! use adjutant::{Adjutant, ScriptedModel, Task};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let directory = tempfile::tempdir()?;
//! # std::fs::write(directory.path().join("notes.md"), "one\ntwo\n")?;
//! # let (project, state) = (directory.path(), directory.path().join("state"));
//! let script = r#"
//! [[turn]]
//! [[turn.call]]
//! tool = "Read"
//! args = { path = "notes.md" }
//! [[turn]]
//! text = "notes.md has two lines"
//! "#;
//! let adjutant = Adjutant::builder()
//!     .model(ScriptedModel::from_toml(script)?)
//!     .root(project)
//!     .state_dir(state)
//!     .build()?;
//! # tokio::runtime::Runtime::new()?.block_on(async {
//! let report = adjutant.delegate([Task::new("count", "Count the lines of notes.md")]).await?;
//! assert!(report.is_completed());
//! assert_eq!(report.results[0].text, "notes.md has two lines");
//! # Ok(())
//! # })
//! # }
//! ```
//!
//! # Limits
//!
//! A [`Policy`] has every limit as data. A task that a limit does not allow is refused before it starts; the other tasks
//! run. No model output can exceed a limit.
//!
//! ```
//! use adjutant::{Adjutant, Preset, ScriptedModel, Task, Usd};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let directory = tempfile::tempdir()?;
//! let mut policy = Preset::Scout.policy();
//! policy.budget_usd = Usd::from_dollars(0.50);
//! policy.children_per_run = Some(1);
//! let adjutant = Adjutant::builder()
//!     .model(ScriptedModel::from_toml("[[turn]]\ntext = 'done'\n")?)
//!     .policy(policy)
//!     .root(directory.path())
//!     .state_dir(directory.path().join("state"))
//!     .build()?;
//! # tokio::runtime::Runtime::new()?.block_on(async {
//! let tasks = [Task::new("one", "Look around"), Task::new("two", "Look again")];
//! let report = adjutant.delegate(tasks).await?;
//! let refused: Vec<_> = report.refusals().map(|it| it.label.as_str()).collect();
//! assert_eq!(refused, ["two"]);
//! # Ok(())
//! # })
//! # }
//! ```
//!
//! # Progress, cancellation and resuming
//!
//! [`Adjutant::start`] returns a [`LiveRun`]: read its events, cancel it, or wait for its report. A run whose process was
//! killed continues with [`Adjutant::resume`]; no finished step is repeated or paid for again.
//!
//! ```
//! use adjutant::{Adjutant, ProgressKind, ScriptedModel, Task};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let directory = tempfile::tempdir()?;
//! let adjutant = Adjutant::builder()
//!     .model(ScriptedModel::from_toml("[[turn]]\ntext = 'done'\n")?)
//!     .root(directory.path())
//!     .state_dir(directory.path().join("state"))
//!     .build()?;
//! # tokio::runtime::Runtime::new()?.block_on(async {
//! let mut run = adjutant.start([Task::new("one", "Look around")])?;
//! let mut started = Vec::new();
//! while let Some(event) = run.next_event().await {
//!     if let ProgressKind::Started { label, .. } = event.what {
//!         started.push(label);
//!     }
//! }
//! let report = run.report().await?;
//! assert_eq!(started, ["one"]);
//!
//! // Everything has ended, so resuming returns the same results again.
//! let again = adjutant.resume(report.run).await?;
//! assert_eq!(again.results[0].text, "done");
//! # Ok(())
//! # })
//! # }
//! ```
//!
//! # Agents that write
//!
//! With [`AdjutantBuilder::allow_writing`] each agent works in a workspace of its own, and its commands run in a sandbox
//! (Linux only). Its work comes back as a commit ([`TaskResult::work`]); the files of the project stay as they are.
//!
//! The crates `adjutant-core`, `adjutant-engine` and so on are internal: their interfaces change without notice.

mod advice;
mod approval;
mod builder;
mod errors;
mod live_run;
mod report;
mod run_thread;
mod task;

use std::fmt::Display;
use std::sync::Arc;

pub use adjutant_core::budget::BudgetAmount;
pub use adjutant_core::message::ToolSpec;
pub use adjutant_core::workspace::{ChangedFile, KeptWork};
pub use adjutant_core::{
    CommandExit, ErrorCode, Outcome, OutcomeReason, Policy, Preset, Refusal, RunId, SessionId,
    Usage, Usd,
};
pub use adjutant_engine::{CustomTool, ToolCallResult};
pub use adjutant_formats::contract::{Artifact, ArtifactKind};
pub use adjutant_model::{Model, ModelSources, ProviderConfig, ScriptedModel};
pub use adjutant_view::Spend;
pub use adjutant_view::events::{WireEvent as ProgressEvent, WireEventKind as ProgressKind};

/// The types of the fields of a [`Policy`].
pub mod policy {
    pub use adjutant_core::budget::BudgetCap;
    pub use adjutant_core::policy::{
        AllottedTime, ApprovalRule, ContractKind, CycleKey, DelegationTimeout, HARD_MAX_DEPTH,
        OnFullContext, Operation, WorkspaceSharing,
    };
    pub use adjutant_core::{HostSet, Policy, Preset, ToolSet, Usd};
}

/// What a program needs for a [`Model`] of its own, and to describe providers and models.
pub mod model {
    pub use adjutant_core::message::{
        AttemptError, AttemptResult, Message, ModelErrorKind, ModelReply, ModelSpec,
        ReasoningEffort, StopReason, ToolCall, ToolSpec,
    };
    pub use adjutant_core::money::{Price, PriceOverride};
    pub use adjutant_core::{Secret, SessionId, Usage};
    pub use adjutant_model::catalogue::{ModelDescription, ModelOverride};
    pub use adjutant_model::wire::Wire;
    pub use adjutant_model::{
        BoxFuture, HttpTimeouts, Model, ModelSources, OpenModelError, ProviderConfig, RecordError,
        Recorder, ScriptError, ScriptedModel, TurnProgress, TurnRequest, open_model,
    };
}

/// The types of the fields of a [`ProgressKind`].
pub mod progress {
    pub use adjutant_core::workspace::{ChangedFile, MergeConflict};
    pub use adjutant_view::OutcomeCounts;
    pub use adjutant_view::events::{
        ApprovalState, AutomaticApproval, DomainState, WireEvent as ProgressEvent,
        WireEventKind as ProgressKind,
    };
    pub use adjutant_view::stages::{CompletedStage, DelegationStage};
    pub use adjutant_view::wire::{SpendJson, UsageJson};
}

/// The types inside [`Error`]. The errors inside these are internal; `std::error::Error::source` returns them.
pub mod error {
    pub use crate::errors::Error;
    pub use adjutant_core::Refusal;
    pub use adjutant_core::ids::InvalidLabel;
    pub use adjutant_core::refusal::{
        BudgetScope, ContextRemedy, FanOutScope, TellProblem, TimeBound,
    };
    pub use adjutant_engine::{ArchiveError, EngineError};
    pub use adjutant_model::OpenModelError;
}

pub use approval::{ApprovalDecision, ApprovalRequest, TaskToApprove};
pub use builder::{AdjutantBuilder, ModelChoice, run_sandbox_helper_if_asked};
pub use errors::Error;
pub use live_run::LiveRun;
pub use report::{Report, TaskResult};
pub use task::Task;

use builder::DelegationSetup;
use run_thread::RunRequest;

/// Delegates tasks under fixed limits. Cheap to clone; several runs can be live at once.
#[derive(Clone)]
pub struct Adjutant {
    setup: Arc<DelegationSetup>,
}

impl Adjutant {
    /// Returns a builder. Only [`AdjutantBuilder::model`] has no default.
    #[must_use]
    pub fn builder() -> AdjutantBuilder {
        AdjutantBuilder::default()
    }

    /// Runs `tasks` and waits until all have ended. Dropping the future cancels the run.
    ///
    /// # Errors
    ///
    /// If the call is refused as a whole, or the run cannot be recorded. A task that fails or is refused is not an error:
    /// its result says so.
    pub async fn delegate(&self, tasks: impl IntoIterator<Item = Task>) -> Result<Report, Error> {
        self.start(tasks)?.report().await
    }

    /// Starts `tasks` and returns at once.
    ///
    /// # Errors
    ///
    /// If a label is invalid, or no thread can be started.
    pub fn start(&self, tasks: impl IntoIterator<Item = Task>) -> Result<LiveRun, Error> {
        let tasks = tasks.into_iter().map(Task::into_spec).collect::<Result<Vec<_>, Error>>()?;
        let id = adjutant_engine::new_run_id().map_err(Error::no_run_id)?;
        run_thread::spawn(Arc::clone(&self.setup), id, RunRequest::Tasks(tasks))
    }

    /// Continues a run whose process ended, and waits until everything has ended. `run` is a [`RunId`] or a [`SessionId`],
    /// also as text.
    ///
    /// Finished steps are not repeated. A run with nothing left to do returns its report again.
    ///
    /// # Errors
    ///
    /// If there is no such run, another process works on it, or its journal cannot be read.
    pub async fn resume(&self, run: impl Display) -> Result<Report, Error> {
        self.start_resume(run)?.report().await
    }

    /// Like [`Adjutant::resume`], but returns at once.
    ///
    /// # Errors
    ///
    /// If there is no such run, or no thread can be started.
    pub fn start_resume(&self, run: impl Display) -> Result<LiveRun, Error> {
        let (files, _) = self.setup.archive.find(&run.to_string())?;
        run_thread::spawn(Arc::clone(&self.setup), files.id(), RunRequest::Resume(files))
    }
}
