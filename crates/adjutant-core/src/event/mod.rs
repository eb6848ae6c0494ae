//! The events of a run: the facts that the journal stores and every fold reads.
//!
//! Events are in the past tense and are never judged again. [`Event::must_be_durable`] says which
//! ones must be on disk before their effects happen; `expiry` removes their content after the
//! retention time. Names of variants and fields are the journal's file format.
//!
//! Parts of events are records too: [`Grant`] (a granted task), [`Reopening`] (how one ended
//! delegation is resumed), [`DelegationOrigin`] (the tool call or answer that requested a
//! delegation), [`AddedMessageReason`] (why the engine sent an agent a message) and [`ToolOutput`].
//! [`IllegalEvent`] is the error for an event that contradicts the events before it.

mod expiry;

use std::borrow::Cow;
use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::assignment::{SlashCommandAssignment, TaskListUpdate};
use crate::brief::Brief;
use crate::budget::{BudgetAmount, Reservation, Settlement};
use crate::code::ErrorCode;
use crate::environment::{ProjectFacts, ProjectGuidance};
use crate::ids::{AgentName, Label, RunId, SessionId};
use crate::message::{AttemptError, ModelSpec, StopReason, ToolCall, ToolSpec};
use crate::money::Usd;
use crate::outcome::{Outcome, OutcomeReason};
use crate::policy::Policy;
use crate::refusal::TimeBound;
use crate::rights::Rights;
use crate::schema::ReturnFormat;
use crate::story::{RejectedMarker, StoryAssignment};
use crate::time::Timestamp;
use crate::tool_call::CallTranslation;
use crate::verify::{CommandExit, VerifyFacts};
use crate::worker::{
    CallRefusal, WorkerAction, WorkerCallEnd, WorkerSessionStart, WorkerTerms, WorkerUsageReport,
};
use crate::workspace::{KeptWork, MergeRequest, MergedWork, OwnWorkspace, WorkspaceTerms};
use crate::write::{ContentChange, WriteIntent};
use adjutant_formats::contract::{Return, ReturnFinding};

