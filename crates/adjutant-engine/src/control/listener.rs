//! What the loop sees of other processes: orders that came in, and answers that wait for the disk.

use std::collections::VecDeque;
use std::time::Duration;

use adjutant_core::{Outcome, Refusal, RunId};
use adjutant_store::{ControlSocket, Seq};
use tokio::net::UnixListener;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::JoinHandle;

use super::server::{CONNECTIONS, ControlServer, QueuedRequest};
use super::wire::{ControlAnswer, RunState};

/// How long a run that is over waits for its last answers to be taken.
const LAST_ANSWERS: Duration = Duration::from_millis(250);

/// A run's side of its control socket.
pub(crate) struct ControlListener {
    /// Present until it is bound; a run in memory has none.
    socket: Option<ControlSocket>,
    /// One order per connection can wait.
    orders: (mpsc::Sender<QueuedRequest>, mpsc::Receiver<QueuedRequest>),
    /// Answers that wait for a record to be durable, in the order of the records.
    promised: VecDeque<(Seq, oneshot::Sender<ControlAnswer>, ControlAnswer)>,
    over: watch::Sender<bool>,
    server: Option<JoinHandle<()>>,
}

impl ControlListener {
    pub(crate) fn new(socket: Option<ControlSocket>) -> Self {
        let (over, _) = watch::channel(false);
        let orders = mpsc::channel(CONNECTIONS);
        Self { socket, orders, promised: VecDeque::new(), over, server: None }
    }

    /// Starts to listen, once. Called after the first effects are under way, which must not wait.
    pub(crate) fn start(&mut self, run: RunId) {
        let Some(socket) = self.socket.take() else { return };
        let (orders, over) = (self.orders.0.clone(), self.over.subscribe());
        // Bound within the task, whose turn comes after those of the effects before it.
        self.server = Some(tokio::spawn(async move {
            // A run that nobody can reach is still worth having: it can be watched, and killed.
            let Ok(listener) = socket.bind() else { return };
            drop(socket);
            let Ok(listener) = UnixListener::from_std(listener) else { return };
            ControlServer { listener, run, orders, over }.serve().await;
        }));
    }

    /// Waits for the next order.
    pub(crate) async fn next(&mut self) -> Option<QueuedRequest> {
        self.orders.1.recv().await
    }

    /// Answers an order: at once when it changed nothing, else when the disk holds what it did.
    pub(crate) fn answer(
        &mut self,
        run: RunId,
        outcome: Option<Outcome>,
        order: QueuedRequest,
        done: Result<Option<Seq>, Refusal>,
    ) {
        let state = if outcome.is_some() { RunState::Ended } else { RunState::Running };
        let answer = ControlAnswer::new(run, state, done.as_ref().err().map(Into::into));
        match done {
            Ok(Some(seq)) => self.promised.push_back((seq, order.answer, answer)),
            // Whoever asked may be gone.
            Ok(None) | Err(_) => drop(order.answer.send(answer)),
        }
    }

    /// Keeps the promises that the disk now covers.
    pub(crate) fn send_answers(&mut self, through: Seq) {
        while self.promised.front().is_some_and(|(seq, ..)| *seq <= through) {
            let Some((_, to, answer)) = self.promised.pop_front() else { break };
            let _ = to.send(answer);
        }
    }

    /// Stops listening and lets the last answers out.
    pub(crate) async fn close(mut self) {
        let Some(server) = &mut self.server else { return };
        // Orders that came too late are told so, by finding nobody.
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
