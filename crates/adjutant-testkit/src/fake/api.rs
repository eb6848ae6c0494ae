//! What the four fake APIs have in common on the server side.
//!
//! Each API parses and validates requests, renders a turn as stream events, and renders its errors.
//! This module only dispatches; the wire formats are in the modules of the APIs.

use std::str::FromStr;

use serde_json::Value;

use super::http::{Head, Reply};
use super::script::SelectedTurn;
use super::turn::Fault;
use super::{anthropic, chat, gemini, responses};

/// The API that a fake speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Api {
    /// Anthropic Messages.
    Anthropic,
    /// OpenAI Chat Completions, and what is compatible with it.
    Chat,
    /// OpenAI Responses.
    Responses,
    /// Gemini.
    Gemini,
}

/// The keys and models that a fake server accepts.
#[derive(Clone, Debug, Default)]
pub(super) struct AccessRules {
    /// The required API key; `None` accepts every request.
    pub(super) key: Option<String>,
    /// The known models; if empty, every name is accepted.
    pub(super) models: Vec<String>,
}

/// The parts of a valid request that the answer depends on.
#[derive(Clone, Debug, Default)]
pub(super) struct ValidRequest {
    pub(super) model: String,
    /// The system prompt.
    pub(super) system: String,
    /// The first user message.
    pub(super) task: String,
    /// How many turns the model has taken.
    pub(super) turns: usize,
    /// The size of the body.
    pub(super) bytes: usize,
    /// Whether the stream carries usage (Chat asks for it).
    pub(super) usage: bool,
    /// Whether thinking comes sealed (Responses asks for it) or signed (some Gemini models).
    pub(super) sealed: bool,
}

