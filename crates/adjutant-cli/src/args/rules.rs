//! The arguments of `check`, `parse`, `validate`, `policy`, `agents` and `commands`.

use std::path::PathBuf;

use clap::{Args, ValueEnum};

use super::PolicyFlags;

/// The arguments of `adjutant check`, which decides about one delegation request on stdin.
#[derive(Debug, Args)]
#[command(after_help = CHECK_HELP)]
pub(crate) struct CheckDelegationArgs {
    /// The limits.
    #[command(flatten)]
    pub(crate) policy: PolicyFlags,
}

const CHECK_HELP: &str = r#"Example:
  echo '{"tree":[{"id":"r","agent":"implement"}],"request":{"parent":"r","agent":"implementer"}}' \
    | adjutant check --preset command

Prints {"granted":true,"depth","path","timeout",…} and exits 0, or
{"granted":false,"code","message","recommendation"} and exits 4. Bad input exits 2."#;

/// The arguments of `adjutant parse`, which reads delegation markers from stdin.
#[derive(Debug, Args)]
pub(crate) struct ParseMarkersArgs {
    /// The story whose agent wrote the text.
    #[arg(long, value_name = "STORY")]
    pub(crate) parent: String,

    /// The depth of that story.
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub(crate) depth: u32,

    /// The number of the first child.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) start: u32,
}

/// The arguments of `adjutant validate`, which checks a subagent's return on stdin.
#[derive(Debug, Args)]
pub(crate) struct ValidateReturnArgs {
    /// The session id that the return must contain.
    #[arg(long, value_name = "SESSION")]
    pub(crate) session: Option<String>,

    /// Check that the artifacts exist in this directory.
    #[arg(long, value_name = "DIR")]
    pub(crate) root: Option<PathBuf>,

    /// Reject a `completed` return without artifacts.
    #[arg(long)]
    pub(crate) artifacts_required: bool,
}

/// The arguments of `adjutant policy`, which prints the limits that would apply here.
#[derive(Debug, Args)]
pub(crate) struct PolicyArgs {
    /// Explain what each key limits and who may change it.
    #[arg(value_enum)]
    pub(crate) explain: Option<ExplainKeyword>,

    /// The directory whose project configuration is used.
    #[arg(long, value_name = "DIR", default_value = ".")]
    pub(crate) root: PathBuf,

    /// The limits.
    #[command(flatten)]
    pub(crate) policy: PolicyFlags,
}

/// The arguments of `adjutant agents`, which lists agents or shows one with its prompt.
#[derive(Debug, Args)]
#[command(after_help = AGENTS_HELP)]
pub(crate) struct AgentsArgs {
    /// Show only this agent, with its prompt.
    #[arg(value_name = "NAME")]
    pub(crate) name: Option<String>,

    /// The directory whose agents are listed.
    #[arg(long, value_name = "DIR", default_value = ".")]
    pub(crate) root: PathBuf,

    /// The limits.
    #[command(flatten)]
    pub(crate) policy: PolicyFlags,
}

const AGENTS_HELP: &str = "\
Agent files are read from .claude/agents, .opencode/agent and .opencode/agents, .codex/agents, .gemini/agents
and .adjutant/agents in the project, then from the same products' directories in your home directory. A file can
restrict what its agent may do but never extend it. `adjutant run` offers these agents to its parent agent, and
--agent NAME runs as one of them.";

/// The arguments of `adjutant commands`, which lists slash commands or shows one with its text.
#[derive(Debug, Args)]
#[command(after_help = COMMANDS_HELP)]
pub(crate) struct CommandsArgs {
    /// Show only this command, with its text.
    #[arg(value_name = "NAME")]
    pub(crate) name: Option<String>,

    /// The directory whose commands are listed.
    #[arg(long, value_name = "DIR", default_value = ".")]
    pub(crate) root: PathBuf,

    /// The limits.
    #[command(flatten)]
    pub(crate) policy: PolicyFlags,
}

const COMMANDS_HELP: &str = "\
Run a command with adjutant run '/NAME ARGUMENTS'. Command files are read from .claude/commands,
.opencode/command and .opencode/commands, and .adjutant/commands in the project, then from the same products'
directories in your home directory. research, plan, implement, revise, review, task, errors, todo and meta are
built in. $ARGUMENTS, $1, $2 … in a file are replaced by the arguments. Nothing in a file is executed or included,
and a file can restrict rights but never extend them. [routing.plan] in your configuration selects the agent by
language: default = \"planner\", lean = \"lean-planner\".";

/// The optional word `explain` of `adjutant policy explain`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum ExplainKeyword {
    /// Explain what each key limits and who may change it.
    Explain,
}
