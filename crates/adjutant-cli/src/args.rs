//! The command line: parsed to plain values here, acted upon elsewhere.

mod alias;
mod approvals;
mod mcp;
mod records;
mod rules;
mod story;
mod suggest;
mod task;
mod work;

use std::path::PathBuf;

use clap::builder::{OsStringValueParser, TypedValueParser};
use clap::error::{ContextKind, ContextValue, ErrorKind as ClapKind};
use clap::parser::ValueSource;
use clap::{ArgMatches, Args, CommandFactory, FromArgMatches, Parser, Subcommand, ValueEnum};

use crate::hints;
use crate::spaces::{SpaceFlags, TermFlags};

pub(crate) use approvals::{ApproveArgs, DetachedFlags};
pub(crate) use mcp::{McpArgs, McpClient, McpCommand, McpScope, OnDisconnect};
pub(crate) use records::{
    CancelArgs, CostArgs, ErrorsArgs, ErrorsCommand, LogArgs, NAME, PruneArgs, ResultArgs, RunArg,
    ScopeFlag, StatusArgs, TellArgs, WaitArgs, WatchArgs,
};
pub(crate) use rules::{AgentsArgs, CheckArgs, CommandsArgs, ParseArgs, PolicyArgs, ValidateArgs};
pub(crate) use story::StoryArgs;
pub(crate) use task::{TaskAddArgs, TaskArgs, TaskCommand, TaskSetArgs};
pub(crate) use work::{DiffArgs, DiscardArgs, MergeAfter, MergeArgs, MergeAs};

/// Bounded delegation for AI agents.
///
/// Hand tasks to subagents under hard limits on depth, cycles, fan-out, tokens, money and time.
/// Every step is recorded, and a valid answer always comes back. Data goes to standard output,
/// talk to standard error.
///
/// Start with `adjutant demo`: it needs no key and no network.
#[derive(Debug, Parser)]
#[command(name = "adjutant", version, about, arg_required_else_help = true, after_help = EXIT_CODES)]
pub(crate) struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub(crate) command: Command,

    /// Print JSON instead of text; its schemas are in docs/schemas.
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
        let matches = flowing(Self::command())
            .try_get_matches_from(alias::read(std::env::args_os()))
            .map_err(|error| {
                let command = alias::first_command(std::env::args_os());
                suggest::suggest(explained(typed_only(error)), command.as_deref())
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
            Some(home) if is_flag => hints::keep_home(home),
            Some(_) | None => {}
        }
        if let Some(root) = given_root(&matches) {
            hints::keep_root(root);
        }
        if let Some(("story", matches)) = matches.subcommand()
            && let Some(command) = Self::command().find_subcommand("story")
        {
            hints::keep_typed(crate::story::flags(command, matches));
        }
        Ok(cli)
    }
}

/// Lets the paragraphs after the flags flow: the width of the terminal breaks their lines, and nothing breaks them
/// twice.
fn flowing(command: clap::Command) -> clap::Command {
    let after = command.get_after_help().map(ToString::to_string);
    let command = match after {
        Some(text) => command.after_help(joined(&text)),
        None => command,
    };
    command.mut_subcommands(flowing)
}

