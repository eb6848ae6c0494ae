//! The message history of one agent, as its model sees it: a fold over the events of its session.
//!
//! A [`Conversation`] is the whole history of one agent, not one message.

use std::sync::Arc;

use crate::environment::ProjectGuidance;
use crate::event::{AddedMessageReason, Event, Reopening};
use crate::message::Message;
use crate::tree::{INTERRUPTED, uses_tools};
use crate::worker::WorkerAction;

/// The messages of one delegation, in the order a model reads them.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Conversation {
    messages: Vec<Message>,
    /// The index of the message for the first tool result of the latest answer.
    results_from: usize,
    last_call: bool,
    /// What all agents of the run are told about the project.
    environment: Option<Arc<ProjectGuidance>>,
    /// How many messages at the beginning stay when the conversation begins afresh.
    fixed: usize,
    /// The indexes of the messages that say what to do: the brief and a person's messages.
    brief: Vec<usize>,
    /// The lines that the agent noted, also in earlier conversations of the same delegation.
    scratchpad: Vec<String>,
    /// The conversations that were continued; `None` if they are not kept.
    earlier: Option<Vec<Vec<Message>>>,
    /// What a worker reported, each with the number of messages before it; empty if earlier
    /// conversations are not kept.
    worker_actions: Vec<(usize, WorkerAction)>,
}

impl Conversation {
    /// Starts the conversation of an agent of a run with this environment.
    #[must_use]
    pub fn in_environment(environment: Option<Arc<ProjectGuidance>>) -> Self {
        Self { environment, ..Self::default() }
    }

    /// Takes the environment of the run from its first event, for a fold over all events of a run.
    pub fn enter_run(&mut self, event: &Event) {
        if let Event::RunStarted { environment, .. } = event {
            self.environment = environment.as_deref().cloned().map(Arc::new);
        }
    }

    /// Returns an empty conversation that also keeps what a model does not see: the messages from
    /// before a continuation, and what a worker reported.
    #[must_use]
    pub fn with_earlier() -> Self {
        Self { earlier: Some(Vec::new()), ..Self::default() }
    }

    /// Returns the conversations of the delegation in order; the last is the present one. Earlier
    /// ones are included if they were kept.
    pub fn all(&self) -> impl Iterator<Item = &[Message]> {
        let earlier = self.earlier.iter().flatten().map(Vec::as_slice);
        earlier.chain([self.messages.as_slice()])
    }

    /// Returns the messages.
    #[must_use]
    pub fn messages(&self) -> &[Message] {
        &self.messages
    }

    /// Returns what a worker reported between its prompts and its answers, in order. Each comes with
    /// its place: the number of messages before it in [`Conversation::all`].
    #[must_use]
    pub fn worker_actions(&self) -> &[(usize, WorkerAction)] {
        &self.worker_actions
    }

    /// Returns the text of the agent's latest answer.
    #[must_use]
    pub fn last_text(&self) -> Option<&str> {
        self.messages.iter().rev().find_map(|message| match message {
            Message::Assistant { content, .. } => Some(content.as_str()),
            Message::User { .. } | Message::Tool { .. } => None,
        })
    }

    /// Returns the messages that say what to do: the brief and what a person said since.
    #[must_use]
    pub fn brief(&self) -> Vec<String> {
        let text = |place: &usize| match &self.messages[*place] {
            Message::User { content } => content.clone(),
            Message::Assistant { .. } | Message::Tool { .. } => String::new(),
        };
        self.brief.iter().map(text).collect()
    }

    /// Returns the lines that the agent noted with the Note tool, the oldest first.
    #[must_use]
    pub fn scratchpad(&self) -> &[String] {
        &self.scratchpad
    }

    /// Returns the agent's latest answer that has any text.
    #[must_use]
    pub fn last_words(&self) -> Option<&str> {
        self.messages.iter().rev().find_map(|message| match message {
            Message::Assistant { content, .. } => {
                Some(content.as_str()).filter(|text| !text.trim().is_empty())
            }
            Message::User { .. } | Message::Tool { .. } => None,
        })
    }

