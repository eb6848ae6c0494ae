//! As much of HTTP/1.1 as a model's API needs: keep-alive, lengths, chunked answers.
//!
//! No chunked requests, no `Expect`, no upgrades. Start at [`Connection::request`].

use std::io;
use std::pin::pin;
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use super::clock::Clock;

/// The largest head that is read.
const MAX_HEAD: usize = 64 * 1024;

/// The largest body that is read; what Anthropic documents for messages.
const MAX_BODY: usize = 32 * 1024 * 1024;

/// The first lines of a request.
#[derive(Clone, Debug, Default)]
pub(super) struct Head {
    pub(super) method: String,
    pub(super) path: String,
    pub(super) query: String,
    /// Names in lower case, in the order they came.
    pub(super) headers: Vec<(String, String)>,
}

/// An answer of one piece.
#[derive(Clone, Debug, Default)]
pub(super) struct Reply {
    pub(super) status: u16,
    pub(super) headers: Vec<(String, String)>,
    pub(super) body: String,
}

/// Why no request could be read.
#[derive(Debug)]
pub(super) enum ReadRequestError {
    /// The client left, between requests or within one.
    Gone,
    /// The bytes are not a valid request.
    Malformed(&'static str),
    /// The body is larger than [`MAX_BODY`].
    TooLarge(Head),
}

/// One connection.
#[derive(Debug)]
pub(super) struct Connection {
    stream: TcpStream,
    clock: Clock,
    /// What was read and not yet used.
    input: Vec<u8>,
    /// What is to be written at the next flush.
    output: Vec<u8>,
}

impl Head {
    pub(super) fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str())
    }

    fn parse(text: &str) -> Result<Self, &'static str> {
        let mut lines = text.split("\r\n");
        let first: Vec<&str> = lines.next().unwrap_or_default().split(' ').collect();
        let [method, target, "HTTP/1.1"] = first[..] else {
            return Err("the request line is not `METHOD TARGET HTTP/1.1`");
        };
        let (path, query) = target.split_once('?').unwrap_or((target, ""));
        let mut headers = Vec::new();
        for line in lines.filter(|line| !line.is_empty()) {
            let Some((name, value)) = line.split_once(':') else {
                return Err("a header has no colon");
            };
            if name.is_empty() || name.contains([' ', '\t']) {
                return Err("a header's name has a space or is empty");
            }
            headers.push((name.to_ascii_lowercase(), value.trim().to_owned()));
        }
        let [method, path, query] = [method, path, query].map(str::to_owned);
        Ok(Self { method, path, query, headers })
    }

    fn length(&self) -> Result<usize, &'static str> {
        if self.header("host").is_none() {
            return Err("there is no host header");
        }
        if self.header("transfer-encoding").is_some() {
            return Err("requests with a transfer encoding are not understood");
        }
        match self.header("content-length") {
            None if self.method == "GET" => Ok(0),
            None => Err("there is no content-length header"),
            Some(length) => length.parse().map_err(|_| "the content length is not a number"),
        }
    }
}

impl Reply {
    pub(super) fn json(status: u16, body: &serde_json::Value) -> Self {
        let kind = ("content-type".to_owned(), "application/json".to_owned());
        Self { status, headers: vec![kind], body: body.to_string() }
    }

    /// Returns the bytes of the whole answer.
    pub(super) fn bytes(&self) -> Vec<u8> {
        let mut text = format!("HTTP/1.1 {} {}\r\n", self.status, reason(self.status));
        for (name, value) in &self.headers {
            text += &format!("{name}: {value}\r\n");
        }
        text += &format!("content-length: {}\r\n\r\n{}", self.body.len(), self.body);
        text.into_bytes()
    }
}

impl Connection {
    pub(super) const fn new(stream: TcpStream, clock: Clock) -> Self {
        Self { stream, clock, input: Vec::new(), output: Vec::new() }
    }

    /// Reads the next request.
    pub(super) async fn request(&mut self) -> Result<(Head, Vec<u8>), ReadRequestError> {
        let end = loop {
            if let Some(at) = self.input.windows(4).position(|bytes| bytes == b"\r\n\r\n") {
                break at;
            }
            if self.input.len() > MAX_HEAD {
                return Err(ReadRequestError::Malformed("the head is too large"));
            }
            self.fill().await?;
        };
        let text = std::str::from_utf8(&self.input[..end])
            .map_err(|_| ReadRequestError::Malformed("the head is not UTF-8"))?;
        let head = Head::parse(text).map_err(ReadRequestError::Malformed)?;
        let length = head.length().map_err(ReadRequestError::Malformed)?;
        if length > MAX_BODY {
            return Err(ReadRequestError::TooLarge(head));
        }
        let whole = end + 4 + length;
        self.input.reserve(whole.saturating_sub(self.input.len()));
        while self.input.len() < whole {
            self.fill().await?;
        }
        let body = self.input[end + 4..whole].to_vec();
        self.input.drain(..whole);
        Ok((head, body))
    }

    async fn fill(&mut self) -> Result<(), ReadRequestError> {
        match self.stream.read_buf(&mut self.input).await {
            Ok(0) | Err(_) => Err(ReadRequestError::Gone),
            Ok(_) => Ok(()),
        }
    }

    /// Buffers bytes for the next flush.
    pub(super) fn write(&mut self, bytes: &[u8]) {
        self.output.extend_from_slice(bytes);
    }

    /// Buffers a chunk of a chunked body.
    pub(super) fn chunk(&mut self, bytes: &[u8]) {
        self.write(format!("{:x}\r\n", bytes.len()).as_bytes());
        self.write(bytes);
        self.write(b"\r\n");
    }

    /// Writes the buffered bytes.
    pub(super) async fn flush(&mut self) -> io::Result<()> {
        self.stream.write_all(&self.output).await?;
        self.output.clear();
        Ok(())
    }

    /// Waits, and fails as soon as the client disconnects. Without a duration it waits until then.
    pub(super) async fn pause(
        &mut self,
        duration: Option<Duration>,
    ) -> Result<(), ReadRequestError> {
        let Some(duration) = duration else {
            loop {
                self.fill().await?;
            }
        };
        // Bytes that arrive meanwhile are the next request; they must not prolong the wait.
        let clock = self.clock.clone();
        let mut end = pin!(clock.wait(duration));
        loop {
            tokio::select! {
                () = &mut end => return Ok(()),
                filled = self.fill() => filled?,
            }
        }
    }
}

/// Returns the reason phrase of a status that the APIs use.
const fn reason(status: u16) -> &'static str {
    match status {
        200 => "OK",
        301 => "Moved Permanently",
        302 => "Found",
        307 => "Temporary Redirect",
        308 => "Permanent Redirect",
        400 => "Bad Request",
        401 => "Unauthorized",
        403 => "Forbidden",
        404 => "Not Found",
        405 => "Method Not Allowed",
        413 => "Request Entity Too Large",
        415 => "Unsupported Media Type",
        429 => "Too Many Requests",
        500 => "Internal Server Error",
        503 => "Service Unavailable",
        529 => "Overloaded",
        _ => "Unknown",
    }
}
