//! The controlling terminal: what is printed there, and the lines that a person types.

use std::fs::File;
use std::io::{self, Read, Write};
use std::sync::Mutex;

use adjutant_view::sanitize;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::termios::{LocalModes, OptionalActions, Termios, tcgetattr, tcsetattr};

use crate::live;

/// How long a wait for input lasts before it is checked whether the question is still open.
const INPUT_WAIT: Timespec = Timespec { tv_sec: 0, tv_nsec: 100_000_000 };

/// The longest line that is read. A terminal passes at most 4,095 bytes in line mode.
const MAX_LINE_BYTES: usize = 4_096;

/// The controlling terminal, independent of standard input and output.
pub(crate) struct Terminal {
    input: File,
    output: File,
    // One question at a time, so that answers cannot be mixed up.
    pub(super) turn: Mutex<()>,
}

/// What waiting for a line came to.
pub(super) enum TypedLine {
    /// The person typed this; empty at the end of input.
    Line(String),
    /// The wait was interrupted before a line was typed.
    Interrupted,
}

impl Terminal {
    /// Opens the terminal, if there is one.
    pub(crate) fn open() -> Option<Self> {
        let open = |write: bool| File::options().read(!write).write(write).open("/dev/tty").ok();
        Some(Self { input: open(false)?, output: open(true)?, turn: Mutex::new(()) })
    }

    /// Shows a sanitized text and waits for yes or no. A terminal that is gone means no.
    pub(crate) fn confirm(&self, text: &str, prompt: &str) -> bool {
        let shown = self.show(&format!("{}{prompt}", sanitize::block(text)));
        shown.is_ok() && self.read_line().is_some_and(|answer| is_yes(&answer))
    }

    /// Writes text, as far as the terminal can show it.
    pub(crate) fn show(&self, text: &str) -> io::Result<()> {
        (&self.output).write_all(live::encoded(text).as_bytes())
    }

    /// Waits for a line; `None` at its end, when the terminal is gone, and at ctrl+d.
    pub(crate) fn read_line(&self) -> Option<String> {
        let line = self.read_chunk().ok().filter(|line| !line.is_empty())?;
        Some(line.trim_end_matches(['\r', '\n']).to_owned())
    }

    /// Stops showing what is typed, until the returned value is dropped.
    pub(crate) fn hide_typing(&self) -> HiddenTyping<'_> {
        let before = tcgetattr(&self.input).ok();
        if let Some(mut hidden) = before.clone() {
            hidden.local_modes -= LocalModes::ECHO;
            let _ = tcsetattr(&self.input, OptionalActions::Now, &hidden);
        }
        HiddenTyping { terminal: self, before }
    }

    /// Returns its width.
    pub(crate) fn width(&self) -> usize {
        live::columns(&self.output)
    }

    /// Returns handles for the standard input and output of a program that takes the terminal over.
    pub(super) fn handles(&self) -> io::Result<(File, File)> {
        Ok((self.input.try_clone()?, self.output.try_clone()?))
    }

    /// Prints text that is safe already. Does not return if the terminal is gone.
    pub(super) fn print(&self, text: &str) {
        if self.show(text).is_err() {
            wait_forever();
        }
    }

    /// Waits for a line, or until `is_over`. Does not return if the terminal is gone.
    pub(super) fn wait_for_line(&self, is_over: impl Fn() -> bool) -> TypedLine {
        loop {
            let mut asked = [PollFd::new(&self.input, PollFlags::IN)];
            // An interrupted wait is repeated like one that ended.
            let is_ready = poll(&mut asked, Some(&INPUT_WAIT)).is_ok_and(|ready| ready > 0);
            if is_over() {
                return TypedLine::Interrupted;
            }
            if !is_ready {
                continue;
            }
            match self.read_chunk() {
                Ok(line) if !line.is_empty() => return TypedLine::Line(line),
                // End of input: ctrl+d if the terminal can still be written to, otherwise the terminal is gone.
                Ok(_) => {
                    self.print("\n");
                    return TypedLine::Line(String::new());
                }
                Err(_) => wait_forever(),
            }
        }
    }

    /// Reads what the terminal passes on at once, which is one line.
    fn read_chunk(&self) -> io::Result<String> {
        let mut bytes = [0; MAX_LINE_BYTES];
        let count = (&self.input).read(&mut bytes)?;
        Ok(String::from_utf8_lossy(&bytes[..count]).into_owned())
    }
}

/// Returns whether an answer means yes.
pub(crate) fn is_yes(answer: &str) -> bool {
    matches!(answer.trim().to_lowercase().as_str(), "y" | "yes")
}

/// A terminal that does not show what is typed. Dropping it restores the terminal.
pub(crate) struct HiddenTyping<'a> {
    terminal: &'a Terminal,
    before: Option<Termios>,
}

impl Drop for HiddenTyping<'_> {
    fn drop(&mut self) {
        if let Some(before) = &self.before {
            let _ = tcsetattr(&self.terminal.input, OptionalActions::Now, before);
        }
    }
}

/// Leaves a question open: a terminal that is gone is not a no.
///
/// The run gets SIGHUP or the question expires; in both cases `resume` can ask again. The process does not wait for
/// this thread.
fn wait_forever() -> ! {
    loop {
        std::thread::park();
    }
}
