//! A workspace of a delegation's own: where it is, and what was kept of the work in it.
//!
//! The core knows that there is one and waits for it; how it is made is the engine's business.

use serde::{Deserialize, Serialize};

use crate::code::Code;
use crate::outcome::Reason;

/// Returns why work is not whole that could not be committed: it is only in its workspace.
#[must_use]
pub fn commit_failed(problem: &str) -> Reason {
    Reason {
        code: Code::GitCommitFailed,
        message: format!("The work is done, but could not be committed: {problem}"),
        recommendation: "Solve what stopped it, then `adjutant prune` commits the work.".to_owned(),
        recoverable: true,
    }
}

/// Where a delegation works that writes in a tree of its own.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OwnWorkspace {
    /// How it is made.
    pub kind: OwnWorkspaceKind,
    /// Where its tree is seen.
    pub path: String,
    /// The tree it began from, by its git id.
    pub base: String,
    /// The directories it is made of, lowest first; only for an overlay.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub layers: Vec<String>,
    /// What is different in it from the tree it was made from: submodules left empty, and the like.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub remarks: Vec<String>,
}

/// What a person said about agents that write in workspaces of their own, as it holds for a run.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct WorkspaceTerms {
    /// The one kind that may be made; the best there is where none is named.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kind: Option<OwnWorkspaceKind>,
    /// Ignored folders that come along, relative to the tree.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub include_ignored: Vec<String>,
    /// Directories that commands may read beside those of the system, with no link in their paths.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub grants: Vec<String>,
    /// Whether commands run without a sandbox.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub sandbox_off: bool,
    /// What is done with completed results when the run has ended; absent where they are only reported.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub merge: Option<MergeRequest>,
}

/// What a person asked to be done with completed results when a run has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MergeRequest {
    /// Merge them into the files, as uncommitted changes.
    Apply,
    /// Make a branch of each.
    Branch,
}

/// Says why a delegation has no workspace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WorkspaceFailure {
    /// Where it was to be, when that was known.
    pub path: Option<String>,
    /// What went wrong.
    pub problem: String,
    /// Whether the work it was to begin with does not go together with the files there are.
    pub clash: bool,
}

/// How a workspace is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OwnWorkspaceKind {
    /// Layers mounted over each other, in constant time.
    Overlay,
    /// A work tree of git.
    Worktree,
}

impl OwnWorkspaceKind {
    /// Returns the kind in one word.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Overlay => "overlay",
            Self::Worktree => "worktree",
        }
    }
}

/// What was kept of the work in a workspace.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeptWork {
    /// The commit that holds it; absent where nothing was changed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub commit: Option<String>,
    /// The private reference that keeps the commit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reference: Option<String>,
    /// The files that differ from the base.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub files: Vec<ChangedFile>,
    /// What could not be kept and is therefore still in the workspace, each with the reason.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub left: Vec<String>,
    /// What was left out as no work of anybody's, each with the reason.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub skipped: Vec<String>,
}

/// A file that differs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChangedFile {
    /// Its path.
    pub path: String,
    /// How: `added`, `modified`, `deleted`, `type`, `mode`.
    pub how: String,
    /// Lines that were added; absent for what has no lines.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub added: Option<u64>,
    /// Lines that were removed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub removed: Option<u64>,
}

/// What came of merging the work of a delegation into the workspace of the one above it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MergedWork {
    /// The files that changed by it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub files: Vec<String>,
    /// Why nothing was merged, by file.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conflicts: Vec<MergeConflict>,
}

/// A file that two sides changed in ways that do not go together.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MergeConflict {
    /// Its path.
    pub path: String,
    /// What each side did, in words.
    pub what: String,
    /// What the child changed there, as a patch, cut to a few kilobytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub patch: Option<String>,
}

impl KeptWork {
    /// Returns the lines that were added and removed in all.
    #[must_use]
    pub fn lines(&self) -> (u64, u64) {
        let sum = |of: fn(&ChangedFile) -> Option<u64>| self.files.iter().filter_map(of).sum();
        (sum(|file| file.added), sum(|file| file.removed))
    }
}
