//! The state folder: one folder per run below `runs`.
//!
//! Where the folder is, the caller knows; nothing here reads the environment. It does not look
//! into runs (see [`RunDir`]).
//!
//! Start at [`StateDir::open`]. Invariant: the folder belongs to us and nobody else can write to it.

use std::cmp::Reverse;
use std::fs;
use std::io::{self, Write};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use adjutant_core::RunId;

use crate::files::{self, FileError, FileErrorContext};
use crate::lock::Liveness;
use crate::run_dir::RunDir;

/// How many candidates an ambiguous name is answered with.
const MAX_CANDIDATES: usize = 4;

/// What a file system must have left for a first record.
const PROBE_BYTES: usize = 4096;

/// How many characters of a name that fits nothing are quoted.
const MAX_QUOTED_CHARS: usize = 200;

/// Says why the state folder cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum StateDirError {
    /// Someone else could have planted anything in it.
    #[error(
        "{path} belongs to user {owner}, not to user {us}; type `chown -R {us} {path}` as its owner or as root, or \
         use another directory",
        path = path.display()
    )]
    NotOurs {
        /// The folder.
        path: PathBuf,
        /// Whose it is.
        owner: u32,
        /// Who we are.
        us: u32,
    },
    /// All users of the machine share it, as they share `/tmp`; making it private would lock them out.
    #[error(
        "{path} is a directory that users share (mode {mode:04o}); name one of your own, such as {path}/adjutant",
        path = path.display()
    )]
    Shared {
        /// The folder.
        path: PathBuf,
        /// Its permission bits.
        mode: u32,
    },
    /// A run of this id exists; the caller makes another id and tries again.
    #[error("{0} exists already")]
    RunExists(RunId),
    /// A file or folder cannot be used.
    #[error(transparent)]
    File(#[from] FileError),
}

/// Says why a text names no run.
#[derive(Debug, thiserror::Error)]
pub enum FindRunError {
    /// There is no run at all.
    #[error("there are no runs yet")]
    NoRuns,
    /// No run is called that.
    #[error("no run is called `{text}`")]
    Unknown {
        /// What was asked for.
        text: String,
    },
    /// More than one run begins like that.
    #[error("`{text}` may be any of {count} runs: {candidates}")]
    Ambiguous {
        /// What was asked for.
        text: String,
        /// How many runs fit.
        count: usize,
        /// The newest of them.
        candidates: String,
    },
    /// The state folder cannot be read.
    #[error(transparent)]
    File(#[from] FileError),
}

/// The state folder.
#[derive(Clone, Debug)]
pub struct StateDir {
    runs: PathBuf,
    /// The mode that the folder had, where others could read it.
    previous_mode: Option<u32>,
}

impl StateDir {
    /// Opens the state folder at `path`, creating it where it is missing.
    pub fn open(path: &Path) -> Result<Self, StateDirError> {
        files::ensure_private_dir(path).during("create", path)?;
        let previous_mode = check_ownership(path)?;
        let runs = path.join("runs");
        files::ensure_dir(&runs).during("create", &runs)?;
        check_ownership(&runs)?;
        Ok(Self { runs, previous_mode })
    }

    /// Returns the mode that the folder had when it was opened, where others could look into it; it is 0700 now.
    #[must_use]
    pub const fn previous_mode(&self) -> Option<u32> {
        self.previous_mode
    }

    /// Creates the folder of a new run.
    pub fn create_run(&self, id: RunId) -> Result<RunDir, StateDirError> {
        let run = RunDir::new(&self.runs, id);
        match files::create_dir(run.path()) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                Err(StateDirError::RunExists(id))
            }
            other => Ok(other.during("create", run.path()).map(|()| run)?),
        }
    }

    /// Returns the folder of a run, whether it exists or not.
    #[must_use]
    pub fn run(&self, id: RunId) -> RunDir {
        RunDir::new(&self.runs, id)
    }

    /// Returns all runs, newest first. What is not called like a run is passed over.
    pub fn list_runs(&self) -> Result<Vec<RunId>, FileError> {
        let mut ids = Vec::new();
        for entry in fs::read_dir(&self.runs).during("list", &self.runs)? {
            let name = entry.during("list", &self.runs)?.file_name();
            ids.extend(name.to_str().and_then(|name| name.parse::<RunId>().ok()));
        }
        ids.sort_unstable_by(|left, right| right.cmp(left));
        for second in ids.chunk_by_mut(|left, right| left.stamp() == right.stamp()) {
            if second.len() > 1 {
                // The rest of an id is chance, so within a second the folders' births decide.
                second.sort_by_key(|id| Reverse(created_at(self.run(*id).path())));
            }
        }
        Ok(ids)
    }

    /// Writes a projection over all runs, such as `errors.json`, whole or not at all; returns where.
    pub fn write_projection(&self, name: &'static str, bytes: &[u8]) -> Result<PathBuf, FileError> {
        let path = self.runs.with_file_name(name);
        files::replace(&path, bytes).during("write", &path)?;
        Ok(path)
    }

    /// Writes a small file where runs are kept, makes it durable and removes it.
    pub fn probe(&self) -> Result<(), FileError> {
        let place = self.runs.join("probe");
        let (temp, mut file) = files::create_temp(&place).during("write to", &self.runs)?;
        let written = file.write_all(&[0; PROBE_BYTES]).and_then(|()| file.sync_all());
        let removed = fs::remove_file(&temp);
        written.and(removed).during("write to", &self.runs)
    }

    /// Finds a run by its id, by the beginning of its id with or without `run_`, or by `latest`.
    pub fn find(&self, text: &str) -> Result<RunDir, FindRunError> {
        if let Ok(id) = text.parse::<RunId>() {
            let run = self.run(id);
            return if run.path().is_dir() { Ok(run) } else { Err(unknown_run(text)) };
        }
        let ids = self.list_runs()?;
        if text == "latest" {
            // One that never began has nothing to show, unless somebody is just beginning it.
            let is_live = |run: &RunDir| matches!(run.liveness(), Ok(Liveness::Live { .. }));
            let mut runs = ids.iter().map(|id| self.run(*id));
            let begun = runs.find(|run| run.has_records() || is_live(run));
            return begun.ok_or(FindRunError::NoRuns);
        }
        let fits = |id: &&RunId| {
            let name = id.to_string();
            !text.is_empty() && (name.starts_with(text) || name[4..].starts_with(text))
        };
        let fitting: Vec<RunId> = ids.iter().filter(fits).copied().collect();
        match fitting.as_slice() {
            [] => Err(unknown_run(text)),
            [id] => Ok(self.run(*id)),
            several => Err(ambiguous_run(text, several)),
        }
    }
}

/// When a folder was made; a file system that does not say so leaves the order to the ids.
fn created_at(path: &Path) -> Option<SystemTime> {
    fs::metadata(path).and_then(|metadata| metadata.created()).ok()
}

fn unknown_run(text: &str) -> FindRunError {
    FindRunError::Unknown { text: shortened(text) }
}

/// Returns a text that is to be quoted; more than any id has says nothing more.
fn shortened(text: &str) -> String {
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

/// Refuses a folder that another user owns, and makes one private that others can read or write; returns the mode that
/// it had then.
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
    // The sticky bit says that others are meant to write there.
    if mode & 0o1022 > 0o1000 {
        return Err(StateDirError::Shared { path: path.to_owned(), mode });
    }
    fs::set_permissions(path, fs::Permissions::from_mode(0o700)).during("make private", path)?;
    Ok(Some(mode))
}
