//! What an agent reports while it works: its text, its tool calls, its permission requests.
//!
//! Text arrives in small pieces and is reported in larger ones. What is reported is bounded, so an agent that floods its
//! client fills neither memory nor journal.

use adjutant_core::{Usd, WorkerAction, WorkerToolStatus, WorkerUsageReport};
use adjutant_engine::WorkerLink;
use serde_json::{Value, json};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::time::Instant;

/// The bytes of text after which it is reported.
const TEXT_BYTES: usize = 2 << 10;

/// The most bytes that are kept of an answer.
const MAX_ANSWER_BYTES: usize = 4 << 20;

/// The most actions of one prompt that are reported.
const MAX_ACTIONS: u32 = 5_000;

/// The most permission requests of one prompt. An agent that asks more often asks without end.
const MAX_PERMISSIONS: u32 = 200;

/// The shortest time between two signs of life.
const SIGN_OF_LIFE: Duration = Duration::from_secs(1);

/// The longest title of a tool call that is reported.
const TITLE_CHARS: usize = 200;

/// What the agent said since the last prompt.
#[derive(Clone, Debug, Default)]
pub(super) struct TurnText {
    /// The text since its last tool call, which is its answer if no other follows.
    pub(super) answer: String,
    /// Its own account of its usage, if it gave one.
    pub(super) report: WorkerUsageReport,
}

/// Reads the updates of an agent.
pub(super) struct UpdateReader {
    link: WorkerLink,
    turn: Arc<Mutex<TurnState>>,
    /// The beginnings of texts that are no part of an answer.
    remarks: Vec<String>,
    unreported: String,
    /// When a sign of life was reported last.
    alive: Option<Instant>,
}

/// The state of the present prompt, shared with the session.
// A std mutex: held to copy or append text, never across an await.
#[derive(Debug, Default)]
pub(super) struct TurnState {
    /// Whether a prompt is open. Updates outside one repeat an earlier conversation.
    pub(super) is_open: bool,
    /// The agent's id of the prompted session.
    session: String,
    pub(super) text: TurnText,
    actions: u32,
    permissions: u32,
    /// Whether a tool call came after the last text.
    is_after_tool: bool,
}

impl TurnState {
    /// Begins a prompt of the session with this id.
    pub(super) fn begin(&mut self, session: &str) {
        let report = self.text.report;
        *self = Self {
            is_open: true,
            session: session.to_owned(),
            text: TurnText { report, ..TurnText::default() },
            ..Self::default()
        };
    }
}

impl UpdateReader {
    pub(super) const fn new(
        link: WorkerLink,
        turn: Arc<Mutex<TurnState>>,
        remarks: Vec<String>,
    ) -> Self {
        Self { link, turn, remarks, unreported: String::new(), alive: None }
    }

    /// Takes the parameters of a `session/update`.
    pub(super) async fn take(&mut self, params: &Value) {
        let update = &params["update"];
        let is_other = {
            let turn = self.turn();
            if !turn.is_open {
                return;
            }
            params["sessionId"].as_str() != Some(turn.session.as_str())
        };
        if is_other {
            // A session that the agent opened for itself: a sign of life, and no part of the answer.
            return self.link.report_bytes(0);
        }
        match update["sessionUpdate"].as_str().unwrap_or_default() {
            "agent_message_chunk" => {
                let text = update["content"]["text"].as_str().unwrap_or_default();
                if !self.remarks.iter().any(|remark| text.starts_with(remark.as_str())) {
                    self.take_text(text).await;
                }
            }
            "tool_call" | "tool_call_update" => {
                self.flush().await;
                self.turn().is_after_tool = true;
                if let Some(action) = tool_action(update) {
                    self.report(action).await;
                }
            }
            "usage_update" => self.turn().take_usage(update),
            // Thoughts, plans, modes and commands are signs of life.
            _ => self.report_life(),
        }
    }

    /// Restarts the stall timer, at most once in a second.
    fn report_life(&mut self) {
        let now = Instant::now();
        if self.alive.is_none_or(|last| now.duration_since(last) >= SIGN_OF_LIFE) {
            self.link.report_bytes(0);
            self.alive = Some(now);
        }
    }

    async fn take_text(&mut self, text: &str) {
        {
            let mut turn = self.turn();
            if std::mem::take(&mut turn.is_after_tool) {
                turn.text.answer.clear();
            }
            let room = MAX_ANSWER_BYTES.saturating_sub(turn.text.answer.len());
            let end = text.floor_char_boundary(room);
            turn.text.answer.push_str(&text[..end]);
        }
        self.unreported.push_str(text);
        if self.unreported.len() >= TEXT_BYTES {
            self.flush().await;
        }
    }

    /// Reports the text that was not reported yet.
    pub(super) async fn flush(&mut self) {
        let text = std::mem::take(&mut self.unreported);
        if !text.is_empty() {
            self.report(WorkerAction::Said { text }).await;
        }
    }

    async fn report(&mut self, action: WorkerAction) {
        let count = {
            let mut turn = self.turn();
            turn.actions += 1;
            turn.actions
        };
        if count <= MAX_ACTIONS {
            self.link.report_action(action).await;
        } else {
            self.report_life();
        }
    }

    /// Answers a permission request: allowed once, because the sandbox confines the agent.
    ///
    /// # Errors
    ///
    /// If the agent asks without end.
    pub(super) async fn answer_permission(&mut self, params: &Value) -> Result<Value, String> {
        self.flush().await;
        let count = {
            let mut turn = self.turn();
            turn.permissions += 1;
            turn.permissions
        };
        if count > MAX_PERMISSIONS {
            return Err(format!("it asked for {MAX_PERMISSIONS} permissions in one turn"));
        }
        let options = params["options"].as_array().map(Vec::as_slice).unwrap_or_default();
        // Never `allow_always`: some agents fail on it, and the next question is answered too.
        let once = options.iter().find(|option| option["kind"] == "allow_once");
        let title = title_of(&params["toolCall"]);
        self.report(WorkerAction::Permission { title, allowed: once.is_some() }).await;
        Ok(match once {
            Some(option) => json!({ "outcome": "selected", "optionId": option["optionId"] }),
            None => json!({ "outcome": "cancelled" }),
        })
    }

    fn turn(&self) -> std::sync::MutexGuard<'_, TurnState> {
        self.turn.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl TurnState {
    fn take_usage(&mut self, update: &Value) {
        if let Some(usd) = update["cost"]["amount"].as_f64() {
            self.text.report.usd = Usd::from_dollars(usd);
        }
    }
}

fn tool_action(update: &Value) -> Option<WorkerAction> {
    let status = match update["status"].as_str() {
        Some("completed") => WorkerToolStatus::Completed,
        Some("failed") => WorkerToolStatus::Failed,
        // Only the first message about a call; later ones repeat it.
        _ if update["sessionUpdate"] == "tool_call" => WorkerToolStatus::Begun,
        _ => return None,
    };
    let id = update["toolCallId"].as_str().unwrap_or_default().chars().take(100).collect();
    Some(WorkerAction::Tool { id, title: title_of(update), status })
}

fn title_of(call: &Value) -> String {
    call["title"].as_str().unwrap_or_default().chars().take(TITLE_CHARS).collect()
}
