//! The workspaces of a run's children: one type, two kinds.
//!
//! An overlay workspace is made in constant time of layers that are only read and one that takes every
//! change; a work tree of git is what there is where overlays cannot be mounted. Both begin with the
//! true state of what they are made from and end as a commit in `refs/adjutant/<run>/<child>`.
//!
//! Git inside a workspace: `.git` is a git directory of its own, read-only for sandboxed programs, with
//! HEAD and the index at the base, and with the objects of the repository borrowed. What reads works
//! (`status`, `diff`, `log`, `show`, `blame`, `ls-files`, `grep`); what writes (`add`, `commit`, `stash`,
//! `checkout` of a branch) fails, and the branches, the configuration and the hooks of the user's
//! repository are not there.
//!
//! Start at [`Workspaces::open`] and [`Workspaces::make`]. Invariant: work is removed only after it is
//! in its reference.

mod adopt;
mod credentials;
mod error;
mod gitdir;
mod ignored_files;
mod interrupted;
mod layers;
mod object_dirs;
mod overlay;
mod record;
mod sweep;
mod take_in;
mod verify;
mod workspace;
mod workspace_dir;
mod workspaces;
mod worktree;

pub use error::WorkspaceError;
pub use record::{WorkspaceBacking, WorkspaceRecord};
pub use sweep::SweptWorkspace;
pub use take_in::TakeInOutcome;
pub use verify::VerifyWorkspace;
pub use workspace::{KeptCommit, SandboxOptions, Workspace};
pub use workspaces::{BackingChoice, WorkspaceOptions, Workspaces};
