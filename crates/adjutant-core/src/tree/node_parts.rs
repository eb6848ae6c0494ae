//! The parts of a [`Node`](super::Node): fields that are set, read and reset together.
//!
//! `TaskTerms` are the task and its conditions, `NodeTimeLimits` its start, deadline and timeout,
//! `TurnLimit` the most turns it may take, `ContextSize` the size of its conversation,
//! `ContinuationCounts` how often a full one was continued, `CorrectionCounts` how often the agent
//! was corrected, `LoopGuard` its recent calls, `WorkResults` its results so far. `NodeDelegations` are its children, with one `OpenDelegation`
//! for each call whose tasks have not all ended.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use crate::code::ErrorCode;
use crate::event::DelegationOrigin;
use crate::fingerprint::Fingerprint;
use crate::outcome::{Outcome, OutcomeReason};
use crate::refusal::TimeBound;
use crate::story::RejectedMarker;
use crate::time::Timestamp;
use crate::verify::VerifyCommand;
use adjutant_formats::contract::Artifact;

/// What a node works on, and what must hold before its work counts as done.
#[derive(Clone, Debug)]
pub(super) struct TaskTerms {
    /// The fingerprint of its task, if the task has a text.
    pub(super) fingerprint: Option<Fingerprint>,
    /// The story that it works on.
    pub(super) story: Option<String>,
    /// The number of the task list entry that it works on.
    pub(super) task: Option<u64>,
    /// Whether it works itself; a root that only delegates does not.
    pub(super) works: bool,
    /// The verify command that must succeed before its work counts as done.
    pub(super) verify: Option<VerifyCommand>,
    /// Whether a return with status `completed` must name an artifact file.
    pub(super) artifacts_required: bool,
    pub(super) max_output_wish: Option<u64>,
}

/// The time limits of a node.
#[derive(Clone, Debug)]
pub(super) struct NodeTimeLimits {
    /// When it began.
    pub(super) started: Option<Timestamp>,
    /// When it must have ended.
    pub(super) deadline: Option<Timestamp>,
    /// Its own timeout in seconds.
    pub(super) timeout_s: Option<u64>,
    /// Which limit decided the deadline.
    pub(super) bound: TimeBound,
}

/// The turn limits from an agent's definition.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct TurnLimit {
    /// The number of the last turn it may take.
    pub(super) max: Option<u32>,
    /// How many turns it may take after its start and after each resume.
    pub(super) each: Option<u32>,
}

impl TurnLimit {
    pub(super) const fn new(each: Option<u32>) -> Self {
        Self { max: each, each }
    }
}

/// The size of a node's conversation.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct ContextSize {
    /// Input tokens of the last settled call; `None` before the first.
    pub(super) settled_input: Option<u64>,
    /// Bytes added to the conversation since then.
    pub(super) appended_bytes: u64,
    /// Tokens set by `adjutant check` instead of measured by calls.
    pub(super) given: u64,
    /// The bytes of the environment, which every conversation of the node begins with.
    pub(super) environment_bytes: u64,
}

impl ContextSize {
    /// Returns the estimated size of the next request in tokens, to compare with the model's
    /// window.
    pub(super) fn estimate(self) -> u64 {
        self.given + self.settled_input.unwrap_or(0).saturating_add(self.appended_bytes.div_ceil(4))
    }

    /// Returns the most bytes of a first request that are billed as at most `tokens`.
    pub(super) const fn bytes_within(tokens: u64) -> u64 {
        tokens.saturating_sub(FRAMING_TOKENS).saturating_mul(3)
    }

    /// Returns an upper bound of the billed input tokens of the next request, for the budget.
    ///
    /// A token is at least one byte, so bytes added since the last bill count one token each.
    /// Before the first bill a third of the bytes is generous for any tokeniser.
    pub(super) fn input_bound(self) -> u64 {
        self.settled_input.map_or_else(
            || self.appended_bytes.div_ceil(3).saturating_add(FRAMING_TOKENS),
            |input| input.saturating_add(self.appended_bytes),
        )
    }
}

/// What decides whether a full conversation is continued in a fresh one.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct ContinuationCounts {
    /// How often it was continued since the agent began or was resumed.
    pub(super) made: u32,
    /// Whether the agent was asked for its handover note, which is then its next answer.
    pub(super) is_note_asked: bool,
    /// Whether a tool call succeeded in the present conversation.
    pub(super) has_used_tool: bool,
    /// The size of system prompt, tools, brief and a person's messages: the least that a fresh
    /// conversation begins with.
    pub(super) brief_bytes: u64,
}

