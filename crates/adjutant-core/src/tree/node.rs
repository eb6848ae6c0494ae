//! One node of the tree, and the ways it can end.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use super::marks::Marks;
use super::turn_state::{LastAnswer, TurnState};
use crate::budget::{Cap, Ledger};
use crate::code::Code;
use crate::event::Origin;
use crate::fingerprint::Fingerprint;
use crate::ids::{AgentName, Label, RunId, SessionId};
use crate::message::ModelSpec;
use crate::money::Usd;
use crate::outcome::{Outcome, Reason, State};
use crate::refusal::TimeBound;
use crate::rights::Rights;
use crate::space::Space;
use crate::story::RejectedMarker;
use crate::time::Timestamp;
use crate::usage::Usage;
use adjutant_formats::contract::Artifact;

/// What the tree knows of a delegation, or of the root.
#[derive(Clone, Debug)]
pub struct Node {
    /// Its id.
    pub session: SessionId,
    /// Who works.
    pub agent: AgentName,
    /// What it is called.
    pub label: Label,
    /// Edges from the root.
    pub depth: u64,
    /// Where it stands.
    pub state: State,
    /// The instant it began, once it did.
    pub started: Option<Timestamp>,
    /// The instant it must have ended by.
    pub deadline: Option<Timestamp>,
    /// What it may do.
    pub rights: Rights,
    /// What its model can hold and charges; absent for a node that only delegates.
    pub model: Option<ModelSpec>,
    /// Tokens, money and caps of it and all below it.
    pub ledger: Ledger,
    /// What its own model calls consumed.
    pub usage: Usage,
    /// What its own model calls cost.
    pub cost: Usd,
    /// The turns it has taken or begun.
    pub turn: u32,
    /// Where it is in its turn.
    pub(super) turn_state: TurnState,
    /// The turns its definition allows. Inclusive; the last of them is a last call.
    pub max_turns: Option<u32>,
    /// The turns its definition allows each time a person lets it work.
    pub(super) turns_each: Option<u32>,

    /// Whether nobody has to say yes any more.
    pub(super) approved: bool,
    pub(super) parent: Option<usize>,
    pub(super) children: Vec<usize>,
    /// How its direct delegations ended so far, refusals included.
    pub(super) ends: Vec<Outcome>,
    pub(super) live_children: u64,
    pub(super) granted_children: u64,
    pub(super) running_children: u64,
    pub(super) places: u64,
    pub(super) queue: VecDeque<usize>,
    pub(super) calls_made: u32,
    /// What handed tasks down, by a tool or by markers, and is yet to be told the results.
    pub(super) open_delegations: BTreeMap<u32, OpenDelegation>,

    /// The call of its parent that it belongs to.
    pub(super) call: u32,
    pub(super) total_deadline: Option<Timestamp>,

    pub(super) fingerprint: Option<Fingerprint>,
    pub(super) story: Option<String>,
    pub(super) timeout_s: Option<u64>,
    pub(super) bound: TimeBound,
    pub(super) max_output_wish: Option<u64>,

    /// Input tokens of the last settled call; before the first, none.
    pub(super) settled_input: Option<u64>,
    /// Bytes that joined the conversation since then.
    pub(super) appended_bytes: u64,
    /// Context the node holds that no call of its own has measured.
    pub(super) given_context: u64,
    /// The latest calls, for noticing a loop.
    pub(super) recent_calls: VecDeque<Fingerprint>,
    pub(super) last_call: Option<Code>,
    pub(super) shortened: bool,
    pub(super) repairs: u32,
    /// What a person said that its model has not been told yet.
    pub(super) mailbox: VecDeque<String>,
    pub(super) has_findings: bool,
    /// Why it ended, if it did for a reason.
    pub(super) end_reason: Option<Reason>,
    /// Why the latest task it handed down was refused.
    pub(super) refusal: Option<Reason>,
    /// The task of the project's list that it works on.
    pub(super) task: Option<u64>,
    /// Whether it must name a file that holds the work when it claims to have completed it.
    pub(super) artifacts_required: bool,
    /// The files its return named, once one was taken.
    pub(super) artifacts: Vec<Artifact>,
    /// The files its tools changed.
    pub changed: BTreeSet<String>,
    /// What is yet to be done about it beside its own work.
    pub(super) duties: Duties,
    /// The workspace of its own, once there is one.
    pub space: Option<Space>,
    /// Whether the work in it could not be kept.
    pub(super) unkept: bool,
    /// Whether it works itself; a root that only hands down does not.
    pub(super) works: bool,
    /// The command that has to succeed before its work counts as done.
    pub(super) verify: Option<String>,
    /// How often it failed.
    pub(super) checks: u32,
    /// Those of the last answer that could not be read, until it is told.
    pub(super) rejected: Vec<RejectedMarker>,
    /// Answers in a row whose markers led to no task.
    pub(super) vain_markers: usize,
    /// The tasks it asked for so far, by whatever way.
    pub(super) numbered: u64,
}