/// Joins the lines of each paragraph; what is indented, and what stands above it, is no part of one.
fn joined(text: &str) -> String {
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

/// Leaves out of a usage line what comes from the environment and was not typed.
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
fn explained(error: clap::Error) -> clap::Error {
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
    1  all failed               5  blocked, an answer is needed
    2  usage or bad input     124  the time of a command or of `wait --timeout` is up
    3  partial or mixed       130  cancelled";

/// The commands.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Show everything at once: three subagents on a real tree, no key, no network.
    Demo(DemoArgs),
    /// Work towards a goal with a parent agent that may delegate.
    Run(GoalArgs),
    /// Hand tasks to subagents and wait for their reports.
    Delegate(DelegateArgs),
    /// Work on the stories of a PRD, each in a workspace of its own.
    #[command(mut_arg("merge", |merge| merge.help(story::MERGE)))]
    #[command(mut_args(story::hide_elsewhere))]
    Story(StoryArgs),
    /// Go on with a run that was interrupted, or with what is left of one that has ended.
    Resume(ResumeArgs),
    /// Judge one delegation, described as JSON on standard input, without running it.
    Check(CheckArgs),
    /// Read delegation markers from standard input.
    #[command(about = "Read [delegate:description:hours] markers from standard input")]
    Parse(ParseArgs),
    /// Judge a return, given on standard input, against the standard format.
    Validate(ValidateArgs),
    /// Show the limits in force and where each comes from.
    Policy(PolicyArgs),
    /// List the agents that files describe and the built-in ones: what each may do, and what is ignored.
    Agents(AgentsArgs),
    /// List the slash commands: from which file, for which agent, and what of the file is ignored.
    Commands(CommandsArgs),
    /// Add, list, show and move the tasks of a project.
    Task(TaskArgs),
    /// List the well-known models, what they charge, and which can be used.
    Models,
    /// Look at everything a run needs and say what is missing.
    Doctor,
    /// Write a commented configuration file.
    Init,
    /// List runs and what they do, or show one.
    Status(StatusArgs),
    /// Show a run's delegations as a tree.
    Tree(RunArg),
    /// Follow a run until it ends, from any terminal.
    Watch(WatchArgs),
    /// Print a run's results again.
    Result(ResultArgs),
    /// Print what a subagent was told and said.
    Transcript(RunArg),
    /// Show what a run cost, own and inclusive, by agent and by model.
    Cost(CostArgs),
    /// List what went wrong in all runs, and tick it off.
    Errors(ErrorsArgs),
    /// Show every event of a run, one line each.
    Log(LogArgs),
    /// End a run, or a subagent and all below it, from any terminal.
    Cancel(CancelArgs),
    /// Wait for the end of a run; the exit code is that of the run.
    Wait(WaitArgs),
    /// Say something to a subagent at work, before its next turn.
    Tell(TellArgs),
    /// List what waits for your approval, from MCP clients and at prompts of other terminals.
    Approvals,
    /// Let a call start that waits for your approval, or refuse it; from a terminal only.
    Approve(ApproveArgs),
    /// Show what the subagents of a run changed in their workspaces.
    Diff(DiffArgs),
    /// Merge that work into the files or onto branches, or take a merge back.
    Merge(MergeArgs),
    /// Drop that work.
    Discard(DiscardArgs),
    /// Put back what the agents of a run changed, where nobody touched it since.
    Undo(crate::undo::UndoArgs),
    /// Remove the content of old runs and results that are merged; metadata and cost stay.
    Prune(PruneArgs),
    /// Serve an MCP client such as Claude Code or Codex, which can then delegate.
    Mcp(McpArgs),
    /// Print a completion script for your shell.
    Completions {
        /// The shell.
        shell: clap_complete::Shell,
    },
}

/// How limits are chosen.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct PolicyFlags {
    /// The preset to start from: scout (forge), command (opencode) or story (claude-loop).
    #[arg(long, value_name = "NAME", env = "ADJUTANT_PRESET")]
    pub(crate) preset: Option<String>,

    /// Set a limit; `adjutant policy` lists the keys.
    #[arg(long = "set", value_name = "KEY=VALUE")]
    pub(crate) set: Vec<String>,

    /// Switch delegation on where the preset has it off.
    #[arg(long)]
    pub(crate) enable_delegation: bool,
}

/// `adjutant demo`.
#[derive(Debug, Args)]
pub(crate) struct DemoArgs {
    /// The tree the subagents look at [default: here, or a sample when there is too little here].
    pub(crate) dir: Option<PathBuf>,

    /// How the result is written.
    #[arg(long = "return", value_enum, value_name = "FORM")]
    pub(crate) return_form: Option<Form>,

    /// Stream one JSON event per line to standard output instead of the result.
    #[arg(long)]
    pub(crate) events: bool,
}

/// `adjutant run`.
#[derive(Debug, Args)]
#[command(after_help = RUN_HELP)]
pub(crate) struct GoalArgs {
    /// What is to be achieved, or a slash command; what is piped in joins it.
    #[arg(value_name = "GOAL|/COMMAND")]
    pub(crate) goal: Option<String>,

