//! The inputs and outputs of the tree: commands that [`Tree::decide`](crate::Tree::decide) judges
//! and effects that the engine performs.
//!
//! A [`Command`] is a request, or the report that an effect is done; an [`Effect`] is one thing
//! that the engine must do. A [`Reaction`] is what follows from recorded events: the next commands
//! and effects. [`ResumeOptions`] is what a person asks for when resuming a run.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use crate::assignment::{SlashCommandAssignment, TaskListUpdate};
use crate::brief::RequestedTask;
use crate::environment::{ProjectFacts, ProjectGuidance};
use crate::event::{DelegationOrigin, ToolOutput};
use crate::handover::CollectedHandover;
use crate::ids::{AgentName, RunId, SessionId};
use crate::message::{AttemptError, ModelReply, ModelSpec, ToolCall, ToolSpec};
use crate::money::Usd;
use crate::policy::Policy;
use crate::refusal::Refusal;
use crate::rights::Rights;
use crate::story::{AnswerMarkers, RejectedMarker, StoryAssignment, VerifyResult};
use crate::usage::Usage;
use crate::verify::VerifyFacts;
use crate::web_host::HostSet;
use crate::worker::{
    WorkerAction, WorkerCallEnd, WorkerCallRequest, WorkerSessionStart, WorkerTerms,
    WorkerUsageReport,
};
use crate::workspace::{
    KeptWork, MergedWork, OwnWorkspace, RebasedWork, WorkspaceFailure, WorkspaceTerms,
};
use crate::write::{WriteFinding, WriteIntent, WriteScope};
use adjutant_formats::contract::ArtifactFileState;

