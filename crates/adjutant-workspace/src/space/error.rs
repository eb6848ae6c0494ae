//! Errors of making, keeping and closing workspaces.

use std::io;
use std::path::PathBuf;

use crate::overlay::OverlayError;
use crate::{GitError, PathError};

/// Says why an operation on a workspace failed.
#[derive(Debug, thiserror::Error)]
pub enum WorkspaceError {
    /// A git operation failed, for example because the directory is in no repository.
    #[error(transparent)]
    Git(#[from] GitError),
    /// An overlay workspace was required and cannot be mounted.
    #[error("no overlay workspace: {0}")]
    Overlay(#[from] OverlayError),
    /// A path of the workspace could not be used.
    #[error("{}", path.display())]
    Path {
        /// The path.
        path: PathBuf,
        /// Why it could not be used.
        #[source]
        source: PathError,
    },
    /// A system call failed.
    #[error("{doing}")]
    Io {
        /// The operation that failed.
        doing: &'static str,
        /// The system's error.
        #[source]
        source: io::Error,
    },
    /// A running process uses the workspace.
    #[error("the workspace {} is in use", path.display())]
    InUse {
        /// The workspace's directory.
        path: PathBuf,
    },
    /// The workspace holds work that is not kept in its reference.
    #[error("the workspace {} has work that is not kept; it was not removed", path.display())]
    Unkept {
        /// The workspace's directory.
        path: PathBuf,
    },
    /// The workspace was closed.
    #[error("the workspace {} is closed", path.display())]
    Closed {
        /// The workspace's former path.
        path: PathBuf,
    },
    /// The record of a workspace is invalid, or names a layer that is gone.
    #[error("invalid record of a workspace: {0}")]
    Record(String),
    /// A path to include is not a directory or file in the repository.
    #[error("cannot include {}: give a directory or file in the repository, relative to its root", path.display())]
    Include {
        /// The path as given.
        path: PathBuf,
    },
    /// A state that other machines would get contains credentials.
    #[error("{} in git: credentials are not given to other machines", named(paths))]
    Credentials {
        /// Some of the files, relative to the top of the repository.
        paths: Vec<PathBuf>,
    },
}

fn named(paths: &[PathBuf]) -> String {
    let names: Vec<String> = paths.iter().map(|path| path.display().to_string()).collect();
    format!("{} {}", names.join(", "), if names.len() == 1 { "is" } else { "are" })
}

impl WorkspaceError {
    /// Returns a closure that adds the failed operation to a system error.
    pub(crate) fn io<E: Into<io::Error>>(doing: &'static str) -> impl FnOnce(E) -> Self {
        move |source| Self::Io { doing, source: source.into() }
    }

    /// Returns a closure that adds the path to a path error.
    pub(crate) fn path(path: impl Into<PathBuf>) -> impl FnOnce(PathError) -> Self {
        move |source| Self::Path { path: path.into(), source }
    }
}
