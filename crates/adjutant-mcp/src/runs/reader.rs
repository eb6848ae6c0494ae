//! The runs of one tree that a client may see, read from their files.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use adjutant_core::{ErrorCode, Outcome, RunId, SessionId, Timestamp};
use adjutant_engine::{
    Archive, CancelOutcome, ControlError, Expiry, JournalFollower, RunFiles, RunLiveness, wall_now,
};
use adjutant_view::approval::is_asked_about;
use adjutant_view::status::{ContentRetention, ObservedRun};
use adjutant_view::{ProcessLiveness, RunView, TimedEvent};

use crate::answer::sizes::quoted;
use crate::approval::{OpenQuestion, RejectedAnswerReason};
use crate::runs::directory_watcher::{DirectorySubscription, DirectoryWatcher};
use crate::runs::listing::TreeMembership;
use crate::runs::owner::RunOwner;

/// How long an ended run still answers an equal call, in milliseconds.
const REPEAT_WINDOW_MS: u64 = 10 * 60 * 1000;

/// How long a run may take until its first records are complete.
const READABLE_TIMEOUT: Duration = Duration::from_secs(60);

/// How long a question may take to appear in the inbox. A hundredth of this is typical.
const LISTED_TIMEOUT: Duration = Duration::from_secs(2);

/// The runs that a client may see: those of one tree and, if set, of one owner.
#[derive(Clone)]
pub(crate) struct VisibleRuns {
    archive: Archive,
    root: PathBuf,
    owner: Option<RunOwner>,
    membership: TreeMembership,
    watcher: DirectoryWatcher,
}

/// The state of a run at one moment.
pub(crate) struct RunSnapshot {
    /// The run's files.
    pub(crate) files: RunFiles,
    /// The run's events, folded.
    pub(crate) view: RunView,
    /// Whether a process is executing the run.
    pub(crate) liveness: ProcessLiveness,
    /// The delegation that was asked about, if the id was that of a session.
    pub(crate) session: Option<SessionId>,
    /// The open questions of the run.
    pub(crate) open_questions: Vec<OpenQuestion>,
}

impl RunSnapshot {
    /// Returns what the views need to render the run. Recommended commands start with `program`.
    pub(crate) fn observed<'a>(&'a self, program: &'a str) -> ObservedRun<'a> {
        let content = match self.files.expiry() {
            Expiry::Kept => ContentRetention::Kept,
            Expiry::Expired => ContentRetention::Expired,
        };
        let now = now(&self.files, &self.view);
        ObservedRun { view: &self.view, liveness: self.liveness, now, content, program }
    }

    /// Returns the time since the last event, in milliseconds.
    pub(crate) fn age_ms(&self) -> u64 {
        wall_now().saturating_sub(self.view.latest().wall_ms)
    }

    /// Returns whether nothing more will happen in the run or in the delegation that was asked about.
    pub(crate) fn is_over(&self) -> bool {
        is_over(&self.view, self.liveness, self.session)
    }
}

fn is_over(view: &RunView, liveness: ProcessLiveness, session: Option<SessionId>) -> bool {
    let one = session.and_then(|session| view.delegation(session));
    let has_ended = one.is_some_and(|one| !one.state.is_live());
    has_ended || view.outcome().is_some() || liveness == ProcessLiveness::Dead
}

/// Returns the current time on the run's own clock: the time of the last record plus the time since.
fn now(files: &RunFiles, view: &RunView) -> Timestamp {
    let latest = view.latest();
    latest.at.plus_millis(files.since(latest.wall_ms))
}

impl VisibleRuns {
    /// Takes the runs of one tree: those of `owner`, or all.
    pub(crate) fn new(archive: Archive, root: &Path, owner: Option<RunOwner>) -> Self {
        let (root, membership) = (root.to_owned(), TreeMembership::default());
        Self { archive, root, owner, membership, watcher: DirectoryWatcher::listen() }
    }

    pub(crate) const fn archive(&self) -> &Archive {
        &self.archive
    }

    pub(crate) const fn membership(&self) -> &TreeMembership {
        &self.membership
    }

    /// Returns the name of a caller. Clients of the same name but different owners are different callers.
    pub(crate) fn caller(&self, client: &str) -> String {
        self.owner.as_ref().map_or_else(|| client.to_owned(), |owner| format!("{owner} {client}"))
    }

    /// Returns the owner whose runs are visible, or `None` for all.
    pub(crate) const fn owner(&self) -> Option<&RunOwner> {
        self.owner.as_ref()
    }

