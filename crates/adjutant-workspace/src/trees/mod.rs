//! Directories made from git trees, and applying changes to the user's own.
//!
//! `bases` caches checkouts for overlays, `worktree` makes work trees where there is no overlay, and `apply` merges
//! results into the user's work tree with the `journal`; `rehearse` only predicts that, and `undone_results` finds
//! applied results that the user has undone; `resolve` makes a work tree in which a person resolves conflicts. `replace` writes merges into workspaces.

mod apply;
mod bases;
mod dates;
mod disk_usage;
mod export;
mod journal;
mod lock;
mod owner_access;
mod rehearse;
mod remove;
mod replace;
mod resolve;
mod undone_results;
mod worktree;

pub use apply::{
    AppliedResult, ApplyError, ApplyRecovery, RecoveredApply, UnrestoredFile, forget_applied,
};
pub(crate) use bases::boot_id;
pub use bases::{BaseCheckouts, BaseLease, BaseLeaseCost};
pub(crate) use dates::CheckoutDates;
pub use disk_usage::{DiskUsage, size_on_disk};
pub(crate) use export::remove_with_empty_parents;
pub(crate) use journal::is_temp_of_replacement;
pub(crate) use lock::FileLock;
pub(crate) use owner_access::{grant_owner_access, grant_top_access_by_handle};
pub use rehearse::ApplyRehearsal;
pub(crate) use remove::remove_all;
pub(crate) use replace::{recover_replacement, remove_journal};
pub use resolve::{ConflictResolution, ResolveError};
pub use worktree::{Worktree, WorktreeEntry, Worktrees};
