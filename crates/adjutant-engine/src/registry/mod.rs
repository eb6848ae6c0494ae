//! The registry on disk: what outlives a run, decided by the core and kept in `registry.jsonl`.
//!
//! [`RegistryHandle::submit`] locks the file, folds it, frees what dead processes held, asks
//! [`Registry::decide`], appends and unlocks. [`RegistryHandle::look`] only reads. Nothing is opened or written
//! before the first of these calls.
//!
//! A process that holds something has a lock file of its own, which the kernel unlocks when the process ends. The
//! lock is taken by [`RegistryHandle::holder`] and kept until the last clone of the handle is dropped.

mod consents;
mod import;
mod questions;
mod story_claim;
mod story_runs;

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use adjutant_core::registry::HolderId;
use adjutant_core::{Registry, RegistryCommand, RegistryEvent, RegistryRefusal};
use adjutant_store::{
    Durability, FileError, HolderLock, LockedLog, Record, SharedLog, SharedLogError,
};

use crate::runner::clock::{WallClock, wall_now};

pub use questions::question_id;
pub use story_claim::story_key;
pub use story_runs::StoryOutcome;

/// The name of the log.
const NAME: &str = "registry";

/// The records after which the log is replaced by a checkpoint. Together with what the core remembers this bounds
/// what opening it costs.
const MAX_RECORDS: u64 = 256;

/// Says why the registry cannot be read or written.
#[derive(Debug, thiserror::Error)]
pub enum RegistryUnavailable {
    /// The log cannot be used; a damaged line is named.
    #[error(transparent)]
    Log(#[from] SharedLogError),
    /// A lock file cannot be used.
    #[error(transparent)]
    File(#[from] FileError),
    /// No name can be drawn for the lock file.
    #[error("cannot draw a random name")]
    Random(#[from] getrandom::Error),
}

/// Says why a command came to nothing.
#[derive(Debug, thiserror::Error)]
pub enum RegistryError {
    /// The registry says no.
    #[error(transparent)]
    Refused(#[from] RegistryRefusal),
    /// Nobody knows what it would say.
    #[error("the registry of runs cannot be used")]
    Unavailable(#[from] RegistryUnavailable),
}

/// The registry of one state directory, for one process.
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
    holder: Mutex<Option<(HolderId, HolderLock)>>,
}

impl RegistryHandle {
    /// Returns the registry of a state directory; nothing is opened yet.
    #[must_use]
    pub fn at(home: &Path) -> Self {
        Self::with_clock(home, wall_now)
    }

    /// Returns the registry of a state directory under another clock; for tests.
    #[must_use]
    pub fn with_clock(home: &Path, wall: WallClock) -> Self {
        let log = SharedLog::new(home, NAME);
        let (home, holder) = (home.to_owned(), Mutex::default());
        Self { shared: Arc::new(RegistryFile { home, log, wall, holder }) }
    }

    /// Returns the name under which this process holds things; takes its lock the first time.
    ///
    /// # Errors
    ///
    /// Why there is no lock.
    pub fn holder(&self) -> Result<HolderId, RegistryUnavailable> {
        let mut holder = self.own();
        if let Some((id, _)) = &*holder {
            return Ok(id.clone());
        }
        let mut bytes = [0; 8];
        getrandom::fill(&mut bytes)?;
        let name: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        let lock = HolderLock::take(&self.shared.home, &name)?;
        Ok(holder.insert((HolderId::new(name), lock)).0.clone())
    }

    fn own(&self) -> MutexGuard<'_, Option<(HolderId, HolderLock)>> {
        self.shared.holder.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reads the registry without a lock and without a change. What dead processes held is still in it; ask
    /// [`RegistryHandle::is_alive`] of a holder that matters.
    ///
    /// # Errors
    ///
    /// Why it cannot be read.
    pub fn look(&self) -> Result<Registry, RegistryUnavailable> {
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

    /// Says whether the process of a holder lives.
    ///
    /// # Errors
    ///
    /// Why its lock file cannot be read.
    pub fn is_alive(&self, holder: &HolderId) -> Result<bool, RegistryUnavailable> {
        Ok(HolderLock::is_held(&self.shared.home, holder.as_str())?)
    }

    /// Judges a command and records what follows from it; the events are on disk when this returns.
    ///
    /// Waits while other processes do the same, which takes milliseconds.
    ///
    /// # Errors
    ///
    /// The refusal, or why the registry cannot be used. Nothing has changed then.
    pub fn submit(&self, command: RegistryCommand) -> Result<Vec<RegistryEvent>, RegistryError> {
        let mut turn = LockedRegistry::begin(&self.shared)?;
        if let Some((holder, _)) = &*self.own() {
            turn.join(holder)?;
        }
        let events = match turn.decide(command) {
            Ok(events) => events,
            Err(refusal) => {
                // Dead processes are not found again and again.
                turn.end()?;
                return Err(refusal.into());
            }
        };
        turn.end()?;
        Ok(events)
    }

    /// Returns a guard that submits `command` when it is dropped, such as one that gives a place or a claim back.
    ///
    /// A process that dies first gives it back by its lock.
    #[must_use]
    pub fn on_drop(&self, command: RegistryCommand) -> ReleaseOnDrop {
        ReleaseOnDrop { registry: self.clone(), command: Some(command) }
    }
}

/// Something that this process holds in the registry, until this is dropped.
///
/// The command is submitted then; errors are ignored, because the end of the process frees it as well.
#[derive(Debug)]
pub struct ReleaseOnDrop {
    registry: RegistryHandle,
    command: Option<RegistryCommand>,
}

impl ReleaseOnDrop {
    /// Submits nothing when it is dropped.
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

/// The fold of the records of a log.
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
    fn apply(&mut self, record: &Record<RegistryEvent>) {
        self.registry.evolve(record.wall_ms, &record.event);
        self.is_empty = false;
    }
}

/// The log while this process has it locked.
struct LockedRegistry<'a> {
    shared: &'a RegistryFile,
    registry: Registry,
    log: LockedLog,
    wall_ms: u64,
    /// What was decided and is not written yet.
    events: Vec<RegistryEvent>,
}

impl<'a> LockedRegistry<'a> {
    /// Locks and folds the log, takes over what an earlier version kept, and frees what dead processes held.
    fn begin(shared: &'a RegistryFile) -> Result<Self, RegistryUnavailable> {
        let mut fold = RegistryFold::default();
        let log = shared.log.lock(|record| fold.apply(&record))?;
        let RegistryFold { registry, is_empty } = fold;
        let mut turn = Self { shared, registry, log, wall_ms: (shared.wall)(), events: Vec::new() };
        if is_empty {
            // Refused only where there is something already, and there is nothing.
            let _ = turn.decide(import::command(&shared.home));
        }
        let holders: Vec<HolderId> = turn.registry.holders().map(|(id, _)| id.clone()).collect();
        for holder in holders {
            if !HolderLock::is_held(&shared.home, holder.as_str())? {
                // Refused only where the holder is unknown, and it was just named.
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

    /// Writes what was decided and unlocks the log.
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
            HolderLock::sweep(&self.shared.home, is_known);
            // What was decided is on disk. A log that cannot be replaced now is replaced another time.
            let _ = self.log.replace(self.wall_ms, &self.registry.checkpoint());
        }
        Ok(())
    }
}
