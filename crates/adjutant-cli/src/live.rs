//! Shows the progress of a run: a tree that is redrawn on a terminal, plain lines elsewhere, or JSON events.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::io::{self, IsTerminal};
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use adjutant_core::{Event, SessionId, Timestamp};
use adjutant_view::progress::{ProgressFrame, line, slow_commit_text};
use adjutant_view::{Palette, RunView, TimedEvent, events, layout, sanitize};

use crate::ask::{has_terminal_program, is_asking};
use crate::notify::{NotifiedEvent, Notifier};
use crate::output::{print_json_line, say};
use crate::screen_region;

/// The minimum time between two drawings: at most four per second, however many callers ask.
const REDRAW: Duration = Duration::from_millis(250);

/// How often a caller asks for a drawing. Much more often than [`REDRAW`]: a caller that asks just too early has to wait
/// for its next time, and asking costs nothing.
pub(crate) const REDRAW_CHECK_INTERVAL: Duration = Duration::from_millis(50);

/// A caller that asks later than this was stopped. The shell may have printed lines meanwhile, so nothing is drawn over
/// them before [`LiveView::continue_below`].
const LATE: Duration = Duration::from_millis(500);

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
    /// Whether the terminal shows UTF-8.
    is_utf8: bool,
    /// Whether something happened since the last drawing.
    is_changed: bool,
    /// The second of the run, width and height at the last drawing.
    drawn_at: (u64, usize, Option<usize>),
    /// When it was drawn last.
    drawn: Option<Instant>,
    /// When a caller asked for a drawing last.
    looked: Instant,
    notifier: Notifier,
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
        let terminal = stderr.is_terminal() && !is_dumb();
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
            is_utf8: is_utf8_locale(),
            is_changed: true,
            drawn_at: (0, 0, None),
            drawn: None,
            looked: Instant::now(),
            notifier: Notifier::new(true),
            keeping: BTreeSet::new(),
            mode,
        }
    }

    /// Shows a run of another process: a tree on a terminal, otherwise nothing.
    pub(crate) fn watching() -> Self {
        let live = Self::new(false);
        let mode = if live.mode == LiveMode::Picture { LiveMode::Picture } else { LiveMode::Quiet };
        // The process of the run starts the program itself.
        Self { mode, notifier: Notifier::new(false), ..live }
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
        self.is_changed = true;
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
                    say(&self.encoded(text));
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
        screen_region::erase();
        say(text);
    }

    /// Folds an event that an earlier process has already shown.
    pub(crate) fn recall(&mut self, entry: TimedEvent<'_>) {
        self.view.apply(entry);
        self.set_run_age(entry.at);
    }

    /// Shows the end of the text that a model is writing.
    pub(crate) fn show_text_end(&mut self, at: Timestamp, session: SessionId, text: &str) {
        if self.mode == LiveMode::Picture {
            self.view.show_text_end(at, session, text);
            self.is_changed = true;
        }
    }

    /// Returns whether to draw the tree: as soon as an agent works.
    fn is_drawn(&self) -> bool {
        self.mode == LiveMode::Picture
            && !is_asking()
            && !has_terminal_program()
            && (self.has_root_agent() || self.view.delegations().any(|it| it.started.is_some()))
    }

    /// Returns whether the root is an agent, as in `run` and `story`.
    pub(crate) fn has_root_agent(&self) -> bool {
        self.view.root().is_some_and(|root| root.model.is_some() && root.started.is_some())
    }

    fn encoded(&self, text: String) -> String {
        if self.is_utf8 { text } else { layout::ascii(&text) }
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
        let now = self.now();
        let at = (now.as_millis() / 1_000, width, height);
        // Between events only the elapsed times change, which are drawn once per second.
        if !self.is_changed && self.drawn_at == at && screen_region::is_drawn() {
            return;
        }
        (self.is_changed, self.drawn_at, self.drawn) = (false, at, Some(Instant::now()));
        let frame = ProgressFrame { width, height, now, palette: self.palette };
        screen_region::draw(&self.encoded(frame.render(&self.view)), width);
    }

    /// Draws the tree over the previous one if that is due, and notifies the person if the run waits for an answer.
    pub(crate) fn redraw(&mut self) {
        let is_late = std::mem::replace(&mut self.looked, Instant::now()).elapsed() > LATE;
        let is_due = !is_late && self.drawn.is_none_or(|at| at.elapsed() >= REDRAW);
        if self.mode == LiveMode::Lines {
            self.say_keeping();
        } else if is_due && self.is_drawn() {
            self.draw();
        }
        if self.mode != LiveMode::Quiet {
            let age = self.now();
            self.notifier.tell_of_questions(&self.view, age);
        }
    }

    /// Draws the next tree below what was printed while the process was stopped.
    pub(crate) fn continue_below(&mut self) {
        screen_region::leave();
        self.is_changed = true;
    }

    /// Notifies the person of the end of the run.
    pub(crate) fn notify_end(&mut self) {
        if self.mode != LiveMode::Quiet {
            let age = self.now();
            self.notifier.tell(&self.view, age, NotifiedEvent::Ended);
        }
    }

    /// Draws the last tree and a blank line after it.
    pub(crate) fn close(&mut self) {
        if self.finish() {
            say("");
        }
    }

    /// Removes the tree, because the result contains it.
    pub(crate) fn remove(&mut self) {
        screen_region::erase();
    }

    /// Draws the last tree and leaves it on the screen. Returns whether there is one.
    pub(crate) fn finish(&mut self) -> bool {
        self.is_changed = true;
        if self.is_drawn() {
            self.draw();
        }
        self.redraw();
        let is_drawn = screen_region::is_drawn();
        screen_region::leave();
        is_drawn
    }
}

