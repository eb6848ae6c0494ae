//! The command line: this module only parses it; the other modules act on the values.

mod alias;
mod approvals;
#[cfg(feature = "restate")]
pub(crate) mod cluster;
mod eval;
mod groups;
mod init;
mod mcp;
mod records;
mod results;
mod rules;
mod story;
mod suggest;
mod task;

use std::path::PathBuf;

use clap::builder::{OsStringValueParser, TypedValueParser};
use clap::error::{ContextKind, ContextValue, ErrorKind as ClapKind};
use clap::parser::ValueSource;
use clap::{ArgMatches, Args, CommandFactory, FromArgMatches, Parser, Subcommand, ValueEnum};

use crate::hints;
use crate::workspace_flags::{WorkspaceSetupFlags, WriteFlags};

pub(crate) use approvals::{ApproveCallArgs, DetachedFlags};
pub(crate) use eval::EvalArgs;
pub(crate) use init::InitArgs;
pub(crate) use mcp::{McpArgs, McpClient, McpCommand, McpScope, OnDisconnect};
pub(crate) use records::{
    CancelRunArgs, CostArgs, CostGroupingArg, ErrorsArgs, ErrorsCommand, LogArgs, NAME,
    PeriodStart, PruneRunsArgs, ResultArgs, RunArg, ScopeFlag, StatusArgs, TellAgentArgs,
    WaitForRunArgs, WatchRunArgs,
};
pub(crate) use results::{
    DiffResultsArgs, DiscardResultsArgs, MergeAfterRun, MergeMode, MergeResultsArgs,
};
pub(crate) use rules::{
    AgentsArgs, CheckDelegationArgs, CommandsArgs, ParseMarkersArgs, PolicyArgs, ValidateReturnArgs,
};
pub(crate) use story::StoryArgs;
pub(crate) use task::{TaskAddArgs, TaskArgs, TaskCommand, TaskSetArgs};

/// Bounded delegation for AI agents.
///
/// Adjutant gives tasks to subagents under hard limits on depth, cycles, fan-out, tokens, money and
/// time. It records every step and always returns a valid result. Results go to standard output,
/// progress and messages to standard error.
///
/// Start with `adjutant demo`: it needs no key and no network.
#[derive(Debug, Parser)]
#[command(name = "adjutant", version = env!("BUILD_VERSION"), about, after_help = EXIT_CODES)]
pub(crate) struct Cli {
    /// The command; without one, the next steps here are printed.
    #[command(subcommand)]
    pub(crate) command: Option<CliCommand>,

    /// Print JSON instead of text; docs/schemas describes it.
    #[arg(long, global = true)]
    pub(crate) json: bool,

    /// The state directory [default: $XDG_STATE_HOME/adjutant or ~/.local/state/adjutant].
    #[arg(
        long, global = true, env = "ADJUTANT_HOME", value_name = "DIR", hide_env_values = true,
        value_parser = OsStringValueParser::new().map(PathBuf::from)
    )]
    pub(crate) home: Option<PathBuf>,
}

impl Cli {
    /// Reads the command line and remembers what recommended commands must repeat of it.
    pub(crate) fn read() -> Result<Self, clap::Error> {
        let matches = groups::grouped(reflow_help(Self::command()))
            .try_get_matches_from(alias::read(std::env::args_os()))
            .map_err(|error| {
                let command = alias::first_command(std::env::args_os());
                suggest::suggest(explain_error(typed_only(error)), command.as_deref())
            })?;
        let mut cli = Self::from_arg_matches(&matches)?;
        let is_flag = matches.value_source("home") == Some(ValueSource::CommandLine);
        match &cli.home {
            Some(home) if home.as_os_str().is_empty() && is_flag => {
                let text = "--home needs a directory";
                return Err(Self::command().error(ClapKind::InvalidValue, text));
            }
            // A variable that is there and empty says nothing.
            Some(home) if home.as_os_str().is_empty() => cli.home = None,
            Some(home) if is_flag => hints::remember_home(home),
            Some(_) | None => {}
        }
        if let Some(root) = given_root(&matches) {
            hints::remember_root(root);
        }
        if let Some(("story", matches)) = matches.subcommand()
            && let Some(command) = Self::command().find_subcommand("story")
        {
            hints::remember_typed(crate::story::flags(command, matches));
        }
        Ok(cli)
    }
}

