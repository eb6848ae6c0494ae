//! Work that outlives the machine it is done on: the state that a run starts from and the work of its agents are in a
//! store that all workers of a cluster reach.
//!
//! The front end stores the state once ([`store_base`]) and fetches results ([`ResultImporter`]). A worker makes a
//! checkout of the state ([`open_checkout`]) and stores the work of an agent after every step that changed it
//! ([`PortableWork`]). Everything in the store is a git bundle:
//!
//! | object | what it has |
//! |---|---|
//! | `history/full/COMMIT` | a commit and everything that it reaches |
//! | `history/COMMIT` | the same without what one bundle in `history/full` has |
//! | `runs/RUN/base` | the uncommitted files of the user, and results that the run builds on |
//! | `runs/RUN/SESSION/EPOCH-NUMBER-WORKER-COMMIT` | the work of an agent after a step; the last one counts; no bundle but a note if the agent has undone all of its work |
//!
//! Invariant: a worker that was taken for lost cannot replace later work: each time a session is given to a worker, the
//! runtime counts up its epoch, and a worker stores nothing for sessions that it does not have.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use adjutant_core::workspace::OwnWorkspace;
use adjutant_core::{Event, RunId, SessionId};
use adjutant_workspace::space::{
    Workspace, Workspaces, base_references, create_repository, recreate_checkout,
    refuse_new_credentials, work_reference,
};
use adjutant_workspace::{Git, ObjectId, Repository, ResultRef};

pub use adjutant_workspace::space::PortableBase;

use crate::error_chain::error_chain;
use crate::workspaces::as_record;

/// Where commits are with all of their history, and without what one of the former has.
const FULL_HISTORY: &str = "history/full";
const HISTORY: &str = "history";

/// How many commits below HEAD are searched for one whose full history is stored. After more of them, storing all of it
/// again costs less than reading both bundles for every run.
const SEARCHED: usize = 500;

/// How long an agent's step waits for a store that does not answer.
const STORE_TIME: Duration = Duration::from_secs(600);

/// How often the last work of a session is listed again because it was replaced.
const LIST_ATTEMPTS: u32 = 3;

/// The pause between two attempts to reach the store.
const STORE_PAUSE: Duration = Duration::from_millis(500);

/// A store of files that all machines of a cluster reach. Its calls block.
pub trait WorkStore: Send + Sync + Debug {
    /// Stores a file under a name, all of it or nothing.
    fn put(&self, name: &str, file: &Path) -> Result<(), StoreError>;

    /// Writes a stored file to `file`.
    fn fetch(&self, name: &str, file: &Path) -> Result<(), StoreError>;

    /// Returns the names of the files directly in a directory, without the directory, in any order.
    fn list(&self, directory: &str) -> Result<Vec<String>, StoreError>;

    /// Removes a file.
    fn remove(&self, name: &str) -> Result<(), StoreError>;

    /// Removes everything in a directory.
    fn remove_all(&self, directory: &str) -> Result<(), StoreError>;
}

/// Why work could not be stored or fetched.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StoreError {
    /// The store does not answer; the same call may succeed later.
    #[error("the cluster's store cannot be used: {0}")]
    Unavailable(String),
    /// It cannot be done, for this reason.
    #[error("{0}")]
    Failed(String),
}

impl StoreError {
    fn of(error: &dyn std::error::Error) -> Self {
        Self::Failed(error_chain(error))
    }
}

/// Where stored work is, in the order in which it was stored.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct StoredWork {
    /// When the session was given to the worker, see [`SessionPlacements`].
    epoch: u64,
    /// Counts the steps of that worker.
    number: u32,
    worker: String,
    commit: String,
}

impl StoredWork {
    fn parse(name: &str) -> Option<Self> {
        let (epoch, rest) = name.split_once('-')?;
        let (number, rest) = rest.split_once('-')?;
        // A worker's name may contain a dash.
        let (worker, commit) = rest.rsplit_once('-')?;
        Some(Self {
            epoch: epoch.parse().ok()?,
            number: number.parse().ok()?,
            worker: worker.to_owned(),
            commit: commit.to_owned(),
        })
    }

