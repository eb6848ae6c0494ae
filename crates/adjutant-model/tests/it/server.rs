//! A small HTTP server on the loopback interface that does exactly what a test tells it.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Notify, mpsc};

/// What the server does with one request.
#[derive(Clone, Debug)]
pub(crate) enum Act {
    /// Answers with these bytes as a stream of events, in chunks of the given size.
    Stream(&'static str, usize),
    /// Answers with a status, extra headers and a body.
    Status(u16, &'static str, &'static str),
    /// Sends this much of a stream and closes the connection.
    Cut(&'static str),
    /// Sends this much of a stream and then nothing, leaving the connection open.
    Silent(&'static str),
    /// Does not answer at all.
    Mute,
}

/// A request as it arrived.
#[derive(Clone, Debug)]
pub(crate) struct Got {
    pub(crate) connection: usize,
    pub(crate) head: String,
    pub(crate) body: String,
}

pub(crate) struct Server {
    pub(crate) url: String,
    got: Arc<Mutex<Vec<Got>>>,
    arrived: Arc<Notify>,
    closed: mpsc::UnboundedReceiver<usize>,
}

impl Server {
    /// Starts a server that works through `acts`, one per request, in order of arrival.
    pub(crate) async fn start(acts: impl IntoIterator<Item = Act>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let acts = Arc::new(Mutex::new(acts.into_iter().collect::<VecDeque<_>>()));
        let (got, arrived) = (Arc::new(Mutex::new(Vec::new())), Arc::new(Notify::new()));
        let (closing, closed) = mpsc::unbounded_channel();
        let (seen, bell) = (Arc::clone(&got), Arc::clone(&arrived));
        tokio::spawn(async move {
            for number in 0.. {
                let Ok((stream, _)) = listener.accept().await else { return };
                stream.set_nodelay(true).unwrap();
                let visit = Visit {
                    number,
                    stream,
                    acts: Arc::clone(&acts),
                    got: Arc::clone(&seen),
                    arrived: Arc::clone(&bell),
                };
                let closing = closing.clone();
                tokio::spawn(async move {
                    visit.serve().await;
                    let _ = closing.send(number);
                });
            }
        });
        Self { url, got, arrived, closed }
    }

    pub(crate) fn got(&self) -> Vec<Got> {
        self.got.lock().unwrap().clone()
    }

    /// Waits until a request has arrived and its act has been performed as far as it goes.
    pub(crate) async fn acted(&self) {
        self.arrived.notified().await;
    }

    /// Waits until a client has closed a connection.
    pub(crate) async fn closed(&mut self) -> usize {
        self.closed.recv().await.unwrap()
    }
}

struct Visit {
    number: usize,
    stream: TcpStream,
    acts: Arc<Mutex<VecDeque<Act>>>,
    got: Arc<Mutex<Vec<Got>>>,
    arrived: Arc<Notify>,
}

impl Visit {
    async fn serve(mut self) {
        while let Some((head, body)) = self.request().await {
            let got = Got { connection: self.number, head, body };
            self.got.lock().unwrap().push(got);
            let act = self.acts.lock().unwrap().pop_front();
            let goes_on = self.perform(act.unwrap_or(Act::Status(500, "", "no act left"))).await;
            self.arrived.notify_one();
            if !goes_on {
                return;
            }
        }
    }

    async fn request(&mut self) -> Option<(String, String)> {
        let mut bytes = Vec::new();
        let mut buffer = [0; 4_096];
        loop {
            let text = String::from_utf8_lossy(&bytes).into_owned();
            if let Some((head, body)) = text.split_once("\r\n\r\n") {
                let length = head.lines().find_map(|line| {
                    let (name, value) = line.split_once(':')?;
                    name.eq_ignore_ascii_case("content-length")
                        .then(|| value.trim().parse().ok())?
                });
                if body.len() >= length.unwrap_or(0_usize) {
                    return Some((head.to_owned(), body.to_owned()));
                }
            }
            let read = self.stream.read(&mut buffer).await.ok().filter(|read| *read > 0)?;
            bytes.extend_from_slice(&buffer[..read]);
            // The first byte of a TLS handshake: nothing this server could answer.
            if bytes[0] == 0x16 {
                return None;
            }
        }
    }

    async fn perform(&mut self, act: Act) -> bool {
        match act {
            Act::Stream(events, size) => {
                self.begin().await;
                for piece in events.as_bytes().chunks(size) {
                    self.chunk(piece).await;
                }
                self.write(b"0\r\n\r\n").await;
                true
            }
            Act::Status(status, headers, body) => {
                let length = body.len();
                let head = format!(
                    "HTTP/1.1 {status} X\r\ncontent-length: {length}\r\n{headers}\r\n{body}"
                );
                self.write(head.as_bytes()).await;
                true
            }
            Act::Cut(events) => {
                self.begin().await;
                self.chunk(events.as_bytes()).await;
                false
            }
            Act::Silent(events) => {
                self.begin().await;
                self.chunk(events.as_bytes()).await;
                true
            }
            Act::Mute => true,
        }
    }

    async fn begin(&mut self) {
        self.write(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n")
            .await;
    }

    async fn chunk(&mut self, piece: &[u8]) {
        if piece.is_empty() {
            return;
        }
        let mut framed = format!("{:x}\r\n", piece.len()).into_bytes();
        framed.extend_from_slice(piece);
        framed.extend_from_slice(b"\r\n");
        self.write(&framed).await;
    }

    async fn write(&mut self, bytes: &[u8]) {
        // A client that has gone is what some tests are about.
        let _ = self.stream.write_all(bytes).await;
        let _ = self.stream.flush().await;
    }
}
