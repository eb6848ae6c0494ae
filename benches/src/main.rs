//! Measures the performance limits of the design ("bars") and prints one table: name, measured value, bar,
//! and whether it holds.
//!
//! `cargo run --profile dist -p adjutant-bench` measures everything and exits with 1 when a bar fails.
//! The core and the store are measured in this process, everything else through the real binary.
//! Most bars are on CPU time; wall time is measured where a person would wait. Both sides of a ratio are
//! measured in the same run, and every number is the median of several rounds, with the minimum and
//! maximum next to it. Progress goes to standard error.

mod args;
mod cluster;
mod cluster_bars;
mod command_bars;
mod core_bars;
mod fixture;
mod gateway_bars;
mod gateway_client;
mod history;
mod http_bars;
mod launch;
mod list_bars;
mod mcp_bars;
mod overview_bars;
mod registry_bars;
mod repos;
mod result_bars;
mod sample;
mod server;
mod space_bars;
mod spawn;
mod store_bars;
mod story_bars;
mod stream_provider;
mod table;
mod task_bars;
mod view_bars;
mod wall_bars;
mod whole_bars;
mod writer_bars;

use std::error::Error;
use std::io::{self, Write};
use std::process::ExitCode;

use args::{Args, BenchCommand};
use sample::Plan;
use table::{Row, Table};

/// An error that prevented a measurement; a bar that does not hold is not an error.
pub(crate) type Failure = Box<dyn Error>;

/// Measures one group of bars.
type TableGroup = fn(&Plan) -> Result<Vec<Row>, Failure>;

/// The groups, in the order of the table.
const GROUPS: [(&str, TableGroup); 13] = [
    ("core", core_bars::measure),
    ("whole process", whole_bars::measure),
    ("wall", wall_bars::measure),
    ("overview", overview_bars::measure),
    ("HTTP", http_bars::measure),
    ("store", store_bars::measure),
    ("views", view_bars::measure),
    ("lists", list_bars::measure),
    ("workspaces", space_bars::measure),
    ("stories", story_bars::measure),
    ("MCP", mcp_bars::measure),
    ("gateway", gateway_bars::measure),
    ("cluster", cluster_bars::measure),
];

fn main() -> ExitCode {
    let result = match args::parse(std::env::args_os().skip(1)) {
        Ok(BenchCommand::Measure(args)) => measure(&args),
        Ok(BenchCommand::Launch(command)) => launch::run(&command).map(|()| ExitCode::SUCCESS),
        Ok(BenchCommand::CallGateway(plan)) => {
            gateway_client::run(&plan).map(|()| ExitCode::SUCCESS)
        }
        Ok(BenchCommand::Help) => print(args::HELP).map(|()| ExitCode::SUCCESS),
        Err(error) => Err(error),
    };
    result.unwrap_or_else(|error| {
        say(&format!("adjutant-bench: {error}"));
        ExitCode::from(2)
    })
}

fn measure(args: &Args) -> Result<ExitCode, Failure> {
    let plan = Plan { quick: args.quick };
    let mut table = Table::default();
    for (name, group) in GROUPS {
        let differs = |filter: &String| !name.to_lowercase().contains(&filter.to_lowercase());
        if args.filter.as_ref().is_some_and(differs) {
            continue;
        }
        say(&format!("measuring {name} …"));
        table.add(name, group(&plan)?);
    }
    print(&if args.json { table.json()? } else { table.text() })?;
    Ok(if table.holds() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Prints data.
pub(crate) fn print(text: &str) -> Result<(), Failure> {
    let mut stdout = io::stdout().lock();
    stdout.write_all(text.as_bytes())?;
    Ok(stdout.flush()?)
}

/// Prints progress to standard error.
pub(crate) fn say(text: &str) {
    // If standard error is closed, progress cannot be shown, which does not matter.
    let _ = writeln!(io::stderr().lock(), "{text}");
}

#[cfg(test)]
mod tests {
    use super::{GROUPS, args};

    #[test]
    fn the_help_names_every_group() {
        for (name, _) in GROUPS {
            assert!(args::HELP.contains(&format!(" {name}")), "{name}");
        }
    }
}
