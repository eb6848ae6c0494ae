//! The state of one delegation, or of the root.
//!
//! [`Activity`] is what it is doing now; a [`PendingRetry`], a [`ProviderPause`] or a question can
//! delay it. A [`DelegationWarning`] is a problem, such as a missing context file, that did not
//! stop it.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use adjutant_core::budget::{BudgetAmount, Reservation};
use adjutant_core::schema::{DELEGATE, TASK};
use adjutant_core::workspace::{KeptWork, MergeRequest, MergedWork, OwnWorkspace};
use adjutant_core::{
    AgentName, DelegationState, Label, ModelErrorKind, Outcome, OutcomeReason, SessionId,
    TaskListUpdate, Timestamp, VerifyCommand,
};
use adjutant_formats::contract::{Return, ReturnError};

use super::spend::UNKNOWN;
use super::{ProcessLiveness, Spend, ToolCallSummary, WorkerRecord};
use crate::receipt::LastCommand;
use crate::timed_event::EventTime;

/// How long a model may be silent before this is shown.
const QUIET: Duration = Duration::from_secs(30);

/// A delegation. The root is one too.
#[derive(Clone, Debug, serde::Serialize, serde::Deserialize)]
pub struct Delegation {
    /// The session id.
    pub session: SessionId,
    /// The parent's session id; `None` for the root.
    pub parent: Option<SessionId>,
    /// The depth in the tree.
    pub depth: u64,
    /// The id of the story it works on, if any.
    pub story: Option<String>,
    /// The label.
    pub label: Label,
    /// The name of the agent.
    pub agent: AgentName,
    /// The model that runs it; absent if it only delegates or was refused.
    pub model: Option<String>,
    /// What its external worker did, if one does its work.
    #[serde(default)]
    pub worker: Option<Box<WorkerRecord>>,
    /// The number of the parent's call, from 1.
    pub call: u32,
    /// The position in that call, from 0.
    pub index: u32,
    /// The start of its task.
    pub task: String,
    /// Its state.
    pub state: DelegationState,
    /// When it was admitted or refused.
    pub admitted: EventTime,
    /// When it first started.
    pub started: Option<EventTime>,
    /// When it last started; differs from `started` after a resume.
    pub(super) leg: Option<EventTime>,
    /// How long it worked before it was last resumed.
    pub(super) worked: Duration,
    /// When it ended, once it did.
    pub ended: Option<EventTime>,
    /// Its time limit in seconds, counted from its start.
    pub timeout_s: Option<u64>,
    /// When it must have ended.
    pub deadline: Option<Timestamp>,
    /// Tokens and cost of its own model calls.
    pub own: Spend,
    /// Tokens and cost of it and everything below it.
    pub inclusive: Spend,
    /// The number of turns, including the current one.
    pub turns: u32,
    /// The number of tool calls that were executed.
    pub tool_calls: u32,
    /// How often it went on in a fresh conversation because its context was full.
    #[serde(default)]
    pub continuations: u32,
    /// How many of the tool calls failed.
    #[serde(default)]
    pub failed_calls: u32,
    /// The number of tool calls that were refused.
    #[serde(default)]
    pub refused_calls: u32,
    /// The last command that it ran.
    #[serde(default)]
    pub last_command: Option<LastCommand>,
    /// The command that verifies its work, if there is one.
    #[serde(default)]
    pub verify: Option<VerifyCommand>,
    /// The changed files that its verify command saw as they are in the base.
    #[serde(default)]
    pub from_base: Vec<String>,
    /// Its notes; a view without texts keeps only the start of the latest one.
    pub notes: Vec<String>,
    /// How many notes it wrote.
    pub note_count: usize,
    /// The latest nonempty text of its agent; empty in a view without texts.
    pub last_text: String,
    /// The files its tools touched, in the order of first touch; empty in a view without texts.
    pub files: Vec<Arc<str>>,
    /// Why it ended this way.
    pub reason: Option<OutcomeReason>,
    /// The number of the task it works on in the project's task list.
    #[serde(default)]
    pub number: Option<u64>,
    /// Its accepted return; absent in a view without texts.
    #[serde(default)]
    pub returned: Option<Box<Return>>,
    /// The errors of an accepted return, until the delegation ends.
    #[serde(default)]
    pub(super) returned_errors: Vec<ReturnError>,
    /// The latest update of the task list for it, and what went wrong.
    #[serde(default)]
    pub marked: Option<(TaskListUpdate, Option<String>)>,
    /// The last line that a running command printed.
    #[serde(default)]
    pub printed: Option<String>,
    /// Its own workspace, if it has one.
    #[serde(default)]
    pub space: Option<Box<OwnWorkspace>>,
    /// How its latest command was sandboxed: `full`, `off`, or which layer is missing.
    #[serde(default)]
    pub sandbox: Option<String>,
    /// The commit of the work in its workspace, and why committing failed, if it did.
    #[serde(default)]
    pub kept: Option<Box<(KeptWork, Option<String>)>>,
    /// The effort that its parent estimated, in hours.
    #[serde(default)]
    pub hours: Option<u32>,
    /// The merge into the parent's workspace, and what went wrong.
    #[serde(default)]
    pub merged: Option<Box<(MergedWork, Option<String>)>>,
    /// The commit that was merged after the run had ended, and how.
    #[serde(default)]
    pub merged_after_run: Option<(String, MergeRequest)>,
    /// Whether its verify command passed last time, and how often it failed.
    #[serde(default)]
    pub checked: Option<(bool, u32)>,
    /// Markers in its answers that were not run, each with the reason.
    #[serde(default)]
    pub unread_markers: Vec<String>,
    /// Whether it would be completed if its work had been committed.
    #[serde(default)]
    pub(super) is_unkept: bool,
    /// Whether it has ended and its work is not committed yet.
    #[serde(default)]
    pub(super) is_keeping: bool,
    /// What the markers of its latest answer request, until they are read.
    #[serde(default)]
    pub(super) wanted: Vec<String>,
    /// Whether it works in its own workspace.
    #[serde(default)]
    pub(crate) has_own_space: bool,
    /// The files its tools changed.
    #[serde(default)]
    pub changed: BTreeSet<Arc<str>>,
    /// Problems that it continued despite.
    pub warnings: Vec<DelegationWarning>,
    /// What arrived after its end.
    pub late: Vec<LateArrival>,
    /// The models it used earlier, each with tokens and cost.
    #[serde(default)]
    pub earlier_models: Vec<(String, Spend)>,
    /// Whether it was resumed after an end.
    #[serde(default)]
    pub reopened: bool,
    /// The message of a panic in Adjutant while working for it.
    pub crash: Option<String>,
    /// The failed model call that will be retried.
    pub retry: Option<PendingRetry>,
    /// How its latest model call failed, if it did.
    pub(super) last_error: Option<ModelErrorKind>,
    /// Why its model call is delayed.
    #[serde(default)]
    pub pause: Option<ProviderPause>,
    /// The hosts that a person is asked about for it, each with the number of the waiting call.
    #[serde(default)]
    pub hosts: Vec<(u32, String)>,

