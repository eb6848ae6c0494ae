//! What the kernel reports about a process: whether it fsyncs its journal, and its working directory.

use std::fs;
use std::path::Path;

/// The number of `fdatasync` in the table of system calls.
const FDATASYNC: &str = if cfg!(target_arch = "x86_64") { "75" } else { "83" };

/// Says whether the journal's thread is in a sync at this moment.
pub(crate) fn is_syncing(pid: u32) -> bool {
    let Ok(tasks) = fs::read_dir(format!("/proc/{pid}/task")) else { return false };
    tasks.flatten().any(|task| {
        let read = |name: &str| fs::read_to_string(task.path().join(name)).unwrap_or_default();
        read("comm").trim() == "journal" && read("syscall").split(' ').next() == Some(FDATASYNC)
    })
}

/// Returns the processes that work below a folder.
pub(crate) fn working_below(folder: &Path) -> Vec<u32> {
    let processes = fs::read_dir("/proc").unwrap().flatten();
    let below = processes.filter(|process| {
        fs::read_link(process.path().join("cwd")).is_ok_and(|cwd| cwd.starts_with(folder))
    });
    below.filter_map(|process| process.file_name().to_str()?.parse().ok()).collect()
}
