//! `watch`: follows a run from another terminal by reading its journal.
//!
//! On a terminal it draws on the alternate screen, from the first line each time, so that a resize leaves nothing
//! behind; elsewhere it prints a line per event. It never contacts the process of the run. Start at [`run_watch`].

use std::io::{self, IsTerminal, Write};
use std::time::{Duration, Instant};

use adjutant_core::{DelegationState, Event, SessionId, Timestamp};
use adjutant_engine::{Archive, JournalFollower, RunFiles};
use adjutant_view::progress::{ProgressFrame, line};
use adjutant_view::{Palette, ProcessLiveness, RunView, TimedEvent, events, sanitize, tree};
use rustix::process::{Signal, getpid, kill_process};
use rustix::termios::{LocalModes, OptionalActions, Termios, tcgetattr, tcsetattr};
use tokio::signal::unix::{SignalKind, signal};

use crate::args::RunArg;
use crate::exit::{Exit, Failure};
use crate::live;
use crate::output::{has_no_reader, print, print_json_line, say};
use crate::records::{
    archive_failure, colours, liveness, now, numbers, observe_run, say_how_to_resume,
};
use crate::run_lookup;

/// How often the journal is read, which also limits how often the screen is drawn.
const LOOK: Duration = Duration::from_millis(100);

/// How often the screen is redrawn without events, so that elapsed times advance.
const TICK: Duration = Duration::from_secs(1);

/// How progress is shown.
#[derive(Clone, Copy, PartialEq, Eq)]
enum WatchMode {
    Picture,
    Lines,
    Events,
}

/// Runs `adjutant watch`. The exit code is that of the run.
pub(crate) fn run_watch(archive: &Archive, run: &RunArg, as_json: bool) -> Result<Exit, Failure> {
    let (files, session) = run_lookup::find_to_show(archive, run.run.as_deref(), |_| true)?;
    let is_dumb = std::env::var_os("TERM").is_some_and(|term| term == "dumb");
    let mode = match (as_json, io::stdout().is_terminal() && !is_dumb) {
        (true, _) => WatchMode::Events,
        (false, true) => WatchMode::Picture,
        (false, false) => WatchMode::Lines,
    };
    let session = session.filter(|session| *session != files.id().root_session());
    let mut watch = WatchSession::begin(files, session, mode)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let left = runtime.and_then(|runtime| runtime.block_on(follow(&mut watch)));
    // The alternate screen is left first, so that what follows stays visible.
    watch.screen = None;
    match left {
        Ok(Ok(WatchEnd::Ended)) => watch.conclude(),
        Ok(Ok(WatchEnd::Asked)) => {
            say(&format!("adjutant: no longer watching {}", watch.files.id()));
            Ok(Exit::Cancelled)
        }
        Ok(Ok(WatchEnd::Unread)) => Ok(Exit::Completed),
        Ok(Err(failure)) => Err(failure),
        Err(error) => Err(Failure::new(Exit::Failed, format!("cannot watch: {error}"))),
    }
}

/// Why watching ended.
enum WatchEnd {
    /// The run, or the watched delegation, ended.
    Ended,
    /// A signal asked for it, such as ctrl+c.
    Asked,
    /// The reader of standard output has closed the pipe, as `head` does.
    Unread,
}

async fn follow(watch: &mut WatchSession) -> io::Result<Result<WatchEnd, Failure>> {
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut terminate = signal(SignalKind::terminate())?;
    let mut hang_up = signal(SignalKind::hangup())?;
    let mut resized = signal(SignalKind::window_change())?;
    let mut suspended = signal(SignalKind::from_raw(Signal::TSTP.as_raw()))?;
    let mut look = tokio::time::interval(LOOK);
    look.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            _ = interrupt.recv() => return Ok(Ok(WatchEnd::Asked)),
            _ = terminate.recv() => return Ok(Ok(WatchEnd::Asked)),
            _ = hang_up.recv() => return Ok(Ok(WatchEnd::Asked)),
            _ = resized.recv() => watch.drawn = None,
            _ = suspended.recv() => watch.suspend()?,
            _ = look.tick() => match watch.step() {
                // A run may be silent for long, so waiting for a failed write is not enough.
                Ok(_) if has_no_reader() => return Ok(Ok(WatchEnd::Unread)),
                Ok(false) => {}
                Ok(true) => return Ok(Ok(WatchEnd::Ended)),
                Err(failure) => return Ok(Err(failure)),
            },
        }
    }
}

/// The state of one `adjutant watch` command.
struct WatchSession {
    files: RunFiles,
    session: Option<SessionId>,
    view: RunView,
    follow: JournalFollower,
    liveness: ProcessLiveness,
    mode: WatchMode,
    palette: Palette,
    screen: Option<AlternateScreen>,
    drawn: Option<Instant>,
}

impl WatchSession {
    fn begin(
        files: RunFiles,
        session: Option<SessionId>,
        mode: WatchMode,
    ) -> Result<Self, Failure> {
        let liveness = liveness(&files)?;
        let (view, follow) = if mode == WatchMode::Picture {
            numbers(&files)?
        } else {
            // Lines and events are printed from the beginning of the run.
            (RunView::light(), files.follow())
        };
        let screen = (mode == WatchMode::Picture).then(AlternateScreen::enter);
        let palette = if mode == WatchMode::Picture { colours() } else { Palette::Plain };
        Ok(Self { files, session, view, follow, liveness, mode, palette, screen, drawn: None })
    }

