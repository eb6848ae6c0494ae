//! What is known of one delegation, or of the root.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use adjutant_core::budget::Reservation;
use adjutant_core::schema::{DELEGATE, TASK};
use adjutant_core::space::{KeptWork, MergeRequest, MergedWork, Space};
use adjutant_core::{
    AgentName, ErrorKind, Label, Mark, Outcome, Reason, SessionId, State, Timestamp,
};
use adjutant_formats::contract::{Return, ReturnError};

use super::{Liveness, RequestedTool, Spend};
use crate::timed_event::EventTime;

/// How long a model may say nothing before people are told.
const QUIET: Duration = Duration::from_secs(30);

/// One delegation as people and programs read it; the root is one too.
#[derive(Clone, Debug, serde::Serialize, serde::Deserialize)]
pub struct Delegation {
    /// Its id.
    pub session: SessionId,
    /// Who asked; nobody for the root.
    pub parent: Option<SessionId>,
    /// Edges from the root.
    pub depth: u64,
    /// The story it works on, where it works on one.
    pub story: Option<String>,
    /// What it is called.
    pub label: Label,
    /// Who works.
    pub agent: AgentName,
    /// The model that runs it; absent for a node that only delegates, or that was refused.
    pub model: Option<String>,
    /// The parent's call it came with, from 1.
    pub call: u32,
    /// The place in that call, from 0.
    pub index: u32,
    /// The start of what was asked.
    pub task: String,
    /// Where it stands.
    pub state: State,
    /// When it was admitted or refused.
    pub admitted: EventTime,
    /// When it first began, once it did.
    pub started: Option<EventTime>,
    /// When it began last; another moment than the first once it was taken up again.
    pub(super) leg: Option<EventTime>,
    /// How long it worked before it was taken up again.
    pub(super) worked: Duration,
    /// When it ended, once it did.
    pub ended: Option<EventTime>,
    /// Seconds of its own, from its start.
    pub timeout_s: Option<u64>,
    /// The instant it must have ended by.
    pub deadline: Option<Timestamp>,
    /// What its own model calls came to.
    pub own: Spend,
    /// What it and everything below it came to.
    pub inclusive: Spend,
    /// The turns it has taken or begun.
    pub turns: u32,
    /// The tools that were run for it.
    pub tool_calls: u32,
    /// Its scratchpad; in a view without texts only the start of the latest note.
    pub notes: Vec<String>,
    /// How many notes it took.
    pub note_count: usize,
    /// The latest text of its agent that was not empty; never there in a view without texts.
    pub last_text: String,
    /// The files its tools touched, each once, in the order of the first touch; none in a view
    /// without texts.
    pub files: Vec<Arc<str>>,
    /// Why it ended as it did.
    pub reason: Option<Reason>,
    /// The task of the project's list that it works on.
    #[serde(default)]
    pub number: Option<u64>,
    /// What it handed back, once that was accepted; never there in a view without texts.
    #[serde(default)]
    pub returned: Option<Box<Return>>,
    /// The errors of a return that was accepted, until the delegation ends with it.
    #[serde(default)]
    pub(super) returned_errors: Vec<ReturnError>,
    /// How the project's list was last marked for it, and what was in the way.
    #[serde(default)]
    pub marked: Option<(Mark, Option<String>)>,
    /// The last line that a command under way printed.
    #[serde(default)]
    pub printed: Option<String>,
    /// The workspace of its own, once there is one.
    #[serde(default)]
    pub space: Option<Box<Space>>,
    /// What held its latest command: `full`, `off`, or what is missing.
    #[serde(default)]
    pub sandbox: Option<String>,
    /// What was kept of the work in it, and what was in the way.
    #[serde(default)]
    pub kept: Option<Box<(KeptWork, Option<String>)>>,
    /// The hours its parent thought it takes.
    #[serde(default)]
    pub hours: Option<u32>,
    /// What came of merging it into the workspace above, and what was in the way.
    #[serde(default)]
    pub merged: Option<Box<(MergedWork, Option<String>)>>,
    /// The commit that was merged after the run had ended, and how.
    #[serde(default)]
    pub merged_after_run: Option<(String, MergeRequest)>,
    /// Whether the command that decides about its work passed, once that was run; and how often it failed.
    #[serde(default)]
    pub checked: Option<(bool, u32)>,
    /// Markers of its answers that were not run, each with the reason.
    #[serde(default)]
    pub unread_markers: Vec<String>,
    /// Whether it would be completed, had its work been kept.
    #[serde(default)]
    pub(super) is_unkept: bool,
    /// Whether it has ended and its work is yet to be kept.
    #[serde(default)]
    pub(super) is_keeping: bool,
    /// What the markers of its latest answer ask for, until they are read.
    #[serde(default)]
    pub(super) wanted: Vec<String>,
    /// Whether it works in a workspace of its own, once that is there.
    #[serde(default)]
    pub(crate) has_own_space: bool,
    /// The files its tools changed.
    #[serde(default)]
    pub changed: BTreeSet<Arc<str>>,
    /// What it went on in spite of.
    pub warnings: Vec<DelegationWarning>,
    /// What arrived after its end.
    pub late: Vec<LateArrival>,
    /// The models it ran on before, with what each was paid.
    #[serde(default)]
    pub earlier_models: Vec<(String, Spend)>,
    /// Whether it was taken up again after an end.
    #[serde(default)]
    pub reopened: bool,
    /// What broke in Adjutant while working for it.
    pub crash: Option<String>,
    /// The failed call that is to be tried again.
    pub retry: Option<PendingRetry>,
    /// How its latest model call failed, if it did.
    pub(super) last_error: Option<ErrorKind>,
    /// Why its model call is held back.
    #[serde(default)]
    pub pause: Option<ProviderPause>,
    /// The hosts a person is asked about for it, each with the number of the call that waits.
    #[serde(default)]
    pub hosts: Vec<(u32, String)>,

