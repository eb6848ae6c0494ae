//! Shows the progress of a run: a tree that is redrawn on a terminal, plain lines elsewhere, or JSON events.

use std::collections::BTreeSet;
use std::io::{self, IsTerminal, Write};
use std::os::fd::AsFd;
use std::time::Instant;

use adjutant_core::{Event, SessionId, Timestamp};
use adjutant_view::progress::{ProgressFrame, line, slow_commit_text};
use adjutant_view::{Palette, RunView, TimedEvent, events, sanitize};

use crate::ask::is_asking;
use crate::output::{print_json_line, say};

/// The width if the terminal does not report one.
const USUAL_WIDTH: usize = 80;

/// The folded state of a run, and how it is shown.
pub(crate) struct LiveView {
    /// The folded state.
    pub(crate) view: RunView,
    began: Instant,
    /// The age of the run at `began`.
    age: Timestamp,
    palette: Palette,
    drawn_lines: usize,
    /// Sessions for which the line about saving work was printed.
    keeping: BTreeSet<SessionId>,
    mode: LiveMode,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum LiveMode {
    /// A tree that is redrawn in place.
    Picture,
    /// A line per noteworthy event.
    Lines,
    /// JSON events on standard output, nothing else.
    Events,
    /// Nothing, for a run of another process without a terminal, and for a program that has the terminal.
    Quiet,
}

impl LiveView {
    /// Chooses how to show progress by looking at the terminal.
    pub(crate) fn new(events: bool) -> Self {
        let stderr = io::stderr();
        let terminal =
            stderr.is_terminal() && std::env::var_os("TERM").is_none_or(|term| term != "dumb");
        let mode = if events {
            LiveMode::Events
        } else if terminal {
            LiveMode::Picture
        } else {
            LiveMode::Lines
        };
        Self {
            view: RunView::default(),
            began: Instant::now(),
            age: Timestamp::ZERO,
            palette: palette(terminal),
            drawn_lines: 0,
            keeping: BTreeSet::new(),
            mode,
        }
    }

    /// Shows a run of another process: a tree on a terminal, otherwise nothing.
    pub(crate) fn watching() -> Self {
        let live = Self::new(false);
        let mode = if live.mode == LiveMode::Picture { LiveMode::Picture } else { LiveMode::Quiet };
        Self { mode, ..live }
    }

    /// Shows nothing, because the terminal belongs to the person's program.
    pub(crate) fn silent() -> Self {
        Self { mode: LiveMode::Quiet, ..Self::new(false) }
    }

    /// Says whether the terminal belongs to the person's program, which also gets ctrl+c.
    pub(crate) fn is_silent(&self) -> bool {
        self.mode == LiveMode::Quiet
    }

    /// Sets the age of the run now.
    pub(crate) fn set_run_age(&mut self, age: Timestamp) {
        (self.began, self.age) = (Instant::now(), age);
    }

    /// Folds an event, and prints it in the modes that print events.
    pub(crate) fn take(&mut self, entry: TimedEvent<'_>) {
        self.view.apply(entry);
        match self.mode {
            // The tree does not show allowed hosts, and with --yes this line is the only sign of them.
            LiveMode::Picture | LiveMode::Events
                if matches!(entry.event, Event::DomainAllowed { .. }) =>
            {
                if let Some(text) = line(&self.view, &entry, self.palette) {
                    self.say_above(&text);
                }
            }
            LiveMode::Picture | LiveMode::Quiet => {}
            // The terminal prompt shows the question itself; with --yes there is none.
            LiveMode::Lines if matches!(entry.event, Event::ApprovalAsked { .. }) => {}
            LiveMode::Lines => {
                if let Some(text) = line(&self.view, &entry, self.palette) {
                    say(&text);
                }
            }
            LiveMode::Events => {
                for event in events::translate(&self.view, &entry) {
                    // A reader that closed the pipe misses events; the run goes on.
                    let _ = print_json_line(&event);
                }
            }
        }
    }

