//! The error of starting, running and resuming a run.

use std::io;
use std::path::PathBuf;

use adjutant_core::{IllegalEvent, Refusal};
use adjutant_store::{FileError, JournalError, LockError, OpenJournalError, StateDirError};
use adjutant_tools::ContextFileError;
use adjutant_workspace::PathError;

/// Why a run could not be started, or stopped before its end.
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
    /// A context file of a slash command cannot be used.
    #[error(transparent)]
    Context(#[from] ContextFileError),
    /// A tool of the embedding program has the name of another tool.
    #[error("two tools have the name `{0}`")]
    ToolName(String),
    /// The call was refused as a whole, before anything happened.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// The state directory cannot be used.
    #[error(transparent)]
    Home(#[from] StateDirError),
    /// Another process works on the run.
    #[error(transparent)]
    Lock(#[from] LockError),
    /// The journal cannot be opened.
    #[error(transparent)]
    Open(#[from] OpenJournalError),
    /// A file of the run cannot be used.
    #[error(transparent)]
    File(#[from] FileError),
    /// The journal cannot be written. The run stopped; what was recorded before is kept.
    #[error("the run stopped: its journal cannot be written")]
    Journal(#[from] JournalError),
    /// The journal's thread ended without an error.
    #[error(
        "the run stopped: the thread that writes its journal ended unexpectedly; this is a bug in Adjutant"
    )]
    JournalGone,
    /// The callback of [`crate::Engine::on_created`] failed, so the run was not started.
    #[error("cannot report the new run to the process that started it")]
    OnCreated(#[source] io::Error),
    /// A thread cannot be started.
    #[error("cannot start a thread")]
    Thread(#[from] io::Error),
    /// The operating system's random source failed, so no ids can be made.
    #[error("cannot read random bytes from the operating system")]
    Random(#[from] getrandom::Error),
    /// There is nothing to resume in the run.
    #[error("nothing to resume: {0}")]
    NothingToResume(String),
    /// A model that the run needs is not available.
    #[error("cannot resume without the model {name}: {problem}")]
    Model {
        /// Its name.
        name: String,
        /// Why not.
        problem: String,
    },
    /// Agents that write cannot get workspaces.
    #[error("cannot create workspaces: {0}")]
    Workspaces(String),
    /// Commands do not see a tool that the run needs.
    #[error("the run needs the tool {0}, which is not among the toolchains of this machine")]
    MissingTool(String),
    /// The runtime that decides the run cannot be reached or refused it. The run may go on there.
    #[error("{0}")]
    Remote(String),
    /// A bug in Adjutant: the core does not accept its own event.
    #[error("internal error: {0}")]
    Illegal(#[from] IllegalEvent),
}

impl EngineError {
    /// Returns whether the disk is full.
    #[must_use]
    pub const fn is_disk_full(&self) -> bool {
        matches!(self, Self::Journal(JournalError::DiskFull(_)))
    }

    /// Returns whether another process works on the run.
    #[must_use]
    pub const fn is_in_use(&self) -> bool {
        matches!(self, Self::Lock(LockError::Held { .. }))
    }
}
