//! Private files and directories: mode 0600 and 0700 under any umask, never through a symbolic link.
//!
//! This crate creates and opens files only through this module, which does not know their content.
//!
//! Invariant: files are replaced atomically, so a reader sees all of the old or all of the new file.
//!
//! A [`FileError`] says what could not be done with which file; `FileErrorContext` is the trait
//! that makes one from an IO error.

use std::fs::{self, DirBuilder, File, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::fs::{Mode, OFlags};

/// The suffix of temporary files, which are renamed when they are complete. After a crash they can be deleted.
pub(crate) const TEMP_SUFFIX: &str = ".tmp";

/// An IO error with the path and the action that failed.
#[derive(Debug, thiserror::Error)]
#[error("cannot {action} {path}", path = path.display())]
pub struct FileError {
    action: &'static str,
    path: PathBuf,
    #[source]
    source: io::Error,
}

impl FileError {
    /// Returns the operating system's error.
    #[must_use]
    pub fn io(&self) -> &io::Error {
        &self.source
    }
}

/// Adds the action and the path to an IO error.
pub(crate) trait FileErrorContext<T> {
    /// Converts an error into a [`FileError`] that says "cannot `action` `path`".
    fn during(self, action: &'static str, path: &Path) -> Result<T, FileError>;
}

impl<T, E: Into<io::Error>> FileErrorContext<T> for Result<T, E> {
    fn during(self, action: &'static str, path: &Path) -> Result<T, FileError> {
        self.map_err(|source| FileError { action, path: path.to_owned(), source: source.into() })
    }
}

/// Creates a private directory. Fails if it exists.
pub(crate) fn create_dir(path: &Path) -> io::Result<()> {
    DirBuilder::new().mode(0o700).create(path)?;
    // The umask may have removed permissions from the owner; it never adds any.
    fs::set_permissions(path, Permissions::from_mode(0o700))
}

/// Creates a private directory unless a directory exists at `path`.
pub(crate) fn ensure_dir(path: &Path) -> io::Result<()> {
    match create_dir(path) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists && path.is_dir() => Ok(()),
        other => other,
    }
}

/// Creates a private directory and its missing parents, all with mode 0700.
///
/// # Errors
///
/// If a directory cannot be created, or `path` is not a directory.
pub fn ensure_private_dir(path: &Path) -> io::Result<()> {
    match fs::metadata(path) {
        Ok(found) if found.is_dir() => return Ok(()),
        Ok(_) => return Err(io::ErrorKind::NotADirectory.into()),
        Err(_) => {}
    }
    if let Some(parent) = path.parent().filter(|parent| !parent.as_os_str().is_empty()) {
        ensure_private_dir(parent)?;
    }
    ensure_dir(path)
}

/// Opens a private file, such as a lock file, for reading and writing. Creates it if it is missing.
///
/// Refuses symbolic links, pipes and devices, and does not block on a pipe.
///
/// # Errors
///
/// If the file cannot be opened or is not a regular file.
pub fn open_private(path: &Path) -> io::Result<File> {
    open(path, OFlags::RDWR | OFlags::CREATE)
}

/// Like [`open_private`], for a file that exists.
///
/// # Errors
///
/// If the file is missing, cannot be opened or is not a regular file.
pub fn open_private_existing(path: &Path) -> io::Result<File> {
    open(path, OFlags::RDWR)
}

/// Creates an empty file for appending. Fails if it exists.
pub(crate) fn create_new(path: &Path) -> io::Result<File> {
    open(path, OFlags::WRONLY | OFlags::APPEND | OFlags::CREATE | OFlags::EXCL)
}

/// Opens an existing file for appending.
pub(crate) fn open_existing(path: &Path) -> io::Result<File> {
    open(path, OFlags::WRONLY | OFlags::APPEND)
}

/// Opens a file for reading.
pub(crate) fn open_read(path: &Path) -> io::Result<File> {
    open(path, OFlags::RDONLY)
}

/// Replaces the file at `path` atomically by one that contains `bytes`.
///
/// Does not sync: for files that can be rebuilt from the journal.
pub(crate) fn replace(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let (temp, mut file) = create_temp(path)?;
    let written = file.write_all(bytes).and_then(|()| fs::rename(&temp, path));
    if written.is_err() {
        // Best effort: the error that matters is the one above, and prune removes leftovers.
        let _ = fs::remove_file(&temp);
    }
    written
}

/// Like [`replace`], but returns only when the new file and its directory are synced.
pub(crate) fn replace_synced(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let (temp, mut file) = create_temp(path)?;
    let written = file.write_all(bytes).and_then(|()| file.sync_all());
    let written = written.and_then(|()| fs::rename(&temp, path));
    if written.is_err() {
        // Best effort: the error that matters is the one above, and prune removes leftovers.
        let _ = fs::remove_file(&temp);
    }
    written?;
    path.parent().map_or(Ok(()), sync_dir)
}

/// Creates a temporary file in the directory of `path`, to be renamed to `path`.
pub(crate) fn create_temp(path: &Path) -> io::Result<(PathBuf, File)> {
    static COUNTER: AtomicU64 = AtomicU64::new(0);
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    loop {
        let nth = COUNTER.fetch_add(1, Ordering::Relaxed);
        let temp =
            path.with_file_name(format!(".{name}.{}.{nth}{TEMP_SUFFIX}", std::process::id()));
        match create_new(&temp) {
            // A process in another PID namespace may have the same pid.
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            other => return other.map(|file| (temp, file)),
        }
    }
}

/// Fsyncs a directory, so that files created or renamed in it survive a power failure.
pub(crate) fn sync_dir(path: &Path) -> io::Result<()> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let dir = rustix::fs::open(path, flags, Mode::empty())?;
    Ok(rustix::fs::fsync(dir)?)
}

/// Removes a file or a directory with its content. Returns whether it existed.
pub(crate) fn remove(path: &Path) -> io::Result<bool> {
    let removed = match fs::symlink_metadata(path) {
        Ok(metadata) if metadata.is_dir() => fs::remove_dir_all(path),
        Ok(_) => fs::remove_file(path),
        Err(error) => Err(error),
    };
    match removed {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
    }
}

fn open(path: &Path, flags: OFlags) -> io::Result<File> {
    let mode = Mode::RUSR | Mode::WUSR;
    // NONBLOCK: opening a FIFO that was planted under this name must fail instead of blocking.
    let always = OFlags::CLOEXEC | OFlags::NOFOLLOW | OFlags::NONBLOCK;
    let file = File::from(rustix::fs::open(path, flags | always, mode)?);
    let metadata = file.metadata()?;
    if !metadata.is_file() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "not a regular file"));
    }
    if flags.contains(OFlags::CREATE) && metadata.permissions().mode() & 0o7777 != 0o600 {
        rustix::fs::fchmod(&file, mode)?;
    }
    Ok(file)
}
