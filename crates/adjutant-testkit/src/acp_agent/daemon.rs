//! A process that has left its parent: forked twice, in a session of its own.
//!
//! `unsafe` is not used in this workspace, so instead of `fork` the program starts itself again with [`FLAG`].

use std::process::{Command, ExitCode, Stdio};

/// The argument that makes the program the process between the agent and the daemon.
pub(super) const FLAG: &str = "--detach";

/// Starts the daemon. Returns when the process in between has ended, so that the daemon has lost its parent.
pub(super) fn start(command: &str) -> std::io::Result<()> {
    let program = std::env::current_exe()?;
    let mut between = Command::new(program);
    between.args([FLAG, command]).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    between.status().map(|_| ())
}

/// Makes a session, starts the command in it and ends.
pub(super) fn detach(command: &str) -> ExitCode {
    let is_leader = rustix::process::setsid().is_ok();
    let started = Command::new("sh").args(["-c", command]).spawn().is_ok();
    if is_leader && started { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
