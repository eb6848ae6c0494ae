//! Starting the process of a run so that it is not a descendant of the server.
//!
//! Some clients kill the server and all its descendants when they exit. So the server starts this program
//! with the first argument [`SUBCOMMAND`]; that process starts the run with the rest of the command line and
//! exits at once. The kernel then makes the run a child of init, and what finds processes by their parent,
//! process group or session does not find it. Standard input, output and error are the ones of the first
//! process, so that the server hears why a run does not begin.

use std::env::args_os;
use std::ffi::OsString;
use std::io::{self, Write};
use std::process::Command;

/// The hidden first argument that asks for it.
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
            // If the server is gone, its end of the pipe is closed and the message is lost.
            let _ = writeln!(io::stderr(), "cannot start a process for the run: {error}");
            1
        }
    };
    std::process::exit(code)
}

fn start_detached(program: &OsString, arguments: impl Iterator<Item = OsString>) -> io::Result<()> {
    // A kernel older than 5.9 cannot do this. Then files that the client leaked stay open, which harms no run.
    let _ = adjutant_engine::close_inherited_files();
    // The run makes a session of its own later; until then it is already out of the server's.
    rustix::process::setsid()?;
    Command::new(program).args(arguments).spawn()?;
    Ok(())
}
