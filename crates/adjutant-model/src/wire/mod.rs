//! The four wire formats of the providers, behind one codec.
//!
//! Owns the encoding of requests and the decoding of event streams. It opens no connection and knows no key.
//! Start at [`WireCodec::encode`] and [`WireCodec::reader`]. Invariants: except for its tail, a request body
//! only grows; a reader returns `Ok` only after the provider's end event.

pub(crate) mod anthropic;
pub(crate) mod chat;
pub(crate) mod gemini;
mod history_repair;
pub(crate) mod json;
mod reader;
pub(crate) mod responses;
mod session_bodies;
mod session_body;
mod strict;
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
use crate::settings::{ModelSettings, ReasoningEffort};

/// The API that a server implements.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Wire {
    /// Anthropic Messages.
    Anthropic,
    /// OpenAI Chat Completions, which most other servers also support.
    Chat,
    /// OpenAI Responses.
    Responses,
    /// Gemini `generateContent`.
    Gemini,
}

impl Wire {
    /// All wire formats, in display order.
    pub const ALL: [Self; 4] = [Self::Anthropic, Self::Chat, Self::Responses, Self::Gemini];

    /// Returns the name used in the configuration.
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

/// Returned for an unknown name of a wire format.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{word}` is not a wire format; known are anthropic, chat, responses, gemini{}", suggestion_text(.nearest))]
pub struct UnknownWire {
    /// The word.
    pub word: String,
    /// The most similar name.
    pub nearest: Option<&'static str>,
}

fn suggestion_text(nearest: &Option<&'static str>) -> String {
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

/// Encodes requests and decodes streams, for one model and wire format.
#[derive(Clone, Debug)]
pub struct WireCodec {
    /// The wire format.
    pub wire: Wire,
    /// The provider's name for the model.
    pub model: String,
    /// Whether this is OpenAI or Anthropic itself, which know a few fields that compatible servers do not.
    pub official: bool,
    /// Whether the model returns encrypted reasoning that must be sent back.
    pub reasoning: bool,
    /// The user's settings.
    pub settings: ModelSettings,
}

impl WireCodec {
    /// Returns the body of a request, reusing the session's previous body in `kept`.
    ///
    /// Serializes only the new messages.
    pub fn encode<'k>(&self, kept: &'k mut SessionBody, request: &TurnRequest<'_>) -> &'k [u8] {
        kept.renew(self, request)
    }

    /// Returns a reader for the answer to turn `turn`.
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

    /// Returns the path of requests below the base URL.
    pub(crate) fn path(&self) -> String {
        match self.wire {
            Wire::Anthropic => "/messages".to_owned(),
            Wire::Chat => "/chat/completions".to_owned(),
            Wire::Responses => "/responses".to_owned(),
            Wire::Gemini => format!("/models/{}:streamGenerateContent", self.model),
        }
    }

    /// Returns the reasoning effort to ask for; `None` for models that would refuse the field.
    fn effort(&self, request: &TurnRequest<'_>) -> Option<ReasoningEffort> {
        let refuses = WITHOUT_EFFORT.iter().any(|model| self.model.starts_with(model));
        request.effort.filter(|_| self.reasoning && !refuses)
    }

    /// Wraps opaque content that must be sent back, labelled with its model.
    fn seal(&self, content: Vec<Value>) -> Value {
        json!({ "wire": self.wire.as_str(), "model": self.model, "content": content })
    }

    /// Unwraps opaque content if it came from this model.
    fn unseal<'v>(&self, opaque: &'v Option<Value>) -> Option<&'v [Value]> {
        let opaque = opaque.as_ref()?;
        let ours = opaque.get("wire")?.as_str()? == self.wire.as_str()
            && opaque.get("model")?.as_str()? == self.model;
        ours.then(|| opaque.get("content")?.as_array().map(Vec::as_slice)).flatten()
    }
}

/// Models that reason and refuse the field for the effort, by the beginning of their names.
const WITHOUT_EFFORT: [&str; 8] = [
    "claude-3",
    "claude-haiku-4",
    "claude-opus-4-0",
    "claude-opus-4-1",
    "claude-opus-4-2",
    "claude-sonnet-4-0",
    "claude-sonnet-4-2",
    "claude-sonnet-4-5",
];

/// The replacement for an answer without text, because APIs refuse an empty turn.
const SILENCE: &str = "(no answer)";
/// The replacement for an empty user message.
const NOTHING: &str = "(empty)";

/// The prefix of ids that we generate.
const OUR_ID: &str = "adjutant_call_";

/// Makes an id for a call without one; deterministic, so replays get the same id.
fn own_id(turn: u32, place: usize) -> String {
    format!("{OUR_ID}{turn}_{place}")
}
