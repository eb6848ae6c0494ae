//! `adjutant task`: its commands and their help.

use std::path::PathBuf;

use clap::{Args, Subcommand};

/// `adjutant task`.
#[derive(Debug, Args)]
#[command(after_help = TASK_HELP, arg_required_else_help = true)]
pub(crate) struct TaskArgs {
    /// What to do.
    #[command(subcommand)]
    pub(crate) command: TaskCommand,

    /// The tree whose tasks count.
    #[arg(long, global = true, value_name = "DIR", default_value = ".")]
    pub(crate) root: PathBuf,
}

const TASK_HELP: &str = r#"Examples:
  adjutant task add "Fix the parser" --language rust --priority high
  adjutant task list
  adjutant task set 1 researching
  adjutant task set 1 blocked --reason "waits for task 2"

Tasks are entries of TODO.md in .opencode/specs, or in .adjutant/specs where there is none; the first task
creates it. state.json beside it says the same to programs. Both change together or not at all, and what
you write elsewhere in TODO.md stays as it is."#;

/// What can be done with tasks.
#[derive(Debug, Subcommand)]
pub(crate) enum TaskCommand {
    /// Add a task.
    Add(TaskAddArgs),
    /// List the tasks.
    List,
    /// Show a task, and what may follow.
    Show {
        /// The number of the task.
        #[arg(value_name = "N", allow_hyphen_values = true)]
        number: Option<String>,
    },
    /// Move a task to another status.
    Set(TaskSetArgs),
}

/// `adjutant task add`.
#[derive(Debug, Args)]
#[command(after_help = ADD_HELP)]
pub(crate) struct TaskAddArgs {
    /// What is to be done, in one line.
    #[arg(value_name = "TITLE")]
    pub(crate) title: String,

    /// The language, which decides who works on it [default: general].
    #[arg(long, value_name = "LANGUAGE")]
    pub(crate) language: Option<String>,

    /// How much it matters: low, medium, high or critical [default: medium].
    #[arg(long, value_name = "PRIORITY")]
    pub(crate) priority: Option<String>,

    /// How much work it may be, in your words [default: TBD].
    #[arg(long, value_name = "EFFORT")]
    pub(crate) effort: Option<String>,

    /// More about it.
    #[arg(long, value_name = "TEXT")]
    pub(crate) description: Option<String>,
}

const ADD_HELP: &str = r#"Examples:
  adjutant task add "Fix the parser"
  adjutant task add "Prove the lemma" --language lean --priority high --description "See chapter 4.""#;

/// `adjutant task set`.
#[derive(Debug, Args)]
#[command(after_help = SET_HELP)]
pub(crate) struct TaskSetArgs {
    /// The number of the task.
    #[arg(value_name = "N", allow_hyphen_values = true)]
    pub(crate) number: Option<String>,

    /// The status, as a word or a marker.
    #[arg(value_name = "STATUS")]
    pub(crate) status: Option<String>,

    /// Why it is blocked or abandoned.
    #[arg(long, value_name = "TEXT")]
    pub(crate) reason: Option<String>,
}

const SET_HELP: &str = r#"Statuses: not_started, in_progress, researching, researched, planning, planned, revising, revised,
implementing, partial, completed, blocked, abandoned. Only legal steps are taken; one that is not exits with 4
and names those that are.

Examples:
  adjutant task set 1 implementing
  adjutant task set 1 completed
  adjutant task set 2 abandoned --reason "The library does it now.""#;