    fn name(&self) -> String {
        let Self { epoch, number, worker, commit } = self;
        format!("{epoch:04}-{number:06}-{worker}-{commit}")
    }

    fn path(&self, run: &str, session: &str) -> String {
        format!("{}/{}", directory_of(run, session), self.name())
    }
}

fn directory_of(run: &str, session: &str) -> String {
    format!("runs/{run}/{session}")
}

fn no_work(session: &str) -> StoreError {
    StoreError::Failed(format!("the cluster's store has no work of {session}"))
}

/// Returns the last work of a session in the store.
fn last_work(
    store: &dyn WorkStore,
    run: &str,
    session: &str,
) -> Result<Option<StoredWork>, StoreError> {
    let names = store.list(&directory_of(run, session))?;
    Ok(names.iter().filter_map(|name| StoredWork::parse(name)).max())
}

/// Takes the objects of a stored bundle into a repository. `scratch` is a directory for the file.
fn take_bundle(
    store: &dyn WorkStore,
    name: &str,
    repository: &Repository,
    scratch: &Path,
) -> Result<(), StoreError> {
    with_scratch_file(scratch, |file| {
        store.fetch(name, file)?;
        repository.take_bundle(file).map_err(|error| StoreError::of(&error))
    })
}

/// Stores a bundle of what `references` reach and `known` does not.
fn put_bundle(
    store: &dyn WorkStore,
    name: &str,
    (repository, scratch): (&Repository, &Path),
    references: &[String],
    known: &[ObjectId],
) -> Result<(), StoreError> {
    with_scratch_file(scratch, |file| {
        let written = repository.write_bundle(references, known, file);
        written.map_err(|error| StoreError::of(&error))?;
        store.put(name, file)
    })
}

/// Stores that a session has no work any more.
fn put_note(store: &dyn WorkStore, name: &str, scratch: &Path) -> Result<(), StoreError> {
    with_scratch_file(scratch, |file| {
        let written = fs::write(file, "no changes\n");
        written.map_err(|error| StoreError::Failed(format!("{}: {error}", file.display())))?;
        store.put(name, file)
    })
}

fn with_scratch_file<T>(
    scratch: &Path,
    work: impl FnOnce(&Path) -> Result<T, StoreError>,
) -> Result<T, StoreError> {
    let failed =
        |error: std::io::Error| StoreError::Failed(format!("{}: {error}", scratch.display()));
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    let directory = scratch.join(format!("bundle-{}-{number}", std::process::id()));
    fs::create_dir_all(&directory).map_err(failed)?;
    let result = work(&directory.join("bundle"));
    // Best effort: what is left only takes up space.
    let _ = fs::remove_dir_all(&directory);
    result
}

/// Opens the repository around a user's directory. `state` is a directory of this user for git's private files.
fn open_repository(tree: &Path, state: &Path) -> Result<Repository, StoreError> {
    let git = find_git()?;
    let opened = Repository::open(&git, tree, state).and_then(Repository::with_user_excludes);
    opened.map_err(|error| StoreError::of(&error))
}

fn find_git() -> Result<Git, StoreError> {
    let path = std::env::var_os("PATH").unwrap_or_else(|| "/usr/local/bin:/usr/bin:/bin".into());
    Git::find(&path).map_err(|error| StoreError::of(&error))
}

