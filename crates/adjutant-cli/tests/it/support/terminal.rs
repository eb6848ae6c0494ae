//! A command on a pseudo-terminal: the screen as a person sees it, and typed input.

use std::io::{Read, Write};
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::Instant;

use portable_pty::{Child, CommandBuilder, MasterPty, PtySize, native_pty_system};
use rustix::process::{Pid, Signal, kill_process};

use crate::support::rig::{BINARY, Rig};
use crate::support::running::GUARD;

/// Lines of the terminal: enough for a question or a picture, and the result below it.
const ROWS: u16 = 40;

/// Lines that the terminal keeps above its screen.
const SCROLLBACK: usize = 2_000;

/// A terminal with a command on it.
#[must_use]
pub(crate) struct Terminal {
    child: Box<dyn Child + Send + Sync>,
    keyboard: Box<dyn Write + Send>,
    coming: Receiver<Vec<u8>>,
    screen: vt100::Parser,
    /// Every byte that was written.
    pub(crate) raw: String,
    master: Box<dyn MasterPty + Send>,
    rows: u16,
}

impl Terminal {
    /// Starts the command on a terminal.
    pub(crate) fn start(rig: &Rig, columns: u16, env: &[(&str, &str)], args: &[&str]) -> Self {
        let mut command = CommandBuilder::new(BINARY);
        command.args(args);
        Self::open(rig, (ROWS, columns), env, command)
    }

    /// Starts the command on a terminal of this many rows and columns.
    pub(crate) fn start_sized(
        rig: &Rig,
        size: (u16, u16),
        env: &[(&str, &str)],
        args: &[&str],
    ) -> Self {
        let mut command = CommandBuilder::new(BINARY);
        command.args(args);
        Self::open(rig, size, env, command)
    }

    /// Starts a shell line on a terminal.
    pub(crate) fn shell(rig: &Rig, line: &str) -> Self {
        let mut command = CommandBuilder::new("/bin/sh");
        command.args(["-c", line]);
        Self::open(rig, (ROWS, 80), &[("PATH", "/usr/bin:/bin")], command)
    }

    fn open(
        rig: &Rig,
        (rows, columns): (u16, u16),
        env: &[(&str, &str)],
        mut command: CommandBuilder,
    ) -> Self {
        let size = PtySize { rows, cols: columns, pixel_width: 0, pixel_height: 0 };
        let pair = native_pty_system().openpty(size).unwrap();
        command.env_clear();
        for (name, value) in rig.environment() {
            command.env(name, value);
        }
        for (name, value) in env {
            command.env(name, value);
        }
        command.cwd(rig.work());
        let child = pair.slave.spawn_command(command).unwrap();
        let mut reader = pair.master.try_clone_reader().unwrap();
        let (sender, coming) = channel();
        thread::spawn(move || {
            let mut bytes = [0; 4096];
            // A terminal whose last writer is gone says so with an error.
            while let Ok(count @ 1..) = reader.read(&mut bytes) {
                if sender.send(bytes[..count].to_owned()).is_err() {
                    break;
                }
            }
        });
        Self {
            child,
            keyboard: pair.master.take_writer().unwrap(),
            coming,
            screen: vt100::Parser::new(
                rows.try_into().unwrap(),
                columns.try_into().unwrap(),
                SCROLLBACK,
            ),
            raw: String::new(),
            master: pair.master,
            rows,
        }
    }

    /// Waits until the screen shows `marker`.
    pub(crate) fn wait_for(&mut self, marker: &str) -> &mut Self {
        self.wait_until(marker, |screen| screen.contains(marker))
    }

    /// Waits until the screen is as `shown` wants it.
    pub(crate) fn wait_until(&mut self, what: &str, shown: impl Fn(&str) -> bool) -> &mut Self {
        while !shown(&self.screen()) {
            let bytes = self.coming.recv_timeout(GUARD);
            let bytes = bytes.unwrap_or_else(|_| panic!("no {what} on:\n{}", self.screen()));
            self.take(&bytes);
        }
        self
    }

