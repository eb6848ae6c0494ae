//! Git, through one hardened door.
//!
//! Nothing else in the product runs git. Content is handled in a private git directory that has no
//! configuration to plant anything in (`scratch`); the user's own is asked only about references
//! and work trees.
//!
//! Start at [`Git::find`] and [`Repository::open`]. Invariant: no reference outside
//! `refs/adjutant/` changes, unless a branch is asked for.

mod blob;
mod capture;
mod change;
mod diff;
mod error;
mod excludes;
mod id;
mod ignore;
mod import;
mod listing;
mod merge;
mod own;
mod quarantine;
mod reach;
mod refs;
mod repository;
mod run;
mod scratch;
mod sync;
mod trust;

pub use capture::Snapshot;
pub(crate) use capture::Status;
pub use change::{Change, SkipReason, Skipped, layer_changes};
pub use diff::{Binary, Diff, DiffEntry, DiffStatus, Lines, Patch};
pub use error::GitError;
pub use id::{ObjectId, ResultRef, is_branch_name};
pub use import::{Commit, Committed};
pub use merge::{Conflict, ConflictKind, Preview, Side};
pub use refs::Kept;
pub use repository::Repository;
pub use run::Git;

pub(crate) use blob::blob_id;
pub(crate) use change::{Content, bounded, content, guarded, plain, too_deep};
pub(crate) use import::{FILE_BYTES, Imported, Storing};
pub(crate) use own::DirOwner;
pub(crate) use reach::{Ahead, Work};
pub(crate) use repository::{bytes_of, path_of};
pub(crate) use run::Running;
pub(crate) use scratch::Scratch;
pub(crate) use trust::{open_plain, own_parts, read_pointer};
