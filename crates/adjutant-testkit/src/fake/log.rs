//! Records the requests that a fake server receives. API keys are masked first.

use std::collections::BTreeSet;
use std::io::Write;
use std::sync::{Mutex, MutexGuard, PoisonError};

use rustix::time::{ClockId, clock_gettime};
use serde_json::{Value, json};
use tokio::sync::watch;

use super::http::Head;
use super::turn::Usage;

/// Headers that carry a secret.
const SECRET: [&str; 3] = ["authorization", "x-api-key", "x-goog-api-key"];

/// One received request and how it was answered.
#[derive(Clone, Debug)]
pub struct RecordedRequest {
    /// Its place in the order of arrival, from 0.
    pub order: usize,
    /// When its last byte was read, in nanoseconds of the system's monotonic clock, which every
    /// process of a machine reads alike.
    pub at_ns: u64,
    /// The connection it came on, from 0.
    pub connection: u64,
    /// The method.
    pub method: String,
    /// The path, without the query.
    pub path: String,
    /// The query, without the question mark.
    pub query: String,
    /// The headers, names in lower case, secrets masked.
    pub headers: Vec<(String, String)>,
    /// The body's bytes.
    pub body: Vec<u8>,
    /// The status it was answered with.
    pub status: u16,
    /// Why it was refused, if it was.
    pub complaint: Option<String>,
    /// The `when` of the conversation it belongs to.
    pub when: Option<String>,
    /// The number of the turn it asks for, from 0.
    pub turn: Option<usize>,
    /// The number of the attempt at that turn, from 0.
    pub attempt: Option<usize>,
    /// The tokens that its answer reports, if it is read to its end; none where it reports none.
    pub usage: Option<Usage>,
    /// How far the answer got; none while it is under way, which a client that has just read
    /// the last byte may still see on a runtime with several threads.
    pub delivered: Option<DeliveryOutcome>,
}

/// How far an answer got.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeliveryOutcome {
    /// All of it was sent.
    Whole,
    /// The script cut it off.
    Cut,
    /// The client left before its end.
    Left,
}

impl RecordedRequest {
    /// Returns the body as JSON; null if it is none.
    #[must_use]
    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or(Value::Null)
    }

    /// Returns a header.
    #[must_use]
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str())
    }

    /// Returns what a log file keeps of it.
    fn line(&self, with_body: bool) -> Value {
        let mut line = json!({
            "order": self.order,
            "at_ns": self.at_ns,
            "connection": self.connection,
            "method": self.method,
            "path": self.path,
            "query": self.query,
            "headers": self.headers,
            "status": self.status,
            "complaint": self.complaint,
            "when": self.when,
            "turn": self.turn,
            "attempt": self.attempt,
            "usage": self.usage,
            "bytes": self.body.len(),
        });
        if with_body {
            line["body"] = self.json();
        }
        line
    }
}

/// Reads the clock of [`RecordedRequest::at_ns`].
pub(super) fn now_ns() -> u64 {
    let time = clock_gettime(ClockId::Monotonic);
    let [seconds, nanos] = [time.tv_sec, time.tv_nsec].map(|part| u64::try_from(part).unwrap_or(0));
    seconds * 1_000_000_000 + nanos
}

/// Replaces secrets by stars, keeping the scheme of an authorization.
pub(super) fn masked_headers(head: &Head) -> Vec<(String, String)> {
    let mask = |(name, value): &(String, String)| {
        if !SECRET.contains(&name.as_str()) {
            return (name.clone(), value.clone());
        }
        let shown = value.split_once(' ').map_or(String::new(), |(scheme, _)| format!("{scheme} "));
        (name.clone(), format!("{shown}***"))
    };
    head.headers.iter().map(mask).collect()
}

/// All requests and connections that a fake server has seen.
pub(super) struct Log {
    // A std mutex: held for a push, never across an await.
    state: Mutex<State>,
    changed: watch::Sender<()>,
    keeps_requests: bool,
    with_bodies: bool,
}

struct State {
    requests: Vec<RecordedRequest>,
    arrived: usize,
    connections: u64,
    open: BTreeSet<u64>,
    file: Option<Box<dyn Write + Send>>,
}

impl std::fmt::Debug for Log {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Log").field("keeps", &self.keeps_requests).finish_non_exhaustive()
    }
}

impl Log {
    pub(super) fn new(
        keeps_requests: bool,
        file: Option<Box<dyn Write + Send>>,
        with_bodies: bool,
    ) -> Self {
        let (requests, open) = (Vec::new(), BTreeSet::new());
        let state = State { requests, arrived: 0, connections: 0, open, file };
        Self {
            state: Mutex::new(state),
            changed: watch::Sender::new(()),
            keeps_requests,
            with_bodies,
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Opens a connection.
    pub(super) fn open(&self) -> u64 {
        let mut state = self.state();
        let id = state.connections;
        state.connections += 1;
        state.open.insert(id);
        drop(state);
        self.changed.send_replace(());
        id
    }

    /// Closes a connection.
    pub(super) fn close(&self, id: u64) {
        self.state().open.remove(&id);
        self.changed.send_replace(());
    }

    /// Keeps a request and returns its number.
    pub(super) fn record_request(&self, mut request: RecordedRequest) -> usize {
        let mut state = self.state();
        request.order = state.arrived;
        state.arrived += 1;
        let order = request.order;
        if let Some(file) = &mut state.file {
            let written =
                writeln!(file, "{}", request.line(self.with_bodies)).and_then(|()| file.flush());
            written.expect("the log file takes lines");
        }
        if self.keeps_requests {
            state.requests.push(request);
        }
        drop(state);
        self.changed.send_replace(());
        order
    }

    /// Notes how far the answer to a request got.
    pub(super) fn record_delivery(&self, order: usize, delivered: DeliveryOutcome) {
        if let Some(request) = self.state().requests.get_mut(order) {
            request.delivered = Some(delivered);
        }
        self.changed.send_replace(());
    }

    pub(super) fn requests(&self) -> Vec<RecordedRequest> {
        self.state().requests.clone()
    }

    pub(super) fn request_count(&self) -> usize {
        self.state().arrived
    }

    pub(super) fn connections(&self) -> u64 {
        self.state().connections
    }

    pub(super) fn open_connections(&self) -> usize {
        self.state().open.len()
    }

    /// Waits until the condition holds.
    pub(super) async fn wait_until(&self, mut condition: impl FnMut(&Self) -> bool) {
        let mut changes = self.changed.subscribe();
        while !condition(self) {
            changes.changed().await.expect("the sender lives as long as the log");
        }
    }
}
