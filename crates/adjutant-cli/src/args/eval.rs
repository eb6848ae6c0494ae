//! The arguments of `adjutant eval`.

use std::path::PathBuf;

use clap::Args;

use super::{PolicyFlags, dollars};

/// The arguments of `adjutant eval`, which measures what agents achieve on tasks with known solutions.
#[derive(Debug, Args)]
#[command(after_help = EVAL_HELP)]
pub(crate) struct EvalArgs {
    /// List the tasks and run nothing.
    #[arg(long)]
    pub(crate) list: bool,

    /// A directory with a folder for each task, instead of the built-in tasks.
    #[arg(long, value_name = "DIR")]
    pub(crate) tasks: Option<PathBuf>,

    /// Attempt only this task; can be repeated.
    #[arg(long = "task", value_name = "NAME")]
    pub(crate) task: Vec<String>,

    /// How often each task is attempted.
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=100))]
    pub(crate) runs: u32,

    /// The model: provider/model, script:FILE or replay:FILE.
    #[arg(long, env = "ADJUTANT_MODEL", value_name = "MODEL")]
    pub(crate) model: Option<String>,

    /// Let another agent do the work: claude, codex, opencode, gemini, or one of your configuration.
    #[arg(long, value_name = "NAME")]
    pub(crate) worker: Option<String>,

    /// A configuration: model=MODEL, preset=NAME, worker=NAME and mode=alone or mode=delegated, separated by commas.
    /// Given twice, both are compared. What it leaves out is --model, --preset, --worker and mode=alone.
    #[arg(long = "config", value_name = "KEY=VALUE,…")]
    pub(crate) config: Vec<String>,

    /// The most dollars that all attempts together may spend.
    #[arg(long, value_name = "USD", allow_negative_numbers = true, value_parser = dollars)]
    pub(crate) budget_usd: Option<f64>,

    /// Start without asking for approval.
    #[arg(short, long)]
    pub(crate) yes: bool,

    /// Start without asking if the worst case of all attempts costs at most this amount.
    #[arg(long, value_name = "USD", value_parser = dollars)]
    pub(crate) approve_below: Option<f64>,

    /// Make the attempts that are left of an earlier evaluation, with what it was started with [default: the latest];
    /// --budget-usd sets a new budget, including what is already spent.
    #[arg(
        long, value_name = "EVAL", num_args = 0..=1, default_missing_value = "latest",
        conflicts_with_all = ["list", "tasks", "task", "runs", "config", "set", "enable_delegation"]
    )]
    pub(crate) resume: Option<String>,

    /// The limits.
    #[command(flatten)]
    pub(crate) policy: PolicyFlags,
}

const EVAL_HELP: &str = r#"Examples:
  adjutant eval --list
  adjutant eval --model anthropic/claude-sonnet-4-5 --budget-usd 5
  adjutant eval --config model=openai/gpt-5 --config model=openai/gpt-5,mode=delegated --runs 5
  adjutant eval --resume
  adjutant eval --tasks my-tasks --model script:agent.toml --yes --json

Each attempt is an ordinary run in a workspace made from a fresh copy of the task's files. A check, whose files the agent
never sees, then judges the result in the sandbox. The exit code is 0 if every attempt was made, whatever was solved,
and 3 if the budget ended before. docs/eval.md describes the table and how to write tasks."#;
