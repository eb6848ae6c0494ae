//! One node of the tree, and the ways it can end.

use std::collections::{BTreeSet, VecDeque};

use super::node_parts::{
    ContextSize, Corrections, Delegations, LoopGuard, TaskTerms, TurnLimit, WorkResults, WorkTime,
};
use super::phase::Phase;
use super::task_list::PendingListUpdates;
use super::turn_state::{LastAnswer, TurnState};
use crate::budget::{BudgetCap, BudgetLedger};
use crate::code::Code;
use crate::event::DelegationOrigin;
use crate::ids::{AgentName, Label, RunId, SessionId};
use crate::message::ModelSpec;
use crate::money::Usd;
use crate::outcome::{Outcome, Reason};
use crate::refusal::TimeBound;
use crate::rights::Rights;
use crate::time::Timestamp;
use crate::usage::Usage;
use crate::workspace::OwnWorkspace;

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
    pub(super) parent: Option<usize>,
    /// The call of its parent that it belongs to.
    pub(super) call: u32,
    /// Where it is in its life.
    pub(super) phase: Phase,
    /// What is yet to be done about it beside its own work.
    pub(super) duties: PendingDuties,
    /// What it was given to do.
    pub(super) terms: TaskTerms,
    /// What it may do.
    pub rights: Rights,
    /// What its model can hold and charges; absent for a node that only delegates.
    pub model: Option<ModelSpec>,
    /// How long it may work.
    pub(super) time: WorkTime,
    /// How many turns it may take.
    pub(super) turn_limit: TurnLimit,
    /// The turns it has taken or begun.
    pub turn: u32,
    /// Tokens, money and caps of it and all below it.
    pub ledger: BudgetLedger,
    /// What its own model calls consumed.
    pub usage: Usage,
    /// What its own model calls cost.
    pub cost: Usd,
    /// How large its conversation is.
    pub(super) context: ContextSize,
    /// What a person said that its model has not been told yet.
    pub(super) mailbox: VecDeque<String>,
    /// What it was told because its answers fell short.
    pub(super) corrections: Corrections,
    /// What it did of late.
    pub(super) loops: LoopGuard,
    /// What came of its work.
    pub(super) results: WorkResults,
    /// What it handed down.
    pub(super) delegations: Delegations,
    /// The workspace of its own, once there is one.
    pub space: Option<OwnWorkspace>,
}

impl Node {
    pub(super) fn is_exhausted(&self) -> bool {
        self.is_ended_by(Code::ContextExhausted)
    }

    pub(super) fn is_ended_by_full_disk(&self) -> bool {
        self.is_ended_by(Code::DiskFull)
    }

    fn is_ended_by(&self, code: Code) -> bool {
        let reason = self.ending().and_then(|ending| ending.reason.as_ref());
        reason.is_some_and(|reason| reason.code == code)
    }

    /// Says whether the disk was full before a final answer could be judged. The answer is judged on resume instead of
    /// asking the model again.
    pub(super) fn is_answer_unjudged(&self) -> bool {
        let is_final = self.last_answer().is_some_and(LastAnswer::is_final);
        is_final && self.corrections.last_call.is_none() && self.is_ended_by_full_disk()
    }

    /// Returns a node that has done nothing yet, within `cap`.
    pub(super) fn blank(
        session: SessionId,
        agent: AgentName,
        label: Label,
        rights: Rights,
        cap: BudgetCap,
    ) -> Self {
        Self {
            session,
            agent,
            label,
            depth: 0,
            parent: None,
            call: 0,
            phase: Phase::Queued(TurnState::default()),
            duties: PendingDuties::default(),
            terms: TaskTerms {
                fingerprint: None,
                story: None,
                task: None,
                works: true,
                verify: None,
                artifacts_required: false,
                max_output_wish: None,
            },
            rights,
            model: None,
            time: WorkTime {
                started: None,
                deadline: None,
                timeout_s: None,
                bound: TimeBound::Own,
            },
            turn_limit: TurnLimit::default(),
            turn: 0,
            ledger: BudgetLedger { cap, ..BudgetLedger::default() },
            usage: Usage::default(),
            cost: Usd::ZERO,
            context: ContextSize::default(),
            mailbox: VecDeque::new(),
            corrections: Corrections::default(),
            loops: LoopGuard::default(),
            results: WorkResults::default(),
            delegations: Delegations { places: 1, ..Delegations::default() },
            space: None,
        }
    }

    /// Returns the instant it must have ended by.
    #[must_use]
    pub const fn deadline(&self) -> Option<Timestamp> {
        self.time.deadline
    }

    /// Returns the turns its definition allows. Inclusive; the last of them is a last call.
    #[must_use]
    pub const fn max_turns(&self) -> Option<u32> {
        self.turn_limit.max
    }

    /// Returns the files its tools changed.
    #[must_use]
    pub const fn changed(&self) -> &BTreeSet<String> {
        &self.results.changed
    }

    /// Returns the context the next request is expected to fill, for the model's window.
    #[must_use]
    pub fn context_estimate(&self) -> u64 {
        self.context.estimate()
    }

    /// Says whether a tool call of that turn still lacks its result.
    pub(super) fn awaits(&self, turn: u32, index: u32) -> bool {
        self.turn == turn && self.open_call(index).is_some()
    }

    /// Says whether tasks may be handed down from there: a tool call does so once, while it lacks
    /// its result. Markers are read once by their own account.
    pub(super) fn may_hand_down(&self, origin: DelegationOrigin) -> bool {
        origin.index.is_none_or(|index| {
            self.awaits(origin.turn, index)
                && self.delegations.open.values().all(|open| open.origin != origin)
        })
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

/// What is yet to be done about a node beside its own work; several can be open at once. A node is handed up, and the
/// run ends, only once nothing of it is.
#[derive(Clone, Debug, Default)]
pub(super) struct PendingDuties {
    /// What is to be told on the project's list.
    pub(super) list_updates: PendingListUpdates,
    /// Whether the work in its workspace is to be kept.
    pub(super) keep: KeepDuty,
    /// The commit of its work, while that is to be merged into the workspace above.
    pub(super) merge: Option<String>,
}

/// Whether the work of a node that has ended is to be kept.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum KeepDuty {
    /// There is none, or it was kept.
    #[default]
    Nothing,
    /// It is to be kept.
    Due,
    /// It could not be kept, or not all of it.
    Failed,
}

/// How a delegation is to end.
#[derive(Clone, Debug)]
pub(super) struct PlannedEnd {
    pub(super) outcome: Outcome,
    pub(super) reason: Option<Reason>,
}

impl PlannedEnd {
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
