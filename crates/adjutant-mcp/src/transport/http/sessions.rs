//! The HTTP sessions of clients that use the handshake: their number, and what is kept for each. A
//! `RequestTrackingTransport` records which requests of a session were answered.

use std::collections::HashMap;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use futures_core::Stream;
use rmcp::RoleServer;
use rmcp::model::{ClientJsonRpcMessage, JsonRpcMessage, RequestId, ServerJsonRpcMessage};
use rmcp::transport::Transport;
use rmcp::transport::streamable_http_server::session::local::LocalSessionManager;
use rmcp::transport::streamable_http_server::session::{
    EventStream, ServerSseMessage, SessionId, SessionManager,
};
use tokio::time::Instant;

use super::sse_history::SseHistory;
use crate::transport::requests::{
    self, MAX_WAITING_CALLS, OutgoingAnswer, PendingRequests, RequestRefusal, RequestWeight,
};

/// The maximum number of sessions. A new one ends the one that was idle longest and has no waiting call.
///
/// The client of the ended session gets an error and starts a new one; its runs continue. Sessions with
/// waiting calls hold a connection, whose number is limited too.
const MAX_SESSIONS: usize = 64;

/// How long a session may be idle before it ends.
const IDLE_TIMEOUT: Duration = Duration::from_secs(2 * 60 * 60);

/// The event id that `rmcp` gives to the event that opens a stream without a call.
const OPENING_EVENT_ID: &str = "0";

/// The sessions of one server.
pub(crate) struct HttpSessions {
    local: LocalSessionManager,
    // A std mutex: held for single map operations, never across an await.
    activity: Mutex<HashMap<SessionId, SessionActivity>>,
}

/// When a session was last used, and what is still open in it; decides which session is evicted.
struct SessionActivity {
    last_used: Instant,
    /// Cloned by each response stream that is still being read.
    open: Arc<()>,
    /// The unanswered requests, whether or not their streams are still read.
    pending: PendingRequests,
}

/// A response stream. Its session is not evicted while this lives.
struct SessionStream {
    stream: EventStream,
    _open: Option<Arc<()>>,
}

impl Stream for SessionStream {
    type Item = ServerSseMessage;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.stream.as_mut().poll_next(context)
    }
}

/// A stream of one message.
struct SingleMessage(Option<ServerSseMessage>);

impl Stream for SingleMessage {
    type Item = ServerSseMessage;

    fn poll_next(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        Poll::Ready(self.0.take())
    }
}

type LocalTransport = <LocalSessionManager as SessionManager>::Transport;
type SessionFailure = <LocalSessionManager as SessionManager>::Error;

/// The session's transport in `rmcp`, extended to track which requests are answered.
pub(crate) struct RequestTrackingTransport {
    local: LocalTransport,
    pending: PendingRequests,
}

impl Transport<RoleServer> for RequestTrackingTransport {
    type Error = <LocalTransport as Transport<RoleServer>>::Error;

    fn send(
        &mut self,
        item: ServerJsonRpcMessage,
    ) -> impl Future<Output = Result<(), Self::Error>> + Send + 'static {
        let answer = OutgoingAnswer::of(&self.pending, &item);
        let sent = self.local.send(item);
        async move {
            // Release the id before the client can read the answer, because the client may reuse it at once.
            drop(answer);
            sent.await
        }
    }

    fn receive(&mut self) -> impl Future<Output = Option<ClientJsonRpcMessage>> + Send {
        self.local.receive()
    }

    fn close(&mut self) -> impl Future<Output = Result<(), Self::Error>> + Send {
        self.local.close()
    }
}

impl HttpSessions {
    pub(crate) fn new() -> Self {
        let mut local =
            LocalSessionManager::default().with_event_store(Arc::new(SseHistory::default()));
        // Waiting calls are answered long before this, so none is cut off.
        local.session_config.keep_alive = Some(IDLE_TIMEOUT);
        Self { local, activity: Mutex::default() }
    }

    fn activity(&self) -> MutexGuard<'_, HashMap<SessionId, SessionActivity>> {
        self.activity.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records that a session is used. Returns a handle that protects it from eviction.
    fn touch(&self, id: &SessionId) -> Option<Arc<()>> {
        self.activity().get_mut(id).map(|used| {
            used.last_used = Instant::now();
            Arc::clone(&used.open)
        })
    }

