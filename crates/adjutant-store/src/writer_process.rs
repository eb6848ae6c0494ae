//! The process that writes a run, held by a handle: waited for, or ended when it answers nobody.
//!
//! A number is turned into a handle first and compared with what the lock file says afterwards: a
//! handle stays with its process, so nobody who is given the number later can be hit.

use std::io;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

use crate::files::FileError;
use crate::lock;
use crate::run_dir::RunDir;

/// A process that held a run when it was looked for.
#[derive(Debug)]
pub struct WriterProcess {
    pid: u32,
    handle: OwnedFd,
}

/// Says why a run's writer was not ended.
#[derive(Debug, thiserror::Error)]
pub enum KillError {
    /// It is this very process.
    #[error("the run is held by this process itself")]
    Ours,
    /// The system does not allow it.
    #[error("cannot kill process {pid}, which holds the run")]
    Denied {
        /// Its number.
        pid: u32,
        /// Why.
        source: io::Error,
    },
}

impl WriterProcess {
    /// Finds the writer of `run`, unless there is none that can be seen from here.
    pub(crate) fn find(run: &RunDir) -> Result<Option<Self>, FileError> {
        let Some(process) = lock::live_writer(run)? else { return Ok(None) };
        let number = i32::try_from(process.pid).ok().and_then(Pid::from_raw);
        let handle = number.and_then(|number| pidfd_open(number, PidfdFlags::empty()).ok());
        // Asked again now that the number cannot change hands any more.
        let handle = handle.filter(|_| process.is_alive());
        Ok(handle.map(|handle| Self { pid: process.pid, handle }))
    }

    /// Returns its process number.
    #[must_use]
    pub const fn pid(&self) -> u32 {
        self.pid
    }

    /// Kills it; everything else the process does ends with it.
    pub fn kill(&self) -> Result<(), KillError> {
        if self.pid == std::process::id() {
            return Err(KillError::Ours);
        }
        match pidfd_send_signal(&self.handle, Signal::KILL) {
            Ok(()) | Err(Errno::SRCH) => Ok(()),
            Err(error) => Err(KillError::Denied { pid: self.pid, source: error.into() }),
        }
    }

    /// Waits for its end; says whether it came.
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
