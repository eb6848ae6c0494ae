//! Clients of the MCP server over HTTP: the real binary, real sockets, requests written by hand.

use std::fs::{self, File};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, Command, ExitStatus, Stdio};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use crate::support::rig::{BINARY, Rig};
use crate::support::running::GUARD;

/// A token that the user chose.
pub(crate) const TOKEN: &str = "a-token-of-the-tests-that-is-long-enough";

/// A server that listens.
pub(crate) struct Host {
    child: Child,
    /// The address and the port.
    pub(crate) address: String,
    /// What it said on standard error before it listened.
    pub(crate) said: String,
}

impl Host {
    /// Starts a server that has [`TOKEN`] and may start what costs at most ten dollars.
    pub(crate) fn start(rig: &Rig, args: &[&str]) -> Self {
        Self::start_with(rig, args, Some(TOKEN))
    }

    /// Starts a server with a token, or lets it make one.
    pub(crate) fn start_with(rig: &Rig, args: &[&str], token: Option<&str>) -> Self {
        let mut command = Command::new(BINARY);
        let all = ["mcp", "--http", "127.0.0.1:0", "--approve-below", "10", "--model", rig.model()];
        command.args(all).args(args).env_clear().envs(rig.environment()).current_dir(rig.work());
        command.envs(token.map(|token| ("ADJUTANT_MCP_TOKEN", token)));
        let talk = rig.path().join("talk");
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(File::create(&talk).unwrap());
        let mut child = command.spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let said = fs::read_to_string(&talk).unwrap();
        let address = line.trim().strip_prefix("http://").and_then(|it| it.strip_suffix("/mcp"));
        let address = address.unwrap_or_else(|| panic!("{line} {said}")).to_owned();
        Self { child, address, said }
    }

    /// Opens a connection.
    pub(crate) fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(&self.address).unwrap();
        stream.set_read_timeout(Some(GUARD)).unwrap();
        stream.set_write_timeout(Some(GUARD)).unwrap();
        stream
    }

    /// Sends a request with these headers beside the ones that every client sends.
    pub(crate) fn send(&self, method: &str, headers: &[(&str, &str)], body: &[u8]) -> Answer {
        let authorization = format!("Bearer {TOKEN}");
        let usual = [
            ("Host", self.address.as_str()),
            ("Authorization", &authorization),
            ("Accept", "application/json, text/event-stream"),
            ("Content-Type", "application/json"),
        ];
        let is_given = |name: &str| headers.iter().any(|it| it.0.eq_ignore_ascii_case(name));
        let usual = usual.into_iter().filter(|it| !is_given(it.0));
        let mut head = format!("{method} /mcp HTTP/1.1\r\nContent-Length: {}\r\n", body.len());
        for (name, value) in usual.chain(headers.iter().copied()).filter(|it| !it.1.is_empty()) {
            head += &format!("{name}: {value}\r\n");
        }
        let mut stream = self.connect();
        // The server may close the connection of a refused request that is still being written.
        let _ = stream
            .write_all(format!("{head}\r\n").as_bytes())
            .and_then(|()| stream.write_all(body));
        Answer::read(stream)
    }

    /// Sends a message.
    pub(crate) fn post(&self, headers: &[(&str, &str)], message: &Value) -> Answer {
        self.send("POST", headers, message.to_string().as_bytes())
    }

    /// Performs the handshake.
    pub(crate) fn session(&self, name: &str, version: &str) -> Session<'_> {
        let info = json!({ "name": name, "version": "1" });
        let params = json!({ "protocolVersion": version, "capabilities": {}, "clientInfo": info });
        let mut answer = self.post(&[], &request(1, "initialize", &params));
        let id = answer.header("mcp-session-id").unwrap_or_else(|| panic!("{}", answer.head));
        let about = answer.message()["result"].clone();
        let version = about["protocolVersion"].as_str().unwrap().to_owned();
        let session = Session { host: self, id, version, about };
        let initialized = json!({ "jsonrpc": "2.0", "method": "notifications/initialized" });
        assert_eq!(session.post(&initialized).status, 202);
        session
    }

    /// The most memory the server has held so far.
    pub(crate) fn peak_kib(&self) -> u64 {
        let status = fs::read_to_string(format!("/proc/{}/status", self.child.id())).unwrap();
        let line = status.lines().find(|line| line.starts_with("VmHWM:")).unwrap();
        line.split_whitespace().nth(1).unwrap().parse().unwrap()
    }

    /// Tells the server to end and waits until it has.
    pub(crate) fn end(self) -> ExitStatus {
        self.end_by(Signal::TERM)
    }

    /// Tells the server to end by this signal and waits until it has.
    pub(crate) fn end_by(mut self, signal: Signal) -> ExitStatus {
        let pid = Pid::from_raw(i32::try_from(self.child.id()).unwrap()).unwrap();
        kill_process(pid, signal).unwrap();
        self.child.wait().unwrap()
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Returns a request as it is written.
pub(crate) fn request(id: i64, method: &str, params: &Value) -> Value {
    json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params })
}

/// Returns a call of a tool as it is written.
pub(crate) fn call(id: i64, tool: &str, arguments: &Value) -> Value {
    let meta = json!({ "progressToken": format!("token-{id}") });
    request(id, "tools/call", &json!({ "name": tool, "arguments": arguments, "_meta": meta }))
}

