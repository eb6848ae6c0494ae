//! The process that holds a run's lock: lets callers wait for its end, or kill it if it does not respond.
//!
//! A pid can be reused, so the pid in the lock file is opened as a pidfd first and checked against the
//! recorded boot id and start time afterwards. A pidfd never refers to another process.
//!
//! A [`WriterProcess`] is that process as it was found; [`KillError`] says why it was not killed.

use std::io;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

use crate::files::FileError;
use crate::lock;
use crate::run_dir::RunDir;

/// The process that held a run's lock when [`RunDir::writer`] was called.
#[derive(Debug)]
pub struct WriterProcess {
    pid: u32,
    handle: OwnedFd,
}

/// Why the process that writes a run was not killed.
#[derive(Debug, thiserror::Error)]
pub enum KillError {
    /// The writer is the calling process.
    #[error("the run is locked by this process itself")]
    Ours,
    /// The kernel did not allow the signal.
    #[error("cannot kill process {pid}, which holds the run")]
    Denied {
        /// The writer's pid.
        pid: u32,
        /// The error from the kernel.
        source: io::Error,
    },
}

impl WriterProcess {
    /// Finds the writer of `run`. Returns `None` if the run has none or it is not visible in this PID namespace.
    pub(crate) fn find(run: &RunDir) -> Result<Option<Self>, FileError> {
        let Some(process) = lock::live_writer(run)? else { return Ok(None) };
        let number = i32::try_from(process.pid).ok().and_then(Pid::from_raw);
        let handle = number.and_then(|number| pidfd_open(number, PidfdFlags::empty()).ok());
        // Checked again: from here on the handle cannot refer to another process with the same pid.
        let handle = handle.filter(|_| process.is_alive());
        Ok(handle.map(|handle| Self { pid: process.pid, handle }))
    }

    /// Returns the pid of the writer.
    #[must_use]
    pub const fn pid(&self) -> u32 {
        self.pid
    }

    /// Sends SIGKILL to the writer, which ends everything else that process does.
    pub fn kill(&self) -> Result<(), KillError> {
        if self.pid == std::process::id() {
            return Err(KillError::Ours);
        }
        match pidfd_send_signal(&self.handle, Signal::KILL) {
            Ok(()) | Err(Errno::SRCH) => Ok(()),
            Err(error) => Err(KillError::Denied { pid: self.pid, source: error.into() }),
        }
    }

    /// Waits until the writer has exited, at most `patience`. Returns whether it has.
    #[must_use]
    pub fn wait(&self, patience: Duration) -> bool {
        let until = Instant::now() + patience;
        loop {
            let left = until.saturating_duration_since(Instant::now());
            let Ok(left) = Timespec::try_from(left) else { return false };
            let mut ends = [PollFd::new(&self.handle, PollFlags::IN)];
            match poll(&mut ends, Some(&left)) {
                Ok(ready) => return ready > 0,
                Err(Errno::INTR) => {}
                Err(_) => return false,
            }
        }
    }
}
