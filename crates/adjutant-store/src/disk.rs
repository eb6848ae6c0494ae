//! What the journal needs of a disk: append, sync, cut.
//!
//! A trait this small can be broken on purpose: tests inject failures at any call, and
//! [`MemoryDisk`](crate::MemoryDisk) needs no file at all.
//!
//! Invariant: one value has one writer, so the end of the file moves only through it.

use std::fs::File;
use std::io::{self, Write as _};
use std::path::PathBuf;
use std::sync::Arc;

use crate::files;
use crate::space_reserve::{FileSpaceAllocator, SpaceAllocator, UnlimitedSpace};

/// A file that grows at its end.
pub trait Disk: Send {
    /// Writes all of `bytes` at the end; after an error any part of them may have been written.
    fn write_all_at_end(&mut self, bytes: &[u8]) -> io::Result<()>;

    /// Returns once everything written would survive a loss of power.
    fn sync(&mut self) -> io::Result<()>;

    /// Cuts the file to its first `len` bytes.
    fn truncate(&mut self, len: u64) -> io::Result<()>;

    /// Returns what allocates space ahead of the end; by default nothing is and nothing runs short.
    fn space_allocator(&self) -> Box<dyn SpaceAllocator> {
        Box::new(UnlimitedSpace)
    }

    /// Gives back what was allocated ahead of the first `len` bytes, which is all there is.
    fn free_unused_space(&mut self, _len: u64) -> io::Result<()> {
        Ok(())
    }
}

/// A journal in a file.
#[derive(Debug)]
pub struct FileDisk {
    file: Arc<File>,
    /// Folders whose names are not durable yet; a new file is not safe before they are.
    new_names: Vec<PathBuf>,
    /// Held so that the lock outlives the writer, whatever the owner drops first.
    _lock: Arc<File>,
}

impl FileDisk {
    /// Takes a file opened for appending, and the lock that makes this process its one writer.
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
        // Here and not at creation: the first request of a run need not wait for it, and right
        // after the file's own sync it finds next to nothing left to do.
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
        // Cutting a file to the length it has frees what lies behind its end.
        self.file.set_len(len)
    }
}