    /// The model call under way.
    pub(super) open: Option<Reservation>,
    pub(super) is_priced: bool,
    pub(super) children: Vec<usize>,
    pub(super) call_sizes: BTreeMap<u32, usize>,
    pub(super) files_seen: BTreeSet<Arc<str>>,
    /// What calls under way are about to change.
    #[serde(default)]
    pub(super) preparing: BTreeMap<u32, Arc<str>>,
    /// The calls of the latest answer, by number.
    pub(super) asked: Vec<RequestedTool>,
    /// The numbers of those that are under way.
    pub(super) under_way: Vec<u32>,
    pub(super) since: Timestamp,
    /// When its model was last heard of.
    pub(super) heard: Timestamp,
    pub(super) bytes: u64,
}

/// Something a delegation went on in spite of.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub enum DelegationWarning {
    /// A context file was not there.
    MissingContext(String),
    /// A context file was not UTF-8, and the child sees something else than its bytes.
    LossyContext(String),
    /// It asked for more time than allowed and got this many seconds.
    Clamped(Option<u64>),
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
        }
    }
}

/// Something that arrived after the end and changed nothing.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct LateArrival {
    /// What it was.
    pub what: String,
    /// How it starts.
    pub text: String,
}

/// A failed call that is to be tried again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct PendingRetry {
    /// The attempt that failed, from 1.
    pub attempt: u32,
    /// When the next one is made.
    pub at: Timestamp,
    /// What went wrong.
    pub kind: ErrorKind,
}

/// A pause a provider asked for, which every call to it keeps.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct ProviderPause {
    /// Who asked for it.
    pub provider: String,
    /// When it is over.
    pub until: Timestamp,
}

