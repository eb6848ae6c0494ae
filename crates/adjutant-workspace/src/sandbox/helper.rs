//! The entry point of the sandbox helper: what the binary does when it is started again as part of the sandbox.
//!
//! Runs before argument parsing, runtimes and threads. The roles: the two processes of the namespace holder, the
//! first process of a sandbox, and the self-test.

use std::ffi::OsString;
use std::io::Write as _;

use rustix::process::{Signal, set_parent_process_death_signal};

use super::plan::{SetupFailure, StepErrorContext as _};
use super::{holder, init, raw, self_test};

/// The hidden subcommand that makes the binary act as the helper.
pub const SUBCOMMAND: &str = "__sandbox";

/// The role that creates the namespaces of a holder.
pub(crate) const HOLD: &str = "hold";
/// The role that serves requests inside those namespaces.
pub(crate) const SERVE: &str = "serve";
/// The role of a sandbox's first process.
pub(crate) const INIT: &str = "init";
/// The role of the self-test.
pub(crate) const SELF_TEST: &str = "self-test";

/// Runs the helper if the arguments ask for it, and then does not return.
///
/// Must be the first call of `main`: namespaces can only be entered while there is a single thread.
pub fn helper_main_if_asked() {
    let mut arguments = std::env::args_os().skip(1);
    if arguments.next().is_some_and(|first| first == SUBCOMMAND) {
        helper_main(&arguments.collect::<Vec<_>>());
    }
}

/// Runs the role named by the first argument, and exits.
pub fn helper_main(arguments: &[OsString]) -> ! {
    let role = arguments.first().and_then(|role| role.to_str()).unwrap_or_default();
    let done = match role {
        HOLD => isolate_process().and_then(|()| holder::run_holder()),
        SERVE => isolate_process().and_then(|()| holder::serve_namespaces()),
        INIT => isolate_process().and_then(|()| init::run_first_process()),
        SELF_TEST => self_test::self_test(),
        _ => Err(SetupFailure { step: "unknown role".to_owned(), errno: None, layer: None }),
    };
    let code = match done {
        Ok(()) => 0,
        Err(failure) => {
            // Best effort: standard error may be closed.
            let _ = writeln!(std::io::stderr(), "adjutant sandbox: {failure}");
            125
        }
    };
    std::process::exit(code)
}

/// Closes inherited files and makes this process die with its parent.
fn isolate_process() -> Result<(), SetupFailure> {
    raw::close_inherited_files().step("close inherited files")?;
    set_parent_process_death_signal(Some(Signal::KILL)).step("die with the parent")
}
