//! The runs of one tree, read from their files.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use adjutant_core::{Code, Outcome, RunId, SessionId, Timestamp};
use adjutant_engine::{Archive, Cancelled, ControlError, Expiry, Follow, Life, RunFiles, wall_now};
use adjutant_view::approval::is_asked_about;
use adjutant_view::status::{Content, Look};
use adjutant_view::{Entry, Liveness, RunView};

use crate::answer::sizes::quoted;
use crate::approval::{OpenQuestion, UnansweredReason};
use crate::runs::directory_watcher::{DirectorySubscription, DirectoryWatcher};
use crate::runs::listing::TreeMembership;
use crate::runs::owner::RunOwner;

/// How long after its end a run still answers an equal call, in milliseconds.
const REPEAT_WINDOW_MS: u64 = 10 * 60 * 1000;

/// How long a run may take until its first records are whole.
const READABLE_TIMEOUT: Duration = Duration::from_secs(60);

/// How long a question may take to be shown where people answer it. A hundredth of it is the rule.
const LISTED_TIMEOUT: Duration = Duration::from_secs(2);

/// The runs of one tree.
#[derive(Clone)]
pub(crate) struct VisibleRuns {
    archive: Archive,
    root: PathBuf,
    owner: Option<RunOwner>,
    membership: TreeMembership,
    watcher: DirectoryWatcher,
}

/// A run as it stands.
pub(crate) struct RunSnapshot {
    /// Its files.
    pub(crate) files: RunFiles,
    /// What happened so far.
    pub(crate) view: RunView,
    /// Whether anyone works on it.
    pub(crate) liveness: Liveness,
    /// The delegation that was asked about.
    pub(crate) session: Option<SessionId>,
    /// What waits for a person.
    pub(crate) asks: Vec<OpenQuestion>,
}

impl RunSnapshot {
    /// Looks at it now; recommended commands begin with `program`.
    pub(crate) fn look<'a>(&'a self, program: &'a str) -> Look<'a> {
        let content = match self.files.expiry() {
            Expiry::Kept => Content::Kept,
            Expiry::Expired => Content::Expired,
        };
        let now = now(&self.files, &self.view);
        Look { view: &self.view, liveness: self.liveness, now, content, program }
    }

    /// Returns how long ago the latest of it happened, in milliseconds.
    pub(crate) fn age_ms(&self) -> u64 {
        wall_now().saturating_sub(self.view.latest().wall_ms)
    }

    /// Says whether nothing more will come.
    pub(crate) fn is_over(&self) -> bool {
        is_over(&self.view, self.liveness, self.session)
    }
}

fn is_over(view: &RunView, liveness: Liveness, session: Option<SessionId>) -> bool {
    let one = session.and_then(|session| view.delegation(session));
    let has_ended = one.is_some_and(|one| !one.state.is_live());
    has_ended || view.outcome().is_some() || liveness == Liveness::Dead
}

/// The run's own time now: what the latest record says, and the time since.
fn now(files: &RunFiles, view: &RunView) -> Timestamp {
    let latest = view.latest();
    latest.at.plus_millis(files.since(latest.wall_ms))
}

impl VisibleRuns {
    /// Takes the runs of a tree: those of an owner, or all.
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

    /// Names who calls: clients of the same name that have other owners are others.
    pub(crate) fn caller(&self, client: &str) -> String {
        self.owner.as_ref().map_or_else(|| client.to_owned(), |owner| format!("{owner} {client}"))
    }

    /// Returns whose runs these are, where that is not everyone.
    pub(crate) const fn owner(&self) -> Option<&RunOwner> {
        self.owner.as_ref()
    }

