//! Which runs a client is shown where it names none: those that go on first, then the latest.
//!
//! Runs of all trees lie beside each other, and only the beginning of a journal says of which tree it is.
//! What was once found out is remembered, and how many are looked at for one list is bounded; a list
//! says when it ends there. A run that goes on is known by its lock, so it is found wherever it lies.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use adjutant_core::RunId;
use adjutant_engine::{Life, RunFiles};

use crate::runs::{Runs, Seen, chain};

/// Runs that go on and are listed. More than may go on of one tree where nobody said otherwise.
const GOING_ON: usize = 64;

/// Journals that are opened for one list, to find out of which tree they are.
const LOOKED_AT: usize = 1000;

/// The runs of a tree, or a page of them.
pub(crate) struct Listing {
    /// Those that are shown, those that go on first.
    pub(crate) runs: Vec<Seen>,
    /// How many more there are for sure.
    pub(crate) more: usize,
    /// How many older runs, of whichever tree, were not looked at.
    pub(crate) unseen: usize,
    /// Where the next page begins, where there is one.
    pub(crate) next: Option<usize>,
}

/// Of which runs it is known whether they are of this tree. It never changes.
#[derive(Clone, Default)]
pub(crate) struct Known {
    // A std mutex: held for a look at a map, never across an await.
    here: Arc<Mutex<BTreeMap<RunId, bool>>>,
}

impl Known {
    fn get(&self, run: RunId) -> Option<bool> {
        self.here.lock().unwrap_or_else(PoisonError::into_inner).get(&run).copied()
    }

    /// Says whether a run works in this tree, and remembers it; one that has not begun does not yet.
    pub(crate) fn is_here(&self, files: &RunFiles, root: &std::path::Path) -> bool {
        if let Some(is_here) = self.get(files.id()) {
            return is_here;
        }
        let Some(workdir) = files.workdir() else { return false };
        let is_here = workdir == root;
        let mut here = self.here.lock().unwrap_or_else(PoisonError::into_inner);
        here.insert(files.id(), is_here);
        is_here
    }
}

impl Runs {
    /// Reads the runs that go on and the latest others, at most so many of these, from a place on;
    /// one that cannot be read does not hide the others.
    ///
    /// A place is how many runs are behind it, all of them older: new ones do not move it. From such a
    /// place on, those that go on are not listed again. Nothing where there is no such place.
    pub(crate) fn list(&self, most: usize, from: Option<usize>) -> Result<Option<Listing>, String> {
        let all = self.archive().runs().map_err(|error| chain(&error))?;
        let begin = match from {
            None => 0,
            Some(left) if left <= all.len() => all.len() - left,
            Some(_) => return Ok(None),
        };
        let live = self.going_on(&all);
        let mut listing = Listing { runs: Vec::new(), more: 0, unseen: 0, next: None };
        if from.is_none() {
            listing.runs.extend(live.iter().filter_map(|files| self.seen(files)));
        }
        let (mut taken, mut looks) = (0, 0);
        for (place, files) in all.iter().enumerate().skip(begin) {
            if self.known().get(files.id()).is_none() {
                if looks == LOOKED_AT {
                    listing.unseen = all.len() - place;
                    listing.next.get_or_insert(all.len() - place);
                    break;
                }
                looks += 1;
            }
            if !self.is_ours(files) || live.iter().any(|it| it.id() == files.id()) {
                continue;
            }
            if taken == most {
                listing.next.get_or_insert(all.len() - place);
                listing.more += 1;
            } else if let Some(seen) = self.seen(files) {
                taken += 1;
                listing.runs.push(seen);
            }
        }
        Ok(Some(listing))
    }

    /// Returns the runs of ours that somebody works on, the newest first.
    fn going_on(&self, all: &[RunFiles]) -> Vec<RunFiles> {
        let may_be = all.iter().filter(|files| self.known().get(files.id()) != Some(false));
        let live = may_be.filter(|files| matches!(files.life(), Ok(Life::Live { .. })));
        live.filter(|files| self.is_ours(files)).take(GOING_ON).cloned().collect()
    }

    fn seen(&self, files: &RunFiles) -> Option<Seen> {
        self.read(&files.id().to_string()).ok()
    }
}