/// Joins the lines of each paragraph after the flags, so that only the width of the terminal wraps them.
fn reflow_help(command: clap::Command) -> clap::Command {
    let after = command.get_after_help().map(ToString::to_string);
    let command = match after {
        Some(text) => command.after_help(join_paragraph_lines(&text)),
        None => command,
    };
    command.mut_subcommands(reflow_help)
}

/// Joins the lines of each paragraph. Indented lines, and the line before them, are not joined.
fn join_paragraph_lines(text: &str) -> String {
    let is_prose = |line: &str| !line.is_empty() && !line.starts_with(' ');
    let mut out = String::new();
    let mut lines = text.lines().peekable();
    while let Some(line) = lines.next() {
        out += line;
        if let Some(next) = lines.peek() {
            out.push(if is_prose(line) && is_prose(next) { ' ' } else { '\n' });
        }
    }
    out
}

/// Returns the tree that was typed, for whichever command.
fn given_root(matches: &ArgMatches) -> Option<&PathBuf> {
    let (_, matches) = matches.subcommand()?;
    let is_typed = matches.ids().any(|id| id.as_str() == "root")
        && matches.value_source("root") == Some(ValueSource::CommandLine);
    if is_typed { matches.get_one("root") } else { given_root(matches) }
}

/// Removes arguments from a usage line that were set by the environment and not typed.
fn typed_only(mut error: clap::Error) -> clap::Error {
    let Some(ContextValue::StyledStr(usage)) = error.get(ContextKind::Usage) else { return error };
    let before = usage.to_string();
    let mut text = before.clone();
    for (flag, value) in [("--home", "<DIR>"), ("--preset", "<NAME>"), ("--model", "<MODEL>")] {
        let is_typed = |word: String| word == flag || word.starts_with(&format!("{flag}="));
        if !std::env::args().any(is_typed) {
            text = text.replace(&format!(" {flag} {value}"), "");
        }
    }
    if text != before {
        error.insert(ContextKind::Usage, ContextValue::StyledStr(text.into()));
    }
    error
}

/// Says how a slash command is typed when its words came as arguments of their own.
fn explain_error(error: clap::Error) -> clap::Error {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let Some(ContextValue::String(surplus)) = error.get(ContextKind::InvalidArg) else {
        return error;
    };
    let run = words.iter().position(|word| word == "run");
    let is_goal = |at: &usize| words[*at].starts_with('/') && words.get(at + 1) == Some(surplus);
    let goal = run.and_then(|run| (run + 1..words.len()).find(is_goal));
    match goal.filter(|_| error.kind() == ClapKind::UnknownArgument) {
        Some(goal) => {
            let rest = &words[goal + 1..];
            let own = rest.iter().take_while(|word| !word.starts_with('-')).count();
            let inner = rest[..own].iter().map(|word| match word.contains(char::is_whitespace) {
                true => format!(" \"{word}\""),
                false => format!(" {word}"),
            });
            let typed = hints::quoted(&format!("{}{}", words[goal], inner.collect::<String>()));
            let rest = rest[own..].iter().map(|word| format!(" {}", hints::quoted(word)));
            let rest = rest.collect::<String>();
            let text = format!("a goal is one argument, quote it: adjutant run {typed}{rest}");
            Cli::command().error(ClapKind::UnknownArgument, text)
        }
        None => error,
    }
}

const EXIT_CODES: &str = "\
Exit codes:
    0  all completed            4  refused by a limit or a person
    1  all failed               5  blocked, needs an answer
    2  usage or bad input     124  a command or `wait --timeout` timed out
    3  partial or mixed       130  cancelled";

