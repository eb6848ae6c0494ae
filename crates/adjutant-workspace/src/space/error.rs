//! Why there is no workspace, or why it could not be kept or closed.

use std::io;
use std::path::PathBuf;

use crate::overlay::OverlayError;
use crate::{GitError, PathError};

/// Says why something with a workspace did not work.
#[derive(Debug, thiserror::Error)]
pub enum WorkspaceError {
    /// Git, or what was asked of it, failed; among them that the folder is no repository.
    #[error(transparent)]
    Git(#[from] GitError),
    /// An overlay workspace was required and cannot be had.
    #[error("no overlay workspace: {0}")]
    Overlay(#[from] OverlayError),
    /// A path of the workspace could not be used.
    #[error("{}", path.display())]
    Path {
        /// The path.
        path: PathBuf,
        /// Why not.
        #[source]
        source: PathError,
    },
    /// The system failed.
    #[error("{doing}")]
    Io {
        /// What was being done.
        doing: &'static str,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// A living process works in it.
    #[error("the workspace {} is in use", path.display())]
    InUse {
        /// Its folder.
        path: PathBuf,
    },
    /// It holds work that is in no reference.
    #[error("the workspace {} holds work that is not kept; it was left alone", path.display())]
    Unkept {
        /// Its folder.
        path: PathBuf,
    },
    /// It was closed.
    #[error("the workspace {} is closed", path.display())]
    Closed {
        /// Where it was.
        path: PathBuf,
    },
    /// What is recorded of a workspace cannot be followed.
    #[error("the record of a workspace names {0}, which means nothing here")]
    Record(String),
    /// A folder that is to come along is not one in the repository.
    #[error("{} cannot come along: name a folder or file in the repository, relative to it", path.display())]
    Include {
        /// As it was named.
        path: PathBuf,
    },
}

impl WorkspaceError {
    /// Returns a closure that wraps what the system said with what was being done.
    pub(crate) fn io<E: Into<io::Error>>(doing: &'static str) -> impl FnOnce(E) -> Self {
        move |source| Self::Io { doing, source: source.into() }
    }

    /// Returns a closure that wraps why a path could not be used.
    pub(crate) fn path(path: impl Into<PathBuf>) -> impl FnOnce(PathError) -> Self {
        move |source| Self::Path { path: path.into(), source }
    }
}
