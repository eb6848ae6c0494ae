//! The registry on disk: state that is shared between runs and processes, in `registry.jsonl`.
//!
//! [`RegistryHandle::submit`] locks the file, folds it, releases what dead processes held, asks
//! [`Registry::decide`], appends and unlocks. [`RegistryHandle::read_unlocked`] only reads. No file is opened before the
//! first of these calls.
//!
//! A process that holds something has its own lock file, which the kernel unlocks when the process ends.
//! [`RegistryHandle::holder`] locks it until the last clone of the handle is dropped.

mod consents;
mod import;
mod questions;
mod samples;
mod story_claim;
mod story_runs;

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use adjutant_core::registry::HolderId;
use adjutant_core::{Registry, RegistryCommand, RegistryEvent, RegistryRefusal};
use adjutant_store::{
    Durability, FileError, JournalRecord, LOCK_TIMEOUT, LivenessLock, LockedLog, SharedLog,
    SharedLogError,
};

use crate::runner::clock::{WallClock, wall_now};

pub use questions::{MergeQuestion, question_id};
pub use story_claim::story_key;
pub use story_runs::StoryOutcome;

/// The name of the log file, without extension.
const NAME: &str = "registry";

/// The records after which the log is replaced by a checkpoint, so that reading it stays fast.
const MAX_RECORDS: u64 = 256;

