//! Task numbers, as users type them.

use std::fmt;
use std::num::NonZeroU64;

use serde::{Deserialize, Serialize};

/// The number of a task; never reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct TaskNumber(NonZeroU64);

impl TaskNumber {
    /// The first task number.
    pub const FIRST: Self = Self(NonZeroU64::MIN);

    /// Makes a task number; `None` for zero.
    #[must_use]
    pub fn new(number: u64) -> Option<Self> {
        NonZeroU64::new(number).map(Self)
    }

    /// Parses the argument of `command`: digits without a leading zero.
    ///
    /// # Errors
    ///
    /// If the argument is missing or not a positive number.
    pub fn read(command: &str, typed: Option<&str>) -> Result<Self, TaskNumberError> {
        let typed = typed.map(str::trim).filter(|typed| !typed.is_empty());
        let Some(typed) = typed else {
            return Err(TaskNumberError::Missing { command: command.to_owned() });
        };
        Self::digits(typed).ok_or_else(|| TaskNumberError::NotPositive { got: typed.to_owned() })
    }

    /// Parses digits without a leading zero.
    pub(crate) fn digits(text: &str) -> Option<Self> {
        let plain = !text.starts_with('0') && text.bytes().all(|byte| byte.is_ascii_digit());
        plain.then(|| text.parse().ok()).flatten().and_then(Self::new)
    }

    /// Returns the number.
    #[must_use]
    pub const fn get(self) -> u64 {
        self.0.get()
    }

    /// Returns the next number; `None` after the last.
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

/// Why an argument is not a task number.
///
/// The messages are those of the original command system, so they begin with a capital letter.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TaskNumberError {
    /// The argument is missing.
    #[error("Task number required for /{command} command")]
    Missing {
        /// The command that needs one.
        command: String,
    },
    /// The argument is not a positive integer.
    #[error("Task number must be positive integer, got: {got}")]
    NotPositive {
        /// The argument.
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
