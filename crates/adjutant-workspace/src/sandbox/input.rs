//! The standard input of a program: the read end of a pipe, which one run takes.
//!
//! Only a pipe can be passed: a handle to a file, a directory or a socket of the machine would be a way out of the
//! sandbox. Invariant: once the program runs, no process outside the sandbox holds the read end, so a writer notices
//! that the program has ended.

use std::io::{self, PipeWriter};
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, PoisonError};

/// The standard input of one program run.
///
/// Clones share one pipe, and the first run takes it.
#[derive(Clone, Debug)]
pub struct ProgramInput {
    /// A std mutex: held only to take the handle out.
    read_end: Arc<Mutex<Option<OwnedFd>>>,
}

impl ProgramInput {
    /// Creates a pipe. The program reads what is written to the first part and sees the end of its input once that
    /// is dropped.
    ///
    /// Writing blocks while the pipe is full, and fails with [`io::ErrorKind::BrokenPipe`] after the program has
    /// ended or this input was dropped without a run.
    ///
    /// # Errors
    ///
    /// When no file descriptor is available.
    pub fn pipe() -> io::Result<(PipeWriter, Self)> {
        let (read_end, write_end) = io::pipe()?;
        let read_end = Arc::new(Mutex::new(Some(OwnedFd::from(read_end))));
        Ok((write_end, Self { read_end }))
    }

    /// Takes the read end; `None` if a run has taken it.
    pub(super) fn take(&self) -> Option<OwnedFd> {
        self.read_end.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}
