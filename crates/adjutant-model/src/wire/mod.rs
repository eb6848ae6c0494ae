//! The four ways providers spell a conversation, behind one codec.
//!
//! Owns request bodies and the reading of event streams. It opens no connection and knows no key.
//! Start at [`WireCodec::encode`] and [`WireCodec::reader`]. Invariants: a request body is only ever
//! appended to, save for its tail; a reader says `Ok` only after the provider's own end event.

mod anthropic;
mod chat;
mod gemini;
mod history_repair;
mod json;
mod reader;
mod responses;
mod session_bodies;
mod session_body;
mod surrogates;

use std::fmt;
use std::str::FromStr;

use adjutant_core::nearest;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

pub use reader::AnswerReader;
pub(crate) use session_bodies::SessionBodies;
pub use session_body::SessionBody;

use crate::model::TurnRequest;
use crate::settings::ModelSettings;

/// How a server wants to be spoken to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Wire {
    /// Anthropic Messages.
    Anthropic,
    /// OpenAI Chat Completions, which most other servers speak too.
    Chat,
    /// OpenAI Responses.
    Responses,
    /// Gemini `generateContent`.
    Gemini,
}

impl Wire {
    /// All wires, in the order they are listed to people.
    pub const ALL: [Self; 4] = [Self::Anthropic, Self::Chat, Self::Responses, Self::Gemini];

    /// Returns the word that configuration uses.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Anthropic => "anthropic",
            Self::Chat => "chat",
            Self::Responses => "responses",
            Self::Gemini => "gemini",
        }
    }
}

impl fmt::Display for Wire {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Says that a word names no wire.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{word}` is no wire; known are anthropic, chat, responses, gemini{}", meant(.nearest))]
pub struct UnknownWire {
    /// The word.
    pub word: String,
    /// What was probably meant.
    pub nearest: Option<&'static str>,
}

fn meant(nearest: &Option<&'static str>) -> String {
    nearest.map(|word| format!("; did you mean {word}")).unwrap_or_default()
}

impl FromStr for Wire {
    type Err = UnknownWire;

    fn from_str(word: &str) -> Result<Self, UnknownWire> {
        let known = Self::ALL.into_iter().find(|wire| wire.as_str() == word);
        known.ok_or_else(|| UnknownWire {
            word: word.to_owned(),
            nearest: nearest(word, Self::ALL.map(Self::as_str)),
        })
    }
}

/// Turns requests into bodies and streams into replies, for one model on one wire.
#[derive(Clone, Debug)]
pub struct WireCodec {
    /// How the server speaks.
    pub wire: Wire,
    /// The model, as the server names it.
    pub model: String,
    /// Whether this is OpenAI itself, which wants a few fields that lookalikes do not know.
    pub official: bool,
    /// Whether the model thinks before it answers and hands back what it thought, encrypted.
    pub reasoning: bool,
    /// What a person asked for.
    pub settings: ModelSettings,
}

impl WireCodec {
    /// Returns the body of a request, reusing what `kept` holds of the same session.
    ///
    /// The cost is that of the messages which are new; the rest is kept as it was sent.
    pub fn encode<'k>(&self, kept: &'k mut SessionBody, request: &TurnRequest<'_>) -> &'k [u8] {
        kept.renew(self, request)
    }

    /// Returns a reader for the answer to turn number `turn`.
    #[must_use]
    pub fn reader(&self, turn: u32) -> AnswerReader {
        let fold: Box<dyn reader::AnswerFold> = match self.wire {
            Wire::Anthropic => Box::new(anthropic::AnthropicStream::new(self)),
            Wire::Chat => Box::new(chat::ChatStream::new(self, turn)),
            Wire::Responses => Box::new(responses::ResponsesStream::new(self, turn)),
            Wire::Gemini => Box::new(gemini::GeminiStream::new(self, turn)),
        };
        AnswerReader::new(fold)
    }

    /// Returns where requests go, below the base address.
    pub(crate) fn path(&self) -> String {
        match self.wire {
            Wire::Anthropic => "/messages".to_owned(),
            Wire::Chat => "/chat/completions".to_owned(),
            Wire::Responses => "/responses".to_owned(),
            Wire::Gemini => format!("/models/{}:streamGenerateContent", self.model),
        }
    }

    /// Wraps what the provider must get back, so that no other model is ever handed it.
    fn seal(&self, content: Vec<Value>) -> Value {
        json!({ "wire": self.wire.as_str(), "model": self.model, "content": content })
    }

    /// Returns what this model gave us to hand back, when it is this model's.
    fn unseal<'v>(&self, opaque: &'v Option<Value>) -> Option<&'v [Value]> {
        let opaque = opaque.as_ref()?;
        let ours = opaque.get("wire")?.as_str()? == self.wire.as_str()
            && opaque.get("model")?.as_str()? == self.model;
        ours.then(|| opaque.get("content")?.as_array().map(Vec::as_slice)).flatten()
    }
}

/// What stands for an answer without text: APIs refuse an empty turn.
const SILENCE: &str = "(no answer)";
/// What stands for an empty message of ours.
const NOTHING: &str = "(empty)";

/// How an id begins that a provider did not give.
const OUR_ID: &str = "adjutant_call_";

/// Makes the id of a call that came without one; the same in every replay.
fn own_id(turn: u32, place: usize) -> String {
    format!("{OUR_ID}{turn}_{place}")
}
