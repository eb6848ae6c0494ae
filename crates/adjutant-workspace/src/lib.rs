//! Where agents work: the root directory handle and confined paths.
//!
//! Owns how a path a model wrote becomes an open file that certainly lies beneath the workspace.
//! It does not know tools, limits on what is read, or who may read (see `adjutant-tools`, `core`).
//!
//! Start at [`Root::open`], [`Root::open_file`] and [`Root::place`]. Invariant: no check of a path precedes its
//! opening; the kernel resolves and confines in the one call that opens.

mod closed;
mod dir;
mod error;
mod folder;
mod footing;
mod git;
mod git_guard;
mod kernel;
pub mod overlay;
mod path;
mod place;
mod private;
mod root;
pub mod sandbox;
pub mod space;
mod trees;

pub use closed::with_link_targets;
pub use dir::{Dir, Entry, Listing};
pub use error::{FileKind, PathError};
pub use folder::{DirLock, Lock};
pub use footing::{why_no_repository, why_not_kept};
pub use git::{
    Binary, Change, Commit, Committed, Conflict, ConflictKind, Diff, DiffEntry, DiffStatus, Git,
    GitError, Kept, Lines, ObjectId, Patch, Preview, Repository, ResultRef, Side, SkipReason,
    Skipped, Snapshot, is_branch_name, layer_changes,
};
pub use git_guard::git_dirs_around;
pub use path::RelPath;
pub use place::{FileMode, Folders, Image, Over, Place};
pub use root::{OpenedFile, Root};
pub use trees::{
    Applied, ApplyError, Bases, Lease, LeaseCost, Left, Recovered, Recovery, Rehearsed, Worktree,
    WorktreeEntry, Worktrees, forget_applied,
};