/// The commands.
#[derive(Debug, Subcommand)]
pub(crate) enum CliCommand {
    /// Try it: three subagents read this directory, without an API key.
    Demo(DemoArgs),
    /// Work toward a goal with a parent agent that can delegate.
    Run(RunGoalArgs),
    /// Give tasks to subagents and wait for their reports.
    Delegate(DelegateTasksArgs),
    /// Work through the stories of a PRD, each in its own workspace.
    #[command(mut_arg("merge", |merge| merge.help(story::MERGE)))]
    #[command(mut_arg("verify", |verify| verify.help(story::VERIFY)))]
    #[command(mut_args(story::hide_elsewhere))]
    Story(StoryArgs),
    /// Continue an interrupted run, or what an ended run left unfinished.
    Resume(ResumeRunArgs),
    /// Check whether the limits allow a delegation, given as JSON.
    Check(CheckDelegationArgs),
    /// Read delegation markers from stdin.
    #[command(about = "Read [delegate:description:hours] markers from stdin")]
    Parse(ParseMarkersArgs),
    /// Check a subagent's return on stdin against the standard format.
    Validate(ValidateReturnArgs),
    /// Show the limits in force and where each one comes from.
    Policy(PolicyArgs),
    /// List the agents, built-in and from files, and what each may do.
    Agents(AgentsArgs),
    /// List the slash commands, built-in and from files.
    Commands(CommandsArgs),
    /// Add, list, show and update the tasks of a project.
    Task(TaskArgs),
    /// Measure what agents achieve on tasks with known solutions.
    Eval(EvalArgs),
    /// List other agents that can work for you, and what each needs.
    Workers,
    /// Run a program with a budget for its model calls.
    Gateway(GatewayArgs),
    /// Perform the work of runs on a Restate cluster, until it is stopped.
    #[cfg(feature = "restate")]
    ServeWorker(cluster::ServeWorkerArgs),
    /// Try a cluster on this machine, or repair one.
    #[cfg(feature = "restate")]
    Cluster(cluster::ClusterArgs),
    /// List known models, their prices, and which ones you can use.
    Models,
    /// Check everything a run needs and report what is missing.
    Doctor,
    /// Choose a model, check it, and write your configuration.
    Init(InitArgs),
    /// Say how this copy was installed and which command updates it.
    Update,
    /// List runs and what they are doing, or show one.
    Status(StatusArgs),
    /// Show the delegations of a run as a tree.
    Tree(RunArg),
    /// Show all runs full-screen, or follow one until it ends.
    Watch(WatchRunArgs),
    /// Print the results of a run again.
    Result(ResultArgs),
    /// Print the conversation of a subagent.
    Transcript(RunArg),
    /// Show what a run cost, by agent and by model.
    Cost(CostArgs),
    /// List the errors of all runs, and mark them as fixed.
    Errors(ErrorsArgs),
    /// Print every event of a run, one per line.
    Log(LogArgs),
    /// Cancel a run, or one subagent and everything below it.
    Cancel(CancelRunArgs),
    /// Wait for a run to end, and exit with its exit code.
    Wait(WaitForRunArgs),
    /// Send a message to a running subagent.
    Tell(TellAgentArgs),
    /// List the calls that wait for your approval.
    Approvals,
    /// Approve or refuse a waiting call; works only in a terminal.
    Approve(ApproveCallArgs),
    /// Show what the subagents of a run changed in their workspaces.
    Diff(DiffResultsArgs),
    /// Merge the changes of a run into your files, or undo a merge.
    Merge(MergeResultsArgs),
    /// Delete the changes of a run or of one subagent.
    Discard(DiscardResultsArgs),
    /// Restore the files that agents changed in place.
    Undo(crate::undo::UndoInPlaceArgs),
    /// Delete the content of old runs, and old results that are merged.
    Prune(PruneRunsArgs),
    /// Let an MCP client such as Claude Code or Codex delegate.
    Mcp(McpArgs),
    /// Print a completion script for your shell.
    Completions {
        /// The shell.
        shell: clap_complete::Shell,
    },
    /// Write a man page for each command to a directory; for packages.
    #[command(hide = true)]
    ManPages {
        /// The directory.
        directory: PathBuf,
    },
}

/// How limits are chosen.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct PolicyFlags {
    /// The preset that sets the limits: scout (forge), command (opencode) or story (claude-loop).
    #[arg(long, value_name = "NAME", env = "ADJUTANT_PRESET")]
    pub(crate) preset: Option<String>,

    /// Set a limit; `adjutant policy` lists the keys.
    #[arg(long = "set", value_name = "KEY=VALUE")]
    pub(crate) set: Vec<String>,

    /// Allow delegation under a preset that has it off.
    #[arg(long)]
    pub(crate) enable_delegation: bool,
}

