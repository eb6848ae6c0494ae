//! The exit codes, and [`Failure`], the error of every command.

use std::fmt;
use std::process::ExitCode;

use adjutant_core::Outcome;

use crate::hints::completed;

/// The exit code of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Exit {
    /// Everything completed.
    Completed = 0,
    /// Everything failed.
    Failed = 1,
    /// The arguments or the input are invalid.
    Usage = 2,
    /// Some of it completed.
    Partial = 3,
    /// A limit or a person refused it.
    Refused = 4,
    /// An agent is blocked and needs an answer.
    Blocked = 5,
    /// The timeout of a command, or of `wait --timeout`, passed.
    TimedOut = 124,
    /// It was cancelled.
    Cancelled = 130,
}

impl Exit {
    /// Returns the exit code for the outcome of a run.
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

    /// Returns the number.
    pub(crate) const fn code(self) -> u8 {
        self as u8
    }
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit.code())
    }
}

/// Why a command failed: exit code, message, and a hint what to do.
#[derive(Clone, Debug)]
pub(crate) struct Failure {
    /// The exit code.
    pub(crate) exit: Exit,
    message: String,
    hint: Option<String>,
}

impl Failure {
    /// Returns a failure with this exit code.
    pub(crate) fn new(exit: Exit, message: impl Into<String>) -> Self {
        Self { exit, message: message.into(), hint: None }
    }

    /// Returns a failure caused by invalid arguments or input.
    pub(crate) fn usage(message: impl Into<String>) -> Self {
        Self::new(Exit::Usage, message)
    }

    /// Returns the message without the hint.
    pub(crate) fn message(&self) -> &str {
        &self.message
    }

    /// Sets the hint. Commands in it get the `--home` and `--root` that were typed.
    pub(crate) fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(completed(&hint.into()));
        self
    }

    /// Returns a failure with the message of an error and of its sources.
    pub(crate) fn from_error(exit: Exit, error: &(dyn std::error::Error + 'static)) -> Self {
        let mut message = error.to_string();
        let mut source = error.source();
        while let Some(cause) = source {
            let text = cause.to_string();
            // A source that the message already quotes is not repeated.
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
