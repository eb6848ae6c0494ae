//! Directories made from trees of git, and changes brought back into the user's own.
//!
//! Owns warm checkouts that overlays stand on (`bases`), the work trees of children where there is
//! no overlay (`worktree`), and applying a merged result (`apply`, with its `journal`; `rehearse` only tries,
//! `undone` says where nothing is left of it),
//! or one that a workspace takes in (`bring`), and putting single paths back (`restore`)
//! with their permissions (`modes`).

mod apply;
mod bases;
mod bring;
mod export;
mod journal;
mod lock;
mod modes;
mod opening;
mod rehearse;
mod remove;
mod restore;
mod undone;
mod worktree;

pub use apply::{Applied, ApplyError, Left, Recovered, Recovery, forget_applied};
pub(crate) use bases::boot;
pub use bases::{Bases, Lease, LeaseCost};
pub(crate) use bring::{remove_journal, settle};
pub(crate) use export::{PLAIN, write_images};
pub(crate) use journal::{is_prepared, sync_disk};
pub(crate) use lock::Held;
pub(crate) use modes::{Umask, bits_at, inhabitants, set_bits};
pub(crate) use opening::{open_top_of, open_up};
pub use rehearse::Rehearsed;
pub(crate) use remove::remove_all;
pub(crate) use restore::{has_folder, is_as, kind_at, put, take_out};
pub use worktree::{Worktree, WorktreeEntry, Worktrees};
