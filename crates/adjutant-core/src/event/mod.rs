//! What happened: the facts a journal holds and every fold reads.
//!
//! Events are past tense and never judged again. Each says whether it must be on disk before its
//! effects may happen, and what remains of it once its content has expired (`expiry`).

mod expiry;

use std::borrow::Cow;
use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::assignment::{Assignment, TaskListUpdate};
use crate::brief::Brief;
use crate::budget::{BudgetAmount, Reservation, Settlement};
use crate::code::Code;
use crate::ids::{AgentName, Label, RunId, SessionId};
use crate::message::{AttemptError, ModelSpec, StopReason, ToolCall, ToolSpec};
use crate::money::Usd;
use crate::outcome::{Outcome, Reason};
use crate::policy::Policy;
use crate::refusal::TimeBound;
use crate::rights::Rights;
use crate::schema::ReturnFormat;
use crate::story::{RejectedMarker, StoryAssignment};
use crate::time::Timestamp;
use crate::workspace::{KeptWork, MergeRequest, MergedWork, OwnWorkspace, WorkspaceTerms};
use crate::write::ContentChange;
use adjutant_formats::contract::{Complaint, Return};

/// A fact in the life of a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
#[expect(
    missing_docs,
    reason = "fields are named for what they hold; the variants say what happened"
)]
pub enum Event {
    /// A run began.
    RunStarted {
        run: RunId,
        agent: AgentName,
        goal: String,
        workdir: String,
        policy: Box<Policy>,
        version: String,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        model: Option<ModelSpec>,
        /// What a person said about agents that write; absent where none has a workspace of its own.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        terms: Option<Box<WorkspaceTerms>>,
        /// The depth of the root: `DELEGATION_DEPTH` of the environment that the run started in.
        #[serde(default, skip_serializing_if = "is_zero")]
        base_depth: u64,
    },
    /// An agent became known, with what it is told and what it may hold.
    AgentDefined {
        agent: AgentName,
        system: String,
        tools: Vec<ToolSpec>,
        rights: Rights,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        max_turns: Option<u32>,
    },
    /// An agent handed tasks down by a tool call; its result is due when all of them have ended.
    Delegated { session: SessionId, call: u32, origin: DelegationOrigin },
    /// A task was admitted.
    Granted(Box<Grant>),
    /// A task was not admitted; this is also its end.
    Refused {
        session: SessionId,
        parent: SessionId,
        call: u32,
        index: u32,
        label: Label,
        agent: AgentName,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        story: Option<String>,
        reason: Reason,
    },
    /// A slash command said what the run is about.
    Assigned(Box<Assignment>),
    /// The run works on a story, and must have ended by `deadline`.
    StoryTaken {
        #[serde(flatten)]
        story: Box<StoryAssignment>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        deadline: Option<Timestamp>,
    },
    /// The markers of an answer were read; those that ask for a task follow as grants and refusals,
    /// unless all of them were refused together.
    MarkersRead {
        session: SessionId,
        turn: u32,
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        rejected: Vec<RejectedMarker>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        refused: Option<Reason>,
    },
    /// A person has to say yes to a call before its tasks start.
    ApprovalAsked { parent: SessionId, call: u32, hash: String, expires: Timestamp },
    /// A call starts without asking: its worst case fits the amount a person set beforehand.
    AutoApproved { parent: SessionId, call: u32, hash: String, amount: Usd },
    /// A person said yes to exactly this call.
    Approved { hash: String, parent: SessionId },
    /// A person, the policy or the clock said no to this call.
    Denied { hash: String, reason: String },
    /// A delegation got its place and began.
    Started { session: SessionId, deadline: Option<Timestamp>, bound: TimeBound },
    /// Tokens and money were held open for a model call.
    Reserved { session: SessionId, reservation: Reservation },
    /// A model answered in full.
    Replied {
        session: SessionId,
        turn: u32,
        attempt: u32,
        text: String,
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        tool_calls: Vec<ToolCall>,
        stop: StopReason,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        opaque: Option<serde_json::Value>,
        settlement: Settlement,
    },
    /// A model call gave no complete answer; it may be tried again at `retry_at`.
    AttemptFailed {
        session: SessionId,
        turn: u32,
        attempt: u32,
        error: AttemptError,
        settlement: Settlement,
        retry_at: Option<Timestamp>,
    },
    /// A call under way was closed at its full reservation because its delegation ended.
    Settled { session: SessionId, turn: u32, attempt: u32, settlement: Settlement },
    /// A provider billed more than was held open.
    Overran { session: SessionId, amount: BudgetAmount },
    /// Bytes arrived from a model.
    Progressed { session: SessionId, bytes: u64 },
    /// A model call is held back, because its provider asked someone for a pause.
    Paused { session: SessionId, provider: String, until: Timestamp },
    /// A person said something to an agent; it waits for the agent's next turn.
    Messaged { session: SessionId, text: String },
    /// The engine put a message into the conversation.
    Told { session: SessionId, nudge: ToldReason, text: String },
    /// A tool was about to run.
    ToolCalled { session: SessionId, call: u32 },
    /// A person has to say yes to a host before a tool asks it.
    DomainAsked { session: SessionId, call: u32, host: String, expires: Timestamp },
    /// A host may be asked for the rest of the run.
    DomainAllowed { host: String },
    /// A person or the clock said no to a host, for the rest of the run.
    DomainDenied { host: String, reason: String },
    /// A tool call was answered without running it.
    ToolRefused { session: SessionId, call: u32, text: String },
    /// A tool gave its result.
    ToolReturned {
        session: SessionId,
        call: u32,
        #[serde(flatten)]
        output: ToolOutput,
    },
    /// A tool was about to change a file, from one content to another.
    WritePrepared {
        session: SessionId,
        call: u32,
        #[serde(flatten)]
        change: ContentChange,
    },
    /// What a delegation handed back was judged against the contract: taken, or not for what is
    /// wrong with it.
    Judged {
        session: SessionId,
        /// The call it came by; absent where it was the last answer.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        call: Option<u32>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        returned: Option<Box<Return>>,
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        errors: Vec<Complaint>,
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        warnings: Vec<Complaint>,
    },
    /// The command that decides whether work is done was about to be run.
    Checking { session: SessionId, command: String },
    /// It ended: the work passes, or does not for what it printed.
    Checked { session: SessionId, passed: bool, text: String },
    /// A task of the project's list was changed as work on it went, unless there was a problem.
    Marked {
        session: SessionId,
        #[serde(flatten)]
        mark: TaskListUpdate,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        problem: Option<String>,
    },
    /// A command that runs for a delegation printed something.
    Printed { session: SessionId, text: String },
    /// A workspace of a delegation's own is there.
    SpaceMade { session: SessionId, space: OwnWorkspace },
    /// The work in a workspace was kept, as far as there is no problem.
    SpaceKept {
        session: SessionId,
        #[serde(flatten)]
        kept: KeptWork,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        problem: Option<String>,
    },
    /// The work of a delegation was merged into the workspace of the one above it, or not for the
    /// conflicts that are named or for a problem.
    Merged {
        session: SessionId,
        #[serde(flatten)]
        merged: MergedWork,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        problem: Option<String>,
    },
    /// A result was merged after the run had ended, as `--merge` asked; nothing else follows from it.
    ResultMerged { session: SessionId, commit: String, merge: MergeRequest },
    /// A person had a file put back to what it was; nothing else follows from it.
    Undone {
        #[serde(flatten)]
        change: ContentChange,
    },
    /// A person let the run go on, after it was interrupted or had ended. From here on nobody holds
    /// more than `rights`, nor an agent more than `agents` says of it; those who were at work get
    /// `timeout_s` anew, if it is given, and `model` takes the place of every other.
    Resumed {
        version: String,
        rights: Rights,
        #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
        agents: BTreeMap<AgentName, Rights>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        model: Option<ModelSpec>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        timeout_s: Option<u64>,
        /// Whether somebody gets less than `timeout_s`, for it is more than the work may take.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        clamped: bool,
        /// By when those at work must have ended, where that is new.
        #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
        deadlines: BTreeMap<SessionId, Timestamp>,
        /// When the questions that are open go stale.
        #[serde(default)]
        questions_until: Timestamp,
        /// What holds from here on for agents that write.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        terms: Option<Box<WorkspaceTerms>>,
        /// The limits that a person changed, by the names of their keys.
        #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
        limits: BTreeMap<String, serde_json::Value>,
    },
    /// A delegation that had ended was taken up again.
    Reopened(Box<Reopening>),
    /// Something broke inside Adjutant while working for a delegation.
    Crashed { session: SessionId, message: String, backtrace: String },
    /// Something arrived for a delegation that had ended; it changes nothing.
    Late { session: SessionId, what: String, text: String },
    /// A delegation ended. It does so exactly once.
    Ended {
        session: SessionId,
        outcome: Outcome,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        reason: Option<Reason>,
    },
    /// The run ended.
    RunEnded { outcome: Outcome },
    /// A person said that an error of this run is dealt with; nothing else follows from it.
    ErrorFixed { id: String },
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes the field by reference")]
const fn is_zero(number: &u64) -> bool {
    *number == 0
}

/// An admitted task, with everything decided about it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Grant {
    /// The delegation's id.
    pub session: SessionId,
    /// Who asked.
    pub parent: SessionId,
    /// The parent's call this belongs to, from 1.
    pub call: u32,
    /// The place in that call, from 0.
    pub index: u32,
    /// How many of the call's children work at once.
    pub places: u64,
    /// What is asked.
    pub brief: Brief,
    /// Edges from the root.
    pub depth: u64,
    /// Names from the root to this agent.
    pub path: Vec<String>,
    /// What it may do.
    pub rights: Rights,
    /// Seconds of its own, from its start.
    pub timeout_s: Option<u64>,
    /// Whether it asked for more time than allowed.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub clamped: bool,
    /// What stands before its task: who it works for, how deep and how long.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub preface: Option<String>,
    /// The task of the project's list that it works on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub task: Option<u64>,
    /// Bytes of its first request: system prompt, tools and opening.
    pub opening_bytes: u64,
    /// Whether a person has yet to say yes.
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

/// How a delegation that had ended goes on.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Reopening {
    /// The delegation.
    pub session: SessionId,
    /// Whether its conversation begins anew, with `text` as its opening.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub afresh: bool,
    /// What is said to it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub text: Option<String>,
    /// Seconds of its own, from its next start.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout_s: Option<u64>,
    /// The tool calls that ended with it, of which nobody knows what came.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unanswered: Vec<u32>,
    /// The writes that ended with it, and what looking at their files told.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub looked: Vec<(u32, ToolOutput)>,
}

