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
mod error;
mod gitdir;
mod ignored;
mod interrupted;
mod layers;
mod objects;
mod overlay;
mod record;
mod secrets;
mod slot;
mod sweep;
mod take_in;
mod verify;
mod workspace;
mod workspaces;
mod worktree;

pub use error::SpaceError;
pub use record::{Kind, Record};
pub use sweep::Swept;
pub use take_in::TakenIn;
pub use verify::VerifyWorkspace;
pub use workspace::{Kept, SandboxWish, Workspace};
pub use workspaces::{KindWish, Options, Workspaces};
