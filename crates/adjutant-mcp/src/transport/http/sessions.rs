//! The sessions of clients that shake hands: how many there may be, and what is kept for each.

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

/// Sessions at once; a new one ends the one that was silent for longest and waits for nothing.
///
/// Its client is told that it is gone and shakes hands again; its runs go on. Those that wait for an
/// answer each hold a connection, of which there are only so many.
const MAX_SESSIONS: usize = 64;

/// How long a session may be silent before it ends.
const IDLE_TIMEOUT: Duration = Duration::from_secs(2 * 60 * 60);

/// The id that the library gives to the event that opens a stream of no call.
const OPENING_EVENT_ID: &str = "0";

/// The sessions of one server.
pub(crate) struct HttpSessions {
    local: LocalSessionManager,
    // A std mutex: held for a look at a map, never across an await.
    records: Mutex<HashMap<SessionId, SessionRecord>>,
}

/// What is known of a session.
struct SessionRecord {
    at: Instant,
    /// Held by each request whose client listens.
    open: Arc<()>,
    /// The requests that are not answered yet, whether their clients listen or not.
    pending: PendingRequests,
}

/// A stream with the answer to a request; its session stays while this lives.
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

/// The library's transport of a session, which notes what is answered.
pub(crate) struct TrackingTransport {
    local: LocalTransport,
    pending: PendingRequests,
}

impl Transport<RoleServer> for TrackingTransport {
    type Error = <LocalTransport as Transport<RoleServer>>::Error;

    fn send(
        &mut self,
        item: ServerJsonRpcMessage,
    ) -> impl Future<Output = Result<(), Self::Error>> + Send + 'static {
        let answer = OutgoingAnswer::of(&self.pending, &item);
        let sent = self.local.send(item);
        async move {
            // Before the client can have read it: it may use the id again at once.
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
        // A call that waits is answered long before, so nothing is cut off.
        local.session_config.keep_alive = Some(IDLE_TIMEOUT);
        Self { local, records: Mutex::default() }
    }

    fn records(&self) -> MutexGuard<'_, HashMap<SessionId, SessionRecord>> {
        self.records.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes that a session is used, and returns what keeps it.
    fn touch(&self, id: &SessionId) -> Option<Arc<()>> {
        self.records().get_mut(id).map(|used| {
            used.at = Instant::now();
            Arc::clone(&used.open)
        })
    }

    /// Takes a message of a session, if it may be: no two requests have one id, and of all sessions
    /// together no more calls wait than one client may have, since each holds files open.
    fn admit(&self, id: &SessionId, message: &ClientJsonRpcMessage) -> Option<ServerSseMessage> {
        let (pending, waiting) = {
            let used = self.records();
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

    /// Returns the session that was silent for longest, if there are as many as there may be.
    fn session_to_evict(&self) -> Option<SessionId> {
        let used = self.records();
        let idle = used.iter().filter(|(_, used)| Arc::strong_count(&used.open) == 1);
        let oldest = idle.min_by_key(|(_, used)| used.at).map(|(id, _)| id.clone());
        oldest.filter(|_| used.len() >= MAX_SESSIONS)
    }
}

impl SessionManager for HttpSessions {
    type Error = SessionFailure;
    type Transport = TrackingTransport;

    async fn create_session(&self) -> Result<(SessionId, Self::Transport), SessionFailure> {
        while let Some(silent) = self.session_to_evict() {
            self.close_session(&silent).await?;
        }
        let (id, local) = self.local.create_session().await?;
        let pending = PendingRequests::default();
        let noting = TrackingTransport { local, pending: pending.clone() };
        let used = SessionRecord { at: Instant::now(), open: Arc::default(), pending };
        self.records().insert(id.clone(), used);
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
        self.records().remove(id);
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

    // No store for requests without a session: a stream that is closed is not heard again there. The
    // call ends with it, its run does not: a run is lost to a broken connection only where a person
    // said so, and ends by `delegate_cancel` or `tasks/cancel`.
}
