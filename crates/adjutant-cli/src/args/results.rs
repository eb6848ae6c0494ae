//! The arguments of the commands that show, merge and discard the results of agents.

use std::path::PathBuf;

use adjutant_core::workspace::MergeRequest;
use clap::{Args, ValueEnum};

use super::NAME;

/// The arguments of `adjutant diff`, which shows what the subagents of a run changed.
#[derive(Debug, Args)]
#[command(after_help = DIFF_HELP)]
pub(crate) struct DiffResultsArgs {
    /// The run or session: an id or its beginning, or a label or '#N' of the latest run with results [default: all
    /// results of that run].
    #[arg(value_name = NAME)]
    pub(crate) run: Option<String>,

    /// Show only these files and directories.
    #[arg(value_name = "PATH")]
    pub(crate) paths: Vec<PathBuf>,

    /// List the changed files with line counts instead.
    #[arg(long)]
    pub(crate) stat: bool,
}

const DIFF_HELP: &str = "\
Examples:
  adjutant diff                            what the latest run in this directory changed
  adjutant diff --stat
  adjutant diff sess_1735460684_k3x9f2 src/parser.rs
  adjutant diff '#2'                       the result of the second task of that run
  adjutant diff latest > work.patch && git apply --3way work.patch

A result is compared with the files its agent started from, including uncommitted ones, so only the agent's own
changes are shown. On a terminal the output is coloured (unless NO_COLOR is set) and control characters are made
visible; a file or a pipe gets the exact bytes. The name of each result is printed to standard error.";

/// The arguments of `adjutant merge`, which merges a run's changes into the user's files, or undoes that.
#[derive(Debug, Args)]
#[command(after_help = MERGE_HELP)]
pub(crate) struct MergeResultsArgs {
    /// The run or session: an id or its beginning, or a label or '#N' of the latest run with results [default: all
    /// results of that run].
    #[arg(value_name = NAME)]
    pub(crate) run: Option<String>,

    /// Where to merge to.
    #[arg(long = "as", value_enum, value_name = "HOW", default_value = "apply")]
    pub(crate) how: MergeMode,

    /// Show what would happen, and change nothing.
    #[arg(long)]
    pub(crate) dry_run: bool,

    /// Undo an earlier merge into the files, unless they have changed since.
    #[arg(long, conflicts_with_all = ["how", "dry_run"])]
    pub(crate) undo: bool,

    /// Make a worktree with conflict markers, in which you resolve the conflicts of one result.
    #[arg(long, conflicts_with_all = ["how", "dry_run", "undo", "only_commits"])]
    pub(crate) resolve: bool,

    /// With --resolve: merge what is in the worktree now, and remove the worktree.
    #[arg(long = "continue", requires = "resolve", conflicts_with = "abort")]
    pub(crate) go_on: bool,

    /// With --resolve: remove the worktree; the result stays as it is.
    #[arg(long, requires = "resolve")]
    pub(crate) abort: bool,

    /// Refuse unless exactly these commits are the results: what a person approved for an MCP client.
    #[arg(
        long,
        hide = true,
        value_name = "COMMITS",
        value_delimiter = ',',
        conflicts_with = "undo"
    )]
    pub(crate) only_commits: Vec<String>,
}

/// How results are merged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum MergeMode {
    /// Into your files, as uncommitted changes; the index and branches stay as they are.
    Apply,
    /// To a branch per result, adjutant/RUN-SESSION; no files change.
    Branch,
}

const MERGE_HELP: &str = "\
Examples:
  adjutant merge --dry-run                 which results merge cleanly, and which files conflict
  adjutant merge                           all results of the latest run in this directory
  adjutant merge parser --as branch        only the result of the task with the label parser
  adjutant merge --undo                    undo the merge
  adjutant merge --resolve parser          a worktree to resolve the conflicts of that result in
  adjutant merge --resolve parser --continue    merge what you made of it; --abort gives up

Results are merged one after the other, each completely or not at all. A result with conflicts is skipped and
listed with the conflicting files; the others are still merged. Uncommitted changes that the agent has not seen
are never overwritten. Exit codes: 0 if all results were merged, 3 if some were, 1 if none was, 4 if uncommitted
changes prevented a merge.";

/// The arguments of `adjutant discard`, which deletes the changes of a run or of one subagent.
#[derive(Debug, Args)]
#[command(after_help = DISCARD_HELP)]
pub(crate) struct DiscardResultsArgs {
    /// The run or session: an id or its beginning, or a label or '#N' of the latest run with results.
    #[arg(value_name = NAME)]
    pub(crate) run: String,

    /// Discard without asking.
    #[arg(short, long)]
    pub(crate) yes: bool,
}

const DISCARD_HELP: &str = "\
Examples:
  adjutant discard sess_1735460684_k3x9f2  the result of one subagent
  adjutant discard latest --yes            all results of the latest run, without asking

Asks for confirmation on a terminal; without one, --yes is required. Merged changes stay merged. The commit of each
result is printed: until git garbage-collects it, `git branch NAME COMMIT` restores the work.";

/// What happens to results when a run ends.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum MergeAfterRun {
    /// Report what would merge, what conflicts, and the commands to use next.
    #[default]
    Report,
    /// Merge completed work into your files, as `adjutant merge` does.
    Apply,
    /// Create a branch for completed work, as `adjutant merge --as branch` does.
    Branch,
}

impl MergeAfterRun {
    /// Returns the request to record for `resume`; a report needs none.
    pub(crate) const fn request(self) -> Option<MergeRequest> {
        match self {
            Self::Report => None,
            Self::Apply => Some(MergeRequest::Apply),
            Self::Branch => Some(MergeRequest::Branch),
        }
    }

    /// Returns the choice that was recorded.
    pub(crate) const fn from_request(request: MergeRequest) -> Self {
        match request {
            MergeRequest::Apply => Self::Apply,
            MergeRequest::Branch => Self::Branch,
        }
    }

    /// Parses a word from a PRD or configuration file; `true` means [`Self::Apply`].
    pub(crate) fn parse(word: &str) -> Option<Self> {
        if word == "true" { Some(Self::Apply) } else { Self::from_str(word, true).ok() }
    }
}
