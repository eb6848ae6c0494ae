//! Putting files back to what they were before a delegation, or a whole run, changed them.
//!
//! A file is touched only where it is exactly what was left, by its hash. What is done is recorded
//! in the run's journal before it is done; interrupted, it can be asked for again.

use std::ffi::OsStr;
use std::path::PathBuf;

use adjutant_core::undo::{Changes, Elsewhere, Remedy};
use adjutant_core::{Change, Event, SessionId, content_hash};
use adjutant_tools::Caps;
use adjutant_workspace::{FileImage, FileTarget, MissingParents, PathError, RelPath, Root};

use crate::archive::{ArchiveError, Expiry, RunFiles, RunLiveness};

/// What became of the changes of a run or delegation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UndoReport {
    /// The files that were changed where the run worked.
    pub files: Vec<FileUndo>,
    /// Whose work is somewhere else, and was not touched.
    pub elsewhere: Vec<(SessionId, Elsewhere)>,
}

/// What became of one file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileUndo {
    /// The file, relative to the root.
    pub path: String,
    /// What became of it.
    pub fate: UndoOutcome,
}

/// What became of a file, or would become of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum UndoOutcome {
    /// It has the content it had before.
    PutBack,
    /// It was created, and is gone.
    Removed,
    /// It was as it had been.
    Unchanged,
    /// Somebody changed it since; it was left alone.
    Differs,
    /// It was left alone for this reason.
    Failed(String),
}

/// Says why nothing could be put back.
#[derive(Debug, thiserror::Error)]
pub enum UndoError {
    /// The run cannot be read or written.
    #[error(transparent)]
    Archive(#[from] ArchiveError),
    /// The journal does not say where the run worked.
    #[error("the run never began, so it changed nothing")]
    NeverBegan,
    /// Its tree cannot be opened.
    #[error("cannot open the working tree {}", path.display())]
    Workdir {
        /// Its path.
        path: PathBuf,
        /// Why.
        source: PathError,
    },
}

impl RunFiles {
    /// Puts back what the run changed, or what a delegation and all below it changed; only says so
    /// when `dry_run`. What was done in workspaces never reached the tree and is left where it is.
    ///
    /// # Errors
    ///
    /// When the run is live, expired or cannot be read, or its tree cannot be opened. What is wrong
    /// with one file is part of the answer.
    pub fn undo(&self, session: Option<SessionId>, dry_run: bool) -> Result<UndoReport, UndoError> {
        if matches!(self.liveness()?, RunLiveness::Live { .. }) {
            return Err(ArchiveError::Live(self.id()).into());
        }
        if self.expiry() == Expiry::Expired {
            return Err(ArchiveError::Expired(self.id()).into());
        }
        let (mut changes, mut workdir) = (Changes::default(), None);
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
        let elsewhere = changes.elsewhere(session).map(|(of, it)| (of, it.clone())).collect();
        Ok(UndoReport { files, elsewhere })
    }

    fn undo_one(
        &self,
        root: &Root,
        changes: &Changes,
        session: Option<SessionId>,
        path: &str,
        temp: &str,
        dry_run: bool,
    ) -> Result<UndoOutcome, UndoFailure> {
        let relative = root.relative(path)?;
        let place = root.file_target(&RelPath::default(), &relative, MissingParents::Leave)?;
        let now = place.read(Caps::default().write_bytes)?;
        let hash = now.as_ref().map(|image| content_hash(&image.bytes));
        let change = match changes.remedy(path, session, hash.as_deref()) {
            Remedy::Nothing => return Ok(UndoOutcome::Unchanged),
            Remedy::Differs => return Ok(UndoOutcome::Differs),
            Remedy::Change(change) => change,
        };
        let before = self.before(&change)?;
        let fate = if before.is_some() { UndoOutcome::PutBack } else { UndoOutcome::Removed };
        if dry_run {
            return Ok(fate);
        }
        self.append(&Event::Undone { change })?;
        // Where the file was removed by hand, so may be its folder.
        let place = root.file_target(&RelPath::default(), &relative, MissingParents::Create)?;
        put(&place, before.as_deref(), now.as_ref(), temp)?;
        Ok(fate)
    }

    /// Returns the content to put back, checked; nothing where there is to be no file.
    fn before(&self, change: &Change) -> Result<Option<Vec<u8>>, UndoFailure> {
        let Some(hash) = &change.after else { return Ok(None) };
        let bytes = self.kept_before(hash).map_err(|error| {
            UndoFailure::File(format!("what it held before was not kept: {error}"))
        })?;
        if content_hash(&bytes) == *hash {
            Ok(Some(bytes))
        } else {
            Err(UndoFailure::File("what it held before was damaged on disk".to_owned()))
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

/// What stops one file, or everything.
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
