//! The tool Run, which executes a shell command, in a sandbox unless the user switched it off.
//!
//! Stdout and stderr share one pipe, so that output keeps its order. Whether the agent may run commands was
//! decided before, and the sandbox is passed in. Start at [`run()`]; `live` and `text` process the output.

mod live;
mod missing_tool;
mod text;

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Duration;

use adjutant_core::CommandExit;
use adjutant_core::numbers::grouped;
use adjutant_workspace::PathError;
use adjutant_workspace::sandbox::{
    CancelHandle, NetworkAccess, ProgramEnd, ProgramSpec, ResourceBounds, RunError, Sandbox,
    SandboxConfig, SandboxLevel, SandboxUnavailable, SandboxedExit, UnconfinedExit,
    UnconfinedRunner,
};

use self::live::LiveOutput;
pub use self::missing_tool::ToolAvailability;
use crate::args::{CallArguments, ToolArgumentError, brief};
use crate::output::{ToolCallResult, remark};
use crate::toolbox::ToolCallContext;
use crate::{ToolName, show};

/// The maximum length of a command; the kernel refuses an argument of twice this size.
const MAX_COMMAND_BYTES: usize = 64 * 1024;

/// The default timeout of a command, in seconds.
pub(crate) const DEFAULT_SECONDS: u64 = 120;

/// The wrapper script: runs its argument as a command with both streams in one pipe.
const JOINED: &str = "exec /bin/sh -c \"$0\" 2>&1";

/// How the commands of an agent are confined.
#[derive(Debug)]
pub enum Confinement {
    /// A sandbox.
    Sandboxed(Box<Sandbox>),
    /// No sandbox, because the user switched it off; commands start below `root`.
    Off {
        /// The workspace.
        root: PathBuf,
    },
}

/// Why a command was not run, as text for the model.
type RunErrorText = String;

/// How a command ended, and how it was confined.
struct CommandEnd {
    end: ProgramEnd,
    elapsed: Duration,
    /// The sandbox level.
    level: String,
    /// Remarks about the confinement.
    remarks: Vec<String>,
}

/// Whether a command's timeout is capped at the limit for agents.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TimeoutLimit {
    /// The limit for commands of agents.
    OfAgent,
    /// No limit, for verify commands, whose timeout comes from the user's policy.
    AsAsked,
}

/// Runs a command to its end.
pub(crate) fn run(
    call: &ToolCallContext<'_>,
    longest: TimeoutLimit,
    confinement: &Confinement,
    environment: &[(String, String)],
    cancel: &CancelHandle,
    on_output: &mut dyn FnMut(&str),
) -> Result<ToolCallResult, RunErrorText> {
    let asked = RequestedCommand::read(call, longest, confinement)?;
    let mut live = LiveOutput::new(call.caps.run_bytes, call.masker, on_output);
    let (over, bounds) = match confinement {
        Confinement::Sandboxed(sandbox) => {
            let config = sandbox.config();
            let program = asked.program(Some(config), environment);
            let ended =
                sandbox.run(&program, cancel, &mut live).map_err(|why| asked.failed(why))?;
            (command_end_of(ended, config.network), config.bounds.clone())
        }
        Confinement::Off { root } => {
            let program = asked.program(None, environment);
            let ended = UnconfinedRunner::new(root).run(&program, cancel, &mut live);
            (unconfined(ended.map_err(|why| asked.failed_outside(why))?), ResourceBounds::default())
        }
    };
    let mut text = first_line(&over, asked.timeout, &bounds);
    text.push('\n');
    let is_cut = live.is_cut();
    let shown = live.finish();
    text.push_str(&shown);
    if shown.is_empty() {
        remark(&mut text, "no output");
    }
    if is_cut {
        remark(
            &mut text,
            "to see what was left out, run the command with `> FILE 2>&1` and show FILE with Read, or filter its output",
        );
    }
    if over.end == ProgramEnd::TimedOut {
        let most = call.caps.run_seconds;
        let words = match longest {
            TimeoutLimit::AsAsked => {
                "the policy key `verify_s` says how long it may take".to_owned()
            }
            TimeoutLimit::OfAgent if asked.timeout < Duration::from_secs(most) => {
                format!("`timeout` may be {most} seconds at most")
            }
            TimeoutLimit::OfAgent => {
                format!(
                    "the command had the longest timeout that the policy key `run_max_s` allows, {most} seconds; split it"
                )
            }
        };
        remark(&mut text, words);
    }
    let is_sandboxed = matches!(confinement, Confinement::Sandboxed(_));
    if is_sandboxed
        && over.end != ProgramEnd::Exited(0)
        && let Some(words) = missing_tool::explain(&shown, call.availability)
    {
        remark(&mut text, words);
    }
    for words in &over.remarks {
        remark(&mut text, words);
    }
    remark(&mut text, format_args!("sandbox: {}", over.level));
    let is_error = over.end != ProgramEnd::Exited(0);
    let exit = Some(exit_of(over.end, asked.timeout));
    Ok(ToolCallResult { is_error, sandbox: Some(over.level), exit, ..ToolCallResult::ok(text) })
}

