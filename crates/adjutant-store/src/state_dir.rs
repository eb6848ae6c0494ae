//! The state directory, with one directory per run below `runs`.
//!
//! The caller passes its path; nothing here reads the environment. It does not read the content
//! of runs (see [`RunDir`]).
//!
//! Start at [`StateDir::open`]. Invariant: the directory belongs to the current user, and no other user can
//! read or write it.
//!
//! A [`StateDir`] is the opened directory, [`StateDirError`] says why it cannot be used, and
//! [`FindRunError`] why a name that a person typed does not name exactly one run.

use std::cmp::Reverse;
use std::fs;
use std::io::{self, Write};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use adjutant_core::RunId;
use adjutant_core::ids::SUFFIX_LEN;

use crate::files::{self, FileError, FileErrorContext};
use crate::lock::WriterLiveness;
use crate::run_dir::RunDir;

/// How many runs the error for an ambiguous name lists.
const MAX_CANDIDATES: usize = 4;

/// The size of the file that [`StateDir::probe`] writes: enough for a run's first record.
const PROBE_BYTES: usize = 4096;

/// How many characters of a name that matches no run the error quotes.
const MAX_QUOTED_CHARS: usize = 200;

/// Why the state directory cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum StateDirError {
    /// The directory belongs to another user, who could have planted files in it.
    #[error(
        "{path} belongs to user {owner}, not to user {us}; type `chown -R {us} {path}` as its owner or as root, or \
         use another directory",
        path = path.display()
    )]
    NotOurs {
        /// The directory.
        path: PathBuf,
        /// The uid of its owner.
        owner: u32,
        /// The effective uid of this process.
        us: u32,
    },
    /// All users share the directory, like `/tmp`. Making it private would lock the others out.
    #[error(
        "{path} is a directory that users share (mode {mode:04o}); name one of your own, such as {path}/adjutant",
        path = path.display()
    )]
    Shared {
        /// The directory.
        path: PathBuf,
        /// Its permission bits.
        mode: u32,
    },
    /// A run with this id exists. The caller generates another id and retries.
    #[error("{0} exists already")]
    RunExists(RunId),
    /// A file or directory cannot be used.
    #[error(transparent)]
    File(#[from] FileError),
}

/// Why a text does not name exactly one run.
#[derive(Debug, thiserror::Error)]
pub enum FindRunError {
    /// The state directory has no runs.
    #[error("there are no runs yet")]
    NoRuns,
    /// No run's id starts with the text.
    #[error("there is no run `{text}`")]
    Unknown {
        /// The text that was searched for.
        text: String,
    },
    /// The ids of several runs start with the text.
    #[error("`{text}` matches {count} runs: {candidates}")]
    Ambiguous {
        /// The text that was searched for.
        text: String,
        /// How many runs match.
        count: usize,
        /// The ids of the newest matches, separated by commas.
        candidates: String,
    },
    /// The state directory cannot be read.
    #[error(transparent)]
    File(#[from] FileError),
}

/// An opened state directory.
#[derive(Clone, Debug)]
pub struct StateDir {
    runs: PathBuf,
    /// The mode of the directory before it was made private, if that was necessary.
    previous_mode: Option<u32>,
}

impl StateDir {
    /// Opens the state directory at `path`. Creates it if it is missing and makes it private.
    pub fn open(path: &Path) -> Result<Self, StateDirError> {
        files::ensure_private_dir(path).during("create", path)?;
        let previous_mode = check_ownership(path)?;
        let runs = path.join("runs");
        files::ensure_dir(&runs).during("create", &runs)?;
        check_ownership(&runs)?;
        Ok(Self { runs, previous_mode })
    }

    /// Returns the earlier mode of the directory if [`StateDir::open`] had to change it to 0700.
    #[must_use]
    pub const fn previous_mode(&self) -> Option<u32> {
        self.previous_mode
    }

    /// Returns the path of the state directory.
    #[must_use]
    pub fn path(&self) -> &Path {
        self.runs.parent().unwrap_or(&self.runs)
    }

