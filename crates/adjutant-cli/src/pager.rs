//! Shows what a command prints in the person's pager, as git does.
//!
//! Standard output becomes a pipe to the pager, and so does standard error if it is the terminal: messages would be
//! written over the pager's screen. Start at [`start`]; `main` calls [`finish`]. Invariant: after [`start`], code asks
//! [`is_terminal`] and [`columns`] instead of looking at standard output.

use std::env;
use std::fs::File;
use std::io::{self, IsTerminal};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, OnceLock, PoisonError};

use rustix::stdio::{dup2_stderr, dup2_stdout};
use tokio::signal::unix::{SignalKind, signal};

use crate::live;

/// The pager of a person who named none.
const USUAL: &str = "less";

/// The terminal behind the pager.
struct PagedTerminal {
    columns: usize,
    /// Whether it shows standard error too.
    has_messages: bool,
    child: Mutex<Option<Child>>,
}

static PAGED: OnceLock<PagedTerminal> = OnceLock::new();

/// Returns whether a person reads standard output, directly or in a pager.
pub(crate) fn is_terminal() -> bool {
    PAGED.get().is_some() || io::stdout().is_terminal()
}

/// Returns the width of the terminal that shows standard output.
pub(crate) fn columns() -> usize {
    PAGED.get().map_or_else(|| live::columns(io::stdout()), |paged| paged.columns)
}

/// Returns the width of the terminal that shows standard error, directly or in a pager; `None` if it is no terminal.
pub(crate) fn message_columns() -> Option<usize> {
    match PAGED.get() {
        Some(paged) if paged.has_messages => Some(paged.columns),
        Some(_) | None => io::stderr().is_terminal().then(|| live::columns(io::stderr())),
    }
}

/// Starts the pager, if standard output is a terminal and there is a pager. If it cannot be started, output goes to the
/// terminal as before.
pub(crate) fn start() {
    if !io::stdout().is_terminal() || PAGED.get().is_some() {
        return;
    }
    let Some(mut command) = command() else { return };
    let columns = live::columns(io::stdout());
    let Ok(mut child) = command.spawn() else { return };
    let Some(pipe) = child.stdin.take() else { return };
    ignore_interrupts();
    let has_messages = io::stderr().is_terminal();
    if dup2_stdout(&pipe).is_err() || (has_messages && dup2_stderr(&pipe).is_err()) {
        return;
    }
    let _ = PAGED.set(PagedTerminal { columns, has_messages, child: Mutex::new(Some(child)) });
}

/// Ends the output and waits until the person has left the pager.
pub(crate) fn finish() {
    let Some(paged) = PAGED.get() else { return };
    let child = paged.child.lock().unwrap_or_else(PoisonError::into_inner).take();
    let (Some(mut child), Ok(nowhere)) = (child, File::options().write(true).open("/dev/null"))
    else {
        return;
    };
    // The pager sees the end of its input when the last descriptor of the pipe is closed.
    let _ = (dup2_stdout(&nowhere), dup2_stderr(&nowhere));
    let _ = child.wait();
}

/// Returns the pager with a pipe as its input; `None` if the person wants none, or it cannot work here.
pub(crate) fn command() -> Option<Command> {
    let pager = chosen_pager(|name| env::var(name).ok()).filter(|_| !live::is_dumb())?;
    if !is_found(&pager) {
        return None;
    }
    let mut command = Command::new("sh");
    command.args(["-c", &pager]).stdin(Stdio::piped());
    if env::var_os("LESS").is_none() {
        // Leave if everything fits the screen, show colours, keep the text on the screen.
        command.env("LESS", "FRX");
    }
    Some(command)
}

/// Returns the pager that the environment names; `None` if the person wants none.
fn chosen_pager(variable: impl Fn(&str) -> Option<String>) -> Option<String> {
    let named = variable("ADJUTANT_PAGER").or_else(|| variable("PAGER"));
    let pager = named.unwrap_or_else(|| USUAL.to_owned());
    let pager = pager.trim();
    (!pager.is_empty() && pager != "cat").then(|| pager.to_owned())
}

/// Returns whether the program of a pager exists. A missing one would swallow the output.
fn is_found(pager: &str) -> bool {
    let program = pager.split_whitespace().next().unwrap_or_default();
    if program.contains('/') {
        return Path::new(program).exists();
    }
    let path = env::var_os("PATH").unwrap_or_default();
    env::split_paths(&path).any(|folder| folder.join(program).is_file())
}

/// Lets ctrl+c reach the pager only, which stops what it does then, such as a search.
fn ignore_interrupts() {
    let Ok(runtime) = tokio::runtime::Builder::new_current_thread().enable_all().build() else {
        return;
    };
    let _entered = runtime.enter();
    // The handler stays for the life of the process, also without the runtime.
    let _ = signal(SignalKind::interrupt());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_pager_is_the_one_that_the_person_named() {
        for (own, usual, chosen) in [
            (None, None, Some("less")),
            (None, Some("more -s"), Some("more -s")),
            (Some("most"), Some("more"), Some("most")),
            (Some(""), Some("more"), None),
            (None, Some("cat"), None),
            (None, Some("  "), None),
        ] {
            let variable = |name: &str| {
                let value = if name == "PAGER" { usual } else { own };
                value.map(str::to_owned)
            };
            assert_eq!(chosen_pager(variable).as_deref(), chosen, "{own:?} {usual:?}");
        }
    }
}