/// Returns whether the locale says that the terminal shows UTF-8. Without a locale it is assumed.
pub(crate) fn is_utf8_locale() -> bool {
    let set = ["LC_ALL", "LC_CTYPE", "LANG"]
        .into_iter()
        .find_map(|name| std::env::var(name).ok().filter(|value| !value.is_empty()));
    set.is_none_or(|locale| {
        let locale = locale.to_ascii_lowercase();
        locale.contains("utf-8") || locale.contains("utf8")
    })
}

/// Returns text as the terminal can show it.
pub(crate) fn encoded(text: &str) -> Cow<'_, str> {
    if text.is_ascii() || is_utf8_locale() { text.into() } else { layout::ascii(text).into() }
}

/// Returns whether the terminal only prints lines, or is unknown. It gets no control sequences.
pub(crate) fn is_dumb() -> bool {
    std::env::var_os("TERM").is_none_or(|term| term.is_empty() || term == "dumb")
}

/// Returns the colours: none without a terminal, on a dumb one, or with `NO_COLOR`.
pub(crate) fn palette(terminal: bool) -> Palette {
    let plain = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
    if terminal && !plain && !is_dumb() { Palette::Ansi } else { Palette::Plain }
}

/// Returns the width of a terminal, or a default.
pub(crate) fn columns(terminal: impl AsFd) -> usize {
    match rustix::termios::tcgetwinsize(terminal) {
        Ok(size) if size.ws_col > 0 => usize::from(size.ws_col),
        Ok(_) | Err(_) => USUAL_WIDTH,
    }
}

/// Returns the height of a terminal, if it reports one.
fn lines(terminal: impl AsFd) -> Option<usize> {
    let size = rustix::termios::tcgetwinsize(terminal).ok()?;
    Some(usize::from(size.ws_row)).filter(|rows| *rows > 0)
}

/// Returns the most lines of the tree. Two lines stay free, so that drawing does not scroll the terminal.
fn rows(terminal: impl AsFd) -> Option<usize> {
    lines(terminal).map(|rows| rows.saturating_sub(2).max(1))
}