    /// Reads new records and shows them. Returns whether the run is over.
    fn step(&mut self) -> Result<bool, Failure> {
        // Checked before reading: after a writer is gone, all its records are visible.
        self.liveness = liveness(&self.files)?;
        let (view, session, mode, palette) =
            (&mut self.view, self.session, self.mode, self.palette);
        let mut said = Ok(());
        let grew = self.follow.read_new(|record| {
            let entry = TimedEvent::new(record.at, record.wall_ms, &record.event);
            view.apply(entry);
            if said.is_ok() && concerns(view, session, &record.event) {
                said = tell(mode, palette, view, &entry);
            }
        });
        let grew = grew.map_err(archive_failure)?;
        said?;
        let over = self.is_over();
        let due = grew || self.drawn.is_none_or(|drawn| drawn.elapsed() >= TICK);
        if self.mode == WatchMode::Picture && due && !over {
            self.draw();
        }
        Ok(over)
    }

    /// Leaves the alternate screen while ctrl+z has stopped this process, and enters it again afterwards.
    fn suspend(&mut self) -> io::Result<()> {
        let had_screen = self.screen.take().is_some();
        kill_process(getpid(), Signal::STOP)?;
        self.screen = had_screen.then(AlternateScreen::enter);
        self.drawn = None;
        Ok(())
    }

    fn is_over(&self) -> bool {
        let one = self.session.and_then(|session| self.view.delegation(session));
        let ended = one.is_some_and(|one| !one.state.is_live());
        self.liveness == ProcessLiveness::Dead || self.view.outcome().is_some() || ended
    }

    fn draw(&mut self) {
        let Some(screen) = &self.screen else { return };
        let (width, height) = (live::columns(io::stdout()), live::lines(io::stdout()));
        let mut head = self.view.run().map(|run| run.to_string()).unwrap_or_default();
        if !self.view.goal().is_empty() {
            head += &format!("  {}", sanitize::line(self.view.goal()));
        }
        let now: Timestamp = now(&self.files, &self.view);
        // Header and footer take a line each.
        let height = height.map(|height| height.saturating_sub(2));
        let frame = ProgressFrame { width, height, now, palette: self.palette };
        let head = adjutant_view::layout::cut(&head, width);
        let picture = frame.render_part(&self.view, self.session);
        let foot = adjutant_view::layout::cut(FOOT, width);
        screen.show(&format!("{head}\n{picture}{foot}"));
        self.drawn = Some(Instant::now());
    }

    /// Prints the final tree. The exit code is that of the run or delegation.
    fn conclude(mut self) -> Result<Exit, Failure> {
        if self.liveness == ProcessLiveness::Dead {
            self.view.close_open_calls();
        }
        let (view, liveness) = (&self.view, self.liveness);
        if self.mode != WatchMode::Events {
            print(&tree::render(view, now(&self.files, view), liveness, self.palette))?;
        }
        say_how_to_resume(&observe_run(view, liveness, &self.files));
        let one = self.session.and_then(|session| view.delegation(session));
        let outcome = match one.map(|one| &one.state) {
            Some(DelegationState::Ended(outcome)) => Some(*outcome),
            Some(
                DelegationState::AwaitingApproval
                | DelegationState::Queued
                | DelegationState::Running,
            ) => None,
            None => view.outcome(),
        };
        Ok(outcome.map_or(Exit::Partial, Exit::of))
    }
}

const FOOT: &str = "  ctrl+c stops watching; the run goes on";

/// Prints an event, unless the screen is drawn instead.
fn tell(
    mode: WatchMode,
    palette: Palette,
    view: &RunView,
    entry: &TimedEvent<'_>,
) -> Result<(), Failure> {
    match mode {
        WatchMode::Picture => Ok(()),
        WatchMode::Lines => line(view, entry, palette)
            .map_or(Ok(()), |text| print(&format!("{}\n", sanitize::block(&text)))),
        WatchMode::Events => events::translate(view, entry).iter().try_for_each(print_json_line),
    }
}

/// Returns whether an event belongs to the watched session or one of its descendants; always, for a whole run.
fn concerns(view: &RunView, session: Option<SessionId>, event: &Event) -> bool {
    let Some(wanted) = session else { return true };
    let mut above = event.session();
    while let Some(one) = above {
        if one == wanted {
            return true;
        }
        above = view.delegation(one).and_then(|one| one.parent);
    }
    false
}

/// The alternate screen of the terminal, left on drop.
struct AlternateScreen {
    /// The terminal settings before.
    before: Option<Termios>,
}

impl AlternateScreen {
    fn enter() -> Self {
        let before = tcgetattr(io::stdout()).ok();
        if let Some(mut set) = before.clone() {
            // At ctrl+c the terminal would discard pending output, which may be the sequence that leaves this screen.
            set.local_modes |= LocalModes::NOFLSH;
            let _ = tcsetattr(io::stdout(), OptionalActions::Now, &set);
        }
        // Alternate screen, no cursor, no line wrapping.
        write("\x1b[?1049h\x1b[?25l\x1b[?7l");
        Self { before }
    }

    /// Replaces the content of the screen, also after a resize.
    fn show(&self, picture: &str) {
        let lines = picture.replace('\n', "\x1b[K\r\n");
        write(&format!("\x1b[H{lines}\x1b[K\x1b[J"));
    }
}

impl Drop for AlternateScreen {
    fn drop(&mut self) {
        write("\x1b[?7h\x1b[?25h\x1b[?1049l");
        if let Some(before) = &self.before {
            let _ = tcsetattr(io::stdout(), OptionalActions::Now, before);
        }
    }
}

fn write(text: &str) {
    let mut stdout = io::stdout().lock();
    // Errors are ignored: the terminal is gone.
    let _ = stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush());
}
