//! The arguments of the commands that show, steer and prune runs.

use std::path::PathBuf;
use std::time::Duration;

use adjutant_core::time::parse_date;
use clap::{Args, Subcommand, ValueEnum};

use super::ResultFormat;
use crate::run_lookup::RunScope;

/// The run or session that a command is about, as it was typed.
#[derive(Debug, Args)]
pub(crate) struct RunArg {
    /// The run or session: an id or its beginning, or a label or '#N' of the latest run [default: the latest run in
    /// this directory].
    #[arg(value_name = NAME)]
    pub(crate) run: Option<String>,
}

/// The forms in which a run or session can be named, for usage lines.
pub(crate) const NAME: &str = "RUN|SESSION|LABEL|#N";

/// Whether the latest run of another directory may be used.
#[derive(Clone, Copy, Debug, Args)]
pub(crate) struct ScopeFlag {
    /// Without an id, use the latest run of all directories, not only of this one.
    #[arg(long)]
    anywhere: bool,
}

impl ScopeFlag {
    /// Returns where to search for the latest run.
    pub(crate) const fn scope(self) -> RunScope {
        if self.anywhere { RunScope::Anywhere } else { RunScope::Here }
    }
}

/// The arguments of `adjutant cost`, which shows what a run cost, or sums over runs.
#[derive(Debug, Args)]
#[command(after_help = COST_HELP)]
pub(crate) struct CostArgs {
    /// The run or session.
    #[command(flatten)]
    pub(crate) run: RunArg,

    /// Where to search for the latest run.
    #[command(flatten)]
    pub(crate) scope: ScopeFlag,

    /// Show each model call, and how much of its input the provider had cached.
    #[arg(long)]
    pub(crate) turns: bool,

    /// Sum what the runs of all directories have spent since then: 30m, 24h, 7d, 4w, today, or a date such as 2026-11-01;
    /// days are those of UTC.
    #[arg(long, value_name = "WHEN", value_parser = since, conflicts_with_all = ["run", "turns"])]
    pub(crate) since: Option<PeriodStart>,

    /// Sum what the runs of all directories have spent, or spent since --since, by this [default with --since: day].
    #[arg(long, value_enum, value_name = "GROUP", conflicts_with_all = ["run", "turns"])]
    pub(crate) by: Option<CostGroupingArg>,
}

const COST_HELP: &str = "Examples:
  adjutant cost                    the latest run in this directory, by agent and model
  adjutant cost --anywhere         the latest run of all directories
  adjutant cost --since 7d         all runs of the last seven days, day by day
  adjutant cost --since today      since midnight UTC
  adjutant cost --since 2026-11-01 --by folder
  adjutant cost --by model         all runs ever recorded

Sums contain live, cancelled and interrupted runs, and runs whose content has expired. A period begins at a full hour;
days and dates are those of UTC.";

/// The start of a period that `adjutant cost` sums.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PeriodStart {
    /// So long before now.
    Last(Duration),
    /// From this wall-clock time on, in Unix milliseconds.
    From(u64),
    /// From the last midnight of UTC on.
    Today,
}

/// What `adjutant cost` sums by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum CostGroupingArg {
    /// The day on which it was spent.
    Day,
    /// The model.
    Model,
    /// The agent.
    Agent,
    /// The directory of the run.
    Folder,
}

/// Parses the start of a period.
fn since(text: &str) -> Result<PeriodStart, String> {
    if text == "today" {
        return Ok(PeriodStart::Today);
    }
    if let Some(wall_ms) = parse_date(text) {
        return Ok(PeriodStart::From(wall_ms));
    }
    span(text)
        .map(PeriodStart::Last)
        .map_err(|error| format!("{error}, `today`, or a date such as 2026-11-01"))
}

/// Parses a length of time.
pub(crate) fn span(text: &str) -> Result<Duration, String> {
    let unit_seconds = match text.chars().next_back() {
        Some('s') => 1,
        Some('m') => 60,
        Some('h') => 60 * 60,
        Some('d') => 24 * 60 * 60,
        Some('w') => 7 * 24 * 60 * 60,
        Some(_) | None => 0,
    };
    let count = text.get(..text.len().saturating_sub(1)).and_then(|it| it.parse::<u64>().ok());
    match count.filter(|count| *count > 0 && unit_seconds > 0) {
        Some(count) => Ok(Duration::from_secs(count.saturating_mul(unit_seconds))),
        None => Err("expected a length of time such as 30m, 24h, 7d or 4w".to_owned()),
    }
}

/// The arguments of `adjutant status`, which lists runs or shows one.
#[derive(Debug, Args)]
#[command(after_help = STATUS_HELP)]
pub(crate) struct StatusArgs {
    /// The run or session to show: an id or its beginning, or a label or '#N' of the latest run [default: a list of
    /// the newest runs].
    #[arg(value_name = NAME)]
    pub(crate) run: Option<String>,

