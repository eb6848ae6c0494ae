//! Reads what the screen shows from the files of the runs. Each call reads only what is new, and little at a time.
//!
//! Start at [`RunReader::read`]. Only the newest runs are listed, and older ones that are live.

use std::collections::{BTreeMap, VecDeque};
use std::path::Path;
use std::time::{Duration, Instant};

use adjutant_core::{RunId, Timestamp};
use adjutant_engine::{
    Archive, ArchiveError, Expiry, JournalFollower, RunFiles, RunLiveness, wall_now,
};
use adjutant_view::status::ContentRetention;
use adjutant_view::{ProcessLiveness, RunView, TimedEvent};

use crate::opened_run::WatchedRecord;
use crate::run_list::ListedRun;
use crate::state::{WatchScreen, WatchState};

/// How many of the newest runs are listed.
const NEWEST: usize = 50;
/// How many of the newest runs are searched for live ones that are not among the listed.
const SEARCHED_FOR_LIVE: usize = 200;
/// How often new runs are looked for.
const LIST_EVERY: Duration = Duration::from_secs(2);

/// Folds a run without its texts, from a checkpoint if there is one, and returns what reads its later records.
pub type FoldRunFn = fn(&RunFiles) -> Result<(RunView, JournalFollower), ArchiveError>;

/// Reads the runs of a state directory.
pub(crate) struct RunReader {
    archive: Archive,
    fold: FoldRunFn,
    is_here: Box<dyn Fn(&Path) -> bool>,
    listed_at: Option<Instant>,
    /// The runs that are listed and not read yet.
    unread: VecDeque<RunFiles>,
    listed: BTreeMap<RunId, ListedFiles>,
    opened: Option<(RunFiles, JournalFollower)>,
}

/// The files of a listed run; `None` for the follower of a run that cannot be read.
struct ListedFiles {
    files: RunFiles,
    follower: Option<JournalFollower>,
}

impl RunReader {
    pub(crate) fn new(
        archive: Archive,
        fold: FoldRunFn,
        is_here: Box<dyn Fn(&Path) -> bool>,
    ) -> Self {
        let (listed, unread) = (BTreeMap::new(), VecDeque::new());
        Self { archive, fold, is_here, listed_at: None, unread, listed, opened: None }
    }

    /// Returns whether runs of the list are not read yet.
    pub(crate) fn has_unread(&self) -> bool {
        !self.unread.is_empty()
    }

    /// Begins to read a run, from its first record.
    pub(crate) fn open(&mut self, run: RunId) -> Result<(), ArchiveError> {
        let (files, _) = self.archive.find(&run.to_string())?;
        self.opened = Some((files.clone(), files.follow()));
        Ok(())
    }

    /// Reads what is new. Returns whether something on the screen may have changed.
    pub(crate) fn read(&mut self, state: &mut WatchState) -> bool {
        state.wall_ms = wall_now();
        let is_due = self.listed_at.is_none_or(|at| at.elapsed() >= LIST_EVERY);
        let is_list = state.screen() == WatchScreen::List;
        let mut changed = self.read_opened(state);
        if is_due {
            changed |= self.read_questions(state);
            if self.unread.is_empty() && (is_list || self.listed_at.is_none()) {
                changed |= self.find_runs(state);
            }
            self.listed_at = Some(Instant::now());
        }
        if let Some(files) = self.unread.pop_front() {
            self.add(state, files);
            state.is_loading = !self.unread.is_empty();
            return true;
        }
        // The questions of the opened run come from its entry in the list.
        let opened = state.opened.as_ref().map(|run| run.id);
        let is_shown = |run: &ListedRun| is_list || Some(run.id) == opened;
        let may_change = |run: &ListedRun| is_due || run.liveness == ProcessLiveness::Alive;
        changed | self.refresh_where(state, |run| is_shown(run) && may_change(run))
    }

    /// Looks for runs that are not listed yet, and drops those that are gone.
    fn find_runs(&mut self, state: &mut WatchState) -> bool {
        // An unreadable state directory keeps the last list.
        let Ok(runs) = self.archive.runs() else { return false };
        let total = runs.len();
        let is_live = |files: &RunFiles| matches!(files.liveness(), Ok(RunLiveness::Live { .. }));
        let wanted: Vec<RunFiles> = runs
            .into_iter()
            .take(SEARCHED_FOR_LIVE)
            .enumerate()
            .filter(|(place, files)| *place < NEWEST || is_live(files))
            .map(|(_, files)| files)
            .collect();
        let hidden = total.saturating_sub(wanted.len());
        let before = state.runs.len();
        let is_wanted = |run: RunId| wanted.iter().any(|files| files.id() == run);
        state.runs.retain(|run| is_wanted(run.id));
        self.listed.retain(|run, _| is_wanted(*run));
        let changed = hidden != state.hidden_runs || before != state.runs.len();
        state.hidden_runs = hidden;
        self.unread.extend(wanted.into_iter().filter(|it| !self.listed.contains_key(&it.id())));
        state.is_loading = !self.unread.is_empty();
        changed
    }