/// The arguments of `adjutant gateway`, which runs a program and meters its model calls.
#[derive(Debug, Args)]
#[command(after_help = GATEWAY_HELP)]
pub(crate) struct GatewayArgs {
    /// The most dollars that the program may spend.
    #[arg(long, value_name = "USD", value_parser = dollars)]
    pub(crate) budget_usd: Option<f64>,

    /// The most tokens that the program may use, input and output together.
    #[arg(long, value_name = "TOKENS")]
    pub(crate) budget_tokens: Option<u64>,

    /// A model that the program may use, as provider/model; can be repeated [default: every model you have a key for].
    #[arg(long, value_name = "MODEL")]
    pub(crate) model: Vec<String>,

    /// The program and its arguments, after `--`.
    #[arg(last = true, required = true, value_name = "COMMAND")]
    pub(crate) command: Vec<std::ffi::OsString>,
}

const GATEWAY_HELP: &str = r#"Examples:
  adjutant gateway --budget-usd 2 -- claude -p "Explain this repository"
  adjutant gateway --budget-usd 0.50 --model openai/gpt-5 -- python agent.py

The program runs as usual, with its base URLs pointed at a gateway on this machine (ANTHROPIC_BASE_URL, OPENAI_BASE_URL,
GOOGLE_GEMINI_BASE_URL) and placeholders instead of your keys, which stay here. Each model call is reserved before it is
forwarded, and refused with status 402 when the budget is gone. The bill is printed at the end, and the exit code is the
program's. Only the model calls are bounded: the program has all your rights. `adjutant cost` shows the bill again."#;

/// The arguments of `adjutant demo`, which runs a scripted model in this directory.
#[derive(Debug, Args)]
pub(crate) struct DemoArgs {
    /// The directory the subagents read [default: the current one, or a sample if it has too few files].
    pub(crate) dir: Option<PathBuf>,

    /// The format of the result.
    #[arg(long = "return", value_enum, value_name = "FORM")]
    pub(crate) return_form: Option<ResultFormat>,

    /// Print one JSON event per line to standard output instead of the result.
    #[arg(long)]
    pub(crate) events: bool,
}

/// The arguments of `adjutant run`, which starts a parent agent with a goal or a slash command.
#[derive(Debug, Args)]
#[command(after_help = RUN_HELP)]
pub(crate) struct RunGoalArgs {
    /// The goal or a slash command; text piped to standard input is added to it.
    #[arg(value_name = "GOAL|/COMMAND")]
    pub(crate) goal: Option<String>,

    /// Continue the latest `run` in this directory instead of starting a new one.
    #[arg(long = "continue", conflicts_with_all = FIXED_AT_THE_START)]
    pub(crate) goes_on: bool,

    /// The hidden flags with which the MCP server starts a run.
    #[command(flatten)]
    pub(crate) detached: DetachedFlags,

    /// The flags of all commands that start work.
    #[command(flatten)]
    pub(crate) work: WorkFlags,
}

/// The flags that are fixed when a run starts.
const FIXED_AT_THE_START: [&str; 13] = [
    "record",
    "concurrency",
    "budget_usd",
    "budget_tokens",
    "approve_below",
    "allow_domain",
    "system",
    "agent",
    "set",
    "enable_delegation",
    "write",
    "verify",
    "verify_keep",
];

const RUN_HELP: &str = r#"Examples:
  adjutant run "Why is the build slow?"
  git diff | adjutant run "Review this change" --yes --budget-usd 1
  adjutant run --continue "And what would make it faster?"
  adjutant run "Fix the parser" --write --verify "cargo test"
  adjutant run '/task "Add JWT"'
  adjutant run "/plan 12 keep it small"

A goal that starts with / is a slash command; `adjutant commands` lists them. It runs under the preset
`command` unless --preset names another, and --agent selects the agent that does the work. A path with several
parts, as in "/etc/hosts is strange", is not a command. Put a space before other paths: " /tmp is full"."#;

/// The arguments of `adjutant resume`, which continues a run that was interrupted or left work unfinished.
#[derive(Debug, Args)]
#[command(after_help = RESUME_HELP)]
pub(crate) struct ResumeRunArgs {
    /// The run or session: an id or its beginning, or a label or '#N' of the latest run [default: the latest run in
    /// this directory].
    #[arg(value_name = NAME)]
    pub(crate) run: Option<String>,

    /// The directory whose latest run is used when none is named.
    #[arg(long, value_name = "DIR", default_value = ".")]
    pub(crate) root: PathBuf,

