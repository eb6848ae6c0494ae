//! The program: connects the state to the terminal, to the files of the runs and to other commands.
//!
//! Start at [`run_program`]. The loop waits for a key, a signal or the next look at the files. What the files say is drawn at most
//! four times per second, and only when it changed; keys are drawn at once.

use std::collections::BTreeSet;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

use adjutant_core::{RunId, SessionId};
use adjutant_engine::Archive;
use adjutant_view::{Palette, ProcessLiveness};
use ratatui_crossterm::crossterm::event::{self, Event};
use ratatui_crossterm::crossterm::terminal::size;

use crate::child_process::{CommandStarter, PrintedText};
use crate::opened_run::OpenedRun;
use crate::run_reader::{FoldRunFn, RunReader};
use crate::state::WatchState;
use crate::terminal_screen::{TerminalScreen, TerminalSignals, TerminalStatus, wait_for_input};
use crate::update::{WatchAction, update};

/// How often the files are looked at and drawn.
const REDRAW_CHECK_INTERVAL: Duration = Duration::from_millis(250);
/// How often a live run is drawn without events, so that times advance.
const CLOCK: Duration = Duration::from_secs(1);

/// What the program needs to know.
pub struct WatchSetup {
    /// The state directory.
    pub archive: Archive,
    /// Folds a run for the list.
    pub fold: FoldRunFn,
    /// Says whether a run in this folder is of the folder where the program was started.
    pub is_here: Box<dyn Fn(&Path) -> bool>,
    /// How other commands are started.
    pub commands: CommandStarter,
    /// Whether the terminal may be coloured.
    pub palette: Palette,
    /// Whether the terminal shows UTF-8.
    pub is_utf8: bool,
    /// The run to open, with the agent to select; `None` opens the list.
    pub opened: Option<(RunId, Option<SessionId>)>,
}

/// How the program ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WatchEnd {
    /// The run that was shown or selected last.
    pub run: Option<RunId>,
    /// Whether a signal ended it.
    pub by_signal: bool,
}

/// Shows the runs until the person leaves.
///
/// # Errors
///
/// Why the terminal cannot be used.
pub fn run_program(setup: WatchSetup) -> io::Result<WatchEnd> {
    let signals = TerminalSignals::register()?;
    let terminal = File::open("/dev/tty")?;
    let screen = TerminalScreen::open()?;
    let state = WatchState::new(setup.palette, setup.is_utf8, size().unwrap_or((80, 24)));
    let reader = RunReader::new(setup.archive, setup.fold, setup.is_here);
    let (sender, printed) = channel();
    let commands = setup.commands;
    let mut program = WatchProgram {
        state,
        reader,
        commands,
        screen,
        terminal,
        signals,
        sender,
        printed,
        rung: BTreeSet::new(),
        has_loaded: false,
    };
    if let Some((run, session)) = setup.opened {
        program.open(run, session);
    }
    let ended = program.run();
    let run = program.state.current_run();
    // The normal screen comes back before anything else is printed.
    program.screen.leave();
    match ended {
        Ok(by_signal) => Ok(WatchEnd { run, by_signal }),
        // The terminal is gone.
        Err(_) if program.signals.is_stop_asked() => Ok(WatchEnd { run, by_signal: true }),
        Err(error) => Err(error),
    }
}

struct WatchProgram {
    state: WatchState,
    reader: RunReader,
    commands: CommandStarter,
    screen: TerminalScreen,
    /// The terminal again, to see whether it is gone.
    terminal: File,
    signals: TerminalSignals,
    sender: Sender<PrintedText>,
    printed: Receiver<PrintedText>,
    /// The questions that the person was told of, by run and hash.
    rung: BTreeSet<(RunId, String)>,
    /// Whether the runs that were there at the start are read. What these ask does not ring.
    has_loaded: bool,
}