    /// Go on with the latest run of a parent agent in this tree instead of beginning a new one.
    #[arg(long = "continue", conflicts_with_all = FIXED_AT_THE_START)]
    pub(crate) goes_on: bool,

    /// How the MCP server starts its runs.
    #[command(flatten)]
    pub(crate) detached: DetachedFlags,

    /// How it is done.
    #[command(flatten)]
    pub(crate) work: WorkFlags,
}

/// What is decided when a run begins and stays so.
const FIXED_AT_THE_START: [&str; 11] = [
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
];

const RUN_HELP: &str = r#"Examples:
  adjutant run "Why is the build slow?"
  git diff | adjutant run "Review this change" --yes --budget-usd 1
  adjutant run --continue "And what would make it faster?"
  adjutant run '/task "Add JWT"'
  adjutant run "/plan 12 keep it small"

A goal whose first character is / is a slash command; `adjutant commands` lists them. It runs under the
preset command unless --preset says otherwise, and --agent names who does it. A path of several parts, as
in "/etc/hosts is strange", is no command; before another path put a space: " /tmp is full"."#;

/// `adjutant resume`.
#[derive(Debug, Args)]
#[command(after_help = RESUME_HELP)]
pub(crate) struct ResumeArgs {
    /// The run or session: an id or the start of it, or a label or '#N' of the latest run [default: the latest run of
    /// this tree].
    #[arg(value_name = NAME)]
    pub(crate) run: Option<String>,

    /// The tree whose latest run is meant where none is named.
    #[arg(long, value_name = "DIR", default_value = ".")]
    pub(crate) root: PathBuf,

    /// What you have to say to it: the answer it waits for, or what is left to do.
    #[arg(long, value_name = "TEXT")]
    pub(crate) say: Option<String>,

    /// Give that many seconds anew, at most what the work may take [default: what is left, or the time it had at first].
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) timeout: Option<u64>,

    /// Set a limit from here on: budgets, times and concurrency; `adjutant policy` lists the keys.
    #[arg(long = "set", value_name = "KEY=VALUE")]
    pub(crate) set: Vec<String>,

    /// The most dollars the run may spend, with what it has spent so far.
    #[arg(long, value_name = "USD", allow_negative_numbers = true, value_parser = dollars)]
    pub(crate) budget_usd: Option<f64>,

    /// The most tokens the run may use, with what it has used so far.
    #[arg(long, value_name = "TOKENS", allow_negative_numbers = true)]
    pub(crate) budget_tokens: Option<i64>,

    /// Answer every question with yes.
    #[arg(short, long)]
    pub(crate) yes: bool,

    /// Another model in place of those it ran on.
    #[arg(long, value_name = "MODEL")]
    pub(crate) model: Option<String>,

    /// Let the agents reach public addresses again, where they could before; their commands all of the network.
    #[arg(long)]
    pub(crate) allow_network: bool,

    /// Let the agents write in the whole tree again, where they could before.
    #[arg(long)]
    pub(crate) in_place: bool,

    /// What becomes of the work in workspaces once the run has ended [default: as the run began]; only completed
    /// work is merged, and none of it twice.
    #[arg(long, value_enum, value_name = "HOW")]
    pub(crate) merge: Option<MergeAfter>,

    /// What was said about workspaces at the start holds; these change it for what is yet to be done.
    #[command(flatten)]
    pub(crate) terms: TermFlags,

    /// How the result is written.
    #[arg(long = "return", value_enum, value_name = "FORM")]
    pub(crate) return_form: Option<Form>,

    /// Stream one JSON event per line to standard output instead of the result.
    #[arg(long)]
    pub(crate) events: bool,
}

const RESUME_HELP: &str = r#"A run that was interrupted goes on from its last recorded step. Of one that has ended, what is partial,
cancelled or failed is taken up again; what is completed stays. Nothing recorded is done or paid for twice,
and budgets go on counting: after one was used up, give a larger one. Of a run with nothing left to do, a
merge that was cut short is completed, the result is printed again, and the exit code is that of the run.

Examples:
  adjutant resume                                  the latest run of this tree
  adjutant resume sess_1735460684_a1b2c3 --timeout 600
  adjutant resume sess_1735460684_a1b2c3 --budget-usd 10
  adjutant resume sess_1735460684_a1b2c3 --say "Use the second variant.""#;

