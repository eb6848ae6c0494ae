//! The calls in the registry of the state directory: which run answers a call, and which calls wait for a
//! run.
//!
//! Clients repeat a call if they stop waiting for its answer. A call is identified by a hash of everything
//! that makes two calls equal. Its run is recorded before the run's process starts, so that an equal call
//! finds the run, in any server and after any crash.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use adjutant_core::registry::CallKey;
use adjutant_core::{RegistryCommand, RegistryRefusal, RunId};
use adjutant_engine::{
    RegistryError, RegistryHandle, RegistryUnavailable, ReleaseOnDrop, new_run_id,
};
use tokio::runtime::Handle;
use tokio::sync::OwnedMutexGuard;
use tokio::task::spawn_blocking;
use tokio::time::Instant;

use crate::runs::error_chain;

/// How long to wait for a run that is being cancelled.
const CANCEL_TIMEOUT: Duration = Duration::from_secs(5);

/// The polling interval while another process holds the call.
pub(crate) const POLL_INTERVAL: Duration = Duration::from_millis(50);

type CallMutex = tokio::sync::Mutex<()>;

/// Access to the calls of all servers that share a state directory.
#[derive(Clone)]
pub(crate) struct CallRegistry {
    registry: RegistryHandle,
    // A std mutex: held for single map operations, never across an await.
    /// Calls that this server is starting runs for. Equal calls of its own clients wait here instead of
    /// polling the registry.
    locks: Arc<Mutex<BTreeMap<CallKey, Weak<CallMutex>>>>,
}

impl CallRegistry {
    pub(crate) fn new(registry: RegistryHandle) -> Self {
        Self { registry, locks: Arc::default() }
    }

    /// Waits until no other call of this server is starting a run for `call`.
    pub(crate) async fn lock_call(&self, call: &CallKey) -> OwnedMutexGuard<()> {
        let lock = {
            let mut locks = self.locks.lock().unwrap_or_else(PoisonError::into_inner);
            locks.retain(|_, lock| lock.strong_count() > 0);
            let known = locks.get(call).and_then(Weak::upgrade);
            known.unwrap_or_else(|| {
                let lock = Arc::new(CallMutex::default());
                locks.insert(call.clone(), Arc::downgrade(&lock));
                lock
            })
        };
        lock.lock_owned().await
    }

    /// Returns the run that the registry has for a call.
    pub(crate) async fn run_of(&self, call: &CallKey) -> Result<Option<RunId>, String> {
        let (registry, call) = (self.registry.clone(), call.clone());
        let known = run_blocking(move || registry.read_unlocked()).await?.map_err(unavailable)?;
        Ok(known.call(&call).map(|record| record.run))
    }

    /// Reserves a new run for a call. Returns `None` while another process starts or cancels one for it.
    ///
    /// `instead_of` is the call's previous run, which has ended and does not answer the call.
    pub(crate) async fn begin(
        &self,
        call: &CallKey,
        instead_of: Option<RunId>,
    ) -> Result<Option<RunId>, String> {
        let (registry, call) = (self.registry.clone(), call.clone());
        let begin = move || {
            let run = new_run_id().map_err(|error| error_chain(&error))?;
            let holder = registry.holder().map_err(unavailable)?;
            match registry.submit(RegistryCommand::BeginCall { holder, call, run, instead_of }) {
                Ok(_) => Ok(Some(run)),
                Err(RegistryError::Refused(
                    RegistryRefusal::CallHasRun { .. }
                    | RegistryRefusal::BeingCancelled { .. }
                    | RegistryRefusal::RunKnown { .. },
                )) => Ok(None),
                Err(error) => Err(error_chain(&error)),
            }
        };
        run_blocking(begin).await?
    }

    /// Removes the reservation of a run that was not started.
    pub(crate) async fn abandon(&self, call: CallKey, run: RunId) {
        let registry = self.registry.clone();
        // The registry refuses this if the call has another run by now. A registry that cannot be written is
        // reported by the next call.
        let abandon = move || registry.submit(RegistryCommand::AbandonCall { call, run }).is_ok();
        let _ = run_blocking(abandon).await;
    }

