//! The latest events of each response stream, for clients whose connection broke.
//!
//! Such a client asks for the events after the last one it received, among them the answer to its call, even
//! if that came while the client was disconnected. The history is limited: a client that comes back too late
//! asks for its run by id instead.

use std::collections::{HashMap, VecDeque};
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};

use futures_core::Stream;
use rmcp::model::JsonRpcMessage;
use rmcp::transport::streamable_http_server::session::{
    EventStore, EventStoreError, EventStream, ServerSseMessage,
};
use tokio::sync::{mpsc, watch};

/// The maximum number of streams; the oldest are dropped.
const MAX_STREAMS: usize = 512;

/// The maximum size of all events together.
const MAX_BYTES: usize = 16 << 20;

/// The maximum number of events per stream. The answer is the last event.
const MAX_EVENTS: usize = 64;

/// The capacity of the queue of replayed events.
const REPLAY_QUEUE: usize = 16;

/// The histories of all streams of one server.
#[derive(Default)]
pub(crate) struct SseHistory {
    // A std mutex: held for single map operations, never across an await.
    histories: Arc<Mutex<StreamHistories>>,
}

#[derive(Default)]
struct StreamHistories {
    streams: HashMap<String, StreamHistory>,
    /// The stream ids, oldest first.
    order: VecDeque<String>,
    bytes: usize,
}

/// The latest events of one stream.
#[derive(Default)]
struct StreamHistory {
    /// Each event with its number and size.
    events: VecDeque<(u64, ServerSseMessage, usize)>,
    next: u64,
    is_over: bool,
    changed: watch::Sender<()>,
}

impl SseHistory {
    fn histories(&self) -> MutexGuard<'_, StreamHistories> {
        self.histories.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl StreamHistories {
    /// Stores an event and returns its id.
    fn store(&mut self, stream: &str, event: &ServerSseMessage) -> String {
        let message = event.message.as_deref();
        let size = message.and_then(|it| serde_json::to_vec(it).ok()).map_or(0, |json| json.len());
        if !self.streams.contains_key(stream) {
            self.order.push_back(stream.to_owned());
        }
        let said = self.streams.entry(stream.to_owned()).or_default();
        let (number, mut event) = (said.next, event.clone());
        let id = format!("{number}/{stream}");
        event.event_id = Some(id.clone());
        said.next += 1;
        said.is_over =
            matches!(message, Some(JsonRpcMessage::Response(_) | JsonRpcMessage::Error(_)));
        said.events.push_back((number, event, size));
        self.bytes += size;
        if said.events.len() > MAX_EVENTS
            && let Some((_, _, freed)) = said.events.pop_front()
        {
            self.bytes -= freed;
        }
        said.changed.send_replace(());
        while self.order.len() > MAX_STREAMS || (self.bytes > MAX_BYTES && self.order.len() > 1) {
            self.forget_oldest();
        }
        id
    }

    fn forget_oldest(&mut self) {
        let Some(said) = self.order.pop_front().and_then(|name| self.streams.remove(&name)) else {
            return;
        };
        self.bytes -= said.events.iter().map(|(_, _, size)| size).sum::<usize>();
    }

    /// Returns the events from `number` on, and whether the stream has ended.
    fn events_from(&self, stream: &str, number: u64) -> Option<(Vec<ServerSseMessage>, bool)> {
        let said = self.streams.get(stream)?;
        let later = said.events.iter().filter(|(it, _, _)| *it >= number);
        Some((later.map(|(_, event, _)| event.clone()).collect(), said.is_over))
    }
}

#[async_trait::async_trait]
impl EventStore for SseHistory {
    async fn store_event(
        &self,
        stream_id: &str,
        event: &ServerSseMessage,
    ) -> Result<String, EventStoreError> {
        Ok(self.histories().store(stream_id, event))
    }

