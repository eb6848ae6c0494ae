//! Counts of delegations by state.
//!
//! [`OutcomeCounts`] is one number per state.

use adjutant_core::{DelegationState, Outcome};
use serde::Serialize;

use super::{Delegation, ProcessLiveness};

/// The number of delegations in each state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct OutcomeCounts {
    /// Completed.
    pub completed: usize,
    /// Ended with a usable part of the work.
    pub partial: usize,
    /// Ended without usable work.
    pub failed: usize,
    /// Ended with a question.
    pub blocked: usize,
    /// Cancelled by a person or the parent.
    pub cancelled: usize,
    /// Never admitted, or not approved.
    pub refused: usize,
    /// Running.
    pub running: usize,
    /// Waiting for a slot or for a person.
    pub waiting: usize,
}

impl OutcomeCounts {
    /// Counts `delegations`.
    pub fn of<'a>(delegations: impl IntoIterator<Item = &'a Delegation>) -> Self {
        let mut counts = Self::default();
        for delegation in delegations {
            *counts.place(&delegation.state) += 1;
        }
        counts
    }

    const fn place(&mut self, state: &DelegationState) -> &mut usize {
        match state {
            DelegationState::AwaitingApproval | DelegationState::Queued => &mut self.waiting,
            DelegationState::Running => &mut self.running,
            DelegationState::Ended(Outcome::Completed) => &mut self.completed,
            DelegationState::Ended(Outcome::Partial) => &mut self.partial,
            DelegationState::Ended(Outcome::Failed) => &mut self.failed,
            DelegationState::Ended(Outcome::Blocked) => &mut self.blocked,
            DelegationState::Ended(Outcome::Cancelled) => &mut self.cancelled,
            DelegationState::Ended(Outcome::Refused) => &mut self.refused,
        }
    }

    /// Returns the number of delegations.
    #[must_use]
    pub const fn total(&self) -> usize {
        self.ended_count() + self.live()
    }

    /// Returns how many have ended.
    #[must_use]
    pub const fn ended_count(&self) -> usize {
        self.completed + self.partial + self.failed + self.blocked + self.cancelled + self.refused
    }

    /// Returns how many have not ended.
    #[must_use]
    pub const fn live(&self) -> usize {
        self.running + self.waiting
    }

    /// Returns the counts as text; in a dead run, live delegations count as interrupted.
    pub(crate) fn words_in(&self, liveness: ProcessLiveness) -> String {
        if liveness == ProcessLiveness::Alive || self.live() == 0 {
            return self.words();
        }
        let ended = Self { running: 0, waiting: 0, ..*self };
        let interrupted = format!("{} interrupted", self.live());
        if ended.total() == 0 { interrupted } else { format!("{interrupted}, {}", ended.words()) }
    }

    /// Returns the nonzero counts as text: `1 running, 2 complete`.
    #[must_use]
    pub fn words(&self) -> String {
        let counts = [
            (self.running, "running"),
            (self.waiting, "waiting"),
            (self.completed, "complete"),
            (self.partial, "partial"),
            (self.failed, "failed"),
            (self.blocked, "blocked"),
            (self.cancelled, "cancelled"),
            (self.refused, "refused"),
        ];
        let said: Vec<String> = counts
            .into_iter()
            .filter(|(count, _)| *count > 0)
            .map(|(count, word)| format!("{count} {word}"))
            .collect();
        if said.is_empty() { "none".into() } else { said.join(", ") }
    }
}
