//! The state of a run, folded from its batches, and kept by the process that decided its last input.
//!
//! Reading batches is no part of a handler's journal: whether a process has them cached must not change what its handler
//! does, because another process may replay it. Invariant: a [`RunFold`] contains exactly the batches that it counts.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use adjutant_core::policy::WorkspaceSharing;
use adjutant_core::tree::EffectsInFlight;
use adjutant_core::{Event, IllegalEvent, Reaction, SessionId, Timestamp, Tree};
use adjutant_engine::RecordedDecision;
use tokio::sync::watch;

use crate::client::{CallError, Ingress};
use crate::wire::{DecisionBatch, LiveClusterWorker};

/// The most runs whose state a process keeps. Others are folded again from their first batch for their next input.
const KEPT_RUNS: usize = 512;

/// How long to wait for a batch of a run that this process keeps no state of: its next input may be decided by another
/// process, which cannot wake this one.
const UNKNOWN_WAIT: Duration = Duration::from_millis(500);

/// The state of one run after some of its batches.
#[derive(Clone, Debug, Default)]
pub(crate) struct RunFold {
    pub(crate) batches: u64,
    pub(crate) tree: Tree,
    pub(crate) in_flight: EffectsInFlight,
    /// The worker of each session.
    pub(crate) placed: BTreeMap<SessionId, Option<String>>,
    /// Every worker that had a session of the run, also those that were lost.
    pub(crate) workers: BTreeSet<String>,
    /// Every session that was ever given to a worker, which may have begun its effects.
    pub(crate) begun: BTreeSet<SessionId>,
    /// The time of the last decision.
    pub(crate) latest: Timestamp,
    /// The tools that commands of the run need.
    pub(crate) needed_tools: Vec<String>,
    /// Whether the work is in a store, so that every worker can do every agent's.
    pub(crate) has_store: bool,
}

impl RunFold {
    /// Adds the next batch.
    pub(crate) fn add(&mut self, batch: &DecisionBatch) -> Result<(), IllegalEvent> {
        for RecordedDecision { at, events, .. } in &batch.decisions {
            self.take_events(*at, events)?;
        }
        self.place(&batch.placed);
        self.has_store |= batch.base.is_some();
        self.batches += 1;
        Ok(())
    }

    /// Folds the events of one decision, and returns what follows from them.
    pub(crate) fn take_events(
        &mut self,
        at: Timestamp,
        events: &[Event],
    ) -> Result<Reaction, IllegalEvent> {
        for event in events {
            self.tree.evolve(at, event)?;
            if let Event::RunStarted { terms: Some(terms), .. } = event {
                self.needed_tools.clone_from(&terms.needed_tools);
            }
        }
        self.latest = self.latest.max(at);
        Ok(self.tree.react(events, &mut self.in_flight))
    }

    /// Gives sessions to workers.
    pub(crate) fn place(&mut self, placed: &[(SessionId, Option<String>)]) {
        for (session, worker) in placed {
            self.workers.extend(worker.clone());
            self.begun.extend(worker.as_ref().map(|_| *session));
        }
        self.placed.extend(placed.iter().cloned());
    }

    /// Returns whether a worker may answer for a session: it has the session, or had it and no other worker took it over.
    pub(crate) fn may_answer(&self, session: SessionId, worker: &str) -> bool {
        let placed = self.placed.get(&session).and_then(Option::as_deref);
        placed.is_none_or(|placed| placed == worker)
    }

    /// Returns whether agents write in workspaces that only their worker has, so that they wait for it when it is gone.
    pub(crate) fn is_work_bound_to_worker(&self) -> bool {
        let policy = self.tree.policy();
        policy.workspace == WorkspaceSharing::Own && !policy.in_place && !self.has_store
    }

