//! The processes that this server started and that have something to do after their run has ended.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use adjutant_core::RunId;
use tokio::sync::watch;
use tokio::time::Instant;

/// How long an answer is held back for what comes after the end: a branch is made, a PRD is written.
const EXIT_TIMEOUT: Duration = Duration::from_secs(10);

/// What is known of them, by their runs.
#[derive(Clone, Default)]
pub(crate) struct RunProcesses {
    // A std mutex: held for a look at a map, never across an await.
    known: Arc<Mutex<ProcessTable>>,
}

#[derive(Default)]
struct ProcessTable {
    /// Those that live, each with what is true once it is gone.
    alive: BTreeMap<RunId, watch::Receiver<bool>>,
    /// Runs whose end was told.
    reported: BTreeSet<RunId>,
}

impl RunProcesses {
    fn known(&self) -> MutexGuard<'_, ProcessTable> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Remembers one that has begun.
    pub(crate) fn add(&self, run: RunId, gone: watch::Receiver<bool>) {
        let mut known = self.known();
        known.alive.retain(|_, gone| !*gone.borrow());
        known.alive.insert(run, gone);
    }

    /// Waits until the process of a run is gone, if it is one of ours, but not beyond `until`.
    pub(crate) async fn wait_for_exit(&self, run: &str, until: Instant) {
        let gone = run.parse().ok().and_then(|run: RunId| self.known().alive.get(&run).cloned());
        let Some(mut gone) = gone else { return };
        // One that takes longer says what it has to say in its files.
        let _ = tokio::time::timeout_at(
            until.min(Instant::now() + EXIT_TIMEOUT),
            gone.wait_for(|is_gone| *is_gone),
        )
        .await;
    }

    /// Notes that a client was told of the end of a run.
    pub(crate) fn mark_reported(&self, run: RunId) {
        self.known().reported.insert(run);
    }

    /// Says whether a client was told of it.
    pub(crate) fn is_reported(&self, run: RunId) -> bool {
        self.known().reported.contains(&run)
    }
}
