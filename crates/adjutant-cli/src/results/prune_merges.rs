//! What `prune` does about merges: the way back goes when it is as old as a result that goes.

use std::time::{Duration, SystemTime};

use adjutant_engine::Archive;
use adjutant_engine::results::{ResultsError, forget_merges};

use super::work_failure;

/// How old a merge is when nobody says another age.
const DAYS: u32 = 30;

const DAY: Duration = Duration::from_secs(24 * 60 * 60);

/// Drops the way back from old merges; returns what went wrong, a sentence each.
pub(crate) fn prune_merges(archive: &Archive, days: Option<u32>) -> Vec<String> {
    let before = SystemTime::now() - DAY * days.unwrap_or(DAYS);
    let (_, problems) = forget_merges(archive.path(), before);
    problems.into_iter().map(|it| work_failure(&ResultsError::Git(it)).to_string()).collect()
}