impl Node {
    pub(super) fn is_exhausted(&self) -> bool {
        self.end_reason.as_ref().is_some_and(|reason| reason.code == Code::ContextExhausted)
    }

    pub(super) fn is_ended_by_full_disk(&self) -> bool {
        self.end_reason.as_ref().is_some_and(|reason| reason.code == Code::DiskFull)
    }

    /// Says whether the disk was full before a final answer could be judged. The answer is judged on resume instead of
    /// asking the model again.
    pub(super) fn is_answer_unjudged(&self) -> bool {
        let is_final = self.last_answer().is_some_and(LastAnswer::is_final);
        is_final && self.last_call.is_none() && self.is_ended_by_full_disk()
    }

    /// Returns a node that has done nothing yet, within `cap`.
    pub(super) fn blank(
        session: SessionId,
        agent: AgentName,
        label: Label,
        rights: Rights,
        cap: Cap,
    ) -> Self {
        Self {
            session,
            agent,
            label,
            depth: 0,
            state: State::Queued,
            started: None,
            deadline: None,
            rights,
            model: None,
            ledger: Ledger { cap, ..Ledger::default() },
            usage: Usage::default(),
            cost: Usd::ZERO,
            turn: 0,
            turn_state: TurnState::default(),
            approved: true,
            parent: None,
            children: Vec::new(),
            ends: Vec::new(),
            live_children: 0,
            granted_children: 0,
            running_children: 0,
            places: 1,
            queue: VecDeque::new(),
            calls_made: 0,
            open_delegations: BTreeMap::new(),
            call: 0,
            total_deadline: None,
            fingerprint: None,
            story: None,
            timeout_s: None,
            bound: TimeBound::Own,
            max_output_wish: None,
            max_turns: None,
            turns_each: None,
            settled_input: None,
            appended_bytes: 0,
            given_context: 0,
            recent_calls: VecDeque::new(),
            last_call: None,
            shortened: false,
            repairs: 0,
            mailbox: VecDeque::new(),
            has_findings: false,
            end_reason: None,
            refusal: None,
            task: None,
            artifacts_required: false,
            artifacts: Vec::new(),
            changed: BTreeSet::new(),
            duties: Duties::default(),
            space: None,
            unkept: false,
            works: true,
            verify: None,
            checks: 0,
            rejected: Vec::new(),
            vain_markers: 0,
            numbered: 0,
        }
    }

    /// Returns the context the next request is expected to fill, for the model's window.
    #[must_use]
    pub fn context_estimate(&self) -> u64 {
        self.given_context
            + self.settled_input.unwrap_or(0).saturating_add(self.appended_bytes.div_ceil(4))
    }

    /// Returns the most input tokens the next request can be billed, for the budget.
    ///
    /// A token is never shorter than a byte, so what was appended since the last bill counts byte
    /// for byte. Before the first bill a third of the bytes is generous for any tokeniser.
    pub(super) fn input_bound(&self) -> u64 {
        self.settled_input.map_or_else(
            || self.appended_bytes.div_ceil(3).saturating_add(FRAMING_TOKENS),
            |input| input.saturating_add(self.appended_bytes),
        )
    }

    /// Says whether a tool call of that turn still lacks its result.
    pub(super) fn awaits(&self, turn: u32, index: u32) -> bool {
        self.turn == turn && self.open_call(index).is_some()
    }

