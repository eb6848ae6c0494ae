//! The line format of a recording file.

use adjutant_core::ModelSpec;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::response::RecordedResponse;
use crate::model::TurnRequest;
use crate::settings::ModelSettings;
use crate::wire::{Wire, WireCodec};

/// The version that this build writes, and the newest that it reads.
pub(super) const VERSION: u32 = 1;

/// A line of the file, for writing.
#[derive(Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum WrittenLine<'a> {
    /// The first line.
    Recording { version: u32 },
    /// A model, before its first exchange. The first model in a file is the one the run started with.
    Model(&'a RecordedModel),
    /// A request and its response.
    Exchange(&'a RecordedExchange),
}

/// A line of the file, for reading.
#[derive(Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum RecordingLine {
    Recording { version: u32 },
    Model(RecordedModel),
    Exchange(RecordedExchange),
}

/// The properties of a recorded model that determine its requests.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct RecordedModel {
    pub(super) spec: ModelSpec,
    pub(super) wire: Wire,
    /// The provider's name for the model.
    pub(super) model: String,
    pub(super) official: bool,
    pub(super) reasoning: bool,
    pub(super) settings: ModelSettings,
}

impl RecordedModel {
    pub(super) fn new(spec: &ModelSpec, codec: &WireCodec) -> Self {
        let WireCodec { wire, model, official, reasoning, settings } = codec.clone();
        Self { spec: spec.clone(), wire, model, official, reasoning, settings }
    }

    pub(super) fn codec(&self) -> WireCodec {
        let Self { spec: _, wire, model, official, reasoning, settings } = self.clone();
        WireCodec { wire, model, official, reasoning, settings }
    }
}

/// A request to a provider and its response, as a recording stores them.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct RecordedExchange {
    pub(super) place: ExchangeKey,
    /// The body of the request.
    pub(super) request: Box<RawValue>,
    pub(super) response: RecordedResponse,
}

/// Identifies an exchange within a run. It contains no session id, because ids differ in every run.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(super) struct ExchangeKey {
    pub(super) model: String,
    pub(super) agent: String,
    pub(super) label: String,
    pub(super) turn: u32,
    pub(super) attempt: u32,
}

impl ExchangeKey {
    pub(super) fn new(model: &str, request: &TurnRequest<'_>) -> Self {
        Self {
            model: model.to_owned(),
            agent: request.agent.to_owned(),
            label: request.label.to_owned(),
            turn: request.turn,
            attempt: request.attempt,
        }
    }
}

/// Returns a body as recorded: on one line, otherwise as sent.
///
/// The body is not parsed, because arguments that a model nested ten thousand levels deep must be preserved
/// too.
pub(super) fn body_on_one_line(body: &[u8]) -> Box<RawValue> {
    // In a JSON string line breaks are always escaped, so these can only be whitespace.
    let line = String::from_utf8_lossy(body).replace(['\n', '\r'], " ");
    RawValue::from_string(line).unwrap_or_else(|_| RawValue::NULL.to_owned())
}