/// Captures the state of the user's checkout around `tree` and stores it for a run. The run may build on the results
/// `takes_in`.
pub fn store_base(
    store: &dyn WorkStore,
    (tree, state): (&Path, &Path),
    run: RunId,
    takes_in: &[String],
) -> Result<PortableBase, StoreError> {
    let repository = open_repository(tree, state)?;
    let takes_in: Vec<ObjectId> = takes_in.iter().filter_map(|it| ObjectId::parse(it)).collect();
    let base = PortableBase::capture(&repository, tree, &run.to_string(), &takes_in);
    let base = base.map_err(|error| StoreError::of(&error))?;
    let (head, commit) = base.commits().map_err(|error| StoreError::of(&error))?;
    let site = (&repository, state);
    if let Some(head) = &head {
        store_history(store, site, run, head)?;
    }
    let known: Vec<ObjectId> = head.into_iter().collect();
    let further: Vec<ObjectId> =
        takes_in.into_iter().chain([commit]).filter(|it| !known.contains(it)).collect();
    if !further.is_empty() {
        let references = base_references(&run.to_string(), &further);
        put_bundle(store, &format!("runs/{run}/base"), site, &references, &known)?;
    }
    Ok(base)
}

/// Stores a commit with its history, as far as the store does not have it.
///
/// A bundle builds on a full one, never on another that builds on one, so that reading takes two of them, however many
/// runs were started from however many commits.
fn store_history(
    store: &dyn WorkStore,
    (repository, scratch): (&Repository, &Path),
    run: RunId,
    head: &ObjectId,
) -> Result<(), StoreError> {
    let full = store.list(FULL_HISTORY)?;
    let has =
        |names: &[String], commit: &ObjectId| names.iter().any(|name| name == commit.as_str());
    if has(&full, head) || has(&store.list(HISTORY)?, head) {
        return Ok(());
    }
    let below = repository.commits_below(head, SEARCHED).map_err(|error| StoreError::of(&error))?;
    let known: Vec<ObjectId> =
        below.into_iter().find(|commit| has(&full, commit)).into_iter().collect();
    let directory = if known.is_empty() { FULL_HISTORY } else { HISTORY };
    let name = format!("{directory}/{head}");
    // Not `HEAD`, which a person may have moved since the state was captured.
    let references = base_references(&run.to_string(), std::slice::from_ref(head));
    put_bundle(store, &name, (repository, scratch), &references, &known)
}

/// Makes a checkout of a stored state below `place` and returns its top, or returns the one that is there already.
pub fn open_checkout(
    store: &dyn WorkStore,
    place: &Path,
    run: RunId,
    base: &PortableBase,
) -> Result<PathBuf, StoreError> {
    let failed =
        |error: std::io::Error| StoreError::Failed(format!("{}: {error}", place.display()));
    let name = base.checkout.file_name().unwrap_or("checkout".as_ref());
    let tree = place.join(name);
    if tree.is_dir() {
        return Ok(tree);
    }
    // Made beside its final name, so that a checkout that exists is complete.
    let unfinished = place.join("unfinished").join(name);
    let state = place.join("state");
    if unfinished.exists() {
        fs::remove_dir_all(&unfinished).map_err(failed)?;
    }
    let repository = create_repository(&find_git()?, &unfinished, &state, base);
    let repository = repository.map_err(|error| StoreError::of(&error))?;
    let (head, commit) = base.commits().map_err(|error| StoreError::of(&error))?;
    if let Some(head) = &head {
        take_history(store, (&repository, &state), head)?;
    }
    if store.list(&format!("runs/{run}"))?.iter().any(|name| name == "base") {
        take_bundle(store, &format!("runs/{run}/base"), &repository, &state)?;
    } else if head.as_ref() != Some(&commit) {
        let text = format!("the store no longer has the files of {run}");
        return Err(StoreError::Failed(text));
    }
    recreate_checkout(&repository, &run.to_string(), base)
        .map_err(|error| StoreError::of(&error))?;
    fs::rename(&unfinished, &tree).map_err(failed)?;
    Ok(tree)
}

