//! Parses the command line of the bench.

use std::ffi::OsString;

use crate::Failure;

/// What `--help` prints.
pub(crate) const HELP: &str = "\
Measures the bars of the design and prints one table; exits with 1 when one does not hold.

Usage: adjutant-bench [--quick] [--json] [--filter NAME]

  --quick        small sizes and few rounds: a smoke test, its numbers mean little
  --json         the table as JSON
  --filter NAME  only the groups whose name contains NAME: core, whole process, wall, overview,
                 HTTP, store, views, lists, workspaces, stories, MCP, gateway, cluster

The group cluster needs a Restate server; ADJUTANT_RESTATE_SERVER names its program. ADJUTANT_CLUSTER_BINARY names an
`adjutant` with the cargo feature `restate` that is measured instead of building one.
";

/// The hidden subcommand that starts and measures one other program (see `launch`).
pub(crate) const LAUNCH: &str = "launch";

/// The hidden subcommand that calls a model through the gateway (see `gateway_client`).
pub(crate) const GATEWAY_CLIENT: &str = "call-gateway";

/// What to measure and how to print it.
#[derive(Debug, Default)]
pub(crate) struct Args {
    /// Smoke test: small sizes and few rounds.
    pub(crate) quick: bool,
    /// Print JSON instead of a table.
    pub(crate) json: bool,
    /// Measure only groups whose name contains this text.
    pub(crate) filter: Option<String>,
}

/// What the command line asks for.
#[derive(Debug)]
pub(crate) enum BenchCommand {
    /// Measure and print.
    Measure(Args),
    /// Start this command and print its time and memory.
    Launch(Vec<OsString>),
    /// Call a model directly and through the gateway, as this plan says.
    CallGateway(String),
    /// Print the help text.
    Help,
}

/// Reads the command line.
pub(crate) fn parse(mut words: impl Iterator<Item = OsString>) -> Result<BenchCommand, Failure> {
    let mut args = Args::default();
    while let Some(word) = words.next() {
        match word.to_str() {
            Some(LAUNCH) => return Ok(BenchCommand::Launch(words.collect())),
            Some(GATEWAY_CLIENT) => {
                let plan = words.next().and_then(|plan| plan.into_string().ok());
                return Ok(BenchCommand::CallGateway(plan.ok_or("call-gateway needs a plan")?));
            }
            Some("--quick") => args.quick = true,
            Some("--json") => args.json = true,
            Some("--filter") => {
                let name = words.next().and_then(|name| name.into_string().ok());
                args.filter = Some(name.ok_or("--filter needs a name")?);
            }
            Some("-h" | "--help") => return Ok(BenchCommand::Help),
            Some(_) | None => return Err(format!("unknown argument {}", word.display()).into()),
        }
    }
    Ok(BenchCommand::Measure(args))
}
