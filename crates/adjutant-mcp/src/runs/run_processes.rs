//! The processes that this server started, one per run. After its run has ended, such a process may still create a
//! branch or update a PRD; answers about the run wait for that.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use adjutant_core::RunId;
use tokio::sync::watch;
use tokio::time::Instant;

/// How long an answer waits for this work: creating a branch and updating the PRD.
const EXIT_TIMEOUT: Duration = Duration::from_secs(10);

/// The processes by run, and which runs were reported as ended.
#[derive(Clone, Default)]
pub(crate) struct RunProcesses {
    // A std mutex: held for single map operations, never across an await.
    known: Arc<Mutex<ProcessTable>>,
}

#[derive(Default)]
struct ProcessTable {
    /// Live processes, each with a receiver that becomes true once it has exited.
    alive: BTreeMap<RunId, watch::Receiver<bool>>,
    /// Runs whose end was reported to a client.
    reported: BTreeSet<RunId>,
}

impl RunProcesses {
    fn known(&self) -> MutexGuard<'_, ProcessTable> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds the process of a run that has started.
    pub(crate) fn add(&self, run: RunId, gone: watch::Receiver<bool>) {
        let mut known = self.known();
        known.alive.retain(|_, gone| !*gone.borrow());
        known.alive.insert(run, gone);
    }

    /// Waits until the process of a run has exited, if this server started it, but not beyond `until`.
    pub(crate) async fn wait_for_exit(&self, run: &str, until: Instant) {
        let gone = run.parse().ok().and_then(|run: RunId| self.known().alive.get(&run).cloned());
        let Some(mut gone) = gone else { return };
        // If it takes longer, its results are found in the run's files later.
        let _ = tokio::time::timeout_at(
            until.min(Instant::now() + EXIT_TIMEOUT),
            gone.wait_for(|is_gone| *is_gone),
        )
        .await;
    }

    /// Records that a client was told of the end of a run.
    pub(crate) fn mark_reported(&self, run: RunId) {
        self.known().reported.insert(run);
    }

    /// Returns whether a client was told of the end of a run.
    pub(crate) fn is_reported(&self, run: RunId) -> bool {
        self.known().reported.contains(&run)
    }
}
