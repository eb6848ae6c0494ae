//! The disk usage of workspaces and of the data to undo merges.

use std::path::Path;

use adjutant_workspace::DiskUsage;

use super::{MERGES, SPACES};

/// Measures the workspaces below a state directory.
#[must_use]
pub fn disk_usage(state: &Path) -> DiskUsage {
    DiskUsage::measure(&state.join(SPACES))
}

/// Returns how many bytes the data to undo merges occupies below a state directory.
#[must_use]
pub fn merges_disk_usage(state: &Path) -> u64 {
    adjutant_workspace::size_on_disk(&state.join(MERGES))
}
