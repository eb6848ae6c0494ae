//! The records of verifying work: the command, what happened when it ran, and how commands end.
//!
//! A [`VerifyCommand`] is what a person wants to succeed before work counts as done. [`VerifyFacts`]
//! are what one run of it showed besides its output. [`CommandExit`] says how any shell command
//! ended. When the command runs and what follows from it is decided in `tree::verification`.

use std::fmt;

use serde::{Deserialize, Serialize};

/// A command that must succeed before the work of a delegation counts as done.
///
/// In a journal it is only the command, or an object if `keep` is not empty.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "RecordedVerifyCommand", into = "RecordedVerifyCommand")]
pub struct VerifyCommand {
    /// The shell command.
    pub command: String,
    /// Globs of files that are taken from the base instead of from the work before it runs.
    pub keep: Vec<String>,
}

impl VerifyCommand {
    /// Returns a command that runs with all files of the work.
    #[must_use]
    pub fn new(command: impl Into<String>) -> Self {
        Self { command: command.into(), keep: Vec::new() }
    }
}

impl From<&str> for VerifyCommand {
    fn from(command: &str) -> Self {
        Self::new(command)
    }
}

/// How a [`VerifyCommand`] is written in a journal. Earlier versions wrote only the text.
#[derive(Serialize, Deserialize)]
#[serde(untagged)]
enum RecordedVerifyCommand {
    Text(String),
    WithKeep { command: String, keep: Vec<String> },
}

impl From<RecordedVerifyCommand> for VerifyCommand {
    fn from(recorded: RecordedVerifyCommand) -> Self {
        match recorded {
            RecordedVerifyCommand::Text(command) => Self::new(command),
            RecordedVerifyCommand::WithKeep { command, keep } => Self { command, keep },
        }
    }
}

impl From<VerifyCommand> for RecordedVerifyCommand {
    fn from(VerifyCommand { command, keep }: VerifyCommand) -> Self {
        if keep.is_empty() { Self::Text(command) } else { Self::WithKeep { command, keep } }
    }
}

/// What a run of a verify command showed besides its output.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct VerifyFacts {
    /// How the command ended; absent if it did not run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exit: Option<CommandExit>,
    /// Files that the work changed and that were taken from the base.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub from_base: Vec<String>,
}

impl VerifyFacts {
    /// Says whether there is nothing to record.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// How a shell command ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CommandExit {
    /// It exited with this status.
    Exited(i32),
    /// This signal ended it.
    Signalled(i32),
    /// It was stopped after this many seconds, its timeout.
    TimedOut(u64),
    /// It was stopped because it was cancelled or used more memory or disk space than allowed.
    Stopped,
}

impl CommandExit {
    /// Returns the exit status, if the command exited by itself.
    #[must_use]
    pub const fn status(self) -> Option<i32> {
        match self {
            Self::Exited(status) => Some(status),
            Self::Signalled(_) | Self::TimedOut(_) | Self::Stopped => None,
        }
    }
}

impl fmt::Display for CommandExit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Exited(status) => write!(f, "exit {status}"),
            Self::Signalled(signal) => write!(f, "signal {signal}"),
            Self::TimedOut(seconds) => write!(f, "timed out after {seconds} s"),
            Self::Stopped => f.write_str("stopped"),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_command_without_kept_files_is_recorded_as_its_text() {
        let plain = VerifyCommand::new("make test");
        assert_eq!(json!(plain), json!("make test"));
        let keep = vec!["tests/**".to_owned()];
        let with_keep = VerifyCommand { keep, ..plain.clone() };
        assert_eq!(json!(with_keep), json!({ "command": "make test", "keep": ["tests/**"] }));
        for command in [plain, with_keep] {
            let read: VerifyCommand = serde_json::from_value(json!(command)).unwrap();
            assert_eq!(read, command);
        }
    }
}
