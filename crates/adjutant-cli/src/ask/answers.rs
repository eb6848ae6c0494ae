//! The question on the screen, and whether another terminal answered it.
//!
//! The answer is printed by the thread that learns of it: the run may end before the thread that waits for input looks.

use std::fs::File;
use std::io::Write;
use std::sync::atomic::Ordering;
use std::sync::{Mutex, PoisonError};

use adjutant_core::Event;
use adjutant_view::sanitize;

use super::{ASKING, Terminal};

/// The question on the screen.
struct OpenPrompt {
    hash: String,
    /// Whether another process answered it, or it expired.
    is_answered: bool,
    output: Option<File>,
}

static OPEN: Mutex<Option<OpenPrompt>> = Mutex::new(None);

/// Marks a question as on the screen until it is dropped.
pub(super) struct PromptOnScreen;

impl PromptOnScreen {
    /// The question with this hash is on the screen of `terminal`.
    pub(super) fn show(terminal: &Terminal, hash: &str) -> Self {
        let output = terminal.handles().ok().map(|(_, output)| output);
        let prompt = OpenPrompt { hash: hash.to_owned(), is_answered: false, output };
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
        if let Some(output) = &mut open.output {
            // A terminal that is gone is noticed by the thread that waits for input.
            let _ = writeln!(output, "\n{}\n", sanitize::line(&answer));
        }
        ASKING.store(false, Ordering::Relaxed);
    });
}

fn with<T>(change: impl FnOnce(&mut Option<OpenPrompt>) -> T) -> T {
    change(&mut OPEN.lock().unwrap_or_else(PoisonError::into_inner))
}
