//! Standard input and output as messages, one a line.
//!
//! Stands in front of the library: it bounds a line before any of it is parsed, answers what is no
//! message at all, and lets nothing but requests through before the handshake. Two threads do the
//! blocking work, so that a client that does not read cannot stop the ones that wait for runs.
//!
//! Start at [`Stdio::open`].

use std::fs::File;
use std::io::{self, BufRead, BufReader, Write};
use std::os::fd::AsFd;
use std::thread::{self, JoinHandle};

use rmcp::RoleServer;
use rmcp::model::ServerJsonRpcMessage;
use rmcp::model::{ClientJsonRpcMessage, ErrorData, JsonRpcMessage, RequestId};
use rmcp::transport::Transport;
use serde_json::Value;
use tokio::sync::{mpsc, watch};

use crate::era::{self, Era};

/// The longest line that is taken. Inclusive; the end of the line does not count.
const MAX_LINE_BYTES: usize = 4 << 20;

/// Messages that wait to be handled. One, because each may be as long as a line.
const INCOMING: usize = 1;

/// Messages that wait to be written: a progress message for each of many calls at once.
const OUTGOING: usize = 64;

/// The transport of a server on standard input and output.
pub(crate) struct Stdio {
    incoming: mpsc::Receiver<ClientJsonRpcMessage>,
    /// Absent once closed.
    outgoing: Option<mpsc::Sender<Vec<u8>>>,
    closing: watch::Sender<bool>,
}

/// The end of the transport that a server keeps.
pub(crate) struct Ends {
    /// Becomes true once the client will say nothing more.
    pub(crate) closing: watch::Receiver<bool>,
    /// Ends once all is written.
    pub(crate) writer: JoinHandle<()>,
}

impl Stdio {
    /// Takes standard output for messages alone; what anyone prints there from now on goes to
    /// standard error.
    pub(crate) fn open() -> io::Result<(Self, Ends)> {
        let stdout = io::stdout().as_fd().try_clone_to_owned()?;
        rustix::stdio::dup2_stdout(io::stderr())?;
        Self::over(BufReader::new(io::stdin()), File::from(stdout))
    }

    fn over(
        input: impl BufRead + Send + 'static,
        output: impl Write + Send + 'static,
    ) -> io::Result<(Self, Ends)> {
        let (message, incoming) = mpsc::channel(INCOMING);
        let (outgoing, lines) = mpsc::channel(OUTGOING);
        let (closing, closed) = watch::channel(false);
        let replies = outgoing.clone();
        thread::Builder::new()
            .name("mcp-input".into())
            .spawn(move || read_all(input, &message, &replies))?;
        let writer = thread::Builder::new()
            .name("mcp-output".into())
            .spawn(move || write_all(output, lines))?;
        let stdio = Self { incoming, outgoing: Some(outgoing), closing };
        Ok((stdio, Ends { closing: closed, writer }))
    }
}

impl Transport<RoleServer> for Stdio {
    type Error = io::Error;

    fn send(
        &mut self,
        item: ServerJsonRpcMessage,
    ) -> impl Future<Output = io::Result<()>> + Send + 'static {
        let (outgoing, line) = (self.outgoing.clone(), encoded(&item));
        async move {
            let outgoing = outgoing.ok_or(io::ErrorKind::NotConnected)?;
            outgoing.send(line?).await.map_err(|_| io::ErrorKind::BrokenPipe.into())
        }
    }

    async fn receive(&mut self) -> Option<ClientJsonRpcMessage> {
        let message = self.incoming.recv().await;
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

fn encoded(message: &ServerJsonRpcMessage) -> io::Result<Vec<u8>> {
    let mut line = serde_json::to_vec(message)?;
    line.push(b'\n');
    Ok(line)
}

/// Writes lines until nobody has any more to write, or nobody reads them.
fn write_all(mut output: impl Write, mut lines: mpsc::Receiver<Vec<u8>>) {
    while let Some(line) = lines.blocking_recv() {
        if output.write_all(&line).and_then(|()| output.flush()).is_err() {
            return;
        }
    }
}

/// Hands on messages until the client says nothing more; what is none is answered here.
fn read_all(
    mut input: impl BufRead,
    messages: &mpsc::Sender<ClientJsonRpcMessage>,
    replies: &mpsc::Sender<Vec<u8>>,
) {
    let mut gate = Gate::default();
    let mut line = Vec::new();
    // An input that cannot be read has ended.
    while let Ok(read) = read_line(&mut input, &mut line) {
        let judged = match read {
            Line::End => return,
            Line::TooLong => Err(Complaint::new(ErrorData::invalid_request(TOO_LONG, None), None)),
            Line::Whole if line.iter().all(u8::is_ascii_whitespace) => continue,
            Line::Whole => parse(&line).and_then(|message| gate.judge(message)),
        };
        // A long line must not stay in memory until the next one comes.
        line.shrink_to(64 << 10);
        let sent = match judged {
            Ok(Some(message)) => messages.blocking_send(message).is_ok(),
            Ok(None) => true,
            Err(Complaint { error, to }) => encoded(&JsonRpcMessage::error(*error, to))
                .is_ok_and(|line| replies.blocking_send(line).is_ok()),
        };
        if !sent {
            return;
        }
    }
}

const TOO_LONG: &str = "a message may have at most 4 MiB";

/// What reading a line came to.
#[derive(Debug, PartialEq, Eq)]
enum Line {
    Whole,
    TooLong,
    End,
}

/// Reads a line without its end; of one that is too long nothing is kept.
fn read_line(input: &mut impl BufRead, line: &mut Vec<u8>) -> io::Result<Line> {
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
            (_, true) => return Ok(Line::End),
            (true, false) if is_too_long => return Ok(Line::TooLong),
            (true, false) => return Ok(Line::Whole),
            (false, false) => {}
        }
    }
}

