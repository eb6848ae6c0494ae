//! Lists runs: live ones first, then the latest.
//!
//! The runs of all trees share one directory, and only the start of a journal tells which tree a run belongs
//! to. The answer is cached, and the number of journals opened per list is limited; the list says if it
//! stopped there. Live runs are recognized by their locks, so they are found regardless of their age.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use adjutant_core::RunId;
use adjutant_engine::{RunFiles, RunLiveness};

use crate::runs::{RunSnapshot, VisibleRuns, error_chain};

/// The maximum number of live runs in a list; more than the default limit for one tree.
const MAX_LIVE_RUNS: usize = 64;

/// The maximum number of journals opened for one list.
const MAX_JOURNALS_OPENED: usize = 1000;

/// A page of the visible runs.
pub(crate) struct RunListing {
    /// The runs on this page, live ones first.
    pub(crate) runs: Vec<RunSnapshot>,
    /// How many more visible runs are known.
    pub(crate) more: usize,
    /// How many older runs, of any tree, were not examined.
    pub(crate) unseen: usize,
    /// The start of the next page, if there is one.
    pub(crate) next: Option<usize>,
}

/// A cache of which runs belong to this tree. The answer for a run never changes.
#[derive(Clone, Default)]
pub(crate) struct TreeMembership {
    // A std mutex: held for single map operations, never across an await.
    by_run: Arc<Mutex<BTreeMap<RunId, bool>>>,
}

impl TreeMembership {
    fn get(&self, run: RunId) -> Option<bool> {
        self.by_run.lock().unwrap_or_else(PoisonError::into_inner).get(&run).copied()
    }

    /// Returns whether a run works in this tree. Only definite answers are cached: a run without records has
    /// none yet.
    pub(crate) fn is_in_tree(&self, files: &RunFiles, root: &std::path::Path) -> bool {
        if let Some(is_in_tree) = self.get(files.id()) {
            return is_in_tree;
        }
        let Some(workdir) = files.workdir() else { return false };
        let is_in_tree = workdir == root;
        let mut by_run = self.by_run.lock().unwrap_or_else(PoisonError::into_inner);
        by_run.insert(files.id(), is_in_tree);
        is_in_tree
    }
}

impl VisibleRuns {
    /// Returns the live runs and up to `most` other runs, the latest first. Unreadable runs are skipped.
    ///
    /// `from` is the number of runs that are older than the page's start, so that new runs do not shift
    /// pages. Pages after the first do not repeat the live runs. Returns `None` if `from` is out of range.
    pub(crate) fn list(
        &self,
        most: usize,
        from: Option<usize>,
    ) -> Result<Option<RunListing>, String> {
        let all = self.archive().runs().map_err(|error| error_chain(&error))?;
        let begin = match from {
            None => 0,
            Some(left) if left <= all.len() => all.len() - left,
            Some(_) => return Ok(None),
        };
        let live = self.live_runs(&all);
        let mut listing = RunListing { runs: Vec::new(), more: 0, unseen: 0, next: None };
        if from.is_none() {
            listing.runs.extend(live.iter().filter_map(|files| self.read_files(files)));
        }
        let (mut taken, mut looks) = (0, 0);
        for (place, files) in all.iter().enumerate().skip(begin) {
            if self.membership().get(files.id()).is_none() {
                if looks == MAX_JOURNALS_OPENED {
                    listing.unseen = all.len() - place;
                    listing.next.get_or_insert(all.len() - place);
                    break;
                }
                looks += 1;
            }
            if !self.is_visible(files) || live.iter().any(|it| it.id() == files.id()) {
                continue;
            }
            if taken == most {
                listing.next.get_or_insert(all.len() - place);
                listing.more += 1;
            } else if let Some(snapshot) = self.read_files(files) {
                taken += 1;
                listing.runs.push(snapshot);
            }
        }
        Ok(Some(listing))
    }

    /// Returns the visible live runs, the newest first.
    fn live_runs(&self, all: &[RunFiles]) -> Vec<RunFiles> {
        let may_be = all.iter().filter(|files| self.membership().get(files.id()) != Some(false));
        let live = may_be.filter(|files| matches!(files.liveness(), Ok(RunLiveness::Live { .. })));
        live.filter(|files| self.is_visible(files)).take(MAX_LIVE_RUNS).cloned().collect()
    }

    fn read_files(&self, files: &RunFiles) -> Option<RunSnapshot> {
        self.read(&files.id().to_string()).ok()
    }
}