/// The command of a call and its options.
struct RequestedCommand {
    command: String,
    directory: PathBuf,
    timeout: Duration,
}

impl RequestedCommand {
    fn read(
        call: &ToolCallContext<'_>,
        longest: TimeoutLimit,
        confinement: &Confinement,
    ) -> Result<Self, RunErrorText> {
        let args = CallArguments::new(ToolName::Run, call.arguments).map_err(argument_error)?;
        let command = args.required("command").map_err(argument_error)?;
        check_command(&command)?;
        let most = call.caps.run_seconds;
        let seconds = args.number("timeout", 1).map_err(argument_error)?;
        let seconds = seconds.unwrap_or(DEFAULT_SECONDS.min(most));
        if longest == TimeoutLimit::OfAgent && seconds > most {
            return Err(format!(
                "`timeout` is in seconds, {most} at most (policy key `run_max_s`), got {seconds}"
            ));
        }
        let cwd = args.text("cwd").map_err(argument_error)?.unwrap_or_default();
        let directory =
            directory(call, confinement, &cwd).map_err(|error| show::path_error(&cwd, &error))?;
        Ok(Self { command, directory, timeout: Duration::from_secs(seconds) })
    }

    fn program(&self, config: Option<&SandboxConfig>, added: &[(String, String)]) -> ProgramSpec {
        let words = ["/bin/sh", "-c", JOINED, &self.command].map(OsString::from);
        let mut program = ProgramSpec::new(words);
        program.directory.clone_from(&self.directory);
        program.timeout = self.timeout;
        program.environment = command_environment(config, added);
        program
    }

    /// Explains why a command was not run without a sandbox.
    fn failed_outside(&self, error: RunError) -> RunErrorText {
        if let RunError::Helper(why) = error {
            return format!("not run: {why}");
        }
        self.failed(error)
    }

    fn failed(&self, error: RunError) -> RunErrorText {
        match error {
            RunError::Empty
            | RunError::Nul
            | RunError::InputTaken
            | RunError::NotStarted { .. } => {
                format!("not run: {error}")
            }
            RunError::Directory { .. } => {
                let shown = show::path(&self.directory);
                format!("`{shown}` is not a directory of the workspace; list directories with Glob")
            }
            RunError::Unavailable(why) => unavailable(&why),
            RunError::Helper(why) => unavailable(&SandboxUnavailable { why: why.to_string() }),
        }
    }
}

/// Returns the environment of a command: the default one, the variables and search path of the sandbox, and `added`.
/// Without a sandbox there is no private home.
#[must_use]
pub fn command_environment(
    config: Option<&SandboxConfig>,
    added: &[(String, String)],
) -> Vec<(OsString, OsString)> {
    let mut set = ProgramSpec::new([]).environment;
    set.push(("CI".into(), "1".into()));
    match config {
        Some(config) => {
            for (name, value) in &config.variables {
                set.retain(|(known, _)| known != name);
                set.push((name.clone(), value.clone()));
            }
            prepend_path(&mut set, &config.grants);
            prepend_dirs(&mut set, &config.path);
        }
        // These directories are private only inside a sandbox. Without one, another user could plant files in them.
        None => set.retain(|(name, _)| name != "HOME" && name != "TMPDIR"),
    }
    for (name, value) in added.iter().filter(|(name, value)| can_be_set(name, value)) {
        set.retain(|(known, _)| known != name.as_str());
        set.push((name.into(), value.into()));
    }
    set
}

fn argument_error(error: ToolArgumentError) -> RunErrorText {
    error.0
}