/// A recorded fact of a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
#[expect(
    missing_docs,
    reason = "fields are named for what they hold; the variants say what happened"
)]
pub enum Event {
    /// The run began.
    RunStarted {
        run: RunId,
        agent: AgentName,
        goal: String,
        workdir: String,
        policy: Box<Policy>,
        version: String,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        model: Option<ModelSpec>,
        /// The terms for agents that write; absent if no agent has a workspace of its own.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        terms: Option<Box<WorkspaceTerms>>,
        /// The depth of the root: the value of `DELEGATION_DEPTH` in the environment of the run.
        #[serde(default, skip_serializing_if = "is_zero")]
        base_depth: u64,
        /// What the agents are told about the project; absent in runs of older versions.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        environment: Option<Box<ProjectGuidance>>,
    },
    /// An agent was defined: its system prompt, tools and rights.
    AgentDefined {
        agent: AgentName,
        system: String,
        tools: Vec<ToolSpec>,
        rights: Rights,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        max_turns: Option<u32>,
        /// The external agent that does its work; absent for Adjutant's own agents.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        worker: Option<Box<WorkerTerms>>,
    },
    /// An agent delegated tasks with a tool call. The call gets its result when all tasks have
    /// ended.
    Delegated { session: SessionId, call: u32, origin: DelegationOrigin },
    /// A task was granted.
    Granted(Box<Grant>),
    /// A task was refused, which also ends it.
    Refused {
        session: SessionId,
        parent: SessionId,
        call: u32,
        index: u32,
        label: Label,
        agent: AgentName,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        story: Option<String>,
        reason: OutcomeReason,
    },
    /// A slash command assigned work to the run.
    Assigned(Box<SlashCommandAssignment>),
    /// The run works on a story and must end by `deadline`.
    StoryTaken {
        #[serde(flatten)]
        story: Box<StoryAssignment>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        deadline: Option<Timestamp>,
    },
    /// The markers of an answer were parsed. Grants and refusals of their tasks follow, unless all
    /// of them were refused together (`refused`).
    MarkersRead {
        session: SessionId,
        turn: u32,
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        rejected: Vec<RejectedMarker>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        refused: Option<OutcomeReason>,
    },
    /// A person must approve a call before its tasks start.
    ApprovalAsked { parent: SessionId, call: u32, hash: String, expires: Timestamp },
    /// A call starts without asking, because its worst case fits the amount that a person allowed
    /// beforehand.
    AutoApproved { parent: SessionId, call: u32, hash: String, amount: Usd },
    /// A person approved exactly this call.
    Approved {
        hash: String,
        parent: SessionId,
        /// The sum of the worst cases up to which further calls of this run start without asking.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        up_to: Option<Usd>,
    },
    /// A person denied this call, the policy did, or the question expired.
    Denied { hash: String, reason: String },
    /// A delegation got a concurrency slot and began.
    Started { session: SessionId, deadline: Option<Timestamp>, bound: TimeBound },
    /// Tokens and money were reserved for a model call.
    Reserved { session: SessionId, reservation: Reservation },
    /// A model replied completely.
    Replied {
        session: SessionId,
        turn: u32,
        attempt: u32,
        text: String,
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        tool_calls: Vec<ToolCall>,
        /// The calls that were not read as the model wrote them, in their order.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        translations: Vec<CallTranslation>,
        stop: StopReason,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        opaque: Option<serde_json::Value>,
        settlement: Settlement,
    },
    /// A model call failed; it is retried at `retry_at`, if that is given.
    AttemptFailed {
        session: SessionId,
        turn: u32,
        attempt: u32,
        error: AttemptError,
        settlement: Settlement,
        retry_at: Option<Timestamp>,
    },
    /// A running model call was settled at its full reservation, because its delegation ended.
    Settled { session: SessionId, turn: u32, attempt: u32, settlement: Settlement },
    /// A provider billed more than was reserved.
    Overran { session: SessionId, amount: BudgetAmount },
    /// Tokens and money were reserved for a model call of a worker, at most `max_output` of them for its answer.
    WorkerCallReserved {
        session: SessionId,
        /// The number of the call, from 1, counted over all calls of the delegation.
        call: u32,
        /// The model, as `provider/model`.
        model: String,
        max_output: u64,
        amount: BudgetAmount,
        /// What was removed from the request, such as tools that run at the provider.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        removed: Vec<String>,
    },
    /// A model call of a worker was refused.
    WorkerCallRefused {
        session: SessionId,
        #[serde(flatten)]
        refusal: CallRefusal,
        /// The least that the budgets would have to pay for, if that was the reason.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        needed: Option<BudgetAmount>,
    },
    /// A model call of a worker ended.
    WorkerCallSettled {
        session: SessionId,
        call: u32,
        settlement: Settlement,
        #[serde(flatten)]
        end: WorkerCallEnd,
    },
    /// A worker opened a session with this id of its own.
    WorkerSessionOpened { session: SessionId, id: String, start: WorkerSessionStart },
    /// A worker reported something about its work.
    WorkerActed {
        session: SessionId,
        #[serde(flatten)]
        action: WorkerAction,
    },
    /// A worker said what it has used, which is not counted.
    WorkerReported {
        session: SessionId,
        #[serde(flatten)]
        report: WorkerUsageReport,
    },
    /// Bytes arrived from a model.
    Progressed { session: SessionId, bytes: u64 },
    /// The engine delays a model call, because the provider asked for a pause after another call.
    Paused { session: SessionId, provider: String, until: Timestamp },
    /// A person sent a message to an agent; it waits for the agent's next turn.
    Messaged { session: SessionId, text: String },
    /// The engine added a user message to the conversation.
    Told { session: SessionId, nudge: AddedMessageReason, text: String },
    /// The context of an agent is full and its model could not be asked for a handover note. The
    /// engine makes the note.
    NoteSkipped { session: SessionId },
    /// A delegation whose context was full goes on in a fresh conversation, which begins with
    /// exactly these messages: the brief, with what a person said since, and the handover.
    Continued { session: SessionId, brief: Vec<String>, handover: String },
    /// A tool call was permitted and is about to run.
    ToolCalled { session: SessionId, call: u32 },
    /// A person must allow a host before a tool fetches from it.
    DomainAsked { session: SessionId, call: u32, host: String, expires: Timestamp },
    /// A host was allowed for the rest of the run.
    DomainAllowed { host: String },
    /// A host was denied for the rest of the run, by a person or because the question expired.
    DomainDenied { host: String, reason: String },
    /// A tool call was answered with an error instead of being run.
    ToolRefused { session: SessionId, call: u32, text: String },
    /// A tool returned its result.
    ToolReturned {
        session: SessionId,
        call: u32,
        #[serde(flatten)]
        output: ToolOutput,
    },
    /// A tool is about to change files; the intent has the hashes of their content before and after.
    WritePrepared {
        session: SessionId,
        call: u32,
        #[serde(flatten)]
        intent: WriteIntent,
    },
    /// A result was validated against the contract: accepted (`returned`), or rejected for
    /// `errors`.
    Judged {
        session: SessionId,
        /// The number of the `Return` call; absent if the result was the last answer.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        call: Option<u32>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        returned: Option<Box<Return>>,
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        errors: Vec<ReturnFinding>,
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        warnings: Vec<ReturnFinding>,
    },
    /// The verify command is about to run.
    Checking { session: SessionId, command: String },
    /// The verify command ended; `text` is its output.
    Checked {
        session: SessionId,
        passed: bool,
        text: String,
        #[serde(default, skip_serializing_if = "VerifyFacts::is_empty")]
        facts: VerifyFacts,
    },
    /// The task list was updated, or could not be because of `problem`.
    Marked {
        session: SessionId,
        #[serde(flatten)]
        mark: TaskListUpdate,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        problem: Option<String>,
    },
    /// A shell command of a delegation printed something.
    Printed { session: SessionId, text: String },
    /// The workspace of a delegation was made.
    SpaceMade {
        session: SessionId,
        space: OwnWorkspace,
        /// What agents in it are told about the project, if that is something else than what agents outside of it are
        /// told. Recorded with the first workspace of a batch and valid for all of them.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        project: Option<Box<ProjectFacts>>,
    },
    /// The work of a workspace was committed, or could not be because of `problem`.
    SpaceKept {
        session: SessionId,
        #[serde(flatten)]
        kept: KeptWork,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        problem: Option<String>,
    },
    /// A child's work was merged into its parent's workspace, or was not because of conflicts or
    /// `problem`.
    Merged {
        session: SessionId,
        #[serde(flatten)]
        merged: MergedWork,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        problem: Option<String>,
    },
    /// A result was merged after the run had ended, as `--merge` requested. It changes no state.
    ResultMerged { session: SessionId, commit: String, merge: MergeRequest },
    /// A person had a file restored with `adjutant undo`. It changes no state.
    Undone {
        #[serde(flatten)]
        change: ContentChange,
    },
    /// A person resumed the run after it was interrupted or had ended. From here on no rights
    /// exceed `rights`, nor an agent's own entry in `agents`; running delegations get a new timeout
    /// if `timeout_s` is given; `model` replaces every other model.
    Resumed {
        version: String,
        rights: Rights,
        #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
        agents: BTreeMap<AgentName, Rights>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        model: Option<ModelSpec>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        timeout_s: Option<u64>,
        /// Whether a delegation got less than `timeout_s`, because the limit of its operation is
        /// lower.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        clamped: bool,
        /// New deadlines of running delegations.
        #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
        deadlines: BTreeMap<SessionId, Timestamp>,
        /// When the open questions expire.
        #[serde(default)]
        questions_until: Timestamp,
        /// New terms for agents that write in workspaces of their own.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        terms: Option<Box<WorkspaceTerms>>,
        /// The new values of the limits that the person changed with this resume, by policy key.
        #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
        limits: BTreeMap<String, serde_json::Value>,
    },
    /// A delegation that had ended was resumed.
    Reopened(Box<Reopening>),
    /// Adjutant panicked or failed internally while working for a delegation.
    Crashed { session: SessionId, message: String, backtrace: String },
    /// A result arrived too late, after its delegation had ended. It changes no state.
    Late { session: SessionId, what: String, text: String },
    /// A delegation ended. Each one ends exactly once, unless it is resumed.
    Ended {
        session: SessionId,
        outcome: Outcome,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        reason: Option<OutcomeReason>,
    },
    /// The run ended.
    RunEnded { outcome: Outcome },
    /// A person marked an error of this run as fixed. It changes no state.
    ErrorFixed { id: String },
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes the field by reference")]
const fn is_zero(number: &u64) -> bool {
    *number == 0
}

/// A granted task, with everything that admission decided about it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Grant {
    /// The session id of the delegation.
    pub session: SessionId,
    /// The session of the delegating agent.
    pub parent: SessionId,
    /// The number of the parent's delegating call, from 1.
    pub call: u32,
    /// The index within that call, from 0.
    pub index: u32,
    /// How many tasks of the call may run at once.
    pub places: u64,
    /// The task.
    pub brief: Brief,
    /// The depth in the tree.
    pub depth: u64,
    /// The agent names from the root to this agent.
    pub path: Vec<String>,
    /// Its rights.
    pub rights: Rights,
    /// Its timeout in seconds, from its start.
    pub timeout_s: Option<u64>,
    /// Whether the delegation asked for more time than it got.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub clamped: bool,
    /// A text put before the task: the delegation context that the standard contract prescribes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub preface: Option<String>,
    /// The number of the task list entry that it works on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub task: Option<u64>,
    /// The size of its first request: system prompt, tools and opening.
    pub opening_bytes: u64,
    /// Whether a person must approve it first.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub awaiting_approval: bool,
}