    /// A message to the agent: the answer it waits for, or what is left to do; without TEXT you are asked for it.
    #[arg(long, value_name = "TEXT", num_args = 0..=1, default_missing_value = "")]
    pub(crate) say: Option<String>,

    /// Merge the work of the subagent into your present files first, in its workspace, and let it resolve the conflicts.
    #[arg(long, conflicts_with = "in_place")]
    pub(crate) rebase: bool,

    /// A new time limit, at most the longest that the policy allows [default: the time left, or the time of a new start].
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) timeout: Option<u64>,

    /// Change a limit from now on: budgets, times and concurrency; `adjutant policy` lists the keys.
    #[arg(long = "set", value_name = "KEY=VALUE")]
    pub(crate) set: Vec<String>,

    /// The most dollars the run may spend, including what it has already spent.
    #[arg(long, value_name = "USD", allow_negative_numbers = true, value_parser = dollars)]
    pub(crate) budget_usd: Option<f64>,

    /// The most tokens the run may use, including what it has already used.
    #[arg(long, value_name = "TOKENS", allow_negative_numbers = true)]
    pub(crate) budget_tokens: Option<i64>,

    /// Answer yes to every question.
    #[arg(short, long)]
    pub(crate) yes: bool,

    /// The model to use from now on, instead of the run's own.
    #[arg(long, value_name = "MODEL")]
    pub(crate) model: Option<String>,

    /// Allow the network again, if the run was started with it: public addresses for tools, all of it for commands.
    #[arg(long)]
    pub(crate) allow_network: bool,

    /// Let agents write in the whole working tree again, if the run was started with it.
    #[arg(long)]
    pub(crate) in_place: bool,

    /// What happens to results in workspaces when the run ends [default: what the run was started with]; only
    /// completed work is merged, and never twice.
    #[arg(long, value_enum, value_name = "HOW")]
    pub(crate) merge: Option<MergeAfterRun>,

    /// Changes to what the run was started with, for the work that is left.
    #[command(flatten)]
    pub(crate) terms: WorkspaceSetupFlags,

    /// The format of the result.
    #[arg(long = "return", value_enum, value_name = "FORM")]
    pub(crate) return_form: Option<ResultFormat>,

    /// Print one JSON event per line to standard output instead of the result.
    #[arg(long)]
    pub(crate) events: bool,
}

const RESUME_HELP: &str = r#"An interrupted run continues from its last recorded step. In a run that has ended, partial, cancelled and
failed tasks are continued; completed ones stay as they are. No recorded step is repeated or paid for again, and
budgets keep counting: if one is used up, set a larger one. If nothing is left to do, an interrupted merge is
completed, the result is printed again, and the exit code is that of the run.

Examples:
  adjutant resume                                  the latest run in this directory
  adjutant resume sess_1735460684_a1b2c3 --timeout 600
  adjutant resume sess_1735460684_a1b2c3 --budget-usd 10
  adjutant resume sess_1735460684_a1b2c3 --say "Use the second variant."
  adjutant resume fix --rebase                     your files changed since `fix` began, and its result conflicts"#;

/// The arguments of `adjutant delegate`, which gives tasks to subagents.
#[derive(Debug, Args)]
#[command(after_help = DELEGATE_HELP)]
pub(crate) struct DelegateTasksArgs {
    /// A JSON file of tasks, as the Delegate tool takes them, or - for standard input.
    #[arg(value_name = "TASKS.json|-")]
    pub(crate) tasks: Option<PathBuf>,

    /// A task; can be repeated.
    #[arg(short = 't', long = "task", value_name = "LABEL=PROMPT")]
    pub(crate) task: Vec<String>,

    /// Show which tasks the limits allow and their worst case in tokens, cost and time; run nothing.
    #[arg(long)]
    pub(crate) dry_run: bool,

    /// The hidden flags with which the MCP server starts a run.
    #[command(flatten)]
    pub(crate) detached: DetachedFlags,

    /// The flags of all commands that start work.
    #[command(flatten)]
    pub(crate) work: WorkFlags,
}

/// The flags of all commands that start work: directory, model, limits and output.
#[derive(Debug, Args)]
pub(crate) struct WorkFlags {
    /// The model: provider/model, script:FILE or replay:FILE.
    #[arg(long, env = "ADJUTANT_MODEL", value_name = "MODEL")]
    pub(crate) model: Option<String>,

