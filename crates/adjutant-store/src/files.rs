//! Private files and folders: 0600 and 0700 whatever the umask, never through a symbolic link.
//!
//! Every path this crate creates or opens goes through here. Nothing here knows what a file means.
//!
//! Invariant: a file that is replaced is replaced whole, so a reader sees the old or the new one.

use std::fs::{self, DirBuilder, File, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::fs::{Mode, OFlags};

/// How the name of a half-written replacement ends; such a file may be deleted at any time.
pub(crate) const TEMP_SUFFIX: &str = ".tmp";

/// Says which file or folder could not be handled.
#[derive(Debug, thiserror::Error)]
#[error("cannot {action} {path}", path = path.display())]
pub struct FileError {
    action: &'static str,
    path: PathBuf,
    #[source]
    source: io::Error,
}

impl FileError {
    /// Returns the operating system's side of the story.
    #[must_use]
    pub fn io(&self) -> &io::Error {
        &self.source
    }
}

/// Names the file in an input or output error.
pub(crate) trait FileErrorContext<T> {
    /// Says what was being done, and to which path.
    fn during(self, action: &'static str, path: &Path) -> Result<T, FileError>;
}

impl<T, E: Into<io::Error>> FileErrorContext<T> for Result<T, E> {
    fn during(self, action: &'static str, path: &Path) -> Result<T, FileError> {
        self.map_err(|source| FileError { action, path: path.to_owned(), source: source.into() })
    }
}

/// Creates a folder of our own; one that exists is an error.
pub(crate) fn create_dir(path: &Path) -> io::Result<()> {
    DirBuilder::new().mode(0o700).create(path)?;
    // The umask may have taken bits from the owner; it can never have added any.
    fs::set_permissions(path, Permissions::from_mode(0o700))
}

/// Makes sure that a folder of our own is there.
pub(crate) fn ensure_dir(path: &Path) -> io::Result<()> {
    match create_dir(path) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists && path.is_dir() => Ok(()),
        other => other,
    }
}

/// Makes sure that a folder of our own is there, and creates what is missing above it, all private.
///
/// # Errors
///
/// Why it cannot be made.
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

/// Opens a small file of our own for reading and writing, such as one that is locked; creates it where it is missing.
///
/// A symbolic link is refused. So is a pipe or a device, without waiting for it.
///
/// # Errors
///
/// Why it cannot be opened.
pub fn open_private(path: &Path) -> io::Result<File> {
    open(path, OFlags::RDWR | OFlags::CREATE)
}

/// Opens a file of our own as [`open_private`] does, if it exists.
///
/// # Errors
///
/// Why it cannot be opened.
pub fn open_private_existing(path: &Path) -> io::Result<File> {
    open(path, OFlags::RDWR)
}

/// Creates an empty file for appending; one that exists is an error.
pub(crate) fn create_new(path: &Path) -> io::Result<File> {
    open(path, OFlags::WRONLY | OFlags::APPEND | OFlags::CREATE | OFlags::EXCL)
}

/// Opens a file that exists for appending.
pub(crate) fn open_existing(path: &Path) -> io::Result<File> {
    open(path, OFlags::WRONLY | OFlags::APPEND)
}

/// Opens a file for reading.
pub(crate) fn open_read(path: &Path) -> io::Result<File> {
    open(path, OFlags::RDONLY)
}

/// Writes `bytes` to `path` so that a reader sees the old file or all of the new one.
///
/// Not synced: for projections, which can be rebuilt.
pub(crate) fn replace(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let (temp, mut file) = create_temp(path)?;
    let written = file.write_all(bytes).and_then(|()| fs::rename(&temp, path));
    if written.is_err() {
        // Best effort: the error that matters is the one above, and prune removes leftovers.
        let _ = fs::remove_file(&temp);
    }
    written
}

/// Does the same, and returns once the new file and its name are on disk.
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

/// Creates the file that will replace `path`, beside it.
pub(crate) fn create_temp(path: &Path) -> io::Result<(PathBuf, File)> {
    static COUNTER: AtomicU64 = AtomicU64::new(0);
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    loop {
        let nth = COUNTER.fetch_add(1, Ordering::Relaxed);
        let temp =
            path.with_file_name(format!(".{name}.{}.{nth}{TEMP_SUFFIX}", std::process::id()));
        match create_new(&temp) {
            // A process in another PID namespace may share our number.
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            other => return other.map(|file| (temp, file)),
        }
    }
}

/// Makes the names in a folder durable.
pub(crate) fn sync_dir(path: &Path) -> io::Result<()> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let dir = rustix::fs::open(path, flags, Mode::empty())?;
    Ok(rustix::fs::fsync(dir)?)
}

/// Removes a file or a whole folder; says whether there was one.
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
    // Not blocking: a FIFO planted under one of our names must be refused, not waited for.
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