    /// Show the run as a tree, as `adjutant tree` does [default: the latest run].
    #[arg(long)]
    pub(crate) tree: bool,

    /// List this many of the newest runs; live runs are listed too.
    #[arg(short, long, value_name = "N", default_value_t = 20, conflicts_with_all = ["run", "tree"])]
    pub(crate) number: usize,

    /// List all runs.
    #[arg(long, conflicts_with_all = ["run", "tree", "number"])]
    pub(crate) all: bool,

    /// List only the runs of this directory and its git work tree.
    #[arg(long, conflicts_with_all = ["run", "tree"])]
    pub(crate) here: bool,
}

const STATUS_HELP: &str = "Examples:
  adjutant status                  the newest runs, and what the live ones are doing
  adjutant status --here -n 5      the newest five runs of this directory
  adjutant status latest           everything about the latest run
  adjutant status --tree           the delegations of the latest run as a tree
  adjutant status sess_1738326896_a1b2c3 --json

What waits for a person comes first, then the live runs, then the newest. Narrow terminals show the last six
characters of a run's id; every command takes them as its name.

A run whose process has died is `interrupted` and is listed with the command that resumes it.";

/// The arguments of `adjutant watch`, which shows runs full-screen, or follows one in a pipe.
#[derive(Debug, Args)]
#[command(after_help = watch_help())]
pub(crate) struct WatchRunArgs {
    /// The run or session: an id or its beginning, or a label or '#N' of the latest run [default: the list of all runs;
    /// without a terminal, the latest run in this directory].
    #[arg(value_name = NAME)]
    pub(crate) run: Option<String>,
}

fn watch_help() -> String {
    format!("{WATCH_HELP}\n\n{}\n{WATCH_END_HELP}", adjutant_tui::KEY_HELP)
}

const WATCH_HELP: &str = "Examples:
  adjutant watch                   all runs: what waits for you, then by directory
  adjutant watch run_17            one run: its tree, timeline, budgets and events
  adjutant watch run_17 | tee log  one line per step
  adjutant watch --json            the events that `delegate --events` streams";

const WATCH_END_HELP: &str = "
Watching only reads files: leaving it changes no run. A key that changes something runs that `adjutant` command
and shows it. Without a terminal, or with TERM=dumb, steps are printed until the run ends. If a run is named, the
exit code is that of the run; 3 for an interrupted run, 130 if you leave while the run goes on.";

/// The arguments of `adjutant errors`, which lists the errors of all runs or marks one as fixed.
#[derive(Debug, Args)]
#[command(after_help = ERRORS_HELP, args_conflicts_with_subcommands = true)]
pub(crate) struct ErrorsArgs {
    /// What to do with one error.
    #[command(subcommand)]
    pub(crate) tick: Option<ErrorsCommand>,

    /// The run or session [default: all runs].
    #[arg(value_name = NAME)]
    pub(crate) run: Option<String>,

    /// Also show errors that are marked as fixed.
    #[arg(long)]
    pub(crate) all: bool,

    /// List each error instead of counting those that are alike; done anyway if a run is named.
    #[arg(long)]
    pub(crate) each: bool,

    /// Show only errors of this type: timeout, validation, execution, tool_unavailable, or a type that an agent
    /// reported.
    #[arg(long = "type", value_name = "TYPE")]
    pub(crate) kind: Option<String>,

    /// Also write all errors to errors.json in the state directory, replacing the file.
    #[arg(long)]
    pub(crate) write: bool,
}

/// What can be done with an error.
#[derive(Debug, Subcommand)]
pub(crate) enum ErrorsCommand {
    /// Mark an error as fixed; this is recorded in its run.
    Fixed {
        /// The error, such as err_1738326967_x1y2z3.
        id: String,
    },
}

const ERRORS_HELP: &str = "Examples:
  adjutant errors                  the errors of all runs that are not fixed, counted by kind
  adjutant errors --each           each of them, with its agent and task
  adjutant errors latest --all     all errors of the latest run, fixed ones included
  adjutant errors --type timeout --json
  adjutant errors fixed err_1738326967_x1y2z3";

/// The arguments of `adjutant log`, which prints the events of a run.
#[derive(Debug, Args)]
#[command(after_help = LOG_HELP)]
pub(crate) struct LogArgs {
    /// The run or session.
    #[command(flatten)]
    pub(crate) run: RunArg,

    /// Print the start and the end of each delegation instead, one JSON object per line.
    #[arg(long)]
    pub(crate) delegations: bool,

    /// Continue to print events until the run, or the named delegation, ends.
    #[arg(short, long)]
    pub(crate) follow: bool,
}

