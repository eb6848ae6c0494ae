//! Questions with answers that are not only yes or no, at the controlling terminal.
//!
//! Invariant: ctrl+c and ctrl+d end the conversation at every question, also after a run has installed its own signal
//! handlers.

use std::io;
use std::sync::Arc;

use adjutant_view::{layout, sanitize};
use tokio::runtime::Runtime;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::oneshot;

use crate::ask::{Terminal, is_yes};
use crate::exit::{Exit, Failure};

/// Whether the terminal shows what is typed.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Typing {
    Shown,
    Hidden,
}

/// A conversation at the terminal.
pub(super) struct SetupDialog {
    terminal: Arc<Terminal>,
    runtime: Runtime,
}

impl SetupDialog {
    pub(super) fn new(terminal: Terminal) -> Result<Self, Failure> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(|error| {
            Failure::new(Exit::Failed, format!("cannot start the runtime: {error}"))
        })?;
        Ok(Self { terminal: Arc::new(terminal), runtime })
    }

    /// Waits for a future that asks no question.
    pub(super) fn wait<T>(&self, future: impl Future<Output = T>) -> T {
        self.runtime.block_on(future)
    }

    /// Prints a paragraph, wrapped to the terminal.
    pub(super) fn say(&self, text: &str) {
        let width = self.terminal.width();
        let safe = sanitize::block(text).into_owned();
        let lines = safe.split('\n').flat_map(|line| wrapped(line, width));
        let text: String = lines.map(|line| line + "\n").collect();
        // Errors are ignored: the next question notices that the terminal is gone.
        let _ = self.terminal.show(&text);
    }

    /// Asks for a line; `usual` is the answer of an empty one.
    pub(super) fn ask(&self, prompt: &str, usual: Option<&str>) -> Result<String, Failure> {
        let shown = usual.map_or_else(|| prompt.to_owned(), |usual| format!("{prompt} [{usual}]"));
        let answer = self.read(&format!("{shown}: "), Typing::Shown)?;
        let answer = answer.trim();
        Ok(if answer.is_empty() { usual.unwrap_or_default() } else { answer }.to_owned())
    }

    /// Asks for a line that the terminal does not show.
    pub(super) fn ask_secret(&self, prompt: &str) -> Result<String, Failure> {
        let answer = self.read(&format!("{prompt}: "), Typing::Hidden);
        let _ = self.terminal.show("\n");
        Ok(answer?.trim().to_owned())
    }

    /// Asks for yes or no; anything but yes is no.
    pub(super) fn confirm(&self, question: &str) -> Result<bool, Failure> {
        Ok(is_yes(&self.read(&format!("{question} [y/N] "), Typing::Shown)?))
    }

    fn read(&self, prompt: &str, typing: Typing) -> Result<String, Failure> {
        let lines = wrapped(&sanitize::line(prompt), self.terminal.width());
        let prompt = format!("{} ", lines.join("\n"));
        let terminal = Arc::clone(&self.terminal);
        let answer = self.wait(async {
            let mut interrupt = signal(SignalKind::interrupt())?;
            let _hidden = (typing == Typing::Hidden).then(|| self.terminal.hide_typing());
            self.terminal.show(&prompt)?;
            let (tell, told) = oneshot::channel();
            // Not a thread of the runtime, which would wait for it: after ctrl+c it still reads.
            std::thread::spawn(move || tell.send(terminal.read_line()));
            tokio::select! {
                line = told => Ok(line.ok().flatten()),
                _ = interrupt.recv() => Ok(None),
            }
        });
        let answer: Option<String> = answer.map_err(|error: io::Error| {
            Failure::new(Exit::Failed, format!("cannot read from the terminal: {error}"))
        })?;
        answer.ok_or_else(|| {
            let _ = self.terminal.show("\n");
            Failure::new(Exit::Cancelled, "cancelled")
        })
    }
}

/// Wraps a line; the lines after the first keep its indentation.
fn wrapped(line: &str, width: usize) -> Vec<String> {
    let text = line.trim_start();
    let indent = &line[..line.len() - text.len()];
    let lines = layout::wrap(text, width.saturating_sub(indent.len()).max(1));
    lines.into_iter().map(|line| format!("{indent}{line}")).collect()
}
