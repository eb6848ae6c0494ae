//! The words and marks for states and codes, shared by all output.

use adjutant_core::{Code, Outcome, State};
use adjutant_formats::contract::ReturnFinding;

use crate::run::Liveness;

/// Returns the mark of a state: one column wide, always shown beside a word.
pub(crate) const fn mark(state: &State) -> &'static str {
    match state {
        State::AwaitingApproval => "◌",
        State::Queued => "·",
        State::Running => "→",
        State::Ended(Outcome::Completed) => "✓",
        State::Ended(Outcome::Partial) => "⚠",
        State::Ended(Outcome::Failed) => "✗",
        State::Ended(Outcome::Blocked) => "?",
        State::Ended(Outcome::Cancelled) => "■",
        State::Ended(Outcome::Refused) => "⊘",
    }
}

/// Returns the mark of a state, given whether the run is alive.
pub(crate) const fn mark_now(state: &State, liveness: Liveness) -> &'static str {
    if is_interrupted(state, liveness) { "!" } else { mark(state) }
}

/// Returns the word for a state, given whether the run is alive.
pub(crate) const fn state_word(state: &State, liveness: Liveness) -> &'static str {
    if is_interrupted(state, liveness) { "interrupted" } else { state.word() }
}

/// Returns the state as in JSON: lower case, with underscores.
pub(crate) const fn state_key(state: &State, liveness: Liveness) -> &'static str {
    match state {
        State::AwaitingApproval if matches!(liveness, Liveness::Alive) => "awaiting_approval",
        State::AwaitingApproval | State::Queued | State::Running | State::Ended(_) => {
            state_word(state, liveness)
        }
    }
}

/// Returns whether a live state can no longer change because the run's process is gone.
pub(crate) const fn is_interrupted(state: &State, liveness: Liveness) -> bool {
    state.is_live() && matches!(liveness, Liveness::Dead)
}

/// Returns the word for an outcome in a progress line.
pub(crate) const fn ended_word(outcome: Outcome) -> &'static str {
    match outcome {
        Outcome::Completed => "complete",
        Outcome::Partial
        | Outcome::Failed
        | Outcome::Blocked
        | Outcome::Cancelled
        | Outcome::Refused => outcome.word(),
    }
}

/// Returns a code as text: `context exhausted`.
pub(crate) fn code_words(code: Code) -> String {
    code_key(code).replace('_', " ")
}

/// Like [`code_words`], for a code in its string form: `CONTEXT_EXHAUSTED` becomes `context exhausted`.
pub(crate) fn code_words_of(code: &str) -> String {
    code.to_ascii_lowercase().replace('_', " ")
}

/// Returns a code as in events: `context_exhausted`.
pub(crate) fn code_key(code: Code) -> String {
    code.as_str().to_ascii_lowercase()
}

/// Returns `count` with its noun: `1 subagent`, `3 subagents`.
pub(crate) fn counted(count: usize, noun: &str) -> String {
    if count == 1 { format!("1 {noun}") } else { format!("{count} {noun}s") }
}

/// Lists what is wrong with a return, field by field.
pub(crate) fn complaints(errors: &[ReturnFinding]) -> String {
    let said = errors.iter().map(|it| format!("{}: {}", it.field, it.message));
    said.collect::<Vec<_>>().join("; ")
}
