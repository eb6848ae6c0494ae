//! Checks the flags with which a client starts the server.

use std::path::Path;
use std::time::Duration;

use clap::parser::ValueSource;
use clap::{ArgMatches, Args, FromArgMatches};

use super::text_of;
use crate::args::McpArgs;
use crate::exit::Failure;
use crate::mcp;

/// Flags that do not change what clients may spend or reach.
const HARMLESS: [&str; 3] = ["detach_after", "result_bytes", "on_disconnect"];

/// Adds `--home` to the flags if a state directory is given: few clients pass environment variables on.
pub(super) fn with_home(flags: &[String], home: Option<&Path>) -> Result<Vec<String>, Failure> {
    check(flags).map_err(|said| {
        Failure::usage(format!("the server would not start with these flags: {said}"))
            .hint("`adjutant mcp --help` lists them; they go after `--`.")
    })?;
    let mut all = flags.to_vec();
    let is_named = flags.iter().any(|flag| flag == "--home" || flag.starts_with("--home="));
    if let Some(home) = home.filter(|_| !is_named) {
        let home = std::path::absolute(home).unwrap_or_else(|_| home.to_owned());
        all.extend(["--home".to_owned(), text_of(&home)?]);
    }
    Ok(all)
}

/// Returns the flags of an entry without a `--detach-after` that exceeds the client's own timeout.
pub(super) fn without_long_detach(
    flags: &[String],
    gives_up: Option<Duration>,
) -> Result<Vec<String>, String> {
    let matches = check(flags)
        .map_err(|said| format!("it starts the server with flags that it refuses: {said}"))?;
    let waits = matches.get_one::<u64>("detach_after").map(|seconds| Duration::from_secs(*seconds));
    if waits.zip(gives_up).is_none_or(|(waits, gives_up)| waits < gives_up) {
        return Ok(flags.to_vec());
    }
    let mut rest = Vec::new();
    let mut flags = flags.iter();
    while let Some(flag) = flags.next() {
        if flag == "--detach-after" {
            flags.next();
        } else if !flag.starts_with("--detach-after=") {
            rest.push(flag.clone());
        }
    }
    Ok(rest)
}

/// Returns whether flags change what clients may spend or reach.
pub(super) fn decide(flags: &[String]) -> bool {
    check(flags).is_ok_and(|matches| {
        let mut given = matches.ids().filter(|id| is_typed(&matches, id.as_str()));
        given.any(|id| !HARMLESS.contains(&id.as_str()) && id.as_str() != "McpArgs")
    })
}

fn is_typed(matches: &ArgMatches, id: &str) -> bool {
    matches.value_source(id) == Some(ValueSource::CommandLine)
}

/// Parses flags as the server would. The error describes what it would refuse.
fn check(flags: &[String]) -> Result<ArgMatches, String> {
    let command = McpArgs::augment_args(clap::Command::new("adjutant mcp").no_binary_name(true))
        .arg(clap::Arg::new("home").long("home"));
    let matches = command.try_get_matches_from(flags).map_err(|error| {
        let said = error.to_string();
        said.lines().next().unwrap_or_default().trim_start_matches("error: ").to_owned()
    })?;
    if let Some(name) = matches.subcommand_name() {
        return Err(format!("`{name}` is not a flag"));
    }
    if let Some(id) = ["http", "allow_origin"].into_iter().find(|id| is_typed(&matches, id)) {
        return Err(format!(
            "--{} is for a server you start yourself; a client starts one of its own",
            id.replace('_', "-")
        ));
    }
    let args = McpArgs::from_arg_matches(&matches).map_err(|error| error.to_string())?;
    // A root with a variable is filled in by the editor, so it cannot be checked here.
    if !args.root.to_string_lossy().contains("${") {
        mcp::check(&args).map_err(|failure| failure.to_string())?;
    }
    Ok(matches)
}