    async fn replay_events_after(&self, last: &str) -> Result<EventStream, EventStoreError> {
        let unknown = "unknown event id";
        let (number, stream) = last.split_once('/').ok_or(unknown)?;
        let (number, stream) = (number.parse::<u64>()?, stream.to_owned());
        let histories = self.histories();
        let said =
            histories.streams.get(&stream).filter(|said| number < said.next).ok_or(unknown)?;
        let changed = said.changed.subscribe();
        drop(histories);
        let (sender, receiver) = mpsc::channel(REPLAY_QUEUE);
        tokio::spawn(follow(Arc::clone(&self.histories), stream, number + 1, changed, sender));
        Ok(Box::pin(ReplayStream(receiver)))
    }
}

/// Sends stored events and then new ones, until the stream ends or the client disconnects.
async fn follow(
    histories: Arc<Mutex<StreamHistories>>,
    stream: String,
    mut number: u64,
    mut changed: watch::Receiver<()>,
    to: mpsc::Sender<ServerSseMessage>,
) {
    loop {
        changed.mark_unchanged();
        let said =
            histories.lock().unwrap_or_else(PoisonError::into_inner).events_from(&stream, number);
        let Some((events, is_over)) = said else { return };
        for event in events {
            let id = event.event_id.as_deref().and_then(|id| id.split_once('/')?.0.parse().ok());
            number = id.map_or(number, |id: u64| id + 1);
            if to.send(event).await.is_err() {
                return;
            }
        }
        if is_over {
            return;
        }
        tokio::select! {
            changed = changed.changed() => if changed.is_err() { return },
            () = to.closed() => return,
        }
    }
}

/// The stream of replayed events.
struct ReplayStream(mpsc::Receiver<ServerSseMessage>);

impl Stream for ReplayStream {
    type Item = ServerSseMessage;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.0.poll_recv(context)
    }
}

#[cfg(test)]
mod tests {
    use rmcp::model::{RequestId, ServerJsonRpcMessage, ServerResult};
    use serde_json::json;

    use super::*;

    fn note(text: &str) -> ServerSseMessage {
        let params = json!({ "progressToken": "t", "progress": 1, "message": text });
        let note =
            json!({ "jsonrpc": "2.0", "method": "notifications/progress", "params": params });
        ServerSseMessage::from_message(serde_json::from_value(note).unwrap())
    }

    fn answer() -> ServerSseMessage {
        let result = ServerResult::empty(());
        ServerSseMessage::from_message(ServerJsonRpcMessage::response(result, RequestId::Number(1)))
    }

    async fn heard(mut stream: EventStream) -> Vec<String> {
        let mut ids = Vec::new();
        while let Some(event) =
            std::future::poll_fn(|context| stream.as_mut().poll_next(context)).await
        {
            ids.extend(event.event_id);
        }
        ids
    }

    #[tokio::test]
    async fn a_replay_contains_the_events_of_its_stream_up_to_the_answer() {
        let events = SseHistory::default();
        let first = events.store_event("a", &note("1")).await.unwrap();
        events.store_event("b", &note("other")).await.unwrap();
        let second = events.store_event("a", &note("2")).await.unwrap();
        // Requested before the answer exists: the rest arrives as it is stored.
        let early = tokio::spawn(heard(events.replay_events_after(&first).await.unwrap()));
        tokio::task::yield_now().await;
        let last = events.store_event("a", &answer()).await.unwrap();
        assert_eq!(early.await.unwrap(), [second.clone(), last.clone()]);
        let late = heard(events.replay_events_after(&second).await.unwrap()).await;
        assert_eq!(late, std::slice::from_ref(&last));
        assert!(heard(events.replay_events_after(&last).await.unwrap()).await.is_empty());
        for unknown in ["", "0", "9/a", "0/c", "x/a", "-1/a"] {
            assert!(events.replay_events_after(unknown).await.is_err(), "{unknown}");
        }
    }

    #[tokio::test]
    async fn the_history_is_bounded_and_keeps_the_latest_events() {
        let events = SseHistory::default();
        let long = note(&"x".repeat(1 << 20));
        for number in 0..100 {
            events.store_event(&number.to_string(), &long).await.unwrap();
        }
        for _ in 0..1000 {
            events.store_event("talks", &note("")).await.unwrap();
        }
        for number in 0..2000 {
            events.store_event(&format!("short {number}"), &note("")).await.unwrap();
        }
        let histories = events.histories();
        assert!(
            histories.bytes <= MAX_BYTES && histories.streams.len() == MAX_STREAMS,
            "{}",
            histories.bytes
        );
        assert_eq!(histories.order.len(), histories.streams.len());
        assert!(histories.streams.values().all(|said| said.events.len() <= MAX_EVENTS));
        let sizes = histories.streams.values().flat_map(|said| &said.events).map(|it| it.2);
        assert_eq!(histories.bytes, sizes.sum::<usize>());
        assert!(
            histories.streams.contains_key("short 1999") && !histories.streams.contains_key("0")
        );
    }
}
