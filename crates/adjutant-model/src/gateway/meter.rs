//! Reads the usage and the end of an answer while it passes through.
//!
//! The counts are converted by the same types that the project's own clients use, so that both bill alike. The
//! meter keeps no text: a stream needs memory only for its current event.
//!
//! Start at [`UsageMeter::push_bytes`].

mod events;

use adjutant_core::{AttemptError, StopReason, Usage};

use self::events::AnswerFacts;
use crate::sse::{LineTooLong, SseDecoder};
use crate::wire::Wire;

/// The maximum size of an answer that is not a stream: 64 MiB. The usage of a larger one is unknown.
const MAX_BODY_BYTES: usize = 64 << 20;

/// What the meter read of one answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MeteredAnswer {
    /// The reported usage. It is final if `end` is `Complete`, `Cut` or `Refused`; otherwise it is a lower bound.
    pub usage: Option<Usage>,
    /// How the answer ended.
    pub end: AnswerEnd,
}

/// How an answer ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AnswerEnd {
    /// The model finished its answer or its tool calls.
    Complete,
    /// The answer reached its output limit or the end of the context window.
    Cut,
    /// The model or the provider's filter refused to answer.
    Refused,
    /// The answer has no end, or cannot be read.
    Broken,
    /// The provider reported an error, or an end that is not an answer.
    Failed {
        /// A message without keys.
        message: String,
    },
}

/// Reads the usage of one answer from its bytes.
#[derive(Debug)]
pub struct UsageMeter {
    facts: AnswerFacts,
    source: AnswerSource,
    is_unreadable: bool,
}

#[derive(Debug)]
enum AnswerSource {
    /// Server-sent events.
    Stream(SseDecoder),
    /// One JSON body, kept until its end.
    Whole(Vec<u8>),
}

impl UsageMeter {
    /// Creates a meter for one answer; `is_streaming` as in [`ServedRequest`](super::ServedRequest).
    #[must_use]
    pub fn new(wire: Wire, is_streaming: bool) -> Self {
        let source = if is_streaming {
            AnswerSource::Stream(SseDecoder::default())
        } else {
            AnswerSource::Whole(Vec::new())
        };
        Self { facts: AnswerFacts::new(wire), source, is_unreadable: false }
    }

    /// Processes the next bytes of the answer.
    pub fn push_bytes(&mut self, chunk: &[u8]) {
        if self.is_unreadable {
            return;
        }
        match &mut self.source {
            AnswerSource::Stream(decoder) => {
                let facts = &mut self.facts;
                let read = decoder.push_bytes::<UnreadableAnswer>(chunk, &mut |data| {
                    if facts.wants_more() { facts.read_event(data) } else { Ok(()) }
                });
                self.is_unreadable = read.is_err();
            }
            AnswerSource::Whole(body) if body.len() + chunk.len() > MAX_BODY_BYTES => {
                *body = Vec::new();
                self.is_unreadable = true;
            }
            AnswerSource::Whole(body) => body.extend_from_slice(chunk),
        }
        if self.is_unreadable {
            // Frees the kept bytes.
            self.source = AnswerSource::Whole(Vec::new());
        }
    }

    /// Returns whether the end of a streamed answer was read; what follows does not matter.
    #[must_use]
    pub fn has_ended(&self) -> bool {
        matches!(self.source, AnswerSource::Stream(_)) && !self.facts.wants_more()
    }

    /// Returns what was read, after the last bytes.
    #[must_use]
    pub fn finish(mut self) -> MeteredAnswer {
        if !self.is_unreadable
            && let AnswerSource::Whole(body) = &self.source
        {
            self.is_unreadable = self.facts.read_body(body).is_err();
        }
        let usage = self.facts.usage();
        let end = if let Some(message) = self.facts.failure.take() {
            AnswerEnd::Failed { message }
        } else if self.is_unreadable || !self.facts.has_ended() {
            AnswerEnd::Broken
        } else {
            AnswerEnd::from(self.facts.stop_reason())
        };
        MeteredAnswer { usage, end }
    }
}

impl From<Result<StopReason, AttemptError>> for AnswerEnd {
    fn from(stop: Result<StopReason, AttemptError>) -> Self {
        match stop {
            Ok(StopReason::EndTurn | StopReason::ToolUse) => Self::Complete,
            Ok(StopReason::MaxOutput) => Self::Cut,
            Ok(StopReason::Refused) => Self::Refused,
            Err(error) => Self::Failed { message: error.message },
        }
    }
}

/// Returned for an answer that is not as its API describes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct UnreadableAnswer;

impl From<LineTooLong> for UnreadableAnswer {
    fn from(_: LineTooLong) -> Self {
        Self
    }
}

impl From<serde_json::Error> for UnreadableAnswer {
    fn from(_: serde_json::Error) -> Self {
        Self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_stream_of_small_events_needs_no_memory() {
        let event = format!(
            "data: {{\"choices\":[{{\"delta\":{{\"content\":\"{}\"}}}}]}}\n\n",
            "word ".repeat(10)
        );
        let chunk = event.repeat(100);
        let mut meter = UsageMeter::new(Wire::Chat, true);
        // Chunks that end inside an event.
        let (start, rest) = chunk.as_bytes().split_at(33);
        meter.push_bytes(start);
        for _ in 0..50_000_000 / chunk.len() {
            meter.push_bytes(rest);
            meter.push_bytes(start);
        }
        let AnswerSource::Stream(decoder) = &meter.source else { panic!("a stream") };
        assert!(decoder.held_bytes() < 1_000, "{}", decoder.held_bytes());
        assert_eq!(meter.finish().end, AnswerEnd::Broken);
    }
}