/// A request, or a report about an effect, that `Tree::decide` judges.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[expect(
    missing_docs,
    reason = "fields are named for what they hold; the variants say what is asked"
)]
pub enum Command {
    /// Starts a run.
    Begin {
        run: RunId,
        agent: AgentName,
        goal: String,
        workdir: String,
        policy: Box<Policy>,
        version: String,
        model: Option<ModelSpec>,
        terms: Option<Box<WorkspaceTerms>>,
        /// The depth of the root; the depths of delegations count from it.
        base_depth: u64,
        /// What the agents are told about the project.
        environment: Option<Box<ProjectGuidance>>,
    },
    /// Defines an agent.
    Define {
        agent: AgentName,
        system: String,
        tools: Vec<ToolSpec>,
        rights: Rights,
        max_turns: Option<u32>,
        /// The external agent that does its work.
        worker: Option<Box<WorkerTerms>>,
    },
    /// Records what a slash command asks of the run, and gives the root agent the maximum time of
    /// that operation.
    Assign(Box<SlashCommandAssignment>),
    /// Starts work on a story.
    TakeStory(Box<StoryAssignment>),
    /// Like `Assign` and `TakeStory`, for a run that an MCP client started: asks a person before
    /// the root agent begins, unless the policy approves it automatically.
    AskToBegin {
        assignment: Option<Box<SlashCommandAssignment>>,
        story: Option<Box<StoryAssignment>>,
    },
    /// Delegates the tasks of an answer's markers, and tells the agent about markers that could not
    /// be parsed.
    DelegateMarkers {
        session: SessionId,
        turn: u32,
        tasks: Vec<RequestedTask>,
        rejected: Vec<RejectedMarker>,
    },
    /// Tells an agent the results of the tasks it delegated with markers.
    TellResults { session: SessionId, turn: u32, text: String },
    /// Delegates tasks.
    Delegate {
        parent: SessionId,
        tasks: Vec<RequestedTask>,
        concurrency: Option<u64>,
        origin: Option<DelegationOrigin>,
    },
    /// Approves the call with this hash.
    Approve { hash: String },
    /// Approves the call with this hash, and further calls of this run as long as their worst cases add up to at
    /// most `amount`. Only a person at a terminal can say this.
    ApproveUpTo { hash: String, amount: Usd },
    /// Denies the call with this hash.
    Deny { hash: String, reason: String },
    /// Takes a person's answer that a client relays: approval, or denial with a reason.
    ///
    /// The client was asked `after_ms` ago. Answers faster than the policy's `answer_min_ms` do not
    /// count, because no person can answer that fast.
    RelayAnswer { hash: String, answer: Result<(), String>, after_ms: u64 },
    /// Starts queued children of `parent` in its free concurrency slots.
    StartQueued { parent: SessionId },
    /// Starts the next model call of an agent.
    TakeTurn { session: SessionId },
    /// Records a model's reply.
    Reply { session: SessionId, turn: u32, attempt: u32, reply: ModelReply },
    /// Records a failed model call.
    FailAttempt { session: SessionId, turn: u32, attempt: u32, error: AttemptError },
    /// Records that bytes arrived from the model, which restarts the stall timer.
    Progress { session: SessionId, bytes: u64 },
    /// Records that the engine delays a model call because of a provider's rate limit.
    Pause { session: SessionId, provider: String, ms: u64 },
    /// Admits or refuses a model call that a worker wants to make.
    AdmitCall { session: SessionId, request: WorkerCallRequest },
    /// Records how a worker's model call ended. Without `usage` the full reservation counts, unless the provider
    /// never began the call.
    SettleCall {
        session: SessionId,
        call: u32,
        end: WorkerCallEnd,
        usage: Option<Usage>,
        never_began: bool,
    },
    /// Records that a worker has opened a session, whose id it needs to load that session again.
    TakeWorkerSession { session: SessionId, id: String, start: WorkerSessionStart },
    /// Records what a worker reports about its work.
    TakeWorkerAction { session: SessionId, action: WorkerAction },
    /// Records what a worker says it has used.
    TakeWorkerUsage { session: SessionId, report: WorkerUsageReport },
    /// Runs the tools that the last answer asked for.
    UseTools { session: SessionId },
    /// Allows fetching from a host.
    AllowDomain { host: String },
    /// Forbids fetching from a host.
    DenyDomain { host: String, reason: String },
    /// Records a tool's result.
    TakeOutput { session: SessionId, turn: u32, call: u32, output: ToolOutput },
    /// Records the file changes that a tool is about to make.
    PrepareWrite { session: SessionId, turn: u32, call: u32, intent: WriteIntent },
    /// Judges a result against the contract: the arguments of `Return` call number `call`, or the
    /// last answer if absent. `artifacts` says what the engine found at the named paths; `changed`
    /// are the files that differ from the base, if the engine compared them.
    Conclude {
        session: SessionId,
        call: Option<u32>,
        text: String,
        artifacts: Vec<(String, ArtifactFileState)>,
        changed: Option<BTreeSet<String>>,
    },
    /// Takes the last answer as the result, under a free-text contract.
    TakeReport { session: SessionId },
    /// Records output of a shell command that runs for a delegation.
    Print { session: SessionId, text: String },
    /// Records the workspace made for a delegation, or why it could not be made.
    TakeWorkspace {
        session: SessionId,
        made: Result<OwnWorkspace, WorkspaceFailure>,
        /// What to tell agents about the state of the project that it was made from.
        project: Option<ProjectFacts>,
    },
    /// Records the commit that keeps the work of a workspace, or why it failed.
    TakeKeptWork { session: SessionId, kept: Result<KeptWork, String> },
    /// Records the result of merging a child's work into its parent's workspace.
    TakeMerge { session: SessionId, merged: Result<MergedWork, String> },
    /// Records the result of the verify command.
    TakeCheck { session: SessionId, check: VerifyResult, text: String, facts: VerifyFacts },
    /// Records that the task list was updated, or why not.
    TakeListUpdate { session: SessionId, mark: TaskListUpdate, problem: Option<String> },
    /// Takes the handover that was collected for an agent whose context is full.
    TakeHandover { session: SessionId, turn: u32, handover: Box<CollectedHandover> },
    /// Handles an answer that was cut off at the output limit.
    CutOff { session: SessionId },
    /// Handles an answer in which the model declined.
    Decline { session: SessionId },
    /// Ends a delegation after a panic or internal error.
    Crash { session: SessionId, message: String, backtrace: String },
    /// Ends the run in order because the disk is full. Model calls that are running, and the agents
    /// above them, stay until their replies are recorded, for which the journal has reserved space.
    /// The calls of the sessions in `lost` count as over: their replies could not be recorded.
    DiskFull { lost: BTreeSet<SessionId> },
    /// Queues a person's message for an agent; it is delivered before the agent's next turn.
    Tell { session: SessionId, text: String },
    /// Cancels a delegation and all its descendants.
    Cancel { session: SessionId },
    /// Resumes a run that was interrupted, or the unfinished part of one that ended.
    Resume(Box<ResumeOptions>),
    /// Applies every deadline that has passed.
    Tick,
    /// Ends the run if nothing in it is live.
    EndRun,
}

