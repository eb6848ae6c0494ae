//! The disk space that must stay free so that running work can be recorded.
//!
//! Two things must always fit: the records that end every live delegation, and the reply of every running model
//! call. A decision that would leave less is not recorded; the run is ended instead.

use std::collections::BTreeMap;

use adjutant_core::{Event, SessionId, Tree};

/// The bytes for the end of one delegation.
const END_BYTES: u64 = 1 << 10;

/// The bytes for the end of the root and of the run.
const RUN_BYTES: u64 = 4 << 10;

/// The bytes for the record of a reply without its text, and for the progress events before it.
const ANSWER_BYTES: u64 = 4 << 10;

/// The bytes of one token in a record: about four letters, escaped, and repeated in the provider's opaque data and in
/// the translation of a tool call.
const TOKEN_BYTES: u64 = 12;

/// The most bytes reserved for one reply.
const LONGEST_ANSWER: u64 = 1 << 20;

/// Returns the delegation whose running model call ends with this event.
pub(crate) const fn closed_call(event: &Event) -> Option<SessionId> {
    if let Event::Replied { session, .. }
    | Event::AttemptFailed { session, .. }
    | Event::Settled { session, .. } = event
    {
        return Some(*session);
    }
    None
}

/// The space that must stay free, folded from the events.
#[derive(Debug, Default)]
pub(crate) struct JournalReserve {
    live: u64,
    calls: BTreeMap<SessionId, u64>,
    answers: u64,
}

impl JournalReserve {
    /// Computes the reserve from the live delegations of a tree.
    pub(crate) fn of(tree: &Tree) -> Self {
        let mut reserve = Self::default();
        for node in tree.nodes().filter(|node| node.is_live()) {
            reserve.live += 1;
            if let Some(open) = &node.reservation() {
                reserve.open(node.session, open.max_output);
            }
        }
        reserve
    }

    /// Updates the reserve by an event.
    pub(crate) fn fold(&mut self, event: &Event) {
        if let Event::Reserved { session, reservation } = event {
            self.open(*session, reservation.max_output);
        }
        if let Some(session) = closed_call(event) {
            self.answers -= self.calls.remove(&session).unwrap_or_default();
        }
        if matches!(event, Event::RunStarted { .. } | Event::Granted(_) | Event::Reopened(_)) {
            self.live += 1;
        }
        if matches!(event, Event::Ended { .. }) {
            self.live = self.live.saturating_sub(1);
        }
    }

    /// Returns the bytes that must stay free.
    pub(crate) const fn bytes(&self) -> u64 {
        RUN_BYTES + self.live * END_BYTES + self.answers
    }

    fn open(&mut self, session: SessionId, max_output: u64) {
        let bytes = max_output.saturating_mul(TOKEN_BYTES).min(LONGEST_ANSWER) + ANSWER_BYTES;
        self.answers += bytes;
        self.answers -= self.calls.insert(session, bytes).unwrap_or_default();
    }
}
