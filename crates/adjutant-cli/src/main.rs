//! The `adjutant` command: parses the command line, runs one command, prints its failure.
//!
//! Standard output carries data, standard error carries messages to the person. This crate knows the engine and the
//! view; only `wiring` names a concrete model. Start at `act`: one line per command.
#![deny(clippy::print_stdout, clippy::print_stderr)]

mod account;
mod agent_consent;
mod agents;
mod approvals;
mod args;
mod ask;
mod checks;
#[cfg(feature = "restate")]
mod cluster;
mod commands;
mod control;
mod cost;
mod delegate;
mod demo;
mod detached;
mod errors;
mod eval;
mod execute;
mod exit;
mod full_screen;
mod gateway;
mod goal;
mod hints;
mod init;
mod live;
mod mcp;
mod mcp_clients;
mod models;
mod next_steps;
mod notify;
mod output;
mod pager;
mod policy;
mod projections;
mod readiness;
#[cfg(test)]
mod recommendations;
mod records;
mod results;
mod resume;
mod run_lookup;
mod run_summaries;
mod runtime;
mod screen_region;
mod settings;
mod story;
mod tasks;
mod toolchains;
mod undo;
mod update;
mod watch;
mod wiring;
mod workers;
mod workspace_flags;

use std::process::ExitCode;

use clap::CommandFactory;

use args::{Cli, CliCommand};
use exit::{Exit, Failure};

fn main() -> ExitCode {
    // Only a single-threaded process can enter user namespaces, so this comes before everything else.
    adjutant_engine::sandbox_helper_if_asked();
    adjutant_mcp::start_detached_if_asked();
    let cli = match Cli::read() {
        Ok(cli) => cli,
        Err(error) => error.exit(),
    };
    let end = act(cli);
    notify::finish();
    let code = match end {
        Ok(code) => code,
        Err(failure) => {
            output::say(&format!("adjutant: {failure}"));
            failure.exit.into()
        }
    };
    pager::finish();
    code
}

fn act(cli: Cli) -> Result<ExitCode, Failure> {
    let (json, home) = (cli.json, cli.home);
    let archive = || settings::open_archive(home.clone());
    let Some(command) = cli.command else {
        if json {
            let failure = Failure::usage("--json needs a command");
            return Err(failure.hint("`adjutant status --json` lists the runs."));
        }
        return next_steps::run_next_steps(home).map(ExitCode::from);
    };
    if !json && is_paged(&command) {
        pager::start();
    }
    let exit = match command {
        CliCommand::Demo(args) => demo::run_demo(&args, json, &archive()?),
        CliCommand::Run(args) => goal::run_goal(&args, json, home),
        CliCommand::Story(args) => story::run_story(&args, json, home),
        CliCommand::Delegate(args) => delegate::run_delegate(&args, json, home),
        CliCommand::Resume(args) => resume::run_resume(&args, json, &archive()?),
        CliCommand::Check(args) => checks::run_check(&args),
        CliCommand::Parse(args) => checks::run_parse(&args),
        CliCommand::Validate(args) => checks::run_validate(&args),
        CliCommand::Policy(args) => policy::run_policy(&args, json),
        CliCommand::Agents(args) => agents::run_agents(&args, json),
        CliCommand::Commands(args) => commands::run_commands(&args, json),
        CliCommand::Task(args) => tasks::run_task(&args, json),
        CliCommand::Eval(args) => eval::run_eval(&args, json, home),
        CliCommand::Workers => workers::run_workers(json),
        CliCommand::Gateway(args) => return gateway::run_gateway(args, home),
        #[cfg(feature = "restate")]
        CliCommand::ServeWorker(args) => cluster::serve_worker::run_serve_worker(&args, home),
        #[cfg(feature = "restate")]
        CliCommand::Cluster(args) => cluster::run_cluster(&args, json, home),
        CliCommand::Models => models::run_models(json),
        CliCommand::Doctor => models::run_doctor(&settings::home(home)?, json),
        CliCommand::Init(args) => init::run_init(&args, json, home),
        CliCommand::Update => update::run_update(json),
        CliCommand::Status(args) => records::run_status(&archive()?, &args, json),
        CliCommand::Tree(run) => records::run_tree(&archive()?, &run, json),
        CliCommand::Watch(args) => watch::run_watch(&archive()?, &args, json),
        CliCommand::Result(args) => records::run_result(&archive()?, &args, json),
        CliCommand::Transcript(run) => records::run_transcript(&archive()?, &run, json),
        CliCommand::Cost(args) => cost::run_cost(&archive()?, &args, json),
        CliCommand::Errors(args) => errors::run_errors(&archive()?, &args, json),
        CliCommand::Log(args) => records::run_log(&archive()?, &args, json),
        CliCommand::Diff(args) => results::run_diff(&archive()?, &args, json),
        CliCommand::Merge(args) => results::run_merge(&archive()?, &args, json),
        CliCommand::Discard(args) => results::run_discard(&archive()?, &args, json),
        CliCommand::Undo(args) => undo::run_undo(&archive()?, &args, json),
        CliCommand::Prune(args) => records::run_prune(&archive()?, &args, json),
        CliCommand::Cancel(args) => control::run_cancel(&archive()?, &args, json),
        CliCommand::Wait(args) => control::run_wait(&archive()?, &args, json),
        CliCommand::Tell(args) => control::run_tell(&archive()?, &args, json),
        CliCommand::Approvals => approvals::run_approvals(&archive()?, json),
        CliCommand::Approve(args) => approvals::run_approve(&archive()?, &args, json),
        CliCommand::Mcp(args) => mcp::run_mcp(&args, home),
        CliCommand::Completions { shell } => {
            let mut script = Vec::new();
            clap_complete::generate(shell, &mut Cli::command(), "adjutant", &mut script);
            output::print(&String::from_utf8_lossy(&script))?;
            Ok(Exit::Completed)
        }
        CliCommand::ManPages { directory } => {
            clap_mangen::generate_to(Cli::command(), &directory).map_err(|error| {
                let place = directory.display();
                Failure::new(Exit::Failed, format!("cannot write man pages to {place}: {error}"))
            })?;
            Ok(Exit::Completed)
        }
    };
    exit.map(ExitCode::from)
}

/// Returns whether the output of a command is often longer than the screen.
fn is_paged(command: &CliCommand) -> bool {
    let is_followed = matches!(command, CliCommand::Log(args) if args.follow);
    let marks_error = matches!(command, CliCommand::Errors(args) if args.tick.is_some());
    !is_followed
        && !marks_error
        && matches!(
            command,
            CliCommand::Result(_)
                | CliCommand::Transcript(_)
                | CliCommand::Diff(_)
                | CliCommand::Tree(_)
                | CliCommand::Status(_)
                | CliCommand::Log(_)
                | CliCommand::Errors(_)
        )
}