/// Why a request is refused before its body is validated.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum RejectedRequest {
    UnknownPath,
    WrongMethod,
    NoKey,
    WrongKey,
    MissingHeader(&'static str),
    WrongHeader(&'static str, String),
    NotJson(String),
    TooLarge,
    UnknownModel(String),
}

impl AccessRules {
    /// Checks the API key from a header.
    pub(super) fn admit(&self, key: Option<&str>) -> Result<(), RejectedRequest> {
        match (&self.key, key) {
            (None, _) => Ok(()),
            (Some(_), None) => Err(RejectedRequest::NoKey),
            (Some(asked), Some(given)) if asked == given => Ok(()),
            (Some(_), Some(_)) => Err(RejectedRequest::WrongKey),
        }
    }

    /// Checks that the requested model exists.
    pub(super) fn has(&self, model: &str) -> Result<(), RejectedRequest> {
        let known = self.models.is_empty() || self.models.iter().any(|name| name == model);
        if known { Ok(()) } else { Err(RejectedRequest::UnknownModel(model.to_owned())) }
    }
}

/// Parses the body, which must have a JSON content type and be valid JSON.
pub(super) fn json(head: &Head, body: &[u8]) -> Result<Value, RejectedRequest> {
    let Some(kind) = head.header("content-type") else {
        return Err(RejectedRequest::MissingHeader("content-type"));
    };
    let media = kind.split(';').next().unwrap_or_default().trim();
    if !media.eq_ignore_ascii_case("application/json") {
        return Err(RejectedRequest::WrongHeader("content-type", kind.to_owned()));
    }
    serde_json::from_slice(body).map_err(|error| RejectedRequest::NotJson(error.to_string()))
}

/// Checks path and method.
pub(super) fn route(head: &Head, path: &str) -> Result<(), RejectedRequest> {
    if head.path != path {
        return Err(RejectedRequest::UnknownPath);
    }
    if head.method == "POST" { Ok(()) } else { Err(RejectedRequest::WrongMethod) }
}

impl Api {
    /// Accepts a request or refuses it.
    pub(super) fn receive(
        self,
        head: &Head,
        body: &[u8],
        access: &AccessRules,
    ) -> Result<ValidRequest, Reply> {
        let mut request = match self {
            Self::Anthropic => anthropic::receive(head, body, access),
            Self::Chat => chat::receive(head, body, access),
            Self::Responses => responses::receive(head, body, access),
            Self::Gemini => gemini::receive(head, body, access),
        }?;
        request.bytes = body.len();
        Ok(request)
    }

    /// Renders a turn, with parts that the client must ignore and with an error in the middle of the
    /// stream if the script says so.
    pub(super) fn stream(self, request: &ValidRequest, selected: &SelectedTurn<'_>) -> Vec<String> {
        let mut events = match self {
            Self::Anthropic => anthropic::stream(request, selected),
            Self::Chat => chat::stream(request, selected),
            Self::Responses => responses::stream(request, selected),
            Self::Gemini => gemini::stream(request, selected),
        };
        if let Some((fault, after)) = selected.turn.error.as_ref().zip(after_events(selected)) {
            events.truncate(after);
            let last = match self {
                Self::Anthropic => anthropic::fault_event(fault),
                Self::Chat => chat::fault_event(fault),
                Self::Responses => responses::fault_event(request, selected, fault, events.len()),
                Self::Gemini => gemini::fault_event(fault),
            };
            events.push(last);
        }
        if selected.turn.noise {
            let noise = self.noise();
            events = events.into_iter().flat_map(|event| [event, noise.to_owned()]).collect();
        }
        events
    }

    /// Renders a failure.
    pub(super) fn fault_reply(self, fault: &Fault) -> Reply {
        let mut reply = match self {
            Self::Anthropic => anthropic::fault_reply(fault),
            Self::Chat | Self::Responses => super::openai::fault_reply(self, fault),
            Self::Gemini => gemini::fault_reply(fault),
        };
        let headers =
            [("retry-after", &fault.retry_after), ("retry-after-ms", &fault.retry_after_ms)];
        for (name, value) in headers {
            if let Some(value) = value {
                reply.headers.push((name.to_owned(), value.clone()));
            }
        }
        reply
    }

    /// Refuses a request before its body is judged.
    pub(super) fn refusal_reply(self, head: &Head, refusal: &RejectedRequest) -> Reply {
        match self {
            Self::Anthropic => anthropic::refusal_reply(refusal),
            Self::Chat | Self::Responses => super::openai::refusal_reply(head, refusal),
            Self::Gemini => gemini::refusal_reply(refusal),
        }
    }

    /// Returns the header that carries the id of an answer, where there is one.
    pub(super) const fn id_header(self) -> Option<&'static str> {
        match self {
            Self::Anthropic => Some("request-id"),
            Self::Chat | Self::Responses => Some("x-request-id"),
            Self::Gemini => None,
        }
    }

    /// Returns the media type of a stream.
    pub(super) const fn stream_type(self) -> &'static str {
        match self {
            Self::Anthropic | Self::Chat | Self::Responses => "text/event-stream; charset=utf-8",
            Self::Gemini => "text/event-stream",
        }
    }

    /// Returns an event that clients of this API must ignore.
    const fn noise(self) -> &'static str {
        match self {
            Self::Anthropic => {
                "event: ping\ndata: {\"type\":\"ping\"}\n\n\
                 event: weather\ndata: {\"type\":\"weather\",\"sky\":\"blue\"}\n\n"
            }
            Self::Chat => ": OPENROUTER PROCESSING\n\n",
            Self::Responses => {
                ": keep-alive\n\nevent: response.weather\ndata: {\"type\":\"response.weather\"}\n\n"
            }
            Self::Gemini => ": keep-alive\r\n\r\n",
        }
    }
}

fn after_events(selected: &SelectedTurn<'_>) -> Option<usize> {
    selected.turn.error.as_ref().and_then(|fault| fault.after_events)
}

impl FromStr for Api {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "anthropic" => Ok(Self::Anthropic),
            "openai" | "chat" => Ok(Self::Chat),
            "responses" => Ok(Self::Responses),
            "gemini" => Ok(Self::Gemini),
            other => Err(format!("`{other}` is none of anthropic, chat, responses, gemini")),
        }
    }
}
