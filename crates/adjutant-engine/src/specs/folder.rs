//! Finding, creating, locking and reading the specs folder.

use std::ffi::OsStr;
use std::thread;
use std::time::{Duration, Instant};

use adjutant_formats::task::TaskFiles;
use adjutant_workspace::{Dir, DirLock, FileTarget, LockMode, PathError, RelPath, Root};

use super::error::SpecsError;
use super::file_pair::{STATE, TODO};

/// The specs folder that is created if there is none.
pub(super) const OURS: &str = ".adjutant/specs";

/// The places of a specs folder; the first that exists is used.
const PLACES: [(&str, &str); 2] = [(".opencode", ".opencode/specs"), (".adjutant", OURS)];

const SPECS: &str = "specs";

/// The largest file that is read; a thousand tasks with long descriptions have about one MiB.
const MAX_BYTES: u64 = 16 * 1024 * 1024;

/// How long to wait for another process's lock; a change takes milliseconds.
pub(crate) const PATIENCE: Duration = Duration::from_secs(10);

/// The pause between two attempts to lock.
const PAUSE: Duration = Duration::from_millis(2);

/// The open directory with `TODO.md` and `state.json`.
#[derive(Debug)]
pub(super) struct SpecsFolder {
    pub(super) dir: Dir,
    /// Its path relative to the project's root.
    pub(super) path: &'static str,
}

impl SpecsFolder {
    /// Opens the specs folder. Returns `None` if there is none yet.
    pub(super) fn find(root: &Root) -> Result<Option<Self>, SpecsError> {
        let top = top(root)?;
        for (parent, path) in PLACES {
            let dir = match top.open_dir(OsStr::new(parent)) {
                Ok(dir) => dir,
                Err(PathError::NotFound | PathError::NotDirectory) => continue,
                // A link `.opencode` without `specs` behind it is not a specs folder, so it is no error.
                Err(PathError::Loop) if is_absent(root, path) => continue,
                Err(error) => return Err(SpecsError::file("open", parent, error)),
            };
            match dir.open_dir(OsStr::new(SPECS)) {
                Ok(dir) => return Ok(Some(Self { dir, path })),
                Err(PathError::NotFound) => {}
                Err(PathError::NotDirectory) => {
                    return Err(SpecsError::NotFolder { path: path.into() });
                }
                Err(error) => return Err(SpecsError::file("open", path, error)),
            }
        }
        Ok(None)
    }

    /// Creates `.adjutant/specs`.
    pub(super) fn create(root: &Root) -> Result<Self, SpecsError> {
        let (parent, path) = (".adjutant", OURS);
        let failed = |path: &str, error: PathError| {
            if matches!(error, PathError::NotDirectory) {
                return SpecsError::NotFolder { path: path.to_owned() };
            }
            SpecsError::file("create", path, error)
        };
        let dir = top(root)?
            .ensure_dir(OsStr::new(parent))
            .map_err(|error| failed(parent, error))?
            .ensure_dir(OsStr::new(SPECS))
            .map_err(|error| failed(path, error))?;
        Ok(Self { dir, path })
    }

    /// Locks the directory; waits up to [`PATIENCE`].
    pub(super) fn lock(&self, lock: LockMode) -> Result<DirLock, SpecsError> {
        let taken = locked(&self.dir, lock).map_err(|error| self.file_error("lock", "", error))?;
        taken.ok_or(SpecsError::Busy { folder: self.path, seconds: PATIENCE.as_secs() })
    }

    /// Reads and parses both files.
    pub(super) fn read(&self) -> Result<TaskFiles, SpecsError> {
        TaskFiles::take(self.read_text(TODO)?, self.read_text(STATE)?)
            .map_err(|damage| SpecsError::Damaged { folder: self.path, damage })
    }

    /// Reads a file. Returns `None` if it is missing.
    pub(super) fn read_text(&self, name: &str) -> Result<Option<String>, SpecsError> {
        let image = match self.place(name)?.read(MAX_BYTES) {
            Ok(Some(image)) => image,
            Ok(None) => return Ok(None),
            Err(PathError::TooLarge { max_bytes }) => {
                return Err(SpecsError::TooLarge { path: self.relative_path(name), max_bytes });
            }
            Err(error) => return Err(self.file_error("read", name, error)),
        };
        String::from_utf8(image.bytes).map(Some).map_err(|error| SpecsError::NotText {
            path: self.relative_path(name),
            at: error.utf8_error().valid_up_to(),
        })
    }

    /// Fails for a text that is too large to be read again.
    pub(super) fn check_size(&self, name: &str, text: &str) -> Result<(), SpecsError> {
        if text.len() as u64 <= MAX_BYTES {
            return Ok(());
        }
        Err(SpecsError::Overgrown { path: self.relative_path(name), max_bytes: MAX_BYTES })
    }

    /// Returns the target for reading or replacing a file in the folder.
    pub(super) fn place(&self, name: &str) -> Result<FileTarget, SpecsError> {
        self.dir.file_target(OsStr::new(name)).map_err(|error| self.file_error("open", name, error))
    }

    /// Returns whether the folder has an entry of that name.
    pub(super) fn has(&self, name: &str) -> Result<bool, SpecsError> {
        let kind = self.dir.kind_of(OsStr::new(name));
        kind.map(|kind| kind.is_some()).map_err(|error| self.file_error("look for", name, error))
    }

    /// Returns the error of an operation on a file in the folder; an empty name stands for the folder.
    pub(super) fn file_error(
        &self,
        action: &'static str,
        name: &str,
        error: PathError,
    ) -> SpecsError {
        SpecsError::file(action, self.relative_path(name), error)
    }

    /// Returns the path of a file relative to the project's root.
    pub(super) fn relative_path(&self, name: &str) -> String {
        if name.is_empty() { self.path.to_owned() } else { format!("{}/{name}", self.path) }
    }
}

/// Locks a directory. Returns `None` if another process has it locked for longer than [`PATIENCE`].
pub(crate) fn locked(dir: &Dir, lock: LockMode) -> Result<Option<DirLock>, PathError> {
    let until = Instant::now() + PATIENCE;
    loop {
        if let Some(lock) = dir.try_lock(lock)? {
            return Ok(Some(lock));
        }
        if Instant::now() >= until {
            return Ok(None);
        }
        thread::sleep(PAUSE);
    }
}

fn top(root: &Root) -> Result<Dir, SpecsError> {
    let shown = root.path().display().to_string();
    root.open_dir(&RelPath::default()).map_err(|error| SpecsError::file("open", shown, error))
}

fn is_absent(root: &Root, path: &str) -> bool {
    let opened = RelPath::new(path).and_then(|path| root.open_dir(&path));
    matches!(opened, Err(PathError::NotFound | PathError::NotDirectory))
}
