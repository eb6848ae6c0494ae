//! The complete conversation of one delegation, however it ended.
//!
//! A [`Transcript`] is that conversation with facts about the delegation; [`TranscriptOutcome`]
//! says how it ended, or that it has not, and a [`TranscriptAction`] is what an external worker did
//! between its prompt and its answer.

mod worker_actions;

use std::fmt::Write;

use adjutant_core::{
    Conversation, DelegationState, ErrorCode, Message, Outcome, RunId, SessionId, ToolCall,
};
use serde::Serialize;

use crate::layout::fit;
use crate::run::{Delegation, DelegationWarning, ProcessLiveness, RunView, brief_arguments};
use crate::sanitize;
use crate::time_text::rfc3339;
use crate::timed_event::TimedEvent;
use crate::wire::{ReasonJson, SpendJson, VERSION};

pub use worker_actions::TranscriptAction;

/// How the conversation ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum TranscriptOutcome {
    /// With a final answer.
    Success,
    /// Its context window was full.
    ContextExhausted,
    /// It ran out of time.
    Timeout,
    /// A person or its parent cancelled it.
    Cancelled,
    /// It ended for another reason, with some findings.
    Partial,
    /// It needs an answer from outside.
    Blocked,
    /// It was refused, or not approved.
    Refused,
    /// It failed.
    Error,
    /// It has not ended.
    InProgress,
    /// It had not ended when its process died.
    Interrupted,
}

impl TranscriptOutcome {
    fn of(delegation: &Delegation, liveness: ProcessLiveness) -> Self {
        let outcome = match (&delegation.state, liveness) {
            (DelegationState::Ended(outcome), _) => *outcome,
            (
                DelegationState::AwaitingApproval
                | DelegationState::Queued
                | DelegationState::Running,
                ProcessLiveness::Alive,
            ) => {
                return Self::InProgress;
            }
            (
                DelegationState::AwaitingApproval
                | DelegationState::Queued
                | DelegationState::Running,
                ProcessLiveness::Dead,
            ) => {
                return Self::Interrupted;
            }
        };
        let code = delegation.reason.as_ref().map(|reason| reason.code);
        match (outcome, code) {
            (Outcome::Completed, _) => Self::Success,
            (Outcome::Blocked, _) => Self::Blocked,
            (Outcome::Refused, _) => Self::Refused,
            (Outcome::Cancelled, _) => Self::Cancelled,
            (Outcome::Partial | Outcome::Failed, Some(ErrorCode::ContextExhausted)) => {
                Self::ContextExhausted
            }
            (Outcome::Partial | Outcome::Failed, Some(ErrorCode::Timeout)) => Self::Timeout,
            (Outcome::Partial, _) => Self::Partial,
            (Outcome::Failed, _) => Self::Error,
        }
    }

    const fn word(self) -> &'static str {
        match self {
            Self::Success => "success",
            Self::ContextExhausted => "context exhausted",
            Self::Timeout => "timeout",
            Self::Cancelled => "cancelled",
            Self::Partial => "partial",
            Self::Blocked => "blocked",
            Self::Refused => "refused",
            Self::Error => "error",
            Self::InProgress => "in progress",
            Self::Interrupted => "interrupted",
        }
    }
}

/// The conversation of one delegation.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Transcript {
    /// The version of the format.
    pub v: u32,
    /// The label.
    pub label: String,
    /// The session id.
    pub session_id: SessionId,
    /// The run it belongs to.
    pub run: Option<RunId>,
    /// The name of the agent.
    pub agent: String,
    /// The model that ran it.
    pub model: Option<String>,
    /// The external worker that did its work, if one did.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub worker: Option<String>,
    /// When it started, RFC 3339 in UTC.
    pub started_at: Option<String>,
    /// When it ended.
    pub ended_at: Option<String>,
    /// How it ended.
    pub outcome: TranscriptOutcome,
    /// Why it ended this way.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<ReasonJson>,
    /// The messages in order, including the final answer.
    pub messages: Vec<Message>,
    /// The indexes of the messages with which a fresh conversation begins, after the context was full.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub continued_at: Vec<usize>,
    /// What the worker said and did between the messages.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub actions: Vec<TranscriptAction>,
    /// Tokens and cost of its model calls.
    #[serde(flatten)]
    pub spent: SpendJson,
    /// Its notes.
    pub notes: Vec<String>,
    /// The files its tools touched.
    pub files: Vec<String>,
    /// Problems that it continued despite.
    pub warnings: Vec<String>,
}

