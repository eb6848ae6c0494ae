//! Messages on standard input and output, one per line.
//!
//! This layer in front of `rmcp` limits the length of a line before parsing it, answers invalid messages, and
//! lets only requests through before the handshake. Threads do the blocking IO, so that a client that does
//! not read its answers cannot block calls that wait for runs; the server merely stops reading from it.
//!
//! Start at [`StdioTransport::open`].

use std::fs::File;
use std::io::{self, BufRead, BufReader, Write};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::Duration;

use adjutant_formats::json;
use rmcp::RoleServer;
use rmcp::model::ServerJsonRpcMessage;
use rmcp::model::{ClientJsonRpcMessage, ErrorData, JsonRpcMessage, RequestId};
use rmcp::transport::Transport;
use rustix::event::{PollFd, PollFlags, poll};
use serde_json::Value;
use tokio::sync::{mpsc, watch};

use crate::transport::eras::{self, EraIndication};
use crate::transport::requests::{self, OutgoingAnswer, PendingRequests, RequestWeight};

/// The maximum length of a line. Inclusive, without the line feed.
const MAX_LINE_BYTES: usize = 4 << 20;

/// The capacity of the queue of received messages. One, because each message may be as long as a line.
const INCOMING: usize = 1;

/// The capacity of the queue of lines to write: a progress message for each of many calls.
const OUTGOING: usize = 64;

/// After the client has closed its end: how long output may make no progress before it is abandoned.
const UNREAD_TIMEOUT: Duration = Duration::from_secs(1);

/// Like `UNREAD_TIMEOUT`, while not all of the client's input has been read.
const STALLED_TIMEOUT: Duration = Duration::from_secs(2);

/// The transport of a server on standard input and output.
pub(crate) struct StdioTransport {
    incoming: mpsc::Receiver<ClientJsonRpcMessage>,
    /// `None` once closed.
    outgoing: Option<mpsc::Sender<Vec<u8>>>,
    closing: watch::Sender<bool>,
    pending: PendingRequests,
    /// Becomes true once the client is gone and does not read.
    abandoned: watch::Receiver<bool>,
}

/// What the server needs to shut down after the transport has closed.
pub(crate) struct StdioShutdown {
    /// Becomes true once the client has closed its end.
    pub(crate) closing: watch::Receiver<bool>,
    /// The lines that are still being written.
    pub(crate) writing: OutputProgress,
}

/// The progress of a thread: lines written so far, and whether the thread has ended.
pub(crate) struct OutputProgress {
    written: Arc<AtomicU64>,
    /// Carries no values; it disconnects when the thread ends.
    done: Receiver<()>,
}

impl OutputProgress {
    /// Waits until all lines are written or the client stops reading.
    pub(crate) fn finish(&self) {
        while self.wait_for_end(UNREAD_TIMEOUT) == Some(true) {}
    }

    /// Waits up to `wait` for the thread to end and returns `None` if it did. Otherwise returns whether any
    /// line was written meanwhile.
    fn wait_for_end(&self, wait: Duration) -> Option<bool> {
        let before = self.written.load(Ordering::Relaxed);
        match self.done.recv_timeout(wait) {
            Err(RecvTimeoutError::Timeout) => Some(self.written.load(Ordering::Relaxed) > before),
            Ok(()) | Err(RecvTimeoutError::Disconnected) => None,
        }
    }
}

impl StdioTransport {
    /// Reserves standard output for messages. Everything else that is printed goes to standard error from now
    /// on.
    pub(crate) fn open() -> io::Result<(Self, StdioShutdown)> {
        let stdout = io::stdout().as_fd().try_clone_to_owned()?;
        rustix::stdio::dup2_stdout(io::stderr())?;
        let (message, incoming) = mpsc::channel(INCOMING);
        let (outgoing, lines) = mpsc::channel(OUTGOING);
        let (closing, closed) = watch::channel(false);
        let (abandon, abandoned) = watch::channel(false);
        let (pending, written) = (PendingRequests::default(), Arc::<AtomicU64>::default());
        let (reader, heard) = channel();
        let (replies, known) = (outgoing.clone(), pending.clone());
        spawn("mcp-input", move || {
            read_all(BufReader::new(io::stdin()), &message, &replies, &known);
            drop(reader);
        })?;
        let reading = OutputProgress { written: Arc::clone(&written), done: heard };
        spawn("mcp-hangup", move || watch_for_hangup(&reading, &abandon))?;
        let (writer, done): (Sender<()>, _) = channel();
        let count = Arc::clone(&written);
        spawn("mcp-output", move || {
            write_all(File::from(stdout), lines, &count);
            drop(writer);
        })?;
        let stdio = Self { incoming, outgoing: Some(outgoing), closing, pending, abandoned };
        Ok((stdio, StdioShutdown { closing: closed, writing: OutputProgress { written, done } }))
    }
}

fn spawn(name: &str, work: impl FnOnce() + Send + 'static) -> io::Result<()> {
    thread::Builder::new().name(name.into()).spawn(work).map(drop)
}

