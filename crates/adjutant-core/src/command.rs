//! What is asked of the tree, in the imperative.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use crate::assignment::{Assignment, TaskListUpdate};
use crate::brief::RequestedTask;
use crate::event::{DelegationOrigin, ToolOutput};
use crate::ids::{AgentName, RunId, SessionId};
use crate::message::{AttemptError, ModelReply, ModelSpec, ToolCall, ToolSpec};
use crate::policy::Policy;
use crate::rights::Rights;
use crate::story::{AnswerMarkers, RejectedMarker, StoryAssignment, VerifyResult};
use crate::web_host::HostSet;
use crate::workspace::{KeptWork, MergedWork, OwnWorkspace, WorkspaceFailure, WorkspaceTerms};
use crate::write::{ContentChange, WriteFinding, WriteScope};
use adjutant_formats::contract::ArtifactFact;

/// A wish or a report from outside, to be judged by `Tree::decide`.
#[derive(Clone, Debug, PartialEq)]
#[expect(
    missing_docs,
    reason = "fields are named for what they hold; the variants say what is asked"
)]
pub enum Command {
    /// Begin a run.
    Begin {
        run: RunId,
        agent: AgentName,
        goal: String,
        workdir: String,
        policy: Box<Policy>,
        version: String,
        model: Option<ModelSpec>,
        terms: Option<Box<WorkspaceTerms>>,
        /// The depth of the root; depths below it count from there.
        base_depth: u64,
    },
    /// Make an agent known.
    Define {
        agent: AgentName,
        system: String,
        tools: Vec<ToolSpec>,
        rights: Rights,
        max_turns: Option<u32>,
    },
    /// Make the run one of a slash command: what it is about, and the time such work may take at
    /// the most for the agent at the root.
    Assign(Box<Assignment>),
    /// Let the run work on a story.
    TakeStory(Box<StoryAssignment>),
    /// Do the same as both for a run that nobody has typed: a person is asked before the agent at the
    /// root begins, unless it may without asking.
    AskToBegin { assignment: Option<Box<Assignment>>, story: Option<Box<StoryAssignment>> },
    /// Hand down what the markers of that turn ask for, and tell of those that cannot be read.
    DelegateMarkers {
        session: SessionId,
        turn: u32,
        tasks: Vec<RequestedTask>,
        rejected: Vec<RejectedMarker>,
    },
    /// Tell an agent what came of the tasks it handed down by markers.
    TellResults { session: SessionId, turn: u32, text: String },
    /// Hand tasks down.
    Delegate {
        parent: SessionId,
        tasks: Vec<RequestedTask>,
        concurrency: Option<u64>,
        origin: Option<DelegationOrigin>,
    },
    /// Say yes to a call.
    Approve { hash: String },
    /// Say no to a call.
    Deny { hash: String, reason: String },
    /// Take the answer that a client brings from a person: yes, or no and why.
    ///
    /// The client was asked `after_ms` ago. The policy decides whether a person can have answered by then.
    RelayAnswer { hash: String, answer: Result<(), String>, after_ms: u64 },
    /// Give free places to those who wait.
    StartQueued { parent: SessionId },
    /// Let an agent think.
    TakeTurn { session: SessionId },
    /// Take a model's answer.
    Reply { session: SessionId, turn: u32, attempt: u32, reply: ModelReply },
    /// Take a model's failure.
    FailAttempt { session: SessionId, turn: u32, attempt: u32, error: AttemptError },
    /// Note that bytes arrived.
    Progress { session: SessionId, bytes: u64 },
    /// Note that a call is held back for so many milliseconds.
    Pause { session: SessionId, provider: String, ms: u64 },
    /// Use the tools the last answer asked for.
    UseTools { session: SessionId },
    /// Say yes to a host.
    AllowDomain { host: String },
    /// Say no to a host.
    DenyDomain { host: String, reason: String },
    /// Take a tool's result.
    TakeOutput { session: SessionId, turn: u32, call: u32, output: ToolOutput },
    /// Note what a tool is about to change.
    PrepareWrite { session: SessionId, turn: u32, call: u32, change: ContentChange },
    /// Take what was handed back as the result, by the call of that number or else by the last
    /// answer, given what is known of its artifacts.
    Conclude {
        session: SessionId,
        call: Option<u32>,
        text: String,
        artifacts: Vec<(String, ArtifactFact)>,
    },
    /// Take the last answer as the result, where the contract is free text.
    TakeReport { session: SessionId },
    /// Note what a command that runs for a delegation printed.
    Print { session: SessionId, text: String },
    /// Take the workspace of a delegation, or why there is none.
    TakeSpace { session: SessionId, made: Result<OwnWorkspace, WorkspaceFailure> },
    /// Note what was kept of the work in a workspace, or why nothing was.
    KeepSpace { session: SessionId, kept: Result<KeptWork, String> },
    /// Note what came of merging the work of a delegation into the workspace above it.
    TakeMerge { session: SessionId, merged: Result<MergedWork, String> },
    /// Take what came of the command that decides whether work is done.
    TakeCheck { session: SessionId, check: VerifyResult, text: String },
    /// Note that a task of the project's list was marked, or why not.
    Mark { session: SessionId, mark: TaskListUpdate, problem: Option<String> },
    /// Deal with an answer that was cut off at the output limit.
    CutOff { session: SessionId },
    /// Deal with a model that declined.
    Decline { session: SessionId },
    /// Give up on a delegation because something of ours broke.
    Crash { session: SessionId, message: String, backtrace: String },
    /// End in order because the disk is full: everything but the model calls that are under way, for whose answers
    /// the journal has room, and the agents above them. Calls of the sessions in `lost` count as over: their answers
    /// could not be recorded.
    DiskFull { lost: BTreeSet<SessionId> },
    /// Say something to an agent before its next turn.
    Tell { session: SessionId, text: String },
    /// Stop a delegation and all below it.
    Cancel { session: SessionId },
    /// Go on with a run that was interrupted, or with what is left of one that has ended.
    Resume(Box<ResumeOptions>),
    /// See what time alone has changed.
    Tick,
    /// End the run if nothing in it is live.
    EndRun,
}

