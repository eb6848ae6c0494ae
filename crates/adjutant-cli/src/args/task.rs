//! The arguments and the help of `adjutant task`.

use std::path::PathBuf;

use clap::{Args, Subcommand};

/// The arguments of `adjutant task`, which keeps the task list of a project.
#[derive(Debug, Args)]
#[command(after_help = TASK_HELP, arg_required_else_help = true)]
pub(crate) struct TaskArgs {
    /// What to do.
    #[command(subcommand)]
    pub(crate) command: TaskCommand,

    /// The directory of the project.
    #[arg(long, global = true, value_name = "DIR", default_value = ".")]
    pub(crate) root: PathBuf,
}

const TASK_HELP: &str = r#"Examples:
  adjutant task add "Fix the parser" --language rust --priority high
  adjutant task list
  adjutant task set 1 researching
  adjutant task set 1 blocked --reason "waits for task 2"

Tasks are entries of TODO.md in .opencode/specs if that directory exists, otherwise in .adjutant/specs. Adding the
first task creates the file. state.json next to it has the same data for programs. Both files change together or
not at all, and the rest of TODO.md stays as you wrote it."#;

/// The subcommands of `adjutant task`.
#[derive(Debug, Subcommand)]
pub(crate) enum TaskCommand {
    /// Add a task.
    Add(TaskAddArgs),
    /// List the tasks.
    List,
    /// Show a task and the statuses that can follow.
    Show {
        /// The number of the task.
        #[arg(value_name = "N", allow_hyphen_values = true)]
        number: Option<String>,
    },
    /// Change the status of a task.
    Set(TaskSetArgs),
}

/// The arguments of `adjutant task add`, which adds a task.
#[derive(Debug, Args)]
#[command(after_help = ADD_HELP)]
pub(crate) struct TaskAddArgs {
    /// What is to be done, on one line.
    #[arg(value_name = "TITLE")]
    pub(crate) title: String,

    /// The language, which selects the agent that works on the task [default: general].
    #[arg(long, value_name = "LANGUAGE")]
    pub(crate) language: Option<String>,

    /// The priority: low, medium, high or critical [default: medium].
    #[arg(long, value_name = "PRIORITY")]
    pub(crate) priority: Option<String>,

    /// The estimated effort, in your own words [default: TBD].
    #[arg(long, value_name = "EFFORT")]
    pub(crate) effort: Option<String>,

    /// A longer description.
    #[arg(long, value_name = "TEXT")]
    pub(crate) description: Option<String>,
}

const ADD_HELP: &str = r#"Examples:
  adjutant task add "Fix the parser"
  adjutant task add "Prove the lemma" --language lean --priority high --description "See chapter 4.""#;

/// The arguments of `adjutant task set`, which changes the status of a task.
#[derive(Debug, Args)]
#[command(after_help = SET_HELP)]
pub(crate) struct TaskSetArgs {
    /// The number of the task.
    #[arg(value_name = "N", allow_hyphen_values = true)]
    pub(crate) number: Option<String>,

    /// The new status, as a word or a marker.
    #[arg(value_name = "STATUS")]
    pub(crate) status: Option<String>,

    /// Why the task is blocked or abandoned.
    #[arg(long, value_name = "TEXT")]
    pub(crate) reason: Option<String>,
}

const SET_HELP: &str = r#"Statuses: not_started, in_progress, researching, researched, planning, planned, revising, revised,
implementing, partial, completed, blocked, abandoned. A change that is not allowed exits with 4
and lists the allowed ones.

Examples:
  adjutant task set 1 implementing
  adjutant task set 1 completed
  adjutant task set 2 abandoned --reason "The library does it now.""#;
