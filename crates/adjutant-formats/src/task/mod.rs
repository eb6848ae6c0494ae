//! Tasks: the entries of `TODO.md` and their mirror in `state.json`.
//!
//! Owns how both files are read, how one entry is changed without touching another byte, which
//! status may follow which, and what holds where the files disagree. It reads and writes no file:
//! texts come in, new texts go out. Start at [`Book`]. Invariant: a change returns both texts, and
//! every byte outside what it names is the byte that came in.

mod book;
mod change;
mod disagree;
mod entry;
mod errors;
mod lines;
mod number;
mod plan;
mod refused;
mod state;
mod status;
mod todo;

pub use book::{Book, BookError, Task};
pub use change::{Artifact, Change, Changed, NewTask, Reason, Update};
pub use disagree::{Disagreement, Field, Side};
pub use errors::merge_errors;
pub use number::{NumberError, TaskNumber};
pub use plan::Priority;
pub use refused::TaskError;
pub use state::StateError;
pub use status::{Status, Transition};
