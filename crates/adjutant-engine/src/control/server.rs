//! Accepting control connections in tasks beside the run loop, bounded in number and line length.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use adjutant_core::{Outcome, RunId};
use adjutant_store::ControlSocket;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::{AbortHandle, JoinSet};

use super::wire::{ControlAnswer, ControlRefusal, ControlRequest, MAX_LINE, RunState};

/// The most connections at once. A further one closes the connection that has been idle longest.
pub(crate) const CONNECTIONS: usize = 16;

/// Bytes read at a time; most requests fit in one chunk.
const CHUNK: usize = 4096;

/// A request on its way to the run loop, with the channel for its answer.
pub(crate) struct QueuedRequest {
    pub(crate) request: ControlRequest,
    pub(crate) answer: oneshot::Sender<ControlAnswer>,
}

impl QueuedRequest {
    /// Answers a request that a runtime carried out or refused.
    pub(crate) fn send(
        self,
        run: RunId,
        outcome: Option<Outcome>,
        done: Result<(), ControlRefusal>,
    ) {
        let state = if outcome.is_some() { RunState::Ended } else { RunState::Running };
        // The client may have disconnected.
        let _ = self.answer.send(ControlAnswer::new(run, state, done.err()));
    }
}

/// Accepts connections to the control socket of one run.
pub(crate) struct ControlServer {
    pub(crate) listener: UnixListener,
    pub(crate) run: RunId,
    pub(crate) orders: mpsc::Sender<QueuedRequest>,
    /// Becomes true when the run has ended.
    pub(crate) over: watch::Receiver<bool>,
}

/// A client's connection to the control socket: the task that serves it, and whether it waits for an answer of
/// the run.
struct ControlConnection {
    task: AbortHandle,
    is_waiting: Arc<AtomicBool>,
}

/// The pause after a failed `accept`, for example when the process is out of file descriptors.
const OUT_OF_HANDLES: Duration = Duration::from_millis(50);

impl ControlServer {
    /// Accepts connections until the run has ended, then waits until all requests are answered.
    pub(crate) async fn serve(mut self) {
        let mut tasks = JoinSet::new();
        let mut connections: VecDeque<ControlConnection> = VecDeque::new();
        loop {
            let stream = tokio::select! {
                accepted = self.listener.accept() => accepted,
                _ = self.over.changed() => break,
            };
            // Out of file descriptors, or the client disconnected before it was accepted.
            let Ok((stream, _)) = stream else {
                tokio::time::sleep(OUT_OF_HANDLES).await;
                continue;
            };
            while tasks.try_join_next().is_some() {}
            connections.retain(|connection| !connection.task.is_finished());
            if connections.len() >= CONNECTIONS && !close_idle(&mut connections) {
                drop(refuse(stream, self.run));
                continue;
            }
            let is_waiting = Arc::new(AtomicBool::new(false));
            let host = ConnectionTask {
                run: self.run,
                orders: self.orders.clone(),
                over: self.over.clone(),
                is_waiting: Arc::clone(&is_waiting),
            };
            let task = tasks.spawn(host.serve(stream));
            connections.push_back(ControlConnection { task, is_waiting });
            // Lets the new task read its first request before another connection can close it as idle.
            tokio::task::yield_now().await;
        }
        while tasks.join_next().await.is_some() {}
    }
}

/// Closes the oldest connection that waits for no answer. Returns whether there was one.
fn close_idle(connections: &mut VecDeque<ControlConnection>) -> bool {
    let idle =
        connections.iter().position(|connection| !connection.is_waiting.load(Ordering::Relaxed));
    let idle = idle.and_then(|place| connections.remove(place));
    idle.map(|connection| connection.task.abort()).is_some()
}

/// Answers that there are too many connections. Does not wait for the client to read it.
fn refuse(stream: UnixStream, run: RunId) -> io::Result<usize> {
    let answer = ControlAnswer::new(run, RunState::Running, Some(ControlRefusal::busy()));
    stream.try_write(&answer.line())
}

/// Reads the requests of one connection and writes the answers.
struct ConnectionTask {
    run: RunId,
    orders: mpsc::Sender<QueuedRequest>,
    over: watch::Receiver<bool>,
    is_waiting: Arc<AtomicBool>,
}

impl ConnectionTask {
    async fn serve(mut self, mut stream: UnixStream) {
        let is_trusted =
            stream.peer_cred().is_ok_and(|peer| ControlSocket::allows_user(peer.uid()));
        if !is_trusted {
            return;
        }
        let mut unread = Vec::new();
        loop {
            let line = tokio::select! {
                line = next_line(&mut stream, &mut unread) => line,
                _ = self.over.wait_for(|over| *over) => return,
            };
            let (answer, goes_on) = match line {
                // The client has disconnected.
                Err(_) | Ok(ControlLine::End) => return,
                Ok(ControlLine::TooLong) => {
                    let problem = format!("the line is longer than {MAX_LINE} bytes");
                    (self.complaint(ControlRefusal::unreadable(problem)), false)
                }
                Ok(ControlLine::Whole(line)) => match ControlRequest::read(&line) {
                    Err(complaint) => (self.complaint(complaint), true),
                    Ok(request) => (self.ask(request).await, true),
                },
            };
            let sent = stream.write_all(&answer.line()).await;
            if sent.is_err() || !goes_on {
                return;
            }
        }
    }

    /// Passes a request to the run loop and waits for the answer, which comes once the events are durable.
    async fn ask(&self, request: ControlRequest) -> ControlAnswer {
        self.is_waiting.store(true, Ordering::Relaxed);
        let (answer, answered) = oneshot::channel();
        let sent = self.orders.send(QueuedRequest { request, answer }).await;
        let answer = if sent.is_ok() { answered.await.ok() } else { None };
        self.is_waiting.store(false, Ordering::Relaxed);
        // The run loop has ended.
        answer.unwrap_or_else(|| {
            ControlAnswer::new(self.run, RunState::Ended, Some(ControlRefusal::over()))
        })
    }

    fn complaint(&self, complaint: ControlRefusal) -> ControlAnswer {
        ControlAnswer::new(self.run, RunState::Running, Some(complaint))
    }
}

/// What was read from a connection: a whole line, a line over the limit, or its end.
enum ControlLine {
    Whole(Vec<u8>),
    TooLong,
    End,
}

/// Reads up to the next line break. Bytes after it stay in `unread`.
async fn next_line(stream: &mut UnixStream, unread: &mut Vec<u8>) -> io::Result<ControlLine> {
    let mut seen = 0;
    loop {
        if let Some(end) = unread[seen..].iter().position(|byte| *byte == b'\n') {
            let end = seen + end + 1;
            if end > MAX_LINE {
                return Ok(ControlLine::TooLong);
            }
            let rest = unread.split_off(end);
            return Ok(ControlLine::Whole(std::mem::replace(unread, rest)));
        }
        seen = unread.len();
        if seen >= MAX_LINE {
            return Ok(ControlLine::TooLong);
        }
        let mut chunk = [0; CHUNK];
        match stream.read(&mut chunk).await? {
            0 => return Ok(ControlLine::End),
            read => unread.extend_from_slice(&chunk[..read]),
        }
    }
}
