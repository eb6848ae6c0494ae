//! Which runs a client is shown where it names none: those that go on first, then the latest.
//!
//! Runs of all trees lie beside each other, and only the beginning of a journal says of which tree it is.
//! What was once found out is remembered, and how many are looked at for one list is bounded; a list
//! says when it ends there. A run that goes on is known by its lock, so it is found wherever it lies.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use adjutant_core::RunId;
use adjutant_engine::{Life, RunFiles};

use crate::runs::{RunSnapshot, VisibleRuns, error_chain};

/// Runs that go on and are listed. More than may go on of one tree where nobody said otherwise.
const MAX_LIVE_RUNS: usize = 64;

/// Journals that are opened for one list, to find out of which tree they are.
const MAX_JOURNALS_OPENED: usize = 1000;

/// The runs of a tree, or a page of them.
pub(crate) struct RunListing {
    /// Those that are shown, those that go on first.
    pub(crate) runs: Vec<RunSnapshot>,
    /// How many more there are for sure.
    pub(crate) more: usize,
    /// How many older runs, of whichever tree, were not looked at.
    pub(crate) unseen: usize,
    /// Where the next page begins, where there is one.
    pub(crate) next: Option<usize>,
}

/// Of which runs it is known whether they are of this tree. It never changes.
#[derive(Clone, Default)]
pub(crate) struct TreeMembership {
    // A std mutex: held for a look at a map, never across an await.
    by_run: Arc<Mutex<BTreeMap<RunId, bool>>>,
}

impl TreeMembership {
    fn get(&self, run: RunId) -> Option<bool> {
        self.by_run.lock().unwrap_or_else(PoisonError::into_inner).get(&run).copied()
    }

    /// Says whether a run works in this tree, and remembers it; one that has not begun does not yet.
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
    /// Reads the runs that go on and the latest others, at most so many of these, from a place on;
    /// one that cannot be read does not hide the others.
    ///
    /// A place is how many runs are behind it, all of them older: new ones do not move it. From such a
    /// place on, those that go on are not listed again. Nothing where there is no such place.
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
            } else if let Some(seen) = self.read_files(files) {
                taken += 1;
                listing.runs.push(seen);
            }
        }
        Ok(Some(listing))
    }

    /// Returns the runs of ours that somebody works on, the newest first.
    fn live_runs(&self, all: &[RunFiles]) -> Vec<RunFiles> {
        let may_be = all.iter().filter(|files| self.membership().get(files.id()) != Some(false));
        let live = may_be.filter(|files| matches!(files.life(), Ok(Life::Live { .. })));
        live.filter(|files| self.is_visible(files)).take(MAX_LIVE_RUNS).cloned().collect()
    }

    fn read_files(&self, files: &RunFiles) -> Option<RunSnapshot> {
        self.read(&files.id().to_string()).ok()
    }
}
