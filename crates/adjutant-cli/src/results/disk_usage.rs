//! How the disk space of workspaces is shown.

use adjutant_engine::results::DiskUsage;
use serde_json::{Value, json};

/// Describes how much disk space workspaces occupy; `None` if no workspace or base exists.
pub(crate) fn disk_usage_text(usage: DiskUsage) -> Option<String> {
    let DiskUsage { bases, workspaces, homes, caches } = usage;
    (usage.total() > 0).then(|| {
        format!(
            "workspaces {} MiB, their bases {} MiB, home directories {} MiB, caches {} MiB",
            mib(workspaces),
            mib(bases),
            mib(homes),
            mib(caches)
        )
    })
}

/// Returns the bytes of each kind as JSON.
pub(crate) fn disk_usage_json(usage: DiskUsage) -> Value {
    let DiskUsage { bases, workspaces, homes, caches } = usage;
    json!({ "bases": bases, "spaces": workspaces, "homes": homes, "caches": caches })
}

/// Returns a size in MiB, rounded up.
pub(super) fn mib(bytes: u64) -> u64 {
    bytes.div_ceil(1024 * 1024)
}
