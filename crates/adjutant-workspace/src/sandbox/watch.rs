//! What a sandbox uses of memory and disk, measured while it runs.
//!
//! Where no control group was delegated, memory is the sum over its processes of what belongs to them alone
//! or is shared memory. Writing is what the overlay's upper directory holds; without an overlay, by how much
//! the free space fell.

use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags, fstatvfs, openat, statat};

use super::plan::{BoundsPlan, Report};

/// The shortest time between two looks at the disk.
const DISK_TICK: Duration = Duration::from_millis(200);

/// The part of the time that looking may take, as one in so many.
const SHARE: u32 = 20;

/// The deepest directory that is looked into.
const MAX_DEPTH: usize = 500;

/// The most that a file counts by its size alone.
const SIZE_CAP: u64 = 512 << 20;

/// What the smallest entry counts.
const ENTRY_BYTES: u64 = 4 << 10;

/// Bounds and when they are looked at next.
pub(crate) struct Watch {
    memory_bytes: u64,
    disk_bytes: u64,
    upper: Option<OwnedFd>,
    workspace: OwnedFd,
    free_at_start: u64,
    next_memory: Option<Instant>,
    next_disk: Option<Instant>,
}

impl Watch {
    pub(crate) fn new(bounds: &BoundsPlan, upper: Option<OwnedFd>, workspace: OwnedFd) -> Self {
        let free_at_start = free_bytes(&workspace).unwrap_or(0);
        Self {
            memory_bytes: bounds.memory_bytes,
            disk_bytes: bounds.disk_bytes,
            upper,
            workspace,
            free_at_start,
            next_memory: None,
            next_disk: None,
        }
    }

    /// Measures what is due; returns what was exceeded.
    pub(crate) fn look(&mut self, now: Instant, memory: impl Fn() -> u64) -> Option<Report> {
        if self.next_memory.is_none_or(|due| due <= now) {
            let bytes = memory();
            if bytes > self.memory_bytes {
                return Some(Report::Memory { bytes });
            }
            let after = Instant::now();
            self.next_memory = Some(after + (after - now) * SHARE);
        }
        let now = Instant::now();
        if self.next_disk.is_none_or(|due| due <= now) {
            let bytes = match &self.upper {
                Some(upper) => size_bytes(upper, self.disk_bytes),
                None => self.free_at_start.saturating_sub(free_bytes(&self.workspace)?),
            };
            if bytes > self.disk_bytes {
                return Some(Report::Disk { bytes });
            }
            let after = Instant::now();
            self.next_disk = Some(after + DISK_TICK.max((after - now) * SHARE));
        }
        None
    }
}

fn free_bytes(place: impl AsFd) -> Option<u64> {
    fstatvfs(place).ok().map(|stat| stat.f_bavail.saturating_mul(stat.f_frsize))
}

/// Adds up the memory of every process in this namespace.
pub(crate) fn resident_bytes() -> u64 {
    let Ok(processes) = std::fs::read_dir("/proc") else { return 0 };
    let mut kibibytes = 0;
    for process in processes.flatten() {
        if !process.file_name().as_encoded_bytes().first().is_some_and(u8::is_ascii_digit) {
            continue;
        }
        // A process that ended meanwhile uses nothing.
        let status = std::fs::read_to_string(process.path().join("status")).unwrap_or_default();
        kibibytes += status.lines().filter_map(private_kibibytes).sum::<u64>();
    }
    (kibibytes << 10).saturating_add(unmapped_bytes())
}

/// Shared memory of the old kind lives on when no process maps it.
fn unmapped_bytes() -> u64 {
    let table = std::fs::read_to_string("/proc/sysvipc/shm").unwrap_or_default();
    let resident = |line: &str| line.split_whitespace().rev().nth(1)?.parse::<u64>().ok();
    table.lines().skip(1).filter_map(resident).sum()
}

fn private_kibibytes(line: &str) -> Option<u64> {
    let value = line.strip_prefix("RssAnon:").or_else(|| line.strip_prefix("RssShmem:"))?;
    value.trim().strip_suffix("kB")?.trim().parse().ok()
}

/// Adds up what lies below a directory, and stops once it is more than `enough`.
///
/// One handle is open for each level. A tree deeper than [`MAX_DEPTH`] counts as more than enough: nothing
/// useful is that deep, and what cannot be measured must not grow.
fn size_bytes(top: &OwnedFd, enough: u64) -> u64 {
    let mut total = 0;
    if !add_up(top, 0, enough, &mut total) {
        total = total.max(enough.saturating_add(1));
    }
    total
}

/// Adds one directory; false when it is more than enough.
fn add_up(directory: &OwnedFd, depth: usize, enough: u64, total: &mut u64) -> bool {
    if depth > MAX_DEPTH {
        return false;
    }
    // A directory that is gone, or was never ours to read, holds nothing that grows.
    let Ok(entries) = Dir::read_from(directory) else { return true };
    let mut folders = Vec::new();
    for entry in entries.flatten() {
        let name = entry.file_name();
        if name == c"." || name == c".." {
            continue;
        }
        let Ok(stat) = statat(directory, name, AtFlags::SYMLINK_NOFOLLOW) else { continue };
        // A size without content still has to be read to be kept, and a name without either has to be
        // stored; what is larger than any file that is kept is not read.
        let blocks = u64::try_from(stat.st_blocks).unwrap_or(0) << 9;
        let size = u64::try_from(stat.st_size).unwrap_or(0).min(SIZE_CAP);
        *total = total.saturating_add(blocks.max(size).max(ENTRY_BYTES));
        if FileType::from_raw_mode(stat.st_mode) == FileType::Directory {
            folders.push(name.to_owned());
        }
    }
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    *total <= enough
        && folders.into_iter().all(|name| match openat(directory, name, flags, Mode::empty()) {
            Ok(folder) => add_up(&folder, depth + 1, enough, total),
            Err(_) => true,
        })
}