    /// Creates the directory of a new run.
    pub fn create_run(&self, id: RunId) -> Result<RunDir, StateDirError> {
        let run = RunDir::new(&self.runs, id);
        match files::create_dir(run.path()) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                Err(StateDirError::RunExists(id))
            }
            other => Ok(other.during("create", run.path()).map(|()| run)?),
        }
    }

    /// Returns the directory of a run, which need not exist.
    #[must_use]
    pub fn run(&self, id: RunId) -> RunDir {
        RunDir::new(&self.runs, id)
    }

    /// Returns the ids of all runs, newest first. Entries whose name is not a run id are ignored.
    pub fn list_runs(&self) -> Result<Vec<RunId>, FileError> {
        let mut ids = Vec::new();
        for entry in fs::read_dir(&self.runs).during("list", &self.runs)? {
            let name = entry.during("list", &self.runs)?.file_name();
            ids.extend(name.to_str().and_then(|name| name.parse::<RunId>().ok()));
        }
        ids.sort_unstable_by(|left, right| right.cmp(left));
        for second in ids.chunk_by_mut(|left, right| left.stamp() == right.stamp()) {
            if second.len() > 1 {
                // The rest of an id is random, so runs of the same second are sorted by the creation time of their directory.
                second.sort_by_cached_key(|id| Reverse(created_at(self.run(*id).path())));
            }
        }
        Ok(ids)
    }

    /// Replaces a file derived from all runs, such as `errors.json`, atomically. Returns its path.
    pub fn write_projection(&self, name: &'static str, bytes: &[u8]) -> Result<PathBuf, FileError> {
        let path = self.path().join(name);
        files::replace(&path, bytes).during("write", &path)?;
        Ok(path)
    }

    /// Checks that runs can be written: creates, syncs and removes a small file.
    pub fn probe(&self) -> Result<(), FileError> {
        let place = self.runs.join("probe");
        let (temp, mut file) = files::create_temp(&place).during("write to", &self.runs)?;
        let written = file.write_all(&[0; PROBE_BYTES]).and_then(|()| file.sync_all());
        let removed = fs::remove_file(&temp);
        written.and(removed).during("write to", &self.runs)
    }

    /// Finds a run by its id, by a prefix of its id with or without `run_`, by its last six characters, or by the word `latest`.
    pub fn find(&self, text: &str) -> Result<RunDir, FindRunError> {
        if let Ok(id) = text.parse::<RunId>() {
            let run = self.run(id);
            return if run.path().is_dir() { Ok(run) } else { Err(unknown_run(text)) };
        }
        let ids = self.list_runs()?;
        if text == "latest" {
            // A run without records has nothing to show, unless its process has just started.
            let is_live = |run: &RunDir| matches!(run.liveness(), Ok(WriterLiveness::Live { .. }));
            let mut runs = ids.iter().map(|id| self.run(*id));
            let begun = runs.find(|run| run.has_records() || is_live(run));
            return begun.ok_or(FindRunError::NoRuns);
        }
        let fits = |id: &&RunId| {
            let name = id.to_string();
            let is_end = || text.len() == SUFFIX_LEN && name.ends_with(text);
            !text.is_empty() && (name.starts_with(text) || name[4..].starts_with(text) || is_end())
        };
        let fitting: Vec<RunId> = ids.iter().filter(fits).copied().collect();
        match fitting.as_slice() {
            [] => Err(unknown_run(text)),
            [id] => Ok(self.run(*id)),
            several => Err(ambiguous_run(text, several)),
        }
    }
}

/// Returns when a directory was created; `None` on file systems that do not record it.
fn created_at(path: &Path) -> Option<SystemTime> {
    fs::metadata(path).and_then(|metadata| metadata.created()).ok()
}

fn unknown_run(text: &str) -> FindRunError {
    FindRunError::Unknown { text: shorten(text) }
}

/// Shortens a text for an error message; it may be much longer than any id.
fn shorten(text: &str) -> String {
    match text.char_indices().nth(MAX_QUOTED_CHARS) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

fn ambiguous_run(text: &str, ids: &[RunId]) -> FindRunError {
    let mut names: Vec<String> = ids.iter().take(MAX_CANDIDATES).map(RunId::to_string).collect();
    if ids.len() > MAX_CANDIDATES {
        names.push("…".to_owned());
    }
    FindRunError::Ambiguous {
        text: text.to_owned(),
        count: ids.len(),
        candidates: names.join(", "),
    }
}

/// Refuses a directory of another user or one that users share, and makes any other private.
///
/// Returns the mode that it had, if it had to be changed.
fn check_ownership(path: &Path) -> Result<Option<u32>, StateDirError> {
    let metadata = fs::metadata(path).during("examine", path)?;
    let (owner, us) = (metadata.uid(), rustix::process::geteuid().as_raw());
    if owner != us {
        return Err(StateDirError::NotOurs { path: path.to_owned(), owner, us });
    }
    let mode = metadata.permissions().mode() & 0o7777;
    if mode & 0o077 == 0 {
        return Ok(None);
    }
    // A directory that others may write to and that has the sticky bit is meant to be shared.
    if mode & 0o1022 > 0o1000 {
        return Err(StateDirError::Shared { path: path.to_owned(), mode });
    }
    fs::set_permissions(path, fs::Permissions::from_mode(0o700)).during("make private", path)?;
    Ok(Some(mode))
}