impl Grant {
    /// Returns the first message of the conversation.
    #[must_use]
    pub fn opening(&self) -> Cow<'_, str> {
        let opening = self.brief.opening();
        self.preface
            .as_ref()
            .map_or(Cow::Borrowed(opening), |preface| Cow::Owned(format!("{preface}\n\n{opening}")))
    }
}

/// How a delegation that had ended is resumed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Reopening {
    /// The delegation.
    pub session: SessionId,
    /// Whether it gets a new conversation, with `text` as the opening.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub afresh: bool,
    /// A message to it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub text: Option<String>,
    /// Its timeout in seconds, from its next start.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout_s: Option<u64>,
    /// Tool calls that were interrupted with an unknown outcome.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unanswered: Vec<u32>,
    /// Writes that were interrupted, with the result that their files show.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub looked: Vec<(u32, ToolOutput)>,
}

/// What requested a delegation: a tool call, or the markers of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DelegationOrigin {
    /// The turn of the parent.
    pub turn: u32,
    /// The index of the tool call in that turn, from 0; absent for markers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub index: Option<u32>,
    /// The format of the results.
    pub form: ReturnFormat,
}

/// Why the engine added a message to an agent's conversation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AddedMessageReason {
    /// The agent is close to a limit, named by the code, and must report now.
    LastCall(ErrorCode),
    /// The answer was cut off at the output limit and must be shorter.
    Shorten,
    /// The return did not satisfy the contract.
    Repair,
    /// The oldest waiting message of a person.
    Person,
    /// The results of the tasks that the agent delegated with markers.
    Results,
    /// The verify command failed.
    Check,
    /// The context is nearly full; the answer is the handover note for the next conversation.
    HandoverNote,
}

