//! The requests of one client that are not answered yet: how many there may be, and that no two have
//! the same id.
//!
//! A client that does not read its answers is read no further, so that what it asks stays with it. One
//! that reads, but asks for more than may wait at once, is told so.

use std::collections::HashMap;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rmcp::model::{ClientJsonRpcMessage, ClientNotification, ClientRequest, ErrorData};
use rmcp::model::{JsonRpcMessage, RequestId, ServerJsonRpcMessage};

use crate::tools::McpTool;

/// Calls at once that may wait for a run.
pub(crate) const MAX_WAITING_CALLS: usize = 256;

/// Requests at once, those calls among them: whoever waits can still ask how things stand, and end them.
const MAX_REQUESTS: usize = MAX_WAITING_CALLS + 64;

/// Bytes of all of them together. One alone may have as many as a line.
const MAX_TOTAL_BYTES: usize = 32 << 20;

/// The longest id of a request: it is kept and written again. Inclusive.
const MAX_ID_BYTES: usize = 1024;

/// How long one waits for room before it is refused: many quick ones after another are no harm.
const ROOM_TIMEOUT: Duration = Duration::from_secs(1);

/// Why a request is not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RequestRefusal {
    /// Another with its id is not answered yet.
    InUse,
    /// As many as there may be wait already.
    Full,
}

/// The requests that are not answered yet.
#[derive(Clone, Default)]
pub(crate) struct PendingRequests {
    // A std mutex: held for a look at a map, never across an await.
    shared: Arc<(Mutex<PendingTable>, Condvar)>,
}

#[derive(Default)]
struct PendingTable {
    requests: HashMap<RequestId, PendingRequest>,
    bytes: usize,
    waiting: usize,
    /// Answers that are not written yet.
    unwritten: usize,
    /// Whether there was no room the last time.
    is_full: bool,
}

struct PendingRequest {
    weight: RequestWeight,
    is_answered: bool,
}

/// What a request takes of what there is.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RequestWeight {
    /// The bytes of its line.
    pub(crate) bytes: usize,
    /// Whether it may wait for a run.
    pub(crate) waits: bool,
}

impl PendingTable {
    fn has_room(&self, weight: RequestWeight) -> bool {
        let has_turn = !weight.waits || self.waiting < MAX_WAITING_CALLS;
        let has_place =
            self.requests.len() < MAX_REQUESTS && self.bytes + weight.bytes <= MAX_TOTAL_BYTES;
        self.requests.is_empty() || (has_turn && has_place)
    }

    fn insert(&mut self, id: &RequestId, weight: RequestWeight) {
        self.bytes += weight.bytes;
        self.waiting += usize::from(weight.waits);
        self.requests.insert(id.clone(), PendingRequest { weight, is_answered: false });
    }

    fn remove(&mut self, id: &RequestId) {
        if let Some(request) = self.requests.remove(id) {
            self.bytes -= request.weight.bytes;
            self.waiting -= usize::from(request.weight.waits);
        }
    }
}

impl PendingRequests {
    fn lock(&self) -> MutexGuard<'_, PendingTable> {
        self.shared.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes a request; waits while answers cannot be written.
    pub(crate) fn add(&self, id: &RequestId, weight: RequestWeight) -> Result<(), RequestRefusal> {
        let mut known = self.lock();
        loop {
            if known.requests.contains_key(id) {
                return Err(RequestRefusal::InUse);
            }
            if known.has_room(weight) {
                break;
            }
            if known.is_full && known.unwritten == 0 {
                return Err(RequestRefusal::Full);
            }
            let waited = self.shared.1.wait_timeout(known, ROOM_TIMEOUT);
            let (again, result) = waited.unwrap_or_else(PoisonError::into_inner);
            known = again;
            known.is_full = result.timed_out();
        }
        known.is_full = false;
        known.insert(id, weight);
        Ok(())
    }

    /// Takes a request if there is room now.
    pub(crate) fn try_add(
        &self,
        id: &RequestId,
        weight: RequestWeight,
    ) -> Result<(), RequestRefusal> {
        let mut known = self.lock();
        if known.requests.contains_key(id) {
            return Err(RequestRefusal::InUse);
        }
        if !known.has_room(weight) {
            return Err(RequestRefusal::Full);
        }
        known.insert(id, weight);
        Ok(())
    }

    /// Returns how many calls wait for a run.
    pub(crate) fn waiting(&self) -> usize {
        self.lock().waiting
    }

    /// Notes that a request has its answer, which is yet to be written.
    pub(crate) fn mark_answered(&self, id: &RequestId) {
        let mut known = self.lock();
        known.unwritten += 1;
        if let Some(request) = known.requests.get_mut(id) {
            request.is_answered = true;
        }
    }

    /// Notes that the answer to a request is written, or nobody will read it.
    pub(crate) fn mark_written(&self, id: &RequestId) {
        let mut known = self.lock();
        known.unwritten = known.unwritten.saturating_sub(1);
        known.remove(id);
        self.shared.1.notify_all();
    }

    /// Notes that a request is taken back: it gets no answer, unless it has one already.
    pub(crate) fn mark_cancelled(&self, id: &RequestId) {
        let mut known = self.lock();
        if known.requests.get(id).is_some_and(|request| !request.is_answered) {
            known.remove(id);
            self.shared.1.notify_all();
        }
    }
}

