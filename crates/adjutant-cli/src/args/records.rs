//! Looking at runs and dealing with them: what each of those commands takes.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand};

use super::Form;
use crate::here::Scope;

/// A run or a session.
#[derive(Debug, Args)]
pub(crate) struct RunArg {
    /// The run or session: an id or the start of it, or a label or '#N' of the latest run [default: the latest of this
    /// folder].
    #[arg(value_name = NAME)]
    pub(crate) run: Option<String>,
}

/// What a run or session may be named by, for usage lines.
pub(crate) const NAME: &str = "RUN|SESSION|LABEL|#N";

/// Whether the latest run of another folder is taken.
#[derive(Clone, Copy, Debug, Args)]
pub(crate) struct ScopeFlag {
    /// Without an id, mean the latest run of all folders instead of this one.
    #[arg(long)]
    anywhere: bool,
}

impl ScopeFlag {
    /// Returns where the latest run is looked for.
    pub(crate) const fn scope(self) -> Scope {
        if self.anywhere { Scope::Anywhere } else { Scope::Here }
    }
}

/// `adjutant cost`.
#[derive(Debug, Args)]
pub(crate) struct CostArgs {
    /// The run or session.
    #[command(flatten)]
    pub(crate) run: RunArg,

    /// Where the latest run is looked for.
    #[command(flatten)]
    pub(crate) scope: ScopeFlag,
}

/// `adjutant status`.
#[derive(Debug, Args)]
#[command(after_help = STATUS_HELP)]
pub(crate) struct StatusArgs {
    /// The run or session to show: an id or the start of it, or a label or '#N' of the latest run [default: a list of
    /// the newest].
    #[arg(value_name = NAME)]
    pub(crate) run: Option<String>,

    /// Show it as a tree, as `adjutant tree` does [default: the latest].
    #[arg(long)]
    pub(crate) tree: bool,
}

const STATUS_HELP: &str = "Examples:
  adjutant status                  the newest runs, and what the live ones are doing
  adjutant status latest           everything about the latest
  adjutant status --tree           the delegations of the latest as a tree
  adjutant status sess_1738326896_a1b2c3 --json

A run whose process is gone is `interrupted` and shown with the command that resumes it.";

/// `adjutant watch`.
#[derive(Debug, Args)]
#[command(after_help = WATCH_HELP)]
pub(crate) struct WatchArgs {
    /// The run or session.
    #[command(flatten)]
    pub(crate) run: RunArg,
}

const WATCH_HELP: &str = "Examples:
  adjutant watch                   the latest run, redrawn as it goes on
  adjutant watch run_17 | tee log  a line for each step
  adjutant watch --json            the events that `delegate --events` streams

Reads the files alone: ctrl+c stops watching, and the run goes on. Ends with the run, prints its tree and
exits as it did; an interrupted run exits with 3.";

/// `adjutant errors`.
#[derive(Debug, Args)]
#[command(after_help = ERRORS_HELP, args_conflicts_with_subcommands = true)]
pub(crate) struct ErrorsArgs {
    /// What to do about one.
    #[command(subcommand)]
    pub(crate) tick: Option<ErrorsCommand>,

    /// The run or session [default: all runs].
    #[arg(value_name = NAME)]
    pub(crate) run: Option<String>,

    /// Show fixed ones too.
    #[arg(long)]
    pub(crate) all: bool,

    /// Show only errors of this type: timeout, validation, execution, tool_unavailable, or any type that
    /// an agent's return gave.
    #[arg(long = "type", value_name = "TYPE")]
    pub(crate) kind: Option<String>,

    /// Keep all of them as errors.json in the state directory, replaced as a whole.
    #[arg(long)]
    pub(crate) write: bool,
}

/// What can be done about an error.
#[derive(Debug, Subcommand)]
pub(crate) enum ErrorsCommand {
    /// Tick an error off; recorded in its run.
    Fixed {
        /// The error, such as err_1738326967_x1y2z3.
        id: String,
    },
}

const ERRORS_HELP: &str = "Examples:
  adjutant errors                  what nobody has ticked off yet, in all runs
  adjutant errors latest --all     everything that went wrong in the latest
  adjutant errors --type timeout --json
  adjutant errors fixed err_1738326967_x1y2z3";

/// `adjutant log`.
#[derive(Debug, Args)]
#[command(after_help = LOG_HELP)]
pub(crate) struct LogArgs {
    /// The run or session.
    #[command(flatten)]
    pub(crate) run: RunArg,

