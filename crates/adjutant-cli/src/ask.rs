//! Asking the person at the terminal.

use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use adjutant_core::Policy;
use adjutant_core::policy::Approval;
use adjutant_engine::{Approver, ApproverAnswer, ApproverQuestion};
use adjutant_view::{approval, sanitize};

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

impl Terminal {
    /// Shows a text, made safe, and waits for yes or no; a terminal that is gone says no.
    pub(crate) fn confirm(&self, text: &str, prompt: &str) -> bool {
        let mut output = &self.output;
        if write!(output, "{}{prompt}", sanitize::block(text)).is_err() {
            return false;
        }
        let line = BufReader::new(&self.input).lines().next();
        let answer = line.and_then(Result::ok).unwrap_or_default();
        matches!(answer.trim().to_lowercase().as_str(), "y" | "yes")
    }
}

/// Finds out who answers the questions of a run: `--yes`, the person at the terminal, or nobody,
/// which is a no.
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

/// Says whether a run under this policy may have something to ask.
pub(crate) fn may_ask(policy: &Policy) -> bool {
    policy.approval == Approval::Batch || policy.network
}

/// Shows what is at stake and waits for yes or no.
fn ask(terminal: &Terminal, question: &ApproverQuestion) -> ApproverAnswer {
    let _turn = terminal.turn.lock().unwrap_or_else(PoisonError::into_inner);
    ASKING.store(true, Ordering::Relaxed);
    let answer = put(terminal, question);
    ASKING.store(false, Ordering::Relaxed);
    answer
}

fn put(terminal: &Terminal, question: &ApproverQuestion) -> ApproverAnswer {
    let wide = columns(&terminal.output);
    let (shown, prompt) = match question {
        ApproverQuestion::Call { events, policy, left, .. } => {
            let question = approval::ApprovalQuestion::of(policy, events).with_left(*left);
            (question.text(wide), "Start? [y/N] ".to_owned())
        }
        ApproverQuestion::Domain { label, host, url } => {
            approval::domain_question(label.as_str(), host, url, wide)
        }
    };
    let mut output = &terminal.output;
    let mut lines = BufReader::new(&terminal.input).lines();
    if writeln!(output, "{shown}").is_err() {
        never();
    }
    loop {
        if write!(output, "{prompt}").is_err() {
            never();
        }
        let line = match lines.next() {
            Some(Ok(line)) => line,
            // Ctrl+d ends the line on a terminal that is there; one that is gone ends as well, and
            // cannot be written to.
            None if writeln!(output).is_ok() => String::new(),
            Some(Err(_)) | None => never(),
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

/// Leaves a question open: a terminal that is gone is nobody's no.
///
/// The run is told by a signal that it is gone, or the question expires; either way `resume` can
/// ask again. The process does not wait for this thread.
fn never() -> ! {
    loop {
        std::thread::park();
    }
}
