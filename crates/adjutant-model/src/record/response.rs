//! The response to a request: recorded while it arrives, and replayed from the recording.

use adjutant_core::{AttemptError, AttemptResult, ModelErrorKind};
use serde::{Deserialize, Serialize};

use crate::errors::{error_of_kind, from_json, from_status};
use crate::model::TurnProgress;
use crate::wire::{Wire, WireCodec};
use adjutant_core::Secret;

/// A recorded response.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct RecordedResponse {
    /// The HTTP status; absent if there was no response.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    status: Option<u16>,
    /// The kind of the body if it is not an event stream.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    foreign: Option<NonStreamBody>,
    /// The wait that the provider asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    retry_after_ms: Option<u64>,
    #[serde(default)]
    body: RecordedBody,
    /// How the connection failed, if it did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    broke: Option<AttemptError>,
}

/// The kind of a response body that is not an event stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum NonStreamBody {
    Json,
    WebPage,
}

impl RecordedResponse {
    /// Processes the response as when it was received.
    pub(super) fn play(
        &self,
        codec: &WireCodec,
        turn: u32,
        progress: &mut (dyn FnMut(TurnProgress<'_>) + Send),
    ) -> AttemptResult {
        let bytes = self.body.bytes();
        match (self.status, self.foreign) {
            (None, _) => Err(self.broke.clone().unwrap_or_else(no_response_error)),
            (Some(200..=299), Some(kind)) => Err(non_stream_error(codec.wire, kind, &bytes, None)),
            (Some(200..=299), None) => self.read(&bytes, codec, turn, progress),
            (Some(status), _) => Err(from_status(status, &bytes, self.retry_after_ms, None)),
        }
    }

    fn read(
        &self,
        bytes: &[u8],
        codec: &WireCodec,
        turn: u32,
        progress: &mut (dyn FnMut(TurnProgress<'_>) + Send),
    ) -> AttemptResult {
        let mut reader = codec.reader(turn);
        if reader.push_bytes(bytes, progress)? {
            return reader.finish();
        }
        match &self.broke {
            Some(error) => Err(error.clone()),
            None => reader.finish(),
        }
    }
}

fn no_response_error() -> AttemptError {
    error_of_kind(ModelErrorKind::Network, "nothing came back")
}

/// Classifies a response that is not a stream: a JSON error, or another kind of server.
pub(crate) fn non_stream_error(
    wire: Wire,
    kind: NonStreamBody,
    body: &[u8],
    key: Option<&Secret>,
) -> AttemptError {
    let value: serde_json::Value = serde_json::from_slice(body).unwrap_or_default();
    if value.get("error").is_some_and(|error| !error.is_null()) {
        return from_json(&value, key);
    }
    let kind = match kind {
        NonStreamBody::Json => "JSON",
        NonStreamBody::WebPage => "a web page",
    };
    let message = format!(
        "the server answered with {kind}, not as wire `{wire}` does; is the base URL right?"
    );
    error_of_kind(ModelErrorKind::BadRequest, &message)
}

/// Collects a response while it arrives; does nothing if recording is off.
#[derive(Debug)]
pub(crate) struct ResponseRecorder(Option<(RecordedResponse, Vec<u8>)>);

impl ResponseRecorder {
    pub(crate) fn new(records: bool) -> Self {
        Self(records.then(Default::default))
    }

    /// Records the status and headers of a response.
    pub(crate) fn begin(
        &mut self,
        status: u16,
        foreign: Option<NonStreamBody>,
        retry_after_ms: Option<u64>,
    ) {
        if let Some((response, _)) = &mut self.0 {
            (response.status, response.foreign) = (Some(status), foreign);
            response.retry_after_ms = retry_after_ms;
        }
    }

    /// Records received bytes.
    pub(crate) fn record_chunk(&mut self, chunk: &[u8]) {
        if let Some((_, bytes)) = &mut self.0 {
            bytes.extend_from_slice(chunk);
        }
    }

    /// Records a connection error and returns it.
    pub(crate) fn record_connection_error(&mut self, error: AttemptError) -> AttemptError {
        if let Some((response, _)) = &mut self.0 {
            response.broke = Some(error.clone());
        }
        error
    }

    pub(super) fn into_response(self) -> Option<RecordedResponse> {
        let (response, bytes) = self.0?;
        Some(RecordedResponse { body: RecordedBody::new(bytes), ..response })
    }
}

/// A body as text, so that people can read it and keys in it can be masked.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
enum RecordedBody {
    Text(String),
    /// One character per byte, if the bytes are not UTF-8.
    Bytes {
        latin1: String,
    },
}

impl Default for RecordedBody {
    fn default() -> Self {
        Self::Text(String::new())
    }
}

impl RecordedBody {
    fn new(bytes: Vec<u8>) -> Self {
        String::from_utf8(bytes).map_or_else(
            |error| Self::Bytes {
                latin1: error.as_bytes().iter().copied().map(char::from).collect(),
            },
            Self::Text,
        )
    }

    fn bytes(&self) -> Vec<u8> {
        match self {
            Self::Text(text) => text.clone().into_bytes(),
            // Masks are ASCII, so every character that we wrote fits into a byte.
            Self::Bytes { latin1 } => {
                latin1.chars().map(|letter| u8::try_from(letter).unwrap_or(b'?')).collect()
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_that_are_no_text_survive_the_file() {
        for bytes in [b"data: caf\xc3\xa9\n".to_vec(), b"caf\xe9 \xff\x00".to_vec()] {
            let kept = serde_json::to_string(&RecordedBody::new(bytes.clone())).unwrap();
            let read: RecordedBody = serde_json::from_str(&kept).unwrap();
            assert_eq!(read.bytes(), bytes, "{kept}");
        }
    }
}