    /// The reservation of the model call in progress.
    pub(super) open: Option<Reservation>,
    pub(super) is_priced: bool,
    pub(super) children: Vec<usize>,
    pub(super) call_sizes: BTreeMap<u32, usize>,
    pub(super) files_seen: BTreeSet<Arc<str>>,
    /// The files that calls in progress are about to change, by call.
    #[serde(default)]
    pub(super) preparing: BTreeMap<u32, Vec<Arc<str>>>,
    /// The tool calls of the latest answer, by number.
    pub(super) asked: Vec<ToolCallSummary>,
    /// The numbers of the tool calls in progress.
    pub(super) under_way: Vec<u32>,
    pub(super) since: Timestamp,
    /// When its model last sent something.
    pub(super) heard: Timestamp,
    pub(super) bytes: u64,
    /// The end of the text that its model is writing; empty unless the process that runs it shows it.
    #[serde(skip)]
    pub(super) text_end: String,
}

/// A problem that a delegation continued despite.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub enum DelegationWarning {
    /// A context file is missing.
    MissingContext(String),
    /// A context file is not UTF-8, so the child sees other characters.
    LossyContext(String),
    /// It requested more time than allowed and got this many seconds.
    Clamped(Option<u64>),
    /// Its return claimed something that the engine did not see.
    FalseClaim(String),
}

impl fmt::Display for DelegationWarning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::MissingContext(path) => write!(f, "context file not found: {path}"),
            Self::LossyContext(path) => {
                write!(f, "context file is not UTF-8, invalid bytes were replaced: {path}")
            }
            Self::Clamped(Some(seconds)) => {
                write!(f, "asked for more time than allowed, gets {seconds} s")
            }
            Self::Clamped(None) => f.write_str("asked for more time than allowed"),
            Self::FalseClaim(what) => write!(f, "its return differs from what was seen: {what}"),
        }
    }
}