    /// Waits until the files of a run tell which tree it works in.
    ///
    /// The first records only count once the group they belong to is complete, which takes a while if a
    /// workspace has to be created. Returns false at once if the run does not exist.
    pub(crate) async fn wait_until_readable(&self, run: RunId) -> bool {
        let Ok((files, _)) = self.archive.find(&run.to_string()) else { return false };
        let mut changes = self.watcher.subscribe(files.path());
        let is_ready = async {
            loop {
                let files = files.clone();
                let is_known = move || files.workdir().is_some() || is_dead(&files);
                if !matches!(tokio::task::spawn_blocking(is_known).await, Ok(false)) {
                    break;
                }
                changes.changed().await;
            }
        };
        // After a timeout, the operation that follows reports what is wrong.
        let _ = tokio::time::timeout(READABLE_TIMEOUT, is_ready).await;
        true
    }

    /// Runs `work` on a thread that may block.
    pub(crate) async fn blocking<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Self) -> Result<T, String> + Send + 'static,
    ) -> Result<T, String> {
        let runs = self.clone();
        let done = tokio::task::spawn_blocking(move || work(&runs)).await;
        done.map_err(|error| error_chain(&error))?
    }

    /// Returns whether a run belongs to this tree and to the owner, if there is one.
    pub(crate) fn is_visible(&self, files: &RunFiles) -> bool {
        self.membership.is_in_tree(files, &self.root)
            && self.owner.as_ref().is_none_or(|owner| owner.has(files.path()))
    }

    /// Finds a visible run by its id or by the id of a session in it.
    pub(crate) fn find(&self, text: &str) -> Result<(RunFiles, Option<SessionId>), String> {
        let unknown =
            || format!("no run `{}` in this tree; delegate_status lists the runs", quoted(text));
        // One message for all failures: a client must not learn whether a hidden run exists.
        let found = if let Ok(run) = text.parse::<RunId>() {
            self.archive.find(&run.to_string()).ok().filter(|(files, _)| self.is_visible(files))
        } else {
            let session = text.parse::<SessionId>().map_err(|_| unknown())?;
            let holder = self.archive.holder_among(session, |files| self.is_visible(files));
            holder.ok().map(|files| (files, Some(session)))
        };
        let (files, session) = found.ok_or_else(unknown)?;
        let below = session.filter(|session| *session != files.id().root_session());
        Ok((files, below))
    }

    /// Reads a run with all texts.
    pub(crate) fn read(&self, text: &str) -> Result<RunSnapshot, String> {
        let (files, session) = self.find(text)?;
        // Checked before reading, so that a run that ends meanwhile does not look interrupted.
        let liveness = liveness(&files)?;
        let (mut view, mut admitted) = (RunView::default(), Vec::new());
        for record in files.records().map_err(|error| error_chain(&error))? {
            let record = record.map_err(|error| error_chain(&error))?;
            view.apply(TimedEvent::new(record.at, record.wall_ms, &record.event));
            if is_asked_about(&record.event) {
                admitted.push(record.event);
            }
        }
        let registry = self.archive.registry();
        let mut open_questions = OpenQuestion::all(&view, &admitted, now(&files, &view), registry);
        if liveness == ProcessLiveness::Dead {
            view.close_open_calls();
            // No process would receive the answer.
            open_questions.clear();
        }
        Ok(RunSnapshot { files, view, liveness, session, open_questions })
    }

    /// Returns whether a run still answers a call equal to the one that started it: it is live, has a result,
    /// or was interrupted. Starting another run after an interruption would pay twice for work that a person
    /// can resume.
    ///
    /// After a denial, a failure or a cancellation, an equal call starts a new run.
    pub(crate) fn answers_equal_call(&self, run: RunId) -> bool {
        let Ok(snapshot) = self.read(&run.to_string()) else { return false };
        if snapshot.view.run().is_none() {
            return false;
        }
        if !snapshot.is_over() {
            return true;
        }
        let is_cut_short = snapshot.view.delegations().any(|it| {
            let code = it.reason.as_ref().map(|reason| reason.code);
            code.is_some_and(|code| {
                matches!(
                    code,
                    ErrorCode::ApprovalDenied | ErrorCode::Cancelled | ErrorCode::Interrupted
                )
            })
        });
        let has_answer = match snapshot.view.outcome() {
            Some(Outcome::Completed | Outcome::Partial) => !is_cut_short,
            Some(Outcome::Failed | Outcome::Blocked | Outcome::Cancelled | Outcome::Refused) => {
                false
            }
            None => true,
        };
        has_answer && snapshot.age_ms() <= REPEAT_WINDOW_MS
    }

    /// Starts watching a run.
    pub(crate) fn watch(&self, text: &str) -> Result<RunWatch, String> {
        let (files, session) = self.find(text)?;
        // Subscribe before the first read, so that no change is missed.
        let changes = self.watcher.subscribe(files.path());
        let liveness = liveness(&files)?;
        let (view, follow) = (RunView::light(), files.follow());
        let followed = FollowedRun { files, session, view, follow, liveness };
        Ok(RunWatch { followed: Arc::new(Mutex::new(followed)), changes })
    }

    /// Waits until a question appears in the inbox, which is shortly after the run asked it. If it cannot be
    /// stored there, the run refuses the call.
    pub(crate) async fn wait_until_listed(&self, id: &str) {
        let registry = self.archive.registry();
        let mut changes = self.watcher.subscribe(self.archive.path());
        let shown = async {
            while !registry.has_question(id) {
                changes.changed().await;
            }
        };
        let _ = tokio::time::timeout(LISTED_TIMEOUT, shown).await;
    }

    /// Answers a question of a run. `after` is the time since the client was asked.
    ///
    /// # Errors
    ///
    /// Why the question is still open, unless another answer closed it.
    pub(crate) fn decide(
        &self,
        run: RunId,
        hash: &str,
        verdict: Result<(), String>,
        after: Duration,
    ) -> Result<(), RejectedAnswerReason> {
        let (files, _) = self.find(&run.to_string()).map_err(RejectedAnswerReason::NotTaken)?;
        let after_ms = u64::try_from(after.as_millis()).unwrap_or(u64::MAX);
        files.decide(hash, verdict, Some(after_ms)).map_err(|error| {
            // For an open question, the run uses this code only if the answer came too fast.
            let is_too_fast =
                matches!(&error, ControlError::Refused(it) if it.code == ErrorCode::ApprovalDenied);
            if is_too_fast {
                RejectedAnswerReason::NotAPerson
            } else {
                RejectedAnswerReason::NotTaken(error_chain(&error))
            }
        })
    }

    /// Cancels a run, or a delegation and everything below it.
    pub(crate) fn cancel(
        &self,
        text: &str,
    ) -> Result<(RunFiles, Option<SessionId>, CancelOutcome), String> {
        let (files, session) = self.find(text)?;
        let cancelled = files.cancel(session).map_err(|error| error_chain(&error))?;
        Ok((files, session, cancelled))
    }
}

