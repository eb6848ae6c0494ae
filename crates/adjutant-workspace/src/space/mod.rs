//! The workspaces of a run's children: one type, backed by an overlay or by a git work tree.
//!
//! An overlay workspace is made in constant time from read-only layers and an upper layer that receives every
//! change; a git work tree is used where overlays cannot be mounted. Both start with the exact state of their
//! origin, uncommitted changes included, and end as a commit in `refs/adjutant/<run>/<child>`.
//!
//! Git inside a workspace: `.git` is a private git directory, read-only for sandboxed programs, with HEAD and the
//! index at the base commit and with the objects of the repository borrowed. Commands that read work (`status`,
//! `diff`, `log`, `show`, `blame`, `ls-files`, `grep`); commands that write (`add`, `commit`, `stash`, `checkout`
//! of a branch) fail, and the branches, configuration and hooks of the user's repository are absent.
//!
//! Start at [`Workspaces::open`] and [`Workspaces::make`]. Invariant: work is removed only after it is kept in its
//! reference.

mod adopt;
mod adopt_foreign;
mod credentials;
mod delegation_dirs;
mod error;
mod git_mounts;
mod gitdir;
mod ignored_files;
mod interrupted;
mod layers;
mod object_dirs;
mod overlay;
mod portable;
mod rebase;
mod record;
mod sweep;
mod take_in;
mod verify;
mod visible_path;
mod workspace;
mod workspace_dir;
mod workspaces;
mod worktree;

pub use error::WorkspaceError;
pub use portable::{
    PortableBase, base_references, create_repository, recreate_checkout, refuse_new_credentials,
    work_reference,
};
pub use rebase::RebasedWorkspace;
pub use record::{WorkspaceBacking, WorkspaceRecord};
pub use sweep::SweepOutcome;
pub use take_in::ChildMergeOutcome;
pub use verify::{KeptFiles, VerifyWorkspace};
pub use workspace::{KeptCommit, SandboxOptions, Workspace};
pub use workspaces::{WorkspaceBackingChoice, WorkspaceOptions, Workspaces};