/// Takes in a commit and its history: its bundle, and before that the full one that it builds on.
fn take_history(
    store: &dyn WorkStore,
    (repository, scratch): (&Repository, &Path),
    head: &ObjectId,
) -> Result<(), StoreError> {
    if store.list(FULL_HISTORY)?.iter().any(|name| name == head.as_str()) {
        return take_bundle(store, &format!("{FULL_HISTORY}/{head}"), repository, scratch);
    }
    with_scratch_file(scratch, |file| {
        store.fetch(&format!("{HISTORY}/{head}"), file)?;
        if let Some(full) = required_commit(file)? {
            take_bundle(store, &format!("{FULL_HISTORY}/{full}"), repository, scratch)?;
        }
        repository.take_bundle(file).map_err(|error| StoreError::of(&error))
    })
}

/// Returns the commit that a bundle builds on, from its first lines.
fn required_commit(bundle: &Path) -> Result<Option<ObjectId>, StoreError> {
    use std::io::{BufRead as _, BufReader};
    let failed = |error: std::io::Error| {
        StoreError::Failed(format!("a stored bundle cannot be read: {error}"))
    };
    let mut reader = BufReader::new(fs::File::open(bundle).map_err(failed)?);
    loop {
        let mut line = Vec::new();
        let read = reader.read_until(b'\n', &mut line).map_err(failed)?;
        if read <= 1 {
            return Ok(None);
        }
        if let Some(required) = line.strip_prefix(b"-") {
            let id = required.split(|byte| matches!(byte, b' ' | b'\n')).next();
            let id = id.and_then(|id| std::str::from_utf8(id).ok());
            return Ok(id.and_then(ObjectId::parse));
        }
    }
}

/// When each session was last given to a worker, as one worker knows it: a number that grows with each time, and is the same
/// for all workers.
#[derive(Clone, Debug, Default)]
pub struct SessionPlacements(Arc<Mutex<BTreeMap<SessionId, Placement>>>);

#[derive(Clone, Copy, Debug, Default)]
struct Placement {
    epoch: u64,
    is_elsewhere: bool,
}

impl SessionPlacements {
    /// Notes that a session was given to this worker, or else to another one.
    pub fn note(&self, session: SessionId, epoch: u64, is_here: bool) {
        let placement = Placement { epoch, is_elsewhere: !is_here };
        self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(session, placement);
    }

    /// Returns whether a session was given to a worker after this epoch.
    #[must_use]
    pub fn was_given_after(&self, session: SessionId, epoch: u64) -> bool {
        let all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.get(&session).is_some_and(|placement| placement.epoch > epoch)
    }

    /// Returns the epoch of a session. Fails if this worker does not have it.
    fn epoch_of(&self, session: SessionId) -> Result<u64, StoreError> {
        let all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let Placement { epoch, is_elsewhere } = all.get(&session).copied().unwrap_or_default();
        if is_elsewhere {
            let text = format!("{session} was taken from this worker meanwhile");
            return Err(StoreError::Failed(text));
        }
        Ok(epoch)
    }
}

/// Stores the work of the agents of one run on one worker, and fetches that of other workers.
#[derive(Debug)]
pub struct PortableWork {
    store: Arc<dyn WorkStore>,
    worker: String,
    placements: SessionPlacements,
    base: ObjectId,
    scratch: PathBuf,
    // A std mutex: held for a map access.
    stored: Mutex<BTreeMap<SessionId, StoredWork>>,
}

impl PortableWork {
    /// Prepares the work of a run that starts from `base`. `scratch` is a directory of this worker.
    pub fn new(
        store: Arc<dyn WorkStore>,
        (worker, placements): (String, SessionPlacements),
        base: &PortableBase,
        scratch: PathBuf,
    ) -> Result<Self, StoreError> {
        let (_, base) = base.commits().map_err(|error| StoreError::of(&error))?;
        Ok(Self { store, worker, placements, base, scratch, stored: Mutex::default() })
    }

