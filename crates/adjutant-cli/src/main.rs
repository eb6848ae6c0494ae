//! The `adjutant` command: parses the command line, runs one command, prints its failure.
//!
//! Standard output carries data, standard error carries messages to the person. This crate knows the engine and the
//! view; only `wiring` names a concrete model. Start at `act`: one line per command.
#![deny(clippy::print_stdout, clippy::print_stderr)]

mod agents;
mod approvals;
mod args;
mod ask;
mod checks;
mod commands;
mod control;
mod delegate;
mod demo;
mod detached;
mod errors;
mod execute;
mod exit;
mod goal;
mod hints;
mod live;
mod mcp;
mod mcp_clients;
mod models;
mod next_steps;
mod output;
mod policy;
mod projections;
#[cfg(test)]
mod recommendations;
mod records;
mod results;
mod resume;
mod run_lookup;
mod settings;
mod story;
mod tasks;
mod undo;
mod watch;
mod wiring;
mod workspace_flags;

use std::process::ExitCode;

use clap::CommandFactory;

use args::{Cli, Command};
use exit::{Exit, Failure};

fn main() -> ExitCode {
    // Only a single-threaded process can enter user namespaces, so this comes before everything else.
    adjutant_engine::sandbox_helper_if_asked();
    adjutant_mcp::start_detached_if_asked();
    let cli = match Cli::read() {
        Ok(cli) => cli,
        Err(error) => error.exit(),
    };
    match act(cli) {
        Ok(exit) => exit.into(),
        Err(failure) => {
            output::say(&format!("adjutant: {failure}"));
            failure.exit.into()
        }
    }
}

fn act(cli: Cli) -> Result<Exit, Failure> {
    let (json, home) = (cli.json, cli.home);
    let archive = || settings::open_archive(home.clone());
    let Some(command) = cli.command else {
        if json {
            let failure = Failure::usage("--json needs a command");
            return Err(failure.hint("`adjutant status --json` lists the runs."));
        }
        return next_steps::run_next_steps(home);
    };
    match command {
        Command::Demo(args) => demo::run_demo(&args, json, &archive()?),
        Command::Run(args) => goal::run_goal(&args, json, home),
        Command::Story(args) => story::run_story(&args, json, home),
        Command::Delegate(args) => delegate::run_delegate(&args, json, home),
        Command::Resume(args) => resume::run_resume(&args, json, &archive()?),
        Command::Check(args) => checks::run_check(&args),
        Command::Parse(args) => checks::run_parse(&args),
        Command::Validate(args) => checks::run_validate(&args),
        Command::Policy(args) => policy::run_policy(&args, json),
        Command::Agents(args) => agents::run_agents(&args, json),
        Command::Commands(args) => commands::run_commands(&args, json),
        Command::Task(args) => tasks::run_task(&args, json),
        Command::Models => models::run_models(json),
        Command::Doctor => models::run_doctor(&settings::home(home)?, json),
        Command::Init => models::run_init(json),
        Command::Status(args) => records::run_status(&archive()?, &args, json),
        Command::Tree(run) => records::run_tree(&archive()?, &run, json),
        Command::Watch(args) => watch::run_watch(&archive()?, &args.run, json),
        Command::Result(args) => records::run_result(&archive()?, &args, json),
        Command::Transcript(run) => records::run_transcript(&archive()?, &run, json),
        Command::Cost(args) => records::run_cost(&archive()?, &args, json),
        Command::Errors(args) => errors::run_errors(&archive()?, &args, json),
        Command::Log(args) => records::run_log(&archive()?, &args, json),
        Command::Diff(args) => results::run_diff(&archive()?, &args, json),
        Command::Merge(args) => results::run_merge(&archive()?, &args, json),
        Command::Discard(args) => results::run_discard(&archive()?, &args, json),
        Command::Undo(args) => undo::run_undo(&archive()?, &args, json),
        Command::Prune(args) => records::run_prune(&archive()?, &args, json),
        Command::Cancel(args) => control::run_cancel(&archive()?, &args, json),
        Command::Wait(args) => control::run_wait(&archive()?, &args, json),
        Command::Tell(args) => control::run_tell(&archive()?, &args, json),
        Command::Approvals => approvals::run_approvals(&archive()?, json),
        Command::Approve(args) => approvals::run_approve(&archive()?, &args, json),
        Command::Mcp(args) => mcp::run_mcp(&args, home),
        Command::Completions { shell } => {
            let mut script = Vec::new();
            clap_complete::generate(shell, &mut Cli::command(), "adjutant", &mut script);
            output::print(&String::from_utf8_lossy(&script))?;
            Ok(Exit::Completed)
        }
    }
}