    fn read_questions(&self, state: &mut WatchState) -> bool {
        // Without a readable registry, the questions of runs are still shown.
        let questions = self.archive.registry().open_questions().unwrap_or_default();
        let changed = questions != state.questions;
        state.questions = questions;
        changed
    }

    fn add(&mut self, state: &mut WatchState, files: RunFiles) {
        let id = files.id();
        // Checked before reading the journal: a run that ends in between must not look interrupted.
        let liveness = liveness(&files);
        let (follower, view) = match (self.fold)(&files) {
            Ok((view, follower)) => (Some(follower), Some(view)),
            Err(_) => (None, None),
        };
        if let Some(mut view) = view {
            if liveness == ProcessLiveness::Dead {
                view.close_open_calls();
            }
            let is_here = (self.is_here)(Path::new(view.workdir()));
            let content = content(&files);
            let now = now(&files, &view, liveness);
            let run = ListedRun { id, view, liveness, now, content, is_here };
            let place = state.runs.partition_point(|it| it.id > id);
            state.runs.insert(place, run);
        } else {
            state.unreadable_runs += 1;
        }
        self.listed.insert(id, ListedFiles { files, follower });
    }

    /// Reads what was appended to the journals of listed runs.
    fn refresh_where(
        &mut self,
        state: &mut WatchState,
        wanted: impl Fn(&ListedRun) -> bool,
    ) -> bool {
        let mut changed = false;
        for run in state.runs.iter_mut().filter(|run| wanted(run)) {
            let Some(listed) = self.listed.get_mut(&run.id) else { continue };
            let Some(follower) = &mut listed.follower else { continue };
            let before = run.liveness;
            run.liveness = liveness(&listed.files);
            let (view, was_dead) = (&mut run.view, before == ProcessLiveness::Dead);
            let grew = follower.read_new(|record| {
                if !was_dead {
                    view.apply(TimedEvent::new(record.at, record.wall_ms, &record.event));
                }
            });
            let is_resumed =
                was_dead && (run.liveness == ProcessLiveness::Alive || matches!(grew, Ok(true)));
            if is_resumed && let Ok((view, later)) = (self.fold)(&listed.files) {
                // The calls that its death left open were settled in the view; its process settles them too.
                (run.view, *follower) = (view, later);
            }
            if run.liveness == ProcessLiveness::Dead && (is_resumed || !was_dead) {
                run.view.close_open_calls();
            }
            if grew.as_ref().is_ok_and(|grew| *grew) {
                // Before its first record a run has no folder.
                run.is_here = (self.is_here)(Path::new(run.view.workdir()));
            }
            run.now = now(&listed.files, &run.view, run.liveness);
            changed |= grew.unwrap_or(false) || before != run.liveness;
        }
        changed
    }

    fn read_opened(&mut self, state: &mut WatchState) -> bool {
        let Some(run) = &mut state.opened else { return false };
        let Some((files, follower)) = &mut self.opened else { return false };
        let life = liveness(files);
        let mut records = Vec::new();
        let read = follower.read_new(|record| {
            records.push(WatchedRecord::lean(record.at, record.wall_ms, &record.event));
        });
        let problem = read.err().map(|error| error.to_string());
        let changed = !records.is_empty() || problem != run.problem || life != run.liveness;
        run.problem = problem;
        if !records.is_empty() {
            run.extend(records);
        }
        run.content = content(files);
        let now = now(files, run.view(), life);
        run.set_liveness(life, now);
        changed
    }
}

fn liveness(files: &RunFiles) -> ProcessLiveness {
    // A lock that cannot be read belongs to no process that could be controlled from here.
    match files.liveness() {
        Ok(RunLiveness::Live { .. }) => ProcessLiveness::Alive,
        Ok(RunLiveness::Dead) | Err(_) => ProcessLiveness::Dead,
    }
}

fn content(files: &RunFiles) -> ContentRetention {
    match files.expiry() {
        Expiry::Kept => ContentRetention::Kept,
        Expiry::Expired => ContentRetention::Expired,
    }
}

fn now(files: &RunFiles, view: &RunView, liveness: ProcessLiveness) -> Timestamp {
    let latest = view.latest();
    match liveness {
        ProcessLiveness::Alive => latest.at.plus_millis(files.since(latest.wall_ms)),
        ProcessLiveness::Dead => latest.at,
    }
}
