//! Directories made from trees of git, and changes brought back into the user's own.
//!
//! Owns warm checkouts that overlays stand on (`bases`), the work trees of children where there is
//! no overlay (`worktree`), and applying a merged result (`apply`, with its `journal`; `rehearse` only tries,
//! `undone` says where nothing is left of it),
//! or one that a workspace takes in (`bring`).

mod apply;
mod bases;
mod export;
mod journal;
mod lock;
mod owner_access;
mod rehearse;
mod remove;
mod replace;
mod undone_results;
mod worktree;

pub use apply::{
    AppliedResult, ApplyError, ApplyRecovery, RecoveredApply, UnrestoredFile, forget_applied,
};
pub(crate) use bases::boot_id;
pub use bases::{BaseCheckouts, BaseLease, BaseLeaseCost};
pub(crate) use export::remove_with_empty_parents;
pub(crate) use journal::is_temp_of_replacement;
pub(crate) use lock::FileLock;
pub(crate) use owner_access::{grant_owner_access, grant_top_access_by_handle};
pub use rehearse::ApplyRehearsal;
pub(crate) use remove::remove_all;
pub(crate) use replace::{recover_replacement, remove_journal};
pub use worktree::{Worktree, WorktreeEntry, Worktrees};
