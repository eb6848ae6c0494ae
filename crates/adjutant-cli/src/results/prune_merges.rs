//! The part of `prune` that deletes the undo records of old merges, after the same time as results.

use std::time::{Duration, SystemTime};

use adjutant_engine::Archive;
use adjutant_engine::results::{ResultsError, forget_merges};

use super::work_failure;

/// The age in days after which undo records are deleted, unless `--days` is given.
const DAYS: u32 = 30;

const DAY: Duration = Duration::from_secs(24 * 60 * 60);

/// Deletes the undo records of old merges. Returns the problems, one sentence each.
pub(crate) fn prune_merges(archive: &Archive, days: Option<u32>) -> Vec<String> {
    let before = SystemTime::now() - DAY * days.unwrap_or(DAYS);
    let (_, problems) = forget_merges(archive.path(), before);
    problems.into_iter().map(|it| work_failure(&ResultsError::Git(it)).to_string()).collect()
}
