//! The body of a session's latest request, to which the next request appends.

use adjutant_core::Message;
use bytes::Bytes;

use super::history_repair::HistoryRepair;
use super::json::raw;
use super::{Wire, WireCodec, anthropic, chat, gemini, responses};
use crate::model::TurnRequest;

/// The request body of one session, reused across turns.
#[derive(Debug, Default)]
pub struct SessionBody {
    body: Bytes,
    /// The length of the prefix that all later requests share.
    stable: usize,
    /// The number of messages in that prefix.
    messages: usize,
    /// The lengths of the system prompt and the tool list at the start of the body.
    preamble: (usize, usize),
    group: OpenMessage,
    tidy: HistoryRepair,
}

impl SessionBody {
    /// Returns the length of the prefix that all later requests of the session share.
    #[must_use]
    pub fn stable_len(&self) -> usize {
        self.stable
    }

    /// Returns the body without copying it.
    pub(crate) fn body(&self) -> Bytes {
        self.body.clone()
    }

    pub(super) fn renew(&mut self, codec: &WireCodec, request: &TurnRequest<'_>) -> &[u8] {
        // Drops the tail of the previous request; the allocation is reused if that request is no longer being
        // sent.
        let mut out = Vec::from(std::mem::take(&mut self.body));
        out.truncate(self.stable);
        // Withdrawn tools stay listed, because the history refers to them and removing them would invalidate
        // the cache.
        let withdrawn = !request.may_call_tools && !request.tools.is_empty();
        let preamble = (request.system.len(), request.tools.len());
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

/// The role of the message that is still open at the end of the body.
///
/// Two APIs require consecutive parts of one role in one message. So the last part is left open in the kept
/// body: the next one either joins it or closes it, and written bytes never change.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum OpenMessage {
    /// There is no message yet.
    #[default]
    Empty,
    /// A user message.
    User,
    /// A model message.
    Model,
}

impl OpenMessage {
    /// Starts the next part, in the open message or in a new one, and leaves it open.
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