    /// The agent to run as; `adjutant agents` lists them.
    #[arg(long, value_name = "NAME")]
    pub(crate) agent: Option<String>,

    /// Record the requests to the provider and its answers in a new file, for --model replay:FILE.
    #[arg(long, value_name = "FILE")]
    pub(crate) record: Option<PathBuf>,

    /// The directory the subagents work on.
    #[arg(long, value_name = "DIR", default_value = ".")]
    pub(crate) root: PathBuf,

    /// How many subagents run at once [default: all tasks given with --task, up to 4].
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    pub(crate) concurrency: Option<i64>,

    /// The format of the result.
    #[arg(long = "return", value_enum, value_name = "FORM")]
    pub(crate) return_form: Option<ResultFormat>,

    /// Start without asking for approval.
    #[arg(short, long)]
    pub(crate) yes: bool,

    /// Start calls without asking while the worst cases of all such calls of the run add up to at most this amount.
    #[arg(long, value_name = "USD", allow_negative_numbers = true, value_parser = dollars)]
    pub(crate) approve_below: Option<f64>,

    /// Where to run: restate://HOST:PORT for the workers of a cluster, or local [default: local].
    #[arg(long, env = "ADJUTANT_RUNTIME", value_name = "URL", hide_env_values = true)]
    pub(crate) runtime: Option<String>,

    /// Print one JSON event per line to standard output instead of the result.
    #[arg(long)]
    pub(crate) events: bool,

    /// The most dollars the run may spend.
    #[arg(long, value_name = "USD", allow_negative_numbers = true, value_parser = dollars)]
    pub(crate) budget_usd: Option<f64>,

    /// The most tokens the run may use.
    #[arg(long, value_name = "TOKENS", allow_negative_numbers = true)]
    pub(crate) budget_tokens: Option<i64>,

    /// Let agents reach public addresses with WebFetch and WebSearch. You are asked about each new host; with --yes
    /// it is only printed. With --write, commands can also use this machine's network, including loopback and
    /// link-local addresses, without asking.
    #[arg(long)]
    pub(crate) allow_network: bool,

    /// Let agents write in the whole working tree, not only in the specs directory, as far as their definitions allow;
    /// with `run`, it can also be part of a slash command, before the prompt.
    #[arg(long)]
    pub(crate) in_place: bool,

    /// What happens to results in workspaces when the run ends [default: report]; only completed work is merged.
    #[arg(long, value_enum, value_name = "HOW")]
    pub(crate) merge: Option<MergeAfterRun>,

    #[command(flatten)]
    pub(crate) spaces: WriteFlags,

    /// A host that WebFetch may use without asking you; can be repeated.
    #[arg(long, value_name = "HOST")]
    pub(crate) allow_domain: Vec<String>,

    /// A file that replaces the built-in base prompt of subagents.
    #[arg(long, value_name = "FILE")]
    pub(crate) system: Option<PathBuf>,

    /// The limits.
    #[command(flatten)]
    pub(crate) policy: PolicyFlags,
}

const DELEGATE_HELP: &str = r#"Examples:
  adjutant delegate -t security='Look for injection in src/' -t tests='Which modules lack tests?'
  adjutant delegate tasks.json --yes --return json
  echo '{"tasks":[{"label":"a","prompt":"Count the TODOs"}]}' | adjutant delegate - --dry-run
  adjutant delegate -t a='Try my policy' --model script:my-script.toml --yes
  adjutant delegate -t fix='Fix the parser' --write --verify "cargo test" --verify-keep "tests/**"

A task file contains {"tasks": [{"label", "prompt", "context"?, "max_output_tokens"?}], "concurrency"?, "return"?}."#;

/// Reads an amount; whether it is allowed, the policy says.
///
/// `inf` and `nan` are numbers to Rust, but JSON has no word for them: they would arrive at the
/// policy as `null`, which means no limit at all.
fn dollars(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(usd) if usd.is_finite() => Ok(usd),
        Ok(_) | Err(_) => Err("not an amount of dollars, such as 2.50".into()),
    }
}

/// How a result is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum ResultFormat {
    /// For people and models.
    Markdown,
    /// For programs.
    Json,
}