/// What a delegation is doing now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Activity<'a> {
    /// A person has yet to say yes.
    AwaitingApproval,
    /// It waits for a free place.
    Queued,
    /// Its model writes.
    Thinking {
        /// Since when.
        since: Timestamp,
        /// What has arrived of the answer.
        bytes: u64,
    },
    /// A tool runs.
    Tool {
        /// The oldest call under way.
        call: &'a RequestedTool,
        /// How many more run beside it.
        more: usize,
    },
    /// It waits to try a model call again.
    Retrying(PendingRetry),
    /// Its model call is held back; once that is over, its model writes.
    Paused(&'a ProviderPause),
    /// A person has yet to allow a host.
    AwaitingDomain(&'a str),
    /// It waits for what it handed down.
    Delegating,
    /// It has ended.
    Ended(Outcome),
}

impl Delegation {
    /// Says whether its work is part of that of the one above.
    #[must_use]
    pub fn is_merged(&self) -> bool {
        self.merged.as_ref().is_some_and(|it| it.0.conflicts.is_empty() && it.1.is_none())
    }

    /// Says whether it has ended and its work is yet to be kept.
    #[must_use]
    pub const fn is_keeping(&self) -> bool {
        self.is_keeping
    }

    /// Returns what each model was paid for its own calls, the present one last.
    #[must_use]
    pub fn by_model(&self) -> Vec<(String, Spend)> {
        let mut paid = self.earlier_models.clone();
        let before = paid.iter().fold(Spend::default(), |sum, (_, spend)| sum.plus(spend));
        let name = self.model.clone().unwrap_or_else(|| "unknown".into());
        paid.push((name, self.own.minus(&before)));
        paid.retain(|(_, spend)| spend.calls > 0);
        paid
    }

    /// Returns what it is doing now.
    #[must_use]
    pub fn activity(&self) -> Activity<'_> {
        match &self.state {
            State::AwaitingApproval => Activity::AwaitingApproval,
            State::Queued => Activity::Queued,
            State::Ended(outcome) => Activity::Ended(*outcome),
            State::Running => self.working(),
        }
    }

    fn working(&self) -> Activity<'_> {
        if let Some(retry) = self.retry {
            return Activity::Retrying(retry);
        }
        let calls = || self.under_way.iter().filter_map(|&number| self.asked.get(number as usize));
        if let (None, Some((_, host))) = (calls().next(), self.hosts.first()) {
            return Activity::AwaitingDomain(host);
        }
        if let (None, Some(pause)) = (calls().next(), &self.pause) {
            return Activity::Paused(pause);
        }
        // Children are shown with what they do themselves, so another tool says more.
        let mut others = calls().filter(|call| call.tool != DELEGATE && call.tool != TASK);
        match others.next() {
            Some(call) => Activity::Tool { call, more: others.count() },
            None if calls().next().is_some() => Activity::Delegating,
            None if self.parent.is_none() && self.own.calls == 0 && self.turns == 0 => {
                Activity::Delegating
            }
            None => Activity::Thinking { since: self.since, bytes: self.bytes },
        }
    }

    /// Says whether something goes on for it: a model call, a tool, or the pause before another try.
    pub(super) fn is_busy(&self) -> bool {
        match self.activity() {
            Activity::Thinking { .. }
            | Activity::Tool { .. }
            | Activity::Retrying(_)
            | Activity::Paused(_) => true,
            Activity::AwaitingApproval
            | Activity::Queued
            | Activity::AwaitingDomain(_)
            | Activity::Delegating
            | Activity::Ended(_) => false,
        }
    }

    /// Returns how long its model has not been heard of, when that is long enough to wonder.
    ///
    /// Time alone says that nothing came, not that nothing will: whether it is stalled, the run's
    /// own policy decides.
    #[must_use]
    pub fn silence(&self, now: Timestamp) -> Option<Duration> {
        let waits = matches!(self.activity(), Activity::Thinking { .. });
        Some(now.since(self.heard)).filter(|silent| waits && *silent >= QUIET)
    }

    /// Returns one of the calls its agent's latest answer asked for.
    #[must_use]
    pub fn asked(&self, number: u32) -> Option<&RequestedTool> {
        self.asked.get(number as usize)
    }

    /// Returns how long it has worked, or worked, over all its legs. Nothing for one that never began.
    #[must_use]
    pub fn elapsed(&self, now: Timestamp) -> Option<Duration> {
        self.started?;
        Some(self.worked + self.leg_until(self.ended.map_or(now, |ended| ended.at)))
    }

    /// Returns when it began last, which is what its deadline counts from.
    pub(crate) const fn began_last(&self) -> Option<EventTime> {
        self.leg
    }

    /// Returns how long it has worked since it began last.
    pub(super) fn leg_until(&self, now: Timestamp) -> Duration {
        self.leg.map_or(Duration::ZERO, |leg| now.since(leg.at))
    }

    /// Returns how long it has worked, where a dead run stopped at `latest`.
    pub(crate) fn elapsed_in(
        &self,
        now: Timestamp,
        latest: Timestamp,
        liveness: Liveness,
    ) -> Option<Duration> {
        self.elapsed(match liveness {
            Liveness::Alive => now,
            Liveness::Dead => latest,
        })
    }

    /// Returns its scratchpad, one line for each note.
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
