//! A model that remembers what it was sent.

use std::sync::{Arc, Mutex, PoisonError};

use adjutant_core::{AttemptResult, Message, ModelSpec, SessionId};
use adjutant_model::{BoxFuture, Model, TurnProgress, TurnRequest};

/// One request, as the model saw it.
#[derive(Clone, Debug, PartialEq)]
pub struct Request {
    /// The task's label.
    pub label: String,
    /// The number of the turn.
    pub turn: u32,
    /// The try at it.
    pub attempt: u32,
    /// The system prompt.
    pub system: String,
    /// The whole conversation.
    pub messages: Vec<Message>,
    /// The tools that were offered.
    pub tools: Vec<String>,
    /// The output tokens that were asked for.
    pub max_output: u64,
}

/// A model under observation.
#[derive(Clone, Debug)]
pub struct Watched {
    model: Arc<dyn Model>,
    requests: Arc<Mutex<Vec<Request>>>,
}

impl Watched {
    /// Watches a model.
    #[must_use]
    pub fn new(model: Arc<dyn Model>) -> Self {
        Self { model, requests: Arc::default() }
    }

    /// Returns everything the model was sent, in order.
    #[must_use]
    pub fn requests(&self) -> Vec<Request> {
        self.requests.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Model for Watched {
    fn spec(&self) -> &ModelSpec {
        self.model.spec()
    }

    fn turn<'a>(
        &'a self,
        request: TurnRequest<'a>,
        progress: &'a mut (dyn FnMut(TurnProgress<'_>) + Send),
    ) -> BoxFuture<'a, AttemptResult> {
        self.requests.lock().unwrap_or_else(PoisonError::into_inner).push(Request {
            label: request.label.to_owned(),
            turn: request.turn,
            attempt: request.attempt,
            system: request.system.to_owned(),
            messages: request.messages.to_vec(),
            tools: request.tools.iter().map(|tool| tool.name.clone()).collect(),
            max_output: request.max_output,
        });
        self.model.turn(request, progress)
    }

    fn forget(&self, session: SessionId) {
        self.model.forget(session);
    }
}