/// What a check of a watched run found.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WatchTick {
    /// Whether there are new records since the last check.
    pub(crate) grew: bool,
    /// Whether nothing more will happen.
    pub(crate) is_over: bool,
}

/// Follows the journal of a run, and learns of changes in its directory.
pub(crate) struct RunWatch {
    // A std mutex: held while a blocking thread reads files and for short reads; never across an await.
    followed: Arc<Mutex<FollowedRun>>,
    changes: DirectorySubscription,
}

impl RunWatch {
    /// Reads new records on a thread that may block.
    pub(crate) async fn check(&mut self) -> Result<WatchTick, String> {
        let followed = Arc::clone(&self.followed);
        let look = move || followed.lock().unwrap_or_else(PoisonError::into_inner).check_blocking();
        tokio::task::spawn_blocking(look).await.map_err(|error| error_chain(&error))?
    }

    /// Returns what has been read so far.
    pub(crate) fn known(&self) -> MutexGuard<'_, FollowedRun> {
        self.followed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until there may be new records.
    pub(crate) async fn changed(&mut self) {
        self.changes.changed().await;
    }
}

/// What has been read of a watched run.
pub(crate) struct FollowedRun {
    files: RunFiles,
    session: Option<SessionId>,
    /// The run's events, folded, without texts.
    pub(crate) view: RunView,
    follow: JournalFollower,
    liveness: ProcessLiveness,
}

impl FollowedRun {
    fn check_blocking(&mut self) -> Result<WatchTick, String> {
        self.liveness = liveness(&self.files)?;
        let view = &mut self.view;
        let more = self.follow.read_new(|record| {
            view.apply(TimedEvent::new(record.at, record.wall_ms, &record.event));
        });
        let grew = more.map_err(|error| error_chain(&error))?;
        Ok(WatchTick { grew, is_over: is_over(&self.view, self.liveness, self.session) })
    }

    /// Returns the current time on the run's own clock.
    pub(crate) fn now(&self) -> Timestamp {
        now(&self.files, &self.view)
    }
}

fn is_dead(files: &RunFiles) -> bool {
    matches!(files.liveness(), Ok(RunLiveness::Dead))
}

fn liveness(files: &RunFiles) -> Result<ProcessLiveness, String> {
    Ok(match files.liveness().map_err(|error| error_chain(&error))? {
        RunLiveness::Live { .. } => ProcessLiveness::Alive,
        RunLiveness::Dead => ProcessLiveness::Dead,
    })
}

/// Returns an error and its causes as one line, without repetitions.
pub(crate) fn error_chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        let said = cause.to_string();
        if !text.ends_with(&said) {
            text = format!("{text}: {said}");
        }
        source = cause.source();
    }
    text
}