    /// Waits until it can be told from the files of a run that has begun where it works.
    ///
    /// Its first records count only together with those that follow them, and where a workspace is made
    /// first that takes a while. Returns at once, and false, where there is no such run.
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
        // After that, what is asked of it says what is wrong.
        let _ = tokio::time::timeout(READABLE_TIMEOUT, is_ready).await;
        true
    }

    /// Does something with the files of runs on a thread that may block.
    pub(crate) async fn blocking<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Self) -> Result<T, String> + Send + 'static,
    ) -> Result<T, String> {
        let runs = self.clone();
        let done = tokio::task::spawn_blocking(move || work(&runs)).await;
        done.map_err(|error| error_chain(&error))?
    }

    /// Says whether a run is of this tree and of who asks.
    pub(crate) fn is_visible(&self, files: &RunFiles) -> bool {
        self.membership.is_in_tree(files, &self.root)
            && self.owner.as_ref().is_none_or(|owner| owner.has(files.path()))
    }

    /// Finds a run of this tree, or the one that holds a session; one elsewhere is not seen.
    pub(crate) fn find(&self, text: &str) -> Result<(RunFiles, Option<SessionId>), String> {
        let unknown = || {
            format!("no run of this tree is called `{}`; delegate_status lists them", quoted(text))
        };
        // Whatever goes wrong says the same: what is not ours must not be told from what is not.
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

    /// Reads a run with all that was said.
    pub(crate) fn read(&self, text: &str) -> Result<RunSnapshot, String> {
        let (files, session) = self.find(text)?;
        // Asked first: a run that ends while it is read must not look interrupted.
        let liveness = liveness(&files)?;
        let (mut view, mut admitted) = (RunView::default(), Vec::new());
        for record in files.records().map_err(|error| error_chain(&error))? {
            let record = record.map_err(|error| error_chain(&error))?;
            view.apply(Entry::new(record.at, record.wall_ms, &record.event));
            if is_asked_about(&record.event) {
                admitted.push(record.event);
            }
        }
        let registry = self.archive.registry();
        let mut asks = OpenQuestion::all(&view, &admitted, now(&files, &view), registry);
        if liveness == Liveness::Dead {
            view.close_open_calls();
            // Nobody would hear the answer.
            asks.clear();
        }
        Ok(RunSnapshot { files, view, liveness, session, asks })
    }

    /// Says whether a run that an equal call began still answers it: it goes on, has an answer, or was
    /// interrupted, and to begin another would pay a second time for what a person can go on with.
    ///
    /// Whoever calls again after a no, a failure or an end by hand asks again.
    pub(crate) fn answers_equal_call(&self, run: RunId) -> bool {
        let Ok(seen) = self.read(&run.to_string()) else { return false };
        if seen.view.run().is_none() {
            return false;
        }
        if !seen.is_over() {
            return true;
        }
        let is_cut_short = seen.view.delegations().any(|it| {
            let code = it.reason.as_ref().map(|reason| reason.code);
            code.is_some_and(|code| {
                matches!(code, Code::ApprovalDenied | Code::Cancelled | Code::Interrupted)
            })
        });
        let has_answer = match seen.view.outcome() {
            Some(Outcome::Completed | Outcome::Partial) => !is_cut_short,
            Some(Outcome::Failed | Outcome::Blocked | Outcome::Cancelled | Outcome::Refused) => {
                false
            }
            None => true,
        };
        has_answer && seen.age_ms() <= REPEAT_WINDOW_MS
    }

    /// Follows a run.
    pub(crate) fn watch(&self, text: &str) -> Result<RunWatch, String> {
        let (files, session) = self.find(text)?;
        // Subscribed before the first look, so that nothing falls between the two.
        let changes = self.watcher.subscribe(files.path());
        let liveness = liveness(&files)?;
        let (view, follow) = (RunView::light(), files.follow());
        let followed = FollowedRun { files, session, view, follow, liveness };
        Ok(RunWatch { followed: Arc::new(Mutex::new(followed)), changes })
    }

    /// Waits until people are shown a question where they answer it; the run asks a moment before
    /// that. One that cannot be kept there is refused by its run.
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

    /// Answers a question of a run that a client was asked so long before.
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
    ) -> Result<(), UnansweredReason> {
        let (files, _) = self.find(&run.to_string()).map_err(UnansweredReason::NotTaken)?;
        let after_ms = u64::try_from(after.as_millis()).unwrap_or(u64::MAX);
        files.decide(hash, verdict, Some(after_ms)).map_err(|error| {
            // The run refuses an answer to an open question with this code only where it came too fast.
            let is_too_fast =
                matches!(&error, ControlError::Refused(it) if it.code == Code::ApprovalDenied);
            if is_too_fast {
                UnansweredReason::NotAPerson
            } else {
                UnansweredReason::NotTaken(error_chain(&error))
            }
        })
    }

    /// Ends a run, or a delegation and all below it.
    pub(crate) fn cancel(
        &self,
        text: &str,
    ) -> Result<(RunFiles, Option<SessionId>, Cancelled), String> {
        let (files, session) = self.find(text)?;
        let cancelled = files.cancel(session).map_err(|error| error_chain(&error))?;
        Ok((files, session, cancelled))
    }
}

/// What a look at a run came to.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WatchTick {
    /// Whether something was recorded since the last.
    pub(crate) grew: bool,
    /// Whether nothing more will come.
    pub(crate) is_over: bool,
}

/// A run that is followed.
pub(crate) struct RunWatch {
    // A std mutex: held while files are read, apart, and for a look at what is known; never across an await.
    followed: Arc<Mutex<FollowedRun>>,
    changes: DirectorySubscription,
}

impl RunWatch {
    /// Takes in what was recorded since, where nobody else is kept waiting by it.
    pub(crate) async fn look(&mut self) -> Result<WatchTick, String> {
        let followed = Arc::clone(&self.followed);
        let look = move || followed.lock().unwrap_or_else(PoisonError::into_inner).look();
        tokio::task::spawn_blocking(look).await.map_err(|error| error_chain(&error))?
    }

    /// Returns what is known of it.
    pub(crate) fn known(&self) -> MutexGuard<'_, FollowedRun> {
        self.followed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until there may be something to take in.
    pub(crate) async fn changed(&mut self) {
        self.changes.changed().await;
    }
}

/// What is known of a run that is followed.
pub(crate) struct FollowedRun {
    files: RunFiles,
    session: Option<SessionId>,
    /// What happened so far, without texts.
    pub(crate) view: RunView,
    follow: Follow,
    liveness: Liveness,
}

impl FollowedRun {
    fn look(&mut self) -> Result<WatchTick, String> {
        self.liveness = liveness(&self.files)?;
        let view = &mut self.view;
        let more = self.follow.more(|record| {
            view.apply(Entry::new(record.at, record.wall_ms, &record.event));
        });
        let grew = more.map_err(|error| error_chain(&error))?;
        Ok(WatchTick { grew, is_over: is_over(&self.view, self.liveness, self.session) })
    }

    /// Returns the run's own time.
    pub(crate) fn now(&self) -> Timestamp {
        now(&self.files, &self.view)
    }
}

fn is_dead(files: &RunFiles) -> bool {
    matches!(files.life(), Ok(Life::Dead))
}

fn liveness(files: &RunFiles) -> Result<Liveness, String> {
    Ok(match files.life().map_err(|error| error_chain(&error))? {
        Life::Live { .. } => Liveness::Alive,
        Life::Dead => Liveness::Dead,
    })
}

/// Returns an error with all its causes, each said once.
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
