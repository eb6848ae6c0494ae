//! Restoring files that a delegation or a run changed in place.
//!
//! A file is restored only if its hash is the one the run left. Each step is recorded in the run's journal before
//! it is done, so an interrupted undo can be repeated.

use std::ffi::OsStr;
use std::path::PathBuf;

use adjutant_core::undo::{RecordedChanges, UndoAction, WorkLocation};
use adjutant_core::{ContentChange, Event, SessionId, content_hash};
use adjutant_tools::ToolCaps;
use adjutant_workspace::{FileImage, FileTarget, MissingParents, PathError, RelPath, Root};

use crate::archive::{ArchiveError, Expiry, RunFiles, RunLiveness};

/// What undoing the changes of a run or delegation came to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UndoReport {
    /// The files that were changed in the working tree.
    pub files: Vec<FileUndo>,
    /// Delegations whose work is in a workspace or a result, which was not touched.
    pub elsewhere: Vec<(SessionId, WorkLocation)>,
}

/// What undoing the changes of one file came to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileUndo {
    /// The path relative to the root.
    pub path: String,
    /// The outcome.
    pub fate: UndoOutcome,
}

/// What happened to a file, or would happen in a dry run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum UndoOutcome {
    /// Its old content was restored.
    PutBack,
    /// The run had created it; it was removed.
    Removed,
    /// It already has its old content.
    Unchanged,
    /// It was changed since the run; it was not restored.
    Differs,
    /// It was not restored, for this reason.
    Failed(String),
}

/// Why nothing could be restored.
#[derive(Debug, thiserror::Error)]
pub enum UndoError {
    /// The run cannot be read or written.
    #[error(transparent)]
    Archive(#[from] ArchiveError),
    /// The journal has no `RunStarted`.
    #[error("the run never began, so it changed nothing")]
    NeverBegan,
    /// The working tree cannot be opened.
    #[error("cannot open the working tree {}", path.display())]
    Workdir {
        /// Its path.
        path: PathBuf,
        /// Why.
        source: PathError,
    },
}

impl RunFiles {
    /// Restores the files that the run, or a delegation with its descendants, changed in the working tree. With
    /// `dry_run` only reports what would be done. Work in workspaces is not touched.
    ///
    /// # Errors
    ///
    /// If the run is live, expired or unreadable, or the tree cannot be opened. Errors of single files are in the
    /// report.
    pub fn undo(&self, session: Option<SessionId>, dry_run: bool) -> Result<UndoReport, UndoError> {
        if matches!(self.liveness()?, RunLiveness::Live { .. }) {
            return Err(ArchiveError::Live(self.id()).into());
        }
        if self.expiry() == Expiry::Expired {
            return Err(ArchiveError::Expired(self.id()).into());
        }
        let (mut changes, mut workdir) = (RecordedChanges::default(), None);
        for record in self.records()? {
            let event = record?.event;
            changes.fold(&event);
            if let Event::RunStarted { workdir: path, .. } = event {
                workdir = Some(PathBuf::from(path));
            }
        }
        let path = workdir.ok_or(UndoError::NeverBegan)?;
        let mut root = Root::open(&path).map_err(|source| UndoError::Workdir { path, source })?;
        root.guard_git_dirs();
        let temp = format!(".adjutant-undo-{}.tmp", self.id());
        let mut files = Vec::new();
        for path in changes.paths(session) {
            let fate = match self.undo_one(&root, &changes, session, path, &temp, dry_run) {
                Ok(fate) => fate,
                Err(UndoFailure::Archive(error)) => return Err(error.into()),
                Err(UndoFailure::File(why)) => UndoOutcome::Failed(why),
            };
            files.push(FileUndo { path: path.to_owned(), fate });
        }
        let elsewhere =
            changes.work_outside_tree(session).map(|(of, it)| (of, it.clone())).collect();
        Ok(UndoReport { files, elsewhere })
    }

    fn undo_one(
        &self,
        root: &Root,
        changes: &RecordedChanges,
        session: Option<SessionId>,
        path: &str,
        temp: &str,
        dry_run: bool,
    ) -> Result<UndoOutcome, UndoFailure> {
        let relative = root.relative(path)?;
        let place = root.file_target(&RelPath::default(), &relative, MissingParents::Leave)?;
        let now = place.read(ToolCaps::default().write_bytes)?;
        let hash = now.as_ref().map(|image| content_hash(&image.bytes));
        let change = match changes.remedy(path, session, hash.as_deref()) {
            UndoAction::AlreadyUndone => return Ok(UndoOutcome::Unchanged),
            UndoAction::ChangedSince => return Ok(UndoOutcome::Differs),
            UndoAction::Restore(change) => change,
        };
        let before = self.old_content(&change)?;
        let fate = if before.is_some() { UndoOutcome::PutBack } else { UndoOutcome::Removed };
        if dry_run {
            return Ok(fate);
        }
        self.append(&Event::Undone { change })?;
        // The parent directory may have been removed together with the file.
        let place = root.file_target(&RelPath::default(), &relative, MissingParents::Create)?;
        put(&place, before.as_deref(), now.as_ref(), temp)?;
        Ok(fate)
    }

    /// Returns the old content, checked by its hash; `None` if the file did not exist.
    fn old_content(&self, change: &ContentChange) -> Result<Option<Vec<u8>>, UndoFailure> {
        let Some(hash) = &change.after else { return Ok(None) };
        let bytes = self.kept_before(hash).map_err(|error| {
            UndoFailure::File(format!("its old content was not saved: {error}"))
        })?;
        if content_hash(&bytes) == *hash {
            Ok(Some(bytes))
        } else {
            Err(UndoFailure::File("its saved old content is damaged".to_owned()))
        }
    }
}

fn put(
    place: &FileTarget,
    bytes: Option<&[u8]>,
    now: Option<&FileImage>,
    temp: &str,
) -> Result<(), PathError> {
    match bytes {
        Some(bytes) => place.replace(bytes, now, OsStr::new(temp)),
        None => place.remove(),
    }
}

/// An error that stops the undo of one file, or of all.
enum UndoFailure {
    Archive(ArchiveError),
    File(String),
}

impl From<ArchiveError> for UndoFailure {
    fn from(error: ArchiveError) -> Self {
        Self::Archive(error)
    }
}

impl From<PathError> for UndoFailure {
    fn from(error: PathError) -> Self {
        Self::File(error.to_string())
    }
}