    /// Waits until `marker` was written, also if the screen does not show it.
    pub(crate) fn wait_for_bytes(&mut self, marker: &str) -> &mut Self {
        while !self.raw.contains(marker) {
            let bytes = self.coming.recv_timeout(GUARD);
            let bytes = bytes.unwrap_or_else(|_| panic!("no {marker:?} in {:?}", self.raw));
            self.take(&bytes);
        }
        self
    }

    /// Resizes the terminal; the kernel signals its command.
    pub(crate) fn resize(&mut self, columns: u16) -> &mut Self {
        let size = PtySize { rows: self.rows, cols: columns, pixel_width: 0, pixel_height: 0 };
        self.master.resize(size).unwrap();
        let rows = self.rows.try_into().unwrap();
        self.screen.screen_mut().set_size(rows, columns.try_into().unwrap());
        self
    }

    /// Types.
    pub(crate) fn types(&mut self, keys: &str) -> &mut Self {
        self.keyboard.write_all(keys.as_bytes()).unwrap();
        self.keyboard.flush().unwrap();
        self
    }

    /// Sends SIGHUP to the command, as the kernel does when a terminal closes.
    pub(crate) fn hang_up(&mut self) {
        self.signal(Signal::HUP);
    }

    /// Sends a signal to the command.
    pub(crate) fn signal(&mut self, signal: Signal) -> &mut Self {
        let pid = i32::try_from(self.child.process_id().unwrap()).unwrap();
        kill_process(Pid::from_raw(pid).unwrap(), signal).unwrap();
        self
    }

    /// Waits until a signal has stopped the command. One that continues it would be lost before.
    pub(crate) fn wait_until_stopped(&mut self) -> &mut Self {
        let stat = format!("/proc/{}/stat", self.child.process_id().unwrap());
        let began = Instant::now();
        while !std::fs::read_to_string(&stat).unwrap().contains(") T ") {
            assert!(began.elapsed() < GUARD, "it goes on:\n{}", self.screen());
            thread::yield_now();
        }
        self
    }

    /// Returns whether the terminal shows its alternate screen, and whether it hides the cursor.
    pub(crate) fn is_taken(&self) -> (bool, bool) {
        (self.screen.screen().alternate_screen(), self.screen.screen().hide_cursor())
    }

    /// Waits for the end; returns the exit code.
    pub(crate) fn finish(&mut self) -> u32 {
        use std::sync::mpsc::RecvTimeoutError::Timeout;
        loop {
            match self.coming.recv_timeout(GUARD) {
                Ok(bytes) => self.take(&bytes),
                Err(Timeout) => panic!("it hangs on:\n{}", self.screen()),
                Err(_) => return self.child.wait().unwrap().exit_code(),
            }
        }
    }

    /// What is on the screen, without the spaces at the ends of lines.
    pub(crate) fn screen(&self) -> String {
        self.screen.screen().contents()
    }

    /// What is in the scrollback and on the screen, from the first line on.
    pub(crate) fn history(&mut self) -> String {
        let screen = self.screen.screen_mut();
        let columns = screen.size().1.get();
        screen.set_scrollback(usize::MAX);
        let above = screen.scrollback();
        let mut lines = Vec::new();
        for line in (0..above).rev() {
            screen.set_scrollback(line + 1);
            lines.extend(screen.rows(0, columns).next());
        }
        screen.set_scrollback(0);
        lines.extend(screen.rows(0, columns));
        lines.iter().map(|line| line.trim_end()).collect::<Vec<_>>().join("\n")
    }

    fn take(&mut self, bytes: &[u8]) {
        self.raw += &String::from_utf8_lossy(bytes);
        self.screen.process(bytes);
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        // After `finish` it is gone already; after a failed assertion it must not stay.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
