//! The directories agents work in: confined file access, git, workspaces and the sandbox.
//!
//! Turns a path that a model wrote into an open file that certainly lies beneath the workspace root. It does not
//! know tools, limits on what is read, or who may read (see `adjutant-tools`, `core`).
//!
//! Start at [`Root::open`], [`Root::open_file`] and [`Root::file_target`] for files, and at [`space::Workspaces`]
//! for workspaces. Invariant: no path is checked before it is opened; the one system call that opens it also
//! resolves and confines it.

mod dir;
mod dir_write;
mod error;
mod file_target;
mod git;
mod git_guard;
mod kernel;
pub mod overlay;
mod path;
mod private;
mod protected;
mod repository_check;
mod root;
pub mod sandbox;
pub mod space;
pub mod toolchains;
mod trees;

pub use dir::{Dir, DirEntry, DirListing};
pub use dir_write::{DirLock, LockMode};
pub use error::{FileKind, PathError};
pub use file_target::{FileImage, FileMode, FileTarget, MissingParents, Overwrite};
pub use git::{
    BinaryContent, Conflict, ConflictKind, ConflictSide, CreatedCommit, Diff, DiffEntry,
    DiffStatus, FileChange, Git, GitError, HeadRef, KeptRef, LineCounts, MergePreview, NewCommit,
    ObjectId, PatchOptions, Repository, ResultRef, SkipReason, SkippedPath, WorkTreeSnapshot,
    head_around, is_branch_name, layer_changes,
};
pub use git_guard::git_dirs_around;
pub use path::{RelPath, without_dots};
pub use protected::with_link_targets;
pub use repository_check::{why_no_repository, why_results_cannot_be_kept};
pub use root::{OpenedFile, Root};
pub use trees::{
    AppliedResult, ApplyError, ApplyRecovery, ApplyRehearsal, BaseCheckouts, BaseLease,
    BaseLeaseCost, ConflictResolution, DiskUsage, RecoveredApply, ResolveError, UnrestoredFile,
    Worktree, WorktreeEntry, Worktrees, forget_applied, size_on_disk,
};
