//! Summaries of all runs, from the index of ended runs where it is up to date.

use std::collections::HashMap;
use std::panic::resume_unwind;
use std::thread;

use adjutant_core::RunId;
use adjutant_store::{JournalStamp, RunIndexEntry};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::archive::{Archive, ArchiveError, RunFiles, RunLiveness};

/// Every run with its summary, or why it has none.
type RunSummaries<T, E> = Vec<(RunFiles, Result<T, E>)>;

impl Archive {
    /// Returns a summary of every run, the newest first.
    ///
    /// Calls `summarize` for the runs that the index lacks, and adds them to it unless a process works on them.
    /// `is_ended` says whether the summary is of a run that ended; another run may be resumed by a process that has
    /// not recorded anything yet. `version` is that of the code that makes summaries. A failure is never indexed.
    pub fn summaries<T, E>(
        &self,
        freshness: SummaryFreshness,
        version: u32,
        summarize: impl Fn(&RunFiles, RunLiveness) -> Result<T, E>,
        is_ended: impl Fn(&T) -> bool,
    ) -> Result<RunSummaries<T, E>, ArchiveError>
    where
        T: Serialize + DeserializeOwned,
    {
        let (runs, entries) = thread::scope(|scope| {
            // Examining the journals takes as long as parsing the index.
            let runs = scope.spawn(|| self.runs_with_stamps(freshness));
            let entries = self.home.load_run_index::<T>(version);
            (runs.join().unwrap_or_else(|panic| resume_unwind(panic)), entries)
        });
        let mut known: HashMap<RunId, RunIndexEntry<T>> =
            entries.into_iter().map(|entry| (entry.run, entry)).collect();
        let (mut summaries, mut stamps, mut is_changed) = (Vec::new(), Vec::new(), false);
        for (files, stamp) in runs? {
            let entry = known.remove(&files.id());
            let is_current = |entry: &RunIndexEntry<T>| match freshness {
                SummaryFreshness::Current => {
                    Some(entry.journal) == stamp && (is_ended(&entry.summary) || is_dead(&files))
                }
                SummaryFreshness::AnyAge => true,
            };
            let (summary, stamp) = match entry {
                Some(entry) if is_current(&entry) => (Ok(entry.summary), Some(entry.journal)),
                stale => {
                    // Both are taken before reading: a run that goes on meanwhile must not be taken for this one.
                    let stamp = stamp.or_else(|| files.folder.journal_stamp());
                    let liveness = files.liveness()?;
                    let summary = summarize(&files, liveness);
                    let stamp = stamp.filter(|_| liveness == RunLiveness::Dead && summary.is_ok());
                    is_changed |= stamp.is_some() || stale.is_some();
                    (summary, stamp)
                }
            };
            summaries.push((files, summary));
            stamps.push(stamp);
        }
        // What is left are runs whose directory was removed.
        if is_changed || !known.is_empty() {
            let ended = summaries.iter().zip(stamps).filter_map(|((files, summary), journal)| {
                let (summary, journal) = (summary.as_ref().ok()?, journal?);
                Some(RunIndexEntry { run: files.id(), journal, summary })
            });
            // Best effort: the next reader summarizes the same runs again.
            let _ = self.home.save_run_index(version, &ended.collect::<Vec<_>>());
        }
        Ok(summaries)
    }

    /// Returns every run, the newest first, with the stamp of its journal if entries of the index are compared with it.
    fn runs_with_stamps(
        &self,
        freshness: SummaryFreshness,
    ) -> Result<Vec<(RunFiles, Option<JournalStamp>)>, ArchiveError> {
        let stamp = |files: &RunFiles| match freshness {
            SummaryFreshness::Current => files.folder.journal_stamp(),
            SummaryFreshness::AnyAge => None,
        };
        let with_stamp = |files: RunFiles| {
            let stamp = stamp(&files);
            (files, stamp)
        };
        Ok(self.runs()?.into_iter().map(with_stamp).collect())
    }
}

/// Which entries of the index count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SummaryFreshness {
    /// Only those of journals that have not changed since.
    Current,
    /// All: for facts that never change, such as the working directory.
    AnyAge,
}

fn is_dead(files: &RunFiles) -> bool {
    matches!(files.liveness(), Ok(RunLiveness::Dead))
}
