//! PRDs on disk: opened once, changed whole, never against a person who edits them.
//!
//! Owns how a PRD is opened and how an outcome reaches the disk. What a PRD says and where an outcome
//! stands in it is decided by [`Prd`]. Calls block for the length of a sync, and for a while when
//! another process is writing.
//!
//! Start at [`PrdFile::open`]. Invariant: whoever is killed at any moment, the file is what it was or
//! what it was to be. The folder is resolved once, when the file is opened; the file itself is never
//! a symbolic link, for a link would be replaced by a file.

use std::ffi::{OsStr, OsString};
use std::fs::OpenOptions;
use std::path::{Path, PathBuf};

use adjutant_formats::prd::{Outcome, Prd, PrdError as Fault};
use adjutant_workspace::{
    Dir, DirLock, FileMode, FileTarget, LockMode, Overwrite, PathError, RelPath, Root,
};

use crate::specs::{PATIENCE, locked};

/// The most of a file that is read; a thousand stories with long descriptions have about one.
const MAX_BYTES: u64 = 16 * 1024 * 1024;

/// How often a change is worked out anew because someone edited the file meanwhile.
const ATTEMPTS: usize = 5;

/// Says why a PRD could not be opened or changed.
#[derive(Debug, thiserror::Error)]
pub enum PrdError {
    /// The file is a symbolic link.
    #[error("`{path}` is a symbolic link; name the file it leads to")]
    Link {
        /// The file.
        path: String,
    },
    /// The file or its folder could not be handled.
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
    /// The file may not be written.
    #[error(
        "`{path}` is read-only; what becomes of stories is written to it, so make it writable first"
    )]
    ReadOnly {
        /// The file.
        path: String,
    },
    /// No file can be made beside it.
    #[error(
        "the folder of `{path}` cannot be written to; the outcome of a story is written beside the file first"
    )]
    FolderReadOnly {
        /// The file.
        path: String,
        /// Why not.
        #[source]
        source: PathError,
    },
    /// The file is too large to be a PRD.
    #[error("`{path}` has more than {max_bytes} bytes")]
    TooLarge {
        /// The file.
        path: String,
        /// The most that is read.
        max_bytes: u64,
    },
    /// The file would become too large to be read again.
    #[error("`{path}` would have more than {max_bytes} bytes; nothing was written")]
    Overgrown {
        /// The file.
        path: String,
        /// The most that is read.
        max_bytes: u64,
    },
    /// The file is no text.
    #[error("`{path}` is not UTF-8 text (byte {at})")]
    NotText {
        /// The file.
        path: String,
        /// The first byte that is wrong.
        at: usize,
    },
    /// The file is no PRD.
    #[error("`{path}`: {fault}")]
    Invalid {
        /// The file.
        path: String,
        /// What is wrong with it.
        fault: Fault,
    },
    /// A person changed what the outcome was to be written into.
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
        /// Where the outcome is.
        run: String,
    },
    /// The outcome cannot be written into the file.
    #[error("`{path}`: {fault}; its outcome is kept in run {run}")]
    Unwritable {
        /// The file.
        path: String,
        /// Why not.
        fault: Fault,
        /// Where the outcome is.
        run: String,
    },
    /// Another process holds the folder.
    #[error(
        "another process is writing in the folder of `{path}`, and has been for {seconds} seconds; try again later"
    )]
    Busy {
        /// The file.
        path: String,
        /// How long was waited.
        seconds: u64,
    },
    /// Someone edits the file faster than it can be changed.
    #[error("`{path}` was changed by someone else again and again; nothing was written")]
    Overtaken {
        /// The file.
        path: String,
    },
}

/// How a save ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SaveOutcome {
    /// The outcome was written into the file as it was known.
    Written,
    /// The outcome was written into a version that someone else made meanwhile.
    Merged,
    /// The outcome stood in the file already.
    Unchanged,
}

/// A PRD on disk.
#[derive(Debug)]
pub struct PrdFile {
    path: PathBuf,
    dir: Dir,
    name: OsString,
    /// What a replacement is called before it takes its place.
    temp: OsString,
    prd: Prd,
}

