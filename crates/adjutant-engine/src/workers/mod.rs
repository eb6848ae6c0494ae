//! External agents as workers: what the engine needs from the crate that starts them, and what it gives them.
//!
//! The engine does not know how an agent is started or which protocol it speaks; a [`WorkerHost`] does. It gives the
//! host a [`WorkerStart`] for each delegation: where the worker runs, and a [`WorkerLink`] over which the model calls
//! and the reports of the worker reach the run loop.
//!
//! Start at [`WorkerHost::start`]. Invariant: a worker's model call is forwarded only after its reservation is durable.

mod link;
mod workspace;

use std::future::Future;
use std::pin::Pin;

use adjutant_core::{ModelSpec, SessionId, WorkerPlace, WorkerSessionStart, WorkerUsageReport};
use tokio::sync::watch;

pub(crate) use link::{AdmissionResult, WorkerInput};
pub use link::{AdmittedCall, WorkerLink};
pub use workspace::{WorkerSandbox, WorkerWorkspace};

/// A boxed future that can be sent to another thread.
pub type WorkerFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// Starts external agents.
pub trait WorkerHost: Send + Sync {
    /// Returns where a worker runs.
    ///
    /// # Errors
    ///
    /// Why a worker of this name cannot be used with `model`, as the end of a sentence.
    fn check(&self, worker: &str, model: &ModelSpec) -> Result<WorkerPlace, String>;

    /// Starts a worker for one delegation and opens a session.
    fn start(&self, start: WorkerStart) -> WorkerFuture<'static, Result<StartedWorker, String>>;
}

/// What a worker is started with.
pub struct WorkerStart {
    /// The name of the worker.
    pub worker: String,
    /// The delegation it works for.
    pub session: SessionId,
    /// The model it is told to use.
    pub model: ModelSpec,
    /// The models that it may call beside.
    pub further_models: Vec<ModelSpec>,
    /// The workspace it works in; `None` for a program in the person's terminal.
    pub workspace: Option<WorkerWorkspace>,
    /// The worker's own id of an earlier session of this delegation, to be loaded.
    pub earlier_session: Option<String>,
    /// The way to the run loop.
    pub link: WorkerLink,
    /// Becomes true when the worker must end.
    pub stop: watch::Receiver<bool>,
}

/// A worker with an open session.
pub struct StartedWorker {
    /// The worker.
    pub worker: Box<dyn RunningWorker>,
    /// Its own id of the session; empty if it has no sessions.
    pub session_id: String,
    /// How the session was opened.
    pub start: WorkerSessionStart,
}

/// A worker that waits for a prompt or works on one. It ends when it is told to stop, and when it is dropped.
pub trait RunningWorker: Send {
    /// Gives it a prompt and waits for the answer. All model calls of the turn are settled when this returns.
    ///
    /// # Errors
    ///
    /// Why there is no answer: the worker exited, broke its protocol or reported an error.
    fn prompt(&mut self, text: String) -> WorkerFuture<'_, Result<WorkerAnswer, String>>;
}

/// A worker's answer to a prompt.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WorkerAnswer {
    /// Its text.
    pub text: String,
    /// What it says it has used.
    pub report: Option<WorkerUsageReport>,
}
