//! The connection to an agent: requests, their answers, and what the agent sends by itself.
//!
//! One task reads the agent's lines; it never waits for a request of its own, so it cannot block itself. Start at
//! [`AcpConnection::request`].

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use serde_json::{Value, json};
use tokio::sync::{mpsc, oneshot, watch};

use super::updates::UpdateReader;
use crate::process::WorkerOutput;

/// Lines that are not messages, after which an agent does not speak the protocol.
const MAX_STRAY_LINES: u32 = 100;

/// The code of JSON-RPC for a method that is not supported.
const METHOD_NOT_FOUND: i64 = -32601;

/// A request that waits for its answer.
type PendingAnswer = oneshot::Sender<Result<Value, String>>;

/// A connection to an agent.
pub(super) struct AcpConnection {
    input: mpsc::Sender<Vec<u8>>,
    shared: Arc<SharedState>,
    reader: tokio::task::AbortHandle,
}

/// What the reading task and the requests share.
struct SharedState {
    // A std mutex: held for a map operation, never across an await.
    pending: Mutex<PendingAcpRequests>,
    next_id: AtomicU64,
    /// The number of requests without an answer.
    unanswered: watch::Sender<usize>,
}

#[derive(Default)]
struct PendingAcpRequests {
    answers: HashMap<u64, PendingAnswer>,
    /// Why the connection is over, once it is.
    ended: Option<String>,
}

impl AcpConnection {
    /// Starts to read the output of an agent.
    pub(super) fn start(
        output: mpsc::Receiver<WorkerOutput>,
        input: mpsc::Sender<Vec<u8>>,
        updates: UpdateReader,
    ) -> Self {
        let shared = Arc::new(SharedState {
            pending: Mutex::default(),
            next_id: AtomicU64::new(1),
            unanswered: watch::Sender::new(0),
        });
        let task = read_lines(output, input.clone(), Arc::clone(&shared), updates);
        let reader = tokio::spawn(task).abort_handle();
        Self { input, shared, reader }
    }

    /// Sends a request and waits for its answer.
    ///
    /// # Errors
    ///
    /// The agent's error, or why there will be no answer.
    pub(super) async fn request(&self, method: &str, params: Value) -> Result<Value, String> {
        let id = self.shared.next_id.fetch_add(1, Ordering::Relaxed);
        let (answer, answered) = oneshot::channel();
        {
            let mut pending = self.shared.pending.lock().unwrap_or_else(PoisonError::into_inner);
            if let Some(why) = &pending.ended {
                return Err(why.clone());
            }
            pending.answers.insert(id, answer);
            self.shared.unanswered.send_replace(pending.answers.len());
        }
        let message = json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params });
        self.send(&message).await;
        answered.await.unwrap_or_else(|_gone| Err("the connection was closed".to_owned()))
    }

    /// Like [`AcpConnection::request`], with a time limit.
    pub(super) async fn request_within(
        &self,
        method: &str,
        params: Value,
        limit: Duration,
    ) -> Result<Value, String> {
        let answer = tokio::time::timeout(limit, self.request(method, params)).await;
        let late = |_| Err(format!("it did not answer `{method}` within {} s", limit.as_secs()));
        answer.unwrap_or_else(late)
    }

    /// Says whether a request has no answer yet.
    pub(super) fn is_waiting(&self) -> bool {
        *self.shared.unanswered.borrow() > 0
    }

    /// Waits until every request has its answer, also those whose caller has gone.
    pub(super) async fn wait_for_answers(&self) {
        let mut unanswered = self.shared.unanswered.subscribe();
        let _ = unanswered.wait_for(|count| *count == 0).await;
    }

    /// Sends a message that has no answer.
    pub(super) async fn notify(&self, method: &str, params: Value) {
        self.send(&json!({ "jsonrpc": "2.0", "method": method, "params": params })).await;
    }

    async fn send(&self, message: &Value) {
        // If the agent no longer reads, the reading task reports its end.
        let _ = self.input.send(line_of(message)).await;
    }
}