    /// Opens a workspace that this worker did not make, or has lost to another one meanwhile; `None` if its files here
    /// are the present ones.
    pub(crate) fn recreate(
        &self,
        all: &Workspaces,
        (run, session): (&str, SessionId),
        space: &OwnWorkspace,
    ) -> Result<Option<Workspace>, StoreError> {
        let name = session.to_string();
        let epoch = self.placements.epoch_of(session)?;
        let last = self.until_stored(|| last_work(&*self.store, run, &name))?;
        let Some(last) = last else { return Ok(None) };
        if last.epoch > epoch {
            let text = format!("{name} was given to worker {} meanwhile", last.worker);
            return Err(StoreError::Failed(text));
        }
        let is_here = match ObjectId::parse(&last.commit) {
            Some(commit) => {
                let known = all.repository().existing_commits(std::slice::from_ref(&commit));
                known.map_err(|error| StoreError::of(&error))?.contains(&commit)
            }
            None => false,
        };
        // Its copy of the checkout is removed at the end of a run, which may be continued later.
        if last.worker == self.worker && is_here {
            self.lock().insert(session, last);
            return Ok(None);
        }
        let (last, commit) = self.take_last(all.repository(), run, &name)?;
        self.lock().insert(session, last);
        let found = all.recreate(run, &name, &as_record(space), &commit);
        let found = found.map_err(|error| StoreError::of(&error))?;
        // From here on, what an earlier worker of the session still stores counts no more.
        self.store(all.repository(), (run, session), &commit)?;
        Ok(Some(found))
    }

    /// Fetches the work of a session if a commit of it is not here.
    pub(crate) fn fetch_missing(
        &self,
        repository: &Repository,
        (run, session): (&str, SessionId),
        commit: &ObjectId,
    ) -> Result<(), StoreError> {
        let known = repository.existing_commits(std::slice::from_ref(commit));
        if known.map_err(|error| StoreError::of(&error))?.contains(commit) {
            return Ok(());
        }
        self.take_last(repository, run, &session.to_string()).map(drop)
    }

    /// Stores a commit of the work of a session, unless it is stored already.
    pub(crate) fn store(
        &self,
        repository: &Repository,
        (run, session): (&str, SessionId),
        commit: &ObjectId,
    ) -> Result<(), StoreError> {
        let name = session.to_string();
        let epoch = self.placements.epoch_of(session)?;
        let before = self.lock().get(&session).cloned();
        let is_stored = match &before {
            Some(before) => before.commit == commit.as_str() && before.epoch == epoch,
            // Every worker has the state that the run starts from.
            None => *commit == self.base,
        };
        if is_stored {
            return Ok(());
        }
        let next = StoredWork {
            epoch,
            number: before.as_ref().map_or(0, |before| before.number + 1),
            worker: self.worker.clone(),
            commit: commit.to_string(),
        };
        let checked = refuse_new_credentials(repository, &self.base, commit);
        checked.map_err(|error| StoreError::of(&error))?;
        let path = next.path(run, &name);
        if *commit == self.base {
            // What was stored before does not count any more, and a bundle cannot be empty.
            self.until_stored(|| put_note(&*self.store, &path, &self.scratch))?;
        } else {
            let reference = work_reference(repository, run, &name, commit);
            let references = [reference.map_err(|error| StoreError::of(&error))?];
            let site = (repository, self.scratch.as_path());
            self.until_stored(|| {
                put_bundle(&*self.store, &path, site, &references, std::slice::from_ref(&self.base))
            })?;
        }
        self.lock().insert(session, next);
        if let Some(before) = before.filter(|before| before.worker == self.worker) {
            // Best effort: what is left is removed with the run.
            let _ = self.store.remove(&before.path(run, &name));
        }
        Ok(())
    }

    /// Takes the last work of a session into a repository.
    fn take_last(
        &self,
        repository: &Repository,
        run: &str,
        session: &str,
    ) -> Result<(StoredWork, ObjectId), StoreError> {
        let mut attempts = 0;
        loop {
            let last = self.until_stored(|| last_work(&*self.store, run, session))?;
            let last = last.ok_or_else(|| no_work(session))?;
            let commit = ObjectId::parse(&last.commit).ok_or_else(|| no_work(session))?;
            if commit == self.base {
                return Ok((last, commit));
            }
            let path = last.path(run, session);
            attempts += 1;
            match self.until_stored(|| take_bundle(&*self.store, &path, repository, &self.scratch))
            {
                // A worker that does not know yet that it lost the session may have replaced it since it was listed.
                Err(StoreError::Failed(_)) if attempts < LIST_ATTEMPTS => {}
                Err(error) => return Err(error),
                Ok(()) => return Ok((last, commit)),
            }
        }
    }