/// A reply, tool result or other event that arrived after the delegation had ended, and had no effect.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct LateArrival {
    /// What it was.
    pub what: String,
    /// The start of it.
    pub text: String,
}

/// A failed model call that will be retried.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct PendingRetry {
    /// The attempt that failed, from 1.
    pub attempt: u32,
    /// When the next one is made.
    pub at: Timestamp,
    /// What went wrong.
    pub kind: ModelErrorKind,
}

/// A pause that a provider asked for; it applies to all calls to that provider.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct ProviderPause {
    /// The provider.
    pub provider: String,
    /// When it ends.
    pub until: Timestamp,
}

/// What a delegation is doing now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Activity<'a> {
    /// A person has not approved it yet.
    AwaitingApproval,
    /// It waits for a free slot.
    Queued,
    /// Its model is answering.
    Thinking {
        /// Since when.
        since: Timestamp,
        /// The bytes of the answer received so far.
        bytes: u64,
        /// The end of its text received so far.
        text_end: &'a str,
    },
    /// A tool is running.
    Tool {
        /// The oldest call in progress.
        call: &'a ToolCallSummary,
        /// How many more are running.
        more: usize,
    },
    /// Its external worker waits for the answers to this many model calls.
    WaitingForModel(usize),
    /// Its external worker writes; this is the last line of it.
    Writing(&'a str),
    /// It waits to retry a model call.
    Retrying(PendingRetry),
    /// Its model call is delayed by a pause of the provider.
    Paused(&'a ProviderPause),
    /// A person has not allowed a host yet.
    AwaitingDomain(&'a str),
    /// It waits for its children.
    Delegating,
    /// It has ended.
    Ended(Outcome),
}

impl Delegation {
    /// Returns whether its work is merged into the parent's.
    #[must_use]
    pub fn is_merged(&self) -> bool {
        self.merged.as_ref().is_some_and(|it| it.0.conflicts.is_empty() && it.1.is_none())
    }

    /// Returns the question that it ended with and that waits for an answer.
    #[must_use]
    pub fn open_question(&self) -> Option<&str> {
        let is_blocked = self.state == DelegationState::Ended(Outcome::Blocked);
        self.reason.as_ref().filter(|_| is_blocked).map(|reason| reason.message.as_str())
    }

    /// Returns whether it has ended and its work is not committed yet.
    #[must_use]
    pub const fn is_keeping(&self) -> bool {
        self.is_keeping
    }

    /// Returns tokens and cost per model of its own calls, the current model last.
    #[must_use]
    pub fn by_model(&self) -> Vec<(String, Spend)> {
        if let Some(worker) = &self.worker {
            let mut paid: Vec<(String, Spend)> =
                worker.by_model().map(|(name, spend)| (name.to_owned(), *spend)).collect();
            paid.sort_by_key(|(name, _)| self.model.as_ref() == Some(name));
            return paid;
        }
        let mut paid = self.earlier_models.clone();
        let before = paid.iter().fold(Spend::default(), |sum, (_, spend)| sum.plus(spend));
        let name = self.model.clone().unwrap_or_else(|| UNKNOWN.into());
        paid.push((name, self.own.minus(&before)));
        paid.retain(|(_, spend)| spend.calls > 0);
        paid
    }

    /// Returns what its running model calls may take at most.
    #[must_use]
    pub fn reserved(&self) -> BudgetAmount {
        let own = self.open.map(|open| open.amount).unwrap_or_default();
        let worker = self.worker.as_ref().map(|worker| worker.reserved());
        own.plus(worker.unwrap_or_default())
    }

    /// Returns what it is doing now.
    #[must_use]
    pub fn activity(&self) -> Activity<'_> {
        match &self.state {
            DelegationState::AwaitingApproval => Activity::AwaitingApproval,
            DelegationState::Queued => Activity::Queued,
            DelegationState::Ended(outcome) => Activity::Ended(*outcome),
            DelegationState::Running => self.working(),
        }
    }

    /// Returns what was printed while its workspace is made, which is slow then; `None` once it works.
    pub(crate) fn preparing_text(&self) -> Option<&str> {
        let is_preparing = self.turns == 0 && self.own.calls == 0 && self.space.is_none();
        self.printed.as_deref().filter(|_| is_preparing)
    }

    fn working(&self) -> Activity<'_> {
        if let Some(retry) = self.retry {
            return Activity::Retrying(retry);
        }
        if let Some(worker) = &self.worker {
            return self.worker_activity(worker);
        }
        let calls = || self.under_way.iter().filter_map(|&number| self.asked.get(number as usize));
        if let (None, Some((_, host))) = (calls().next(), self.hosts.first()) {
            return Activity::AwaitingDomain(host);
        }
        if let (None, Some(pause)) = (calls().next(), &self.pause) {
            return Activity::Paused(pause);
        }
        // Children show their own activity, so another tool is more informative.
        let mut others = calls().filter(|call| call.tool != DELEGATE && call.tool != TASK);
        match others.next() {
            Some(call) => Activity::Tool { call, more: others.count() },
            None if calls().next().is_some() => Activity::Delegating,
            None if self.parent.is_none() && self.own.calls == 0 && self.turns == 0 => {
                Activity::Delegating
            }
            None => self.thinking(),
        }
    }

    fn thinking(&self) -> Activity<'_> {
        Activity::Thinking { since: self.since, bytes: self.bytes, text_end: &self.text_end }
    }

    fn worker_activity<'a>(&'a self, worker: &'a WorkerRecord) -> Activity<'a> {
        let mut tools = worker.running_tools();
        if let Some(call) = tools.next() {
            return Activity::Tool { call, more: tools.count() };
        }
        match (worker.last_words(), worker.open_calls()) {
            (Some(words), _) => Activity::Writing(words),
            (None, 0) => self.thinking(),
            (None, open) => Activity::WaitingForModel(open),
        }
    }

    /// Returns whether it is active: a model call, a tool, or a delay before a retry.
    pub(super) fn is_busy(&self) -> bool {
        match self.activity() {
            Activity::Thinking { .. }
            | Activity::Tool { .. }
            | Activity::WaitingForModel(_)
            | Activity::Writing(_)
            | Activity::Retrying(_)
            | Activity::Paused(_) => true,
            Activity::AwaitingApproval
            | Activity::Queued
            | Activity::AwaitingDomain(_)
            | Activity::Delegating
            | Activity::Ended(_) => false,
        }
    }

    /// Returns how long its model has been silent, if that is long enough to show.
    ///
    /// Silence alone does not mean that the model is stalled; the run's policy decides that.
    #[must_use]
    pub fn silence(&self, now: Timestamp) -> Option<Duration> {
        let waits = matches!(
            self.activity(),
            Activity::Thinking { .. } | Activity::WaitingForModel(_) | Activity::Writing(_)
        );
        Some(now.since(self.heard)).filter(|silent| waits && *silent >= QUIET)
    }

    /// Returns a tool call of the agent's latest answer.
    #[must_use]
    pub fn requested_call(&self, number: u32) -> Option<&ToolCallSummary> {
        self.asked.get(number as usize)
    }

    /// Returns how long it has worked, without the time between an end and a resume. Returns `None` if it
    /// never started.
    #[must_use]
    pub fn elapsed(&self, now: Timestamp) -> Option<Duration> {
        self.started?;
        Some(self.worked + self.leg_until(self.ended.map_or(now, |ended| ended.at)))
    }

    /// Returns when it last started, which its deadline is counted from.
    pub(crate) const fn began_last(&self) -> Option<EventTime> {
        self.leg
    }

    /// Returns how long it has worked since it last started.
    pub(super) fn leg_until(&self, now: Timestamp) -> Duration {
        self.leg.map_or(Duration::ZERO, |leg| now.since(leg.at))
    }

    /// Returns how long it has worked; a dead run stopped at `latest`.
    pub(crate) fn elapsed_in(
        &self,
        now: Timestamp,
        latest: Timestamp,
        liveness: ProcessLiveness,
    ) -> Option<Duration> {
        self.elapsed(match liveness {
            ProcessLiveness::Alive => now,
            ProcessLiveness::Dead => latest,
        })
    }

    /// Returns its notes, one per line.
    #[must_use]
    pub fn scratchpad(&self) -> String {
        let mut text = String::new();
        for note in &self.notes {
            let words: Vec<&str> = note.lines().map(str::trim).collect();
            text.push_str(words.join(" ").trim());
            text.push('\n');
        }
        text
    }
}
