//! The life of a delegation: one internal vocabulary, mapped to others at the edges.

use serde::{Deserialize, Serialize};

use crate::code::Code;

/// Where a delegation stands.
///
/// `interrupted` is missing on purpose: a reader derives it from a dead process, nobody stores it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum State {
    /// Granted, and a person has yet to say yes.
    AwaitingApproval,
    /// Granted, and waiting for a free place.
    Queued,
    /// At work.
    Running,
    /// Over, in one of the ends.
    Ended(Outcome),
}

impl State {
    /// Says whether the delegation can still change.
    #[must_use]
    pub const fn is_live(&self) -> bool {
        !matches!(self, Self::Ended(_))
    }

    /// Returns the state in one word.
    #[must_use]
    pub const fn word(&self) -> &'static str {
        match self {
            Self::AwaitingApproval => "awaiting approval",
            Self::Queued => "queued",
            Self::Running => "running",
            Self::Ended(outcome) => outcome.word(),
        }
    }
}

/// How a delegation ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// All of it was done.
    Completed,
    /// Some of it was done, and what was found came back.
    Partial,
    /// Nothing usable came of it.
    Failed,
    /// It cannot go on without an answer from outside.
    Blocked,
    /// A person or the parent stopped it.
    Cancelled,
    /// It was never admitted.
    Refused,
}

impl Outcome {
    /// Returns the outcome in one word.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Completed => "completed",
            Self::Partial => "partial",
            Self::Failed => "failed",
            Self::Blocked => "blocked",
            Self::Cancelled => "cancelled",
            Self::Refused => "refused",
        }
    }

    /// Returns the word of a tool result: `ok`, `partial` or `error`.
    #[must_use]
    pub const fn result_word(self) -> &'static str {
        match self {
            Self::Completed => "ok",
            Self::Partial | Self::Cancelled => "partial",
            Self::Failed | Self::Blocked | Self::Refused => "error",
        }
    }

    /// Returns the status of a standard return.
    #[must_use]
    pub const fn return_status(self) -> &'static str {
        match self {
            Self::Completed => "completed",
            Self::Partial | Self::Cancelled => "partial",
            Self::Failed | Self::Refused => "failed",
            Self::Blocked => "blocked",
        }
    }

    /// Returns how the whole ends when its parts ended so: all alike, or partial.
    #[must_use]
    pub fn of_all(parts: impl IntoIterator<Item = Self>) -> Self {
        let mut parts = parts.into_iter();
        // A run that delegated nothing has nothing to show for itself.
        let Some(first) = parts.next() else { return Self::Failed };
        if parts.all(|part| part == first) { first } else { Self::Partial }
    }
}

/// Why a delegation ended as it did, and what to do about it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reason {
    /// The stable code.
    pub code: Code,
    /// What happened, with the numbers.
    pub message: String,
    /// What to do next.
    pub recommendation: String,
    /// Whether trying again can help.
    pub recoverable: bool,
}
