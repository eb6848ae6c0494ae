//! What a person sees while a run goes on: a live picture on a terminal, plain lines elsewhere.

use std::collections::BTreeSet;
use std::io::{self, IsTerminal, Write};
use std::os::fd::AsFd;
use std::time::Instant;

use adjutant_core::{Event, SessionId, Timestamp};
use adjutant_view::progress::{ProgressFrame, keeping, line};
use adjutant_view::{Palette, RunView, TimedEvent, events, sanitize};

use crate::ask::is_asking;
use crate::output::{print_json_line, say};

/// Columns where the terminal does not say.
const USUAL_WIDTH: usize = 80;

/// The picture of a run, kept up to date.
pub(crate) struct LiveView {
    /// The fold everything is drawn from.
    pub(crate) view: RunView,
    began: Instant,
    /// How old the run was then.
    age: Timestamp,
    palette: Palette,
    drawn_lines: usize,
    /// Those of whom it was said that their work is being kept.
    keeping: BTreeSet<SessionId>,
    mode: LiveMode,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum LiveMode {
    /// A picture that is redrawn in place.
    Picture,
    /// A line for each thing worth saying.
    Lines,
    /// Wire events on standard output, nothing else.
    Events,
    /// Nothing: somebody else's run, and no terminal.
    Quiet,
}

impl LiveView {
    /// Looks at the terminal and decides how to show things.
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

    /// Looks on at a run that another process carries: a picture on a terminal, or nothing.
    pub(crate) fn watching() -> Self {
        let live = Self::new(false);
        let mode = if live.mode == LiveMode::Picture { LiveMode::Picture } else { LiveMode::Quiet };
        Self { mode, ..live }
    }

    /// Counts time from the beginning of the run, which is `age` old.
    pub(crate) fn set_run_age(&mut self, age: Timestamp) {
        (self.began, self.age) = (Instant::now(), age);
    }

    /// Folds in an event and says it where lines are said.
    pub(crate) fn take(&mut self, entry: TimedEvent<'_>) {
        self.view.apply(entry);
        match self.mode {
            // The tree does not show it, and with --yes nothing else tells which hosts are reached.
            LiveMode::Picture | LiveMode::Events
                if matches!(entry.event, Event::DomainAllowed { .. }) =>
            {
                if let Some(text) = line(&self.view, &entry, self.palette) {
                    self.say_above(&text);
                }
            }
            LiveMode::Picture | LiveMode::Quiet => {}
            // The one who asks for approval says so; with --yes nobody waits.
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

    /// Says a line on standard error where the picture was; the next picture is drawn below it.
    fn say_above(&mut self, text: &str) {
        if self.drawn_lines > 0 {
            let erase = format!("\x1b[{}A\r\x1b[J", self.drawn_lines);
            let _ = io::stderr().lock().write_all(erase.as_bytes());
        }
        self.drawn_lines = 0;
        say(text);
    }

    /// Folds in what an earlier process said already.
    pub(crate) fn recall(&mut self, entry: TimedEvent<'_>) {
        self.view.apply(entry);
        self.set_run_age(entry.at);
    }

    /// Says whether there is a picture worth drawing: something has started.
    fn is_drawn(&self) -> bool {
        self.mode == LiveMode::Picture
            && !is_asking()
            && self.view.delegations().any(|delegation| delegation.started.is_some())
    }

    fn now(&self) -> Timestamp {
        let elapsed = u64::try_from(self.began.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.age.plus_millis(elapsed)
    }

    /// Says once of each whose work takes long to be kept that it is.
    fn say_keeping(&mut self) {
        let now = self.now();
        for delegation in self.view.delegations() {
            if let Some(words) = keeping(delegation, now)
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
            // Up to the first line of the old picture, then clear to the end of the screen.
            text += &format!("\x1b[{}A\r", self.drawn_lines);
        }
        text += "\x1b[J";
        text += &picture;
        if !picture.ends_with('\n') {
            text.push('\n');
        }
        self.drawn_lines = text.matches('\n').count();
        let mut stderr = io::stderr().lock();
        // A terminal that is gone leaves nobody to draw for.
        let _ = stderr.write_all(text.as_bytes()).and_then(|()| stderr.flush());
    }

    /// Draws the picture, where there is one, over the one before.
    pub(crate) fn redraw(&mut self) {
        if is_asking() {
            // The question stands below the picture; the next one is drawn below the answer.
            self.drawn_lines = 0;
        }
        if self.mode == LiveMode::Lines {
            self.say_keeping();
        } else if self.is_drawn() {
            self.draw();
        }
    }

    /// Leaves the last picture standing, apart from what follows.
    pub(crate) fn close(&mut self) {
        let drawn = self.drawn_lines > 0;
        self.finish();
        if drawn {
            say("");
        }
    }

    /// Draws the last picture and leaves it standing.
    pub(crate) fn finish(&mut self) {
        self.redraw();
        self.drawn_lines = 0;
    }
}

/// Colours only where a terminal shows them and nobody asked for none.
pub(crate) fn palette(terminal: bool) -> Palette {
    let plain = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
    if terminal && !plain { Palette::Ansi } else { Palette::Plain }
}

/// Returns the columns of a terminal, or a usual number where there is none.
pub(crate) fn columns(terminal: impl AsFd) -> usize {
    match rustix::termios::tcgetwinsize(terminal) {
        Ok(size) if size.ws_col > 0 => usize::from(size.ws_col),
        Ok(_) | Err(_) => USUAL_WIDTH,
    }
}

/// Returns the lines of a terminal, where it says.
pub(crate) fn lines(terminal: impl AsFd) -> Option<usize> {
    let size = rustix::termios::tcgetwinsize(terminal).ok()?;
    Some(usize::from(size.ws_row)).filter(|rows| *rows > 0)
}

/// Returns the lines a picture may have; one stays free for the cursor and one
/// above, so that drawing neither scrolls nor clears the whole screen into the history.
fn rows(terminal: impl AsFd) -> Option<usize> {
    lines(terminal).map(|rows| rows.saturating_sub(2)).filter(|rows| *rows > 2)
}