/// Why the registry cannot be read or written.
#[derive(Debug, thiserror::Error)]
pub enum RegistryUnavailable {
    /// The log cannot be used. The error names a damaged line.
    #[error(transparent)]
    Log(#[from] SharedLogError),
    /// A lock file cannot be used.
    #[error(transparent)]
    File(#[from] FileError),
    /// No random name can be made for the lock file.
    #[error("cannot read random bytes from the operating system")]
    Random(#[from] getrandom::Error),
}

/// Why a command to the registry changed nothing.
#[derive(Debug, thiserror::Error)]
pub enum RegistryError {
    /// The registry refused it.
    #[error(transparent)]
    Refused(#[from] RegistryRefusal),
    /// The registry cannot be read or written.
    #[error("cannot read or write the registry of runs")]
    Unavailable(#[from] RegistryUnavailable),
}

/// Access to the registry of one state directory. A process has one; clones share its holder.
#[derive(Clone, Debug)]
pub struct RegistryHandle {
    shared: Arc<RegistryFile>,
}

#[derive(Debug)]
struct RegistryFile {
    home: PathBuf,
    log: SharedLog,
    wall: WallClock,
    // A std mutex: held while the lock file is made, never across an await.
    holder: Mutex<Option<(HolderId, LivenessLock)>>,
}

impl RegistryHandle {
    /// Returns a handle for a state directory. Opens no file.
    #[must_use]
    pub fn at(home: &Path) -> Self {
        Self::with_clock(home, wall_now)
    }

    /// Like [`RegistryHandle::at`] with another clock; for tests.
    #[must_use]
    pub fn with_clock(home: &Path, wall: WallClock) -> Self {
        let log = SharedLog::new(home, NAME);
        let (home, holder) = (home.to_owned(), Mutex::default());
        Self { shared: Arc::new(RegistryFile { home, log, wall, holder }) }
    }

    /// Returns the holder id of this process. The first call creates and locks its lock file.
    ///
    /// # Errors
    ///
    /// Why the lock file could not be made.
    pub fn holder(&self) -> Result<HolderId, RegistryUnavailable> {
        let mut holder = self.lock_own_holder();
        if let Some((id, _)) = &*holder {
            return Ok(id.clone());
        }
        let mut bytes = [0; 8];
        getrandom::fill(&mut bytes)?;
        let name: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        let lock = LivenessLock::take(&self.shared.home, &name)?;
        Ok(holder.insert((HolderId::new(name), lock)).0.clone())
    }

    fn lock_own_holder(&self) -> MutexGuard<'_, Option<(HolderId, LivenessLock)>> {
        self.shared.holder.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reads the registry without a lock. It may still list what dead processes held; check a holder with
    /// [`RegistryHandle::is_alive`].
    ///
    /// # Errors
    ///
    /// Why it cannot be read.
    pub fn read_unlocked(&self) -> Result<Registry, RegistryUnavailable> {
        let mut fold = RegistryFold::default();
        self.shared.log.read(|record| fold.apply(&record))?;
        let command = fold.is_empty.then(|| import::command(&self.shared.home));
        let mut registry = fold.registry;
        if let Some(command) = command {
            let wall_ms = (self.shared.wall)();
            let events = registry.decide(wall_ms, command).unwrap_or_default();
            events.iter().for_each(|event| registry.evolve(wall_ms, event));
        }
        Ok(registry)
    }

    /// Returns whether the process of a holder is alive.
    ///
    /// # Errors
    ///
    /// Why its lock file cannot be read.
    pub fn is_alive(&self, holder: &HolderId) -> Result<bool, RegistryUnavailable> {
        Ok(LivenessLock::is_held(&self.shared.home, holder.as_str())?)
    }

    /// Decides a command and appends the events to the log before it returns.
    ///
    /// Waits while another process has the log locked, which takes milliseconds.
    ///
    /// # Errors
    ///
    /// The refusal, or why the registry cannot be used. Nothing has changed then.
    pub fn submit(&self, command: RegistryCommand) -> Result<Vec<RegistryEvent>, RegistryError> {
        self.submit_within(LOCK_TIMEOUT, command)
    }

    /// Like [`RegistryHandle::submit`], but waits at most `patience` for the lock.
    fn submit_within(
        &self,
        patience: Duration,
        command: RegistryCommand,
    ) -> Result<Vec<RegistryEvent>, RegistryError> {
        let mut turn = LockedRegistry::begin(&self.shared, patience)?;
        if let Some((holder, _)) = &*self.lock_own_holder() {
            turn.join(holder)?;
        }
        let events = match turn.decide(command) {
            Ok(events) => events,
            Err(refusal) => {
                // Records the releases of dead holders, so that the next process need not find them again.
                turn.end()?;
                return Err(refusal.into());
            }
        };
        turn.end()?;
        Ok(events)
    }

    /// Returns a guard that submits `command` when it is dropped, for example to release a claim.
    ///
    /// If the process dies first, its lock file is unlocked and the next process releases the claim.
    #[must_use]
    pub fn on_drop(&self, command: RegistryCommand) -> ReleaseOnDrop {
        ReleaseOnDrop { registry: self.clone(), command: Some(command) }
    }
}

/// A guard that submits a registry command when it is dropped, for example to release a claim.
///
/// Errors are ignored, because the end of the process releases everything as well.
#[derive(Debug)]
pub struct ReleaseOnDrop {
    registry: RegistryHandle,
    command: Option<RegistryCommand>,
}

impl ReleaseOnDrop {
    /// Drops the guard without submitting its command.
    pub fn keep(mut self) {
        self.command = None;
    }
}

impl Drop for ReleaseOnDrop {
    fn drop(&mut self) {
        if let Some(command) = self.command.take() {
            let _ = self.registry.submit(command);
        }
    }
}

/// Folds the records of the log into a registry.
struct RegistryFold {
    registry: Registry,
    is_empty: bool,
}

impl Default for RegistryFold {
    fn default() -> Self {
        Self { registry: Registry::default(), is_empty: true }
    }
}

impl RegistryFold {
    fn apply(&mut self, record: &JournalRecord<RegistryEvent>) {
        self.registry.evolve(record.wall_ms, &record.event);
        self.is_empty = false;
    }
}

/// The registry while this process has its log locked.
struct LockedRegistry<'a> {
    shared: &'a RegistryFile,
    registry: Registry,
    log: LockedLog,
    wall_ms: u64,
    /// Events that are decided and not written yet.
    events: Vec<RegistryEvent>,
}

impl<'a> LockedRegistry<'a> {
    /// Locks and folds the log, imports the files of earlier versions, and releases what dead processes held.
    fn begin(shared: &'a RegistryFile, patience: Duration) -> Result<Self, RegistryUnavailable> {
        let mut fold = RegistryFold::default();
        let log = shared.log.lock_within(patience, |record| fold.apply(&record))?;
        let RegistryFold { registry, is_empty } = fold;
        let mut turn = Self { shared, registry, log, wall_ms: (shared.wall)(), events: Vec::new() };
        if is_empty {
            // An import is refused only if the registry is not empty.
            let _ = turn.decide(import::command(&shared.home));
        }
        let holders: Vec<HolderId> = turn.registry.holders().map(|(id, _)| id.clone()).collect();
        for holder in holders {
            if !LivenessLock::is_held(&shared.home, holder.as_str())? {
                // Refused only for an unknown holder, and this one was just listed.
                let _ = turn.decide(RegistryCommand::HolderGone { holder });
            }
        }
        Ok(turn)
    }

    fn join(&mut self, holder: &HolderId) -> Result<(), RegistryRefusal> {
        if self.registry.holders().all(|(known, _)| known != holder) {
            let (holder, pid) = (holder.clone(), std::process::id());
            self.decide(RegistryCommand::Join { holder, pid })?;
        }
        Ok(())
    }

    fn decide(&mut self, command: RegistryCommand) -> Result<Vec<RegistryEvent>, RegistryRefusal> {
        let events = self.registry.decide(self.wall_ms, command)?;
        events.iter().for_each(|event| self.registry.evolve(self.wall_ms, event));
        self.events.extend(events.iter().cloned());
        Ok(events)
    }

    /// Appends the decided events and unlocks the log.
    fn end(mut self) -> Result<(), RegistryUnavailable> {
        if self.events.is_empty() {
            return Ok(());
        }
        let is_durable = self.events.iter().any(RegistryEvent::must_be_durable);
        let durability = if is_durable { Durability::Sync } else { Durability::Lazy };
        self.log.append(self.wall_ms, &self.events, durability)?;
        if self.log.records() > MAX_RECORDS {
            let is_known =
                |name: &str| self.registry.holders().any(|(holder, _)| holder.as_str() == name);
            LivenessLock::sweep(&self.shared.home, is_known);
            // Best effort: the events are on disk, and a later call replaces the log.
            let _ = self.log.replace(self.wall_ms, &self.registry.checkpoint());
        }
        Ok(())
    }
}
