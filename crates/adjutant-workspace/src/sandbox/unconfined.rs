//! Running programs without a sandbox, for users who asked for that with `--sandbox=off`.
//!
//! A program gets its own session, and only the given environment and input. Its process group is killed at the end
//! of the run; processes that left the group survive, because only a process namespace could find them.

use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::process::{Pid, PidfdFlags, Signal, kill_process_group, pidfd_open};

use super::call::{CHUNK_BYTES, CallStop, EXIT_TIMEOUT, drain};
use super::output::{OutputSink, time_to_wait};
use super::raw;
use super::run::{CancelHandle, FOREVER, ProgramEnd, ProgramSpec, RunError, check_program};

/// Runs programs in a directory with the rights of the user who started Adjutant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnconfinedRunner {
    root: PathBuf,
}

/// The result of a program run without a sandbox.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnconfinedExit {
    /// How the program ended.
    pub end: ProgramEnd,
    /// How long the run took.
    pub elapsed: Duration,
    /// Whether all its output streams were closed; `false` if a process left the group and still holds one open.
    pub output_closed: bool,
}

impl UnconfinedRunner {
    /// Creates a runner for programs that start in `root`.
    #[must_use]
    pub fn new(root: impl Into<PathBuf>) -> Self {
        Self { root: root.into() }
    }

    /// Runs a program until it ends and streams its output.
    ///
    /// # Errors
    ///
    /// Why no program was run. A program that ran and failed is not an error.
    pub fn run(
        &self,
        program: &ProgramSpec,
        cancel: &CancelHandle,
        sink: &mut dyn OutputSink,
    ) -> Result<UnconfinedExit, RunError> {
        check_program(program)?;
        let begun = Instant::now();
        let mut group = self.start(program)?;
        let deadline = begun.checked_add(program.timeout).unwrap_or(begun + FOREVER);
        let stopped = group.wait_for_end(deadline, cancel, sink)?;
        let status = group.kill()?;
        let output_closed = group.drain_output(sink)?;
        let end = match (stopped, status.code(), status.signal()) {
            (CallStop::TimedOut, ..) => ProgramEnd::TimedOut,
            (CallStop::Cancelled, ..) => ProgramEnd::Cancelled,
            (CallStop::Ended, Some(code), _) => ProgramEnd::Exited(code),
            (CallStop::Ended, None, signal) => {
                ProgramEnd::Signalled(signal.unwrap_or_else(|| Signal::KILL.as_raw()))
            }
        };
        Ok(UnconfinedExit { end, elapsed: begun.elapsed(), output_closed })
    }

    fn start(&self, program: &ProgramSpec) -> Result<ProgramGroup, RunError> {
        let mut words = program.words.iter();
        let mut command = Command::new(words.next().ok_or(RunError::Empty)?);
        command.args(words).env_clear().envs(program.environment.iter().cloned());
        command.current_dir(self.directory(&program.directory)?);
        let input = program.take_input()?;
        command
            .stdin(input.map_or_else(Stdio::null, Stdio::from))
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let child = raw::start_in_own_session(&mut command).spawn().map_err(|error| {
            let name = program.words.first().map(PathBuf::from).unwrap_or_default();
            RunError::NotStarted { program: name, why: error.to_string() }
        })?;
        let mut group = ProgramGroup { child, streams: [None, None], handle: None, is_over: false };
        let number = i32::try_from(group.child.id()).ok().and_then(Pid::from_raw);
        let number = number.ok_or(io::ErrorKind::InvalidData).map_err(io::Error::from)?;
        group.handle = Some(pidfd_open(number, PidfdFlags::empty()).map_err(io::Error::from)?);
        group.streams = [
            group.child.stdout.take().map(|it| File::from(OwnedFd::from(it))),
            group.child.stderr.take().map(|it| File::from(OwnedFd::from(it))),
        ];
        Ok(group)
    }

    /// Resolves the starting directory, which must lie in the root.
    fn directory(&self, asked: &Path) -> Result<PathBuf, RunError> {
        let outside = || RunError::Directory { directory: asked.to_owned() };
        let root = self.root.canonicalize()?;
        let directory = root.join(asked).canonicalize().map_err(|_| outside())?;
        if !directory.starts_with(&root) || !directory.is_dir() {
            return Err(outside());
        }
        Ok(directory)
    }
}

/// A running process group, killed when this is dropped.
struct ProgramGroup {
    /// Reaped only after the group was killed: until then its pid cannot be reused.
    child: Child,
    streams: [Option<File>; 2],
    handle: Option<OwnedFd>,
    is_over: bool,
}

impl ProgramGroup {
    fn wait_for_end(
        &mut self,
        deadline: Instant,
        cancel: &CancelHandle,
        sink: &mut dyn OutputSink,
    ) -> io::Result<CallStop> {
        let mut buffer = vec![0; CHUNK_BYTES];
        loop {
            let now = Instant::now();
            if now >= deadline {
                return Ok(CallStop::TimedOut);
            }
            let (streams, [cancelled, gone]) =
                self.wait(time_to_wait(sink, now, deadline), Some(cancel))?;
            if cancelled {
                return Ok(CallStop::Cancelled);
            }
            drain(&mut self.streams, streams, &mut buffer, sink);
            if gone {
                return Ok(CallStop::Ended);
            }
        }
    }

    /// Kills the group and reaps its leader.
    fn kill(&mut self) -> io::Result<ExitStatus> {
        let number = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw);
        // Fails only if all processes have already ended.
        let _ = number.map(|it| kill_process_group(it, Signal::KILL));
        self.handle = None;
        self.is_over = true;
        self.child.wait()
    }

    /// Reads the output that is still in the pipes. Returns true if both streams ended.
    fn drain_output(&mut self, sink: &mut dyn OutputSink) -> io::Result<bool> {
        let mut buffer = vec![0; CHUNK_BYTES];
        let deadline = Instant::now() + EXIT_TIMEOUT;
        while self.streams.iter().any(Option::is_some) {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(false);
            }
            let (streams, _) = self.wait(left, None)?;
            drain(&mut self.streams, streams, &mut buffer, sink);
        }
        Ok(true)
    }

    /// Waits for output, cancellation or the end of the leader.
    fn wait(
        &self,
        most: Duration,
        cancel: Option<&CancelHandle>,
    ) -> io::Result<([bool; 2], [bool; 2])> {
        let [out, err] = &self.streams;
        let all: [Option<&OwnedFd>; 2] = [cancel.map(CancelHandle::event), self.handle.as_ref()];
        let mut watched = Vec::with_capacity(4);
        watched.extend([out, err].into_iter().flatten().map(|it| PollFd::new(it, PollFlags::IN)));
        watched.extend(all.into_iter().flatten().map(|it| PollFd::new(it, PollFlags::IN)));
        let most = rustix::time::Timespec::try_from(most).ok();
        match poll(&mut watched, most.as_ref()) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(errno) => return Err(errno.into()),
        }
        let mut ready = watched.iter().map(|it| !it.revents().is_empty());
        let mut next = |is_there: bool| is_there && ready.next().unwrap_or(false);
        let streams = [next(out.is_some()), next(err.is_some())];
        Ok((streams, all.map(|it| next(it.is_some()))))
    }
}

impl Drop for ProgramGroup {
    fn drop(&mut self) {
        if !self.is_over {
            let _ = self.kill();
        }
    }
}
