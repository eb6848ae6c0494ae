//! The body of a session's latest request, kept so that the next one only appends to it.

use adjutant_core::Message;
use bytes::Bytes;

use super::history_repair::HistoryRepair;
use super::json::raw;
use super::{Wire, WireCodec, anthropic, chat, gemini, responses};
use crate::model::TurnRequest;

/// What is kept of one session's requests.
#[derive(Debug, Default)]
pub struct SessionBody {
    body: Bytes,
    /// The bytes before the tail, which every later request begins with.
    stable: usize,
    /// How many messages those bytes hold.
    messages: usize,
    /// Lengths of the system prompt and the tool list the body began with.
    preamble: (usize, usize),
    group: OpenMessage,
    tidy: HistoryRepair,
}

impl SessionBody {
    /// Returns how many bytes every later request of the session begins with.
    #[must_use]
    pub fn stable_len(&self) -> usize {
        self.stable
    }

    /// Returns the body, shared instead of copied.
    pub(crate) fn body(&self) -> Bytes {
        self.body.clone()
    }

    pub(super) fn renew(&mut self, codec: &WireCodec, request: &TurnRequest<'_>) -> &[u8] {
        // Without the latest request's tail; the allocation is reused once nobody sends it.
        let mut out = Vec::from(std::mem::take(&mut self.body));
        out.truncate(self.stable);
        // Tools that are withdrawn stay listed: the history refers to them, and so does the cache.
        let withdrawn = request.tools.is_empty() && self.preamble.1 > 0;
        let tools = if withdrawn { self.preamble.1 } else { request.tools.len() };
        let preamble = (request.system.len(), tools);
        if out.is_empty() || preamble != self.preamble || request.messages.len() < self.messages {
            out.clear();
            *self = Self { preamble, ..Self::default() };
            match codec.wire {
                Wire::Anthropic => anthropic::open(codec, &mut out, request),
                Wire::Chat => chat::open(codec, &mut out, request),
                Wire::Responses => responses::open(codec, &mut out, request),
                Wire::Gemini => gemini::open(&mut out, request),
            }
        }
        for place in self.messages..request.messages.len() {
            self.append(codec, &mut out, request.messages, place);
        }
        self.messages = request.messages.len();
        self.stable = out.len();
        match codec.wire {
            Wire::Anthropic => anthropic::close(codec, &mut out, self.group, request, withdrawn),
            Wire::Chat => chat::close(codec, &mut out, request, withdrawn),
            Wire::Responses => responses::close(codec, &mut out, request, withdrawn),
            Wire::Gemini => gemini::close(codec, &mut out, self.group, request, withdrawn),
        }
        self.body = Bytes::from(out);
        &self.body
    }

    fn append(&mut self, codec: &WireCodec, out: &mut Vec<u8>, messages: &[Message], place: usize) {
        let tidied = self.tidy.next(&messages[place]);
        let message = &*tidied;
        match codec.wire {
            Wire::Anthropic => anthropic::append(codec, out, &mut self.group, message),
            Wire::Chat => chat::append(codec, out, message),
            Wire::Responses => responses::append(codec, out, message),
            Wire::Gemini => {
                let before = &messages[..place];
                gemini::append(codec, out, &mut self.group, before, message);
            }
        }
    }
}

/// Who speaks in the message that is still open.
///
/// Two APIs want everything one side says in one message. So the last part is left open in what is
/// kept: the next one either joins it or closes it, and nothing written is ever changed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum OpenMessage {
    /// Nothing was said yet.
    #[default]
    Empty,
    /// Our side.
    User,
    /// The model.
    Model,
}

impl OpenMessage {
    /// Begins the next part, in the open message or in a new one; the part is left open.
    pub(super) fn begin(&mut self, out: &mut Vec<u8>, speaker: Self, head: &str) {
        if *self == speaker {
            raw(out, "},");
        } else {
            if *self != Self::Empty {
                raw(out, "}]},");
            }
            raw(out, head);
        }
        *self = speaker;
    }

    /// Closes the open part and its message.
    pub(super) fn end(self, out: &mut Vec<u8>) {
        if self != Self::Empty {
            raw(out, "}]}");
        }
    }
}
