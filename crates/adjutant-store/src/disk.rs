//! The file operations that a journal needs: append, sync, truncate.
//!
//! The trait is small so that tests can inject a failure into any call;
//! [`MemoryDisk`](crate::MemoryDisk) implements it without a file.
//!
//! Invariant: a [`Disk`] is the only writer of its file, so only its calls change the file's length.
//!
//! [`FileDisk`] is the implementation with a file.

use std::fs::File;
use std::io::{self, Write as _};
use std::path::PathBuf;
use std::sync::Arc;

use crate::files;
use crate::space_reserve::{FileSpaceAllocator, NoopSpaceAllocator, SpaceAllocator};

/// A file that is only appended to or truncated.
pub trait Disk: Send {
    /// Appends all of `bytes`. After an error any prefix of them may have been written.
    fn write_all_at_end(&mut self, bytes: &[u8]) -> io::Result<()>;

    /// Returns once everything written would survive a power failure.
    fn sync(&mut self) -> io::Result<()>;

    /// Truncates the file to its first `len` bytes.
    fn truncate(&mut self, len: u64) -> io::Result<()>;

    /// Returns the allocator for space beyond the end of the file. The default allocates nothing and never fails.
    fn space_allocator(&self) -> Box<dyn SpaceAllocator> {
        Box::new(NoopSpaceAllocator)
    }

    /// Frees the space that was allocated beyond the end of the file, which is `len` bytes long.
    fn free_unused_space(&mut self, _len: u64) -> io::Result<()> {
        Ok(())
    }
}

/// A [`Disk`] that writes to a file.
#[derive(Debug)]
pub struct FileDisk {
    file: Arc<File>,
    /// Directories to fsync with the file's first sync: until then the new file's name may be lost.
    new_names: Vec<PathBuf>,
    /// Keeps the run locked until this writer is dropped, even if the owner drops its lock first.
    _lock: Arc<File>,
}

impl FileDisk {
    /// Takes a file opened for appending, and the lock that makes this process its only writer.
    pub(crate) fn new(file: File, new_names: Vec<PathBuf>, lock: Arc<File>) -> Self {
        Self { file: Arc::new(file), new_names, _lock: lock }
    }
}

impl Disk for FileDisk {
    fn write_all_at_end(&mut self, bytes: &[u8]) -> io::Result<()> {
        (&*self.file).write_all(bytes)
    }

    fn sync(&mut self) -> io::Result<()> {
        rustix::fs::fdatasync(&self.file)?;
        // Done here instead of at creation, so that a run's first request does not wait for it. Right
        // after the file's own sync it is almost free.
        for dir in &self.new_names {
            files::sync_dir(dir)?;
        }
        self.new_names.clear();
        Ok(())
    }

    fn truncate(&mut self, len: u64) -> io::Result<()> {
        self.file.set_len(len)
    }

    fn space_allocator(&self) -> Box<dyn SpaceAllocator> {
        Box::new(FileSpaceAllocator::new(Arc::clone(&self.file)))
    }

    fn free_unused_space(&mut self, len: u64) -> io::Result<()> {
        // Truncating a file to its current length frees the blocks allocated beyond its end.
        self.file.set_len(len)
    }
}
