//! A [`Disk`] in memory that can be made to fail.
//!
//! For tests and for runs that are not stored. Clones share their content, so a test can keep a clone
//! and inspect what the journal's writer wrote through the other.
//!
//! Invariant: a planned write or sync failure happens once, at the planned call, counted from 1.
//!
//! `DiskContent` is the shared state of the clones, and `PlannedFailure` the call that is to fail.

use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rustix::io::Errno;

use crate::disk::Disk;
use crate::space_reserve::SpaceAllocator;

/// A [`Disk`] that keeps its bytes in memory.
#[derive(Clone, Debug, Default)]
pub struct MemoryDisk {
    shared: Arc<Mutex<DiskContent>>,
}

#[derive(Debug, Default)]
struct DiskContent {
    bytes: Vec<u8>,
    synced: usize,
    writes: usize,
    syncs: usize,
    failures: Vec<PlannedFailure>,
    capacity: Option<usize>,
}

#[derive(Clone, Copy, Debug)]
enum PlannedFailure {
    Write { nth: usize, keeping: usize, errno: i32 },
    Sync { nth: usize, errno: i32 },
    Truncate { errno: i32 },
}

impl MemoryDisk {
    /// Returns a disk that contains `bytes`, all of them synced.
    #[must_use]
    pub fn with_content(bytes: &[u8]) -> Self {
        let disk = Self::default();
        {
            let mut memory = disk.lock();
            memory.bytes = bytes.to_vec();
            memory.synced = bytes.len();
        }
        disk
    }

    /// Makes the `nth` write fail with `errno` after it has written `keeping` bytes.
    pub fn fail_write(&self, nth: usize, keeping: usize, errno: i32) {
        self.lock().failures.push(PlannedFailure::Write { nth, keeping, errno });
    }

    /// Makes the `nth` sync fail with `errno`.
    pub fn fail_sync(&self, nth: usize, errno: i32) {
        self.lock().failures.push(PlannedFailure::Sync { nth, errno });
    }

    /// Makes every truncation fail with `errno`.
    pub fn fail_truncate(&self, errno: i32) {
        self.lock().failures.push(PlannedFailure::Truncate { errno });
    }

    /// Limits the disk to `bytes`; `None` removes the limit.
    pub fn set_capacity(&self, bytes: Option<usize>) {
        self.lock().capacity = bytes;
    }

    /// Returns all bytes that were written and not truncated.
    #[must_use]
    pub fn bytes(&self) -> Vec<u8> {
        self.lock().bytes.clone()
    }

    /// Returns the bytes that were synced and would survive a power failure.
    #[must_use]
    pub fn synced_bytes(&self) -> Vec<u8> {
        let memory = self.lock();
        memory.bytes[..memory.synced].to_vec()
    }

    /// Returns the number of writes, including failed ones.
    #[must_use]
    pub fn writes(&self) -> usize {
        self.lock().writes
    }

    /// Returns the number of syncs, including failed ones.
    #[must_use]
    pub fn syncs(&self) -> usize {
        self.lock().syncs
    }

    fn lock(&self) -> MutexGuard<'_, DiskContent> {
        // Only this module's code runs under the lock, so the content is consistent even after a panic.
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Disk for MemoryDisk {
    fn write_all_at_end(&mut self, bytes: &[u8]) -> io::Result<()> {
        let mut memory = self.lock();
        memory.writes += 1;
        let planned = memory.failures.iter().find_map(|failure| match failure {
            PlannedFailure::Write { nth, keeping, errno } if *nth == memory.writes => {
                Some((*keeping, *errno))
            }
            PlannedFailure::Write { .. }
            | PlannedFailure::Sync { .. }
            | PlannedFailure::Truncate { .. } => None,
        });
        let room = memory.capacity.map(|capacity| capacity.saturating_sub(memory.bytes.len()));
        let short = room.filter(|room| *room < bytes.len());
        let planned = planned.or(short.map(|room| (room, Errno::NOSPC.raw_os_error())));
        let kept = planned.map_or(bytes.len(), |(keeping, _)| keeping.min(bytes.len()));
        memory.bytes.extend_from_slice(&bytes[..kept]);
        planned.map_or(Ok(()), |(_, errno)| Err(io::Error::from_raw_os_error(errno)))
    }

    fn sync(&mut self) -> io::Result<()> {
        let mut memory = self.lock();
        memory.syncs += 1;
        let planned = memory.failures.iter().find_map(|failure| match failure {
            PlannedFailure::Sync { nth, errno } if *nth == memory.syncs => Some(*errno),
            PlannedFailure::Write { .. }
            | PlannedFailure::Sync { .. }
            | PlannedFailure::Truncate { .. } => None,
        });
        if let Some(errno) = planned {
            return Err(io::Error::from_raw_os_error(errno));
        }
        memory.synced = memory.bytes.len();
        Ok(())
    }

    fn truncate(&mut self, len: u64) -> io::Result<()> {
        let mut memory = self.lock();
        let planned = memory.failures.iter().find_map(|failure| match failure {
            PlannedFailure::Truncate { errno } => Some(*errno),
            PlannedFailure::Write { .. } | PlannedFailure::Sync { .. } => None,
        });
        if let Some(errno) = planned {
            return Err(io::Error::from_raw_os_error(errno));
        }
        let len = usize::try_from(len).map_err(io::Error::other)?;
        memory.bytes.truncate(len);
        memory.synced = memory.synced.min(len);
        Ok(())
    }

    fn space_allocator(&self) -> Box<dyn SpaceAllocator> {
        Box::new(self.clone())
    }
}

impl SpaceAllocator for MemoryDisk {
    fn allocate(&mut self, _from: u64, to: u64) -> io::Result<()> {
        let capacity = self.lock().capacity;
        match capacity {
            Some(capacity) if to > capacity as u64 => Err(Errno::NOSPC.into()),
            Some(_) | None => Ok(()),
        }
    }
}
