//! Errors of applying and undoing results.

use std::path::{Path, PathBuf};

use super::UnrestoredFile;
use crate::PathError;
use crate::git::{GitError, MergePreview};
use crate::trees::journal::StepError;

/// Says why a result was not applied or not undone.
#[derive(Debug, thiserror::Error)]
pub enum ApplyError {
    /// It conflicts with the current state of the tree.
    #[error("{} files have conflicts", preview.conflicts.len())]
    Conflicts {
        /// The attempted merge.
        preview: MergePreview,
    },
    /// Files it would change have uncommitted changes that the child did not start from.
    #[error("{} files have uncommitted changes, first {}", paths.len(), first(paths))]
    Dirty {
        /// The files.
        paths: Vec<PathBuf>,
    },
    /// Files it would change are excluded by a sparse checkout.
    #[error("{} files are not checked out here, first {}", paths.len(), first(paths))]
    Sparse {
        /// The files.
        paths: Vec<PathBuf>,
    },
    /// A file could not be replaced; all files were restored.
    #[error("{} could not be replaced; nothing was changed", path.display())]
    Stuck {
        /// The file.
        path: PathBuf,
        /// The cause.
        #[source]
        source: PathError,
    },
    /// A file could not be replaced, and these files were changed meanwhile; the others were restored.
    #[error("{path} could not be replaced; all other files were restored except {left}, which changed meanwhile", path = path.display(), left = list_unrestored(left))]
    ChangedMeanwhile {
        /// The file that could not be replaced.
        path: PathBuf,
        /// The changed files, which stay as they are.
        left: Vec<UnrestoredFile>,
        /// The cause.
        #[source]
        source: PathError,
    },
    /// A file could not be replaced, and the files replaced before it could not be restored.
    #[error(
        "{}: some of the files are replaced; once the cause is fixed, `adjutant merge` restores them from \
         {}", path.display(), journal.display()
    )]
    Unfinished {
        /// The file that could not be restored.
        path: PathBuf,
        /// The journal's directory, which has everything needed to restore the files.
        journal: PathBuf,
        /// The cause.
        #[source]
        source: PathError,
    },
    /// Files were changed after the result was applied, so it was not undone.
    #[error("{} files were changed since, first {}", paths.len(), first(paths))]
    ChangedSince {
        /// The files.
        paths: Vec<PathBuf>,
    },
    /// There is no application of this name to undo.
    #[error("nothing was applied under the name {0}")]
    Unknown(String),
    /// Git failed.
    #[error(transparent)]
    Git(#[from] GitError),
}

/// Returns the error for a journal that could not be undone.
pub(super) fn unfinished_undo(journal: &Path, source: PathError) -> ApplyError {
    ApplyError::Unfinished { path: journal.to_owned(), journal: journal.to_owned(), source }
}

pub(super) fn step_error(stuck: StepError) -> ApplyError {
    ApplyError::Stuck { path: stuck.path, source: stuck.source }
}

/// Lists the files that were not restored, with the saved earlier content of the first.
fn list_unrestored(left: &[UnrestoredFile]) -> String {
    let Some(first) = left.first() else { return "nothing".to_owned() };
    let before = first.before.as_ref().map_or_else(String::new, |before| {
        format!(" (its earlier content is in {})", before.display())
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
