//! A program run in progress: its output streams, its end, and its cancellation.
//!
//! Invariant: when [`RunningCall::kill_and_drain`] returns true, every process of the run has ended.

use std::fs::File;
use std::io::{self, Read as _};
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::process::{Signal, pidfd_send_signal};

use super::output::{OutputSink, OutputStream, time_to_wait};
use super::plan::{InitReport, SandboxLayer};
use super::run::{CancelHandle, RunError};
use super::wire;

/// Bytes read from a stream at once: the capacity of a pipe.
pub(super) const CHUNK_BYTES: usize = 64 << 10;

/// How long killed processes may take to end before they are reported as still running.
pub(super) const EXIT_TIMEOUT: Duration = Duration::from_secs(1);

/// Why waiting for the program stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CallStop {
    Ended,
    TimedOut,
    Cancelled,
}

/// A program that runs in a sandbox, and the connection to its first process.
pub(super) struct RunningCall {
    pub(super) control: OwnedFd,
    pub(super) process: File,
    pub(super) streams: [Option<File>; 2],
    pub(super) report: Option<InitReport>,
    pub(super) missing: Vec<SandboxLayer>,
}

impl RunningCall {
    /// Streams output until the first process reports the end, the deadline passes or the run is cancelled.
    pub(super) fn wait_for_end(
        &mut self,
        deadline: Instant,
        cancel: &CancelHandle,
        sink: &mut dyn OutputSink,
    ) -> Result<CallStop, RunError> {
        let mut buffer = vec![0; CHUNK_BYTES];
        loop {
            let now = Instant::now();
            if now >= deadline {
                return Ok(CallStop::TimedOut);
            }
            let ready = self.wait(time_to_wait(sink, now, deadline), Some(cancel))?;
            if ready.cancelled {
                return Ok(CallStop::Cancelled);
            }
            drain(&mut self.streams, ready.streams, &mut buffer, sink);
            if ready.control && self.receive_report()? {
                return Ok(CallStop::Ended);
            }
            if ready.gone && !ready.control {
                return Ok(CallStop::Ended);
            }
        }
    }

    /// Kills every process, then reads the output that is still in the pipes.
    pub(super) fn kill_and_drain(&mut self, sink: &mut dyn OutputSink) -> Result<bool, RunError> {
        // Fails only if the process has already ended.
        let _ = pidfd_send_signal(&self.process, Signal::KILL);
        let deadline = Instant::now() + EXIT_TIMEOUT;
        let mut buffer = vec![0; CHUNK_BYTES];
        let mut gone = false;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            let ready = self.wait(if gone { Duration::ZERO } else { left }, None)?;
            drain(&mut self.streams, ready.streams, &mut buffer, sink);
            gone |= ready.gone;
            // Once all processes have ended, an empty stream is at its end.
            let drained = !ready.streams.contains(&true);
            if (gone && drained) || (left.is_zero() && !gone) {
                return Ok(gone);
            }
        }
    }

    fn wait(&self, most: Duration, cancel: Option<&CancelHandle>) -> Result<ReadyEvents, RunError> {
        let [out, err] = &self.streams;
        let mut watched = vec![
            PollFd::new(&self.process, PollFlags::IN),
            PollFd::new(&self.control, PollFlags::IN),
        ];
        watched.extend(cancel.map(|cancel| PollFd::new(cancel.event(), PollFlags::IN)));
        let streams_from = watched.len();
        watched.extend([out, err].into_iter().flatten().map(|it| PollFd::new(it, PollFlags::IN)));
        let most = rustix::time::Timespec::try_from(most).ok();
        match poll(&mut watched, most.as_ref()) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(errno) => return Err(io::Error::from(errno).into()),
        }
        let is_ready = |at: usize| watched.get(at).is_some_and(|it| !it.revents().is_empty());
        let out_ready = out.is_some() && is_ready(streams_from);
        let err_ready = err.is_some() && is_ready(streams_from + usize::from(out.is_some()));
        Ok(ReadyEvents {
            gone: is_ready(0),
            control: is_ready(1),
            cancelled: cancel.is_some() && is_ready(2),
            streams: [out_ready, err_ready],
        })
    }

    /// Receives one report. Returns true if it was the last.
    fn receive_report(&mut self) -> Result<bool, RunError> {
        match wire::receive(&self.control) {
            Ok(Some((InitReport::Started { missing }, _))) => {
                self.missing = missing;
                Ok(false)
            }
            Ok(Some((report, _))) => {
                self.report = Some(report);
                Ok(true)
            }
            // The first process ended without a report.
            Ok(None) | Err(_) => Ok(true),
        }
    }
}

/// Reads each stream that is ready; a stream at its end is closed.
pub(super) fn drain(
    streams: &mut [Option<File>; 2],
    ready: [bool; 2],
    buffer: &mut [u8],
    sink: &mut dyn OutputSink,
) {
    let names = [OutputStream::Out, OutputStream::Err];
    for ((slot, ready), name) in streams.iter_mut().zip(ready).zip(names) {
        let Some(stream) = slot.as_mut().filter(|_| ready) else { continue };
        match stream.read(buffer) {
            Ok(0) => *slot = None,
            Ok(count) => sink.chunk(name, buffer.get(..count).unwrap_or_default()),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(_) => *slot = None,
        }
    }
}

/// What `poll` reported.
struct ReadyEvents {
    gone: bool,
    control: bool,
    cancelled: bool,
    streams: [bool; 2],
}