impl Transcript {
    /// Folds the history of a run into the transcript of one session. Returns `None` if the run does not have
    /// it.
    pub fn of<'a>(
        entries: impl IntoIterator<Item = TimedEvent<'a>>,
        session: SessionId,
        liveness: ProcessLiveness,
    ) -> Option<Self> {
        let mut view = RunView::default();
        let mut conversation = Conversation::with_earlier();
        for entry in entries {
            view.apply(entry);
            conversation.enter_run(entry.event);
            if entry.event.conversation() == Some(session) {
                conversation.apply(entry.event);
            }
        }
        Self::of_parts(&view, session, &conversation, liveness)
    }

    /// Builds the transcript from two folds, for callers that already have them.
    #[must_use]
    pub fn of_parts(
        view: &RunView,
        session: SessionId,
        conversation: &Conversation,
        liveness: ProcessLiveness,
    ) -> Option<Self> {
        let delegation = view.delegation(session)?;
        let lengths = conversation.all().map(<[Message]>::len);
        let mut ends: Vec<usize> = lengths
            .scan(0, |end, length| {
                *end += length;
                Some(*end)
            })
            .collect();
        // The last conversation was not continued.
        ends.pop();
        Some(Self {
            v: VERSION,
            label: delegation.label.to_string(),
            session_id: session,
            run: view.run(),
            agent: delegation.agent.to_string(),
            model: delegation.model.clone(),
            worker: delegation.worker.as_ref().map(|worker| worker.name.clone()),
            started_at: delegation.started.map(|moment| rfc3339(moment.wall_ms)),
            ended_at: delegation.ended.map(|moment| rfc3339(moment.wall_ms)),
            outcome: TranscriptOutcome::of(delegation, liveness),
            reason: delegation.reason.as_ref().map(Into::into),
            messages: conversation.all().flatten().cloned().collect(),
            continued_at: ends,
            actions: worker_actions::join(conversation.worker_actions()),
            spent: (&delegation.own).into(),
            notes: delegation.notes.clone(),
            files: delegation.files.iter().map(ToString::to_string).collect(),
            warnings: delegation.warnings.iter().map(DelegationWarning::to_string).collect(),
        })
    }

    /// Renders the conversation as text. Messages are indented, so that their content cannot imitate the next
    /// speaker.
    #[must_use]
    pub fn render(&self) -> String {
        let label = sanitize::label(&self.label);
        let mut text = format!("[{label}] {} {}\n", self.session_id, self.outcome.word());
        let model = self.model.as_deref().unwrap_or("no model");
        // Writing to a string cannot fail, here and below.
        let worker = self.worker.as_ref().map(|name| format!(" ({})", fit(name, 32)));
        let (agent, worker) = (fit(&self.agent, 32), worker.unwrap_or_default());
        let _ = writeln!(text, "{agent}{worker}, {}", fit(model, 60));
        let began = match &self.started_at {
            Some(began) => format!("began {began}"),
            None => "never began".to_owned(),
        };
        let _ = match &self.ended_at {
            Some(ended) => writeln!(text, "{began}, ended {ended}"),
            None if self.started_at.is_some() => writeln!(text, "{began}, has not ended"),
            None => writeln!(text, "has not begun"),
        };
        for (place, message) in self.messages.iter().enumerate() {
            if let Ok(number) = self.continued_at.binary_search(&place) {
                let _ = writeln!(text, "\n── continuation {} ──", number + 1);
            }
            text.push_str(&self.render_actions(place, Some(message)));
            text.push_str(&render_message(message));
        }
        text.push_str(&self.render_actions(self.messages.len(), None));
        if let Some(reason) = &self.reason {
            let _ = write!(text, "\n── {} ──\n", reason.code);
            indent(&mut text, &reason.message);
            indent(&mut text, &reason.recommendation);
        }
        text
    }

    /// Renders what the worker did directly before one message.
    fn render_actions(&self, place: usize, next: Option<&Message>) -> String {
        let start = self.actions.partition_point(|it| it.before < place);
        let end = self.actions.partition_point(|it| it.before <= place);
        let worker = self.worker.as_deref().unwrap_or("worker");
        worker_actions::render(worker, &self.actions[start..end], next)
    }
}

fn render_message(message: &Message) -> String {
    match message {
        Message::User { content } => message_block("user", content),
        Message::Assistant { content, tool_calls, opaque: _ } => {
            let mut text = message_block("assistant", content);
            for call in tool_calls {
                text.push_str(&tool_call_line(call));
            }
            text
        }
        Message::Tool { tool_call_id, content, is_error } => {
            let error = if *is_error { ", error" } else { "" };
            message_block(&format!("tool {}{error}", fit(tool_call_id, 40)), content)
        }
    }
}

fn tool_call_line(call: &ToolCall) -> String {
    let arguments = fit(&brief_arguments(&call.arguments), 120);
    format!("  → {} {arguments} ({})\n", fit(&call.name, 32), fit(&call.id, 40))
}

fn message_block(who: &str, content: &str) -> String {
    let mut text = format!("\n── {who} ──\n");
    indent(&mut text, content);
    text
}

fn indent(text: &mut String, content: &str) {
    let safe = sanitize::block(content.trim_end());
    for line in safe.lines() {
        let _ = writeln!(text, "{}", format!("  {line}").trim_end());
    }
}