    /// Prints a line where the tree was drawn; the next tree is drawn below it.
    fn say_above(&mut self, text: &str) {
        if self.drawn_lines > 0 {
            let erase = format!("\x1b[{}A\r\x1b[J", self.drawn_lines);
            let _ = io::stderr().lock().write_all(erase.as_bytes());
        }
        self.drawn_lines = 0;
        say(text);
    }

    /// Folds an event that an earlier process has already shown.
    pub(crate) fn recall(&mut self, entry: TimedEvent<'_>) {
        self.view.apply(entry);
        self.set_run_age(entry.at);
    }

    /// Returns whether to draw the tree: only after a delegation has started.
    fn is_drawn(&self) -> bool {
        self.mode == LiveMode::Picture
            && !is_asking()
            && self.view.delegations().any(|delegation| delegation.started.is_some())
    }

    fn now(&self) -> Timestamp {
        let elapsed = u64::try_from(self.began.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.age.plus_millis(elapsed)
    }

    /// Prints once per delegation that saving its work takes long.
    fn say_keeping(&mut self) {
        let now = self.now();
        for delegation in self.view.delegations() {
            if let Some(words) = slow_commit_text(delegation, now)
                && self.keeping.insert(delegation.session)
            {
                say(&format!("[{}] {words}", sanitize::label(delegation.label.as_str())));
            }
        }
    }

    fn draw(&mut self) {
        let (width, height) = (columns(io::stderr()), rows(io::stderr()));
        let frame = ProgressFrame { width, height, now: self.now(), palette: self.palette };
        let picture = frame.render(&self.view);
        let mut text = String::new();
        if self.drawn_lines > 0 {
            // Move up to the first line of the old tree, then clear to the end of the screen.
            text += &format!("\x1b[{}A\r", self.drawn_lines);
        }
        text += "\x1b[J";
        text += &picture;
        if !picture.ends_with('\n') {
            text.push('\n');
        }
        self.drawn_lines = text.matches('\n').count();
        let mut stderr = io::stderr().lock();
        // Errors are ignored: the terminal is gone.
        let _ = stderr.write_all(text.as_bytes()).and_then(|()| stderr.flush());
    }

    /// Draws the tree over the previous one.
    pub(crate) fn redraw(&mut self) {
        if is_asking() {
            // The prompt is below the tree, so the next tree is drawn below the answer.
            self.drawn_lines = 0;
        }
        if self.mode == LiveMode::Lines {
            self.say_keeping();
        } else if self.is_drawn() {
            self.draw();
        }
    }

    /// Draws the last tree and a blank line after it.
    pub(crate) fn close(&mut self) {
        let drawn = self.drawn_lines > 0;
        self.finish();
        if drawn {
            say("");
        }
    }

    /// Draws the last tree and leaves it on the screen.
    pub(crate) fn finish(&mut self) {
        self.redraw();
        self.drawn_lines = 0;
    }
}

/// Returns the colours: none without a terminal or with `NO_COLOR`.
pub(crate) fn palette(terminal: bool) -> Palette {
    let plain = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
    if terminal && !plain { Palette::Ansi } else { Palette::Plain }
}

/// Returns the width of a terminal, or a default.
pub(crate) fn columns(terminal: impl AsFd) -> usize {
    match rustix::termios::tcgetwinsize(terminal) {
        Ok(size) if size.ws_col > 0 => usize::from(size.ws_col),
        Ok(_) | Err(_) => USUAL_WIDTH,
    }
}

/// Returns the height of a terminal, if it reports one.
pub(crate) fn lines(terminal: impl AsFd) -> Option<usize> {
    let size = rustix::termios::tcgetwinsize(terminal).ok()?;
    Some(usize::from(size.ws_row)).filter(|rows| *rows > 0)
}

/// Returns the most lines of the tree. Two lines stay free, so that drawing does not scroll the terminal.
fn rows(terminal: impl AsFd) -> Option<usize> {
    lines(terminal).map(|rows| rows.saturating_sub(2)).filter(|rows| *rows > 2)
}
