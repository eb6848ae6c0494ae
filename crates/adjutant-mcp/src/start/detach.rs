//! Starts the process of a run so that it is not a descendant of the server.
//!
//! Some clients kill the server and all its descendants when they exit. The server therefore starts this
//! program with the first argument [`SUBCOMMAND`]; that process starts the run with the rest of the command
//! line and exits. The kernel then makes the run a child of init, so that a search by parent, process group
//! or session does not find it. The run inherits standard input, output and error, so that the server sees
//! why a run fails to start.

use std::env::args_os;
use std::ffi::OsString;
use std::io::{self, Write};
use std::process::Command;

/// The hidden first argument that requests a detached start.
pub(crate) const SUBCOMMAND: &str = "start-detached";

/// If the first argument is `start-detached`, starts the rest of the command line as a detached process and exits.
///
/// Must be called before this process opens any file.
pub fn start_detached_if_asked() {
    let mut arguments = args_os();
    let program = arguments.next().unwrap_or_default();
    if arguments.next().is_none_or(|it| it != SUBCOMMAND) {
        return;
    }
    let code = match start_detached(&program, arguments) {
        Ok(()) => 0,
        Err(error) => {
            // If the server is gone, the pipe is closed and the message is lost.
            let _ = writeln!(io::stderr(), "cannot start the run's process: {error}");
            1
        }
    };
    std::process::exit(code)
}

fn start_detached(program: &OsString, arguments: impl Iterator<Item = OsString>) -> io::Result<()> {
    // Needs Linux 5.9. On older kernels, files that the client leaked stay open, which does no harm.
    let _ = adjutant_engine::close_inherited_files();
    // The run creates its own session later. Until then it must not be in the server's.
    rustix::process::setsid()?;
    Command::new(program).args(arguments).spawn()?;
    Ok(())
}
