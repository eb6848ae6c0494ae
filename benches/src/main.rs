//! Measures the bars of the design and prints one table: what, measured, bar, whether it holds.
//!
//! `cargo run --release -p adjutant-bench` measures everything and exits with 1 when a bar fails.
//! The core and the store are measured in this process, everything else through the real binary.
//! Processor time is what counts; wall time is shown where a person would wait. Ratios are taken
//! side by side in one run, and every number is the median of several rounds, with the least and
//! the most beside it. Progress goes to standard error.

mod args;
mod command_bars;
mod core_bars;
mod fixture;
mod history;
mod http_bars;
mod launch;
mod mcp_bars;
mod registry_bars;
mod repos;
mod result_bars;
mod sample;
mod server;
mod space_bars;
mod spawn;
mod store_bars;
mod story_bars;
mod table;
mod task_bars;
mod view_bars;
mod wall_bars;
mod whole_bars;
mod writer_bars;

use std::error::Error;
use std::io::{self, Write};
use std::process::ExitCode;

use args::{Args, Parsed};
use sample::Plan;
use table::{Row, Table};

/// What a measurement may fail with: the machine, not the bar.
pub(crate) type Failure = Box<dyn Error>;

/// Measures one group of bars.
type Group = fn(&Plan) -> Result<Vec<Row>, Failure>;

/// The groups, in the order of the table.
const GROUPS: [(&str, Group); 9] = [
    ("core", core_bars::measure),
    ("whole process", whole_bars::measure),
    ("wall", wall_bars::measure),
    ("HTTP", http_bars::measure),
    ("store", store_bars::measure),
    ("views", view_bars::measure),
    ("workspaces", space_bars::measure),
    ("stories", story_bars::measure),
    ("MCP", mcp_bars::measure),
];

fn main() -> ExitCode {
    let result = match args::parse(std::env::args_os().skip(1)) {
        Ok(Parsed::Measure(args)) => measure(&args),
        Ok(Parsed::Launch(command)) => launch::run(&command).map(|()| ExitCode::SUCCESS),
        Ok(Parsed::Help) => print(args::HELP).map(|()| ExitCode::SUCCESS),
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

/// Says something to the person who waits.
pub(crate) fn say(text: &str) {
    // A standard error that is gone leaves nobody to tell.
    let _ = writeln!(io::stderr().lock(), "{text}");
}
