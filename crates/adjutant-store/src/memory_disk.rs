//! A disk in memory that can be told to fail.
//!
//! For tests and for runs that leave no trace. Clones share one content, so a test keeps a clone
//! and looks at what the journal's writer did to the other.
//!
//! Invariant: a failure happens once, at the call it was planned for, counted from 1.

use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rustix::io::Errno;

use crate::disk::Disk;
use crate::space_reserve::SpaceAllocator;

/// A journal in memory.
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
    /// Returns a disk that holds `bytes`, all of them safe.
    #[must_use]
    pub fn holding(bytes: &[u8]) -> Self {
        let disk = Self::default();
        {
            let mut memory = disk.lock();
            memory.bytes = bytes.to_vec();
            memory.synced = bytes.len();
        }
        disk
    }

    /// Plans that the `nth` write stops after `keeping` bytes with the error `errno`.
    pub fn fail_write(&self, nth: usize, keeping: usize, errno: i32) {
        self.lock().failures.push(PlannedFailure::Write { nth, keeping, errno });
    }

    /// Plans that the `nth` sync fails with the error `errno`.
    pub fn fail_sync(&self, nth: usize, errno: i32) {
        self.lock().failures.push(PlannedFailure::Sync { nth, errno });
    }

    /// Plans that every truncation fails with the error `errno`.
    pub fn fail_truncate(&self, errno: i32) {
        self.lock().failures.push(PlannedFailure::Truncate { errno });
    }

    /// Lets the disk hold no more than `bytes`; `None` takes the bound away.
    pub fn set_capacity(&self, bytes: Option<usize>) {
        self.lock().capacity = bytes;
    }

    /// Returns what was written and not cut.
    #[must_use]
    pub fn bytes(&self) -> Vec<u8> {
        self.lock().bytes.clone()
    }

    /// Returns what a loss of power would leave in any case.
    #[must_use]
    pub fn synced_bytes(&self) -> Vec<u8> {
        let memory = self.lock();
        memory.bytes[..memory.synced].to_vec()
    }

    /// Returns how many writes there were, failed ones included.
    #[must_use]
    pub fn writes(&self) -> usize {
        self.lock().writes
    }

    /// Returns how many syncs there were, failed ones included.
    #[must_use]
    pub fn syncs(&self) -> usize {
        self.lock().syncs
    }

    fn lock(&self) -> MutexGuard<'_, DiskContent> {
        // No code of others runs under this lock, so what a panicking holder left is whole.
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
