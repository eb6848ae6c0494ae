//! Reading an answer as it arrives, whatever the wire.

use adjutant_core::{AttemptError, AttemptResult, ModelErrorKind};

use super::surrogates::SurrogateJoiner;
use crate::errors::{plain, truncated};
use crate::model::TurnProgress;
use crate::sse::{LineTooLong, MAX_LINE_BYTES, SseDecoder};

/// The most bytes one answer may have on the wire: 64 MiB.
const MAX_STREAM_BYTES: usize = 64 << 20;

/// What is told while an answer arrives.
pub(super) type ProgressListener<'a> = dyn FnMut(TurnProgress<'_>) + Send + 'a;

/// Folds the events of one answer.
pub(super) trait AnswerFold: Send + std::fmt::Debug {
    /// Takes the data of one event.
    fn event(
        &mut self,
        data: &[u8],
        progress: &mut ProgressListener<'_>,
    ) -> Result<(), AttemptError>;

    /// Says whether the provider's own end event has arrived.
    fn ended(&self) -> bool;

    /// Says whether anything that still arrives could matter.
    fn wants_more(&self) -> bool {
        !self.ended()
    }

    /// Returns the reply; called once the stream is over.
    fn finish(&mut self) -> AttemptResult;
}

/// Reads one streamed answer.
#[derive(Debug)]
pub struct AnswerReader {
    decoder: SseDecoder,
    mender: SurrogateJoiner,
    fold: Box<dyn AnswerFold>,
    bytes: usize,
    /// Whether anything came that was an event.
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

    /// Takes the next bytes, cut anywhere, and says whether the answer is complete.
    ///
    /// An API without an end event of its own is complete only when the connection ends well.
    pub fn feed(
        &mut self,
        chunk: &[u8],
        progress: &mut (dyn FnMut(TurnProgress<'_>) + Send),
    ) -> Result<bool, AttemptError> {
        self.bytes = self.bytes.saturating_add(chunk.len());
        if self.bytes > MAX_STREAM_BYTES {
            return Err(too_large("the answer is larger", MAX_STREAM_BYTES));
        }
        let (fold, mender, began) = (&mut self.fold, &mut self.mender, &mut self.began);
        self.decoder.feed(chunk, &mut |data| {
            *began = true;
            // What follows the end is not part of the answer.
            if fold.wants_more() { fold.event(&mender.mend(data), progress) } else { Ok(()) }
        })?;
        Ok(!self.fold.wants_more())
    }

    /// Returns what came of the answer, now that nothing more will arrive.
    pub fn finish(mut self) -> AttemptResult {
        if !self.began {
            return Err(truncated("the answer held not a single event; is the base URL right?"));
        }
        if !self.fold.ended() {
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
    plain(ModelErrorKind::BadRequest, &format!("{what} than {} MiB", limit >> 20))
}

/// Reads one event; what is not the JSON we know is a broken stream.
pub(super) fn parse<'a, T: serde::Deserialize<'a>>(data: &'a [u8]) -> Result<T, AttemptError> {
    serde_json::from_slice(data).map_err(|_| truncated("an event of the stream makes no sense"))
}
