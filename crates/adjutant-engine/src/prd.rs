//! PRD files: reading them, and writing the outcomes of stories into them while a person may edit them.
//!
//! [`Prd`] parses and edits the text; this module locks, compares and replaces the file. Calls block for an
//! fsync, and up to `PATIENCE` while another process has the directory locked.
//!
//! Start at [`PrdFile::open`]. Invariant: if the process is killed at any moment, the file has its old or its
//! new content. A symbolic link is refused, because replacing the file would replace the link.

use std::ffi::{OsStr, OsString};
use std::fs::OpenOptions;
use std::path::{Path, PathBuf};

use adjutant_formats::prd::{Prd, PrdError as PrdFault, PrdOutcome};
use adjutant_workspace::{
    Dir, DirLock, FileMode, FileTarget, LockMode, Overwrite, PathError, RelPath, Root,
};

use crate::specs::{PATIENCE, locked};

/// The largest PRD that is read; a thousand stories with long descriptions have about one MiB.
const MAX_BYTES: u64 = 16 * 1024 * 1024;

/// How often an edit is computed again because the file was changed meanwhile.
const ATTEMPTS: usize = 5;

/// Why a PRD could not be opened or changed.
#[derive(Debug, thiserror::Error)]
pub enum PrdFileError {
    /// The file is a symbolic link.
    #[error("`{path}` is a symbolic link; name the file it leads to")]
    Link {
        /// The file.
        path: String,
    },
    /// An operation on the file or its directory failed.
    #[error("cannot {action} {path}")]
    File {
        /// The operation, as a verb.
        action: &'static str,
        /// The file.
        path: String,
        /// The cause.
        #[source]
        source: PathError,
    },
    /// The file may not be written.
    #[error(
        "`{path}` is read-only; the outcomes of stories are written to it, so make it writable first"
    )]
    ReadOnly {
        /// The file.
        path: String,
    },
    /// No file can be created in the PRD's directory.
    #[error(
        "the folder of `{path}` cannot be written to; the outcome of a story is written beside the file first"
    )]
    FolderReadOnly {
        /// The file.
        path: String,
        /// The cause.
        #[source]
        source: PathError,
    },
    /// The file exceeds the limit.
    #[error("`{path}` has more than {max_bytes} bytes")]
    TooLarge {
        /// The file.
        path: String,
        /// The limit.
        max_bytes: u64,
    },
    /// The file would exceed the limit with the outcome in it.
    #[error("`{path}` would have more than {max_bytes} bytes; nothing was written")]
    Overgrown {
        /// The file.
        path: String,
        /// The limit.
        max_bytes: u64,
    },
    /// The file is not UTF-8.
    #[error("`{path}` is not UTF-8 text (byte {at})")]
    NotText {
        /// The file.
        path: String,
        /// The offset of the first invalid byte.
        at: usize,
    },
    /// The file is not a valid PRD.
    #[error("`{path}`: {fault}")]
    Invalid {
        /// The file.
        path: String,
        /// What is wrong with it.
        fault: PrdFault,
    },
    /// The story's entry, or the whole file, was changed so that the outcome cannot be written.
    #[error(
        "`{path}`: {what} since story `{story}` began; nothing was written, and its outcome is kept in run {run}"
    )]
    Changed {
        /// The file.
        path: String,
        /// The story.
        story: String,
        /// What changed, such as `its entry was changed`.
        what: String,
        /// The run whose journal has the outcome.
        run: String,
    },
    /// The outcome cannot be written into the file.
    #[error("`{path}`: {fault}; its outcome is kept in run {run}")]
    Unwritable {
        /// The file.
        path: String,
        /// The cause.
        fault: PrdFault,
        /// The run whose journal has the outcome.
        run: String,
    },
    /// Another process has the directory locked.
    #[error(
        "another process is writing in the folder of `{path}`, and has been for {seconds} seconds; try again later"
    )]
    Busy {
        /// The file.
        path: String,
        /// How long this process waited.
        seconds: u64,
    },
    /// The file changed during each of several attempts.
    #[error("`{path}` was changed by another program during every attempt; nothing was written")]
    Overtaken {
        /// The file.
        path: String,
    },
}

