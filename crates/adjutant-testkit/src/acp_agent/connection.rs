//! The connection to the client: lines out, requests of the agent and their answers, and the log.

use std::collections::HashMap;
use std::fs::{File, OpenOptions};
use std::io::Write as _;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Mutex, PoisonError};

use serde_json::{Value, json};

/// Everything that several threads write to.
pub(super) struct Connection {
    /// Standard output, one message per line.
    out: Mutex<std::io::Stdout>,
    log: Mutex<Option<File>>,
    open_requests: Mutex<OpenRequests>,
    violations: Mutex<Vec<String>>,
}

#[derive(Default)]
struct OpenRequests {
    next_id: u64,
    waiting: HashMap<u64, Sender<Value>>,
}

impl Connection {
    pub(super) fn new() -> Self {
        Self {
            out: Mutex::new(std::io::stdout()),
            log: Mutex::new(log_file()),
            open_requests: Mutex::default(),
            violations: Mutex::default(),
        }
    }

    /// Writes bytes as they are. A client that is gone is found out at the next read.
    pub(super) fn send_raw(&self, bytes: &[u8]) {
        let mut out = self.out.lock().unwrap_or_else(PoisonError::into_inner);
        let _ = out.write_all(bytes).and_then(|()| out.flush());
    }

    /// Writes one message.
    pub(super) fn send(&self, message: &Value) {
        let mut line = message.to_string();
        line.push('\n');
        self.send_raw(line.as_bytes());
    }

    pub(super) fn send_result(&self, id: &Value, result: &Value) {
        self.send(&json!({"jsonrpc": "2.0", "id": id, "result": result}));
    }

    pub(super) fn send_error(&self, id: &Value, code: i64, message: &str) {
        let error = json!({"code": code, "message": message});
        self.send(&json!({"jsonrpc": "2.0", "id": id, "error": error}));
    }

    pub(super) fn notify(&self, method: &str, params: &Value) {
        self.send(&json!({"jsonrpc": "2.0", "method": method, "params": params}));
    }

    /// Sends a request; the receiver gets the message that answers it.
    pub(super) fn request(&self, method: &str, params: &Value) -> Receiver<Value> {
        let (sender, receiver) = channel();
        let id = {
            let mut open = self.open_requests.lock().unwrap_or_else(PoisonError::into_inner);
            open.next_id += 1;
            let id = open.next_id;
            open.waiting.insert(id, sender);
            id
        };
        self.send(&json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params}));
        receiver
    }

    /// Hands an answer of the client to the request it belongs to.
    pub(super) fn take_answer(&self, message: Value) {
        let id = message.get("id").and_then(Value::as_u64);
        let mut open = self.open_requests.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(waiting) = id.and_then(|id| open.waiting.remove(&id)) else {
            drop(open);
            return self.violation(format!("answer to a request that is not open: {message}"));
        };
        // The turn may have been cancelled and wait no longer.
        let _ = waiting.send(message);
    }

    /// Records what the client did wrong.
    pub(super) fn violation(&self, what: String) {
        self.record("violation", &json!(what));
        self.violations.lock().unwrap_or_else(PoisonError::into_inner).push(what);
    }

    pub(super) fn violations(&self) -> Vec<String> {
        self.violations.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Writes one line to the log.
    pub(super) fn record(&self, kind: &str, what: &Value) {
        let mut log = self.log.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(file) = log.as_mut() {
            let line = json!({"pid": std::process::id(), kind: what});
            let _ = file.write_all(format!("{line}\n").as_bytes());
        }
    }
}

fn log_file() -> Option<File> {
    let path = std::env::var_os("ACP_AGENT_LOG").map(Into::into).or_else(|| {
        std::env::var_os("HOME").map(|home| std::path::Path::new(&home).join("acp-agent.jsonl"))
    })?;
    OpenOptions::new().create(true).append(true).open(path).ok()
}
