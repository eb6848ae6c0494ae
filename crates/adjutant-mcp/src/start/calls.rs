//! Which run a call has, and which calls wait for a run, as the registry of the state directory knows it.
//!
//! Clients repeat a call whose answer they did not wait for. A call is known by the hash of everything that makes
//! two calls equal; its run is recorded before the process of the run starts, so that an equal call finds that run,
//! in whichever server it arrives and whatever was killed meanwhile.

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

/// How long a run that is being cancelled may take to end.
const CANCEL_TIMEOUT: Duration = Duration::from_secs(5);

/// How often the registry is asked again while another process holds what is wanted.
pub(crate) const POLL_INTERVAL: Duration = Duration::from_millis(50);

type CallMutex = tokio::sync::Mutex<()>;

/// The calls of all servers of one state directory.
#[derive(Clone)]
pub(crate) struct CallRegistry {
    registry: RegistryHandle,
    // A std mutex: held for a look at a map, never across an await.
    /// Those that this server begins, so that equal calls of its own clients need not ask again and again.
    locks: Arc<Mutex<BTreeMap<CallKey, Weak<CallMutex>>>>,
}

impl CallRegistry {
    pub(crate) fn new(registry: RegistryHandle) -> Self {
        Self { registry, locks: Arc::default() }
    }

    /// Waits until no other call of this server begins a run for `call`.
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

    /// Returns the run that a call has.
    pub(crate) async fn run_of(&self, call: &CallKey) -> Result<Option<RunId>, String> {
        let (registry, call) = (self.registry.clone(), call.clone());
        let known = run_blocking(move || registry.look()).await?.map_err(unavailable)?;
        Ok(known.call(&call).map(|record| record.run))
    }

    /// Gives a call a run that is to be begun; `None` while another process begins or ends one for it.
    ///
    /// `instead_of` is the run that the call had, if it has ended and does not answer the call.
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

    /// Gives up the run of a call, which was not begun.
    pub(crate) async fn abandon(&self, call: CallKey, run: RunId) {
        let registry = self.registry.clone();
        // Refused if the call has another run by now. A registry that cannot be written is told of by the next call.
        let abandon = move || registry.submit(RegistryCommand::AbandonCall { call, run }).is_ok();
        let _ = run_blocking(abandon).await;
    }

    /// Counts a call among those that wait for a run, in whichever server. Waits while the run is being cancelled.
    ///
    /// `None` if the registry cannot be used: the call waits all the same, and is only not counted.
    pub(crate) async fn register_waiter(&self, run: RunId) -> Option<CallHold> {
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
                Ok(guard) => return Some(CallHold { guard: Some(guard) }),
                Err(RegistryError::Refused(RegistryRefusal::BeingCancelled { .. }))
                    if Instant::now() < until =>
                {
                    tokio::time::sleep(POLL_INTERVAL).await;
                }
                Err(_) => return None,
            }
        }
    }

    /// Returns the right to cancel a run that no call waits for. Until it is given back, no call can wait for the
    /// run or begin another in its place.
    pub(crate) async fn claim_cancellation(&self, run: RunId) -> Option<CallHold> {
        let registry = self.registry.clone();
        let start = move || {
            let holder = registry.holder()?;
            registry.submit(RegistryCommand::StartCancelling { holder, run })?;
            Ok::<_, RegistryError>(registry.on_drop(RegistryCommand::StopCancelling { run }))
        };
        let guard = run_blocking(start).await.ok()?.ok()?;
        Some(CallHold { guard: Some(guard) })
    }
}

fn unavailable(why: RegistryUnavailable) -> String {
    error_chain(&RegistryError::from(why))
}

/// Runs something that may block on a thread for that.
async fn run_blocking<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, String> {
    spawn_blocking(work).await.map_err(|error| error_chain(&error))
}

/// What a call holds of a run until this is dropped: that it waits for the run, or that it cancels it.
#[derive(Debug)]
pub(crate) struct CallHold {
    guard: Option<ReleaseOnDrop>,
}

impl CallHold {
    /// Gives it back; returns when that is recorded.
    pub(crate) async fn release(mut self) {
        let guard = self.guard.take();
        let _ = run_blocking(move || drop(guard)).await;
    }
}

impl Drop for CallHold {
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
    async fn nobody_joins_a_run_that_is_being_cancelled_and_nobody_cancels_one_that_was_joined() {
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
    async fn a_call_has_one_run_until_that_is_given_up_or_its_server_is_gone() {
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