/// What happened to a PRD file when a story's outcome was saved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SaveOutcome {
    /// The outcome was written into the version that was read before.
    Written,
    /// The outcome was written into a version that another process or a person wrote meanwhile.
    Merged,
    /// The file already had the outcome.
    Unchanged,
}

/// A PRD that was read from disk, with the open directory in which it is replaced.
#[derive(Debug)]
pub struct PrdFile {
    path: PathBuf,
    dir: Dir,
    name: OsString,
    /// The name of the temporary file that replaces the PRD.
    temp: OsString,
    prd: Prd,
}

/// The content and mode of the file.
struct PrdContent {
    text: String,
    mode: FileMode,
}

impl PrdFile {
    /// Opens the PRD at `path` and checks that outcomes can be written to it later.
    ///
    /// # Errors
    ///
    /// If it is not a valid PRD, or cannot be replaced. Nothing has changed then.
    pub fn open(path: impl Into<PathBuf>) -> Result<Self, PrdFileError> {
        let path = path.into();
        let shown = path.display().to_string();
        let (dir, name, place) = open_parent(&path, &shown)?;
        let temp = temp_name(&name);
        let path = with_canonical_dir(&path);
        let lock = lock(&dir, &shown)?;
        let PrdContent { text, mode } = read_existing(&place, &shown)?;
        let prd = parse(&text, &shown)?;
        check_replaceable(&path, &place, &text, mode, &temp)?;
        drop(lock);
        Ok(Self { path, dir, name, temp, prd })
    }

    /// Reads the PRD at `path` without a lock. The file may be read-only.
    ///
    /// # Errors
    ///
    /// If it cannot be read or is not a valid PRD.
    pub fn read_unlocked(path: impl AsRef<Path>) -> Result<Prd, PrdFileError> {
        let shown = path.as_ref().display().to_string();
        let (_, _, place) = open_parent(path.as_ref(), &shown)?;
        parse(&read_existing(&place, &shown)?.text, &shown)
    }

    /// Returns the PRD as it was last read or written.
    #[must_use]
    pub const fn prd(&self) -> &Prd {
        &self.prd
    }

    /// Returns its path with the directory resolved.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Reads the file again, because another process may have written an outcome.
    ///
    /// # Errors
    ///
    /// If it cannot be read or is not a valid PRD any more. The version in memory stays.
    pub fn reread(&mut self) -> Result<(), PrdFileError> {
        let shown = self.path.display().to_string();
        let failed = |source: PathError| PrdFileError::file("open", &shown, source);
        let place = self.dir.file_target(&self.name).map_err(failed)?;
        let read = read_existing(&place, &shown)?;
        if read.text != self.prd.to_text() {
            self.prd = parse(&read.text, &shown)?;
        }
        Ok(())
    }

