//! Reads a streamed answer in any wire format.

use adjutant_core::{AttemptError, AttemptResult, ModelErrorKind};

use super::surrogates::SurrogateJoiner;
use crate::errors::{error_of_kind, truncated};
use crate::model::TurnProgress;
use crate::sse::{LineTooLong, MAX_LINE_BYTES, SseDecoder};

/// The maximum size of a streamed answer: 64 MiB.
const MAX_STREAM_BYTES: usize = 64 << 20;

/// The callback for progress during an answer.
pub(super) type ProgressListener<'a> = dyn FnMut(TurnProgress<'_>) + Send + 'a;

/// Folds the events of an answer into a reply; implemented by each wire format.
pub(super) trait AnswerFold: Send + std::fmt::Debug {
    /// Processes the data of one event.
    fn event(
        &mut self,
        data: &[u8],
        progress: &mut ProgressListener<'_>,
    ) -> Result<(), AttemptError>;

    /// Returns whether the provider's end event has arrived.
    fn has_ended(&self) -> bool;

    /// Returns whether further events could matter.
    fn wants_more(&self) -> bool {
        !self.has_ended()
    }

    /// Returns the reply; called once at the end of the stream.
    fn finish(&mut self) -> AttemptResult;
}

/// Reads a streamed answer.
#[derive(Debug)]
pub struct AnswerReader {
    decoder: SseDecoder,
    mender: SurrogateJoiner,
    fold: Box<dyn AnswerFold>,
    bytes: usize,
    /// Whether any event has arrived.
    began: bool,
}

impl AnswerReader {
    pub(super) fn new(fold: Box<dyn AnswerFold>) -> Self {
        Self {
            decoder: SseDecoder::default(),
            mender: SurrogateJoiner::default(),
            fold,
            bytes: 0,
            began: false,
        }
    }

    /// Processes the next bytes and returns whether the answer is complete.
    ///
    /// In an API without an end event, the answer is complete only when the connection closes normally.
    pub fn push_bytes(
        &mut self,
        chunk: &[u8],
        progress: &mut (dyn FnMut(TurnProgress<'_>) + Send),
    ) -> Result<bool, AttemptError> {
        self.bytes = self.bytes.saturating_add(chunk.len());
        if self.bytes > MAX_STREAM_BYTES {
            return Err(too_large("the answer is larger", MAX_STREAM_BYTES));
        }
        let (fold, mender, began) = (&mut self.fold, &mut self.mender, &mut self.began);
        self.decoder.push_bytes(chunk, &mut |data| {
            *began = true;
            // Events after the end are ignored.
            if fold.wants_more() { fold.event(&mender.mend(data), progress) } else { Ok(()) }
        })?;
        Ok(!self.fold.wants_more())
    }

    /// Returns the result after the last bytes.
    pub fn finish(mut self) -> AttemptResult {
        if !self.began {
            return Err(truncated("the answer contained no event; check the base URL"));
        }
        if !self.fold.has_ended() {
            return Err(truncated("the stream broke off before its end"));
        }
        self.fold.finish()
    }
}

impl From<LineTooLong> for AttemptError {
    fn from(_: LineTooLong) -> Self {
        too_large("one event of the answer is larger", MAX_LINE_BYTES)
    }
}

fn too_large(what: &str, limit: usize) -> AttemptError {
    error_of_kind(ModelErrorKind::BadRequest, &format!("{what} than {} MiB", limit >> 20))
}

/// Parses an event; unexpected JSON means a broken stream.
pub(super) fn parse<'a, T: serde::Deserialize<'a>>(data: &'a [u8]) -> Result<T, AttemptError> {
    serde_json::from_slice(data).map_err(|_| truncated("an event of the stream makes no sense"))
}