    /// Folds in one event of this session.
    pub fn apply(&mut self, event: &Event) {
        match event {
            Event::Granted(grant) => {
                self.quote_instructions(grant.brief.instructions.as_deref());
                self.push_brief(grant.opening().into_owned());
            }
            Event::Told { nudge, text, .. } => {
                self.last_call |= matches!(
                    nudge,
                    AddedMessageReason::LastCall(_) | AddedMessageReason::HandoverNote
                );
                if *nudge == AddedMessageReason::Person {
                    self.push_brief(text.clone());
                } else {
                    self.messages.push(Message::User { content: text.clone() });
                }
            }
            Event::Replied { text, tool_calls, stop, opaque, .. } => {
                // Tool calls that are not run are left out: providers reject a history with calls
                // that have no result.
                let made = uses_tools(*stop, tool_calls, self.last_call);
                let tool_calls = if made { tool_calls.clone() } else { Vec::new() };
                let ids: Vec<String> = tool_calls.iter().map(|call| call.id.clone()).collect();
                let (content, opaque) = (text.clone(), opaque.clone());
                self.messages.push(Message::Assistant { content, tool_calls, opaque });
                self.results_from = self.messages.len();
                // Results arrive in any order, but the history lists them in the order of the
                // calls.
                self.messages.extend(ids.into_iter().map(|tool_call_id| Message::Tool {
                    tool_call_id,
                    content: String::new(),
                    is_error: false,
                }));
            }
            Event::ToolReturned { call, output, .. } => {
                self.answer(*call, &output.content, output.is_error);
                self.scratchpad.extend(output.note.clone());
            }
            Event::ToolRefused { call, text, .. } => self.answer(*call, text, true),
            Event::WorkerActed { action, .. } => {
                if self.earlier.is_some() {
                    let place = self.all().map(<[Message]>::len).sum();
                    self.worker_actions.push((place, action.clone()));
                }
            }
            Event::Reopened(reopening) => self.reopen(reopening),
            Event::Continued { brief, handover, .. } => {
                if let Some(earlier) = &mut self.earlier {
                    earlier.push(self.messages.clone());
                }
                self.begin_afresh();
                self.last_call = false;
                brief.iter().for_each(|text| self.push_brief(text.clone()));
                self.messages.push(Message::User { content: handover.clone() });
            }
            // A root without a goal has no model, and therefore no conversation.
            Event::RunStarted { goal, .. } if !goal.is_empty() => {
                self.enter_run(event);
                self.quote_instructions(None);
                self.push_brief(goal.clone());
            }
            Event::RunStarted { .. }
            | Event::Resumed { .. }
            | Event::Delegated { .. }
            | Event::AgentDefined { .. }
            | Event::Refused { .. }
            | Event::ApprovalAsked { .. }
            | Event::Approved { .. }
            | Event::AutoApproved { .. }
            | Event::DomainAsked { .. }
            | Event::DomainAllowed { .. }
            | Event::DomainDenied { .. }
            | Event::Denied { .. }
            | Event::Started { .. }
            | Event::Reserved { .. }
            | Event::AttemptFailed { .. }
            | Event::Settled { .. }
            | Event::Overran { .. }
            | Event::WorkerCallReserved { .. }
            | Event::WorkerCallRefused { .. }
            | Event::WorkerCallSettled { .. }
            | Event::WorkerSessionOpened { .. }
            | Event::WorkerReported { .. }
            | Event::Progressed { .. }
            | Event::Paused { .. }
            | Event::Messaged { .. }
            | Event::NoteSkipped { .. }
            | Event::ToolCalled { .. }
            | Event::WritePrepared { .. }
            | Event::Assigned(_)
            | Event::StoryTaken { .. }
            | Event::MarkersRead { .. }
            | Event::Checking { .. }
            | Event::Checked { .. }
            | Event::Merged { .. }
            | Event::ResultMerged { .. }
            | Event::Judged { .. }
            | Event::Marked { .. }
            | Event::SpaceMade { .. }
            | Event::Printed { .. }
            | Event::SpaceKept { .. }
            | Event::Undone { .. }
            | Event::Crashed { .. }
            | Event::Late { .. }
            | Event::Ended { .. }
            | Event::RunEnded { .. }
            | Event::ErrorFixed { .. } => {}
        }
    }

    /// Adds the project's texts as a message of their own: those of the brief, or else those of the run.
    fn quote_instructions(&mut self, own: Option<&str>) {
        let shared = self.environment.as_ref().and_then(|it| it.instructions.as_deref());
        if let Some(text) = own.or(shared) {
            self.messages.push(Message::User { content: text.to_owned() });
            self.fixed = self.messages.len();
        }
    }

    fn reopen(&mut self, reopening: &Reopening) {
        self.last_call = false;
        if reopening.afresh {
            self.begin_afresh();
        }
        for call in &reopening.unanswered {
            self.answer(*call, INTERRUPTED, true);
        }
        for (call, output) in &reopening.looked {
            self.answer(*call, &output.content, output.is_error);
        }
        reopening.text.iter().for_each(|text| self.push_brief(text.clone()));
    }

    fn begin_afresh(&mut self) {
        self.messages.truncate(self.fixed);
        self.brief.clear();
        let end = self.all().map(<[Message]>::len).sum();
        for (place, _) in &mut self.worker_actions {
            *place = (*place).min(end);
        }
    }

    fn push_brief(&mut self, content: String) {
        self.brief.push(self.messages.len());
        self.messages.push(Message::User { content });
    }

    fn answer(&mut self, call: u32, text: &str, failed: bool) {
        let place = self.results_from + call as usize;
        if let Some(Message::Tool { content, is_error, .. }) = self.messages.get_mut(place) {
            text.clone_into(content);
            *is_error = failed;
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn opaque_provider_data_is_kept_in_the_conversation_and_expires_with_the_content() {
        // As in a journal. Journals of older versions have no `opaque` field.
        let told = json!({"type":"replied","session":"sess_1735460684_aaaaaa","turn":1,"attempt":1,
            "text":"hi","stop":"end_turn","opaque":{"signature":"s"},
            "settlement":{"usage":{"input":1,"output":1},"usd":0.0,"estimated":false}});
        let mut event: Event = serde_json::from_value(told.clone()).unwrap();
        assert_eq!(serde_json::to_value(&event).unwrap()["opaque"], told["opaque"]);
        let mut talk = Conversation::default();
        talk.apply(&event);
        let [Message::Assistant { opaque: Some(opaque), .. }] = talk.messages() else {
            panic!("{talk:?}")
        };
        assert_eq!(opaque, &told["opaque"]);
        event = event.without_content();
        let kept = serde_json::to_value(&event).unwrap();
        assert!(kept.get("opaque").is_none(), "{kept}");
    }
}
