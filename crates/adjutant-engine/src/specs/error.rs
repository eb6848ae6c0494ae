//! Why tasks could not be read or written.

use adjutant_formats::task::{BookError, StateError, TaskError};
use adjutant_workspace::PathError;

/// Says why.
#[derive(Debug, thiserror::Error)]
pub enum SpecsError {
    /// A folder or file is a symbolic link.
    #[error(
        "`{path}` is a symbolic link; tasks are kept only in files of the project itself, and nothing was written"
    )]
    Link {
        /// The link, from the root of the project.
        path: String,
    },
    /// Something else stands where the folder is to be.
    #[error("`{path}` is not a folder")]
    NotFolder {
        /// What stands there.
        path: String,
    },
    /// A file or folder could not be handled.
    #[error("cannot {action} {path}")]
    File {
        /// What was tried.
        action: &'static str,
        /// With what.
        path: String,
        /// Why not.
        #[source]
        source: PathError,
    },
    /// A file is no text.
    #[error("`{path}` is not UTF-8 text (byte {at}); nothing was written")]
    NotText {
        /// The file.
        path: String,
        /// The first byte that is wrong.
        at: usize,
    },
    /// A file is too large to be one of ours.
    #[error("`{path}` has more than {max_bytes} bytes; nothing was written")]
    TooLarge {
        /// The file.
        path: String,
        /// The most that is read.
        max_bytes: u64,
    },
    /// A file would become too large to be read again.
    #[error("`{path}` would have more than {max_bytes} bytes; nothing was written")]
    Overgrown {
        /// The file.
        path: String,
        /// The most that is read.
        max_bytes: u64,
    },
    /// `state.json` is damaged.
    #[error("{folder}/{damage}; nothing was written")]
    Damaged {
        /// The folder.
        folder: &'static str,
        /// What is wrong.
        damage: BookError,
    },
    /// `errors.json` is damaged.
    #[error("`{path}` is {damage}; it was left as it is")]
    NotErrors {
        /// The file.
        path: String,
        /// What is wrong.
        damage: StateError,
    },
    /// The record of an interrupted change is none of ours.
    #[error("`{path}` is not the record of a change; move it away to go on")]
    BadRecord {
        /// The record.
        path: String,
    },
    /// Another process holds the folder.
    #[error(
        "another process is writing in `{folder}`, and has been for {seconds} seconds; try again later"
    )]
    Busy {
        /// The folder.
        folder: &'static str,
        /// How long was waited.
        seconds: u64,
    },
    /// Someone edits the files faster than they can be changed.
    #[error("the files in `{folder}` were changed by someone else meanwhile; try again")]
    Overtaken {
        /// The folder.
        folder: &'static str,
    },
    /// The change is not allowed.
    #[error(transparent)]
    Task(#[from] TaskError),
}

impl SpecsError {
    pub(super) fn file(action: &'static str, path: impl Into<String>, source: PathError) -> Self {
        let path = path.into();
        match source {
            PathError::Loop | PathError::SymbolicLink => Self::Link { path },
            source @ (PathError::Outside
            | PathError::InGitDir
            | PathError::GitDirUnknown
            | PathError::Protected
            | PathError::Exists
            | PathError::ReadOnly
            | PathError::TooLarge { .. }
            | PathError::DiskFull
            | PathError::NotFound
            | PathError::NotDirectory
            | PathError::NotRegular(_)
            | PathError::PermissionDenied
            | PathError::NameTooLong
            | PathError::Invalid
            | PathError::Unsupported
            | PathError::Io(_)) => Self::File { action, path, source },
        }
    }
}
