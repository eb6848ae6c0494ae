//! The latest bodies of all sessions that speak to one model.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use adjutant_core::SessionId;
use bytes::Bytes;

use super::{SessionBody, WireCodec};
use crate::model::TurnRequest;

/// Bodies by session, each kept so that the next one only appends to it.
#[derive(Debug, Default)]
pub(crate) struct SessionBodies {
    // A std mutex: held for a map entry, never across an await.
    kept: Mutex<BTreeMap<SessionId, SessionBody>>,
}

impl SessionBodies {
    /// Writes a request; only what is new since the session's latest one is written.
    pub(crate) fn write(&self, codec: &WireCodec, request: &TurnRequest<'_>) -> Bytes {
        let taken = self.kept().remove(&request.session);
        let mut kept = taken.unwrap_or_default();
        codec.encode(&mut kept, request);
        let body = kept.body();
        self.kept().insert(request.session, kept);
        body
    }

    /// Drops what was kept for a session.
    pub(crate) fn forget(&self, session: SessionId) {
        self.kept().remove(&session);
    }

    fn kept(&self) -> MutexGuard<'_, BTreeMap<SessionId, SessionBody>> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
