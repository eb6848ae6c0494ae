//! Why a task cannot be changed as it was asked, and the lengths that are judged.

use super::number::TaskNumber;
use super::status::{RefusedTransition, TaskStatus};

/// The longest title; beyond it there is the description.
pub(super) const MAX_TITLE_CHARS: usize = 200;

/// The longest description: what a person reads in a list, not a file that was piped in.
pub(super) const MAX_DESCRIPTION_BYTES: usize = 16 * 1024;

/// Says why a task cannot be changed so.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TaskError {
    /// There is no such task.
    #[error("there is no task {number}")]
    Unknown {
        /// The number asked for.
        number: TaskNumber,
    },
    /// The status may not follow the one the task has.
    #[error("task {number}: {step}")]
    Step {
        /// The task.
        number: TaskNumber,
        /// The step.
        step: RefusedTransition,
    },
    /// The task has a status that means nothing here.
    #[error(
        "task {number} has the status {status}, which is none of ours; correct it in TODO.md first"
    )]
    UnknownStatus {
        /// The task.
        number: TaskNumber,
        /// The status as it is written.
        status: String,
    },
    /// BLOCKED or ABANDONED without a reason.
    #[error("{to} needs a reason")]
    NoReason {
        /// The status.
        to: TaskStatus,
    },
    /// A reason for a status that has none.
    #[error("{to} takes no reason; only blocked and abandoned do")]
    NeedlessReason {
        /// The status.
        to: TaskStatus,
    },
    /// The number stands at two tasks.
    #[error("the number {number} is used more than once; give one of them another")]
    Twice {
        /// The number.
        number: TaskNumber,
    },
    /// The title is empty.
    #[error("a task needs a title")]
    NoTitle,
    /// The title is a text.
    #[error(
        "a title has at most {MAX_TITLE_CHARS} characters, this one has {chars}; put the rest into the description"
    )]
    LongTitle {
        /// Its length.
        chars: usize,
    },
    /// The description is a file.
    #[error(
        "a description has at most {MAX_DESCRIPTION_BYTES} bytes, this one has {bytes}; keep it in a file and name that"
    )]
    LongDescription {
        /// Its length.
        bytes: usize,
    },
    /// The language is no word.
    #[error("`{language}` is no language; it is one word, such as rust")]
    BadLanguage {
        /// What was given.
        language: String,
    },
    /// The path does not name a file below the root of the project.
    #[error("`{path}` is not a path below the root of the project")]
    BadPath {
        /// What was given.
        path: String,
    },
    /// There is no number left.
    #[error("there is no task number left; correct next_project_number")]
    NoNumber,
    /// The new text would not read back as what was meant; the file is laid out too strangely.
    #[error(
        "TODO.md or state.json cannot take the change of task {number} where it stands; nothing was written"
    )]
    Unwritable {
        /// The task.
        number: TaskNumber,
    },
}