impl Command {
    /// Returns the session whose effect the command answers or whose agent it is about; `None` for questions, orders of a
    /// person and the run as a whole.
    #[must_use]
    pub const fn session(&self) -> Option<SessionId> {
        match self {
            Self::DelegateMarkers { session, .. }
            | Self::TellResults { session, .. }
            | Self::Delegate { parent: session, .. }
            | Self::StartQueued { parent: session }
            | Self::TakeTurn { session }
            | Self::Reply { session, .. }
            | Self::FailAttempt { session, .. }
            | Self::Progress { session, .. }
            | Self::Pause { session, .. }
            | Self::AdmitCall { session, .. }
            | Self::SettleCall { session, .. }
            | Self::TakeWorkerSession { session, .. }
            | Self::TakeWorkerAction { session, .. }
            | Self::TakeWorkerUsage { session, .. }
            | Self::UseTools { session }
            | Self::TakeOutput { session, .. }
            | Self::PrepareWrite { session, .. }
            | Self::Conclude { session, .. }
            | Self::TakeReport { session }
            | Self::Print { session, .. }
            | Self::TakeWorkspace { session, .. }
            | Self::TakeKeptWork { session, .. }
            | Self::TakeMerge { session, .. }
            | Self::TakeCheck { session, .. }
            | Self::TakeListUpdate { session, .. }
            | Self::TakeHandover { session, .. }
            | Self::CutOff { session }
            | Self::Decline { session }
            | Self::Crash { session, .. } => Some(*session),
            Self::Begin { .. }
            | Self::Define { .. }
            | Self::Assign(_)
            | Self::TakeStory(_)
            | Self::AskToBegin { .. }
            | Self::Approve { .. }
            | Self::ApproveUpTo { .. }
            | Self::Deny { .. }
            | Self::RelayAnswer { .. }
            | Self::AllowDomain { .. }
            | Self::DenyDomain { .. }
            | Self::DiskFull { .. }
            | Self::Tell { .. }
            | Self::Cancel { .. }
            | Self::Resume(_)
            | Self::Tick
            | Self::EndRun => None,
        }
    }

    /// Returns the command that tells an agent why its call was refused. Other commands have no caller to tell.
    #[must_use]
    pub fn answer_refused(
        parent: SessionId,
        origin: DelegationOrigin,
        refusal: &Refusal,
    ) -> Option<Self> {
        let DelegationOrigin { turn, index: Some(call), .. } = origin else { return None };
        let (code, message) = (refusal.code(), refusal.message());
        let output = ToolOutput::error(format!("{code}: {message}\n{}", refusal.recommendation()));
        Some(Self::TakeOutput { session: parent, turn, call, output })
    }
}

/// What a person asks for when resuming a run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ResumeOptions {
    /// The version of Adjutant that resumes it.
    pub version: String,
    /// The upper bound of every agent's rights from here on.
    pub rights: Rights,
    /// The upper bound for each agent that is still defined.
    pub agents: BTreeMap<AgentName, Rights>,
    /// The model that replaces all others, if a person chose one.
    pub model: Option<ModelSpec>,
    /// The one delegation to resume; absent means all that can be resumed.
    pub session: Option<SessionId>,
    /// The person's message to it.
    pub say: Option<String>,
    /// A new timeout in seconds.
    pub timeout_s: Option<u64>,
    /// For sessions whose conversation no longer fits the context: the task and notes to start a
    /// new conversation with.
    pub handovers: BTreeMap<SessionId, String>,
    /// Whether interrupted writes were applied, by session and call number; found by comparing the
    /// files.
    #[serde(with = "pairs")]
    pub write_findings: BTreeMap<(SessionId, u32), Vec<WriteFinding>>,
    /// New terms for agents that write in workspaces of their own.
    pub terms: Option<WorkspaceTerms>,
    /// New limits; only keys that may be set on resume count.
    pub limits: Option<Box<Policy>>,
    /// The delegation whose work was moved onto the present files, and which goes on there.
    pub rebased: Option<RebasedWork>,
}

/// A map whose keys are no texts, written as a list of pairs.
mod pairs {
    use std::collections::BTreeMap;

    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    pub(super) fn serialize<K: Serialize, V: Serialize, S: Serializer>(
        map: &BTreeMap<K, V>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(map)
    }

