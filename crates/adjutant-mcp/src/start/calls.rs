//! Which run a call has begun, kept on disk: clients repeat a call whose answer they did not wait for.
//!
//! A file for each call, named by its hash, holds the run. It is locked while the run is begun, so
//! that of two equal calls at once only one begins anything, in whichever server they arrive. The process
//! of the run shares the lock and writes the run there (see `handover`): a server may be killed at any
//! time.
//!
//! Invariant: a file is removed only by who has it locked, and a lock on a file that is removed is none.

use std::collections::HashMap;
use std::fs::{self, DirBuilder, DirEntry, File};
use std::io;
use std::os::unix::fs::{DirBuilderExt, FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::thread;
use std::time::Duration;

use adjutant_core::RunId;
use adjutant_engine::{open_private, open_private_existing};
use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;
use tokio::sync::OwnedMutexGuard;
use tokio::time::Instant;

/// How long a call is remembered; longer than any run may take.
const KEPT: Duration = Duration::from_secs(7 * 24 * 60 * 60);

/// How long another may take to begin an equal call.
const CLAIMED: Duration = Duration::from_secs(30);

/// How long one that is being ended may take to be so.
const ENDS: Duration = Duration::from_secs(5);

/// How often one looks whether another process has.
const AGAIN: Duration = Duration::from_millis(50);

/// What the names of files end with that say who waits.
const WAITERS: &str = ".waiters";

type Turn = tokio::sync::Mutex<()>;

/// The calls of all servers of one state directory.
#[derive(Clone, Debug)]
pub(crate) struct Calls {
    folder: PathBuf,
    // A std mutex: held for a look at a map, never across an await.
    /// Those of this server that are being begun, so that its own need not look again and again.
    turns: Arc<Mutex<HashMap<String, Weak<Turn>>>>,
    is_swept: Arc<AtomicBool>,
}

impl Calls {
    /// Opens the folder in the state directory.
    pub(crate) fn open(home: &Path) -> io::Result<Self> {
        let folder = home.join("mcp");
        DirBuilder::new().recursive(true).mode(0o700).create(&folder)?;
        Ok(Self { folder, turns: Arc::default(), is_swept: Arc::default() })
    }

    /// Drops what is old, once and on a thread of its own: nobody waits for it.
    pub(crate) fn sweep(&self) {
        if !self.is_swept.swap(true, Ordering::Relaxed) {
            let folder = self.folder.clone();
            // What stays is dropped another time.
            let _ = thread::Builder::new().name("mcp-sweep".into()).spawn(move || sweep(&folder));
        }
    }

    /// Waits for the call to be ours alone; nothing if that takes too long.
    pub(crate) async fn claim(&self, key: &str) -> io::Result<Option<Claim>> {
        let until = Instant::now() + CLAIMED;
        let turn = tokio::time::timeout_at(until, self.turn(key).lock_owned()).await;
        let Ok(turn) = turn else { return Ok(None) };
        let file = self.locked(key, FlockOperation::NonBlockingLockExclusive, until).await?;
        Ok(file.map(|file| Claim { file, _turn: turn }))
    }

    fn turn(&self, key: &str) -> Arc<Turn> {
        let mut turns = self.turns.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(turn) = turns.get(key).and_then(Weak::upgrade) {
            return turn;
        }
        turns.retain(|_, turn| turn.strong_count() > 0);
        let turn = Arc::new(Turn::default());
        turns.insert(key.to_owned(), Arc::downgrade(&turn));
        turn
    }

    /// Counts a call among those that wait for a run, in whichever server, until this is dropped.
    ///
    /// Waits for whoever is just ending the run.
    pub(crate) async fn wait_for(&self, run: RunId) -> Option<Waiter> {
        let (name, until) = (waiters(run), Instant::now() + ENDS);
        let file =
            self.locked(&name, FlockOperation::NonBlockingLockShared, until).await.ok()??;
        Some(Waiter { file, path: self.folder.join(name) })
    }

    /// Returns the right to end a run that nobody waits for; whoever would wait for it now has to wait
    /// until this is dropped.
    pub(crate) fn leave(&self, run: RunId) -> Option<Waiter> {
        let name = waiters(run);
        loop {
            let file = self.open_file(&name).ok()?;
            let is_ours = is_locked(&file, FlockOperation::NonBlockingLockExclusive).ok()?;
            if !is_ours || is_there(&file) {
                return is_ours.then(|| Waiter { file, path: self.folder.join(name) });
            }
        }
    }

    /// Opens a file and waits for its lock; nothing if that takes too long.
    async fn locked(
        &self,
        name: &str,
        how: FlockOperation,
        until: Instant,
    ) -> io::Result<Option<File>> {
        loop {
            let file = self.open_file(name)?;
            // No thread waits in the kernel: there are few, and others need them to end runs.
            while !is_locked(&file, how)? {
                if Instant::now() >= until {
                    return Ok(None);
                }
                tokio::time::sleep(AGAIN).await;
            }
            if is_there(&file) {
                return Ok(Some(file));
            }
        }
    }

    fn open_file(&self, name: &str) -> io::Result<File> {
        open_private(&self.folder.join(name))
    }
}

fn sweep(folder: &Path) {
    for entry in folder.read_dir().into_iter().flatten().flatten() {
        drop_old(&entry);
    }
}

/// Removes a file that is old, or says who waits although nobody does, unless someone has it locked.
fn drop_old(entry: &DirEntry) {
    let age = entry.metadata().and_then(|it| it.modified()).map(|at| at.elapsed());
    let is_old = matches!(age, Ok(Ok(age)) if age > KEPT);
    let counts_waiters = entry.file_name().to_string_lossy().ends_with(WAITERS);
    if (is_old || counts_waiters)
        && let Ok(file) = open_private_existing(&entry.path())
    {
        remove(&file, &entry.path());
    }
}

/// Removes a file unless someone else has it locked.
fn remove(file: &File, path: &Path) {
    let is_ours = is_locked(file, FlockOperation::NonBlockingLockExclusive);
    if is_ours.is_ok_and(|is_ours| is_ours) && is_there(file) {
        let _ = fs::remove_file(path);
    }
}

/// Says whether an open file still has its name: another may have removed it, and made a new one.
fn is_there(file: &File) -> bool {
    file.metadata().is_ok_and(|it| it.nlink() > 0)
}

fn waiters(run: RunId) -> String {
    format!("{run}{WAITERS}")
}

fn is_locked(file: &File, how: FlockOperation) -> io::Result<bool> {
    match flock(file, how) {
        Ok(()) => Ok(true),
        Err(Errno::WOULDBLOCK | Errno::INTR) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

/// A call that waits for a run; the kernel forgets it with its process.
#[derive(Debug)]
pub(crate) struct Waiter {
    file: File,
    path: PathBuf,
}

impl Drop for Waiter {
    fn drop(&mut self) {
        // The last one leaves nothing behind.
        remove(&self.file, &self.path);
    }
}

/// A call that nobody else begins while this is held, or the process it was handed to holds it.
#[derive(Debug)]
pub(crate) struct Claim {
    file: File,
    _turn: OwnedMutexGuard<()>,
}

impl Claim {
    /// Returns the run it began, if it began one.
    pub(crate) fn run(&self) -> Option<RunId> {
        // At its place, not where the file was read last: another process shares that.
        let mut text = [0; NOTE_BYTES];
        let read = self.file.read_at(&mut text, 0).ok()?;
        str::from_utf8(&text[..read]).ok()?.lines().next()?.parse().ok()
    }

    /// Returns the file with the lock.
    pub(crate) const fn file(&self) -> &File {
        &self.file
    }
}

/// The most that is read of a note; a run's name is far shorter.
const NOTE_BYTES: usize = 128;

/// Notes the run that a call began, on disk when this returns.
///
/// Over what was there, never after taking that away: whoever reads it finds the one or the other.
pub(crate) fn note(claim: &File, run: RunId) -> io::Result<()> {
    let text = format!("{run}\n");
    claim.write_all_at(text.as_bytes(), 0)?;
    claim.set_len(text.len() as u64)?;
    claim.sync_all()
}

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use tempfile::TempDir;

    use super::*;

    fn run(last: char) -> RunId {
        format!("run_1735460684_aaaaa{last}").parse().unwrap()
    }

    fn names(calls: &Calls) -> Vec<String> {
        let names = calls.folder.read_dir().unwrap().map(|it| it.unwrap().file_name());
        names.map(|name| name.into_string().unwrap()).collect()
    }

    async fn now<T>(wait: impl Future<Output = T>) -> Option<T> {
        tokio::time::timeout(Duration::from_millis(1), wait).await.ok()
    }

    #[tokio::test(start_paused = true)]
    async fn nobody_joins_a_run_that_is_being_ended_and_nobody_ends_one_that_was_joined() {
        let home = TempDir::new().unwrap();
        let (one, other) = (Calls::open(home.path()).unwrap(), Calls::open(home.path()).unwrap());
        let waiter = one.wait_for(run('1')).await.unwrap();
        assert!(other.leave(run('1')).is_none(), "somebody waits");
        assert!(other.leave(run('2')).is_some(), "of another run");
        drop(waiter);
        let left = one.leave(run('1')).unwrap();
        let mut joins = std::pin::pin!(other.wait_for(run('1')));
        assert!(now(joins.as_mut()).await.is_none(), "it is being ended");
        drop(left);
        assert!(joins.await.is_some());
        assert_eq!(names(&one), Vec::<String>::new(), "the last one leaves nothing behind");
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_swept_is_old_and_nobodys() {
        let home = TempDir::new().unwrap();
        let (one, other) = (Calls::open(home.path()).unwrap(), Calls::open(home.path()).unwrap());
        let claim = one.claim("held").await.unwrap().unwrap();
        drop(one.claim("left").await.unwrap().unwrap());
        drop(one.claim("new").await.unwrap().unwrap());
        let waiter = one.wait_for(run('1')).await.unwrap();
        fs::write(one.folder.join(waiters(run('2'))), "").unwrap();
        let old = SystemTime::now() - KEPT - Duration::from_secs(1);
        for name in ["held", "left"] {
            one.open_file(name).unwrap().set_modified(old).unwrap();
        }
        let mut next = std::pin::pin!(other.claim("held"));
        assert!(now(next.as_mut()).await.is_none());
        sweep(&one.folder);
        let mut kept = names(&one);
        kept.sort();
        assert_eq!(kept, ["held", "new", &waiters(run('1'))]);
        drop((claim, waiter));
        // Whoever had opened it before gets what is there now, and not what was.
        sweep(&one.folder);
        let claim = next.await.unwrap().unwrap();
        assert!(is_there(claim.file()));
        assert!(now(one.claim("held")).await.is_none(), "there is one claim");
    }

    #[tokio::test(start_paused = true)]
    async fn a_claim_holds_the_one_run_or_the_other() {
        let home = TempDir::new().unwrap();
        let calls = Calls::open(home.path()).unwrap();
        let claim = calls.claim("call").await.unwrap().unwrap();
        assert_eq!(claim.run(), None);
        for name in ['1', '2'] {
            note(claim.file(), run(name)).unwrap();
            assert_eq!(claim.run(), Some(run(name)));
        }
        drop(claim);
        let claim = calls.claim("call").await.unwrap().unwrap();
        assert_eq!(claim.run(), Some(run('2')));
    }
}
