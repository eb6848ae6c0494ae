//! Errors of changing a task, and the length limits of its texts.

use super::number::TaskNumber;
use super::status::{RefusedTransition, TaskStatus};

/// The maximum length of a title; more text belongs in the description.
pub(super) const MAX_TITLE_CHARS: usize = 200;

/// The maximum length of a description, which is read in a list and is not meant for whole files.
pub(super) const MAX_DESCRIPTION_BYTES: usize = 16 * 1024;

/// Why a task cannot be changed as requested.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TaskError {
    /// The task does not exist.
    #[error("there is no task {number}")]
    Unknown {
        /// The requested number.
        number: TaskNumber,
    },
    /// The status change is not allowed.
    #[error("task {number}: {step}")]
    Step {
        /// The task.
        number: TaskNumber,
        /// The refused status change.
        step: RefusedTransition,
    },
    /// The task has an unknown status.
    #[error("task {number} has the unknown status {status}; correct it in TODO.md first")]
    UnknownStatus {
        /// The task.
        number: TaskNumber,
        /// The status as written.
        status: String,
    },
    /// The status needs a reason.
    #[error("{to} needs a reason")]
    NoReason {
        /// The status.
        to: TaskStatus,
    },
    /// The status takes no reason.
    #[error("{to} takes no reason; only blocked and abandoned do")]
    NeedlessReason {
        /// The status.
        to: TaskStatus,
    },
    /// Two tasks have the same number.
    #[error("the number {number} is used more than once; give one of them another")]
    Twice {
        /// The number.
        number: TaskNumber,
    },
    /// The title is empty.
    #[error("a task needs a title")]
    NoTitle,
    /// The title is too long.
    #[error(
        "the title has {chars} characters, limit {MAX_TITLE_CHARS}; put the rest into the description"
    )]
    LongTitle {
        /// Its length.
        chars: usize,
    },
    /// The description is too long.
    #[error(
        "the description has {bytes} bytes, limit {MAX_DESCRIPTION_BYTES}; put it into a file and name the file"
    )]
    LongDescription {
        /// Its length.
        bytes: usize,
    },
    /// The language is not a single word.
    #[error("`{language}` is not a language name; expected one word, such as rust")]
    BadLanguage {
        /// The given value.
        language: String,
    },
    /// The path does not name a file below the project root.
    #[error("`{path}` is not a path below the root of the project")]
    BadPath {
        /// The given value.
        path: String,
    },
    /// All task numbers are used up.
    #[error("there is no task number left; correct next_project_number")]
    NoNumber,
    /// The edited text would not parse to the intended values, because of an unusual file layout.
    #[error(
        "task {number} cannot be edited in place in TODO.md or state.json; nothing was written"
    )]
    Unwritable {
        /// The task.
        number: TaskNumber,
    },
}