/// Takes a request among those that wait for their answer, if `enter` lets it; one that is taken back
/// makes room. The error is for the request, where its id may be named.
pub(crate) fn admit(
    pending: &PendingRequests,
    message: &ClientJsonRpcMessage,
    enter: impl FnOnce(&RequestId, bool) -> Result<(), RequestRefusal>,
) -> Result<(), Box<(ErrorData, Option<RequestId>)>> {
    match message {
        JsonRpcMessage::Request(request) => {
            let refused = |text| ErrorData::invalid_request(text, None);
            if matches!(&request.id, RequestId::String(id) if id.len() > MAX_ID_BYTES) {
                return Err(Box::new((refused("an id may have at most 1024 bytes"), None)));
            }
            let waits = if let ClientRequest::CallToolRequest(call) = &request.request {
                McpTool::parse(&call.params.name).is_some_and(McpTool::may_wait)
            } else {
                false
            };
            enter(&request.id, waits).map_err(|why| {
                let text = match why {
                    RequestRefusal::InUse => "id is in use: a request with it is not answered yet",
                    RequestRefusal::Full => {
                        "too many requests wait for their answer; ask again later"
                    }
                };
                Box::new((refused(text), Some(request.id.clone())))
            })
        }
        JsonRpcMessage::Notification(told) => {
            if let ClientNotification::CancelledNotification(taken_back) = &told.notification
                && let Some(id) = &taken_back.params.request_id
            {
                pending.mark_cancelled(id);
            }
            Ok(())
        }
        JsonRpcMessage::Response(_) | JsonRpcMessage::Error(_) => Ok(()),
    }
}

/// An answer on its way out; its request ends when this is dropped.
pub(crate) struct OutgoingAnswer(Option<(PendingRequests, RequestId)>);

impl OutgoingAnswer {
    pub(crate) fn of(pending: &PendingRequests, message: &ServerJsonRpcMessage) -> Self {
        let id = match message {
            JsonRpcMessage::Response(response) => Some(&response.id),
            JsonRpcMessage::Error(error) => error.id.as_ref(),
            JsonRpcMessage::Request(_) | JsonRpcMessage::Notification(_) => None,
        };
        Self(id.map(|id| {
            pending.mark_answered(id);
            (pending.clone(), id.clone())
        }))
    }
}

impl Drop for OutgoingAnswer {
    fn drop(&mut self) {
        if let Some((pending, id)) = &self.0 {
            pending.mark_written(id);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;

    fn id(number: usize) -> RequestId {
        RequestId::Number(i64::try_from(number).unwrap())
    }

    fn call(bytes: usize) -> RequestWeight {
        RequestWeight { bytes, waits: true }
    }

    #[test]
    fn no_more_wait_than_may_and_each_end_makes_room_for_one() {
        let pending = PendingRequests::default();
        for number in 0..MAX_WAITING_CALLS {
            assert_eq!(pending.add(&id(number), call(1)), Ok(()));
        }
        assert_eq!(pending.add(&id(7), call(1)), Err(RequestRefusal::InUse));
        assert_eq!(pending.add(&id(MAX_WAITING_CALLS), call(1)), Err(RequestRefusal::Full));
        assert_eq!(pending.add(&id(1000), RequestWeight { bytes: 1, waits: false }), Ok(()));
        pending.mark_cancelled(&id(7));
        assert_eq!(pending.add(&id(7), call(1)), Ok(()));
        assert_eq!(pending.add(&id(MAX_WAITING_CALLS), call(1)), Err(RequestRefusal::Full));
        pending.mark_answered(&id(8));
        pending.mark_cancelled(&id(8));
        assert_eq!(
            pending.add(&id(8), call(1)),
            Err(RequestRefusal::InUse),
            "its answer is on its way"
        );
        pending.mark_written(&id(8));
        assert_eq!(pending.add(&id(8), call(1)), Ok(()));
    }

    #[test]
    fn bytes_count_but_one_alone_may_have_any() {
        let pending = PendingRequests::default();
        assert_eq!(pending.add(&id(1), call(MAX_TOTAL_BYTES * 2)), Ok(()));
        assert_eq!(pending.add(&id(2), call(1)), Err(RequestRefusal::Full));
        pending.mark_cancelled(&id(1));
        assert_eq!(pending.add(&id(2), call(MAX_TOTAL_BYTES)), Ok(()));
        assert_eq!(pending.add(&id(3), call(1)), Err(RequestRefusal::Full));
    }

    /// However long it takes: nothing is refused because an answer is not read.
    #[test]
    fn whoever_does_not_read_is_waited_for() {
        let pending = PendingRequests::default();
        for number in 0..MAX_WAITING_CALLS {
            pending.add(&id(number), call(1)).unwrap();
        }
        assert_eq!(pending.add(&id(MAX_WAITING_CALLS), call(1)), Err(RequestRefusal::Full));
        pending.mark_answered(&id(0));
        let other = pending.clone();
        let waiting = thread::spawn(move || other.add(&id(MAX_WAITING_CALLS), call(1)));
        pending.mark_written(&id(0));
        assert_eq!(waiting.join().unwrap(), Ok(()));
    }
}
