//! Tasks: the entries of `TODO.md` and their copies in `state.json`.
//!
//! Owns the parsing of both files, edits of single entries, the allowed status transitions, and which file
//! wins if they disagree. It does no IO: texts come in, new texts go out. Start at [`TaskFiles`]. Invariant:
//! a change returns both texts, and every byte outside the changed entry stays unchanged.

mod change;
mod disagreements;
mod error;
mod errors_json;
mod markdown_lines;
mod new_task;
mod number;
mod state_file;
mod status;
mod task_files;
mod todo_entry;
mod todo_file;

pub use change::{NewTask, TaskArtifact, TaskChange, TaskChangeResult, TaskUpdate};
pub use disagreements::{DisputedField, TaskDisagreement, TaskFile};
pub use error::TaskError;
pub use errors_json::merge_errors;
pub use new_task::TaskPriority;
pub use number::{TaskNumber, TaskNumberError};
pub use state_file::StateFileError;
pub use status::{RefusedTransition, TaskStatus};
pub use task_files::{Task, TaskFiles, TaskFilesError};
