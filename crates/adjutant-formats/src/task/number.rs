//! Task numbers as people type them.

use std::fmt;
use std::num::NonZeroU64;

use serde::{Deserialize, Serialize};

/// The number of a task; given once and never again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct TaskNumber(NonZeroU64);

impl TaskNumber {
    /// The first number there is.
    pub const FIRST: Self = Self(NonZeroU64::MIN);

    /// Takes a number that is not zero.
    #[must_use]
    pub fn new(number: u64) -> Option<Self> {
        NonZeroU64::new(number).map(Self)
    }

    /// Reads what was typed after `command`: digits, the first of them not 0.
    ///
    /// # Errors
    ///
    /// When nothing was typed, or something that is no such number.
    pub fn read(command: &str, typed: Option<&str>) -> Result<Self, TaskNumberError> {
        let typed = typed.map(str::trim).filter(|typed| !typed.is_empty());
        let Some(typed) = typed else {
            return Err(TaskNumberError::Missing { command: command.to_owned() });
        };
        Self::digits(typed).ok_or_else(|| TaskNumberError::NotPositive { got: typed.to_owned() })
    }

    /// Reads digits, the first of them not 0.
    pub(crate) fn digits(text: &str) -> Option<Self> {
        let plain = !text.starts_with('0') && text.bytes().all(|byte| byte.is_ascii_digit());
        plain.then(|| text.parse().ok()).flatten().and_then(Self::new)
    }

    /// Returns the number.
    #[must_use]
    pub const fn get(self) -> u64 {
        self.0.get()
    }

    /// Returns the number after this one; none after the last.
    #[must_use]
    pub fn next(self) -> Option<Self> {
        self.0.checked_add(1).map(Self)
    }
}

impl fmt::Display for TaskNumber {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Says why what was typed is no task number.
///
/// The texts are those of the command system the numbers come from, so they begin with a capital.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TaskNumberError {
    /// Nothing was typed.
    #[error("Task number required for /{command} command")]
    Missing {
        /// The command that needs one.
        command: String,
    },
    /// Something else was typed.
    #[error("Task number must be positive integer, got: {got}")]
    NotPositive {
        /// What was typed.
        got: String,
    },
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_read_and_refused_in_the_words_of_the_commands() {
        let read = |typed: Option<&str>| match TaskNumber::read("plan", typed) {
            Ok(number) => number.to_string(),
            Err(error) => error.to_string(),
        };
        assert_eq!(read(Some("12")), "12");
        assert_eq!(read(Some(" 7 ")), "7");
        for nothing in [None, Some(""), Some("  ")] {
            assert_eq!(read(nothing), "Task number required for /plan command");
        }
        for typed in ["0", "-1", "+1", "007", "abc", "1.5", "12abc", "٣", "99999999999999999999"] {
            assert_eq!(
                read(Some(typed)),
                format!("Task number must be positive integer, got: {typed}")
            );
        }
    }
}
