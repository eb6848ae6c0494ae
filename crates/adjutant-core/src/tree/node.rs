//! A node of the tree (the root or a delegation), and how its end is planned.
//!
//! A `PlannedEnd` says how a delegation is about to end. `PendingDuties` are the duties that are
//! left for a node, such as task list updates; `KeepDuty` is one of them: whether its work must
//! still be committed.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use super::node_parts::{
    ContextSize, ContinuationCounts, CorrectionCounts, LoopGuard, NodeDelegations, NodeTimeLimits,
    TaskTerms, TurnLimit, WorkResults,
};
use super::phase::Phase;
use super::task_list::PendingListUpdates;
use super::turn_state::{LastAnswer, TurnState};
use super::workers::WorkerState;
use crate::budget::{BudgetCap, BudgetLedger};
use crate::code::ErrorCode;
use crate::environment::GrantedLimits;
use crate::event::DelegationOrigin;
use crate::ids::{AgentName, Label, RunId, SessionId};
use crate::message::ModelSpec;
use crate::money::Usd;
use crate::outcome::{Outcome, OutcomeReason};
use crate::refusal::TimeBound;
use crate::rights::Rights;
use crate::time::Timestamp;
use crate::usage::Usage;
use crate::workspace::OwnWorkspace;

/// What the tree knows about a delegation or the root.
#[derive(Clone, Debug)]
pub struct Node {
    /// The session id.
    pub session: SessionId,
    /// The agent.
    pub agent: AgentName,
    /// The label.
    pub label: Label,
    /// The depth: the number of edges from the root.
    pub depth: u64,
    pub(super) parent: Option<usize>,
    /// The number of the parent's call that created it.
    pub(super) call: u32,
    /// The phase of its life.
    pub(super) phase: Phase,
    /// What else has to be done for it besides its own work.
    pub(super) duties: PendingDuties,
    /// Its task.
    pub(super) terms: TaskTerms,
    /// Its rights.
    pub rights: Rights,
    /// Its model; absent for a node that only delegates.
    pub model: Option<ModelSpec>,
    /// The external agent that does its work.
    pub(super) worker: Option<Box<WorkerState>>,
    /// Its time limits.
    pub(super) time: NodeTimeLimits,
    /// Its turn limits.
    pub(super) turn_limit: TurnLimit,
    /// Its limits when it was granted, which it was told.
    pub(super) granted_limits: GrantedLimits,
    /// The turns it has begun.
    pub turn: u32,
    /// The budget of it and its descendants.
    pub ledger: BudgetLedger,
    /// The tokens of its own model calls.
    pub usage: Usage,
    /// The cost of its own model calls.
    pub cost: Usd,
    /// The size of its conversation.
    pub(super) context: ContextSize,
    /// Whether and how often a full conversation is continued.
    pub(super) continuations: ContinuationCounts,
    /// A person's messages that were not delivered to its model yet.
    pub(super) mailbox: VecDeque<String>,
    /// How often it was corrected.
    pub(super) corrections: CorrectionCounts,
    /// Its recent calls, to detect loops.
    pub(super) loops: LoopGuard,
    /// The results of its work.
    pub(super) results: WorkResults,
    /// Its delegations.
    pub(super) delegations: NodeDelegations,
    /// Its own workspace, once it was made.
    pub space: Option<OwnWorkspace>,
}

impl Node {
    pub(super) fn is_exhausted(&self) -> bool {
        self.is_ended_by(ErrorCode::ContextExhausted)
    }

    pub(super) fn is_ended_by_full_disk(&self) -> bool {
        self.is_ended_by(ErrorCode::DiskFull)
    }

    fn is_ended_by(&self, code: ErrorCode) -> bool {
        let reason = self.ending().and_then(|ending| ending.reason.as_ref());
        reason.is_some_and(|reason| reason.code == code)
    }

    /// Says whether a full disk ended it before its final answer was judged. On resume that answer
    /// is judged, instead of calling the model again.
    pub(super) fn is_answer_unjudged(&self) -> bool {
        let is_final = self.last_answer().is_some_and(LastAnswer::is_final);
        is_final && self.corrections.last_call.is_none() && self.is_ended_by_full_disk()
    }

