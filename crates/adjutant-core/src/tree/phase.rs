//! Where a node is in its life.
//!
//! The phase is never stored: it follows from what the recorded events left in the node. What must happen in each
//! phase is in `due`; beside it a node may owe its mark on the project's list, the keeping of its work, and merges.

use super::node::Node;
use super::turn_state::{LastAnswer, OpenCalls, TurnState};
use crate::budget::Reservation;
use crate::outcome::{Outcome, State};
use crate::story::Markers;

/// What a node is at.
#[derive(Clone, Copy, Debug)]
pub(super) enum Phase<'a> {
    /// A person is asked whether it may begin.
    AwaitingApproval,
    /// It waits for a place.
    Queued,
    /// Its task is being marked as begun, or its workspace is being made. It takes no turn before.
    MakingWorkspace,
    /// Its model is called, or is to be called next where no call is under way.
    Thinking(Option<&'a Reservation>),
    /// Its model call failed, and the clock tries it again.
    Retrying,
    /// The tool calls of its last answer are being made.
    UsingTools(&'a OpenCalls),
    /// The markers of its last answer are to be handed down, or it waits for what they led to. A root without a
    /// model does nothing else.
    Delegating(Option<&'a Markers>),
    /// Its last answer is to be judged.
    Judging(LastAnswer),
    /// The command runs that decides whether its work is done.
    Checking,
    /// It has ended, and may be taken up again.
    Ended(Outcome),
}

impl Node {
    /// Returns where it is in its life.
    pub(super) fn phase(&self) -> Phase<'_> {
        match self.state {
            State::AwaitingApproval => return Phase::AwaitingApproval,
            State::Queued => return Phase::Queued,
            State::Ended(outcome) => return Phase::Ended(outcome),
            State::Running if self.model.is_none() => return Phase::Delegating(None),
            State::Running => {}
        }
        let is_called = self.reservation().is_some();
        if !is_called && (self.duties.tell.begin || self.needs_space()) {
            return Phase::MakingWorkspace;
        }
        match &self.turn_state {
            TurnState::UsingTools(calls) => Phase::UsingTools(calls),
            TurnState::Checking(_) => Phase::Checking,
            TurnState::Marked(markers) => Phase::Delegating(Some(markers)),
            TurnState::Judging(_) | TurnState::Thinking(_)
                if !is_called && self.handed_down.marked_call().is_some() =>
            {
                Phase::Delegating(None)
            }
            TurnState::Judging(answer) => Phase::Judging(*answer),
            TurnState::Thinking(attempts) if attempts.retry_at.is_some() => Phase::Retrying,
            TurnState::Thinking(attempts) => Phase::Thinking(attempts.reservation.as_ref()),
        }
    }

    /// Says whether its model is to be called next.
    pub(super) fn is_to_think(&self) -> bool {
        matches!(self.phase(), Phase::Thinking(None))
    }
}
