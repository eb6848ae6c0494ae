//! A question that is open, as the journal of its run has it.

use adjutant_core::{Event, Timestamp};
use adjutant_engine::Inbox;
use adjutant_view::RunView;
use adjutant_view::approval::Question;

/// A question that waits for a person.
pub(crate) struct Asking {
    /// What the answer is bound to.
    pub(crate) hash: String,
    /// What it is called where people answer it.
    pub(crate) id: String,
    /// What is at stake.
    pub(crate) question: Question,
    /// How long it stays open, in milliseconds.
    pub(crate) left_ms: u64,
}

impl Asking {
    /// Finds the open questions of a run among what was admitted.
    pub(crate) fn all(view: &RunView, admitted: &[Event], now: Timestamp) -> Vec<Self> {
        let Some(policy) = view.policy().filter(|_| view.outcome().is_none()) else {
            return Vec::new();
        };
        let open = view.approvals().iter().map(|open| Self {
            hash: open.hash.clone(),
            id: Inbox::name(&open.hash),
            question: Question::of_call(policy, admitted, open.parent, open.call),
            left_ms: open.expires.as_millis().saturating_sub(now.as_millis()),
        });
        open.collect()
    }
}

/// Says whether a question may be about it.
pub(crate) fn is_of_a_call(event: &Event) -> bool {
    if let Event::Granted(_) | Event::Refused { .. } | Event::ApprovalAsked { .. } = event {
        return true;
    }
    false
}
