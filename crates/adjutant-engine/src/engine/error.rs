//! Why a run could not be made or carried to its end.

use std::io;
use std::path::PathBuf;

use adjutant_core::{IllegalEvent, Refusal};
use adjutant_store::{FileError, HomeError, JournalError, LockError, OpenError};
use adjutant_tools::ContextError;
use adjutant_workspace::PathError;

/// Says why a run could not be made or carried to its end.
#[derive(Debug, thiserror::Error)]
pub enum EngineError {
    /// The working tree cannot be opened.
    #[error("cannot open the working tree {}", path.display())]
    Workdir {
        /// Its path.
        path: PathBuf,
        /// Why.
        source: PathError,
    },
    /// A file that a slash command names as context may not be handed over.
    #[error(transparent)]
    Context(#[from] ContextError),
    /// A tool of the embedding program has the name of another.
    #[error("there is a tool named `{0}` already")]
    ToolName(String),
    /// The call was refused as a whole, before anything happened.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// The state directory cannot be used.
    #[error(transparent)]
    Home(#[from] HomeError),
    /// The run is being written by someone else.
    #[error(transparent)]
    Lock(#[from] LockError),
    /// The journal cannot be opened.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// A file of the run cannot be used.
    #[error(transparent)]
    File(#[from] FileError),
    /// The journal cannot be written; the run stopped there and nothing before it is lost.
    #[error("the run stopped: its journal cannot be written")]
    Journal(#[from] JournalError),
    /// The journal's thread ended without a word.
    #[error("the run stopped: the journal's writer is gone")]
    JournalGone,
    /// Nobody would find the run.
    #[error("the run cannot be noted where it is looked for")]
    OnCreated(#[source] io::Error),
    /// A thread cannot be started.
    #[error("cannot start a thread")]
    Thread(#[from] io::Error),
    /// The system gives no randomness for ids.
    #[error("the system gives no randomness")]
    Random(#[from] getrandom::Error),
    /// Nothing of the run can go on.
    #[error("nothing to resume: {0}")]
    NothingToResume(String),
    /// A model that the run needs cannot be had.
    #[error("cannot go on without the model {name}: {problem}")]
    Model {
        /// Its name.
        name: String,
        /// Why not.
        problem: String,
    },
    /// There is no place for agents that write.
    #[error("no workspaces: {0}")]
    Workspaces(String),
    /// A defect of ours.
    #[error("internal error: {0}")]
    Illegal(#[from] IllegalEvent),
}

impl EngineError {
    /// Says whether there was no space left to write to.
    #[must_use]
    pub const fn is_disk_full(&self) -> bool {
        matches!(self, Self::Journal(JournalError::DiskFull(_)))
    }

    /// Says whether somebody else is at work on the run.
    #[must_use]
    pub const fn is_in_use(&self) -> bool {
        matches!(self, Self::Lock(LockError::Held { .. }))
    }
}
