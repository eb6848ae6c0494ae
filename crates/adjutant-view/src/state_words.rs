//! The words and marks of states and codes, said once for every surface.

use adjutant_core::{Code, Outcome, State};
use adjutant_formats::contract::Complaint;

use crate::run::Liveness;

/// Returns the mark of a state: one column wide, and always beside a word.
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

/// Returns the mark of a state, given whether anyone still works on it.
pub(crate) const fn mark_now(state: &State, liveness: Liveness) -> &'static str {
    if is_interrupted(state, liveness) { "!" } else { mark(state) }
}

/// Returns the state in a word, given whether anyone still works on it.
pub(crate) const fn state_word(state: &State, liveness: Liveness) -> &'static str {
    if is_interrupted(state, liveness) { "interrupted" } else { state.word() }
}

/// Returns the state as programs read it: lower case, joined by underscores.
pub(crate) const fn state_key(state: &State, liveness: Liveness) -> &'static str {
    match state {
        State::AwaitingApproval if matches!(liveness, Liveness::Alive) => "awaiting_approval",
        State::AwaitingApproval | State::Queued | State::Running | State::Ended(_) => {
            state_word(state, liveness)
        }
    }
}

/// Says whether a state can no longer change because nobody is left to change it.
pub(crate) const fn is_interrupted(state: &State, liveness: Liveness) -> bool {
    state.is_live() && matches!(liveness, Liveness::Dead)
}

/// Returns an outcome as a progress line says it.
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

/// Returns a code as people read it: `context exhausted`.
pub(crate) fn code_words(code: Code) -> String {
    code_key(code).replace('_', " ")
}

/// Returns a code that was written out, as people read it.
pub(crate) fn code_words_of(code: &str) -> String {
    code.to_ascii_lowercase().replace('_', " ")
}

/// Returns a code as events carry it: `context_exhausted`.
pub(crate) fn code_key(code: Code) -> String {
    code.as_str().to_ascii_lowercase()
}

/// Returns `count` with its noun: `1 subagent`, `3 subagents`.
pub(crate) fn counted(count: usize, noun: &str) -> String {
    if count == 1 { format!("1 {noun}") } else { format!("{count} {noun}s") }
}

/// Says what is wrong with a return, field by field.
pub(crate) fn complaints(errors: &[Complaint]) -> String {
    let said = errors.iter().map(|it| format!("{}: {}", it.field, it.message));
    said.collect::<Vec<_>>().join("; ")
}