/// How a person wants a run to go on.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ResumeOptions {
    /// The version that goes on with it.
    pub version: String,
    /// What may be held at the most from here on.
    pub rights: Rights,
    /// What the agents that are still defined may hold at the most.
    pub agents: BTreeMap<AgentName, Rights>,
    /// The model that takes the place of all others, where a person chose one.
    pub model: Option<ModelSpec>,
    /// The one delegation to take up again; all that can go on when absent.
    pub session: Option<SessionId>,
    /// What the person has to say to it.
    pub say: Option<String>,
    /// The seconds that are given anew.
    pub timeout_s: Option<u64>,
    /// The task and the notes of those whose conversation no longer fits, as their new start.
    pub handovers: BTreeMap<SessionId, String>,
    /// What looking at the files told about writes without a result, by session and call.
    pub write_findings: BTreeMap<(SessionId, u32), WriteFinding>,
    /// What holds from here on for agents that write.
    pub terms: Option<WorkspaceTerms>,
    /// The limits that hold from here on; only those count that may be set when a run goes on.
    pub limits: Option<Box<Policy>>,
}

/// What the shell must do once the event it follows from is on disk. Data, so that any runtime can
/// interpret it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "effect", rename_all = "snake_case")]
#[expect(missing_docs, reason = "fields are named for what they hold; the variants say what to do")]
pub enum Effect {
    /// Ask a person about a call.
    AskApproval { parent: SessionId, call: u32, hash: String },
    /// Call the model.
    Model {
        session: SessionId,
        turn: u32,
        attempt: u32,
        max_output: u64,
        context_tokens: u64,
        with_tools: bool,
    },
    /// Run a tool.
    Tool { session: SessionId, turn: u32, index: u32, call: ToolCall },
    /// Find out what a write would change. Nothing is changed by it.
    PrepareWrite { session: SessionId, turn: u32, index: u32, call: ToolCall, writes: WriteScope },
    /// Make exactly the change that is recorded.
    Write {
        session: SessionId,
        turn: u32,
        index: u32,
        call: ToolCall,
        writes: WriteScope,
        change: ContentChange,
    },
    /// Fetch a page from `host`, which was allowed, and follow it to no host beyond `hosts`.
    Fetch {
        session: SessionId,
        turn: u32,
        index: u32,
        call: ToolCall,
        host: String,
        hosts: HostSet,
    },
    /// Ask a person about a host.
    AskDomain { session: SessionId, host: String, url: String },
    /// Read a call of `Delegate` or `Task` and hand its tasks down.
    Delegate { session: SessionId, turn: u32, index: u32, call: ToolCall },
    /// Give an agent the results of the tasks it handed down.
    HandUp { session: SessionId, call: u32, origin: DelegationOrigin },
    /// Look at the artifacts that a return names, then conclude: the arguments of a call, or else the
    /// last answer.
    Verify { session: SessionId, returned: Option<(u32, ToolCall)> },
    /// Change a task of the project's list. Doing it again changes nothing.
    Mark { session: SessionId, mark: TaskListUpdate },
    /// Make the workspace a delegation works in, from the one of `above` or from the tree of the run,
    /// with the work of some commits merged in. Doing it again finds the one that is there.
    MakeSpace { session: SessionId, above: Option<SessionId>, takes_in: Vec<String> },
    /// Keep the work in a workspace, then clear the workspace away. Doing it again changes nothing.
    KeepSpace { session: SessionId, space: OwnWorkspace },
    /// Hand down what the markers of an answer ask for.
    Markers { session: SessionId, turn: u32, markers: AnswerMarkers },
    /// Merge the kept work of a delegation into the workspace of `into`. Doing it again changes nothing.
    Merge { session: SessionId, into: SessionId, commit: String },
    /// Run the command that decides whether the work of a delegation is done, for so many seconds at the most.
    Check { session: SessionId, command: String, timeout_s: u64 },
    /// Abandon the model call of a delegation, if one is still under way.
    StopModel { session: SessionId },
    /// Stop whatever runs for a delegation.
    Stop { session: SessionId },
    /// Nothing is left to do.
    Close,
}

/// What follows from an event: commands to judge at once, effects to perform once it is on disk.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Reaction {
    /// To be decided next, in order.
    pub commands: Vec<Command>,
    /// To be performed when the event is durable.
    pub effects: Vec<Effect>,
}