/// An answer to what is no message, and to whom.
struct Complaint {
    // Boxed: it is the rare case, and larger than the usual one.
    error: Box<ErrorData>,
    to: Option<RequestId>,
}

impl Complaint {
    fn new(error: ErrorData, to: Option<RequestId>) -> Self {
        Self { error: Box::new(error), to }
    }
}

fn parse(line: &[u8]) -> Result<ClientJsonRpcMessage, Complaint> {
    let value: Value = serde_json::from_slice(line).map_err(|error| {
        Complaint::new(ErrorData::parse_error(format!("not JSON: {error}"), None), None)
    })?;
    let id = value.get("id").and_then(|id| serde_json::from_value(id.clone()).ok());
    serde_json::from_value(value).map_err(|_| {
        Complaint::new(ErrorData::invalid_request("not a message of JSON-RPC 2.0", None), id)
    })
}

/// Lets only what may come before the handshake come before it.
#[derive(Default)]
struct Gate {
    is_open: bool,
}

impl Gate {
    /// Returns the message if it may pass, nothing if it is passed over.
    fn judge(
        &mut self,
        message: ClientJsonRpcMessage,
    ) -> Result<Option<ClientJsonRpcMessage>, Complaint> {
        let JsonRpcMessage::Request(request) = &message else {
            // The library takes anything else before the handshake for its failure.
            return Ok(Some(message).filter(|_| self.is_open));
        };
        let era = era::of(&request.request);
        self.is_open |= matches!(era, Era::Handshake | Era::Inline);
        let may_pass = self.is_open || matches!(era, Era::Asked | Era::Unsettled);
        if may_pass {
            return Ok(Some(message));
        }
        let error = ErrorData::invalid_request(
            "`initialize` must come first, or the protocol version in `_meta` of each request",
            None,
        );
        Err(Complaint::new(error, Some(request.id.clone())))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(input: &[u8], buffer: usize) -> Vec<(Line, usize)> {
        let mut input = BufReader::with_capacity(buffer, input);
        let (mut line, mut all) = (Vec::new(), Vec::new());
        loop {
            let read = read_line(&mut input, &mut line).unwrap();
            if read == Line::End {
                return all;
            }
            all.push((read, line.len()));
        }
    }

    #[test]
    fn lines_are_found_whatever_the_size_of_the_buffer() {
        let whole = |length| (Line::Whole, length);
        for buffer in [1, 2, 3, 7, 4096] {
            assert_eq!(lines(b"one\n\nthree", buffer), [whole(3), whole(0), whole(5)]);
            assert_eq!(lines(b"one\n", buffer), [whole(3)]);
            assert_eq!(lines(b"", buffer), []);
        }
    }

    #[test]
    fn a_line_may_have_as_much_as_the_cap_and_no_byte_more() {
        for (length, expected) in [
            (MAX_LINE_BYTES, (Line::Whole, MAX_LINE_BYTES)),
            (MAX_LINE_BYTES + 1, (Line::TooLong, 0)),
        ] {
            let mut input = vec![b'x'; length];
            assert_eq!(
                lines(&input, 8192),
                [(if length > MAX_LINE_BYTES { Line::TooLong } else { Line::Whole }, expected.1)]
            );
            input.extend_from_slice(b"\nnext\n");
            assert_eq!(lines(&input, 8192), [expected, (Line::Whole, 4)]);
        }
    }
}
