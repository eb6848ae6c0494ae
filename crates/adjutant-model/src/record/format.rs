//! The lines of a recording.

use adjutant_core::ModelSpec;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::response::RecordedResponse;
use crate::model::TurnRequest;
use crate::settings::ModelSettings;
use crate::wire::{Wire, WireCodec};

/// The version that this build writes, and the newest it reads.
pub(super) const VERSION: u32 = 1;

/// One line of the file, while it is written.
#[derive(Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum WrittenLine<'a> {
    /// The first line.
    Recording { version: u32 },
    /// A model, before its first exchange; the first of a file is the one the run began with.
    Model(&'a RecordedModel),
    /// A request and what came of it.
    Exchange(&'a RecordedExchange),
}

/// One line of the file, as it is read.
#[derive(Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum RecordingLine {
    Recording { version: u32 },
    Model(RecordedModel),
    Exchange(RecordedExchange),
}

/// What it takes to speak to a model as before.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct RecordedModel {
    pub(super) spec: ModelSpec,
    pub(super) wire: Wire,
    /// The model, as its server names it.
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

/// A request and what came of it.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct RecordedExchange {
    pub(super) place: ExchangeKey,
    /// The request's body.
    pub(super) request: Box<RawValue>,
    pub(super) response: RecordedResponse,
}

/// Where in a run an exchange stands; sessions have new names in every run.
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

/// Returns a body as it is kept: on one line, and as it was sent otherwise.
///
/// It is not parsed into a tree, because what a model nested ten thousand deep must come back too.
pub(super) fn sent(body: &[u8]) -> Box<RawValue> {
    // Inside a JSON string a line end is always escaped, so these can only be blanks.
    let line = String::from_utf8_lossy(body).replace(['\n', '\r'], " ");
    RawValue::from_string(line).unwrap_or_else(|_| RawValue::NULL.to_owned())
}
