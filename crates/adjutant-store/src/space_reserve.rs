//! Disk space reserved beyond the end of the journal, so that work that was started can be recorded.
//!
//! Space is allocated beyond the end of the file without changing its length (`fallocate` with
//! `FALLOC_FL_KEEP_SIZE`), so readers do not see it and appending into it cannot fail with a full disk.
//! It is allocated in large steps, so most calls need no system call. Callers decide how much they need.
//!
//! Invariant: after [`SpaceReserve::ensure`] succeeded, a file system that supports `fallocate` has
//! allocated the space. On other file systems the free space was checked instead.
//!
//! A [`SpaceAllocator`] allocates for one file (for real: `FileSpaceAllocator`; not at all:
//! `NoopSpaceAllocator`); `SpaceReserve` tracks how much is allocated.

use std::fs::File;
use std::io;
use std::sync::Arc;

use rustix::fs::{FallocateFlags, fallocate, fstatvfs};
use rustix::io::Errno;
use rustix::process::{Resource, getrlimit};

/// Allocates space beyond the end of one file.
pub trait SpaceAllocator: Send {
    /// Allocates space for the bytes from offset `from` to offset `to`.
    fn allocate(&mut self, from: u64, to: u64) -> io::Result<()>;
}

/// Allocates nothing and never fails: the default for a [`Disk`](crate::disk::Disk) without a file, such
/// as those of tests.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NoopSpaceAllocator;

impl SpaceAllocator for NoopSpaceAllocator {
    fn allocate(&mut self, _from: u64, _to: u64) -> io::Result<()> {
        Ok(())
    }
}

/// Allocates space for a file with `fallocate`.
#[derive(Debug)]
pub(crate) struct FileSpaceAllocator {
    file: Arc<File>,
    /// The longest file that this process may write (`RLIMIT_FSIZE`). Checked in advance, because
    /// exceeding it is not an error but a signal that ends the process.
    limit: u64,
}

impl FileSpaceAllocator {
    pub(crate) fn new(file: Arc<File>) -> Self {
        let limit = getrlimit(Resource::Fsize).current.unwrap_or(u64::MAX);
        Self { file, limit }
    }

    /// Fails if the file system has less than `bytes` free. A file system that does not report it passes.
    fn check_free_space(&self, bytes: u64) -> io::Result<()> {
        let Ok(disk) = fstatvfs(&self.file) else { return Ok(()) };
        let free = disk.f_bavail.saturating_mul(disk.f_frsize);
        if free < bytes { Err(Errno::NOSPC.into()) } else { Ok(()) }
    }
}

impl SpaceAllocator for FileSpaceAllocator {
    fn allocate(&mut self, from: u64, to: u64) -> io::Result<()> {
        if to > self.limit {
            return Err(Errno::FBIG.into());
        }
        let bytes = to.saturating_sub(from);
        loop {
            return match fallocate(&self.file, FallocateFlags::KEEP_SIZE, from, bytes) {
                Err(Errno::INTR) => continue,
                Err(error @ (Errno::NOSPC | Errno::DQUOT | Errno::FBIG)) => Err(error.into()),
                // Not supported, or a disk error that the next write will report.
                Err(_) => self.check_free_space(bytes),
                Ok(()) => Ok(()),
            };
        }
    }
}

/// The least that is allocated beyond the requested space.
///
/// A turn writes about four records and a few kilobytes, so this is a system call every hundred turns.
/// A killed run leaves no more than this allocated beyond what it requested.
const MIN_ALLOCATION_BYTES: u64 = 256 << 10;

/// The space allocated for a journal so far.
pub(crate) struct SpaceReserve {
    space: Box<dyn SpaceAllocator>,
    allocated_to: u64,
}

impl SpaceReserve {
    /// Starts with nothing allocated beyond the first `len` bytes.
    pub(crate) fn new(space: Box<dyn SpaceAllocator>, len: u64) -> Self {
        Self { space, allocated_to: len }
    }

    /// Ensures that a journal that ends at `end` can grow by `bytes`.
    pub(crate) fn ensure(&mut self, end: u64, bytes: u64) -> io::Result<()> {
        let needed = end.saturating_add(bytes);
        if needed <= self.allocated_to {
            return Ok(());
        }
        // A quarter more than requested, so that a thousand children do not cause a thousand system calls.
        let preferred = needed.saturating_add(MIN_ALLOCATION_BYTES.max(bytes / 4));
        let allocated_to = match self.space.allocate(self.allocated_to, preferred) {
            Ok(()) => preferred,
            Err(_full) => self.space.allocate(self.allocated_to, needed).map(|()| needed)?,
        };
        self.allocated_to = allocated_to;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_system_without_fallocate_is_checked_for_free_space() {
        // `fallocate` fails on a file that is open for reading only.
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("file"), "").unwrap();
        let file = File::open(dir.path().join("file")).unwrap();
        let mut space = FileSpaceAllocator { file: Arc::new(file), limit: u64::MAX };
        space.allocate(0, 1).unwrap();
        let full = space.allocate(0, 1 << 62).unwrap_err();
        assert_eq!(full.kind(), io::ErrorKind::StorageFull);
    }

    #[test]
    fn the_file_size_limit_is_checked_before_it_is_exceeded() {
        let file = Arc::new(tempfile::tempfile().unwrap());
        let mut reserve = SpaceReserve::new(
            Box::new(FileSpaceAllocator { file: Arc::clone(&file), limit: 5_000 }),
            0,
        );
        reserve.ensure(1_000, 4_000).unwrap();
        let beyond = reserve.ensure(1_001, 4_000).unwrap_err();
        assert_eq!(beyond.kind(), io::ErrorKind::FileTooLarge);
        assert_eq!(file.metadata().unwrap().len(), 0);
    }
}
