//! Directories made from trees of git, and changes brought back into the user's own.
//!
//! Owns warm checkouts that overlays stand on (`bases`), the work trees of children where there is
//! no overlay (`worktree`), and applying a merged result (`apply`, with its `journal`; `rehearse` only tries,
//! `undone` says where nothing is left of it),
//! or one that a workspace takes in (`bring`).

mod apply;
mod bases;
mod bring;
mod export;
mod journal;
mod lock;
mod opening;
mod rehearse;
mod remove;
mod undone;
mod worktree;

pub use apply::{Applied, ApplyError, Left, Recovered, Recovery, forget_applied};
pub(crate) use bases::boot;
pub use bases::{Bases, Lease, LeaseCost};
pub(crate) use bring::{remove_journal, settle};
pub(crate) use export::remove as remove_with_empty_parents;
pub(crate) use journal::is_prepared;
pub(crate) use lock::Held;
pub(crate) use opening::{open_top_of, open_up};
pub use rehearse::Rehearsed;
pub(crate) use remove::remove_all;
pub use worktree::{Worktree, WorktreeEntry, Worktrees};