/// Waits until the client closes our input. Sets `abandon` if neither side makes progress after that.
fn watch_for_hangup(reading: &OutputProgress, abandon: &watch::Sender<bool>) {
    let stdin = io::stdin();
    let mut ends = [PollFd::new(&stdin, PollFlags::RDHUP)];
    // A descriptor that cannot be polled is read to its end like a file.
    while let Err(rustix::io::Errno::INTR) = poll(&mut ends, None) {}
    while let Some(moves) = reading.wait_for_end(STALLED_TIMEOUT) {
        if !moves {
            abandon.send_replace(true);
            return;
        }
    }
}

impl Transport<RoleServer> for StdioTransport {
    type Error = io::Error;

    fn send(
        &mut self,
        item: ServerJsonRpcMessage,
    ) -> impl Future<Output = io::Result<()>> + Send + 'static {
        let (outgoing, line) = (self.outgoing.clone(), encode_line(&item));
        let answer = OutgoingAnswer::of(&self.pending, &item);
        async move {
            let outgoing = outgoing.ok_or(io::ErrorKind::NotConnected)?;
            let line = line?;
            let place = outgoing.reserve().await.map_err(|_| io::ErrorKind::BrokenPipe)?;
            // Release the id before the client can read the answer, because the client may reuse it at once.
            drop(answer);
            place.send(line);
            Ok(())
        }
    }

    async fn receive(&mut self) -> Option<ClientJsonRpcMessage> {
        let message = tokio::select! {
            message = self.incoming.recv() => message,
            // If the watching thread ends without setting this, reading ends through the other branch.
            Ok(_) = self.abandoned.wait_for(|is_abandoned| *is_abandoned) => None,
        };
        if message.is_none() {
            self.closing.send_replace(true);
        }
        message
    }

    async fn close(&mut self) -> io::Result<()> {
        self.outgoing = None;
        Ok(())
    }
}

fn encode_line(message: &ServerJsonRpcMessage) -> io::Result<Vec<u8>> {
    let mut line = serde_json::to_vec(message)?;
    line.push(b'\n');
    Ok(line)
}

/// Writes lines until the queue is closed or the client stops reading.
fn write_all(mut output: impl Write, mut lines: mpsc::Receiver<Vec<u8>>, written: &AtomicU64) {
    while let Some(line) = lines.blocking_recv() {
        if output.write_all(&line).and_then(|()| output.flush()).is_err() {
            return;
        }
        written.fetch_add(1, Ordering::Relaxed);
    }
}

/// Passes on messages until the client closes its end. Invalid messages are answered here.
fn read_all(
    mut input: impl BufRead,
    messages: &mpsc::Sender<ClientJsonRpcMessage>,
    replies: &mpsc::Sender<Vec<u8>>,
    pending: &PendingRequests,
) {
    let mut gate = HandshakeGate::default();
    let mut line = Vec::new();
    // A read error counts as the end of the input.
    while let Ok(read) = read_line(&mut input, &mut line) {
        let judged = match read {
            LineRead::End => return,
            LineRead::TooLong => {
                Err(MessageError::new(ErrorData::invalid_request(LINE_TOO_LONG, None), None))
            }
            LineRead::Whole if line.iter().all(u8::is_ascii_whitespace) => continue,
            LineRead::Whole => parse(&line)
                .and_then(|message| gate.check(message))
                .and_then(|message| admit(pending, message, line.len())),
        };
        // Do not keep the memory of a long line.
        line.shrink_to(64 << 10);
        let sent = match judged {
            Ok(Some(message)) => messages.blocking_send(message).is_ok(),
            Ok(None) => true,
            Err(MessageError { error, to }) => encode_line(&JsonRpcMessage::error(*error, to))
                .is_ok_and(|line| replies.blocking_send(line).is_ok()),
        };
        if !sent {
            return;
        }
    }
}

const LINE_TOO_LONG: &str = "the message is longer than 4 MiB";

/// Admits a message. A request waits for room.
fn admit(
    pending: &PendingRequests,
    message: Option<ClientJsonRpcMessage>,
    bytes: usize,
) -> Result<Option<ClientJsonRpcMessage>, MessageError> {
    if let Some(message) = &message {
        let enter = |id: &RequestId, waits| pending.add(id, RequestWeight { bytes, waits });
        requests::admit(pending, message, enter).map_err(|refused| {
            let (error, to) = *refused;
            MessageError::new(error, to)
        })?;
    }
    Ok(message)
}

/// The result of reading a line.
#[derive(Debug, PartialEq, Eq)]
enum LineRead {
    Whole,
    TooLong,
    End,
}

