//! Where a node is in its life.
//!
//! The phase is never stored in a journal: it is folded from the recorded events. What must happen in each phase is in
//! `due`; beside it a node may owe its mark on the project's list, the keeping of its work, and merges.

use super::Tree;
use super::node::Node;
use super::turn_state::TurnState;
use crate::outcome::{Outcome, Reason, State};

/// Where a node is in its life. Its turn goes along, so that it goes on where it stopped.
#[derive(Clone, Debug)]
pub(super) enum Phase {
    /// A person is asked whether it may begin.
    AwaitingApproval(TurnState),
    /// It waits for a place.
    Queued(TurnState),
    /// Its task is being marked as begun, or its workspace is being made. It takes no turn before.
    MakingWorkspace(TurnState),
    /// It is at work: thinking, retrying, using tools, delegating, being judged or being checked.
    Working(TurnState),
    /// It has ended, and may be taken up again.
    Ended(RecordedEnd),
}

/// How a node ended.
#[derive(Clone, Debug)]
pub(super) struct RecordedEnd {
    pub(super) outcome: Outcome,
    pub(super) reason: Option<Reason>,
    /// Whether it ended before a person said whether it may begin.
    pub(super) is_unapproved: bool,
    /// Where it was in its turn.
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
    /// Returns where it stands.
    #[must_use]
    pub const fn state(&self) -> State {
        match &self.phase {
            Phase::AwaitingApproval(_) => State::AwaitingApproval,
            Phase::Queued(_) => State::Queued,
            Phase::MakingWorkspace(_) | Phase::Working(_) => State::Running,
            Phase::Ended(ending) => State::Ended(ending.outcome),
        }
    }

    /// Says whether it can still change.
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

    /// Says whether it waits for a person or for a place.
    pub(super) const fn is_waiting(&self) -> bool {
        self.phase.is_waiting()
    }

    /// Says whether it has begun and not ended.
    pub(super) const fn is_running(&self) -> bool {
        matches!(self.phase, Phase::MakingWorkspace(_) | Phase::Working(_))
    }

    /// Says whether its model is to be called next.
    pub(super) const fn is_to_think(&self) -> bool {
        matches!(self.phase, Phase::Working(TurnState::Thinking(_, None)))
    }
}

impl Tree {
    /// Folds in that a node is in another phase now. Its turn goes along.
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

    /// Folds in that a node has ended. Nothing of a model call is left: no call is open, and none is tried again.
    pub(super) fn enter_end(&mut self, index: usize, outcome: Outcome, reason: Option<Reason>) {
        self.take_model_call(index);
        let is_unapproved = self.nodes[index].is_awaiting_approval();
        self.enter(index, |turn_state| {
            Phase::Ended(RecordedEnd { outcome, reason, is_unapproved, turn_state })
        });
    }

    /// Folds in that a node may work: at once, or as soon as its beginning is marked and its workspace is made.
    pub(super) fn enter_work(&mut self, index: usize) {
        let node = &self.nodes[index];
        // A node without a model takes no turns, and needs nothing for them.
        let is_unready =
            node.model.is_some() && (node.duties.list_updates.begin || node.needs_space());
        self.enter(index, if is_unready { Phase::MakingWorkspace } else { Phase::Working });
    }

    /// Folds in that something changed which a node at work may need before its next turn.
    pub(super) fn check_readiness(&mut self, index: usize) {
        let node = &self.nodes[index];
        if node.is_running() && node.reservation().is_none() {
            self.enter_work(index);
        }
    }
}