    /// Writes the outcome of a story. Changes that others made elsewhere in the file are kept.
    ///
    /// # Errors
    ///
    /// [`PrdFileError::Changed`] if the story's entry differs from the one that was read, or the file is not a valid
    /// PRD any more. On any error the file is unchanged.
    pub fn save(
        &mut self,
        story_id: &str,
        outcome: &PrdOutcome,
    ) -> Result<SaveOutcome, PrdFileError> {
        let shown = self.path.display().to_string();
        let place = self.dir.file_target(&self.name);
        let place = place.map_err(|source| PrdFileError::file("open", &shown, source))?;
        let _alone = lock(&self.dir, &shown)?;
        let changed = |what: String| PrdFileError::Changed {
            path: shown.clone(),
            story: story_id.to_owned(),
            what,
            run: outcome.run.clone(),
        };
        for _ in 0..ATTEMPTS {
            let before = read(&place, &shown)
                .map_err(|error| changed(format!("it cannot be read any more ({error})")))?
                .ok_or_else(|| changed("it was removed".to_owned()))?;
            let known = self.prd.to_text();
            let current = if before.text == known {
                None
            } else {
                Some(self.read_other_version(&before, story_id, changed)?)
            };
            let base = current.as_ref().unwrap_or(&self.prd);
            let text = base.edit(story_id, outcome).map_err(|fault| PrdFileError::Unwritable {
                path: shown.clone(),
                fault,
                run: outcome.run.clone(),
            })?;
            let saved = match (text == before.text, &current) {
                (true, _) => SaveOutcome::Unchanged,
                (false, None) => SaveOutcome::Written,
                (false, Some(_)) => SaveOutcome::Merged,
            };
            let prd = parse(&text, &shown)?;
            if saved == SaveOutcome::Unchanged || self.replace(&place, &before, &text, &shown)? {
                self.prd = prd;
                return Ok(saved);
            }
        }
        Err(PrdFileError::Overtaken { path: shown })
    }

    /// Parses a version that was written meanwhile. Fails if the story's entry has changed.
    fn read_other_version(
        &self,
        read: &PrdContent,
        story_id: &str,
        changed: impl Fn(String) -> PrdFileError,
    ) -> Result<Prd, PrdFileError> {
        let theirs = Prd::read(&read.text)
            .map_err(|fault| changed(format!("it is no longer a valid PRD ({fault})")))?;
        match (self.prd.entry(story_id), theirs.entry(story_id)) {
            (Some(ours), Some(theirs)) if ours != theirs => {
                Err(changed("its entry was changed".to_owned()))
            }
            (Some(_), None) => Err(changed("its entry was removed".to_owned())),
            (_, _) => Ok(theirs),
        }
    }

    /// Replaces the file if its content is still `before`. Returns whether it was.
    fn replace(
        &self,
        place: &FileTarget,
        before: &PrdContent,
        text: &str,
        shown: &str,
    ) -> Result<bool, PrdFileError> {
        if text.len() as u64 > MAX_BYTES {
            return Err(PrdFileError::Overgrown { path: shown.to_owned(), max_bytes: MAX_BYTES });
        }
        let failed = |source: PathError| PrdFileError::file("write", shown, source);
        place.prepare(text.as_bytes(), Some(before.mode), &self.temp).map_err(failed)?;
        let settled = match place.has_content(Some(before.text.as_bytes())) {
            Ok(true) => place.move_into_place(&self.temp, Overwrite::Allowed).map(|()| true),
            other => other,
        };
        match settled {
            Ok(true) => place.sync().map_err(failed).map(|()| true),
            Ok(false) => {
                place.remove_temp(&self.temp).map_err(failed)?;
                Ok(false)
            }
            Err(source) => {
                // Best effort: the error above is returned.
                let _ = place.remove_temp(&self.temp);
                Err(failed(source))
            }
        }
    }
}

impl PrdFileError {
    fn file(action: &'static str, path: &str, source: PathError) -> Self {
        let path = path.to_owned();
        if matches!(source, PathError::Loop | PathError::SymbolicLink) {
            return Self::Link { path };
        }
        if matches!(source, PathError::ReadOnly) {
            return Self::ReadOnly { path };
        }
        Self::File { action, path, source }
    }
}

/// Returns the path with its directory canonicalized. The file itself is not resolved, because it is not a link.
#[must_use]
pub fn with_canonical_dir(path: &Path) -> PathBuf {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    let folder = folder.unwrap_or(Path::new(".")).canonicalize();
    match (folder, path.file_name()) {
        (Ok(folder), Some(name)) => folder.join(name),
        (Ok(_) | Err(_), Some(_) | None) => path.to_owned(),
    }
}

