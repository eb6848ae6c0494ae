//! Why a result was not applied, or not taken back.

use std::path::{Path, PathBuf};

use super::UnrestoredFile;
use crate::PathError;
use crate::git::{GitError, Preview};
use crate::trees::journal::StepError;

/// Says why a result was not applied, or not taken back.
#[derive(Debug, thiserror::Error)]
pub enum ApplyError {
    /// It does not merge with the tree as it is.
    #[error("{} files are in conflict", preview.conflicts.len())]
    Conflicts {
        /// The merge that was tried.
        preview: Preview,
    },
    /// Files it would change hold work that is committed nowhere and that the child never saw.
    #[error("{} files have uncommitted changes, first {}", paths.len(), first(paths))]
    Dirty {
        /// The files.
        paths: Vec<PathBuf>,
    },
    /// Files it would change are not there, because the checkout is a sparse one.
    #[error("{} files are not checked out here, first {}", paths.len(), first(paths))]
    Sparse {
        /// The files.
        paths: Vec<PathBuf>,
    },
    /// A step failed; everything is as it was.
    #[error("{} could not be replaced; nothing was changed", path.display())]
    Stuck {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: PathError,
    },
    /// A step failed, and meanwhile somebody changed these files; the others are as they were.
    #[error("{path} could not be replaced, and {left} changed meanwhile", path = path.display(), left = list_unrestored(left))]
    ChangedMeanwhile {
        /// The file that could not be replaced.
        path: PathBuf,
        /// The files that were changed and are left as they are.
        left: Vec<UnrestoredFile>,
        /// Why.
        #[source]
        source: PathError,
    },
    /// A step failed, and what was replaced before it could not be put back either.
    #[error(
        "{}: part of the files are replaced; `adjutant merge` puts them back once the cause is gone, by what is \
         kept in {}", path.display(), journal.display()
    )]
    Unfinished {
        /// The file that could not be put back.
        path: PathBuf,
        /// The folder with everything that is needed to put the files back.
        journal: PathBuf,
        /// Why.
        #[source]
        source: PathError,
    },
    /// Files were changed after the result was applied, so it is not taken back.
    #[error("{} files changed since, first {}", paths.len(), first(paths))]
    ChangedSince {
        /// The files.
        paths: Vec<PathBuf>,
    },
    /// There is no application of this name to take back.
    #[error("nothing was applied under the name {0}")]
    Unknown(String),
    /// Git failed.
    #[error(transparent)]
    Git(#[from] GitError),
}

/// Says that a journal could not be followed to its end.
pub(super) fn unfinished(journal: &Path, source: PathError) -> ApplyError {
    ApplyError::Unfinished { path: journal.to_owned(), journal: journal.to_owned(), source }
}

pub(super) fn step_error(stuck: StepError) -> ApplyError {
    ApplyError::Stuck { path: stuck.path, source: stuck.source }
}

/// Says which files were left, and where the earlier content of the first one lies.
fn list_unrestored(left: &[UnrestoredFile]) -> String {
    let Some(first) = left.first() else { return "nothing".to_owned() };
    let before = first.before.as_ref().map_or_else(String::new, |before| {
        format!(" (what it was before lies in {})", before.display())
    });
    let more = match left.len() {
        1 => String::new(),
        count => format!(" and {} more", count - 1),
    };
    format!("{}{before}{more}", first.path.display())
}

fn first(paths: &[PathBuf]) -> String {
    paths.first().map_or_else(String::new, |path| path.display().to_string())
}