/// The result of a tool call.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ToolOutput {
    /// The text for the model, with secrets masked and length capped.
    pub content: String,
    /// Whether the tool failed.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_error: bool,
    /// A line for the scratchpad.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
    /// The files that it changed, relative to the root.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub touched: Vec<String>,
    /// The sandbox of the command, if one ran: `full`, `off`, or what was missing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sandbox: Option<String>,
    /// How the command ended, if one ran.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exit: Option<CommandExit>,
}

impl ToolOutput {
    /// Returns an error for the model.
    #[must_use]
    pub fn error(content: impl Into<String>) -> Self {
        Self { content: content.into(), is_error: true, ..Self::default() }
    }
}

impl Event {
    /// Returns the session that the event is about, if any.
    #[must_use]
    pub const fn session(&self) -> Option<SessionId> {
        match self {
            Self::Granted(grant) => Some(grant.session),
            Self::Reopened(reopening) => Some(reopening.session),
            Self::Delegated { session, .. }
            | Self::Refused { session, .. }
            | Self::Started { session, .. }
            | Self::Reserved { session, .. }
            | Self::Replied { session, .. }
            | Self::AttemptFailed { session, .. }
            | Self::Settled { session, .. }
            | Self::Overran { session, .. }
            | Self::WorkerCallReserved { session, .. }
            | Self::WorkerCallRefused { session, .. }
            | Self::WorkerCallSettled { session, .. }
            | Self::WorkerSessionOpened { session, .. }
            | Self::WorkerActed { session, .. }
            | Self::WorkerReported { session, .. }
            | Self::Progressed { session, .. }
            | Self::Paused { session, .. }
            | Self::Messaged { session, .. }
            | Self::Told { session, .. }
            | Self::NoteSkipped { session }
            | Self::Continued { session, .. }
            | Self::ToolCalled { session, .. }
            | Self::DomainAsked { session, .. }
            | Self::ToolRefused { session, .. }
            | Self::ToolReturned { session, .. }
            | Self::WritePrepared { session, .. }
            | Self::Judged { session, .. }
            | Self::MarkersRead { session, .. }
            | Self::Checking { session, .. }
            | Self::Checked { session, .. }
            | Self::Merged { session, .. }
            | Self::ResultMerged { session, .. }
            | Self::Marked { session, .. }
            | Self::SpaceMade { session, .. }
            | Self::Printed { session, .. }
            | Self::SpaceKept { session, .. }
            | Self::Crashed { session, .. }
            | Self::Late { session, .. }
            | Self::Ended { session, .. } => Some(*session),
            Self::RunStarted { .. }
            | Self::AgentDefined { .. }
            | Self::Assigned(_)
            | Self::StoryTaken { .. }
            | Self::ApprovalAsked { .. }
            | Self::AutoApproved { .. }
            | Self::DomainAllowed { .. }
            | Self::DomainDenied { .. }
            | Self::Approved { .. }
            | Self::Denied { .. }
            | Self::Resumed { .. }
            | Self::RunEnded { .. }
            | Self::Undone { .. }
            | Self::ErrorFixed { .. } => None,
        }
    }