/// `adjutant delegate`.
#[derive(Debug, Args)]
#[command(after_help = DELEGATE_HELP)]
pub(crate) struct DelegateArgs {
    /// A JSON file of tasks in the form of the Delegate tool, or - for standard input.
    #[arg(value_name = "TASKS.json|-")]
    pub(crate) tasks: Option<PathBuf>,

    /// One task; may be repeated.
    #[arg(short = 't', long = "task", value_name = "LABEL=PROMPT")]
    pub(crate) task: Vec<String>,

    /// Show what would be granted and the worst case in tokens, cost and time; run nothing.
    #[arg(long)]
    pub(crate) dry_run: bool,

    /// How the MCP server starts its runs.
    #[command(flatten)]
    pub(crate) detached: DetachedFlags,

    /// How it is done.
    #[command(flatten)]
    pub(crate) work: WorkFlags,
}

/// How work is done: on what, with which model, within which limits, and how it is shown.
#[derive(Debug, Args)]
pub(crate) struct WorkFlags {
    /// The model, as provider/model, script:FILE or replay:FILE.
    #[arg(long, env = "ADJUTANT_MODEL", value_name = "MODEL")]
    pub(crate) model: Option<String>,

    /// Work as the agent of that name; `adjutant agents` lists them.
    #[arg(long, value_name = "NAME")]
    pub(crate) agent: Option<String>,

    /// Keep what the provider is asked and answers in a new file, for --model replay:FILE.
    #[arg(long, value_name = "FILE")]
    pub(crate) record: Option<PathBuf>,

    /// The tree the subagents look at.
    #[arg(long, value_name = "DIR", default_value = ".")]
    pub(crate) root: PathBuf,

    /// How many work at once; unset, the tasks you type all do, up to 4.
    #[arg(long, value_name = "N", allow_negative_numbers = true)]
    pub(crate) concurrency: Option<i64>,

    /// How the result is written.
    #[arg(long = "return", value_enum, value_name = "FORM")]
    pub(crate) return_form: Option<Form>,

    /// Start without asking.
    #[arg(short, long)]
    pub(crate) yes: bool,

    /// Start without asking while the worst cases of all such calls of the run fit this amount.
    #[arg(long, value_name = "USD", allow_negative_numbers = true, value_parser = dollars)]
    pub(crate) approve_below: Option<f64>,

    /// Stream one JSON event per line to standard output instead of the result.
    #[arg(long)]
    pub(crate) events: bool,

    /// The most dollars the run may spend.
    #[arg(long, value_name = "USD", allow_negative_numbers = true, value_parser = dollars)]
    pub(crate) budget_usd: Option<f64>,

    /// The most tokens the run may use.
    #[arg(long, value_name = "TOKENS", allow_negative_numbers = true)]
    pub(crate) budget_tokens: Option<i64>,

    /// Let the agents reach public addresses with WebFetch and WebSearch; each new host asks, or is
    /// printed with --yes. With --write, commands
    /// reach the network of this machine too, loopback and link-local addresses included, and nothing asks.
    #[arg(long)]
    pub(crate) allow_network: bool,

    /// Let agents whose definition says so write anywhere in the tree, not only below the specs folder;
    /// `run` takes it within a slash command too, before the prompt.
    #[arg(long)]
    pub(crate) in_place: bool,

    /// What becomes of the work in workspaces once the run has ended [default: report]; only completed work is merged.
    #[arg(long, value_enum, value_name = "HOW")]
    pub(crate) merge: Option<MergeAfter>,

    #[command(flatten)]
    pub(crate) spaces: SpaceFlags,

    /// A host that WebFetch may ask without a question; may be repeated.
    #[arg(long, value_name = "HOST")]
    pub(crate) allow_domain: Vec<String>,

    /// A file that replaces the built-in base prompt of the subagents.
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

A task file holds {"tasks": [{"label", "prompt", "context"?, "max_output_tokens"?}], "concurrency"?, "return"?}."#;

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
pub(crate) enum Form {
    /// For people and models.
    Markdown,
    /// For programs.
    Json,
}
