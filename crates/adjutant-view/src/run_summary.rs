//! What lists show of a run. The index in the state directory has the summaries of runs that have ended.
//!
//! Invariant: the summary in the index equals one that is computed from the run's journal.

use adjutant_core::Outcome;
use serde::{Deserialize, Serialize};

use crate::errors::{self, ErrorJson};
use crate::run::{HourlySpend, ProcessLiveness, RunView};

/// The version of [`RunSummary`]. Increase it when a fold makes another summary of the same journal.
pub const SUMMARY_VERSION: u32 = 2;

/// The part of a run that lists of many runs need.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunSummary {
    /// The directory in which it works.
    pub workdir: String,
    /// How it ended; absent if it was interrupted or is live.
    pub outcome: Option<Outcome>,
    /// What it spent.
    pub spent: Vec<HourlySpend>,
    /// Its errors in the order they happened, fixed ones included.
    pub errors: Vec<ErrorJson>,
}

impl RunSummary {
    /// Summarizes a run. A view of a dead run must have its open calls closed.
    #[must_use]
    pub fn of(view: &RunView, liveness: ProcessLiveness) -> Self {
        Self {
            workdir: view.workdir().to_owned(),
            outcome: view.outcome(),
            spent: view.by_hour().to_vec(),
            errors: errors::of_run(view, liveness),
        }
    }
}