    /// Repeats a call of the store until it succeeds: a step must not be recorded before its work is stored.
    fn until_stored<T>(
        &self,
        mut call: impl FnMut() -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        let began = Instant::now();
        loop {
            match call() {
                Err(StoreError::Unavailable(_)) if began.elapsed() < STORE_TIME => {
                    std::thread::sleep(STORE_PAUSE);
                }
                result => return result,
            }
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, BTreeMap<SessionId, StoredWork>> {
        self.stored.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Fetches the results of a run into the user's repository.
#[derive(Debug)]
pub struct ResultImporter {
    store: Arc<dyn WorkStore>,
    repository: Repository,
    run: RunId,
    scratch: PathBuf,
}

impl ResultImporter {
    /// Prepares fetching into the repository around `tree`. `state` is a directory of this user.
    pub fn new(
        store: Arc<dyn WorkStore>,
        tree: &Path,
        state: &Path,
        run: RunId,
    ) -> Result<Self, StoreError> {
        let repository = open_repository(tree, state)?;
        Ok(Self { store, repository, run, scratch: state.to_owned() })
    }

    /// Fetches the result that an event is about, if it is about one.
    pub fn import(&self, event: &Event) -> Result<(), StoreError> {
        let Event::SpaceKept { session, kept, .. } = event else { return Ok(()) };
        let Some(commit) = kept.commit.as_deref().and_then(ObjectId::parse) else { return Ok(()) };
        let (run, session) = (self.run.to_string(), session.to_string());
        let reference = ResultRef::new(&run, &session).map_err(|error| StoreError::of(&error))?;
        let known = self.repository.existing_commits(std::slice::from_ref(&commit));
        if !known.map_err(|error| StoreError::of(&error))?.contains(&commit) {
            let last = last_work(&*self.store, &run, &session)?;
            let last = last.ok_or_else(|| no_work(&session))?;
            let path = last.path(&run, &session);
            take_bundle(&*self.store, &path, &self.repository, &self.scratch)?;
        }
        self.repository.set_result(&reference, &commit).map_err(|error| StoreError::of(&error))
    }
}

/// Removes what a store has of a run. Can be repeated.
pub fn remove_work(store: &dyn WorkStore, run: RunId) -> Result<(), StoreError> {
    store.remove_all(&format!("runs/{run}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn work(epoch: u64, number: u32, worker: &str) -> StoredWork {
        StoredWork { epoch, number, worker: worker.to_owned(), commit: "c0ffee".to_owned() }
    }

    #[test]
    fn nothing_is_stored_for_a_session_that_was_taken_from_this_worker() {
        let session = SessionId::new(1_700_000_000, [1; 6]);
        let placements = SessionPlacements::default();
        assert_eq!(placements.epoch_of(session), Ok(0));
        placements.note(session, 3, false);
        assert!(placements.epoch_of(session).is_err());
        placements.note(session, 5, true);
        assert_eq!(placements.epoch_of(session), Ok(5));
    }

    #[test]
    fn names_of_stored_work_round_trip_and_order_by_owner_then_step() {
        let in_order = [work(0, 0, "build-1"), work(0, 9, "a"), work(0, 10, "a"), work(1, 0, "a")];
        for pair in in_order.windows(2) {
            assert!(pair[0] < pair[1], "{pair:?}");
        }
        for work in in_order {
            assert_eq!(StoredWork::parse(&work.name()), Some(work));
        }
        for foreign in ["base", "0-0-a", "x-0-a-c0ffee", ".tmp"] {
            assert_eq!(StoredWork::parse(foreign), None, "{foreign}");
        }
    }
}