    /// Takes the sessions away from workers that are not among these. Returns what has changed.
    pub(crate) fn unplace_lost(
        &mut self,
        workers: &[LiveClusterWorker],
    ) -> Vec<(SessionId, Option<String>)> {
        if self.is_work_bound_to_worker() {
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
    // Std mutexes: held for a map access, never across an await.
    folds: Mutex<KeptFolds>,
    /// Tells those who wait for batches how many there are.
    news: Mutex<HashMap<String, watch::Sender<u64>>>,
}

/// The states of the runs that were decided about last.
#[derive(Default)]
struct KeptFolds {
    by_run: HashMap<String, (u64, RunFold)>,
    /// The runs by when they were kept, the one that was kept first at the beginning.
    by_age: BTreeMap<u64, String>,
    next: u64,
}

impl KeptFolds {
    fn take(&mut self, run: &str) -> Option<RunFold> {
        let (age, fold) = self.by_run.remove(run)?;
        self.by_age.remove(&age);
        Some(fold)
    }

    fn keep(&mut self, run: &str, fold: RunFold) {
        self.take(run);
        if self.by_run.len() >= KEPT_RUNS
            && let Some((_, oldest)) = self.by_age.pop_first()
        {
            self.by_run.remove(&oldest);
        }
        self.next += 1;
        self.by_age.insert(self.next, run.to_owned());
        self.by_run.insert(run.to_owned(), (self.next, fold));
    }
}

impl RunCache {
    /// Returns the state of a run after exactly `batches` batches.
    pub(crate) async fn take(
        &self,
        ingress: &Ingress,
        run: &str,
        batches: u64,
    ) -> Result<RunFold, FoldError> {
        let kept = self.folds.lock().unwrap_or_else(PoisonError::into_inner).take(run);
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
        self.folds.lock().unwrap_or_else(PoisonError::into_inner).keep(run, fold);
        let news = self.news.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(news) = news.get(run) {
            news.send_replace(batches);
        }
    }

    /// Forgets a run that has ended.
    pub(crate) fn forget(&self, run: &str, batches: u64) {
        self.folds.lock().unwrap_or_else(PoisonError::into_inner).take(run);
        let mut news = self.news.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(news) = news.remove(run) {
            news.send_replace(batches);
        }
    }

    /// Waits until this process has decided a batch after the first `from`, at most this long.
    pub(crate) async fn wait_beyond(&self, run: &str, from: u64, longest: Duration) {
        let (mut news, is_kept) = self.subscribe(run);
        // Otherwise the run has ended, is being decided about, or was decided about by another process.
        let longest = if is_kept { longest } else { longest.min(UNKNOWN_WAIT) };
        let _ = tokio::time::timeout(longest, news.wait_for(|batches| *batches > from)).await;
        drop(news);
        if !is_kept {
            let mut all = self.news.lock().unwrap_or_else(PoisonError::into_inner);
            if all.get(run).is_some_and(|news| news.receiver_count() == 0) {
                all.remove(run);
            }
        }
    }

    /// Returns a channel with the number of batches of a run, and whether this process has its state.
    fn subscribe(&self, run: &str) -> (watch::Receiver<u64>, bool) {
        let folds = self.folds.lock().unwrap_or_else(PoisonError::into_inner);
        let kept = folds.by_run.get(run).map(|(_, fold)| fold.batches);
        let mut all = self.news.lock().unwrap_or_else(PoisonError::into_inner);
        let news = all.entry(run.to_owned()).or_insert_with(|| watch::channel(0).0);
        if let Some(kept) = kept {
            news.send_replace(kept);
        }
        (news.subscribe(), kept.is_some())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_run_that_was_decided_about_longest_ago_is_forgotten_first() {
        let mut kept = KeptFolds::default();
        for number in 0..KEPT_RUNS {
            kept.keep(&number.to_string(), RunFold::default());
        }
        let again = kept.take("0").unwrap_or_default();
        kept.keep("0", again);
        kept.keep("new", RunFold::default());
        assert_eq!((kept.by_run.len(), kept.by_age.len()), (KEPT_RUNS, KEPT_RUNS));
        assert!(kept.take("1").is_none() && kept.take("0").is_some() && kept.take("2").is_some());
    }

    #[tokio::test]
    async fn a_reader_is_woken_by_the_first_batch_that_this_process_decides() {
        let cache = RunCache::default();
        let waiting = cache.wait_beyond("run", 0, Duration::from_secs(60));
        let decide = async {
            tokio::task::yield_now().await;
            cache.keep("run", RunFold { batches: 1, ..RunFold::default() });
        };
        tokio::join!(waiting, decide);
        assert_eq!(cache.news.lock().unwrap_or_else(PoisonError::into_inner).len(), 0);
    }
}
