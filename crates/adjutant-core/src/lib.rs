//! The policy of Adjutant as pure functions: limits, the delegation tree of a run, budgets,
//! commands, events and effects.
//!
//! There is no file, clock, thread or randomness here: time arrives as a [`Timestamp`], ids are
//! made by the caller, and effects leave as data for the engine to perform. `adjutant-formats`
//! parses the texts that this crate judges. Start at [`Tree::decide`], the only function that can
//! refuse something.

pub mod assignment;
pub mod brief;
pub mod budget;
pub mod check;
pub mod command;
pub mod conversation;
pub mod environment;
pub mod error_summary;
pub mod event;
pub mod fingerprint;
pub mod handover;
pub mod message;
pub mod policy;
pub mod refusal;
pub mod registry;
pub mod rights;
pub mod schema;
mod secret;
pub mod story;
pub mod story_graph;
pub mod tool_call;
pub mod tree;
pub mod undo;
pub mod verify;
pub mod web_host;
pub mod worker;
pub mod workspace;
pub mod write;

pub use adjutant_formats::{
    AgentName, DelegationState, ErrorCode, Label, Outcome, OutcomeReason, Price, PriceOverride,
    RunId, SessionId, Timestamp, Usage, Usd, nearest,
};
pub use adjutant_formats::{code, ids, money, numbers, outcome, time, usage};
pub use assignment::{SlashCommandAssignment, TaskListUpdate};
pub use brief::{Brief, ContextFile, ContextFileStatus, RequestedTask};
pub use command::{Command, Effect, Reaction, ResumeOptions};
pub use conversation::Conversation;
pub use environment::{GrantedLimits, ProjectFacts, ProjectGuidance};
pub use event::{AddedMessageReason, DelegationOrigin, Event, Grant, IllegalEvent, ToolOutput};
pub use handover::CollectedHandover;
pub use message::{
    AttemptError, AttemptResult, Message, ModelErrorKind, ModelReply, ModelSpec, ReasoningEffort,
    StopReason, ToolCall, ToolSpec,
};
pub use policy::{LayeredPolicy, Policy, PolicySource, Preset};
pub use refusal::{Refusal, TellProblem};
pub use registry::{Registry, RegistryCommand, RegistryEvent, RegistryRefusal};
pub use rights::{Rights, ToolSet};
pub use secret::Secret;
pub use tool_call::{CallTranslation, TranslatedCall};
pub use tree::{Node, Tree};
pub use verify::{CommandExit, VerifyCommand};
pub use web_host::HostSet;
pub use worker::{
    CallRefusal, WorkerAction, WorkerCallEnd, WorkerCallRequest, WorkerPlace, WorkerSessionStart,
    WorkerTerms, WorkerToolStatus, WorkerUsageReport,
};
pub use write::{ContentChange, WriteFinding, WriteIntent, WriteScope, content_hash};
