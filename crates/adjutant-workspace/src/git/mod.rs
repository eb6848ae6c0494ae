//! Git operations, all through one hardened wrapper (`run`).
//!
//! Nothing else in Adjutant runs git. Content is handled in a private git directory without any configuration in
//! which a helper could be planted (`scratch`); the user's own git directory is used only for references and work
//! trees.
//!
//! Start at [`Git::find`] and [`Repository::open`]. Invariant: no reference outside `refs/adjutant/` changes,
//! unless a branch is requested.

mod blob;
mod bundle;
mod capture;
mod change;
mod diff;
mod error;
mod excluded_dirs;
mod excludes;
mod head_file;
mod history;
mod id;
mod ignore;
mod import;
mod listing;
mod loose;
mod merge;
mod quarantine;
mod refs;
mod repository;
mod run;
mod scratch;
mod sync;
mod trust;

pub use capture::WorkTreeSnapshot;
pub(crate) use capture::{READ_IN_EVERY_DIR, WorkTreeStatus};
pub use change::{FileChange, SkipReason, SkippedPath, layer_changes};
pub use diff::{BinaryContent, Diff, DiffEntry, DiffStatus, LineCounts, PatchOptions};
pub use error::GitError;
pub use head_file::{HeadRef, head_around};
pub use id::{ObjectId, ResultRef, is_branch_name};
pub use import::{CreatedCommit, NewCommit};
pub(crate) use merge::CONFLICT_LABELS;
pub use merge::{Conflict, ConflictKind, ConflictSide, MergePreview};
pub use refs::KeptRef;
pub use repository::Repository;
pub use run::Git;

pub(crate) use blob::blob_id;
pub(crate) use change::{
    OpenedContent, check_change_count, content_at, has_only_normal_components, is_in_dot_git,
    is_too_deep,
};
pub(crate) use excluded_dirs::DirOwner;
pub(crate) use history::{CommitRange, MissingWork};
pub(crate) use import::{FILE_BYTES, ImportedCommit, ObjectStorage};
pub(crate) use repository::{bytes_of, path_of};
pub(crate) use run::RunningGit;
pub(crate) use scratch::ScratchGitDir;
pub(crate) use trust::{has_essential_parts, open_regular_file, read_pointer};
