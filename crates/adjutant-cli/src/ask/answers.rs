//! The question on the screen, and whether another terminal answered it.
//!
//! The answer is printed by the thread that learns of it: the run may end before the thread that waits for input looks.

use std::fs::File;
use std::io::Write;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Condvar, Mutex, PoisonError};

use adjutant_core::Event;
use adjutant_view::sanitize;

use crate::live;

use super::{ASKING, Terminal};

/// The question on the screen.
struct OpenPrompt {
    hash: String,
    /// Whether another process answered it, or it expired.
    is_answered: bool,
    /// What the person is told of that answer once no program has the terminal.
    untold: Option<String>,
    output: Option<File>,
}

static OPEN: Mutex<Option<OpenPrompt>> = Mutex::new(None);

/// Whether a pager or an editor has the terminal. Changed only while [`OPEN`] is locked, so that each answer is printed
/// either before the program starts or after it has ended.
static PROGRAM: AtomicBool = AtomicBool::new(false);

/// Says that [`PROGRAM`] was set to false.
static PROGRAM_ENDED: Condvar = Condvar::new();

/// Marks a question as on the screen until it is dropped.
pub(super) struct PromptOnScreen;

impl PromptOnScreen {
    /// The question with this hash is on the screen of `terminal`.
    pub(super) fn show(terminal: &Terminal, hash: &str) -> Self {
        let output = terminal.handles().ok().map(|(_, output)| output);
        let prompt = OpenPrompt { hash: hash.to_owned(), is_answered: false, untold: None, output };
        with(|open| *open = Some(prompt));
        Self
    }

    /// Returns whether the question was answered elsewhere; the person was told then.
    pub(super) fn is_answered(&self) -> bool {
        with(|open| open.as_ref().is_some_and(|open| open.is_answered))
    }
}

impl Drop for PromptOnScreen {
    fn drop(&mut self) {
        with(|open| *open = None);
    }
}

/// Takes an event of the run: the question on the screen may have been answered.
pub(crate) fn note_answer(event: &Event) {
    let (hash, answer) = if let Event::Approved { hash, .. } = event {
        (hash, "Answered in another terminal: yes".to_owned())
    } else if let Event::Denied { hash, reason } = event {
        (hash, format!("This question is closed: {reason}"))
    } else {
        return;
    };
    with(|open| {
        let Some(open) = open.as_mut().filter(|open| open.hash == *hash) else { return };
        open.is_answered = true;
        open.untold = Some(answer);
        if !has_terminal_program() {
            open.tell();
        }
    });
}

impl OpenPrompt {
    /// Tells the person of the answer; then the live view may be drawn.
    fn tell(&mut self) {
        let Some(answer) = self.untold.take() else { return };
        if let Some(output) = &mut self.output {
            // A terminal that is gone is noticed by the thread that waits for input.
            let _ = writeln!(output, "\n{}\n", live::encoded(&sanitize::line(&answer)));
        }
        ASKING.store(false, Ordering::Relaxed);
    }
}

/// Returns whether a pager or an editor has the terminal, so that ctrl+c does not cancel the run.
pub(crate) fn has_terminal_program() -> bool {
    PROGRAM.load(Ordering::Relaxed)
}

/// A pager or an editor has the terminal until this is dropped.
pub(super) struct ForegroundProgram;

impl ForegroundProgram {
    pub(super) fn begin() -> Self {
        with(|_| PROGRAM.store(true, Ordering::Relaxed));
        Self
    }
}

impl Drop for ForegroundProgram {
    fn drop(&mut self) {
        with(|open| {
            open.iter_mut().for_each(OpenPrompt::tell);
            PROGRAM.store(false, Ordering::Relaxed);
        });
        PROGRAM_ENDED.notify_all();
    }
}

/// Waits until no pager or editor has the terminal, so that what is printed next is not printed into it.
pub(crate) fn wait_for_terminal_program() {
    let mut open = OPEN.lock().unwrap_or_else(PoisonError::into_inner);
    while has_terminal_program() {
        open = PROGRAM_ENDED.wait(open).unwrap_or_else(PoisonError::into_inner);
    }
}

fn with<T>(change: impl FnOnce(&mut Option<OpenPrompt>) -> T) -> T {
    change(&mut OPEN.lock().unwrap_or_else(PoisonError::into_inner))
}
