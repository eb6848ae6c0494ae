//! A model that answers from a recording instead of calling a provider.

use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use adjutant_core::{AttemptError, AttemptResult, ModelErrorKind, ModelSpec, SessionId};
use serde_json::value::RawValue;

use super::difference::first_difference;
use super::format::{ExchangeKey, RecordedExchange, RecordedModel, body_on_one_line};
use super::load::{Recording, ReplayError};
use super::response::RecordedResponse;
use crate::errors::error_of_kind;
use crate::model::{BoxFuture, Model, TurnProgress, TurnRequest};
use crate::wire::{SessionBodies, WireCodec};

/// A model that replays recorded responses, provided that the requests are the same.
///
/// A request is looked up by its agent, label, turn and attempt. Its body must equal the recorded one except
/// for ids and durations; otherwise the turn fails and reports the first difference. Each exchange is
/// replayed once.
pub struct ReplayModel {
    spec: ModelSpec,
    codec: WireCodec,
    bodies: SessionBodies,
    shelf: Arc<RemainingExchanges>,
}

/// The exchanges that have not been replayed yet, shared by all models of a recording.
struct RemainingExchanges {
    models: BTreeMap<String, RecordedModel>,
    // A std mutex: held for a comparison, never across an await.
    left: Mutex<BTreeMap<ExchangeKey, Vec<UnplayedExchange>>>,
}

/// An expected request and its response.
struct UnplayedExchange {
    request: Box<RawValue>,
    response: RecordedResponse,
}

impl fmt::Debug for ReplayModel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ReplayModel").field("name", &self.spec.name).finish_non_exhaustive()
    }
}

impl ReplayModel {
    /// Loads a recording and returns the model that its run started with.
    ///
    /// # Errors
    ///
    /// If the file cannot be read, is truncated or invalid, or is newer than this build.
    pub fn load(path: &Path) -> Result<Self, ReplayError> {
        let Recording { first, models, exchanges } = Recording::load(path)?;
        let mut left: BTreeMap<ExchangeKey, Vec<_>> = BTreeMap::new();
        for RecordedExchange { place, request, response } in exchanges {
            left.entry(place).or_default().push(UnplayedExchange { request, response });
        }
        let shelf = Arc::new(RemainingExchanges { models, left: Mutex::new(left) });
        first.and_then(|name| Self::of(&shelf, &name)).ok_or_else(|| ReplayError::Malformed {
            path: path.to_owned(),
            line: 1,
            problem: "the recording has no model".into(),
        })
    }

    /// Returns another model of the same recording, for tasks that choose their own model.
    #[must_use]
    pub fn model_named(&self, name: &str) -> Option<Self> {
        Self::of(&self.shelf, name)
    }

    fn of(shelf: &Arc<RemainingExchanges>, name: &str) -> Option<Self> {
        let line = shelf.models.get(name)?;
        // Recordings of version 0.1 name the effort only in the settings.
        let effort = line.spec.effort.or(line.settings.effort);
        Some(Self {
            spec: ModelSpec { effort, ..line.spec.clone() },
            codec: line.codec(),
            bodies: SessionBodies::default(),
            shelf: Arc::clone(shelf),
        })
    }

    fn answer(
        &self,
        request: &TurnRequest<'_>,
        progress: &mut (dyn FnMut(TurnProgress<'_>) + Send),
    ) -> AttemptResult {
        let body = body_on_one_line(&self.bodies.write(&self.codec, request));
        let place = ExchangeKey::new(&self.spec.name, request);
        let response = self.shelf.take(&place, body.get())?;
        response.play(&self.codec, request.turn, progress)
    }
}

impl RemainingExchanges {
    /// Removes and returns the first exchange with this key and an equal request.
    ///
    /// Several exchanges may have the same key, because labels are unique within a call, not within a run.
    fn take(&self, place: &ExchangeKey, body: &str) -> Result<RecordedResponse, AttemptError> {
        let mut left = self.left.lock().unwrap_or_else(PoisonError::into_inner);
        let waiting = left.get_mut(place).filter(|waiting| !waiting.is_empty());
        let Some(waiting) = waiting else { return Err(exhausted_error(place)) };
        let mut first = None;
        for index in 0..waiting.len() {
            match first_difference(waiting[index].request.get(), body) {
                None => return Ok(waiting.remove(index).response),
                Some(difference) => first = first.or(Some(difference)),
            }
        }
        Err(difference_error(place, &first.unwrap_or_default()))
    }
}

fn exhausted_error(place: &ExchangeKey) -> AttemptError {
    let message = format!("the recording has no {} left; record again", describe_place(place));
    error_of_kind(ModelErrorKind::ScriptEnded, &message)
}

fn difference_error(place: &ExchangeKey, difference: &str) -> AttemptError {
    let message =
        format!("the request of {} is not the recorded one: {difference}", describe_place(place));
    error_of_kind(ModelErrorKind::BadRequest, &message)
}

fn describe_place(place: &ExchangeKey) -> String {
    let ExchangeKey { model, agent, label, turn, attempt } = place;
    let again = if *attempt > 1 { format!(", attempt {attempt}") } else { String::new() };
    format!("turn {turn}{again} for label `{label}` (agent `{agent}`, model {model})")
}

impl Model for ReplayModel {
    fn spec(&self) -> &ModelSpec {
        &self.spec
    }

    fn turn<'a>(
        &'a self,
        request: TurnRequest<'a>,
        progress: &'a mut (dyn FnMut(TurnProgress<'_>) + Send),
    ) -> BoxFuture<'a, AttemptResult> {
        Box::pin(async move { self.answer(&request, progress) })
    }

    fn forget(&self, session: SessionId) {
        self.bodies.forget(session);
    }
}
