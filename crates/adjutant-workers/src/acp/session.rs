//! A session with an agent: opened or loaded, prompted, cancelled.

use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use adjutant_core::{WorkerSessionStart, WorkerUsageReport};
use adjutant_engine::{WorkerAnswer, WorkerLink};
use serde_json::{Value, json};

use super::connection::AcpConnection;
use super::updates::{TurnState, UpdateReader};
use crate::process::WorkerProcess;

/// The version of the protocol.
const VERSION: u64 = 1;

/// How long an agent may take to start and to open a session. The slowest takes 13 s on a busy machine.
const START_TIME: Duration = Duration::from_secs(90);

/// What an agent needs to open a session without questions.
pub(crate) struct SessionPlan {
    /// The parameters of `authenticate`, if it needs that call.
    pub(crate) authenticate: Option<Value>,
    /// Further parameters of `session/new`.
    pub(crate) session: Option<Value>,
    /// The mode to set.
    pub(crate) mode: Option<String>,
    pub(crate) sets_title: bool,
    /// The beginnings of texts that are no part of an answer.
    pub(crate) remarks: Vec<String>,
    /// The agent's id of an earlier session, to be loaded.
    pub(crate) earlier_session: Option<String>,
}

/// A client with an open session.
pub(crate) struct AcpClient {
    connection: AcpConnection,
    session: String,
    turn: Arc<Mutex<TurnState>>,
}

/// A session that was opened.
pub(crate) struct OpenedSession {
    pub(crate) client: AcpClient,
    pub(crate) id: String,
    pub(crate) start: WorkerSessionStart,
}

impl AcpClient {
    /// Opens a session with an agent that has just started.
    ///
    /// # Errors
    ///
    /// What the agent did instead, as the end of a sentence.
    pub(crate) async fn open(
        process: &mut WorkerProcess,
        link: WorkerLink,
        plan: SessionPlan,
    ) -> Result<OpenedSession, String> {
        let turn = Arc::new(Mutex::new(TurnState::default()));
        let updates = UpdateReader::new(link, Arc::clone(&turn), plan.remarks);
        let (_, nothing) = tokio::sync::mpsc::channel(1);
        let output = std::mem::replace(&mut process.output, nothing);
        let connection = AcpConnection::start(output, process.input.clone(), updates);
        let client = json!({ "name": "adjutant", "version": env!("CARGO_PKG_VERSION") });
        let capabilities = json!({
            "fs": { "readTextFile": false, "writeTextFile": false },
            "terminal": false,
        });
        let hello = json!({
            "protocolVersion": VERSION,
            "clientInfo": client,
            "clientCapabilities": capabilities,
        });
        let about = connection.request_within("initialize", hello, START_TIME).await?;
        let version = about["protocolVersion"].as_u64();
        if version != Some(VERSION) {
            let spoken = version.map_or("no version".to_owned(), |it| format!("version {it}"));
            return Err(format!(
                "it speaks {spoken} of ACP, and only version {VERSION} is supported"
            ));
        }
        if let Some(credentials) = plan.authenticate {
            connection.request_within("authenticate", credentials, START_TIME).await?;
        }
        let can_load = about["agentCapabilities"]["loadSession"].as_bool() == Some(true);
        let earlier = plan.earlier_session.filter(|_| can_load);
        let mut opened = None;
        if let Some(id) = earlier {
            let mut params = new_session(&process.checkout, None);
            params["sessionId"] = json!(id);
            // A session whose files are gone cannot be loaded; then a new one is told about it.
            if connection.request_within("session/load", params, START_TIME).await.is_ok() {
                opened = Some((id, WorkerSessionStart::Loaded));
            }
        }
        let (id, start) = match opened {
            Some(opened) => opened,
            None => {
                let params = new_session(&process.checkout, plan.session.as_ref());
                let made = connection.request_within("session/new", params, START_TIME).await?;
                let id = made["sessionId"].as_str().ok_or("its session has no id")?;
                (id.to_owned(), WorkerSessionStart::New)
            }
        };
        if let Some(mode) = plan.mode {
            let params = json!({ "sessionId": id, "modeId": mode });
            // Without the mode it asks for permissions, which are answered.
            let _ = connection.request_within("session/set_mode", params, START_TIME).await;
        }
        if plan.sets_title && start != WorkerSessionStart::Loaded {
            let params = json!({ "sessionId": id, "title": "adjutant" });
            // Without a title it asks a model for one, which is refused or paid.
            let _ = connection.request_within("session/set_title", params, START_TIME).await;
        }
        let client = Self { connection, session: id.clone(), turn };
        Ok(OpenedSession { client, id, start })
    }

    /// Sends a prompt and waits for the end of the turn.
    ///
    /// # Errors
    ///
    /// Why the turn has no end: the agent exited, broke the protocol or reported an error.
    pub(crate) async fn prompt(&self, text: String) -> Result<WorkerAnswer, String> {
        self.turn().begin(&self.session);
        let params = json!({
            "sessionId": self.session,
            "prompt": [{ "type": "text", "text": text }],
        });
        let ended = self.connection.request("session/prompt", params).await;
        let turn = {
            let mut turn = self.turn();
            turn.is_open = false;
            turn.text.clone()
        };
        let ended = ended?;
        let mut report = turn.report;
        report.tokens = reported_tokens(&ended).or(report.tokens);
        let report = Some(report).filter(|it| *it != WorkerUsageReport::default());
        Ok(WorkerAnswer { text: turn.answer, report })
    }

    /// Asks the agent to stop working on its prompt, if it has one, and waits until it has.
    pub(crate) async fn cancel(&self) {
        if self.connection.is_waiting() {
            self.connection.notify("session/cancel", json!({ "sessionId": self.session })).await;
            self.connection.wait_for_answers().await;
        }
    }

    fn turn(&self) -> std::sync::MutexGuard<'_, TurnState> {
        self.turn.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns the parameters of a session in the checkout, with those of the agent's definition.
fn new_session(checkout: &Path, more: Option<&Value>) -> Value {
    let mut params = json!({ "cwd": checkout.to_string_lossy(), "mcpServers": [] });
    if let (Some(params), Some(more)) = (params.as_object_mut(), more.and_then(Value::as_object)) {
        params.extend(more.clone());
    }
    params
}

/// Returns the tokens that an agent says its turn took.
fn reported_tokens(ended: &Value) -> Option<u64> {
    let usage = &ended["usage"];
    usage["totalTokens"].as_u64().or_else(|| {
        let parts = ["inputTokens", "outputTokens", "cachedReadTokens", "cachedWriteTokens"];
        let counted = parts.iter().filter_map(|part| usage[*part].as_u64());
        usage.is_object().then(|| counted.sum())
    })
}
