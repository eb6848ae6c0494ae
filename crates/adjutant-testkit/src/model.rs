//! A model that remembers what it was sent.

use std::sync::{Arc, Mutex, PoisonError};

use adjutant_core::{AttemptResult, Message, ModelSpec, ReasoningEffort, SessionId};
use adjutant_model::{BoxFuture, Model, TurnProgress, TurnRequest};

/// One recorded request to a model.
#[derive(Clone, Debug, PartialEq)]
pub struct ModelRequest {
    /// The task's label.
    pub label: String,
    /// The number of the turn.
    pub turn: u32,
    /// The number of the attempt.
    pub attempt: u32,
    /// The system prompt.
    pub system: String,
    /// The whole conversation.
    pub messages: Vec<Message>,
    /// The tools that it may call.
    pub tools: Vec<String>,
    /// The output tokens that were asked for.
    pub max_output: u64,
    /// The reasoning effort that was asked for.
    pub effort: Option<ReasoningEffort>,
}

/// Wraps a model and records the requests that it gets.
#[derive(Clone, Debug)]
pub struct RecordingModel {
    model: Arc<dyn Model>,
    requests: Arc<Mutex<Vec<ModelRequest>>>,
}

impl RecordingModel {
    /// Records the requests to this model.
    #[must_use]
    pub fn new(model: Arc<dyn Model>) -> Self {
        Self { model, requests: Arc::default() }
    }

    /// Returns everything the model was sent, in order.
    #[must_use]
    pub fn requests(&self) -> Vec<ModelRequest> {
        self.requests.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Model for RecordingModel {
    fn spec(&self) -> &ModelSpec {
        self.model.spec()
    }

    fn turn<'a>(
        &'a self,
        request: TurnRequest<'a>,
        progress: &'a mut (dyn FnMut(TurnProgress<'_>) + Send),
    ) -> BoxFuture<'a, AttemptResult> {
        self.requests.lock().unwrap_or_else(PoisonError::into_inner).push(ModelRequest {
            label: request.label.to_owned(),
            turn: request.turn,
            attempt: request.attempt,
            system: request.system.to_owned(),
            messages: request.messages.to_vec(),
            tools: request
                .tools
                .iter()
                .filter(|_| request.may_call_tools)
                .map(|tool| tool.name.clone())
                .collect(),
            max_output: request.max_output,
            effort: request.effort,
        });
        self.model.turn(request, progress)
    }

    fn forget(&self, session: SessionId) {
        self.model.forget(session);
    }
}