fn check_command(command: &str) -> Result<(), RunErrorText> {
    if command.trim().is_empty() {
        return Err("`command` is blank; write the command to run".to_owned());
    }
    if command.contains('\0') {
        return Err("`command` contains a NUL byte, which no command can".to_owned());
    }
    if command.len() > MAX_COMMAND_BYTES {
        return Err(format!(
            "`command` has {} bytes, more than the {} that are taken; write a script with Write and run that",
            grouped(command.len() as u64),
            grouped(MAX_COMMAND_BYTES as u64)
        ));
    }
    Ok(())
}

/// Returns the working directory. The path at which a sandbox shows the workspace is accepted too.
fn directory(
    call: &ToolCallContext<'_>,
    confinement: &Confinement,
    written: &str,
) -> Result<PathBuf, PathError> {
    let mut path = Path::new(written);
    if let Confinement::Sandboxed(sandbox) = confinement {
        let config = sandbox.config();
        path = path.strip_prefix(config.at.join(&config.start)).unwrap_or(path);
    }
    let relative = call.root.relative(path)?;
    call.root.open_dir(&relative)?;
    Ok(relative.as_path().to_owned())
}

/// Puts the `bin` directories of granted toolchains before the system's in `PATH`.
fn prepend_path(set: &mut [(OsString, OsString)], grants: &[PathBuf]) {
    let granted = grants.iter().filter_map(|grant| {
        let below = grant.join("bin");
        if below.is_dir() { Some(below) } else { grant.ends_with("bin").then(|| grant.clone()) }
    });
    prepend_dirs(set, &granted.collect::<Vec<_>>());
}

fn prepend_dirs(set: &mut [(OsString, OsString)], dirs: &[PathBuf]) {
    let Some((_, path)) = set.iter_mut().find(|(name, _)| name == "PATH") else { return };
    let rest = std::env::split_paths(path).filter(|known| !dirs.contains(known));
    let all: Vec<PathBuf> = dirs.iter().cloned().chain(rest).collect();
    // `PATH` cannot contain a path with a colon.
    let all = all.iter().filter(|it| !it.as_os_str().as_encoded_bytes().contains(&b':'));
    if let Ok(joined) = std::env::join_paths(all) {
        *path = joined;
    }
}

fn can_be_set(name: &str, value: &str) -> bool {
    !name.is_empty() && !name.contains(['=', '\0']) && !value.contains('\0')
}

fn command_end_of(ended: SandboxedExit, network: NetworkAccess) -> CommandEnd {
    let mut remarks = Vec::new();
    if !ended.tree_gone {
        remarks.push("a process could not be ended within a second".to_owned());
    }
    match network {
        NetworkAccess::Off => {}
        NetworkAccess::Granted => {
            remarks.push(format!("network: granted; {}", network.exposures().join("; ")));
        }
    }
    let level = match &ended.level {
        SandboxLevel::Full => "full".to_owned(),
        level @ SandboxLevel::Reduced(_) => level.to_string(),
    };
    CommandEnd { end: ended.end, elapsed: ended.elapsed, level, remarks }
}

fn unconfined(ended: UnconfinedExit) -> CommandEnd {
    let mut remarks = Vec::new();
    if !ended.output_closed {
        remarks.push("a process left the command's group and may live on".to_owned());
    }
    CommandEnd { end: ended.end, elapsed: ended.elapsed, level: "off".to_owned(), remarks }
}

fn first_line(over: &CommandEnd, timeout: Duration, bounds: &ResourceBounds) -> String {
    let took = format!("{:.1} s", over.elapsed.as_secs_f64());
    match over.end {
        ProgramEnd::Exited(code) => format!("exit {code} in {took}"),
        ProgramEnd::Signalled(signal) => format!("signal {signal} in {took}"),
        ProgramEnd::TimedOut => format!("timed out after {} s", timeout.as_secs()),
        ProgramEnd::Cancelled => format!("stopped: cancelled after {took}"),
        ProgramEnd::OutOfMemory { .. } => {
            format!("stopped: used more than {} of memory", size(bounds.memory_bytes))
        }
        ProgramEnd::TooMuchWritten { .. } => {
            let most = size(bounds.disk_bytes);
            format!(
                "stopped: the workspace may hold {most} of what commands write (policy key \
                 `workspace_bytes`), and holds more"
            )
        }
        ProgramEnd::TooManyEntries { .. } => {
            let most = grouped(bounds.entries);
            format!(
                "stopped: commands may add {most} files and directories to the workspace (policy key \
                 `workspace_entries`), and added more; remove some"
            )
        }
    }
}

