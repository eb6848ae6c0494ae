//! `watch`: follows a run from another terminal by reading its journal.
//!
//! On a terminal it is a full-screen program, which `full_screen` connects to this command; elsewhere it prints a line
//! per event. It never contacts the process of the run. Start at [`run_watch`].

use std::io;
use std::time::Duration;

use adjutant_core::{DelegationState, Event, SessionId};
use adjutant_engine::{Archive, JournalFollower, RunFiles};
use adjutant_view::progress::line;
use adjutant_view::{Palette, ProcessLiveness, RunView, TimedEvent, events, sanitize, tree};
use tokio::signal::unix::{SignalKind, signal};

use crate::args::WatchRunArgs;
use crate::exit::{Exit, Failure};
use crate::full_screen::{has_full_screen, run_full_screen};
use crate::output::{has_no_reader, print, print_json_line, say};
use crate::records::{
    archive_failure, list_columns, liveness, now, observe_run, say_how_to_resume,
};
use crate::run_lookup;

/// How often the journal is read.
const POLL_INTERVAL: Duration = Duration::from_millis(100);

/// How progress is printed.
#[derive(Clone, Copy, PartialEq, Eq)]
enum WatchMode {
    Lines,
    Events,
}

/// Runs `adjutant watch`. The exit code is that of the run, if one was named or the output is not a terminal.
pub(crate) fn run_watch(
    archive: &Archive,
    args: &WatchRunArgs,
    as_json: bool,
) -> Result<Exit, Failure> {
    let named = args.run.as_deref();
    if !as_json && has_full_screen() {
        return run_full_screen(archive, named);
    }
    let (files, session) = run_lookup::find_to_show(archive, named, |_| true)?;
    let mode = if as_json { WatchMode::Events } else { WatchMode::Lines };
    let session = session.filter(|session| *session != files.id().root_session());
    let mut watch = WatchSession::begin(files, session, mode)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let left = runtime.and_then(|runtime| runtime.block_on(follow(&mut watch)));
    match left {
        Ok(Ok(FollowEnd::Ended)) => {
            let tree = (mode != WatchMode::Events).then_some(Palette::Plain);
            conclude(watch.view, watch.liveness, &watch.files, watch.session, tree)
        }
        Ok(Ok(FollowEnd::Asked)) => {
            say(&format!("adjutant: no longer watching {}", watch.files.id()));
            Ok(Exit::Cancelled)
        }
        Ok(Ok(FollowEnd::Unread)) => Ok(Exit::Completed),
        Ok(Err(failure)) => Err(failure),
        Err(error) => Err(Failure::new(Exit::Failed, format!("cannot watch: {error}"))),
    }
}

/// Why watching ended.
enum FollowEnd {
    /// The run, or the watched delegation, ended.
    Ended,
    /// A signal asked for it, such as ctrl+c.
    Asked,
    /// The reader of standard output has closed the pipe, as `head` does.
    Unread,
}

async fn follow(watch: &mut WatchSession) -> io::Result<Result<FollowEnd, Failure>> {
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut terminate = signal(SignalKind::terminate())?;
    let mut hang_up = signal(SignalKind::hangup())?;
    let mut look = tokio::time::interval(POLL_INTERVAL);
    look.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            _ = interrupt.recv() => return Ok(Ok(FollowEnd::Asked)),
            _ = terminate.recv() => return Ok(Ok(FollowEnd::Asked)),
            _ = hang_up.recv() => return Ok(Ok(FollowEnd::Asked)),
            _ = look.tick() => match watch.step() {
                // A run may be silent for long, so waiting for a failed write is not enough.
                Ok(_) if has_no_reader() => return Ok(Ok(FollowEnd::Unread)),
                Ok(false) => {}
                Ok(true) => return Ok(Ok(FollowEnd::Ended)),
                Err(failure) => return Ok(Err(failure)),
            },
        }
    }
}

/// The state of one `adjutant watch` command that prints.
struct WatchSession {
    files: RunFiles,
    session: Option<SessionId>,
    view: RunView,
    follow: JournalFollower,
    liveness: ProcessLiveness,
    mode: WatchMode,
}

impl WatchSession {
    fn begin(
        files: RunFiles,
        session: Option<SessionId>,
        mode: WatchMode,
    ) -> Result<Self, Failure> {
        let liveness = liveness(&files)?;
        let follow = files.follow();
        Ok(Self { files, session, view: RunView::light(), follow, liveness, mode })
    }

    /// Reads new records and prints them. Returns whether the run is over.
    fn step(&mut self) -> Result<bool, Failure> {
        // Checked before reading: after a writer is gone, all its records are visible.
        self.liveness = liveness(&self.files)?;
        let (view, session, mode) = (&mut self.view, self.session, self.mode);
        let mut said = Ok(());
        let read = self.follow.read_new(|record| {
            let entry = TimedEvent::new(record.at, record.wall_ms, &record.event);
            view.apply(entry);
            if said.is_ok() && concerns(view, session, &record.event) {
                said = tell(mode, view, &entry);
            }
        });
        read.map_err(archive_failure)?;
        said?;
        Ok(is_over(&self.view, self.liveness, self.session))
    }
}

/// Returns whether the run, or the delegation, has ended or its process is gone.
pub(crate) fn is_over(
    view: &RunView,
    liveness: ProcessLiveness,
    session: Option<SessionId>,
) -> bool {
    let one = session.and_then(|session| view.delegation(session));
    let ended = one.is_some_and(|one| !one.state.is_live());
    liveness == ProcessLiveness::Dead || view.outcome().is_some() || ended
}

/// Prints the final tree, if there is a palette for it, and how to go on. The exit code is that of the run or delegation.
pub(crate) fn conclude(
    mut view: RunView,
    liveness: ProcessLiveness,
    files: &RunFiles,
    session: Option<SessionId>,
    palette: Option<Palette>,
) -> Result<Exit, Failure> {
    if liveness == ProcessLiveness::Dead {
        view.close_open_calls();
    }
    if let Some(palette) = palette {
        print(&tree::render(&view, now(files, &view), liveness, palette, list_columns()))?;
    }
    say_how_to_resume(&observe_run(&view, liveness, files));
    let one = session.and_then(|session| view.delegation(session));
    let outcome = match one.map(|one| &one.state) {
        Some(DelegationState::Ended(outcome)) => Some(*outcome),
        Some(
            DelegationState::AwaitingApproval | DelegationState::Queued | DelegationState::Running,
        ) => None,
        None => view.outcome(),
    };
    Ok(outcome.map_or(Exit::Partial, Exit::of))
}

/// Prints an event.
fn tell(mode: WatchMode, view: &RunView, entry: &TimedEvent<'_>) -> Result<(), Failure> {
    match mode {
        WatchMode::Lines => line(view, entry, Palette::Plain)
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
