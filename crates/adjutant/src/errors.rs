//! Why tasks could not be delegated.

use std::io;
use std::path::PathBuf;

use adjutant_core::Refusal;
use adjutant_core::ids::InvalidLabel;
use adjutant_engine::{ArchiveError, EngineError};
use adjutant_model::OpenModelError;

use crate::advice;

/// Why tasks could not be delegated, or a run could not be recorded to its end.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// No model was set.
    #[error("no model is set; name one with AdjutantBuilder::model")]
    NoModel,
    /// The model cannot be used.
    #[error(transparent)]
    Model(#[from] OpenModelError),
    /// No state directory was set, and there is no default without `HOME`.
    #[error("no state directory: HOME is not set; name one with AdjutantBuilder::state_dir")]
    NoStateDir,
    /// The root or the state directory cannot be made absolute: it is empty, or there is no current directory.
    #[error("cannot make the path `{}` absolute", path.display())]
    UnresolvedPath {
        /// The path as given.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// Agents may write, but the program does not start the sandbox helper.
    #[error(
        "agents that write need adjutant::run_sandbox_helper_if_asked() as the first call of main"
    )]
    NoSandboxHelper,
    /// A label is empty or too long.
    #[error("`{label}` is not a label")]
    Label {
        /// The label as given.
        label: String,
        /// What is wrong with it.
        source: InvalidLabel,
    },
    /// The timeout of a task is zero.
    #[error("the timeout of `{label}` is zero; leave it out to use that of the policy")]
    ZeroTimeout {
        /// The label of the task.
        label: String,
    },
    /// The call was refused as a whole; no task started. [`Error::recommendation`] says what to do: the refusal's own
    /// recommendation is in the words of the command line.
    #[error(transparent)]
    Refused(Refusal),
    /// The run has no recorded beginning, so it cannot be resumed.
    #[error("nothing to resume: {0} never began")]
    NothingToResume(String),
    /// A command for a live run came too late: the run has ended, or was cancelled.
    #[error("the run has ended")]
    RunEnded,
    /// A command for a live run does not fit into its queue; a moment later it does.
    #[error(
        "{} commands already wait for the run; send this one again later",
        crate::LiveRun::MAX_WAITING_COMMANDS
    )]
    TooManyCommands,
    /// Earlier runs cannot be read.
    #[error(transparent)]
    Archive(#[from] ArchiveError),
    /// The run could not be started, or stopped before its end.
    #[error(transparent)]
    Engine(EngineError),
    /// A thread or a runtime cannot be started.
    #[error("cannot start a thread for the run")]
    Thread(#[source] io::Error),
    /// A bug in Adjutant: the thread of the run panicked. What was recorded is kept.
    #[error("the thread of the run ended unexpectedly; this is a bug in Adjutant")]
    ThreadGone,
}

impl From<EngineError> for Error {
    fn from(error: EngineError) -> Self {
        if let EngineError::Refused(refusal) = error {
            return Self::Refused(refusal);
        }
        if let EngineError::Workspaces(problem) = &error {
            return Self::Engine(EngineError::Workspaces(advice::reworded_problem(problem)));
        }
        Self::Engine(error)
    }
}

impl Error {
    /// Returns what to do about a refused call.
    #[must_use]
    pub fn recommendation(&self) -> Option<String> {
        let Self::Refused(refusal) = self else { return None };
        Some(advice::for_program(&refusal.reason()).recommendation)
    }

    pub(crate) fn no_run_id(error: impl Into<EngineError>) -> Self {
        Self::Engine(error.into())
    }
}