/// Returns the files that only Adjutant may change while agents work on a PRD: the PRD and the temporary file that
/// replaces it.
#[must_use]
pub fn reserved_files(prd: &Path) -> Vec<PathBuf> {
    let copy = prd.file_name().map(|name| prd.with_file_name(temp_name(name)));
    [prd.to_owned()].into_iter().chain(copy).collect()
}

fn temp_name(name: &OsStr) -> OsString {
    let mut temp = OsString::from(".");
    temp.push(name);
    temp.push(".adjutant-new");
    temp
}

fn lock(dir: &Dir, shown: &str) -> Result<DirLock, PrdFileError> {
    let taken = locked(dir, LockMode::Exclusive);
    let taken = taken.map_err(|source| PrdFileError::file("lock the folder of", shown, source))?;
    taken.ok_or(PrdFileError::Busy { path: shown.to_owned(), seconds: PATIENCE.as_secs() })
}

/// Opens the directory of a path. Returns it with the file's name and target.
fn open_parent(path: &Path, shown: &str) -> Result<(Dir, OsString, FileTarget), PrdFileError> {
    let failed = |source: PathError| PrdFileError::file("open", shown, source);
    let Some(name) = path.file_name().map(OsStr::to_owned) else {
        return Err(failed(PathError::NotRegular(adjutant_workspace::FileKind::Directory)));
    };
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    let root = Root::open(parent.unwrap_or(Path::new("."))).map_err(failed)?;
    let dir = root.open_dir(&RelPath::default()).map_err(failed)?;
    let place = dir.file_target(&name).map_err(failed)?;
    Ok((dir, name, place))
}

/// Reads the file; a missing one is an error.
fn read_existing(place: &FileTarget, shown: &str) -> Result<PrdContent, PrdFileError> {
    let missing = || PrdFileError::file("open", shown, PathError::NotFound);
    read(place, shown)?.ok_or_else(missing)
}

fn read(place: &FileTarget, shown: &str) -> Result<Option<PrdContent>, PrdFileError> {
    let path = || shown.to_owned();
    let image = match place.read(MAX_BYTES) {
        Ok(Some(image)) => image,
        Ok(None) => return Ok(None),
        Err(PathError::TooLarge { max_bytes }) => {
            return Err(PrdFileError::TooLarge { path: path(), max_bytes });
        }
        Err(source) => return Err(PrdFileError::file("read", shown, source)),
    };
    let text = String::from_utf8(image.bytes).map_err(|error| PrdFileError::NotText {
        path: path(),
        at: error.utf8_error().valid_up_to(),
    })?;
    Ok(Some(PrdContent { text, mode: image.mode }))
}

fn parse(text: &str, shown: &str) -> Result<Prd, PrdFileError> {
    Prd::read(text).map_err(|fault| PrdFileError::Invalid { path: shown.to_owned(), fault })
}

/// Checks that the file can be replaced, before any model call costs money. The directory must be locked.
///
/// Writes the temporary file and removes it again. That detects missing rights, a read-only mount and a full
/// disk, and removes the temporary file of an interrupted save.
fn check_replaceable(
    path: &Path,
    place: &FileTarget,
    text: &str,
    mode: FileMode,
    temp: &OsStr,
) -> Result<(), PrdFileError> {
    let shown = || path.display().to_string();
    // In a writable directory a read-only file of another user could be replaced, but should not be.
    if OpenOptions::new().write(true).open(path).is_err() {
        return Err(PrdFileError::ReadOnly { path: shown() });
    }
    let tried =
        place.prepare(text.as_bytes(), Some(mode), temp).and_then(|()| place.remove_temp(temp));
    tried.map_err(|source| {
        if matches!(source, PathError::ReadOnly) {
            return PrdFileError::ReadOnly { path: shown() };
        }
        PrdFileError::FolderReadOnly { path: shown(), source }
    })
}
