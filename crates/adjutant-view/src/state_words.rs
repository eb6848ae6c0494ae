//! The words and marks for states and codes, shared by all output.

use adjutant_core::{DelegationState, ErrorCode, Outcome};
use adjutant_formats::contract::ReturnFinding;

use crate::run::{Delegation, ProcessLiveness};

/// Returns the mark of a state: one column wide, always shown beside a word.
pub(crate) const fn mark(state: &DelegationState) -> &'static str {
    match state {
        DelegationState::AwaitingApproval => "◌",
        DelegationState::Queued => "·",
        DelegationState::Running => "→",
        DelegationState::Ended(Outcome::Completed) => "✓",
        DelegationState::Ended(Outcome::Partial) => "⚠",
        DelegationState::Ended(Outcome::Failed) => "✗",
        DelegationState::Ended(Outcome::Blocked) => "?",
        DelegationState::Ended(Outcome::Cancelled) => "■",
        DelegationState::Ended(Outcome::Refused) => "⊘",
    }
}

/// Returns the mark of a state, given whether the run is alive.
pub(crate) const fn mark_now(state: &DelegationState, liveness: ProcessLiveness) -> &'static str {
    if is_interrupted(state, liveness) { "!" } else { mark(state) }
}

/// Returns the word for a state, given whether the run is alive.
pub(crate) const fn state_word(state: &DelegationState, liveness: ProcessLiveness) -> &'static str {
    if is_interrupted(state, liveness) { "interrupted" } else { state.word() }
}

/// Returns the state as in JSON: lower case, with underscores.
pub(crate) const fn state_key(state: &DelegationState, liveness: ProcessLiveness) -> &'static str {
    match state {
        DelegationState::AwaitingApproval if matches!(liveness, ProcessLiveness::Alive) => {
            "awaiting_approval"
        }
        DelegationState::AwaitingApproval
        | DelegationState::Queued
        | DelegationState::Running
        | DelegationState::Ended(_) => state_word(state, liveness),
    }
}

/// Returns whether a live state can no longer change because the run's process is gone.
pub(crate) const fn is_interrupted(state: &DelegationState, liveness: ProcessLiveness) -> bool {
    state.is_live() && matches!(liveness, ProcessLiveness::Dead)
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
pub(crate) fn code_words(code: ErrorCode) -> String {
    code_key(code).replace('_', " ")
}

/// Like [`code_words`], for a code in its string form: `CONTEXT_EXHAUSTED` becomes `context exhausted`.
pub(crate) fn code_words_of(code: &str) -> String {
    code.to_ascii_lowercase().replace('_', " ")
}

/// Returns a code as in events: `context_exhausted`.
pub(crate) fn code_key(code: ErrorCode) -> String {
    code.as_str().to_ascii_lowercase()
}

/// Returns `count` with its noun: `1 subagent`, `3 subagents`.
pub(crate) fn count_with_noun(count: usize, noun: &str) -> String {
    if count == 1 { format!("1 {noun}") } else { format!("{count} {noun}s") }
}

/// Says how often a delegation went on in a fresh conversation; `None` if never.
pub(crate) fn continuations_text(delegation: &Delegation) -> Option<String> {
    let count = delegation.continuations as usize;
    (count > 0).then(|| count_with_noun(count, "continuation"))
}

/// Lists what is wrong with a return, field by field.
pub(crate) fn complaints(errors: &[ReturnFinding]) -> String {
    let said = errors.iter().map(|it| format!("{}: {}", it.field, it.message));
    said.collect::<Vec<_>>().join("; ")
}