const LOG_HELP: &str = "Examples:
  adjutant log                     every event of the latest run, as text
  adjutant log -f                  and those to come, until the run ends
  adjutant log run_17 --json       the journal of a run, one record per line
  adjutant log --delegations | jq 'select(.status != \"started\")'";

/// The arguments of `adjutant result`, which prints the results of a run again.
#[derive(Debug, Args)]
pub(crate) struct ResultArgs {
    /// The run or session.
    #[command(flatten)]
    pub(crate) run: RunArg,

    /// Where to search for the latest run.
    #[command(flatten)]
    pub(crate) scope: ScopeFlag,

    /// The format of the result.
    #[arg(long = "return", value_enum, value_name = "FORM")]
    pub(crate) return_form: Option<ResultFormat>,
}

/// The arguments of `adjutant cancel`, which ends a run or one of its delegations.
#[derive(Debug, Args)]
#[command(after_help = CANCEL_HELP)]
pub(crate) struct CancelRunArgs {
    /// The run or session: an id or its beginning, or a label or '#N' of the latest live run [default: the latest live
    /// run in this directory].
    #[arg(value_name = NAME)]
    pub(crate) run: Option<String>,

    /// The directory whose run is cancelled when none is named.
    #[arg(long, value_name = "DIR", default_value = ".")]
    pub(crate) root: PathBuf,
}

const CANCEL_HELP: &str = "\
Examples:
  adjutant cancel                          the live run in this directory
  adjutant cancel sess_1735460684_k3x9f2   one subagent and everything below it; the others continue
  adjutant cancel '#2'                     the same by its number, which `adjutant tree` shows

Partial results are kept; `adjutant result` prints them. Cancelling takes at most two seconds: a process that does
not answer within one second is killed, and its end is recorded. An interrupted run is ended the same way.";

/// The arguments of `adjutant wait`, which waits for the end of a run.
#[derive(Debug, Args)]
#[command(after_help = WAIT_HELP)]
pub(crate) struct WaitForRunArgs {
    /// The run or session: an id or its beginning, or a label or '#N' of the latest run [default: the latest live run in
    /// this directory, or else the latest one].
    #[arg(value_name = NAME)]
    pub(crate) run: Option<String>,

    /// Where to search for the latest run.
    #[command(flatten)]
    pub(crate) scope: ScopeFlag,

    /// Stop waiting after this many seconds, with exit code 124; the run continues.
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    pub(crate) timeout: Option<Duration>,
}

const WAIT_HELP: &str = "\
Examples:
  adjutant wait && adjutant result         print the results when the run has ended
  adjutant wait --timeout 60 --json        wait for one minute at most

The exit code is that of the run. If the run's process has died, it is 3, and the command to resume is printed.";

/// Parses a number of seconds, which may have a fraction.
fn seconds(text: &str) -> Result<Duration, String> {
    let span = text.parse::<f64>().ok().and_then(|it| Duration::try_from_secs_f64(it).ok());
    span.ok_or_else(|| "not a number of seconds, such as 30 or 0.5".into())
}

/// The arguments of `adjutant tell`, which sends a message to a running subagent.
#[derive(Debug, Args)]
#[command(after_help = TELL_HELP)]
pub(crate) struct TellAgentArgs {
    /// The session to send to: an id or its beginning, or a label or '#N' of the latest live run; the id of a run means
    /// its parent agent.
    #[arg(value_name = NAME)]
    pub(crate) session: String,

    /// The message, or - for standard input; at most 16 KiB.
    #[arg(value_name = "TEXT", allow_hyphen_values = true)]
    pub(crate) text: String,
}

const TELL_HELP: &str = "\
Examples:
  adjutant tell security 'Leave the tests out'
  git diff --stat | adjutant tell sess_1735460684_k3x9f2 -

The subagent gets the message before its next turn, even if it was about to end. `adjutant tree` shows
labels and numbers, `adjutant status latest` shows session ids.";

/// The arguments of `adjutant prune`, which deletes the content of old runs.
#[derive(Debug, Args)]
#[command(after_help = PRUNE_HELP)]
pub(crate) struct PruneRunsArgs {
    /// Delete content older than this [default: the retention in each run's policy].
    #[arg(long, value_name = "DAYS", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) days: Option<u32>,

    /// Also delete old results that are not merged anywhere; their commits are printed.
    #[arg(long)]
    pub(crate) unmerged: bool,
}

const PRUNE_HELP: &str = "\
Examples:
  adjutant prune                   content past each run's retention, and merged results older than 30 days
  adjutant prune --days 7
  adjutant prune --days 90 --unmerged

A result is a commit with the work of a subagent, under refs/adjutant/ in its repository. Old results that no
branch contains are listed but kept, unless you add --unmerged. Metadata and cost of runs are never deleted.";
