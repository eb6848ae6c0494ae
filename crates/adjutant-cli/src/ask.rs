//! Asking the person at the terminal.

use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

use adjutant_engine::{Answer, Question};
use adjutant_view::approval;

use crate::live::columns;

/// The controlling terminal, whatever standard input and output are tied to.
pub(crate) struct Terminal {
    input: File,
    output: File,
    // One question at a time: two on one screen could be answered the wrong way round.
    turn: Mutex<()>,
}

/// Whether a question is on the screen, so that nothing is drawn over it.
static ASKING: AtomicBool = AtomicBool::new(false);

/// Says whether a question is on the screen.
pub(crate) fn is_asking() -> bool {
    ASKING.load(Ordering::Relaxed)
}

impl Terminal {
    /// Opens the terminal, if there is one.
    pub(crate) fn open() -> Option<Self> {
        let open = |write: bool| File::options().read(!write).write(write).open("/dev/tty").ok();
        Some(Self { input: open(false)?, output: open(true)?, turn: Mutex::new(()) })
    }
}

/// Shows what is at stake and waits for yes or no.
pub(crate) fn ask(terminal: &Terminal, question: &Question) -> Answer {
    let _turn = terminal.turn.lock().unwrap_or_else(PoisonError::into_inner);
    ASKING.store(true, Ordering::Relaxed);
    let answer = put(terminal, question);
    ASKING.store(false, Ordering::Relaxed);
    answer
}

fn put(terminal: &Terminal, question: &Question) -> Answer {
    let wide = columns(&terminal.output);
    let (shown, prompt) = match question {
        Question::Call { events, policy, left } => {
            (approval::Question::of(policy, events).with_left(*left).text(wide), "Start? [y/N] ")
        }
    };
    let mut output = &terminal.output;
    let mut lines = BufReader::new(&terminal.input).lines();
    if writeln!(output, "{shown}").is_err() {
        return Answer::No("the terminal is gone".into());
    }
    loop {
        let asked = write!(output, "{prompt}").and_then(|()| output.flush());
        let Some(Ok(line)) = asked.ok().and_then(|()| lines.next()) else {
            return Answer::No("the terminal is gone".into());
        };
        match line.trim().to_lowercase().as_str() {
            "y" | "yes" => return Answer::Yes,
            "" | "n" | "no" => return Answer::No("the person at the terminal said no".into()),
            _ => {}
        }
    }
}