impl Drop for AcpConnection {
    fn drop(&mut self) {
        self.reader.abort();
    }
}

fn line_of(message: &Value) -> Vec<u8> {
    let mut line = message.to_string().into_bytes();
    line.push(b'\n');
    line
}

/// Reads the agent's lines until it ends or breaks the protocol.
async fn read_lines(
    mut output: mpsc::Receiver<WorkerOutput>,
    input: mpsc::Sender<Vec<u8>>,
    shared: Arc<SharedState>,
    mut updates: UpdateReader,
) {
    let mut stray_lines = 0;
    let why = loop {
        let message = match output.recv().await {
            None => break "its output ended".to_owned(),
            Some(WorkerOutput::Ended(why)) => break why,
            Some(WorkerOutput::LineTooLong) => {
                break "it broke the protocol: a line is longer than 16 MiB".to_owned();
            }
            Some(WorkerOutput::Line(line)) => match serde_json::from_slice::<Value>(&line) {
                Ok(message @ Value::Object(_)) => message,
                // Blank lines and remarks of Node.js, for example.
                Ok(_) | Err(_) => {
                    stray_lines += u32::from(!line.trim_ascii().is_empty());
                    if stray_lines > MAX_STRAY_LINES {
                        let first = String::from_utf8_lossy(&line[..line.len().min(80)]);
                        break format!("it does not speak ACP: it wrote {:?}", first.trim());
                    }
                    continue;
                }
            },
        };
        if let Err(why) = take_message(message, &input, &shared, &mut updates).await {
            break why;
        }
    };
    updates.flush().await;
    let mut pending = shared.pending.lock().unwrap_or_else(PoisonError::into_inner);
    for (_, answer) in pending.answers.drain() {
        let _ = answer.send(Err(why.clone()));
    }
    pending.ended = Some(why);
    shared.unanswered.send_replace(0);
}

async fn take_message(
    message: Value,
    input: &mpsc::Sender<Vec<u8>>,
    shared: &SharedState,
    updates: &mut UpdateReader,
) -> Result<(), String> {
    let Some(method) = message["method"].as_str() else {
        take_answer(&message, shared, updates).await;
        return Ok(());
    };
    let Some(id) = message.get("id").filter(|id| !id.is_null()) else {
        if method == "session/update" {
            updates.take(&message["params"]).await;
        }
        // Other notifications are the agent's own.
        return Ok(());
    };
    let answer = if method == "session/request_permission" {
        let outcome = updates.answer_permission(&message["params"]).await?;
        json!({ "jsonrpc": "2.0", "id": id, "result": { "outcome": outcome } })
    } else {
        let text = format!("`{method}` is not supported");
        let error = json!({ "code": METHOD_NOT_FOUND, "message": text });
        json!({ "jsonrpc": "2.0", "id": id, "error": error })
    };
    let _ = input.send(line_of(&answer)).await;
    Ok(())
}

async fn take_answer(message: &Value, shared: &SharedState, updates: &mut UpdateReader) {
    let Some(id) = message["id"].as_u64() else { return };
    // What the agent said before its answer belongs before it.
    updates.flush().await;
    let mut pending = shared.pending.lock().unwrap_or_else(PoisonError::into_inner);
    // An answer to a request that timed out is ignored.
    let Some(answer) = pending.answers.remove(&id) else { return };
    shared.unanswered.send_replace(pending.answers.len());
    let result = match message.get("error").filter(|error| !error.is_null()) {
        Some(error) => Err(error_text(error)),
        None => Ok(message["result"].clone()),
    };
    let _ = answer.send(result);
}

/// Returns the message of a JSON-RPC error, with the part of its data that explains it.
fn error_text(error: &Value) -> String {
    let message = error["message"].as_str().unwrap_or("it reported an error");
    let data = &error["data"];
    let details = data["details"].as_str().or_else(|| data["message"].as_str());
    let details = details.or_else(|| data.as_str()).filter(|details| !message.contains(details));
    let text =
        details.map_or_else(|| message.to_owned(), |details| format!("{message}: {details}"));
    text.chars().take(1_000).collect()
}