/// A client after the handshake.
pub(crate) struct Session<'host> {
    host: &'host Host,
    /// The session id.
    pub(crate) id: String,
    version: String,
    /// The server's answer to `initialize`.
    pub(crate) about: Value,
}

impl Session<'_> {
    /// Sends a message.
    pub(crate) fn post(&self, message: &Value) -> Answer {
        self.host.post(&self.headers(&[]), message)
    }

    /// Opens the stream again after an event.
    pub(crate) fn resume(&self, last: &str) -> Answer {
        self.host.send("GET", &self.headers(&[("Last-Event-ID", last)]), b"")
    }

    /// Ends the session.
    pub(crate) fn delete(&self) -> Answer {
        self.host.send("DELETE", &self.headers(&[]), b"")
    }

    /// Calls a tool that must succeed; returns its data.
    pub(crate) fn data(&self, tool: &str, arguments: &Value) -> Value {
        let result = self.post(&call(2, tool, arguments)).result(2);
        assert_eq!(result["isError"], false, "{result}");
        result["structuredContent"].clone()
    }

    /// Calls a tool that must fail; returns the error text.
    pub(crate) fn failure(&self, tool: &str, arguments: &Value) -> String {
        let result = self.post(&call(2, tool, arguments)).result(2);
        assert_eq!(result["isError"], true, "{result}");
        result["content"][0]["text"].as_str().unwrap().to_owned()
    }

    fn headers<'a>(&'a self, more: &[(&'a str, &'a str)]) -> Vec<(&'a str, &'a str)> {
        let usual = [("Mcp-Session-Id", &*self.id), ("MCP-Protocol-Version", &*self.version)];
        usual.iter().chain(more).copied().collect()
    }
}

/// An answer of the server, read incrementally.
pub(crate) struct Answer {
    /// The status.
    pub(crate) status: u16,
    /// The status line and the headers.
    pub(crate) head: String,
    body: Box<dyn BufRead>,
    /// The id of the event that was read last.
    pub(crate) last: String,
}

impl Answer {
    /// Reads the head; the body follows when it is asked for.
    pub(crate) fn read(stream: TcpStream) -> Self {
        let mut stream = BufReader::new(stream);
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") {
            assert!(stream.read_line(&mut head).unwrap() > 0, "hung up after {head:?}");
        }
        let status = head.split(' ').nth(1).unwrap().parse().unwrap();
        let mut answer =
            Self { status, head, body: Box::new(std::io::empty()), last: String::new() };
        answer.body = match answer.header("content-length") {
            Some(length) => Box::new(stream.take(length.parse().unwrap())),
            None => Box::new(BufReader::new(Chunks { stream, left: 0, is_over: false })),
        };
        answer
    }

    /// Returns a header.
    pub(crate) fn header(&self, name: &str) -> Option<String> {
        let lines = self.head.lines().filter_map(|line| line.split_once(": "));
        lines.into_iter().find(|it| it.0.eq_ignore_ascii_case(name)).map(|it| it.1.to_owned())
    }

    /// Returns the body as text.
    pub(crate) fn text(mut self) -> String {
        let mut text = String::new();
        self.body.read_to_string(&mut text).unwrap();
        text
    }

    /// Waits for the next message; `None` once the stream has ended.
    pub(crate) fn next(&mut self) -> Option<Value> {
        if self.header("content-type").is_some_and(|it| it.starts_with("application/json")) {
            let mut text = String::new();
            self.body.read_to_string(&mut text).unwrap();
            return (!text.is_empty()).then(|| serde_json::from_str(&text).unwrap());
        }
        let mut data = String::new();
        let mut line = String::new();
        while self.body.read_line(&mut line).unwrap() > 0 {
            let field = line.trim_end_matches(['\r', '\n']).to_owned();
            line.clear();
            if let Some(id) = field.strip_prefix("id:") {
                id.trim().clone_into(&mut self.last);
            } else if let Some(more) = field.strip_prefix("data:") {
                data += more.trim_start();
            } else if field.is_empty() && !data.is_empty() {
                let message: Value = serde_json::from_str(&data).unwrap();
                assert_eq!(message["jsonrpc"], "2.0", "{message}");
                return Some(message);
            }
        }
        None
    }

    /// Waits for the next message, which must come.
    pub(crate) fn message(&mut self) -> Value {
        self.next().unwrap_or_else(|| panic!("no message: {}", self.head))
    }

    /// Waits for the answer to a request and returns its result; progress before it is passed over.
    pub(crate) fn result(mut self, id: i64) -> Value {
        assert_eq!(self.status, 200, "{}", self.head);
        loop {
            let message = self.message();
            if message["id"] == id {
                assert!(message["error"].is_null(), "{message}");
                return message["result"].clone();
            }
        }
    }
}

/// A body that comes in chunks.
struct Chunks {
    stream: BufReader<TcpStream>,
    left: usize,
    is_over: bool,
}

impl Read for Chunks {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        while self.left == 0 && !self.is_over {
            let mut size = String::new();
            // The body ends early when the server is killed.
            self.is_over = self.stream.read_line(&mut size)? == 0;
            let size = size.trim();
            if !size.is_empty() {
                self.left = usize::from_str_radix(size, 16).unwrap();
                self.is_over = self.left == 0;
            }
        }
        let wanted = buffer.len().min(self.left);
        let read = self.stream.read(&mut buffer[..wanted])?;
        self.is_over |= read == 0;
        self.left -= read;
        Ok(read)
    }
}