/// What a delegation was asked for by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DelegationOrigin {
    /// The parent's turn.
    pub turn: u32,
    /// The place of the tool call in that turn, from 0; absent for markers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub index: Option<u32>,
    /// How the parent wants its results.
    pub form: ReturnFormat,
}

/// Why the engine spoke to an agent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ToldReason {
    /// Its end is near for this reason: report now.
    LastCall(Code),
    /// Its answer was cut off: say it shorter.
    Shorten,
    /// Its return did not satisfy the contract.
    Repair,
    /// A person has something to say: the oldest word that waits.
    Person,
    /// What came of the tasks it handed down by markers.
    Results,
    /// The command that decides whether its work is done failed.
    Check,
}

/// What a tool gave back.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ToolOutput {
    /// What the model is shown, masked and capped.
    pub content: String,
    /// Whether the tool failed.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_error: bool,
    /// A line for the scratchpad.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
    /// The files it touched, relative to the root.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub touched: Vec<String>,
    /// What held the command, where one was run: `full`, `off`, or what is missing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sandbox: Option<String>,
}

impl ToolOutput {
    /// Returns an error for the model.
    #[must_use]
    pub fn error(content: impl Into<String>) -> Self {
        Self { content: content.into(), is_error: true, ..Self::default() }
    }
}

impl Event {
    /// Returns the delegation the event is about, if it is about one.
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
            | Self::Progressed { session, .. }
            | Self::Paused { session, .. }
            | Self::Messaged { session, .. }
            | Self::Told { session, .. }
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

    /// Says whether the event changes the conversation it has a place in.
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
        )
    }

    /// Returns the session in whose conversation the event has a place: a run's goal opens its root's.
    #[must_use]
    pub const fn conversation(&self) -> Option<SessionId> {
        if let Self::RunStarted { run, .. } = self {
            return Some(run.root_session());
        }
        self.session()
    }

    /// Says whether the event is of what a run begins with: what a person is asked about who is asked
    /// about the whole of it.
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

    /// Says whether the event must be on disk before anything follows from it.
    #[must_use]
    pub const fn must_be_durable(&self) -> bool {
        !matches!(self, Self::Progressed { .. } | Self::Paused { .. } | Self::Printed { .. })
    }
}

/// Says that a recorded fact does not fit what was recorded before it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{event} does not fit: {problem}")]
pub struct IllegalEvent {
    /// The kind of event.
    pub event: &'static str,
    /// What is wrong with it.
    pub problem: String,
}
