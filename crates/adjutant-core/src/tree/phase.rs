//! Where a node is in its life.
//!
//! The phase is never stored: it follows from what the recorded events left in the node. What must happen in each
//! phase is in `due`; beside it a node may owe its mark on the project's list, the keeping of its work, and merges.

use super::node::Node;
use crate::budget::Reservation;
use crate::message::StopReason;
use crate::outcome::{Outcome, State};
use crate::time::Timestamp;

/// What a node is at.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Phase<'a> {
    /// A person is asked whether it may begin.
    AwaitingApproval,
    /// It waits for a place.
    Queued,
    /// Its task is being marked as begun, or its workspace is being made. It takes no turn before.
    MakingWorkspace,
    /// Its model is called, or is to be called next where no call is under way.
    Thinking(Option<&'a Reservation>),
    /// Its model call failed and is tried again at this instant.
    Retrying(Timestamp),
    /// The tool calls of its last answer are being made.
    UsingTools,
    /// The markers of its last answer are being handed down, or it waits for what they led to. A root without a
    /// model does nothing else.
    Delegating,
    /// Its last answer, which stopped for this reason, is to be judged.
    Judging(StopReason),
    /// The command runs that decides whether its work is done.
    Checking,
    /// It has ended, and may be taken up again.
    Ended(Outcome),
}

impl Node {
    /// Returns where it is in its life.
    #[must_use]
    pub fn phase(&self) -> Phase<'_> {
        match self.state {
            State::AwaitingApproval => return Phase::AwaitingApproval,
            State::Queued => return Phase::Queued,
            State::Ended(outcome) => return Phase::Ended(outcome),
            State::Running => {}
        }
        if self.reservation.is_some() {
            Phase::Thinking(self.reservation.as_ref())
        } else if self.model.is_none() {
            Phase::Delegating
        } else if self.marks.begin || self.needs_space() {
            Phase::MakingWorkspace
        } else if self.open_calls > 0 {
            Phase::UsingTools
        } else if self.checking {
            Phase::Checking
        } else if self.markers.is_some() || self.marked_call().is_some() {
            Phase::Delegating
        } else if let Some(stop) = self.said {
            Phase::Judging(stop)
        } else {
            self.retry_at.map_or(Phase::Thinking(None), Phase::Retrying)
        }
    }
}
