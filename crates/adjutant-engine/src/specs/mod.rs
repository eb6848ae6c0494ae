//! The specs folder of a project: `TODO.md` and `state.json`, changed together or not at all.
//!
//! Owns where the files lie and how a change reaches the disk. What a change means is decided by
//! [`adjutant_formats::task::Book`]. Calls block for the length of a few syncs, and for a while when
//! another process is writing.
//!
//! Start at [`Specs::open`]. Invariant: whoever is killed at any moment, the next one to open the
//! folder finds both files as they were or both as they were to be.

mod error;
mod errors_file;
mod file_pair;
mod folder;
mod repair;
mod task_finder;

use std::path::Path;
use std::sync::{Mutex, PoisonError};

use adjutant_formats::task::{Book, Change, Changed, NewTask, Status, TaskNumber, Update};
use adjutant_workspace::{LockMode, Root};

pub use error::SpecsError;
pub use errors_file::MissingFolder;
pub(crate) use folder::{PATIENCE, locked};
pub use task_finder::TaskFinder;

use crate::runner::clock::{WallClock, wall_now};
use file_pair::WriteOutcome;
use folder::SpecsFolder;

/// How often a change is worked out anew because someone edited the files meanwhile.
const ATTEMPTS: usize = 5;

/// The tasks of a project.
#[derive(Debug)]
pub struct Specs {
    root: Root,
    wall: WallClock,
    /// What had to be mended; heard once by [`Specs::take_notices`].
    notices: Mutex<Vec<String>>,
}

impl Specs {
    /// Opens the tasks of the project at `root`: `.opencode/specs` where there is one, else
    /// `.adjutant/specs`, which need not exist yet. An interrupted change is finished first.
    ///
    /// # Errors
    ///
    /// When the folder is a link, or an interrupted change cannot be finished.
    pub fn open(root: &Path) -> Result<Self, SpecsError> {
        let root = Root::open(root)
            .map_err(|source| SpecsError::file("open", root.display().to_string(), source))?;
        let specs = Self { root, wall: wall_now, notices: Mutex::default() };
        if let Some(folder) = SpecsFolder::find(&specs.root)?
            && folder.has(repair::PENDING)?
        {
            let _alone = folder.lock(LockMode::Exclusive)?;
            specs.finish_interrupted(&folder)?;
        }
        Ok(specs)
    }

    /// Takes the time from `wall` instead of the clock of the machine.
    #[must_use]
    pub fn with_clock(self, wall: WallClock) -> Self {
        Self { wall, ..self }
    }

    /// Returns the folder's path from the root of the project.
    ///
    /// # Errors
    ///
    /// When it cannot be told, because something else stands in its place.
    pub fn folder(&self) -> Result<&'static str, SpecsError> {
        Ok(SpecsFolder::find(&self.root)?.map_or(folder::OURS, |folder| folder.path))
    }

    /// Reads both files.
    ///
    /// # Errors
    ///
    /// When they cannot be read, or `state.json` is damaged.
    pub fn read(&self) -> Result<Book, SpecsError> {
        let Some(folder) = SpecsFolder::find(&self.root)? else {
            return empty();
        };
        let shared = folder.lock(LockMode::Shared)?;
        if folder.has(repair::PENDING)? {
            // Nobody is writing, for the lock is ours: whoever was is gone.
            drop(shared);
            let _alone = folder.lock(LockMode::Exclusive)?;
            self.finish_interrupted(&folder)?;
            return folder.read();
        }
        folder.read()
    }

    /// Adds a task; the first one creates the folder.
    ///
    /// # Errors
    ///
    /// Why it was not added; then nothing has changed.
    pub fn add(&self, task: NewTask) -> Result<Changed, SpecsError> {
        self.change(&Change::Add(task))
    }

    /// Moves a task on; `blocked` and `abandoned` need a reason.
    ///
    /// # Errors
    ///
    /// Why it stays where it is; then nothing has changed.
    pub fn set_status(
        &self,
        number: TaskNumber,
        to: Status,
        reason: Option<String>,
    ) -> Result<Changed, SpecsError> {
        self.change(&Change::SetStatus { number, to, reason })
    }

    /// Moves a task on and links what was made for it, in one change.
    ///
    /// What holds already changes nothing, so it may be said again after an interruption. A status
    /// that only IN PROGRESS leads to is reached through it.
    ///
    /// # Errors
    ///
    /// Why the status or one of the links cannot be; then nothing has changed.
    pub fn update(&self, number: TaskNumber, update: Update) -> Result<Changed, SpecsError> {
        self.change(&Change::Update { number, update })
    }

    /// Returns what was mended since this was last asked, for people.
    pub fn take_notices(&self) -> Vec<String> {
        std::mem::take(&mut self.notices.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn change(&self, change: &Change) -> Result<Changed, SpecsError> {
        let Some(folder) = self.folder_for(change)? else {
            // There are no tasks, so this says why the change cannot be.
            return Ok(empty()?.change(change, (self.wall)(), folder::OURS)?);
        };
        let _alone = folder.lock(LockMode::Exclusive)?;
        self.finish_interrupted(&folder)?;
        for _ in 0..ATTEMPTS {
            let old = folder.read()?;
            let changed = old.change(change, (self.wall)(), folder.path)?;
            if !changed.is_different {
                return Ok(changed);
            }
            let new = [Some(changed.todo.as_str()), Some(changed.state.as_str())];
            match file_pair::write(&folder, old.texts(), new)? {
                WriteOutcome::Done => return Ok(changed),
                WriteOutcome::Overtaken => {}
            }
        }
        Err(SpecsError::Overtaken { folder: folder.path })
    }

    /// Finds the folder; only a new task that can be added creates it.
    fn folder_for(&self, change: &Change) -> Result<Option<SpecsFolder>, SpecsError> {
        if let Some(folder) = SpecsFolder::find(&self.root)? {
            return Ok(Some(folder));
        }
        match change {
            Change::Add(_) => {
                empty()?.change(change, 0, folder::OURS)?;
                SpecsFolder::create(&self.root).map(Some)
            }
            Change::SetStatus { .. } | Change::Link { .. } | Change::Update { .. } => Ok(None),
        }
    }

    /// Finishes what another process began; the folder must be locked.
    fn finish_interrupted(&self, folder: &SpecsFolder) -> Result<(), SpecsError> {
        let said = repair::repair(folder)?;
        self.notices.lock().unwrap_or_else(PoisonError::into_inner).extend(said);
        Ok(())
    }
}

/// Returns the tasks of a project that has none.
fn empty() -> Result<Book, SpecsError> {
    let damaged = |damage| SpecsError::Damaged { folder: folder::OURS, damage };
    Book::take(None, None).map_err(damaged)
}
