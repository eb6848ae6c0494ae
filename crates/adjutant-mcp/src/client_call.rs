//! A tool call of a client, for as long as it is being answered, and the clients' right to cancel it.

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

/// One call.
pub(crate) struct ClientCall<'a> {
    pub(crate) context: &'a RequestContext<RoleServer>,
    pub(crate) round: CallRound,
    /// When it is answered at the latest.
    pub(crate) until: Instant,
    /// One for the whole call: what it tells only ever grows.
    pub(crate) progress: ProgressReporter,
    /// The hashes of the questions that were dealt with.
    pub(crate) handled_questions: Vec<String>,
    cancellable: CancellableCall,
}

impl<'a> ClientCall<'a> {
    /// Takes a call that may keep its client waiting for `answer_timeout`. From now on the client can cancel it.
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

    /// Says whether a run is this call's own: it began it, or answers what it asked then.
    pub(crate) fn owns(&self, run: RunId, is_repeated: bool) -> bool {
        let answered = self.round.answered.as_ref();
        !is_repeated || answered.is_some_and(|it| it.run == run.to_string())
    }

    /// Returns the cancellation, if the client has cancelled the call.
    pub(crate) fn cancellation(&self) -> Option<Cancellation> {
        self.cancellable.cancelled.borrow().clone()
    }

    /// Waits until the client cancels the call, or will not hear the answer.
    pub(crate) fn abandoned(&self) -> impl Future<Output = WaitOutcome> + use<> {
        let mut cancelled = self.cancellable.cancelled.clone();
        let disconnected = self.context.ct.clone().cancelled_owned();
        async move {
            tokio::select! {
                cancellation = cancellation(&mut cancelled) => return WaitOutcome::Cancelled(cancellation),
                () = disconnected => {}
            }
            // The library ends a cancelled call before it hands on the notification that cancels it.
            let notified = timeout(SEND_TIMEOUT, cancellation(&mut cancelled)).await;
            notified.map_or(WaitOutcome::Detached, WaitOutcome::Cancelled)
        }
    }
}

/// Waits for the cancellation of a call, which may never come.
async fn cancellation(cancelled: &mut watch::Receiver<Option<Cancellation>>) -> Cancellation {
    if let Ok(cancelled) = cancelled.wait_for(Option::is_some).await
        && let Some(cancellation) = &*cancelled
    {
        return cancellation.clone();
    }
    std::future::pending().await
}

/// A client's word that it no longer waits for the answer to its call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Cancellation {
    reason: Option<String>,
}

impl Cancellation {
    /// Says whether the client wants the work to end. One that only waited too long does not: the work goes on,
    /// and the call that follows finds it.
    pub(crate) fn ends_the_run(&self) -> bool {
        let reason = self.reason.as_deref().unwrap_or_default().to_lowercase();
        !reason.contains("timed out") && !reason.contains("timeout")
    }
}

type CancelSenders = HashMap<RequestId, watch::Sender<Option<Cancellation>>>;

/// The calls of one client that are being answered, by the ids of their requests. Two clients may use the same id.
#[derive(Clone, Default)]
pub(crate) struct CancellableCalls {
    // A std mutex: held for a look at a map, never across an await.
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

    /// Cancels a call. One that has been answered is not there any more.
    pub(crate) fn cancel(&self, id: &RequestId, reason: Option<String>) {
        if let Some(sender) = self.senders().remove(id) {
            sender.send_replace(Some(Cancellation { reason }));
        }
    }
}

/// A call that can be cancelled until this is dropped.
struct CancellableCall {
    calls: CancellableCalls,
    id: RequestId,
    cancelled: watch::Receiver<Option<Cancellation>>,
}

impl Drop for CancellableCall {
    fn drop(&mut self) {
        let mut senders = self.calls.senders();
        // The id may have been used again for a call that is being answered.
        let sender = senders.get(&self.id);
        if sender.is_some_and(|sender| sender.subscribe().same_channel(&self.cancelled)) {
            senders.remove(&self.id);
        }
    }
}