fn exit_of(end: ProgramEnd, timeout: Duration) -> CommandExit {
    match end {
        ProgramEnd::Exited(status) => CommandExit::Exited(status),
        ProgramEnd::Signalled(signal) => CommandExit::Signalled(signal),
        ProgramEnd::TimedOut => CommandExit::TimedOut(timeout.as_secs()),
        ProgramEnd::Cancelled
        | ProgramEnd::OutOfMemory { .. }
        | ProgramEnd::TooMuchWritten { .. }
        | ProgramEnd::TooManyEntries { .. } => CommandExit::Stopped,
    }
}

fn size(bytes: u64) -> String {
    let units = [(30, "GiB"), (20, "MiB"), (10, "KiB")];
    let whole = units.iter().find(|(bits, _)| bytes >> bits > 0 && bytes.trailing_zeros() >= *bits);
    match whole {
        Some((bits, unit)) => format!("{} {unit}", bytes >> bits),
        None => format!("{} bytes", grouped(bytes)),
    }
}

fn unavailable(why: &SandboxUnavailable) -> RunErrorText {
    let why = brief(&why.why);
    format!(
        "not run: there is no sandbox for commands here ({why}), and without one none is run. Go on without Run. A \
         person can see what is missing with `adjutant doctor`, or do without the sandbox by typing `--sandbox=off`"
    )
}

#[cfg(test)]
mod tests {
    use adjutant_workspace::sandbox::SandboxLayer;

    use super::*;

    #[test]
    fn a_missing_sandbox_is_a_reason_not_to_run_anything() {
        let why = "this machine lacks Landlock".to_owned();
        insta::assert_snapshot!(unavailable(&SandboxUnavailable { why }), @"not run: there is no sandbox for commands here (this machine lacks Landlock), and without one none is run. Go on without Run. A person can see what is missing with `adjutant doctor`, or do without the sandbox by typing `--sandbox=off`");
    }

    #[test]
    fn every_end_has_its_words() {
        let bounds = ResourceBounds { disk_bytes: 1_500, ..ResourceBounds::default() };
        for (end, words) in [
            (ProgramEnd::Exited(0), "exit 0 in 1.2 s"),
            (ProgramEnd::Signalled(9), "signal 9 in 1.2 s"),
            (ProgramEnd::TimedOut, "timed out after 120 s"),
            (ProgramEnd::Cancelled, "stopped: cancelled after 1.2 s"),
            (ProgramEnd::OutOfMemory { bytes: 5 << 30 }, "stopped: used more than 4 GiB of memory"),
            (
                ProgramEnd::TooMuchWritten { bytes: 2_000 },
                "stopped: the workspace may hold 1,500 bytes of what commands write (policy key \
                 `workspace_bytes`), and holds more",
            ),
            (
                ProgramEnd::TooManyEntries { entries: 500_001 },
                "stopped: commands may add 500,000 files and directories to the workspace (policy key \
                 `workspace_entries`), and added more; remove some",
            ),
        ] {
            let (elapsed, level) = (Duration::from_millis(1_234), String::new());
            let over = CommandEnd { end, elapsed, level, remarks: Vec::new() };
            assert_eq!(first_line(&over, Duration::from_secs(120), &bounds), words);
        }
    }

    #[test]
    fn what_held_a_command_is_said_and_so_is_a_process_that_stayed() {
        let ended = |level, tree_gone| SandboxedExit {
            end: ProgramEnd::Exited(0),
            elapsed: Duration::ZERO,
            level,
            tree_gone,
        };
        let full = command_end_of(ended(SandboxLevel::Full, true), NetworkAccess::Off);
        assert_eq!((full.level.as_str(), full.remarks.len()), ("full", 0));
        let reduced =
            ended(SandboxLevel::Reduced(vec![SandboxLayer::Landlock, SandboxLayer::PidMax]), false);
        let reduced = command_end_of(reduced, NetworkAccess::Off);
        assert_eq!(reduced.level, "reduced: without Landlock, process limit");
        assert_eq!(reduced.remarks, ["a process could not be ended within a second"]);
    }
}
