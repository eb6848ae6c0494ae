//! The controlling terminal: asks the person for approval, and reads other answers.
//!
//! [`approver`] is what a run asks; `question` shows a question about a call and performs the choices of the person:
//! `choice` reads what was typed, `program` runs pager and editor, `task_editor` edits the tasks. `answers` notices
//! that another terminal answered the question.

mod answers;
mod choice;
mod program;
mod question;
mod task_editor;
mod terminal;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, PoisonError};

use adjutant_core::Policy;
use adjutant_core::policy::ApprovalRule;
use adjutant_engine::{Approver, ApproverAnswer, ApproverQuestion, RegistryHandle};
use adjutant_view::approval;

use crate::screen_region;

use self::question::CallPrompt;
use self::terminal::TypedLine;

pub(crate) use answers::{has_terminal_program, note_answer, wait_for_terminal_program};
pub(crate) use task_editor::{CallObject, TaskEditor, task_object};
pub(crate) use terminal::{Terminal, is_yes};

/// Whether a question is on the screen; then the live view is not drawn.
static ASKING: AtomicBool = AtomicBool::new(false);

/// Returns whether a question is on the screen.
pub(crate) fn is_asking() -> bool {
    ASKING.load(Ordering::Relaxed)
}

/// Returns the approver of a run: `--yes` approves everything, a terminal asks, and without one everything is refused.
///
/// `registry` tells what to expect, and lets another terminal answer. With `editor` the person can edit the tasks.
pub(crate) fn approver(
    yes: bool,
    terminal: Option<Terminal>,
    registry: &RegistryHandle,
    editor: Option<Arc<TaskEditor>>,
) -> Approver {
    let registry = registry.clone();
    match terminal {
        _ if yes => Arc::new(|_| ApproverAnswer::Yes),
        Some(terminal) => {
            Arc::new(move |question| ask(&terminal, question, &registry, editor.as_deref()))
        }
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

/// Shows the question and waits for the answer.
fn ask(
    terminal: &Terminal,
    question: &ApproverQuestion,
    registry: &RegistryHandle,
    editor: Option<&TaskEditor>,
) -> ApproverAnswer {
    let _turn = terminal.turn.lock().unwrap_or_else(PoisonError::into_inner);
    ASKING.store(true, Ordering::Relaxed);
    screen_region::erase();
    let answer = match question {
        ApproverQuestion::Call { run, events, policy, left, commands_see, workers } => {
            let asked = approval::ApprovalQuestion::of(policy, events).with_left(*left);
            let asked = asked.with_commands_see(commands_see.as_deref());
            // A registry that cannot be read is reported by the commands that need it.
            let asked = match registry.read_unlocked() {
                Ok(known) => asked.with_history(&known, |agent| workers.get(agent).cloned()),
                Err(_) => asked,
            };
            CallPrompt::new(terminal, *run, asked, registry, editor).ask()
        }
        ApproverQuestion::Domain { label, host, url } => {
            let wide = terminal.width();
            let (shown, prompt) = approval::domain_question(label.as_str(), host, url, wide);
            ask_about_host(terminal, &shown, &prompt)
        }
    };
    ASKING.store(false, Ordering::Relaxed);
    answer
}

/// Asks yes or no; Enter means no.
fn ask_about_host(terminal: &Terminal, shown: &str, prompt: &str) -> ApproverAnswer {
    terminal.print(&format!("{shown}\n"));
    loop {
        terminal.print(prompt);
        let line = match terminal.wait_for_line(|| false) {
            TypedLine::Line(line) => line,
            TypedLine::Interrupted => return ApproverAnswer::Later,
        };
        if is_yes(&line) {
            return ApproverAnswer::Yes;
        }
        match line.trim().to_lowercase().as_str() {
            "" | "n" | "no" => return ApproverAnswer::No(SAID_NO.to_owned()),
            _ => terminal.print("y yes  n no\n"),
        }
    }
}

/// The reason of a denial at the prompt.
const SAID_NO: &str = "the person at the terminal said no";