    /// Says whether the event adds to or changes a conversation.
    #[must_use]
    pub const fn is_said(&self) -> bool {
        matches!(
            self,
            Self::RunStarted { .. }
                | Self::Granted(_)
                | Self::Told { .. }
                | Self::Replied { .. }
                | Self::ToolReturned { .. }
                | Self::ToolRefused { .. }
                | Self::Reopened(_)
                | Self::Continued { .. }
        )
    }

    /// Returns the session whose conversation the event belongs to: its own, or the root's for
    /// `RunStarted`.
    #[must_use]
    pub const fn conversation(&self) -> Option<SessionId> {
        if let Self::RunStarted { run, .. } = self {
            return Some(run.root_session());
        }
        self.session()
    }

    /// Says whether the event describes how the run begins. An approval of the whole run covers
    /// exactly these events.
    #[must_use]
    pub const fn is_of_opening(&self) -> bool {
        matches!(
            self,
            Self::RunStarted { .. }
                | Self::AgentDefined { .. }
                | Self::Assigned(_)
                | Self::StoryTaken { .. }
        )
    }

    /// Says whether a command of a person adds the event to the journal of a run that is not live. No run decides it.
    #[must_use]
    pub const fn is_added_afterwards(&self) -> bool {
        matches!(self, Self::ResultMerged { .. } | Self::Undone { .. } | Self::ErrorFixed { .. })
    }

    /// Says whether the event must be on disk before anything follows from it.
    #[must_use]
    pub const fn must_be_durable(&self) -> bool {
        !matches!(
            self,
            Self::Progressed { .. }
                | Self::Paused { .. }
                | Self::Printed { .. }
                | Self::WorkerActed { .. }
        )
    }
}

/// An event that contradicts the events before it: the journal is damaged or foreign.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{event} does not fit: {problem}")]
pub struct IllegalEvent {
    /// The kind of event.
    pub event: &'static str,
    /// What is wrong with it.
    pub problem: String,
}
