//! The records of a delegation's own workspace: where it is, and which commit keeps its work.
//!
//! The core only waits for it; the engine makes and removes it.
//!
//! [`OwnWorkspace`] is one workspace ([`WorkspaceKind`]: overlay or git worktree),
//! [`WorkspaceFailure`] says why one could not be made, and [`WorkspaceTerms`] are a person's
//! settings for them. [`KeptWork`] is the commit with its [`ChangedFile`]s; [`MergedWork`] is the
//! result of merging it into the parent's workspace, with one [`MergeConflict`] per file in
//! conflict. [`MergeRequest`] says what to do with the results at the end of the run. [`RebasedWork`]
//! is the work of a delegation that goes on with the user's present files, [`RebaseProblem`] why
//! there can be none.

use serde::{Deserialize, Serialize};

use crate::code::ErrorCode;
use crate::ids::SessionId;
use crate::outcome::OutcomeReason;
use crate::verify::VerifyCommand;

/// Returns the reason for a delegation whose work could not be committed and exists only in its
/// workspace.
#[must_use]
pub fn commit_failed(problem: &str) -> OutcomeReason {
    OutcomeReason {
        code: ErrorCode::GitCommitFailed,
        message: format!("The work is done, but could not be committed: {problem}"),
        recommendation: "Solve what stopped it, then `adjutant prune` commits the work.".to_owned(),
        recoverable: true,
    }
}

/// The workspace of a delegation that writes in its own copy of the tree.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OwnWorkspace {
    /// How it was made.
    pub kind: WorkspaceKind,
    /// The path of its tree.
    pub path: String,
    /// The git tree that it started from.
    pub base: String,
    /// The overlay layers, lowest first; empty for a worktree.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub layers: Vec<String>,
    /// Known differences from the original tree, such as submodules that are empty.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub remarks: Vec<String>,
}

/// A person's settings for agents that write in workspaces of their own.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct WorkspaceTerms {
    /// The required kind; absent means the best kind that works here.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kind: Option<WorkspaceKind>,
    /// Git-ignored directories that are copied too, relative to the tree.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub include_ignored: Vec<String>,
    /// Directories outside the workspace that commands may read; their paths contain no symbolic
    /// links.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub grants: Vec<String>,
    /// Whether commands run without a sandbox.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub sandbox_off: bool,
    /// The names of the toolchains of this machine that commands may see. A resumed run shows no others.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub toolchains: Vec<String>,
    /// The names of the toolchains that a person switched off.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub toolchains_off: Vec<String>,
    /// Whether a person switched off all toolchains.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub no_toolchains: bool,
    /// The tools that commands need, such as `cargo`. Agents work only on machines whose commands see all of them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub needed_tools: Vec<String>,
    /// The tools that commands see, with their versions, such as `cargo 1.95, python 3.11`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub commands_see: Option<String>,
    /// What to do with completed results at the end of the run; absent means only report them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub merge: Option<MergeRequest>,
    /// The command that must succeed before the work of an agent below the root counts as done.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub verify: Option<VerifyCommand>,
}

/// What to do with completed results at the end of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MergeRequest {
    /// Merge them into the user's files, as uncommitted changes.
    Apply,
    /// Create a branch for each.
    Branch,
}

/// Why the workspace of a delegation could not be made.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WorkspaceFailure {
    /// The intended path, if it was known.
    pub path: Option<String>,
    /// What went wrong.
    pub problem: String,
    /// Whether the commits it should start with conflict with the user's files.
    pub clash: bool,
}

/// The work of an ended delegation after it was moved onto the present state of the user's files.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RebasedWork {
    /// The delegation.
    pub session: SessionId,
    /// Its new workspace.
    pub space: OwnWorkspace,
    /// The files that contain conflict markers, each with what happened on both sides.
    pub conflicts: Vec<MergeConflict>,
}

/// Why the work of a delegation cannot be moved onto the present state of the user's files.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RebaseProblem {
    /// The run has no such delegation.
    #[error("it is not part of the run")]
    Unknown,
    /// It still works.
    #[error("it has not ended")]
    Live,
    /// It has no workspace of its own.
    #[error("it did not write in a workspace of its own")]
    NoWorkspace,
    /// Its workspace began with the files of a parent's workspace.
    #[error("its workspace began with the work of its parent, not with your files")]
    BelowParent,
    /// Its work is only in its workspace.
    #[error("its work is not committed yet; `adjutant prune` commits it")]
    Uncommitted,
    /// It was refused or failed for good.
    #[error("it cannot be resumed")]
    Final,
}

/// How an own workspace is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WorkspaceKind {
    /// An overlayfs mount, made in constant time.
    Overlay,
    /// A git worktree.
    Worktree,
}

impl WorkspaceKind {
    /// Returns the kind in one word.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Overlay => "overlay",
            Self::Worktree => "worktree",
        }
    }
}

/// The commit that keeps the work of a workspace.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeptWork {
    /// The commit; absent if nothing was changed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub commit: Option<String>,
    /// The private git ref that points to the commit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reference: Option<String>,
    /// The files that differ from the base.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub files: Vec<ChangedFile>,
    /// Paths that could not be committed and remain in the workspace, each with the reason.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub left: Vec<String>,
    /// Paths that were left out on purpose, each with the reason.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub skipped: Vec<String>,
}

/// A file that the work changed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChangedFile {
    /// The path.
    pub path: String,
    /// The kind of change: `added`, `modified`, `deleted`, `type` or `mode`.
    pub how: String,
    /// Added lines; absent for binary files.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub added: Option<u64>,
    /// Removed lines.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub removed: Option<u64>,
}

/// The result of merging a child's work into its parent's workspace.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MergedWork {
    /// The files that the merge changed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub files: Vec<String>,
    /// The conflicts; if there are any, nothing was merged.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conflicts: Vec<MergeConflict>,
}

/// A file with a merge conflict.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MergeConflict {
    /// The path.
    pub path: String,
    /// What each side did.
    pub what: String,
    /// The child's change as a patch, cut to a few kilobytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub patch: Option<String>,
}

impl KeptWork {
    /// Returns the total of added and removed lines.
    #[must_use]
    pub fn lines(&self) -> (u64, u64) {
        let sum = |of: fn(&ChangedFile) -> Option<u64>| self.files.iter().filter_map(of).sum();
        (sum(|file| file.added), sum(|file| file.removed))
    }
}
