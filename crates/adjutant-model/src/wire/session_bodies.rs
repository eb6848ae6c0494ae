//! The latest request bodies of all sessions of one model.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use adjutant_core::SessionId;
use bytes::Bytes;

use super::{SessionBody, WireCodec};
use crate::model::TurnRequest;

/// Request bodies by session; each new request only appends to the kept one.
#[derive(Debug, Default)]
pub(crate) struct SessionBodies {
    // A std mutex: held for a map entry, never across an await.
    kept: Mutex<BTreeMap<SessionId, SessionBody>>,
}

impl SessionBodies {
    /// Returns the body of a request; serializes only what is new since the session's previous request.
    pub(crate) fn write(&self, codec: &WireCodec, request: &TurnRequest<'_>) -> Bytes {
        let taken = self.lock_bodies().remove(&request.session);
        let mut kept = taken.unwrap_or_default();
        codec.encode(&mut kept, request);
        let body = kept.body();
        self.lock_bodies().insert(request.session, kept);
        body
    }

    /// Drops the body of a session.
    pub(crate) fn forget(&self, session: SessionId) {
        self.lock_bodies().remove(&session);
    }

    fn lock_bodies(&self) -> MutexGuard<'_, BTreeMap<SessionId, SessionBody>> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
