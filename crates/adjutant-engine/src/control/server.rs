//! Taking connections beside the loop: bounded in number and length, and never in its way.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use adjutant_core::RunId;
use adjutant_store::ControlSocket;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::{AbortHandle, JoinSet};

use super::wire::{ControlAnswer, ControlRefusal, ControlRequest, MAX_LINE, RunState};

/// Connections at once: a person has few terminals. One more closes the one that idles longest.
pub(crate) const CONNECTIONS: usize = 16;

/// Bytes read at a time; an order is short.
const CHUNK: usize = 4096;

/// A request on its way to the loop, and where its answer goes.
pub(crate) struct QueuedRequest {
    pub(crate) request: ControlRequest,
    pub(crate) answer: oneshot::Sender<ControlAnswer>,
}

/// The listening end.
pub(crate) struct ControlServer {
    pub(crate) listener: UnixListener,
    pub(crate) run: RunId,
    pub(crate) orders: mpsc::Sender<QueuedRequest>,
    /// Turns true when the run is over.
    pub(crate) over: watch::Receiver<bool>,
}

/// A connection that was let in.
struct ControlConnection {
    task: AbortHandle,
    is_waiting: Arc<AtomicBool>,
}

/// How long nobody is let in when the system has no handle for another.
const OUT_OF_HANDLES: Duration = Duration::from_millis(50);

impl ControlServer {
    /// Serves until the run is over and everyone who waits has an answer.
    pub(crate) async fn serve(mut self) {
        let mut tasks = JoinSet::new();
        let mut connections: VecDeque<ControlConnection> = VecDeque::new();
        loop {
            let stream = tokio::select! {
                accepted = self.listener.accept() => accepted,
                _ = self.over.changed() => break,
            };
            // Out of handles, or the other is gone already: there is nobody to serve.
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
            // The newcomer may speak before the next one is let in.
            tokio::task::yield_now().await;
        }
        while tasks.join_next().await.is_some() {}
    }
}

/// Closes the connection that has asked nothing for the longest; says whether there was one.
fn close_idle(connections: &mut VecDeque<ControlConnection>) -> bool {
    let idle =
        connections.iter().position(|connection| !connection.is_waiting.load(Ordering::Relaxed));
    let idle = idle.and_then(|place| connections.remove(place));
    idle.map(|connection| connection.task.abort()).is_some()
}

/// Says that there is no room; whoever does not read it has lost nothing.
fn refuse(stream: UnixStream, run: RunId) -> io::Result<usize> {
    let answer = ControlAnswer::new(run, RunState::Running, Some(ControlRefusal::busy()));
    stream.try_write(&answer.line())
}

/// Serves one connection.
struct ConnectionTask {
    run: RunId,
    orders: mpsc::Sender<QueuedRequest>,
    over: watch::Receiver<bool>,
    is_waiting: Arc<AtomicBool>,
}

impl ConnectionTask {
    async fn serve(mut self, mut stream: UnixStream) {
        let is_trusted = stream.peer_cred().is_ok_and(|peer| ControlSocket::admits(peer.uid()));
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
                // Gone, or broken: either way nobody listens.
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

    /// Hands an order to the loop and waits until what it led to is on disk.
    async fn ask(&self, request: ControlRequest) -> ControlAnswer {
        self.is_waiting.store(true, Ordering::Relaxed);
        let (answer, answered) = oneshot::channel();
        let sent = self.orders.send(QueuedRequest { request, answer }).await;
        let answer = if sent.is_ok() { answered.await.ok() } else { None };
        self.is_waiting.store(false, Ordering::Relaxed);
        // The loop is gone: whatever was asked, there is nobody left to do it to.
        answer.unwrap_or_else(|| {
            ControlAnswer::new(self.run, RunState::Ended, Some(ControlRefusal::over()))
        })
    }

    fn complaint(&self, complaint: ControlRefusal) -> ControlAnswer {
        ControlAnswer::new(self.run, RunState::Running, Some(complaint))
    }
}

/// What a connection says.
enum ControlLine {
    Whole(Vec<u8>),
    TooLong,
    End,
}

/// Reads up to the next line break; what follows it stays in `unread`.
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
