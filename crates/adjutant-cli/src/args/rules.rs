//! The arguments of commands that begin no run: they judge something or list what there is.

use std::path::PathBuf;

use clap::{Args, ValueEnum};

use super::PolicyFlags;

/// `adjutant check`.
#[derive(Debug, Args)]
#[command(after_help = CHECK_HELP)]
pub(crate) struct CheckArgs {
    /// The limits.
    #[command(flatten)]
    pub(crate) policy: PolicyFlags,
}

const CHECK_HELP: &str = r#"Example:
  echo '{"tree":[{"id":"r","agent":"implement"}],"request":{"parent":"r","agent":"implementer"}}' \
    | adjutant check --preset command

Prints {"granted":true,"depth","path","timeout",…} and exits 0, or
{"granted":false,"code","message","recommendation"} and exits 4; bad input exits 2."#;

/// `adjutant parse`.
#[derive(Debug, Args)]
pub(crate) struct ParseArgs {
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

/// `adjutant validate`.
#[derive(Debug, Args)]
pub(crate) struct ValidateArgs {
    /// The session the return must name.
    #[arg(long, value_name = "SESSION")]
    pub(crate) session: Option<String>,

    /// Check that artifacts exist below this directory.
    #[arg(long, value_name = "DIR")]
    pub(crate) root: Option<PathBuf>,

    /// Refuse `completed` without artifacts.
    #[arg(long)]
    pub(crate) artifacts_required: bool,
}

/// `adjutant policy`.
#[derive(Debug, Args)]
pub(crate) struct PolicyArgs {
    /// Say what each key bounds and who may change it.
    #[arg(value_enum)]
    pub(crate) explain: Option<Explain>,

    /// The tree whose project config counts.
    #[arg(long, value_name = "DIR", default_value = ".")]
    pub(crate) root: PathBuf,

    /// The limits.
    #[command(flatten)]
    pub(crate) policy: PolicyFlags,
}

/// `adjutant agents`.
#[derive(Debug, Args)]
#[command(after_help = AGENTS_HELP)]
pub(crate) struct AgentsArgs {
    /// Show only this agent, with its prompt.
    #[arg(value_name = "NAME")]
    pub(crate) name: Option<String>,

    /// The tree whose agents count.
    #[arg(long, value_name = "DIR", default_value = ".")]
    pub(crate) root: PathBuf,

    /// The limits.
    #[command(flatten)]
    pub(crate) policy: PolicyFlags,
}

const AGENTS_HELP: &str = "\
Agents are read where people have them: .claude/agents, .opencode/agent and agents, .codex/agents,
.gemini/agents and .adjutant/agents in the project, then the same products' folders at home. A file
may narrow what its agent can do, never widen it. `adjutant run` offers them to its parent agent;
--agent NAME works as one of them.";

/// `adjutant commands`.
#[derive(Debug, Args)]
#[command(after_help = COMMANDS_HELP)]
pub(crate) struct CommandsArgs {
    /// Show only this command, with what it says.
    #[arg(value_name = "NAME")]
    pub(crate) name: Option<String>,

    /// The tree whose commands count.
    #[arg(long, value_name = "DIR", default_value = ".")]
    pub(crate) root: PathBuf,

    /// The limits.
    #[command(flatten)]
    pub(crate) policy: PolicyFlags,
}

const COMMANDS_HELP: &str = "\
Carry one out with adjutant run '/NAME ARGUMENTS'. Commands are read where people have them:
.claude/commands, .opencode/command and commands, .adjutant/commands in the project, then the same
products' folders at home; research, plan, implement, revise, review, task, errors, todo and meta are
there without a file. $ARGUMENTS, $1, $2 … in a body become what was typed. Nothing in a file is executed
or included, and a file may narrow rights, never widen them. [routing.plan] in your own configuration
names the agent: default = \"planner\", lean = \"lean-planner\".";

/// The word `explain`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Explain {
    /// Say what each key bounds and who may change it.
    Explain,
}
