//! The runtime: one loop takes inputs, asks the core to decide, records the events, performs the effects.
//!
//! This is the only crate that spawns tasks and reads the clock. It enforces no limit itself:
//! [`adjutant_core::Tree::decide`] does, and returns what to do as [`adjutant_core::Effect`]s.
//!
//! Start at [`Engine::delegate`] to run, at [`Archive`] to read earlier runs. Invariant: no effect
//! is performed and no event is reported before that event is durable.

mod archive;
mod briefs;
mod control;
mod engine;
mod error_chain;
mod ids;
pub mod portable;
pub mod prd;
mod registry;
mod remote;
pub mod results;
pub mod roster;
mod runner;
pub mod slash;
pub mod specs;
mod workers;
mod workspaces;

pub use adjutant_core::Secret;
pub use adjutant_store::{open_private, open_private_existing};
pub use adjutant_tools::{
    CustomTool, Masker, ProjectOverview, SearchEndpoint, ToolCallResult, WebAccess, WebCaps,
};
pub use adjutant_workspace::sandbox::{
    CancelHandle, close_inherited_files, helper_main_if_asked as sandbox_helper_if_asked,
};
pub use adjutant_workspace::toolchains;
pub use adjutant_workspace::{git_dirs_around, why_no_repository, with_link_targets};
pub use archive::journal_follower::JournalFollower;
pub use archive::run_summaries::SummaryFreshness;
pub use archive::{
    Archive, ArchiveError, Expiry, LoadedJournal, PruneOutcome, RunFiles, RunLiveness, RunRecords,
};
pub use briefs::brief_builder::ModelOpener;
pub use briefs::effort::AgentEfforts;
pub use briefs::prompt::{guided_lead_prompt, lead_prompt};
pub use briefs::role::{AgentRole, model_of_file};
pub use control::{
    CancelOutcome, ControlAnswer, ControlError, ControlRefusal, ControlRequest, RunState,
};
pub use engine::resume::{ResumeInfo, ResumeRequest};
pub use engine::storage::{OpenRun, Storage};
pub use engine::{Engine, EngineError, EngineSetup, FinishedRun, Goal, RunHost, RunPreview};
pub use ids::{RandomSource, new_run_id};
pub use registry::{
    MergeQuestion, RegistryError, RegistryHandle, RegistryUnavailable, ReleaseOnDrop, StoryOutcome,
    question_id, story_key,
};
pub use remote::{
    LinkFuture, RecordedDecision, RemoteOpening, RemoteRuntime, RunLink, RunUpdate, SentCommand,
};
pub use results::undo::{FileUndo, UndoError, UndoOutcome, UndoReport};
pub use runner::clock::{WallClock, wall_now};
pub use runner::effects::{Approver, ApproverAnswer, ApproverQuestion, artifact_facts};
pub use runner::{ControlCommand, Narrator, Reporter};
pub use workers::{
    AdmittedCall, RunningWorker, StartedWorker, WorkerAnswer, WorkerFuture, WorkerHost, WorkerLink,
    WorkerSandbox, WorkerStart, WorkerWorkspace,
};
pub use workspaces::{WorkCheck, WorkCheckResult, WorkspaceSetup, why_not_kept};
