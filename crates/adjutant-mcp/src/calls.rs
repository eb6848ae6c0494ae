//! Which run a call has begun, kept on disk: clients repeat a call whose answer they did not wait for.
//!
//! A file for each call, named by its hash, holds the run. It is locked while the run is begun, so
//! that of two equal calls at once only one begins anything, in whichever server they arrive. The process
//! of the run shares the lock and writes the run there (see `handover`): a server may be killed at any
//! time.

use std::fs::{DirBuilder, File};
use std::io;
use std::os::unix::fs::{DirBuilderExt, FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use adjutant_core::RunId;
use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;
use tokio::time::Instant;

/// How long a call is remembered; longer than any run may take.
const KEPT: Duration = Duration::from_secs(7 * 24 * 60 * 60);

/// How long another server may take to begin an equal call.
const CLAIMED: Duration = Duration::from_secs(30);

/// How often one looks whether it has.
const AGAIN: Duration = Duration::from_millis(50);

/// The calls of all servers of one state directory.
#[derive(Clone, Debug)]
pub(crate) struct Calls {
    folder: PathBuf,
}

impl Calls {
    /// Opens the folder in the state directory and drops what is old.
    pub(crate) fn open(home: &Path) -> io::Result<Self> {
        let folder = home.join("mcp");
        DirBuilder::new().recursive(true).mode(0o700).create(&folder)?;
        for entry in folder.read_dir()?.flatten() {
            let age = entry.metadata().and_then(|it| it.modified()).map(|at| at.elapsed());
            if matches!(age, Ok(Ok(age)) if age > KEPT) {
                // One that stays is dropped another time.
                let _ = std::fs::remove_file(entry.path());
            }
        }
        Ok(Self { folder })
    }

    /// Waits for the call to be ours alone; nothing if that takes too long.
    pub(crate) async fn claim(&self, key: &str) -> io::Result<Option<Claim>> {
        let file = self.open_file(key)?;
        let until = Instant::now() + CLAIMED;
        // No thread waits in the kernel: there are few, and others need them to end runs.
        while !is_locked(&file, FlockOperation::NonBlockingLockExclusive)? {
            if Instant::now() >= until {
                return Ok(None);
            }
            tokio::time::sleep(AGAIN).await;
        }
        Ok(Some(Claim { file }))
    }

    /// Counts a call among those that wait for a run, in whichever server, until this is dropped.
    pub(crate) fn wait_for(&self, run: RunId) -> Option<Waiter> {
        let file = self.open_file(&waiters(run)).ok()?;
        let is_counted = is_locked(&file, FlockOperation::NonBlockingLockShared).ok()?;
        is_counted.then_some(Waiter { _file: file })
    }

    /// Says whether nobody waits for a run.
    pub(crate) fn is_left(&self, run: RunId) -> bool {
        let file = self.open_file(&waiters(run));
        file.and_then(|file| is_locked(&file, FlockOperation::NonBlockingLockExclusive))
            .unwrap_or(true)
    }

    fn open_file(&self, name: &str) -> io::Result<File> {
        let mut options = File::options();
        options.read(true).write(true).create(true).truncate(false).mode(0o600);
        options.open(self.folder.join(name))
    }
}

fn waiters(run: RunId) -> String {
    format!("{run}.waiters")
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
    _file: File,
}

/// A call that nobody else begins while this is held.
#[derive(Debug)]
pub(crate) struct Claim {
    file: File,
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
