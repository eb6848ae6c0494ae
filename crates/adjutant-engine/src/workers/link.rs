//! The way from a worker to the run loop: its model calls and what it reports.
//!
//! Start at [`WorkerLink::admit`]. A link outlives its delegation: what arrives later is refused or ignored.

use adjutant_core::{
    CallRefusal, SessionId, Usage, WorkerAction, WorkerCallEnd, WorkerCallRequest,
    WorkerSessionStart, WorkerUsageReport,
};
use tokio::sync::{mpsc, oneshot};

use crate::runner::effects::{LiveSignal, SessionSignal};

/// A model call that may be forwarded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AdmittedCall {
    /// Its number, for [`WorkerLink::settle`].
    pub call: u32,
    /// The model, as `provider/model`.
    pub model: String,
    /// The most output tokens that the forwarded request may ask for.
    pub max_output: u64,
}

/// The result of asking for a model call.
pub(crate) type AdmissionResult = Result<AdmittedCall, CallRefusal>;

/// An input of the run loop from a worker.
#[derive(Debug)]
pub(crate) enum WorkerInput {
    Admit {
        session: SessionId,
        request: WorkerCallRequest,
        answer: oneshot::Sender<AdmissionResult>,
    },
    Settle {
        session: SessionId,
        call: u32,
        end: WorkerCallEnd,
        usage: Option<Usage>,
        never_began: bool,
        /// Dropped when the settlement is recorded.
        recorded: oneshot::Sender<()>,
    },
    Act {
        session: SessionId,
        action: WorkerAction,
    },
    /// The worker opened a session.
    Opened {
        session: SessionId,
        id: String,
        start: WorkerSessionStart,
    },
    /// The worker said what it has used.
    Report {
        session: SessionId,
        report: WorkerUsageReport,
    },
}

/// The way from the worker of one delegation to the run loop.
#[derive(Clone, Debug)]
pub struct WorkerLink {
    session: SessionId,
    inputs: mpsc::Sender<WorkerInput>,
    signals: mpsc::Sender<SessionSignal>,
}

impl WorkerLink {
    pub(crate) const fn new(
        session: SessionId,
        inputs: mpsc::Sender<WorkerInput>,
        signals: mpsc::Sender<SessionSignal>,
    ) -> Self {
        Self { session, inputs, signals }
    }

    /// Asks for a model call, and waits until its reservation is durable.
    ///
    /// # Errors
    ///
    /// Why the call must not be made.
    pub async fn admit(&self, request: WorkerCallRequest) -> Result<AdmittedCall, CallRefusal> {
        let (answer, answered) = oneshot::channel();
        let input = WorkerInput::Admit { session: self.session, request, answer };
        if self.inputs.send(input).await.is_err() {
            return Err(CallRefusal::NoPrompt);
        }
        answered.await.unwrap_or(Err(CallRefusal::NoPrompt))
    }

    /// Records how a model call ended, and waits until that is decided.
    pub async fn settle(
        &self,
        call: u32,
        end: WorkerCallEnd,
        usage: Option<Usage>,
        never_began: bool,
    ) {
        let (recorded, is_recorded) = oneshot::channel();
        let session = self.session;
        let input = WorkerInput::Settle { session, call, end, usage, never_began, recorded };
        if self.inputs.send(input).await.is_ok() {
            // The sender is dropped without a message.
            let _ = is_recorded.await;
        }
    }

    /// Reports that bytes of a model's answer arrived, which restarts the stall timer.
    pub fn report_bytes(&self, bytes: u64) {
        // If the queue is full, the run loop has other signs of life.
        let _ = self.signals.try_send((self.session, LiveSignal::Bytes(bytes)));
    }

    /// Reports what the worker does. A full queue slows the worker down.
    pub async fn report_action(&self, action: WorkerAction) {
        // The receiver is gone if the run has ended.
        let _ = self.inputs.send(WorkerInput::Act { session: self.session, action }).await;
    }
}