/// The file as it was read.
struct PrdContent {
    text: String,
    mode: FileMode,
}

impl PrdFile {
    /// Opens the PRD at `path`, and makes sure that outcomes can be written to it later.
    ///
    /// # Errors
    ///
    /// When it is no PRD, or no file that can be replaced; nothing has changed then.
    pub fn open(path: impl Into<PathBuf>) -> Result<Self, PrdError> {
        let path = path.into();
        let shown = path.display().to_string();
        let (dir, name, place) = open_parent(&path, &shown)?;
        let temp = temp_name(&name);
        let path = resolved(&path);
        let lock = lock(&dir, &shown)?;
        let PrdContent { text, mode } = read_existing(&place, &shown)?;
        let prd = parse(&text, &shown)?;
        check_replaceable(&path, &place, &text, mode, &temp)?;
        drop(lock);
        Ok(Self { path, dir, name, temp, prd })
    }

    /// Reads the PRD at `path` for one who writes nothing: no lock is taken, and it may be read-only.
    ///
    /// # Errors
    ///
    /// When it cannot be read or is no PRD.
    pub fn look(path: impl AsRef<Path>) -> Result<Prd, PrdError> {
        let shown = path.as_ref().display().to_string();
        let (_, _, place) = open_parent(path.as_ref(), &shown)?;
        parse(&read_existing(&place, &shown)?.text, &shown)
    }

    /// Returns the PRD as it was last read or written.
    #[must_use]
    pub const fn prd(&self) -> &Prd {
        &self.prd
    }

    /// Returns its path, the same however it was spelled when it was opened.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Reads it anew: another process may have written an outcome meanwhile.
    ///
    /// # Errors
    ///
    /// When it cannot be read or is no PRD any more; what was known of it stays.
    pub fn reread(&mut self) -> Result<(), PrdError> {
        let shown = self.path.display().to_string();
        let failed = |source: PathError| PrdError::file("open", &shown, source);
        let place = self.dir.file_target(&self.name).map_err(failed)?;
        let read = read_existing(&place, &shown)?;
        if read.text != self.prd.to_text() {
            self.prd = parse(&read.text, &shown)?;
        }
        Ok(())
    }

