//! The helper's own main: what the binary does when it is started again as a part of the sandbox.
//!
//! Runs before argument parsing, runtimes and threads. Three roles: the namespace holder, the sandbox's first
//! process, and the probes of the self-test.

use std::ffi::OsString;
use std::io::Write as _;

use rustix::process::{Signal, set_parent_process_death_signal};

use super::plan::{SetupFailure, StepContext as _};
use super::{holder, init, raw, self_test};

/// The hidden subcommand that makes the binary act as the helper.
pub const SUBCOMMAND: &str = "__sandbox";

/// The holder's role.
pub(crate) const HOLD: &str = "hold";
/// The role of the part of the holder that serves.
pub(crate) const SERVE: &str = "serve";
/// The role of the sandbox's first process.
pub(crate) const INIT: &str = "init";
/// The role of the self-test.
pub(crate) const SELF_TEST: &str = "self-test";

/// Acts as the helper when the arguments say so, and never returns then.
///
/// The first thing `main` does: namespaces can only be entered while there is a single thread.
pub fn helper_main_if_asked() {
    let mut arguments = std::env::args_os().skip(1);
    if arguments.next().is_some_and(|first| first == SUBCOMMAND) {
        helper_main(&arguments.collect::<Vec<_>>());
    }
}

/// Acts in the role named by the first argument, and exits.
pub fn helper_main(arguments: &[OsString]) -> ! {
    let role = arguments.first().and_then(|role| role.to_str()).unwrap_or_default();
    let done = match role {
        HOLD => isolate_process().and_then(|()| holder::hold()),
        SERVE => isolate_process().and_then(|()| holder::serve_namespaces()),
        INIT => isolate_process().and_then(|()| init::run_first_process()),
        SELF_TEST => self_test::self_test(),
        _ => Err(SetupFailure { step: "no such role".to_owned(), errno: None, layer: None }),
    };
    let code = match done {
        Ok(()) => 0,
        Err(failure) => {
            // The stream may be closed; then nobody is left to tell.
            let _ = writeln!(std::io::stderr(), "adjutant sandbox: {failure}");
            125
        }
    };
    std::process::exit(code)
}

/// Leaves behind what this process inherited, and dies with the one that started it.
fn isolate_process() -> Result<(), SetupFailure> {
    raw::close_inherited_files().step("close inherited files")?;
    set_parent_process_death_signal(Some(Signal::KILL)).step("die with the parent")
}