    /// Registers a call, of any server, as waiting for a run. If the run is being cancelled, waits for that
    /// first.
    ///
    /// Returns `None` if the registry is unavailable: the call then waits without being registered.
    pub(crate) async fn register_waiter(&self, run: RunId) -> Option<RunHoldGuard> {
        let until = Instant::now() + CANCEL_TIMEOUT;
        loop {
            let registry = self.registry.clone();
            let wait = move || {
                let holder = registry.holder()?;
                let wait = RegistryCommand::Wait { holder: holder.clone(), run };
                registry.submit(wait)?;
                Ok(registry.on_drop(RegistryCommand::StopWaiting { holder, run }))
            };
            match run_blocking(wait).await.ok()? {
                Ok(guard) => return Some(RunHoldGuard { guard: Some(guard) }),
                Err(RegistryError::Refused(RegistryRefusal::BeingCancelled { .. }))
                    if Instant::now() < until =>
                {
                    tokio::time::sleep(POLL_INTERVAL).await;
                }
                Err(_) => return None,
            }
        }
    }

    /// Claims the right to cancel a run that no call waits for. Until it is released, no call can wait for
    /// the run or start another one in its place.
    pub(crate) async fn claim_cancellation(&self, run: RunId) -> Option<RunHoldGuard> {
        let registry = self.registry.clone();
        let start = move || {
            let holder = registry.holder()?;
            registry.submit(RegistryCommand::StartCancelling { holder, run })?;
            Ok::<_, RegistryError>(registry.on_drop(RegistryCommand::StopCancelling { run }))
        };
        let guard = run_blocking(start).await.ok()?.ok()?;
        Some(RunHoldGuard { guard: Some(guard) })
    }
}

fn unavailable(why: RegistryUnavailable) -> String {
    error_chain(&RegistryError::from(why))
}

/// Runs `work` on a thread that may block.
async fn run_blocking<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, String> {
    spawn_blocking(work).await.map_err(|error| error_chain(&error))
}

/// A call's claim on a run, as a waiter or as its canceller. Dropping it releases the claim.
#[derive(Debug)]
pub(crate) struct RunHoldGuard {
    guard: Option<ReleaseOnDrop>,
}

impl RunHoldGuard {
    /// Releases the claim and returns when that is recorded.
    pub(crate) async fn release(mut self) {
        let guard = self.guard.take();
        let _ = run_blocking(move || drop(guard)).await;
    }
}

impl Drop for RunHoldGuard {
    fn drop(&mut self) {
        // The registry may be locked for a while, and this may be the thread that serves all clients.
        if let (Some(guard), Ok(runtime)) = (self.guard.take(), Handle::try_current()) {
            runtime.spawn_blocking(move || drop(guard));
        }
    }
}

#[cfg(test)]
mod tests {
    use tempfile::TempDir;

    use super::*;

    async fn now<T>(wait: impl Future<Output = T>) -> Option<T> {
        tokio::time::timeout(Duration::from_millis(200), wait).await.ok()
    }

    #[tokio::test]
    async fn a_call_cannot_join_a_run_that_is_being_cancelled_nor_cancel_one_that_others_wait_for()
    {
        let home = TempDir::new().unwrap();
        let calls = || CallRegistry::new(RegistryHandle::at(home.path()));
        let (one, other) = (calls(), calls());
        let [run, another] = [new_run_id().unwrap(), new_run_id().unwrap()];
        let waiter = one.register_waiter(run).await.unwrap();
        assert!(other.claim_cancellation(run).await.is_none(), "a call waits");
        assert!(other.claim_cancellation(another).await.is_some(), "for another run");
        waiter.release().await;
        let cancelling = one.claim_cancellation(run).await.unwrap();
        let mut joins = std::pin::pin!(other.register_waiter(run));
        assert!(now(joins.as_mut()).await.is_none(), "it is being cancelled");
        cancelling.release().await;
        assert!(joins.await.is_some());
    }

    #[tokio::test]
    async fn a_call_keeps_its_run_until_it_is_abandoned_or_its_server_is_gone() {
        let home = TempDir::new().unwrap();
        let calls = || CallRegistry::new(RegistryHandle::at(home.path()));
        let (one, other) = (calls(), calls());
        let call = CallKey::new("call");
        assert_eq!(one.run_of(&call).await, Ok(None));
        let first = one.begin(&call, None).await.unwrap().unwrap();
        assert_eq!(other.run_of(&call).await, Ok(Some(first)));
        assert_eq!(other.begin(&call, Some(first)).await, Ok(None), "its server lives");
        one.abandon(call.clone(), first).await;
        let second = other.begin(&call, Some(first)).await.unwrap().unwrap();
        assert_eq!(one.begin(&call, Some(first)).await, Ok(None), "it has another by now");
        drop(other);
        assert!(one.begin(&call, Some(second)).await.unwrap().is_some(), "its server is gone");
    }
}
