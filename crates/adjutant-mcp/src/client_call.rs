//! A client's tool call while it is being answered, and its cancellation by the client.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use adjutant_core::RunId;
use rmcp::RoleServer;
use rmcp::model::RequestId;
use rmcp::service::RequestContext;
use tokio::sync::watch;
use tokio::time::{Instant, timeout};

use crate::approval::rounds::CallRound;
use crate::runs::wait::{ProgressReporter, SEND_TIMEOUT, WaitOutcome};

/// A client's tool call while it is answered: its deadline, its progress and the questions it has handled.
pub(crate) struct ClientCall<'a> {
    pub(crate) context: &'a RequestContext<RoleServer>,
    pub(crate) round: CallRound,
    /// The latest time at which it must be answered.
    pub(crate) until: Instant,
    /// One reporter for the whole call, because progress numbers must only ever increase.
    pub(crate) progress: ProgressReporter,
    /// The hashes of the questions that this call has already handled.
    pub(crate) handled_questions: Vec<String>,
    cancellable: CancellableCall,
}

impl<'a> ClientCall<'a> {
    /// Registers a call that may block for `answer_timeout`. From now on the client can cancel it.
    pub(crate) fn new(
        context: &'a RequestContext<RoleServer>,
        round: CallRound,
        answer_timeout: Duration,
        calls: &CancellableCalls,
    ) -> Self {
        let progress = ProgressReporter::new(&context.peer, context.meta.get_progress_token());
        let until = Instant::now() + answer_timeout;
        let cancellable = calls.enter(context.id.clone());
        Self { context, round, until, progress, handled_questions: Vec::new(), cancellable }
    }

    /// Returns whether the run belongs to this call: the call started it, or brings the answer to a question
    /// that the run asked the same call earlier.
    pub(crate) fn owns(&self, run: RunId, is_repeated: bool) -> bool {
        let answered = self.round.answered.as_ref();
        !is_repeated || answered.is_some_and(|it| it.run == run.to_string())
    }

    /// Returns the cancellation if the client has cancelled the call.
    pub(crate) fn cancellation(&self) -> Option<Cancellation> {
        self.cancellable.cancelled.borrow().clone()
    }

    /// Waits until the client cancels the call or disconnects.
    pub(crate) fn wait_until_abandoned(&self) -> impl Future<Output = WaitOutcome> + use<> {
        let mut cancelled = self.cancellable.cancelled.clone();
        let disconnected = self.context.ct.clone().cancelled_owned();
        async move {
            tokio::select! {
                cancellation = cancellation(&mut cancelled) => return WaitOutcome::Cancelled(cancellation),
                () = disconnected => {}
            }
            // `rmcp` stops a cancelled call before it delivers the notification that cancels it.
            let notified = timeout(SEND_TIMEOUT, cancellation(&mut cancelled)).await;
            notified.map_or(WaitOutcome::Detached, WaitOutcome::Cancelled)
        }
    }
}

/// Waits until the call is cancelled, which may be forever.
async fn cancellation(cancelled: &mut watch::Receiver<Option<Cancellation>>) -> Cancellation {
    if let Ok(cancelled) = cancelled.wait_for(Option::is_some).await
        && let Some(cancellation) = &*cancelled
    {
        return cancellation.clone();
    }
    std::future::pending().await
}

/// A client's notification that it no longer waits for the answer to a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Cancellation {
    reason: Option<String>,
}

impl Cancellation {
    /// Returns whether the client wants the run to end. A client that gave up after a timeout does not: the
    /// run continues, and a repeated call finds it.
    pub(crate) fn ends_the_run(&self) -> bool {
        let reason = self.reason.as_deref().unwrap_or_default().to_lowercase();
        !reason.contains("timed out") && !reason.contains("timeout")
    }
}

type CancelSenders = HashMap<RequestId, watch::Sender<Option<Cancellation>>>;

/// The calls of one client that are being answered, by request id. One table per client, because two clients
/// may use the same id.
#[derive(Clone, Default)]
pub(crate) struct CancellableCalls {
    // A std mutex: held for single map operations, never across an await.
    senders: Arc<Mutex<CancelSenders>>,
}

impl CancellableCalls {
    fn senders(&self) -> MutexGuard<'_, CancelSenders> {
        self.senders.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn enter(&self, id: RequestId) -> CancellableCall {
        let (sender, cancelled) = watch::channel(None);
        self.senders().insert(id.clone(), sender);
        CancellableCall { calls: self.clone(), id, cancelled }
    }

    /// Cancels a call. Does nothing if the call has already been answered.
    pub(crate) fn cancel(&self, id: &RequestId, reason: Option<String>) {
        if let Some(sender) = self.senders().remove(id) {
            sender.send_replace(Some(Cancellation { reason }));
        }
    }
}

/// Keeps a call cancellable until it is dropped.
struct CancellableCall {
    calls: CancellableCalls,
    id: RequestId,
    cancelled: watch::Receiver<Option<Cancellation>>,
}

impl Drop for CancellableCall {
    fn drop(&mut self) {
        let mut senders = self.calls.senders();
        // The client may already have used the id for a new call.
        let sender = senders.get(&self.id);
        if sender.is_some_and(|sender| sender.subscribe().same_channel(&self.cancelled)) {
            senders.remove(&self.id);
        }
    }
}
