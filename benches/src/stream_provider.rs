//! A provider of the Chat Completions API that streams as many bytes as a request asks for.
//!
//! It does as little as possible, so that the time of a call through the gateway is mostly the gateway's.

use std::fmt::Write as _;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use crate::Failure;

/// How long an answer waits for the others that must begin.
const PATIENCE: Duration = Duration::from_secs(20);

/// The size of one write of a long answer.
const WRITE_BYTES: usize = 16_384;

/// A running provider. Its threads end with this process.
pub(crate) struct StreamProvider {
    address: SocketAddr,
    open: Arc<OpenStreams>,
}

/// Counts the answers that have begun and wait for others.
#[derive(Default)]
struct OpenStreams {
    // A std mutex: held to change a number.
    begun: Mutex<usize>,
    changed: Condvar,
}

impl StreamProvider {
    /// Starts to listen on the loopback.
    pub(crate) fn start() -> Result<Self, Failure> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let address = listener.local_addr()?;
        let open = Arc::new(OpenStreams::default());
        let shared = Arc::clone(&open);
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let open = Arc::clone(&shared);
                // A client that goes away is not an error.
                thread::spawn(move || drop(serve(stream, &open)));
            }
        });
        Ok(Self { address, open })
    }

    /// Returns its base URL.
    pub(crate) fn base_url(&self) -> String {
        format!("http://{}/v1", self.address)
    }

    /// Returns how many answers were open together, of those that wait for each other.
    pub(crate) fn most_open(&self) -> usize {
        *self.open.begun.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl OpenStreams {
    /// Waits until `together` answers have begun.
    fn wait_for(&self, together: usize) -> io::Result<()> {
        let mut begun = self.begun.lock().unwrap_or_else(PoisonError::into_inner);
        *begun += 1;
        self.changed.notify_all();
        let wait = self.changed.wait_timeout_while(begun, PATIENCE, |begun| *begun < together);
        let (_begun, result) = wait.unwrap_or_else(PoisonError::into_inner);
        if result.timed_out() { Err(io::ErrorKind::TimedOut.into()) } else { Ok(()) }
    }
}

/// Answers the requests of one connection.
fn serve(stream: TcpStream, open: &OpenStreams) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let mut reader = BufReader::new(stream.try_clone()?);
    let mut writer = stream;
    loop {
        let Some(body) = read_request(&mut reader)? else { return Ok(()) };
        let number = |name: &str| {
            let rest = body.split_once(name).map_or("0", |(_, rest)| rest);
            let digits = rest.split(|it: char| !it.is_ascii_digit()).next();
            digits.and_then(|digits| digits.parse().ok()).unwrap_or(0)
        };
        let (bytes, together): (usize, usize) = (number("bytes="), number("together="));
        writer.write_all(
            b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n",
        )?;
        let event = format!(
            "data: {{\"id\":\"1\",\"object\":\"chat.completion.chunk\",\"created\":1,\"model\":\"stream\",\"choices\":\
             [{{\"index\":0,\"delta\":{{\"content\":\"{}\"}},\"finish_reason\":null}}]}}\n\n",
            "word ".repeat(8)
        );
        write_chunk(&mut writer, &event)?;
        if together > 0 {
            open.wait_for(together)?;
        }
        let block = event.repeat(WRITE_BYTES.min(bytes) / event.len() + 1);
        let mut sent = event.len();
        while sent < bytes {
            write_chunk(&mut writer, &block)?;
            sent += block.len();
        }
        let end = "data: {\"id\":\"1\",\"object\":\"chat.completion.chunk\",\"created\":1,\"model\":\"stream\",\"choices\":\
             [{\"index\":0,\"delta\":{},\"finish_reason\":\"stop\"}]}\n\n\
             data: {\"id\":\"1\",\"object\":\"chat.completion.chunk\",\"created\":1,\"model\":\"stream\",\"choices\":[],\
             \"usage\":{\"prompt_tokens\":100,\"completion_tokens\":10,\"total_tokens\":110}}\n\ndata: [DONE]\n\n";
        write_chunk(&mut writer, end)?;
        writer.write_all(b"0\r\n\r\n")?;
    }
}

fn write_chunk(writer: &mut TcpStream, text: &str) -> io::Result<()> {
    let mut chunk = String::with_capacity(text.len() + 16);
    // Writing to a string cannot fail.
    let _ = write!(chunk, "{:x}\r\n{text}\r\n", text.len());
    writer.write_all(chunk.as_bytes())
}

/// Reads a request and returns its body; `None` at the end of the connection.
fn read_request(reader: &mut BufReader<TcpStream>) -> io::Result<Option<String>> {
    let mut length = 0;
    let mut line = String::new();
    loop {
        line.clear();
        if reader.read_line(&mut line)? == 0 {
            return Ok(None);
        }
        let line = line.trim_end().to_ascii_lowercase();
        if line.is_empty() {
            break;
        }
        if let Some(value) = line.strip_prefix("content-length:") {
            length = value.trim().parse().map_err(io::Error::other)?;
        }
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body)?;
    Ok(Some(String::from_utf8_lossy(&body).into_owned()))
}
