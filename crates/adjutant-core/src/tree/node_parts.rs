//! The parts of a node: facts that are set, read and reset together.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use crate::code::Code;
use crate::event::DelegationOrigin;
use crate::fingerprint::Fingerprint;
use crate::outcome::{Outcome, Reason};
use crate::refusal::TimeBound;
use crate::story::RejectedMarker;
use crate::time::Timestamp;
use adjutant_formats::contract::Artifact;

/// What a node was given to do, and on which terms.
#[derive(Clone, Debug)]
pub(super) struct TaskTerms {
    /// What its task is known by, where it has a text.
    pub(super) fingerprint: Option<Fingerprint>,
    /// The story it works on.
    pub(super) story: Option<String>,
    /// The task of the project's list that it works on.
    pub(super) task: Option<u64>,
    /// Whether it works itself; a root that only hands down does not.
    pub(super) works: bool,
    /// The command that has to succeed before its work counts as done.
    pub(super) verify: Option<String>,
    /// Whether it must name a file that holds the work when it claims to have completed it.
    pub(super) artifacts_required: bool,
    pub(super) max_output_wish: Option<u64>,
}

/// How long a node may work.
#[derive(Clone, Debug)]
pub(super) struct WorkTime {
    /// The instant it began, once it did.
    pub(super) started: Option<Timestamp>,
    /// The instant it must have ended by.
    pub(super) deadline: Option<Timestamp>,
    /// The seconds of its own.
    pub(super) timeout_s: Option<u64>,
    /// Whose time ends at the deadline.
    pub(super) bound: TimeBound,
}

/// How many turns the definition of an agent allows.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct TurnLimit {
    /// The number of the last turn it may take.
    pub(super) max: Option<u32>,
    /// The turns it may take each time a person lets it work.
    pub(super) each: Option<u32>,
}

impl TurnLimit {
    pub(super) const fn new(each: Option<u32>) -> Self {
        Self { max: each, each }
    }
}

/// How large a node's conversation is.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct ContextSize {
    /// Input tokens of the last settled call; before the first, none.
    pub(super) settled_input: Option<u64>,
    /// Bytes that joined the conversation since then.
    pub(super) appended_bytes: u64,
    /// Context the node holds that no call of its own has measured.
    pub(super) given: u64,
}

impl ContextSize {
    /// Returns the context the next request is expected to fill, for the model's window.
    pub(super) fn estimate(self) -> u64 {
        self.given + self.settled_input.unwrap_or(0).saturating_add(self.appended_bytes.div_ceil(4))
    }

    /// Returns the most input tokens the next request can be billed, for the budget.
    ///
    /// A token is never shorter than a byte, so what was appended since the last bill counts byte
    /// for byte. Before the first bill a third of the bytes is generous for any tokeniser.
    pub(super) fn input_bound(self) -> u64 {
        self.settled_input.map_or_else(
            || self.appended_bytes.div_ceil(3).saturating_add(FRAMING_TOKENS),
            |input| input.saturating_add(self.appended_bytes),
        )
    }
}

/// Tokens a provider adds around a request for roles and tool framing.
const FRAMING_TOKENS: u64 = 64;

/// What an agent was told since it began, or was taken up again, because its answers fell short.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Corrections {
    /// Why its next turn is its last, once it was told so.
    pub(super) last_call: Option<Code>,
    /// Whether it was told to be shorter.
    pub(super) shortened: bool,
    /// How often its return was invalid.
    pub(super) repairs: u32,
    /// How often the command failed that decides whether its work is done.
    pub(super) failed_checks: u32,
}

/// What an agent did of late, for noticing a loop.
#[derive(Clone, Debug, Default)]
pub(super) struct LoopGuard {
    /// The latest calls.
    pub(super) recent_calls: VecDeque<Fingerprint>,
    /// Answers in a row whose markers led to no task.
    pub(super) vain_markers: usize,
}

impl LoopGuard {
    /// Remembers a call, and forgets the oldest where there are too many.
    pub(super) fn remember(&mut self, call: Fingerprint) {
        self.recent_calls.push_back(call);
        if self.recent_calls.len() > LOOP_WINDOW {
            self.recent_calls.pop_front();
        }
    }
}

/// The recent calls that are remembered: a few calls made in turn are a loop as much as one.
pub(super) const LOOP_WINDOW: usize = 32;

/// What came of an agent's work so far.
#[derive(Clone, Debug, Default)]
pub(super) struct WorkResults {
    /// Whether it said or noted anything that is worth handing back.
    pub(super) has_findings: bool,
    /// The files its return named, once one was taken.
    pub(super) artifacts: Vec<Artifact>,
    /// The files its tools changed.
    pub(super) changed: BTreeSet<String>,
}

/// What a node handed down.
#[derive(Clone, Debug, Default)]
pub(super) struct Delegations {
    /// The places of its children in the tree.
    pub(super) children: Vec<usize>,
    /// How they ended so far, refusals included.
    pub(super) ends: Vec<Outcome>,
    /// Children that have not ended.
    pub(super) live: u64,
    /// Children that were ever granted.
    pub(super) granted: u64,
    /// Children that have begun and not ended.
    pub(super) running: u64,
    /// Children that may work at once.
    pub(super) places: u64,
    /// Children that wait for a place, the next first; some may have ended while they waited.
    pub(super) queue: VecDeque<usize>,
    /// The calls that handed tasks down so far.
    pub(super) calls_made: u32,
    /// What handed tasks down, by a tool or by markers, and is yet to be told the results.
    pub(super) open: BTreeMap<u32, OpenDelegation>,
    /// The tasks it asked for so far, by whatever way.
    pub(super) numbered: u64,
    /// Why the latest task was refused.
    pub(super) refusal: Option<Reason>,
    /// Markers of the last answer that could not be read, until it is told.
    pub(super) rejected: Vec<RejectedMarker>,
    /// The instant by which all of them must have ended.
    pub(super) total_deadline: Option<Timestamp>,
}

/// Tasks that were handed down together, by a tool or by markers.
#[derive(Clone, Copy, Debug)]
pub(super) struct OpenDelegation {
    pub(super) origin: DelegationOrigin,
    /// Tasks of it that have not ended.
    pub(super) live: u64,
}

impl Delegations {
    /// Returns the call that stands for the markers of the last answer, while it is open.
    pub(super) fn marked_call(&self) -> Option<u32> {
        let marked = |(_, open): &(&u32, &OpenDelegation)| open.origin.index.is_none();
        self.open.iter().find(marked).map(|(call, _)| *call)
    }

    /// Returns the call that stands for a tool call of that turn, while it is open.
    pub(super) fn tool_call(&self, turn: u32, index: u32) -> Option<u32> {
        let is_of_call = |(_, open): &(&u32, &OpenDelegation)| {
            open.origin.turn == turn && open.origin.index == Some(index)
        };
        self.open.iter().find(is_of_call).map(|(call, _)| *call)
    }
}
