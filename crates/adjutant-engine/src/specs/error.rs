//! The error of reading and writing the specs folder.

use adjutant_formats::task::{StateFileError, TaskError, TaskFilesError};
use adjutant_workspace::PathError;

/// Why the specs folder could not be read or changed.
#[derive(Debug, thiserror::Error)]
pub enum SpecsError {
    /// A directory or file of it is a symbolic link.
    #[error(
        "`{path}` is a symbolic link; tasks are kept only in files of the project itself, and nothing was written"
    )]
    Link {
        /// The link, from the root of the project.
        path: String,
    },
    /// The specs folder's path is not a directory.
    #[error("`{path}` is not a folder")]
    NotFolder {
        /// The path.
        path: String,
    },
    /// An operation on a file or directory failed.
    #[error("cannot {action} {path}")]
    File {
        /// The operation, as a verb.
        action: &'static str,
        /// The file or directory.
        path: String,
        /// The cause.
        #[source]
        source: PathError,
    },
    /// A file is not UTF-8.
    #[error("`{path}` is not UTF-8 text (byte {at}); nothing was written")]
    NotText {
        /// The file.
        path: String,
        /// The offset of the first invalid byte.
        at: usize,
    },
    /// A file exceeds the limit.
    #[error("`{path}` has more than {max_bytes} bytes; nothing was written")]
    TooLarge {
        /// The file.
        path: String,
        /// The limit.
        max_bytes: u64,
    },
    /// A file would exceed the limit after the change.
    #[error("`{path}` would have more than {max_bytes} bytes; nothing was written")]
    Overgrown {
        /// The file.
        path: String,
        /// The limit.
        max_bytes: u64,
    },
    /// `state.json` is damaged.
    #[error("{folder}/{damage}; nothing was written")]
    Damaged {
        /// The folder.
        folder: &'static str,
        /// What is wrong.
        damage: TaskFilesError,
    },
    /// `errors.json` is damaged.
    #[error("`{path}` is {damage}; it was left as it is")]
    NotErrors {
        /// The file.
        path: String,
        /// What is wrong.
        damage: StateFileError,
    },
    /// The record of an interrupted change cannot be parsed.
    #[error("`{path}` is not a valid record of an interrupted change; move it away to continue")]
    BadRecord {
        /// The record.
        path: String,
    },
    /// Another process has the directory locked.
    #[error(
        "another process is writing in `{folder}`, and has been for {seconds} seconds; try again later"
    )]
    Busy {
        /// The folder.
        folder: &'static str,
        /// How long this process waited.
        seconds: u64,
    },
    /// The files changed during each of several attempts.
    #[error("the files in `{folder}` were changed by another program meanwhile; try again")]
    Overtaken {
        /// The folder.
        folder: &'static str,
    },
    /// The change is not valid, for example a status that cannot follow the present one.
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
