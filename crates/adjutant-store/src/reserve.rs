//! Room ahead of the journal's end, so that what was begun can also be recorded.
//!
//! Space is allocated beyond the end of the file without changing its length (`fallocate` with
//! `FALLOC_FL_KEEP_SIZE`), so readers see nothing of it and appending into it cannot run out of
//! disk. It grows by steps, which makes asking for room a comparison and only now and then a system
//! call. It does not know what the room is for: callers say how much they must still be able to
//! write.
//!
//! Invariant: once [`Reserve::reach`] said yes to an offset, a file system that can promise space
//! has promised it up to there. One that cannot is asked what is free instead.

use std::fs::File;
use std::io;
use std::sync::Arc;

use rustix::fs::{FallocateFlags, fallocate, fstatvfs};
use rustix::io::Errno;
use rustix::process::{Resource, getrlimit};

/// Allocates space ahead of the end of one file.
pub trait Space: Send {
    /// Makes sure that the file can hold the bytes from the place `from` to the place `to`.
    fn allocate(&mut self, from: u64, to: u64) -> io::Result<()>;
}

/// Space that is never short of: for disks that promise nothing and are not asked to.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Boundless;

impl Space for Boundless {
    fn allocate(&mut self, _from: u64, _to: u64) -> io::Result<()> {
        Ok(())
    }
}

/// The space of a file.
#[derive(Debug)]
pub(crate) struct FileSpace {
    file: Arc<File>,
    /// The longest file this process may write. Read once: going beyond is not an error but a
    /// signal that ends the process.
    limit: u64,
}

impl FileSpace {
    pub(crate) fn new(file: Arc<File>) -> Self {
        let limit = getrlimit(Resource::Fsize).current.unwrap_or(u64::MAX);
        Self { file, limit }
    }

    /// Asks what is free where nothing can be promised; who cannot tell is not asked again.
    fn look(&self, bytes: u64) -> io::Result<()> {
        let Ok(disk) = fstatvfs(&self.file) else { return Ok(()) };
        let free = disk.f_bavail.saturating_mul(disk.f_frsize);
        if free < bytes { Err(Errno::NOSPC.into()) } else { Ok(()) }
    }
}

impl Space for FileSpace {
    fn allocate(&mut self, from: u64, to: u64) -> io::Result<()> {
        if to > self.limit {
            return Err(Errno::FBIG.into());
        }
        let bytes = to.saturating_sub(from);
        loop {
            return match fallocate(&self.file, FallocateFlags::KEEP_SIZE, from, bytes) {
                Err(Errno::INTR) => continue,
                Err(error @ (Errno::NOSPC | Errno::DQUOT | Errno::FBIG)) => Err(error.into()),
                // Not supported, or a disk that is broken in a way the next write will name.
                Err(_) => self.look(bytes),
                Ok(()) => Ok(()),
            };
        }
    }
}

/// The least that is allocated at once.
///
/// A turn leaves about four records and a few kilobytes, so this is a system call every hundred
/// turns; what a killed run leaves allocated is no more than this beyond what it had to keep.
const STEP: u64 = 256 << 10;

/// How far a journal may grow without running out of space.
pub(crate) struct Reserve {
    space: Box<dyn Space>,
    reached: u64,
}

impl Reserve {
    /// Begins with no room beyond the first `len` bytes.
    pub(crate) fn new(space: Box<dyn Space>, len: u64) -> Self {
        Self { space, reached: len }
    }

    /// Makes sure that a journal that ends at `end` can grow by `bytes`.
    pub(crate) fn reach(&mut self, end: u64, bytes: u64) -> io::Result<()> {
        let needed = end.saturating_add(bytes);
        if needed <= self.reached {
            return Ok(());
        }
        // A quarter more for many calls at once, so that a thousand children are no thousand steps.
        let wished = needed.saturating_add(STEP.max(bytes / 4));
        let enough = match self.space.allocate(self.reached, wished) {
            Ok(()) => wished,
            Err(_full) => self.space.allocate(self.reached, needed).map(|()| needed)?,
        };
        self.reached = enough;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_system_that_promises_nothing_is_asked_what_is_free() {
        // A file that cannot be allocated to stands in for it.
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("file"), "").unwrap();
        let file = File::open(dir.path().join("file")).unwrap();
        let mut space = FileSpace { file: Arc::new(file), limit: u64::MAX };
        space.allocate(0, 1).unwrap();
        let full = space.allocate(0, 1 << 62).unwrap_err();
        assert_eq!(full.kind(), io::ErrorKind::StorageFull);
    }

    #[test]
    fn a_limit_on_the_length_of_files_is_known_before_it_is_met() {
        let file = Arc::new(tempfile::tempfile().unwrap());
        let mut reserve =
            Reserve::new(Box::new(FileSpace { file: Arc::clone(&file), limit: 5_000 }), 0);
        reserve.reach(1_000, 4_000).unwrap();
        let beyond = reserve.reach(1_001, 4_000).unwrap_err();
        assert_eq!(beyond.kind(), io::ErrorKind::FileTooLarge);
        assert_eq!(file.metadata().unwrap().len(), 0);
    }
}
