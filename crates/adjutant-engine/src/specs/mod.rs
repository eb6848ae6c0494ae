//! The task list of a project: `TODO.md` and `state.json` in its specs folder, changed together.
//!
//! This module finds, locks and replaces the files; [`adjutant_formats::task::TaskFiles`] parses and edits them. Calls
//! block for a few fsyncs, and up to `PATIENCE` while another process has the folder locked.
//!
//! Start at [`Specs::open`]. Invariant: if a process is killed at any moment, the next process that opens the
//! folder has both old files or both new ones.

mod error;
mod errors_file;
mod file_pair;
mod folder;
mod repair;
mod task_finder;

use std::path::Path;
use std::sync::{Mutex, PoisonError};

use adjutant_formats::task::{
    NewTask, TaskChange, TaskChangeResult, TaskFiles, TaskNumber, TaskStatus, TaskUpdate,
};
use adjutant_workspace::{LockMode, Root};

pub use error::SpecsError;
pub use errors_file::MissingFolder;
pub(crate) use folder::{PATIENCE, locked};
pub use task_finder::TaskFinder;

use crate::runner::clock::{WallClock, wall_now};
use file_pair::FilePairOutcome;
use folder::SpecsFolder;

/// How often a change is computed again because the files were edited meanwhile.
const ATTEMPTS: usize = 5;

/// Reads and changes a project's task list, and repairs changes that were interrupted.
#[derive(Debug)]
pub struct Specs {
    root: Root,
    wall: WallClock,
    /// What was repaired since the last [`Specs::take_notices`].
    notices: Mutex<Vec<String>>,
}

impl Specs {
    /// Opens the task list of the project at `root`: `.opencode/specs` if it exists, else `.adjutant/specs`,
    /// which need not exist yet. An interrupted change is finished first.
    ///
    /// # Errors
    ///
    /// If the folder is a symbolic link, or an interrupted change cannot be finished.
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

    /// Uses another wall clock; for tests and for runs.
    #[must_use]
    pub fn with_clock(self, wall: WallClock) -> Self {
        Self { wall, ..self }
    }

    /// Returns the specs folder's path relative to the project's root.
    ///
    /// # Errors
    ///
    /// If that path is not a directory or cannot be opened.
    pub fn folder(&self) -> Result<&'static str, SpecsError> {
        Ok(SpecsFolder::find(&self.root)?.map_or(folder::OURS, |folder| folder.path))
    }

    /// Reads both files.
    ///
    /// # Errors
    ///
    /// If they cannot be read, or `state.json` is damaged.
    pub fn read(&self) -> Result<TaskFiles, SpecsError> {
        let Some(folder) = SpecsFolder::find(&self.root)? else {
            return empty();
        };
        let shared = folder.lock(LockMode::Shared)?;
        if folder.has(repair::PENDING)? {
            // This process has the lock, so the process that left the record is dead.
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
    /// Why it was not added. Nothing has changed then.
    pub fn add(&self, task: NewTask) -> Result<TaskChangeResult, SpecsError> {
        self.change(&TaskChange::Add(task))
    }

    /// Sets the status of a task. `blocked` and `abandoned` need a reason.
    ///
    /// # Errors
    ///
    /// Why the status was not set. Nothing has changed then.
    pub fn set_status(
        &self,
        number: TaskNumber,
        to: TaskStatus,
        reason: Option<String>,
    ) -> Result<TaskChangeResult, SpecsError> {
        self.change(&TaskChange::SetStatus { number, to, reason })
    }

    /// Sets the status of a task and links its artifacts, in one change.
    ///
    /// The call is idempotent, so it can be repeated after an interruption. A status that can only follow
    /// IN PROGRESS is reached through it.
    ///
    /// # Errors
    ///
    /// Why the status or a link is not valid. Nothing has changed then.
    pub fn update(
        &self,
        number: TaskNumber,
        update: TaskUpdate,
    ) -> Result<TaskChangeResult, SpecsError> {
        self.change(&TaskChange::Update { number, update })
    }

    /// Returns messages about what was repaired since the last call.
    pub fn take_notices(&self) -> Vec<String> {
        std::mem::take(&mut self.notices.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn change(&self, change: &TaskChange) -> Result<TaskChangeResult, SpecsError> {
        let Some(folder) = self.folder_for(change)? else {
            // There are no tasks: the empty list returns the error for this change.
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
                FilePairOutcome::Replaced => return Ok(changed),
                FilePairOutcome::Overtaken => {}
            }
        }
        Err(SpecsError::Overtaken { folder: folder.path })
    }

    /// Returns the specs folder. Only adding a valid task creates it.
    fn folder_for(&self, change: &TaskChange) -> Result<Option<SpecsFolder>, SpecsError> {
        if let Some(folder) = SpecsFolder::find(&self.root)? {
            return Ok(Some(folder));
        }
        match change {
            TaskChange::Add(_) => {
                empty()?.change(change, 0, folder::OURS)?;
                SpecsFolder::create(&self.root).map(Some)
            }
            TaskChange::SetStatus { .. } | TaskChange::Link { .. } | TaskChange::Update { .. } => {
                Ok(None)
            }
        }
    }

    /// Finishes a change that another process was interrupted in. The folder must be locked.
    fn finish_interrupted(&self, folder: &SpecsFolder) -> Result<(), SpecsError> {
        let said = repair::repair(folder)?;
        self.notices.lock().unwrap_or_else(PoisonError::into_inner).extend(said);
        Ok(())
    }
}

/// Returns an empty task list.
fn empty() -> Result<TaskFiles, SpecsError> {
    let damaged = |damage| SpecsError::Damaged { folder: folder::OURS, damage };
    TaskFiles::take(None, None).map_err(damaged)
}