/// Tokens a provider adds around a request for roles and tool framing.
const FRAMING_TOKENS: u64 = 64;

/// How often an agent was corrected since it began or was resumed.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct CorrectionCounts {
    /// The limit because of which its next turn is the last, once it was told so.
    pub(super) last_call: Option<ErrorCode>,
    /// Whether it was told to shorten its answer.
    pub(super) shortened: bool,
    /// How often its return was invalid.
    pub(super) repairs: u32,
    /// How often its verify command failed.
    pub(super) failed_checks: u32,
}

/// The recent calls of an agent, to detect loops.
#[derive(Clone, Debug, Default)]
pub(super) struct LoopGuard {
    /// The fingerprints of the latest calls.
    pub(super) recent_calls: VecDeque<Fingerprint>,
    /// How many answers in a row had markers of which none was granted.
    pub(super) vain_markers: usize,
}

impl LoopGuard {
    /// Adds a call, and drops the oldest beyond [`LOOP_WINDOW`].
    pub(super) fn remember(&mut self, call: Fingerprint) {
        self.recent_calls.push_back(call);
        if self.recent_calls.len() > LOOP_WINDOW {
            self.recent_calls.pop_front();
        }
    }
}

/// How many recent calls are kept, so that a cycle of several calls is detected too.
pub(super) const LOOP_WINDOW: usize = 32;

/// The results of an agent's work so far.
#[derive(Clone, Debug, Default)]
pub(super) struct WorkResults {
    /// Whether it wrote any text or note that is worth returning.
    pub(super) has_findings: bool,
    /// The artifacts of its accepted return.
    pub(super) artifacts: Vec<Artifact>,
    /// The files its tools changed.
    pub(super) changed: BTreeSet<String>,
    /// The files that its tools were about to change, with the hash of the content before the first change; `None` for
    /// a file that did not exist.
    pub(super) originals: BTreeMap<String, Option<String>>,
}

/// The delegations of a node.
#[derive(Clone, Debug, Default)]
pub(super) struct NodeDelegations {
    /// The indexes of its children.
    pub(super) children: Vec<usize>,
    /// Their outcomes so far, refusals included.
    pub(super) ends: Vec<Outcome>,
    /// Children that have not ended.
    pub(super) live: u64,
    /// Children that were ever granted.
    pub(super) granted: u64,
    /// Children that have begun and not ended.
    pub(super) running: u64,
    /// How many children may run at once.
    pub(super) places: u64,
    /// Children that wait for a slot, the next first; some may have ended while waiting.
    pub(super) queue: VecDeque<usize>,
    /// The number of its delegating calls so far.
    pub(super) calls_made: u32,
    /// Delegating calls whose results it has not been told yet, by call number.
    pub(super) open: BTreeMap<u32, OpenDelegation>,
    /// The number of tasks it asked for so far, refused ones included; numbers child stories.
    pub(super) numbered: u64,
    /// Why the latest task was refused.
    pub(super) refusal: Option<OutcomeReason>,
    /// Markers of the last answer that could not be parsed, until it is told.
    pub(super) rejected: Vec<RejectedMarker>,
    /// When all its delegations must have ended (`total_s`).
    pub(super) total_deadline: Option<Timestamp>,
}

/// Tasks that were delegated together, by one tool call or by the markers of one answer.
#[derive(Clone, Copy, Debug)]
pub(super) struct OpenDelegation {
    pub(super) origin: DelegationOrigin,
    /// How many of them have not ended.
    pub(super) live: u64,
}

impl NodeDelegations {
    /// Returns the number of the open call for the markers of the last answer.
    pub(super) fn marked_call(&self) -> Option<u32> {
        let marked = |(_, open): &(&u32, &OpenDelegation)| open.origin.index.is_none();
        self.open.iter().find(marked).map(|(call, _)| *call)
    }

    /// Returns the number of the open call for a tool call of that turn.
    pub(super) fn tool_call(&self, turn: u32, index: u32) -> Option<u32> {
        let is_of_call = |(_, open): &(&u32, &OpenDelegation)| {
            open.origin.turn == turn && open.origin.index == Some(index)
        };
        self.open.iter().find(is_of_call).map(|(call, _)| *call)
    }
}