    pub(super) fn deserialize<'de, K, V, D>(deserializer: D) -> Result<BTreeMap<K, V>, D::Error>
    where
        K: Deserialize<'de> + Ord,
        V: Deserialize<'de>,
        D: Deserializer<'de>,
    {
        Ok(Vec::<(K, V)>::deserialize(deserializer)?.into_iter().collect())
    }
}

/// What the engine must do once the event that caused it is on disk. It is plain data, so any
/// runtime can perform it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "effect", rename_all = "snake_case")]
#[expect(missing_docs, reason = "fields are named for what they hold; the variants say what to do")]
pub enum Effect {
    /// Asks a person to approve a call.
    AskApproval { parent: SessionId, call: u32, hash: String },
    /// Calls the model.
    Model {
        session: SessionId,
        turn: u32,
        attempt: u32,
        max_output: u64,
        context_tokens: u64,
        with_tools: bool,
    },
    /// Gives a worker its next prompt: what was added to its conversation since its last answer.
    Prompt { session: SessionId, turn: u32, attempt: u32 },
    /// Forwards an admitted model call of a worker.
    ForwardCall { session: SessionId, call: u32 },
    /// Runs a tool.
    Tool { session: SessionId, turn: u32, index: u32, call: ToolCall },
    /// Computes what a write would change, without changing anything.
    PrepareWrite { session: SessionId, turn: u32, index: u32, call: ToolCall, writes: WriteScope },
    /// Makes exactly the recorded changes.
    Write {
        session: SessionId,
        turn: u32,
        index: u32,
        call: ToolCall,
        writes: WriteScope,
        intent: WriteIntent,
    },
    /// Fetches a page from `host`, following redirects only to `hosts`.
    Fetch {
        session: SessionId,
        turn: u32,
        index: u32,
        call: ToolCall,
        host: String,
        hosts: HostSet,
    },
    /// Asks a person whether a host may be fetched from.
    AskDomain { session: SessionId, host: String, url: String },
    /// Parses a call of `Delegate` or `Task` and delegates its tasks.
    Delegate { session: SessionId, turn: u32, index: u32, call: ToolCall },
    /// Gives an agent the results of the tasks it delegated.
    #[serde(rename = "hand_up")]
    ReturnResults { session: SessionId, call: u32, origin: DelegationOrigin },
    /// Checks the artifacts that a return names, then sends `Command::Conclude`. The return is the
    /// arguments of a call, or the last answer if absent.
    Verify { session: SessionId, returned: Option<(u32, ToolCall)> },
    /// Updates the task list. Idempotent.
    #[serde(rename = "mark")]
    UpdateTaskList { session: SessionId, mark: TaskListUpdate },
    /// Makes the workspace of a delegation, based on the workspace of `above` or on the tree of the
    /// run, with the commits `takes_in` merged in. If it exists already, it is reused.
    #[serde(rename = "make_space")]
    MakeWorkspace { session: SessionId, above: Option<SessionId>, takes_in: Vec<String> },
    /// Commits the work of a workspace, then removes the workspace. Idempotent.
    #[serde(rename = "keep_space")]
    CommitWork { session: SessionId, space: OwnWorkspace },
    /// Turns the markers of an answer into tasks and delegates them.
    Markers { session: SessionId, turn: u32, markers: AnswerMarkers },
    /// Merges a delegation's commit into the workspace of `into`. Idempotent.
    Merge { session: SessionId, into: SessionId, commit: String },
    /// Runs the verify command for at most `timeout_s` seconds, with the files that match `keep`
    /// taken from the base.
    Check { session: SessionId, command: String, keep: Vec<String>, timeout_s: u64 },
    /// Collects what an agent with a full context hands over to its next conversation, at most
    /// `max_bytes` of it, then sends `Command::TakeHandover`. If `has_note`, its last answer is its
    /// handover note.
    CollectHandover { session: SessionId, turn: u32, has_note: bool, max_bytes: u64 },
    /// Aborts the model call of a delegation, if one is running.
    StopModel { session: SessionId },
    /// Stops everything that runs for a delegation.
    Stop { session: SessionId },
    /// The run has ended; nothing is left to do.
    Close,
}

/// What follows from an event: commands to decide at once, and effects to perform once the event is
/// on disk.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Reaction {
    /// Commands to decide next, in order.
    pub commands: Vec<Command>,
    /// Effects to perform when the event is durable.
    pub effects: Vec<Effect>,
}
