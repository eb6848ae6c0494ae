//! The message history of one agent, as its model sees it: a fold over the events of its session.
//!
//! A [`Conversation`] is the whole history of one agent, not one message.

use std::sync::Arc;

use crate::environment::Environment;
use crate::event::{AddedMessageReason, Event, Reopening};
use crate::message::Message;
use crate::tree::{INTERRUPTED, uses_tools};

/// The messages of one delegation, in the order a model reads them.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Conversation {
    messages: Vec<Message>,
    /// The index of the message for the first tool result of the latest answer.
    results_from: usize,
    last_call: bool,
    /// What all agents of the run are told about the project.
    environment: Option<Arc<Environment>>,
    /// How many messages at the beginning stay when the conversation begins afresh.
    fixed: usize,
}

impl Conversation {
    /// Starts the conversation of an agent of a run with this environment.
    #[must_use]
    pub fn in_environment(environment: Option<Arc<Environment>>) -> Self {
        Self { environment, ..Self::default() }
    }

    /// Takes the environment of the run from its first event, for a fold over all events of a run.
    pub fn enter_run(&mut self, event: &Event) {
        if let Event::RunStarted { environment, .. } = event {
            self.environment = environment.as_deref().cloned().map(Arc::new);
        }
    }

    /// Returns the messages.
    #[must_use]
    pub fn messages(&self) -> &[Message] {
        &self.messages
    }

    /// Returns the text of the agent's latest answer.
    #[must_use]
    pub fn last_text(&self) -> Option<&str> {
        self.messages.iter().rev().find_map(|message| match message {
            Message::Assistant { content, .. } => Some(content.as_str()),
            Message::User { .. } | Message::Tool { .. } => None,
        })
    }

    /// Folds in one event of this session.
    pub fn apply(&mut self, event: &Event) {
        match event {
            Event::Granted(grant) => {
                self.quote_instructions(grant.brief.instructions.as_deref());
                self.messages.push(Message::User { content: grant.opening().into_owned() });
            }
            Event::Told { nudge, text, .. } => {
                self.last_call |= matches!(nudge, AddedMessageReason::LastCall(_));
                self.messages.push(Message::User { content: text.clone() });
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
            }
            Event::ToolRefused { call, text, .. } => self.answer(*call, text, true),
            Event::Reopened(reopening) => self.reopen(reopening),
            // A root without a goal has no model, and therefore no conversation.
            Event::RunStarted { goal, .. } if !goal.is_empty() => {
                self.enter_run(event);
                self.quote_instructions(None);
                self.messages.push(Message::User { content: goal.clone() });
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
            | Event::Progressed { .. }
            | Event::Paused { .. }
            | Event::Messaged { .. }
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
            self.messages.truncate(self.fixed);
        }
        for call in &reopening.unanswered {
            self.answer(*call, INTERRUPTED, true);
        }
        for (call, output) in &reopening.looked {
            self.answer(*call, &output.content, output.is_error);
        }
        let text = reopening.text.iter().cloned();
        self.messages.extend(text.map(|content| Message::User { content }));
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