impl WatchProgram {
    /// Runs the loop. Returns whether a signal ended it.
    fn run(&mut self) -> io::Result<bool> {
        let begun = Instant::now();
        // From here on crossterm notices resizes.
        event::poll(Duration::ZERO)?;
        self.state.resize(size().unwrap_or(self.state.size));
        self.reader.read(&mut self.state);
        // Most lists are read before a person sees anything else.
        while self.reader.has_unread() && begun.elapsed() < REDRAW_CHECK_INTERVAL {
            self.reader.read(&mut self.state);
        }
        // What waited before is on the first screen.
        self.note_questions();
        self.screen.draw(&self.state)?;
        let mut drawn = Instant::now();
        let mut is_changed = false;
        loop {
            if self.signals.is_stop_asked() {
                return Ok(true);
            }
            if self.signals.take_suspend() {
                self.screen.suspend()?;
                is_changed = true;
            }
            let wait =
                if self.reader.has_unread() { Duration::ZERO } else { REDRAW_CHECK_INTERVAL };
            if wait_for_input(&self.terminal, wait)? == TerminalStatus::HungUp {
                return Ok(true);
            }
            let mut has_input = event::poll(Duration::ZERO)?;
            while has_input && event::poll(Duration::ZERO)? {
                if self.handle(event::read()?)? {
                    return Ok(false);
                }
                is_changed = true;
            }
            self.has_loaded |= !self.reader.has_unread();
            is_changed |= self.reader.read(&mut self.state);
            if self.note_questions() && self.has_loaded {
                self.screen.ring()?;
            }
            while let Ok(printed) = self.printed.try_recv() {
                self.state.take_text(&printed.args, &printed.text);
                has_input = true;
            }
            let is_due = drawn.elapsed() >= REDRAW_CHECK_INTERVAL && is_changed;
            let is_late = drawn.elapsed() >= CLOCK && self.shows_live_run();
            if has_input || is_due || is_late {
                self.screen.draw(&self.state)?;
                (drawn, is_changed) = (Instant::now(), false);
            }
        }
    }

    /// Remembers the questions that wait. Returns whether one of them is new.
    fn note_questions(&mut self) -> bool {
        let waiting = self.state.inbox().into_iter().map(|row| (row.run, row.hash));
        let waiting: BTreeSet<_> = waiting.collect();
        let is_new = !waiting.is_subset(&self.rung);
        self.rung = waiting;
        is_new
    }

    fn shows_live_run(&self) -> bool {
        match &self.state.opened {
            Some(run) => run.liveness == ProcessLiveness::Alive && !run.is_in_past(),
            None => self.state.runs.iter().any(|run| run.liveness == ProcessLiveness::Alive),
        }
    }

    /// Handles a key or a resize. Returns whether the person leaves.
    fn handle(&mut self, event: Event) -> io::Result<bool> {
        match event {
            Event::Key(key) => {
                for action in update(&mut self.state, key) {
                    if self.perform(action)? {
                        return Ok(true);
                    }
                }
            }
            Event::Resize(columns, rows) => self.state.resize((columns, rows)),
            Event::FocusGained | Event::FocusLost | Event::Mouse(_) | Event::Paste(_) => {}
        }
        Ok(false)
    }

    fn perform(&mut self, action: WatchAction) -> io::Result<bool> {
        match action {
            WatchAction::Quit => return Ok(true),
            WatchAction::Suspend => self.screen.suspend()?,
            WatchAction::ReadRun(run, session) => self.open(run, session),
            WatchAction::ReadText(args) => {
                let folder = self.folder_of(self.state.current_run());
                self.commands.print(args, folder.as_deref(), self.sender.clone());
            }
            WatchAction::Run(line) => {
                self.screen.leave();
                let folder = self.folder_of(Some(line.run));
                let ran = self.commands.run(&line, folder.as_deref());
                self.signals.clear_interrupt_and_suspend();
                self.screen.enter()?;
                self.state.message = ran.err().map(|error| format!("cannot run it: {error}"));
            }
        }
        Ok(false)
    }

    fn open(&mut self, run: RunId, session: Option<SessionId>) {
        match self.reader.open(run) {
            Ok(()) => self.state.open(OpenedRun::new(run, session)),
            Err(error) => self.state.message = Some(error.to_string()),
        }
    }

    /// Returns the folder of a run, in which its commands find its project.
    fn folder_of(&self, run: Option<RunId>) -> Option<PathBuf> {
        let opened = self.state.opened.as_ref().filter(|it| Some(it.id) == run);
        let listed = || self.state.runs.iter().find(|it| Some(it.id) == run).map(|it| &it.view);
        opened.map(OpenedRun::view).or_else(listed).map(|view| PathBuf::from(view.workdir()))
    }
}
