//! What an external worker said and did between its prompt and its answer.
//!
//! A [`TranscriptAction`] is one thing that a worker reported, with its place between the messages. Chunks of text are
//! joined, and the reports about one tool call are one action.

use std::fmt::Write;

use adjutant_core::{Message, WorkerAction, WorkerToolStatus};
use serde::Serialize;

use super::indent;
use crate::layout::fit;

/// The maximum width of a tool's title, in columns.
const TITLE_COLUMNS: usize = 120;

/// One thing that an external worker reported.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct TranscriptAction {
    /// The index of the message that follows it; the number of messages if none does.
    pub before: usize,
    /// What the worker reported.
    #[serde(flatten)]
    pub action: WorkerAction,
}

/// Joins the chunks of a text, and the reports about each tool call.
pub(super) fn join(reported: &[(usize, WorkerAction)]) -> Vec<TranscriptAction> {
    let mut joined: Vec<TranscriptAction> = Vec::new();
    for (before, action) in reported {
        let before = *before;
        match action {
            WorkerAction::Said { text: chunk } => {
                if let Some(TranscriptAction { before: place, action: WorkerAction::Said { text } }) =
                    joined.last_mut()
                    && *place == before
                {
                    text.push_str(chunk);
                    continue;
                }
            }
            WorkerAction::Tool { id, title, status } => {
                if let Some((known_title, known_status)) = running_tool(&mut joined, id) {
                    if !title.is_empty() {
                        known_title.clone_from(title);
                    }
                    *known_status = *status;
                    continue;
                }
            }
            WorkerAction::Permission { .. } => {}
        }
        joined.push(TranscriptAction { before, action: action.clone() });
    }
    joined
}

/// Returns the title and the status of the latest tool call with this id, if it has not ended.
fn running_tool<'a>(
    joined: &'a mut [TranscriptAction],
    wanted: &str,
) -> Option<(&'a mut String, &'a mut WorkerToolStatus)> {
    joined.iter_mut().rev().find_map(|it| match &mut it.action {
        WorkerAction::Tool { id, title, status }
            if id == wanted && *status == WorkerToolStatus::Begun =>
        {
            Some((title, status))
        }
        WorkerAction::Tool { .. } | WorkerAction::Said { .. } | WorkerAction::Permission { .. } => {
            None
        }
    })
}

/// Renders the actions before one message, without the words that the message repeats.
pub(super) fn render(worker: &str, actions: &[TranscriptAction], next: Option<&Message>) -> String {
    let mut text = String::new();
    for (place, it) in actions.iter().enumerate() {
        match &it.action {
            WorkerAction::Said { text: said } => {
                let next = next.filter(|_| place + 1 == actions.len());
                indent(&mut text, without_answer(said, next));
            }
            WorkerAction::Tool { title, status, .. } => {
                let how = match status {
                    WorkerToolStatus::Begun => " (did not end)",
                    WorkerToolStatus::Completed => "",
                    WorkerToolStatus::Failed => " (failed)",
                };
                // Writing to a string cannot fail, here and below.
                let _ = writeln!(text, "  → {}{how}", fit(title, TITLE_COLUMNS));
            }
            WorkerAction::Permission { title, allowed } => {
                let answer = if *allowed { "allowed" } else { "not allowed" };
                let _ = writeln!(text, "  {answer}: {}", fit(title, TITLE_COLUMNS));
            }
        }
    }
    if text.is_empty() { text } else { format!("\n── {} ──\n{text}", fit(worker, 32)) }
}

/// Returns what was said before the answer: the answer consists of the last words and follows as a message.
fn without_answer<'a>(said: &'a str, next: Option<&Message>) -> &'a str {
    match next {
        Some(Message::Assistant { content, .. }) if !content.trim().is_empty() => {
            let said = said.trim_end();
            said.strip_suffix(content.trim()).unwrap_or(said)
        }
        Some(Message::Assistant { .. } | Message::User { .. } | Message::Tool { .. }) | None => {
            said
        }
    }
}