/// Reads a line without its line feed. Discards the content of a line that is too long.
fn read_line(input: &mut impl BufRead, line: &mut Vec<u8>) -> io::Result<LineRead> {
    line.clear();
    let (mut is_too_long, mut is_empty) = (false, true);
    loop {
        let available = match input.fill_buf() {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            other => other?,
        };
        let is_last = available.is_empty();
        let end = available.iter().position(|byte| *byte == b'\n');
        let part = &available[..end.unwrap_or(available.len())];
        is_too_long |= line.len() + part.len() > MAX_LINE_BYTES;
        if is_too_long {
            *line = Vec::new();
        } else {
            line.extend_from_slice(part);
        }
        let taken = part.len() + usize::from(end.is_some());
        input.consume(taken);
        is_empty &= taken == 0;
        match (end.is_some() || is_last, is_last && is_empty) {
            (_, true) => return Ok(LineRead::End),
            (true, false) if is_too_long => return Ok(LineRead::TooLong),
            (true, false) => return Ok(LineRead::Whole),
            (false, false) => {}
        }
    }
}

/// The answer to an invalid message, and the id of the request it belongs to.
pub(crate) struct MessageError {
    // Boxed, because errors are rare and larger than messages.
    error: Box<ErrorData>,
    to: Option<RequestId>,
}

impl MessageError {
    /// Returns the answer as JSON.
    pub(crate) fn to_json(&self) -> Vec<u8> {
        let answer = JsonRpcMessage::error((*self.error).clone(), self.to.clone());
        encode_line(&answer).unwrap_or_default()
    }

    fn new(error: ErrorData, to: Option<RequestId>) -> Self {
        Self { error: Box::new(error), to }
    }
}

/// Parses a message.
pub(crate) fn parse(line: &[u8]) -> Result<ClientJsonRpcMessage, MessageError> {
    let value = read_json(line)?;
    let id = request_id(&value);
    serde_json::from_value(value).map_err(|_| {
        MessageError::new(ErrorData::invalid_request("not a JSON-RPC 2.0 message", None), id)
    })
}

/// Parses the JSON of a message. Repeated keys are an error, which carries the request's id.
pub(crate) fn read_json(line: &[u8]) -> Result<Value, MessageError> {
    json::from_slice(line).map_err(|error| {
        if !json::is_repeated_key(&error) {
            return MessageError::new(
                ErrorData::parse_error(format!("not JSON: {error}"), None),
                None,
            );
        }
        let id = serde_json::from_slice(line).ok().and_then(|value| request_id(&value));
        let text = format!("{error} of the message; send each key once");
        MessageError::new(ErrorData::invalid_params(text, None), id)
    })
}

fn request_id(message: &Value) -> Option<RequestId> {
    message.get("id").and_then(|id| serde_json::from_value(id.clone()).ok())
}

/// Holds back everything that must not precede the handshake.
#[derive(Default)]
struct HandshakeGate {
    is_open: bool,
}

impl HandshakeGate {
    /// Returns the message if it may pass, and `None` if it is ignored.
    fn check(
        &mut self,
        message: ClientJsonRpcMessage,
    ) -> Result<Option<ClientJsonRpcMessage>, MessageError> {
        let JsonRpcMessage::Request(request) = &message else {
            // `rmcp` would take any other message for a failed handshake.
            return Ok(Some(message).filter(|_| self.is_open));
        };
        let era = eras::request_era(&request.request);
        self.is_open |= matches!(era, EraIndication::Handshake | EraIndication::Inline);
        let may_pass =
            self.is_open || matches!(era, EraIndication::Either | EraIndication::Unsupported);
        if may_pass {
            return Ok(Some(message));
        }
        let error = ErrorData::invalid_request(
            "send `initialize` first, or name the protocol version in `_meta` of each request",
            None,
        );
        Err(MessageError::new(error, Some(request.id.clone())))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(input: &[u8], buffer: usize) -> Vec<(LineRead, usize)> {
        let mut input = BufReader::with_capacity(buffer, input);
        let (mut line, mut all) = (Vec::new(), Vec::new());
        loop {
            let read = read_line(&mut input, &mut line).unwrap();
            if read == LineRead::End {
                return all;
            }
            all.push((read, line.len()));
        }
    }

    #[test]
    fn lines_are_read_with_any_buffer_size() {
        let whole = |length| (LineRead::Whole, length);
        for buffer in [1, 2, 3, 7, 4096] {
            assert_eq!(lines(b"one\n\nthree", buffer), [whole(3), whole(0), whole(5)]);
            assert_eq!(lines(b"one\n", buffer), [whole(3)]);
            assert_eq!(lines(b"", buffer), []);
        }
    }

    #[test]
    fn a_line_may_be_exactly_as_long_as_the_limit() {
        for (length, expected) in [
            (MAX_LINE_BYTES, (LineRead::Whole, MAX_LINE_BYTES)),
            (MAX_LINE_BYTES + 1, (LineRead::TooLong, 0)),
        ] {
            let mut input = vec![b'x'; length];
            assert_eq!(
                lines(&input, 8192),
                [(
                    if length > MAX_LINE_BYTES { LineRead::TooLong } else { LineRead::Whole },
                    expected.1
                )]
            );
            input.extend_from_slice(b"\nnext\n");
            assert_eq!(lines(&input, 8192), [expected, (LineRead::Whole, 4)]);
        }
    }
}