    /// Admits a message of a session. Request ids must be unique per session, and the number of waiting calls
    /// is limited over all sessions, because each holds files open.
    fn admit(&self, id: &SessionId, message: &ClientJsonRpcMessage) -> Option<ServerSseMessage> {
        let (pending, waiting) = {
            let used = self.activity();
            let waiting: usize = used.values().map(|used| used.pending.waiting()).sum();
            (used.get(id)?.pending.clone(), waiting)
        };
        let enter = |id: &RequestId, waits: bool| {
            let bytes = serde_json::to_vec(message).map_or(0, |json| json.len());
            match pending.try_add(id, RequestWeight { bytes, waits }) {
                Ok(()) if waits && waiting >= MAX_WAITING_CALLS => {
                    pending.mark_cancelled(id);
                    Err(RequestRefusal::Full)
                }
                entered => entered,
            }
        };
        let (error, to) = *requests::admit(&pending, message, enter).err()?;
        Some(ServerSseMessage::from_message(JsonRpcMessage::error(error, to)))
    }

    /// Returns the session that was idle longest, if the limit is reached.
    fn session_to_evict(&self) -> Option<SessionId> {
        let used = self.activity();
        let idle = used.iter().filter(|(_, used)| Arc::strong_count(&used.open) == 1);
        let oldest = idle.min_by_key(|(_, used)| used.last_used).map(|(id, _)| id.clone());
        oldest.filter(|_| used.len() >= MAX_SESSIONS)
    }
}

impl SessionManager for HttpSessions {
    type Error = SessionFailure;
    type Transport = RequestTrackingTransport;

    async fn create_session(&self) -> Result<(SessionId, Self::Transport), SessionFailure> {
        while let Some(silent) = self.session_to_evict() {
            self.close_session(&silent).await?;
        }
        let (id, local) = self.local.create_session().await?;
        let pending = PendingRequests::default();
        let noting = RequestTrackingTransport { local, pending: pending.clone() };
        let used = SessionActivity { last_used: Instant::now(), open: Arc::default(), pending };
        self.activity().insert(id.clone(), used);
        Ok((id, noting))
    }

    async fn initialize_session(
        &self,
        id: &SessionId,
        message: ClientJsonRpcMessage,
    ) -> Result<ServerJsonRpcMessage, SessionFailure> {
        self.local.initialize_session(id, message).await
    }

    async fn has_session(&self, id: &SessionId) -> Result<bool, SessionFailure> {
        self.local.has_session(id).await
    }

    async fn close_session(&self, id: &SessionId) -> Result<(), SessionFailure> {
        self.activity().remove(id);
        self.local.close_session(id).await
    }

    async fn create_stream(
        &self,
        id: &SessionId,
        message: ClientJsonRpcMessage,
    ) -> Result<impl Stream<Item = ServerSseMessage> + Send + Sync + 'static, SessionFailure> {
        let open = self.touch(id);
        if let Some(refused) = self.admit(id, &message) {
            return Ok(SessionStream {
                stream: Box::pin(SingleMessage(Some(refused))),
                _open: open,
            });
        }
        let stream = self.local.create_stream(id, message).await?;
        Ok(SessionStream { stream: Box::pin(stream), _open: open })
    }

    async fn accept_message(
        &self,
        id: &SessionId,
        message: ClientJsonRpcMessage,
    ) -> Result<(), SessionFailure> {
        self.touch(id);
        self.admit(id, &message);
        self.local.accept_message(id, message).await
    }

    async fn create_standalone_stream(
        &self,
        id: &SessionId,
    ) -> Result<impl Stream<Item = ServerSseMessage> + Send + Sync + 'static, SessionFailure> {
        self.touch(id);
        self.local.create_standalone_stream(id).await
    }

    async fn resume(
        &self,
        id: &SessionId,
        last_event_id: String,
    ) -> Result<impl Stream<Item = ServerSseMessage> + Send + Sync + 'static, SessionFailure> {
        self.touch(id);
        let again: EventStream = if last_event_id == OPENING_EVENT_ID {
            Box::pin(self.local.create_standalone_stream(id).await?)
        } else {
            Box::pin(self.local.resume(id, last_event_id).await?)
        };
        Ok(again)
    }

    // There is no event store for requests without a session: a closed stream cannot be resumed. The call
    // ends with its connection, but the run continues unless a person configured otherwise; `delegate_cancel`
    // and `tasks/cancel` end it.
}