    /// Returns a node that has done nothing yet.
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
            worker: None,
            time: NodeTimeLimits {
                started: None,
                deadline: None,
                timeout_s: None,
                bound: TimeBound::Own,
            },
            turn_limit: TurnLimit::default(),
            granted_limits: GrantedLimits::default(),
            turn: 0,
            ledger: BudgetLedger { cap, ..BudgetLedger::default() },
            usage: Usage::default(),
            cost: Usd::ZERO,
            context: ContextSize::default(),
            continuations: ContinuationCounts::default(),
            mailbox: VecDeque::new(),
            corrections: CorrectionCounts::default(),
            loops: LoopGuard::default(),
            results: WorkResults::default(),
            delegations: NodeDelegations { places: 1, ..NodeDelegations::default() },
            space: None,
        }
    }

    /// Returns its deadline.
    #[must_use]
    pub const fn deadline(&self) -> Option<Timestamp> {
        self.time.deadline
    }

    /// Returns the number of the last turn that its definition allows. Inclusive; in that turn it
    /// has to report.
    #[must_use]
    pub const fn max_turns(&self) -> Option<u32> {
        self.turn_limit.max
    }

    /// Returns the files its tools changed.
    #[must_use]
    pub const fn changed(&self) -> &BTreeSet<String> {
        &self.results.changed
    }

    /// Returns the files that its tools were about to change, with the hash of the content before the
    /// first change; `None` for a file that did not exist.
    #[must_use]
    pub const fn originals(&self) -> &BTreeMap<String, Option<String>> {
        &self.results.originals
    }

    /// Returns the estimated size of the next request in tokens, to compare with the model's
    /// window.
    #[must_use]
    pub fn context_estimate(&self) -> u64 {
        self.context.estimate()
    }

    /// Says whether a tool call of that turn has no result yet.
    pub(super) fn awaits_result_of(&self, turn: u32, index: u32) -> bool {
        self.turn == turn && self.open_call(index).is_some()
    }

    /// Says whether a delegation with this origin is allowed: a tool call delegates once, before it
    /// has its result. Markers are guarded by their own turn state.
    pub(super) fn may_hand_down(&self, origin: DelegationOrigin) -> bool {
        origin.index.is_none_or(|index| {
            self.awaits_result_of(origin.turn, index)
                && self.delegations.open.values().all(|open| open.origin != origin)
        })
    }

    /// Returns the context window: that of the model, or the policy's limit if that is smaller.
    pub(super) fn window(&self, policy_tokens: Option<u64>) -> Option<u64> {
        let model = self.model.as_ref().map(|model| model.window);
        match (model, policy_tokens) {
            (Some(model), Some(policy)) => Some(model.min(policy)),
            (model, policy) => model.or(policy),
        }
    }
}

/// What has to be done for a node besides its own work; several duties can be open at once. A
/// node's result reaches its parent, and the run ends, only once none is open.
#[derive(Clone, Debug, Default)]
pub(super) struct PendingDuties {
    /// Updates of the task list.
    pub(super) list_updates: PendingListUpdates,
    /// Whether the work in its workspace has to be committed.
    pub(super) keep: KeepDuty,
    /// The commit that has to be merged into its parent's workspace.
    pub(super) merge: Option<String>,
}

/// Whether the work of an ended node has to be committed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum KeepDuty {
    /// There is nothing to commit, or it was committed.
    #[default]
    Nothing,
    /// It has to be committed.
    Due,
    /// It could not be committed completely.
    Failed,
}

/// How a delegation should end; becomes [`Event::Ended`](crate::Event::Ended).
#[derive(Clone, Debug)]
pub(super) struct PlannedEnd {
    pub(super) outcome: Outcome,
    pub(super) reason: Option<OutcomeReason>,
}

impl PlannedEnd {
    pub(super) const fn completed() -> Self {
        Self { outcome: Outcome::Completed, reason: None }
    }

    pub(super) fn new(
        outcome: Outcome,
        code: ErrorCode,
        message: String,
        recommendation: &str,
    ) -> Self {
        // A person can always grant more time, tokens or another model, but an internal error is
        // not fixed by retrying.
        let recoverable = code != ErrorCode::Internal;
        let recommendation = recommendation.to_owned();
        Self { outcome, reason: Some(OutcomeReason { code, message, recommendation, recoverable }) }
    }

    pub(super) fn partial(code: ErrorCode, message: String, recommendation: &str) -> Self {
        Self::new(Outcome::Partial, code, message, recommendation)
    }

    pub(super) fn cancelled(session: SessionId) -> Self {
        Self::new(
            Outcome::Cancelled,
            ErrorCode::Cancelled,
            "Cancelled before it was done.".into(),
            &format!(
                "`adjutant resume {session}` takes it up again; what was found so far is in the result."
            ),
        )
    }

    /// Replaces a recommendation that only works for a delegation that had begun.
    pub(super) fn before_it_began(mut self) -> Self {
        if let Some(reason) = self.reason.as_mut().filter(|it| it.code == ErrorCode::Cancelled) {
            reason.recommendation = "Nothing of it began; call again to ask anew.".into();
        }
        self
    }

    pub(super) fn crashed(message: &str) -> Self {
        Self::new(
            Outcome::Failed,
            ErrorCode::Internal,
            format!("Adjutant broke while working on this: {message}"),
            "This is a defect of Adjutant; `adjutant log` holds the backtrace.",
        )
    }

    pub(super) fn disk_full(run: RunId) -> Self {
        Self::partial(
            ErrorCode::DiskFull,
            "The disk is full: the journal has no room for another step.".into(),
            &format!("Free space, then `adjutant resume {run}`; what was found so far is kept."),
        )
    }

    /// Returns the end of a descendant when an ancestor ends with `end`.
    pub(super) fn of_descendant(end: &Self, session: SessionId) -> Self {
        match &end.reason {
            // It may have had time left; the ancestor's recommendation is the useful one.
            Some(reason) if reason.code == ErrorCode::Timeout => Self::partial(
                ErrorCode::Timeout,
                "Timed out with the one it worked for.".into(),
                &reason.recommendation,
            ),
            // A full disk affects all of them in the same way.
            Some(reason) if reason.code == ErrorCode::DiskFull => end.clone(),
            Some(_) | None => Self::cancelled(session),
        }
    }
}