    /// Print delegation.jsonl instead: one JSON object for each beginning and each end.
    #[arg(long)]
    pub(crate) delegations: bool,
}

const LOG_HELP: &str = "Examples:
  adjutant log                     every event of the latest run, for people
  adjutant log run_17 --json       its journal, one record per line
  adjutant log --delegations | jq 'select(.status != \"started\")'";

/// `adjutant result`.
#[derive(Debug, Args)]
pub(crate) struct ResultArgs {
    /// The run or session.
    #[command(flatten)]
    pub(crate) run: RunArg,

    /// Where the latest run is looked for.
    #[command(flatten)]
    pub(crate) scope: ScopeFlag,

    /// How the result is written.
    #[arg(long = "return", value_enum, value_name = "FORM")]
    pub(crate) return_form: Option<Form>,
}

/// `adjutant cancel`.
#[derive(Debug, Args)]
#[command(after_help = CANCEL_HELP)]
pub(crate) struct CancelArgs {
    /// The run or session: an id or the start of it, or a label or '#N' of the latest live run [default: the latest of
    /// this tree that is live].
    #[arg(value_name = NAME)]
    pub(crate) run: Option<String>,

    /// The tree whose run is meant where none is named.
    #[arg(long, value_name = "DIR", default_value = ".")]
    pub(crate) root: PathBuf,
}

const CANCEL_HELP: &str = "\
Examples:
  adjutant cancel                          the run that is under way in this tree
  adjutant cancel sess_1735460684_k3x9f2   one subagent and all below it; the others go on
  adjutant cancel '#2'                     the same by its number, which `adjutant tree` shows

What was found is kept: `adjutant result` shows it. It is over within two seconds: a process that does
not answer within one is killed and its end recorded. A run that died before is ended the same way.";

/// `adjutant wait`.
#[derive(Debug, Args)]
#[command(after_help = WAIT_HELP)]
pub(crate) struct WaitArgs {
    /// The run or session: an id or the start of it, or a label or '#N' of the latest run [default: the latest of this
    /// folder that is live, or the latest].
    #[arg(value_name = NAME)]
    pub(crate) run: Option<String>,

    /// Where the latest run is looked for.
    #[command(flatten)]
    pub(crate) scope: ScopeFlag,

    /// Give up after so many seconds, with exit code 124; the run goes on.
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    pub(crate) timeout: Option<Duration>,
}

const WAIT_HELP: &str = "\
Examples:
  adjutant wait && adjutant result         the report, once there is one
  adjutant wait --timeout 60 --json        look for a minute at most

Ends with the exit code of the run; with 3 when its process is gone, and says how to go on.";

/// Reads a span of time, whole seconds or parts of them.
fn seconds(text: &str) -> Result<Duration, String> {
    let span = text.parse::<f64>().ok().and_then(|it| Duration::try_from_secs_f64(it).ok());
    span.ok_or_else(|| "not a number of seconds, such as 30 or 0.5".into())
}

/// `adjutant tell`.
#[derive(Debug, Args)]
#[command(after_help = TELL_HELP)]
pub(crate) struct TellArgs {
    /// The session that is to hear it: an id or the start of it, or a label or '#N' of the latest live run; a run for
    /// its parent agent.
    #[arg(value_name = NAME)]
    pub(crate) session: String,

    /// What to say, or - for standard input; at most 16 KiB.
    #[arg(value_name = "TEXT", allow_hyphen_values = true)]
    pub(crate) text: String,
}

const TELL_HELP: &str = "\
Examples:
  adjutant tell security 'Leave the tests out'
  git diff --stat | adjutant tell sess_1735460684_k3x9f2 -

The subagent hears it before its next turn, also when it was about to end. `adjutant tree` lists
labels and numbers, `adjutant status latest` sessions.";

/// `adjutant prune`.
#[derive(Debug, Args)]
#[command(after_help = PRUNE_HELP)]
pub(crate) struct PruneArgs {
    /// Content older than this is removed [default: what each run's own policy says].
    #[arg(long, value_name = "DAYS", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) days: Option<u32>,

    /// Also drop old results that are merged nowhere; their commits are printed.
    #[arg(long)]
    pub(crate) unmerged: bool,
}

const PRUNE_HELP: &str = "\
Examples:
  adjutant prune                   what is older than each run's policy says, merged results of 30 days
  adjutant prune --days 7
  adjutant prune --days 90 --unmerged

A result is the work of a subagent in a repository, under refs/adjutant/. One that no branch has is listed
and left, however old it is, unless --unmerged says otherwise.";
