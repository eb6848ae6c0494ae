//! The terminal while the program has it: alternate screen, raw mode, no cursor. Left on drop, on a panic and on signals.
//!
//! [`TerminalScreen`] is the screen; [`TerminalSignals`] remembers signals until the program's loop looks at them.

use std::fs::File;
use std::io::{self, BufWriter, Stdout, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use ratatui_core::backend::Backend;
use ratatui_core::buffer::Buffer;
use ratatui_core::layout::Rect;
use ratatui_crossterm::CrosstermBackend;
use ratatui_crossterm::crossterm::terminal::{
    BeginSynchronizedUpdate, EndSynchronizedUpdate, EnterAlternateScreen, LeaveAlternateScreen,
    disable_raw_mode, enable_raw_mode,
};
use ratatui_crossterm::crossterm::{cursor, execute, queue};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::{Signal, kill_current_process_group};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGTSTP};
use signal_hook::{SigId, flag, low_level};

use crate::render::render;
use crate::state::WatchState;

/// The terminal while the program has it.
pub(crate) struct TerminalScreen {
    backend: CrosstermBackend<BufWriter<Stdout>>,
    /// What the terminal shows.
    shown: Buffer,
    is_taken: bool,
}

impl TerminalScreen {
    /// Takes the terminal.
    pub(crate) fn open() -> io::Result<Self> {
        let before = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            restore();
            before(panic);
        }));
        let backend = CrosstermBackend::new(BufWriter::new(io::stdout()));
        let mut screen = Self { backend, shown: Buffer::default(), is_taken: false };
        screen.enter()?;
        Ok(screen)
    }

    /// Takes the terminal again after [`Self::leave`].
    pub(crate) fn enter(&mut self) -> io::Result<()> {
        self.is_taken = true;
        enable_raw_mode()?;
        self.shown = Buffer::default();
        execute!(io::stdout(), EnterAlternateScreen, cursor::Hide)
    }

    /// Gives the terminal back, as it was.
    pub(crate) fn leave(&mut self) {
        if std::mem::take(&mut self.is_taken) {
            restore();
        }
    }

    /// Gives the terminal back and stops until the shell continues this process. The whole process group stops, so that
    /// the shell notices it also if a launcher such as npm's is between them.
    pub(crate) fn suspend(&mut self) -> io::Result<()> {
        self.leave();
        kill_current_process_group(Signal::STOP)?;
        self.enter()
    }

    /// Rings the bell of the terminal.
    pub(crate) fn ring(&mut self) -> io::Result<()> {
        self.backend.write_all(b"\x07")?;
        io::Write::flush(&mut self.backend)
    }

    /// Draws the state. Only cells that changed are written.
    ///
    /// Ratatui's `Terminal` is not used: it asks the terminal for the cursor, and not every terminal answers.
    pub(crate) fn draw(&mut self, state: &WatchState) -> io::Result<()> {
        let area = Rect::new(0, 0, state.size.0, state.size.1);
        queue!(self.backend, BeginSynchronizedUpdate)?;
        if self.shown.area != area {
            self.shown = Buffer::empty(area);
            self.backend.clear()?;
        }
        let mut next = Buffer::empty(area);
        render(state, area, &mut next);
        self.backend.draw(self.shown.diff(&next).into_iter())?;
        self.shown = next;
        execute!(self.backend, EndSynchronizedUpdate)
    }
}

impl Drop for TerminalScreen {
    fn drop(&mut self) {
        self.leave();
    }
}

fn restore() {
    // Errors are ignored: the terminal is gone.
    let _ = disable_raw_mode();
    let _ = execute!(io::stdout(), EndSynchronizedUpdate, cursor::Show, LeaveAlternateScreen);
    let _ = io::stdout().flush();
}

/// What waiting for the terminal brought.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum TerminalStatus {
    /// A key, a resize, a signal, or nothing within the time.
    Open,
    /// The terminal is gone.
    HungUp,
}

/// Waits until a key is pressed, a signal arrives or the time is over.
///
/// Crossterm reads a terminal that is gone over and over again without an end, so it must not be asked then.
pub(crate) fn wait_for_input(terminal: &File, time: Duration) -> io::Result<TerminalStatus> {
    let mut asked = [PollFd::new(terminal, PollFlags::IN)];
    let time = Timespec { tv_sec: 0, tv_nsec: time.subsec_nanos().into() };
    match poll(&mut asked, Some(&time)) {
        Ok(_) | Err(Errno::INTR) => {}
        Err(error) => return Err(error.into()),
    }
    let gone = PollFlags::HUP | PollFlags::ERR | PollFlags::NVAL;
    let is_gone = asked.iter().any(|it| it.revents().intersects(gone));
    Ok(if is_gone { TerminalStatus::HungUp } else { TerminalStatus::Open })
}

/// Remembers signals until the loop looks at them.
pub(crate) struct TerminalSignals {
    interrupt: Arc<AtomicBool>,
    end: Arc<AtomicBool>,
    suspend: Arc<AtomicBool>,
    handlers: Vec<SigId>,
}

impl TerminalSignals {
    pub(crate) fn register() -> io::Result<Self> {
        let [interrupt, end, suspend] = std::array::from_fn(|_| Arc::new(AtomicBool::new(false)));
        let wanted = [(SIGINT, &interrupt), (SIGTERM, &end), (SIGHUP, &end), (SIGTSTP, &suspend)];
        let handlers = wanted.map(|(signal, flag)| flag::register(signal, Arc::clone(flag)));
        let handlers = handlers.into_iter().collect::<io::Result<_>>()?;
        Ok(Self { interrupt, end, suspend, handlers })
    }

    /// Returns whether the program has to end.
    pub(crate) fn is_stop_asked(&self) -> bool {
        self.interrupt.load(Ordering::Relaxed) || self.end.load(Ordering::Relaxed)
    }

    /// Returns whether another process asked this one to stop for a while, as ctrl+z does, and forgets it.
    pub(crate) fn take_suspend(&self) -> bool {
        self.suspend.swap(false, Ordering::Relaxed)
    }

    /// Forgets a ctrl+c and a ctrl+z that were meant for a command on the normal screen.
    pub(crate) fn clear_interrupt_and_suspend(&self) {
        self.interrupt.store(false, Ordering::Relaxed);
        self.suspend.store(false, Ordering::Relaxed);
    }
}

impl Drop for TerminalSignals {
    fn drop(&mut self) {
        self.handlers.iter().for_each(|handler| _ = low_level::unregister(*handler));
    }
}
