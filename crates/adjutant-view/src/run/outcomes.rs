//! How many ended in which way.

use adjutant_core::{Outcome, State};
use serde::Serialize;

use super::{Delegation, Liveness};

/// Delegations counted by where they stand.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct OutcomeCounts {
    /// Ended with all of it done.
    pub completed: usize,
    /// Ended with some of it done.
    pub partial: usize,
    /// Ended with nothing usable.
    pub failed: usize,
    /// Ended with a question.
    pub blocked: usize,
    /// Stopped by a person or the parent.
    pub cancelled: usize,
    /// Never admitted, or not approved.
    pub refused: usize,
    /// At work.
    pub running: usize,
    /// Waiting for a place or for a person.
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

    const fn place(&mut self, state: &State) -> &mut usize {
        match state {
            State::AwaitingApproval | State::Queued => &mut self.waiting,
            State::Running => &mut self.running,
            State::Ended(Outcome::Completed) => &mut self.completed,
            State::Ended(Outcome::Partial) => &mut self.partial,
            State::Ended(Outcome::Failed) => &mut self.failed,
            State::Ended(Outcome::Blocked) => &mut self.blocked,
            State::Ended(Outcome::Cancelled) => &mut self.cancelled,
            State::Ended(Outcome::Refused) => &mut self.refused,
        }
    }

    /// Returns how many there are.
    #[must_use]
    pub const fn total(&self) -> usize {
        self.ended() + self.live()
    }

    /// Returns how many have ended.
    #[must_use]
    pub const fn ended(&self) -> usize {
        self.completed + self.partial + self.failed + self.blocked + self.cancelled + self.refused
    }

    /// Returns how many can still change.
    #[must_use]
    pub const fn live(&self) -> usize {
        self.running + self.waiting
    }

    /// Returns the counts in words; in a dead run nothing runs or waits any more.
    pub(crate) fn words_in(&self, liveness: Liveness) -> String {
        if liveness == Liveness::Alive || self.live() == 0 {
            return self.words();
        }
        let ended = Self { running: 0, waiting: 0, ..*self };
        let interrupted = format!("{} interrupted", self.live());
        if ended.total() == 0 { interrupted } else { format!("{interrupted}, {}", ended.words()) }
    }

    /// Returns the counts that are not zero, in words: `1 running, 2 complete`.
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
