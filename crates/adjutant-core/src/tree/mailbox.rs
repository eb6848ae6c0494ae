//! A person's messages to an agent: queued in its mailbox, delivered right before a model call.
//!
//! A message is recorded when it is queued and again when it is delivered, so that the mailbox
//! survives a crash. Invariant: no message is delivered between a tool call and its result.

use super::Tree;
use super::node::Node;
use super::turn::{LAST_CALL, UnrecordedReservations};
use crate::event::Event;
use crate::ids::SessionId;
use crate::outcome::{DelegationState, Outcome};
use crate::refusal::{Refusal, TellProblem};

/// The most bytes of one message. Inclusive.
pub const TELL_BYTES: usize = 16 * 1024;
/// The most messages that may wait for one agent. Inclusive.
pub const MAILBOX: usize = 64;

impl Tree {
    /// Queues a message for an agent, or refuses it if it cannot be delivered.
    pub(super) fn queue_message(
        &self,
        session: SessionId,
        text: String,
    ) -> Result<Vec<Event>, Refusal> {
        let no = |problem| Err(Refusal::MessageRejected { session, problem });
        let Some((_, node)) = self.live(session) else { return no(self.why_not_live(session)) };
        if node.model.is_none() {
            return no(TellProblem::NoAgent);
        }
        if text.trim().is_empty() {
            return no(TellProblem::Empty);
        }
        if text.len() > TELL_BYTES {
            return no(TellProblem::TooLong { bytes: text.len(), max: TELL_BYTES });
        }
        if node.mailbox.len() >= MAILBOX {
            return no(TellProblem::Full { max: MAILBOX });
        }
        Ok(vec![Event::Messaged { session, text }])
    }

    /// Returns why a session that is not live receives no message.
    fn why_not_live(&self, session: SessionId) -> TellProblem {
        let (Some(run), Some(node)) = (self.run, self.node(session)) else {
            return TellProblem::NotLive;
        };
        if node.state() == DelegationState::Ended(Outcome::Blocked) {
            TellProblem::Blocked { run }
        } else {
            TellProblem::Ended { run }
        }
    }

    /// Returns the waiting messages that fit before the next model call of a node, the oldest
    /// first.
    ///
    /// A message that would leave less room than a full answer stays queued: it must not cost the
    /// agent its report.
    pub(super) fn mail(
        &self,
        index: usize,
        node: &Node,
        held: &UnrecordedReservations,
    ) -> Vec<String> {
        let mut words = Vec::new();
        let mut bytes = LAST_CALL.len() as u64;
        for text in &node.mailbox {
            let word = quoted(text);
            bytes += word.len() as u64;
            if self.room(index, node, bytes, held).max_output < self.output_wish(node) {
                break;
            }
            words.push(word);
        }
        words
    }
}

/// Formats a message as a quote for the agent.
fn quoted(text: &str) -> String {
    let mut word = "The person you work for says, while you are at work:\n".to_owned();
    for line in text.trim_end().lines() {
        word += if line.is_empty() { "\n>" } else { "\n> " };
        word += line;
    }
    word + "\n\nTake this into account and go on."
}
