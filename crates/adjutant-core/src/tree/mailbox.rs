//! Words from a person: taken into an agent's mailbox, handed over right before a model call.
//!
//! A word is recorded when it is taken and again when it is handed over, so that a mailbox survives
//! a crash. Invariant: nothing is handed over between a tool call and its results.

use super::Tree;
use super::node::Node;
use super::turn::{LAST_CALL, UnrecordedReservations};
use crate::event::Event;
use crate::ids::SessionId;
use crate::refusal::{Refusal, TellProblem};

/// The most bytes of one word to an agent. Inclusive.
pub const TELL_BYTES: usize = 16 * 1024;
/// The most words that may wait for one agent. Inclusive.
pub const MAILBOX: usize = 64;

impl Tree {
    /// Takes a word for an agent, or says why it would never be heard.
    pub(super) fn hear(&self, session: SessionId, text: String) -> Result<Vec<Event>, Refusal> {
        let no = |problem| Err(Refusal::MessageRejected { session, problem });
        let Some((_, node)) = self.live(session) else { return no(TellProblem::NotLive) };
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

    /// Returns the waiting words that fit before the next call of a node, the oldest first.
    ///
    /// What would leave less than a full answer stays where it is: a word must not cost an agent
    /// its report.
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

/// Returns a word as the agent reads it.
fn quoted(text: &str) -> String {
    let mut word = "The person you work for says, while you are at work:\n".to_owned();
    for line in text.trim_end().lines() {
        word += if line.is_empty() { "\n>" } else { "\n> " };
        word += line;
    }
    word + "\n\nTake this into account and go on."
}
