//! The unanswered requests of one client: their number is limited, and their ids are unique.
//!
//! The server stops reading from a client that does not read its answers. A client that reads, but has too
//! many unanswered requests, gets an error.

use std::collections::HashMap;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rmcp::model::{ClientJsonRpcMessage, ClientNotification, ClientRequest, ErrorData};
use rmcp::model::{JsonRpcMessage, RequestId, ServerJsonRpcMessage};

use crate::tools::McpTool;

/// The maximum number of calls that wait for a run.
pub(crate) const MAX_WAITING_CALLS: usize = 256;

/// The maximum number of requests, including waiting calls. It leaves room to query and cancel them.
const MAX_REQUESTS: usize = MAX_WAITING_CALLS + 64;

/// The maximum size of all requests together. A single request may be larger.
const MAX_TOTAL_BYTES: usize = 32 << 20;

/// The maximum length of a request id, which is stored and sent back. Inclusive.
const MAX_ID_BYTES: usize = 1024;

/// How long a request waits for room before it is refused, so that short bursts are accepted.
const ROOM_TIMEOUT: Duration = Duration::from_secs(1);

/// Explains why a request is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RequestRefusal {
    /// Another unanswered request has the same id.
    InUse,
    /// There are too many unanswered requests.
    Full,
}

/// The unanswered requests of one client.
#[derive(Clone, Default)]
pub(crate) struct PendingRequests {
    // A std mutex: held for single map operations, never across an await.
    shared: Arc<(Mutex<PendingTable>, Condvar)>,
}

#[derive(Default)]
struct PendingTable {
    requests: HashMap<RequestId, PendingRequest>,
    bytes: usize,
    waiting: usize,
    /// Answers that are not written yet.
    unwritten: usize,
    /// Whether the last wait for room timed out.
    is_full: bool,
}

struct PendingRequest {
    weight: RequestWeight,
    is_answered: bool,
}

/// What a request counts towards the limits.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RequestWeight {
    /// The length of the message.
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

    /// Adds a request. Blocks while there is no room and the client has not read all answers.
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

    /// Adds a request if there is room.
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

    /// Records that the answer to a request exists but is not written yet.
    pub(crate) fn mark_answered(&self, id: &RequestId) {
        let mut known = self.lock();
        known.unwritten += 1;
        if let Some(request) = known.requests.get_mut(id) {
            request.is_answered = true;
        }
    }

    /// Records that the answer to a request was written or dropped.
    pub(crate) fn mark_written(&self, id: &RequestId) {
        let mut known = self.lock();
        known.unwritten = known.unwritten.saturating_sub(1);
        known.remove(id);
        self.shared.1.notify_all();
    }

    /// Records that the client cancelled a request. It gets no answer, unless that already exists.
    pub(crate) fn mark_cancelled(&self, id: &RequestId) {
        let mut known = self.lock();
        if known.requests.get(id).is_some_and(|request| !request.is_answered) {
            known.remove(id);
            self.shared.1.notify_all();
        }
    }
}

/// Adds a request through `enter`; a cancellation removes one. Returns the error for the client, with the
/// request's id unless that is too long.
pub(crate) fn admit(
    pending: &PendingRequests,
    message: &ClientJsonRpcMessage,
    enter: impl FnOnce(&RequestId, bool) -> Result<(), RequestRefusal>,
) -> Result<(), Box<(ErrorData, Option<RequestId>)>> {
    match message {
        JsonRpcMessage::Request(request) => {
            let refused = |text| ErrorData::invalid_request(text, None);
            if matches!(&request.id, RequestId::String(id) if id.len() > MAX_ID_BYTES) {
                return Err(Box::new((refused("the request id is longer than 1024 bytes"), None)));
            }
            let waits = if let ClientRequest::CallToolRequest(call) = &request.request {
                McpTool::parse(&call.params.name).is_some_and(McpTool::may_wait)
            } else {
                false
            };
            enter(&request.id, waits).map_err(|why| {
                let text = match why {
                    RequestRefusal::InUse => "id is in use: another request with it is unanswered",
                    RequestRefusal::Full => "too many unanswered requests; retry later",
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

/// An answer that is being sent. Dropping it removes its request.
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
    fn waiting_calls_are_limited_and_each_one_that_ends_makes_room() {
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
    fn the_total_size_is_limited_but_a_single_request_may_exceed_it() {
        let pending = PendingRequests::default();
        assert_eq!(pending.add(&id(1), call(MAX_TOTAL_BYTES * 2)), Ok(()));
        assert_eq!(pending.add(&id(2), call(1)), Err(RequestRefusal::Full));
        pending.mark_cancelled(&id(1));
        assert_eq!(pending.add(&id(2), call(MAX_TOTAL_BYTES)), Ok(()));
        assert_eq!(pending.add(&id(3), call(1)), Err(RequestRefusal::Full));
    }

    /// Nothing is refused because an answer has not been read, however long that takes.
    #[test]
    fn a_client_that_does_not_read_is_waited_for() {
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
