//! The controlling terminal: asks the person for approval, and reads other answers.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Write};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use adjutant_core::Policy;
use adjutant_core::policy::ApprovalRule;
use adjutant_engine::{Approver, ApproverAnswer, ApproverQuestion};
use adjutant_view::{approval, sanitize};
use rustix::termios::{LocalModes, OptionalActions, Termios, tcgetattr, tcsetattr};

use crate::live::columns;
use crate::screen_region;

/// The controlling terminal, independent of standard input and output.
pub(crate) struct Terminal {
    input: File,
    output: File,
    // One question at a time, so that answers cannot be mixed up.
    turn: Mutex<()>,
}

/// Whether a question is on the screen; then the live view is not drawn.
static ASKING: AtomicBool = AtomicBool::new(false);

/// Returns whether a question is on the screen.
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

impl Terminal {
    /// Shows a sanitized text and waits for yes or no. A terminal that is gone means no.
    pub(crate) fn confirm(&self, text: &str, prompt: &str) -> bool {
        let shown = self.show(&format!("{}{prompt}", sanitize::block(text)));
        shown.is_ok() && self.read_line().is_some_and(|answer| is_yes(&answer))
    }

    /// Writes text as it is.
    pub(crate) fn show(&self, text: &str) -> io::Result<()> {
        (&self.output).write_all(text.as_bytes())
    }

    /// Waits for a line; `None` at its end, when the terminal is gone, and at ctrl+d.
    pub(crate) fn read_line(&self) -> Option<String> {
        BufReader::new(&self.input).lines().next().and_then(Result::ok)
    }

    /// Stops showing what is typed, until the returned value is dropped.
    pub(crate) fn hide_typing(&self) -> HiddenTyping<'_> {
        let before = tcgetattr(&self.input).ok();
        if let Some(mut hidden) = before.clone() {
            hidden.local_modes -= LocalModes::ECHO;
            let _ = tcsetattr(&self.input, OptionalActions::Now, &hidden);
        }
        HiddenTyping { terminal: self, before }
    }

    /// Returns its width.
    pub(crate) fn width(&self) -> usize {
        columns(&self.output)
    }
}

/// Returns whether an answer means yes.
pub(crate) fn is_yes(answer: &str) -> bool {
    matches!(answer.trim().to_lowercase().as_str(), "y" | "yes")
}

/// A terminal that does not show what is typed. Dropping it restores the terminal.
pub(crate) struct HiddenTyping<'a> {
    terminal: &'a Terminal,
    before: Option<Termios>,
}

impl Drop for HiddenTyping<'_> {
    fn drop(&mut self) {
        if let Some(before) = &self.before {
            let _ = tcsetattr(&self.terminal.input, OptionalActions::Now, before);
        }
    }
}

/// Returns the approver of a run: `--yes` approves everything, a terminal asks, and without one everything is refused.
pub(crate) fn approver(yes: bool, terminal: Option<Terminal>) -> Approver {
    match terminal {
        _ if yes => Arc::new(|_| ApproverAnswer::Yes),
        Some(terminal) => Arc::new(move |question| ask(&terminal, question)),
        None => Arc::new(|question| {
            ApproverAnswer::No(match question {
                ApproverQuestion::Call { .. } => {
                    "there is no terminal to ask on; --yes answers for you".into()
                }
                ApproverQuestion::Domain { host, .. } => format!(
                    "there is no terminal to ask on; a person allows it with --allow-domain {host}"
                ),
            })
        }),
    }
}

/// Returns whether a run under this policy may ask questions.
pub(crate) fn may_ask(policy: &Policy) -> bool {
    policy.approval == ApprovalRule::Batch || policy.network
}

/// Shows the question and waits for yes or no.
fn ask(terminal: &Terminal, question: &ApproverQuestion) -> ApproverAnswer {
    let _turn = terminal.turn.lock().unwrap_or_else(PoisonError::into_inner);
    ASKING.store(true, Ordering::Relaxed);
    screen_region::erase();
    let answer = ask_until_answered(terminal, question);
    ASKING.store(false, Ordering::Relaxed);
    answer
}

fn ask_until_answered(terminal: &Terminal, question: &ApproverQuestion) -> ApproverAnswer {
    let wide = columns(&terminal.output);
    let (shown, prompt) = match question {
        ApproverQuestion::Call { events, policy, left, commands_see, .. } => {
            let question = approval::ApprovalQuestion::of(policy, events).with_left(*left);
            let question = question.with_commands_see(commands_see.as_deref());
            (question.text(wide), "Start? [y/N] ".to_owned())
        }
        ApproverQuestion::Domain { label, host, url } => {
            approval::domain_question(label.as_str(), host, url, wide)
        }
    };
    let mut output = &terminal.output;
    let mut lines = BufReader::new(&terminal.input).lines();
    if writeln!(output, "{shown}").is_err() {
        wait_forever();
    }
    loop {
        if write!(output, "{prompt}").is_err() {
            wait_forever();
        }
        let line = match lines.next() {
            Some(Ok(line)) => line,
            // End of input: ctrl+d if the terminal can still be written to, otherwise the terminal is gone.
            None if writeln!(output).is_ok() => String::new(),
            Some(Err(_)) | None => wait_forever(),
        };
        match line.trim().to_lowercase().as_str() {
            "y" | "yes" => return ApproverAnswer::Yes,
            "" | "n" | "no" => {
                return ApproverAnswer::No("the person at the terminal said no".into());
            }
            _ => {}
        }
    }
}

/// Leaves a question open: a terminal that is gone is not a no.
///
/// The run gets SIGHUP or the question expires; in both cases `resume` can ask again. The process does not wait for
/// this thread.
fn wait_forever() -> ! {
    loop {
        std::thread::park();
    }
}
