//! Tasks: the entries of `TODO.md` and their mirror in `state.json`.
//!
//! Owns how both files are read, how one entry is changed without touching another byte, which
//! status may follow which, and what holds where the files disagree. It reads and writes no file:
//! texts come in, new texts go out. Start at [`Book`]. Invariant: a change returns both texts, and
//! every byte outside what it names is the byte that came in.

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