    /// Says whether tasks may be handed down from there: a tool call does so once, while it lacks
    /// its result. Markers are read once by their own account.
    pub(super) fn may_hand_down(&self, origin: Origin) -> bool {
        origin.index.is_none_or(|index| {
            self.awaits(origin.turn, index)
                && self.open_delegations.values().all(|open| open.origin != origin)
        })
    }

    pub(super) const fn is_waiting(&self) -> bool {
        matches!(self.state, State::Queued | State::AwaitingApproval)
    }

    /// Returns the window: what the model holds, or less by policy.
    pub(super) fn window(&self, policy_tokens: Option<u64>) -> Option<u64> {
        let model = self.model.as_ref().map(|model| model.window);
        match (model, policy_tokens) {
            (Some(model), Some(policy)) => Some(model.min(policy)),
            (model, policy) => model.or(policy),
        }
    }
}

/// Tokens a provider adds around a request for roles and tool framing.
const FRAMING_TOKENS: u64 = 64;

/// What is yet to be done about a node beside its own work; several can be open at once. A node is handed up, and the
/// run ends, only once nothing of it is.
#[derive(Clone, Debug, Default)]
pub(super) struct Duties {
    /// What is to be told on the project's list.
    pub(super) tell: Marks,
    /// Whether the work in its workspace is to be kept.
    pub(super) keep: bool,
    /// The commit of its work, while that is to be merged into the workspace above.
    pub(super) merge: Option<String>,
}

/// Tasks that were handed down together, by a tool or by markers.
#[derive(Clone, Copy, Debug)]
pub(super) struct OpenDelegation {
    pub(super) origin: Origin,
    /// Tasks of it that have not ended.
    pub(super) live: u64,
}

/// How a delegation is to end.
#[derive(Clone, Debug)]
pub(super) struct End {
    pub(super) outcome: Outcome,
    pub(super) reason: Option<Reason>,
}

impl End {
    pub(super) const fn completed() -> Self {
        Self { outcome: Outcome::Completed, reason: None }
    }

    pub(super) fn new(outcome: Outcome, code: Code, message: String, recommendation: &str) -> Self {
        // A person can always give more time, tokens or another model; a defect of ours is not
        // mended by asking again.
        let recoverable = code != Code::Internal;
        let recommendation = recommendation.to_owned();
        Self { outcome, reason: Some(Reason { code, message, recommendation, recoverable }) }
    }

    pub(super) fn partial(code: Code, message: String, recommendation: &str) -> Self {
        Self::new(Outcome::Partial, code, message, recommendation)
    }

    pub(super) fn cancelled(session: SessionId) -> Self {
        Self::new(
            Outcome::Cancelled,
            Code::Cancelled,
            "Cancelled before it was done.".into(),
            &format!(
                "`adjutant resume {session}` takes it up again; what was found so far is in the result."
            ),
        )
    }

    /// Recommends nothing that only works for what had begun.
    pub(super) fn before_it_began(mut self) -> Self {
        if let Some(reason) = self.reason.as_mut().filter(|it| it.code == Code::Cancelled) {
            reason.recommendation = "Nothing of it began; call again to ask anew.".into();
        }
        self
    }

    pub(super) fn crashed(message: &str) -> Self {
        Self::new(
            Outcome::Failed,
            Code::Internal,
            format!("Adjutant broke while working on this: {message}"),
            "This is a defect of Adjutant; `adjutant log` holds the backtrace.",
        )
    }

    pub(super) fn disk_full(run: RunId) -> Self {
        Self::partial(
            Code::DiskFull,
            "The disk is full: the journal has no room for another step.".into(),
            &format!("Free space, then `adjutant resume {run}`; what was found so far is kept."),
        )
    }

    /// Returns the end of what works below a delegation that ends so.
    pub(super) fn below(end: &Self, session: SessionId) -> Self {
        match &end.reason {
            // Its own clock may have had time left; whose time ran out is what helps.
            Some(reason) if reason.code == Code::Timeout => Self::partial(
                Code::Timeout,
                "Timed out with the one it worked for.".into(),
                &reason.recommendation,
            ),
            // The disk is full for all of them alike.
            Some(reason) if reason.code == Code::DiskFull => end.clone(),
            Some(_) | None => Self::cancelled(session),
        }
    }
}
