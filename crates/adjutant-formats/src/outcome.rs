//! The states and outcomes of a delegation, and their words in tool results and returns.

use serde::{Deserialize, Serialize};

use crate::code::ErrorCode;

/// The state of a delegation.
///
/// There is deliberately no `Interrupted`: it is never stored, readers derive it from a dead process.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DelegationState {
    /// Granted, waiting for a person's approval.
    AwaitingApproval,
    /// Granted, waiting for a free slot.
    Queued,
    /// Its agent is working.
    Running,
    /// Ended with this outcome.
    Ended(Outcome),
}

impl DelegationState {
    /// Returns whether the delegation has not ended yet.
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
    /// All of the work was done.
    Completed,
    /// Some of the work was done, and its results were returned.
    Partial,
    /// There is no usable result.
    Failed,
    /// The work cannot continue without an answer from outside.
    Blocked,
    /// A person or the parent cancelled it.
    Cancelled,
    /// It was refused and never started.
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

    /// Returns the status word of a tool result: `ok`, `partial` or `error`.
    #[must_use]
    pub const fn result_word(self) -> &'static str {
        match self {
            Self::Completed => "ok",
            Self::Partial | Self::Cancelled => "partial",
            Self::Failed | Self::Blocked | Self::Refused => "error",
        }
    }

    /// Returns the status word of a standard return.
    #[must_use]
    pub const fn return_status(self) -> &'static str {
        match self {
            Self::Completed => "completed",
            Self::Partial | Self::Cancelled => "partial",
            Self::Failed | Self::Refused => "failed",
            Self::Blocked => "blocked",
        }
    }

    /// Returns the outcome of a whole from its parts: theirs if all are equal, otherwise `Partial`.
    #[must_use]
    pub fn of_all(parts: impl IntoIterator<Item = Self>) -> Self {
        let mut parts = parts.into_iter();
        // A run without any delegation has no result.
        let Some(first) = parts.next() else { return Self::Failed };
        if parts.all(|part| part == first) { first } else { Self::Partial }
    }
}

/// Why a delegation ended with its outcome, and what to do about it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OutcomeReason {
    /// The stable code.
    pub code: ErrorCode,
    /// What happened, including the numbers.
    pub message: String,
    /// What to do next.
    pub recommendation: String,
    /// Whether a retry can help.
    pub recoverable: bool,
}
