//! The run loop's side of the control socket: received requests, and answers that wait for a sync.

use std::collections::VecDeque;
use std::time::Duration;

use adjutant_core::{Outcome, Refusal, RunId};
use adjutant_store::{ControlSocket, RecordNumber};
use tokio::net::UnixListener;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::JoinHandle;

use super::server::{CONNECTIONS, ControlServer, QueuedRequest};
use super::wire::{ControlAnswer, RunState};

/// How long an ended run waits until its last answers are sent.
const LAST_ANSWERS: Duration = Duration::from_millis(250);

/// A run's side of its control socket.
pub(crate) struct ControlListener {
    /// Present until the socket is bound; a run in memory has none.
    socket: Option<ControlSocket>,
    /// The queue of requests; each connection has at most one in it.
    orders: (mpsc::Sender<QueuedRequest>, mpsc::Receiver<QueuedRequest>),
    /// Answers that wait until a record is durable, ordered by record.
    promised: VecDeque<(RecordNumber, oneshot::Sender<ControlAnswer>, ControlAnswer)>,
    over: watch::Sender<bool>,
    server: Option<JoinHandle<()>>,
}

impl ControlListener {
    pub(crate) fn new(socket: Option<ControlSocket>) -> Self {
        let (over, _) = watch::channel(false);
        let orders = mpsc::channel(CONNECTIONS);
        Self { socket, orders, promised: VecDeque::new(), over, server: None }
    }

    /// Starts to listen; further calls do nothing. Called after the first effects were started, to not delay them.
    pub(crate) fn start(&mut self, run: RunId) {
        let Some(socket) = self.socket.take() else { return };
        let (orders, over) = (self.orders.0.clone(), self.over.subscribe());
        // Bound in a task, so that the tasks of the effects before it are scheduled first.
        self.server = Some(tokio::spawn(async move {
            // Without the socket the run can still be watched and killed, so this is not an error.
            let Ok(listener) = socket.bind() else { return };
            drop(socket);
            let Ok(listener) = UnixListener::from_std(listener) else { return };
            ControlServer { listener, run, orders, over }.serve().await;
        }));
    }

    /// Waits for the next request.
    pub(crate) async fn next(&mut self) -> Option<QueuedRequest> {
        self.orders.1.recv().await
    }

    /// Answers a request: at once if it changed nothing, else when record `done` is durable.
    pub(crate) fn answer(
        &mut self,
        run: RunId,
        outcome: Option<Outcome>,
        order: QueuedRequest,
        done: Result<Option<RecordNumber>, Refusal>,
    ) {
        let state = if outcome.is_some() { RunState::Ended } else { RunState::Running };
        let answer = ControlAnswer::new(run, state, done.as_ref().err().map(Into::into));
        match done {
            Ok(Some(seq)) => self.promised.push_back((seq, order.answer, answer)),
            // The client may have disconnected.
            Ok(None) | Err(_) => drop(order.answer.send(answer)),
        }
    }

    /// Sends the answers whose records are durable.
    pub(crate) fn send_answers(&mut self, through: RecordNumber) {
        while self.promised.front().is_some_and(|(seq, ..)| *seq <= through) {
            let Some((_, to, answer)) = self.promised.pop_front() else { break };
            let _ = to.send(answer);
        }
    }

    /// Stops listening and waits briefly until the last answers are sent.
    pub(crate) async fn close(mut self) {
        let Some(server) = &mut self.server else { return };
        // Dropping the requests that are still queued answers them with "the run has ended".
        self.orders.1.close();
        while self.orders.1.try_recv().is_ok() {}
        let _ = self.over.send(true);
        let _ = tokio::time::timeout(LAST_ANSWERS, server).await;
    }
}

impl Drop for ControlListener {
    fn drop(&mut self) {
        if let Some(server) = &self.server {
            server.abort();
        }
    }
}
