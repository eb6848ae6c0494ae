//! The state of a run, folded from its batches, and kept by the process that decided its last input.
//!
//! Reading batches is no part of a handler's journal: whether a process has them cached must not change what its handler
//! does, because another process may replay it. Invariant: a [`RunFold`] contains exactly the batches that it counts.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use adjutant_core::policy::WorkspaceSharing;
use adjutant_core::tree::EffectsInFlight;
use adjutant_core::{Event, IllegalEvent, SessionId, Timestamp, Tree};
use tokio::sync::watch;

use crate::client::{CallError, Ingress};
use crate::wire::{Batch, LiveWorker};

/// The most runs whose state a process keeps.
const KEPT_RUNS: usize = 256;

/// How long to wait for a batch of a run that this process keeps no state of.
const UNKNOWN_WAIT: Duration = Duration::from_millis(50);

/// The state of one run after some of its batches.
#[derive(Clone, Debug, Default)]
pub(crate) struct RunFold {
    pub(crate) batches: u64,
    pub(crate) tree: Tree,
    pub(crate) in_flight: EffectsInFlight,
    /// The worker of each session.
    pub(crate) placed: BTreeMap<SessionId, Option<String>>,
    /// The time of the last decision.
    pub(crate) latest: Timestamp,
    /// The tools that commands of the run need.
    pub(crate) needed_tools: Vec<String>,
    /// Whether the work is in a store, so that every worker can do every agent's.
    pub(crate) has_store: bool,
}

impl RunFold {
    /// Adds the next batch.
    pub(crate) fn add(&mut self, batch: &Batch) -> Result<(), IllegalEvent> {
        for decision in &batch.decisions {
            for event in &decision.events {
                self.tree.evolve(decision.at, event)?;
                if let Event::RunStarted { terms: Some(terms), .. } = event {
                    self.needed_tools.clone_from(&terms.needed_tools);
                }
            }
            self.tree.react(&decision.events, &mut self.in_flight);
            self.latest = self.latest.max(decision.at);
        }
        self.placed.extend(batch.placed.iter().cloned());
        self.has_store |= batch.base.is_some();
        self.batches += 1;
        Ok(())
    }

    /// Returns whether agents write in workspaces that only their worker has, so that they wait for it when it is gone.
    pub(crate) fn writers_stay(&self) -> bool {
        let policy = self.tree.policy();
        policy.workspace == WorkspaceSharing::Own && !policy.in_place && !self.has_store
    }

    /// Takes the sessions away from workers that are not among these. Returns what has changed.
    pub(crate) fn unplace_lost(
        &mut self,
        workers: &[LiveWorker],
    ) -> Vec<(SessionId, Option<String>)> {
        if self.writers_stay() {
            return Vec::new();
        }
        let is_lost = |name: &String| workers.iter().all(|worker| worker.name != *name);
        let left =
            self.placed.iter_mut().filter(|(_, worker)| worker.as_ref().is_some_and(is_lost));
        left.map(|(session, worker)| {
            *worker = None;
            (*session, None)
        })
        .collect()
    }

    /// Returns the workers that have sessions of the run.
    pub(crate) fn workers(&self) -> BTreeSet<&str> {
        self.placed.values().flatten().map(String::as_str).collect()
    }
}

/// Why the state of a run cannot be computed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum FoldError {
    #[error(transparent)]
    Call(#[from] CallError),
    #[error("the run has events that this version does not understand: {0}")]
    Illegal(#[from] IllegalEvent),
    #[error("the run has {has} batches instead of {expected}")]
    Missing { has: u64, expected: u64 },
}

/// The runs that this process has decided about.
#[derive(Default)]
pub(crate) struct RunCache {
    // A std mutex: held for a map access, never across an await.
    folds: Mutex<HashMap<String, RunFold>>,
    news: Mutex<HashMap<String, watch::Sender<u64>>>,
}

impl RunCache {
    /// Returns the state of a run after exactly `batches` batches.
    pub(crate) async fn take(
        &self,
        ingress: &Ingress,
        run: &str,
        batches: u64,
    ) -> Result<RunFold, FoldError> {
        let kept = self.folds.lock().unwrap_or_else(PoisonError::into_inner).remove(run);
        // An attempt of a handler that was aborted may have left a state that is ahead.
        let mut fold = kept.filter(|kept| kept.batches <= batches).unwrap_or_default();
        while fold.batches < batches {
            let page = ingress.batches(run, fold.batches, Duration::ZERO).await?;
            if page.batches.is_empty() {
                return Err(FoldError::Missing { has: page.total, expected: batches });
            }
            for batch in &page.batches {
                if fold.batches < batches {
                    fold.add(batch)?;
                }
            }
        }
        Ok(fold)
    }

    /// Keeps the state of a run for its next input, and wakes those who wait for its batches.
    pub(crate) fn keep(&self, run: &str, fold: RunFold) {
        let batches = fold.batches;
        let mut folds = self.folds.lock().unwrap_or_else(PoisonError::into_inner);
        if folds.len() >= KEPT_RUNS
            && let Some(other) = folds.keys().next().cloned()
        {
            folds.remove(&other);
        }
        folds.insert(run.to_owned(), fold);
        drop(folds);
        let news = self.news.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(news) = news.get(run) {
            news.send_replace(batches);
        }
    }

    /// Forgets a run that has ended.
    pub(crate) fn forget(&self, run: &str, batches: u64) {
        self.folds.lock().unwrap_or_else(PoisonError::into_inner).remove(run);
        let mut news = self.news.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(news) = news.remove(run) {
            news.send_replace(batches);
        }
    }

    /// Waits until this process has decided a batch after the first `from`, at most this long.
    pub(crate) async fn wait_beyond(&self, run: &str, from: u64, longest: Duration) {
        let Some(mut news) = self.subscribe(run) else {
            // The run has ended, is being decided about, or was decided by another process.
            return tokio::time::sleep(longest.min(UNKNOWN_WAIT)).await;
        };
        let _ = tokio::time::timeout(longest, news.wait_for(|batches| *batches > from)).await;
    }

    /// Returns a channel with the number of batches of a run; `None` if this process has no state of it.
    fn subscribe(&self, run: &str) -> Option<watch::Receiver<u64>> {
        let folds = self.folds.lock().unwrap_or_else(PoisonError::into_inner);
        let kept = folds.get(run)?.batches;
        let mut all = self.news.lock().unwrap_or_else(PoisonError::into_inner);
        Some(all.entry(run.to_owned()).or_insert_with(|| watch::channel(kept).0).subscribe())
    }
}
