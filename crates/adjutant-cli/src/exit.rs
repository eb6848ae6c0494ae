//! Exit codes, in one table, and errors that know theirs.

use std::fmt;
use std::process::ExitCode;

use adjutant_core::Outcome;

use crate::hints::completed;

/// How the command ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Exit {
    /// All completed.
    Completed = 0,
    /// All failed.
    Failed = 1,
    /// The command or its input makes no sense.
    Usage = 2,
    /// Partial or mixed.
    Partial = 3,
    /// Refused by a limit or a person.
    Refused = 4,
    /// Blocked: an answer is needed.
    Blocked = 5,
    /// The time of a command, or that given with `wait --timeout`, is up.
    TimedOut = 124,
    /// Cancelled.
    Cancelled = 130,
}

impl Exit {
    /// Returns how a run that ended so ends the command.
    pub(crate) const fn of(outcome: Outcome) -> Self {
        match outcome {
            Outcome::Completed => Self::Completed,
            Outcome::Partial => Self::Partial,
            Outcome::Failed => Self::Failed,
            Outcome::Blocked => Self::Blocked,
            Outcome::Cancelled => Self::Cancelled,
            Outcome::Refused => Self::Refused,
        }
    }

    /// Returns the number the shell sees.
    pub(crate) const fn code(self) -> u8 {
        self as u8
    }
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit.code())
    }
}

/// Why a command could not do its work: what happened, why, and what to do.
#[derive(Clone, Debug)]
pub(crate) struct Failure {
    /// The exit code.
    pub(crate) exit: Exit,
    message: String,
    hint: Option<String>,
}

impl Failure {
    /// Returns a failure of the given kind.
    pub(crate) fn new(exit: Exit, message: impl Into<String>) -> Self {
        Self { exit, message: message.into(), hint: None }
    }

    /// Returns a failure caused by what the person typed or fed in.
    pub(crate) fn usage(message: impl Into<String>) -> Self {
        Self::new(Exit::Usage, message)
    }

    /// Returns what happened, without what to do next.
    pub(crate) fn message(&self) -> &str {
        &self.message
    }

    /// Adds what to do next.
    pub(crate) fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(completed(&hint.into()));
        self
    }

    /// Returns a failure with an error and all its causes, one after the other.
    pub(crate) fn caused(exit: Exit, error: &(dyn std::error::Error + 'static)) -> Self {
        let mut message = error.to_string();
        let mut source = error.source();
        while let Some(cause) = source {
            let text = cause.to_string();
            // A cause that its effect has quoted already is not said twice.
            if !message.ends_with(&text) {
                message = format!("{message}: {text}");
            }
            source = cause.source();
        }
        Self::new(exit, message)
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)?;
        self.hint.as_ref().map_or(Ok(()), |hint| write!(f, "\n  {hint}"))
    }
}