    /// Writes the outcome of a story, and takes over what others changed elsewhere in the file.
    ///
    /// # Errors
    ///
    /// [`PrdError::Changed`] when the entry of the story is not the one that was last read, or the
    /// file is no PRD any more. Whatever the error, the file is as it was.
    pub fn save(&mut self, story_id: &str, outcome: &Outcome) -> Result<SaveOutcome, PrdError> {
        let shown = self.path.display().to_string();
        let place = self.dir.file_target(&self.name);
        let place = place.map_err(|source| PrdError::file("open", &shown, source))?;
        let _alone = lock(&self.dir, &shown)?;
        let changed = |what: String| PrdError::Changed {
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
            let text = base.edit(story_id, outcome).map_err(|fault| PrdError::Unwritable {
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
        Err(PrdError::Overtaken { path: shown })
    }

    /// Reads a version that someone else made; the entry of the story must be as it was.
    fn read_other_version(
        &self,
        read: &PrdContent,
        story_id: &str,
        changed: impl Fn(String) -> PrdError,
    ) -> Result<Prd, PrdError> {
        let theirs = Prd::read(&read.text)
            .map_err(|fault| changed(format!("it was made something that is no PRD ({fault})")))?;
        match (self.prd.entry(story_id), theirs.entry(story_id)) {
            (Some(ours), Some(theirs)) if ours != theirs => {
                Err(changed("its entry was changed".to_owned()))
            }
            (Some(_), None) => Err(changed("its entry was removed".to_owned())),
            (_, _) => Ok(theirs),
        }
    }

    /// Replaces the file while it is what it was; says whether it still was.
    fn replace(
        &self,
        place: &FileTarget,
        before: &PrdContent,
        text: &str,
        shown: &str,
    ) -> Result<bool, PrdError> {
        if text.len() as u64 > MAX_BYTES {
            return Err(PrdError::Overgrown { path: shown.to_owned(), max_bytes: MAX_BYTES });
        }
        let failed = |source: PathError| PrdError::file("write", shown, source);
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
                // Best effort: the error that matters is the one above.
                let _ = place.remove_temp(&self.temp);
                Err(failed(source))
            }
        }
    }
}

impl PrdError {
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

/// Returns the path by which a PRD is known: its folder without links and dots. The file itself is no link.
#[must_use]
pub fn resolved(path: &Path) -> PathBuf {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    let folder = folder.unwrap_or(Path::new(".")).canonicalize();
    match (folder, path.file_name()) {
        (Ok(folder), Some(name)) => folder.join(name),
        (Ok(_) | Err(_), Some(_) | None) => path.to_owned(),
    }
}

/// Returns the files that only Adjutant may change while agents work on a PRD: the PRD, and the copy that takes its
/// place once it is whole.
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

fn lock(dir: &Dir, shown: &str) -> Result<DirLock, PrdError> {
    let taken = locked(dir, LockMode::Exclusive);
    let taken = taken.map_err(|source| PrdError::file("lock the folder of", shown, source))?;
    taken.ok_or(PrdError::Busy { path: shown.to_owned(), seconds: PATIENCE.as_secs() })
}

/// Finds the folder of a path, and the place in it.
fn open_parent(path: &Path, shown: &str) -> Result<(Dir, OsString, FileTarget), PrdError> {
    let failed = |source: PathError| PrdError::file("open", shown, source);
    let Some(name) = path.file_name().map(OsStr::to_owned) else {
        return Err(failed(PathError::NotRegular(adjutant_workspace::FileKind::Directory)));
    };
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    let root = Root::open(parent.unwrap_or(Path::new("."))).map_err(failed)?;
    let dir = root.open_dir(&RelPath::default()).map_err(failed)?;
    let place = dir.file_target(&name).map_err(failed)?;
    Ok((dir, name, place))
}

/// Reads a file that has to be there.
fn read_existing(place: &FileTarget, shown: &str) -> Result<PrdContent, PrdError> {
    let missing = || PrdError::file("open", shown, PathError::NotFound);
    read(place, shown)?.ok_or_else(missing)
}

fn read(place: &FileTarget, shown: &str) -> Result<Option<PrdContent>, PrdError> {
    let path = || shown.to_owned();
    let image = match place.read(MAX_BYTES) {
        Ok(Some(image)) => image,
        Ok(None) => return Ok(None),
        Err(PathError::TooLarge { max_bytes }) => {
            return Err(PrdError::TooLarge { path: path(), max_bytes });
        }
        Err(source) => return Err(PrdError::file("read", shown, source)),
    };
    let text = String::from_utf8(image.bytes).map_err(|error| PrdError::NotText {
        path: path(),
        at: error.utf8_error().valid_up_to(),
    })?;
    Ok(Some(PrdContent { text, mode: image.mode }))
}

fn parse(text: &str, shown: &str) -> Result<Prd, PrdError> {
    Prd::read(text).map_err(|fault| PrdError::Invalid { path: shown.to_owned(), fault })
}

/// Makes sure that the file can be replaced, before anything is paid for; the folder is locked.
///
/// A copy is written beside it and removed again: that tells a folder without rights, a disk
/// mounted read-only and a full one alike, and takes away what an interrupted save left.
fn check_replaceable(
    path: &Path,
    place: &FileTarget,
    text: &str,
    mode: FileMode,
    temp: &OsStr,
) -> Result<(), PrdError> {
    let shown = || path.display().to_string();
    // A file of someone else could be replaced where the folder is ours; it is theirs all the same.
    if OpenOptions::new().write(true).open(path).is_err() {
        return Err(PrdError::ReadOnly { path: shown() });
    }
    let tried =
        place.prepare(text.as_bytes(), Some(mode), temp).and_then(|()| place.remove_temp(temp));
    tried.map_err(|source| {
        if matches!(source, PathError::ReadOnly) {
            return PrdError::ReadOnly { path: shown() };
        }
        PrdError::FolderReadOnly { path: shown(), source }
    })
}
