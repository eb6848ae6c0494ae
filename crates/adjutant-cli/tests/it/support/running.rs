//! A running command: its output line by line, signals to it, and its exit.
//!
//! Nothing here sleeps: a test waits for a line. The timeout only keeps a broken program from hanging the tests.

use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process, kill_process_group};

use crate::support::rig::{Output, Rig};

/// How long anything may take before it counts as hanging.
pub(crate) const GUARD: Duration = Duration::from_secs(60);

/// A command that was started.
#[must_use]
pub(crate) struct Running<'rig> {
    rig: &'rig Rig,
    child: Child,
    stdout: Lines,
    stderr: Lines,
}

impl<'rig> Running<'rig> {
    /// Starts `command`; without `stdin` it inherits a closed one.
    pub(crate) fn start(rig: &'rig Rig, mut command: Command, stdin: Option<Vec<u8>>) -> Self {
        let fed = if stdin.is_some() { Stdio::piped() } else { Stdio::null() };
        let mut child = command.stdin(fed).stderr(Stdio::piped()).spawn().unwrap();
        if let (Some(mut pipe), Some(bytes)) = (child.stdin.take(), stdin) {
            // A command that does not read its input may close the pipe.
            thread::spawn(move || pipe.write_all(&bytes));
        }
        let stdout = Lines::read(child.stdout.take());
        let stderr = Lines::read(child.stderr.take());
        Self { rig, child, stdout, stderr }
    }

    /// Waits until standard error has said `marker`.
    pub(crate) fn wait_for(&mut self, marker: &str) -> &mut Self {
        self.stderr.wait_for(marker);
        self
    }

    /// Waits until standard output has said `marker`.
    pub(crate) fn wait_for_data(&mut self, marker: &str) -> &mut Self {
        self.stdout.wait_for(marker);
        self
    }

    /// The process number.
    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Sends a signal.
    pub(crate) fn signal(&mut self, signal: Signal) -> &mut Self {
        let pid = Pid::from_raw(i32::try_from(self.child.id()).unwrap()).unwrap();
        kill_process(pid, signal).unwrap();
        self
    }

    /// Returns whether it has ended by itself.
    pub(crate) fn has_ended(&mut self) -> bool {
        self.child.try_wait().unwrap().is_some()
    }

    /// Waits for the end.
    pub(crate) fn finish(mut self) -> Output {
        let stdout = self.stdout.rest();
        let stderr = self.stderr.rest();
        let status = self.child.wait().unwrap();
        let code = status.code().or(status.signal().map(|signal| 128 + signal)).unwrap();
        Output { stdout, stderr, code, place: self.rig.path().to_owned() }
    }
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        // After `finish` it is gone already; after a failed assertion it must not stay.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A process and all that it started in its process group; none of it outlives the test.
///
/// Killing the process alone would leave others behind: the children of strace survive it.
pub(crate) struct ProcessGroup(pub(crate) Child);

impl ProcessGroup {
    /// Starts `command` in a process group of its own.
    pub(crate) fn start(mut command: Command) -> Self {
        Self(command.process_group(0).spawn().unwrap())
    }
}

impl Drop for ProcessGroup {
    fn drop(&mut self) {
        // The group keeps its number until the process was waited for.
        if let Ok(None) = self.0.try_wait()
            && let Some(group) = Pid::from_raw(i32::try_from(self.0.id()).unwrap())
        {
            let _ = kill_process_group(group, Signal::KILL);
        }
        let _ = self.0.wait();
    }
}

/// A stream, line by line.
struct Lines {
    coming: Receiver<String>,
    seen: String,
}

impl Lines {
    fn read(stream: Option<impl Read + Send + 'static>) -> Self {
        let (sender, coming) = channel();
        if let Some(stream) = stream {
            thread::spawn(move || {
                let mut reader = BufReader::new(stream);
                let mut line = Vec::new();
                while matches!(reader.read_until(b'\n', &mut line), Ok(1..)) {
                    let text = String::from_utf8(std::mem::take(&mut line));
                    if sender.send(text.unwrap()).is_err() {
                        break;
                    }
                }
            });
        }
        Self { coming, seen: String::new() }
    }

    fn wait_for(&mut self, marker: &str) {
        while !self.seen.contains(marker) {
            let line = self.coming.recv_timeout(GUARD);
            let line = line.unwrap_or_else(|_| panic!("no `{marker}` in:\n{}", self.seen));
            self.seen += &line;
        }
    }

    fn rest(&mut self) -> String {
        use std::sync::mpsc::RecvTimeoutError::{Disconnected, Timeout};
        loop {
            match self.coming.recv_timeout(GUARD) {
                Ok(line) => self.seen += &line,
                Err(Disconnected) => return std::mem::take(&mut self.seen),
                Err(Timeout) => panic!("it hangs after:\n{}", self.seen),
            }
        }
    }
}
