//! The phases of a node's life: waiting, preparing, working, ended.
//!
//! A phase is not stored in the journal but folded from the events. `due` says what must happen in
//! each phase.
//!
//! `RecordedEnd` is how an ended node ended.

use super::Tree;
use super::node::Node;
use super::turn_state::TurnState;
use crate::outcome::{DelegationState, Outcome, OutcomeReason};

/// The phase of a node. Each variant carries the turn state, so that a resumed node continues where
/// it stopped.
#[derive(Clone, Debug)]
pub(super) enum Phase {
    /// It waits for a person's approval.
    AwaitingApproval(TurnState),
    /// It waits for a concurrency slot.
    Queued(TurnState),
    /// The task list is being updated or its workspace is being made; it takes no turn before.
    MakingWorkspace(TurnState),
    /// It works: see [`TurnState`].
    Working(TurnState),
    /// It has ended, and may be resumed.
    Ended(RecordedEnd),
}

/// How a node ended, as recorded.
#[derive(Clone, Debug)]
pub(super) struct RecordedEnd {
    pub(super) outcome: Outcome,
    pub(super) reason: Option<OutcomeReason>,
    /// Whether it ended while waiting for approval.
    pub(super) is_unapproved: bool,
    /// The turn state when it ended.
    turn_state: TurnState,
}

impl Phase {
    pub(super) const fn turn_state(&self) -> &TurnState {
        match self {
            Self::AwaitingApproval(turn_state)
            | Self::Queued(turn_state)
            | Self::MakingWorkspace(turn_state)
            | Self::Working(turn_state)
            | Self::Ended(RecordedEnd { turn_state, .. }) => turn_state,
        }
    }

    pub(super) const fn turn_state_mut(&mut self) -> &mut TurnState {
        match self {
            Self::AwaitingApproval(turn_state)
            | Self::Queued(turn_state)
            | Self::MakingWorkspace(turn_state)
            | Self::Working(turn_state)
            | Self::Ended(RecordedEnd { turn_state, .. }) => turn_state,
        }
    }

    const fn is_waiting(&self) -> bool {
        matches!(self, Self::AwaitingApproval(_) | Self::Queued(_))
    }
}

impl Node {
    /// Returns its state for display.
    #[must_use]
    pub const fn state(&self) -> DelegationState {
        match &self.phase {
            Phase::AwaitingApproval(_) => DelegationState::AwaitingApproval,
            Phase::Queued(_) => DelegationState::Queued,
            Phase::MakingWorkspace(_) | Phase::Working(_) => DelegationState::Running,
            Phase::Ended(ending) => DelegationState::Ended(ending.outcome),
        }
    }

    /// Says whether it has not ended.
    #[must_use]
    pub const fn is_live(&self) -> bool {
        self.ending().is_none()
    }

    /// Returns how it ended, once it has.
    pub(super) const fn ending(&self) -> Option<&RecordedEnd> {
        if let Phase::Ended(ending) = &self.phase { Some(ending) } else { None }
    }

    /// Returns the outcome it ended with, once it has.
    pub(super) fn outcome(&self) -> Option<Outcome> {
        self.ending().map(|ending| ending.outcome)
    }

    pub(super) const fn is_awaiting_approval(&self) -> bool {
        matches!(self.phase, Phase::AwaitingApproval(_))
    }

    pub(super) const fn is_queued(&self) -> bool {
        matches!(self.phase, Phase::Queued(_))
    }

    /// Says whether it waits for approval or for a slot.
    pub(super) const fn is_waiting(&self) -> bool {
        self.phase.is_waiting()
    }

    /// Says whether it has begun and not ended.
    pub(super) const fn is_running(&self) -> bool {
        matches!(self.phase, Phase::MakingWorkspace(_) | Phase::Working(_))
    }

    /// Says whether its model has to be called next.
    pub(super) const fn is_to_think(&self) -> bool {
        matches!(self.phase, Phase::Working(TurnState::Thinking(_, None)))
    }
}

impl Tree {
    /// Moves a node to another phase, keeping its turn state.
    pub(super) fn enter(&mut self, index: usize, phase: impl FnOnce(TurnState) -> Phase) {
        let node = &mut self.nodes[index];
        let was_waiting = node.is_waiting();
        let turn_state = std::mem::take(node.phase.turn_state_mut());
        node.phase = phase(turn_state);
        match (was_waiting, node.is_waiting()) {
            (true, false) => self.waiting = self.waiting.saturating_sub(1),
            (false, true) => self.waiting += 1,
            (true, true) | (false, false) => {}
        }
    }

    /// Moves a node to the phase `Ended`; no model call stays open, and none is retried.
    pub(super) fn enter_end(
        &mut self,
        index: usize,
        outcome: Outcome,
        reason: Option<OutcomeReason>,
    ) {
        self.take_model_call(index);
        let is_unapproved = self.nodes[index].is_awaiting_approval();
        self.enter(index, |turn_state| {
            Phase::Ended(RecordedEnd { outcome, reason, is_unapproved, turn_state })
        });
    }

    /// Lets a node work: at once, or when the task list is updated and its workspace is made.
    pub(super) fn enter_work(&mut self, index: usize) {
        let node = &self.nodes[index];
        // A node without a model takes no turns, so it needs no preparation.
        let is_unready =
            node.model.is_some() && (node.duties.list_updates.begin || node.needs_space());
        self.enter(index, if is_unready { Phase::MakingWorkspace } else { Phase::Working });
    }

    /// Rechecks whether a running node may take turns, after something that it waits for changed.
    pub(super) fn check_readiness(&mut self, index: usize) {
        let node = &self.nodes[index];
        if node.is_running() && node.reservation().is_none() {
            self.enter_work(index);
        }
    }
}
