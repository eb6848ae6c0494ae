//! What agents left in results: what the commands that look at it, merge it and discard it take.

use std::path::PathBuf;

use adjutant_core::space::MergeRequest;
use clap::{Args, ValueEnum};

use super::NAME;

/// `adjutant diff`.
#[derive(Debug, Args)]
#[command(after_help = DIFF_HELP)]
pub(crate) struct DiffArgs {
    /// The run or session: an id or the start of it, or a label or '#N' of the latest run that kept work [default: all
    /// of that run].
    #[arg(value_name = NAME)]
    pub(crate) run: Option<String>,

    /// Only what lies at or below these paths.
    #[arg(value_name = "PATH")]
    pub(crate) paths: Vec<PathBuf>,

    /// List the files and count lines instead.
    #[arg(long)]
    pub(crate) stat: bool,
}

const DIFF_HELP: &str = "\
Examples:
  adjutant diff                            what the latest run of this folder would change
  adjutant diff --stat
  adjutant diff sess_1735460684_k3x9f2 src/parser.rs
  adjutant diff '#2'                       the work of the second task of that run
  adjutant diff latest > work.patch && git apply --3way work.patch

A result is compared with what its agent began from, uncommitted files included, so only its own work is
shown. On a terminal it is coloured (unless NO_COLOR is set) and control characters are made visible; into
a file or a pipe go the exact bytes. Several results come one after the other, each named on standard error.";

/// `adjutant merge`.
#[derive(Debug, Args)]
#[command(after_help = MERGE_HELP)]
pub(crate) struct MergeArgs {
    /// The run or session: an id or the start of it, or a label or '#N' of the latest run that kept work [default: all
    /// of that run].
    #[arg(value_name = NAME)]
    pub(crate) run: Option<String>,

    /// How it is merged.
    #[arg(long = "as", value_enum, value_name = "HOW", default_value = "apply")]
    pub(crate) how: MergeAs,

    /// Say what would happen, and change nothing.
    #[arg(long)]
    pub(crate) dry_run: bool,

    /// Take back what was merged into the files, where nobody changed them since.
    #[arg(long, conflicts_with_all = ["how", "dry_run"])]
    pub(crate) undo: bool,
}

/// How results are merged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum MergeAs {
    /// Into the files, as uncommitted changes; index and branches stay as they are.
    Apply,
    /// As a branch for each, adjutant/RUN-SESSION; no file changes.
    Branch,
}

const MERGE_HELP: &str = "\
Examples:
  adjutant merge --dry-run                 which results merge, and which files are in conflict
  adjutant merge                           all results of the latest run of this folder
  adjutant merge parser --as branch        only the result of the task labelled parser
  adjutant merge --undo                    take it back

Results are merged one after the other, each with what is there then, each whole or not at all. One that is
in conflict is named with its files and passed over; the others go on. A file with uncommitted changes that
the agent never saw is never overwritten. Exit 0 when all were merged, 3 when some were, 1 when none was,
4 when uncommitted changes were in the way.";

/// `adjutant discard`.
#[derive(Debug, Args)]
#[command(after_help = DISCARD_HELP)]
pub(crate) struct DiscardArgs {
    /// The run or session: an id or the start of it, or a label or '#N' of the latest run that kept work.
    #[arg(value_name = NAME)]
    pub(crate) run: String,

    /// Discard without asking.
    #[arg(short, long)]
    pub(crate) yes: bool,
}

const DISCARD_HELP: &str = "\
Examples:
  adjutant discard sess_1735460684_k3x9f2  the result of one subagent
  adjutant discard latest --yes            everything a run left, without asking

Asks on a terminal; elsewhere --yes is needed. What was merged stays merged. The commit of each result is
printed: until git collects it, `git branch NAME COMMIT` brings the work back.";

/// What becomes of results when a run has ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum MergeAfter {
    /// Say what would merge, what is in conflict, and the commands to go on with.
    #[default]
    Report,
    /// Merge what completed into the files, as `adjutant merge` does.
    Apply,
    /// Make a branch of what completed, as `adjutant merge --as branch` does.
    Branch,
}

impl MergeAfter {
    /// Returns what of it is recorded, so that `resume` can do it; a report is made anew each time.
    pub(crate) const fn request(self) -> Option<MergeRequest> {
        match self {
            Self::Report => None,
            Self::Apply => Some(MergeRequest::Apply),
            Self::Branch => Some(MergeRequest::Branch),
        }
    }

    /// Returns what was recorded.
    pub(crate) const fn recorded(request: MergeRequest) -> Self {
        match request {
            MergeRequest::Apply => Self::Apply,
            MergeRequest::Branch => Self::Branch,
        }
    }

    /// Returns what a word of a file means; plain `true` is to merge.
    pub(crate) fn parse(word: &str) -> Option<Self> {
        if word == "true" { Some(Self::Apply) } else { Self::from_str(word, true).ok() }
    }
}
