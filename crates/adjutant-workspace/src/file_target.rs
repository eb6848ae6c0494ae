//! A file to read or write: a handle to its parent directory, and its name.
//!
//! Writing follows no symbolic link in the path and replaces none. A file is replaced whole: the new content is
//! written to a temporary file beside it, fsynced, and renamed over it. To replace several files together, the
//! caller prepares all of them before it moves the first into place.
//!
//! Start at [`Root::file_target`] or [`Dir::file_target`], then [`FileTarget::replace`]. Invariant: nothing outside
//! the opened directory is created, changed or removed.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{ErrorKind, Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Component, Path};

use rustix::fs::{
    AtFlags, Mode, RenameFlags, fchmod, fstat, fsync, linkat, renameat, renameat_with, statat,
    unlinkat,
};
use rustix::io::Errno;

use crate::dir::{Dir, single_name};
use crate::kernel::{self, SymlinkPolicy};
use crate::{FileKind, PathError, RelPath, Root};

/// The mode bits that are copied; set-user-id and similar bits are dropped.
const KEPT_MODE: u32 = 0o777;

/// The write permission bits.
const WRITABLE: u32 = 0o222;

/// Bytes compared at a time.
const COMPARED_BYTES: usize = 64 * 1024;

/// The longest file name that common file systems accept.
const NAME_BYTES: usize = 255;

/// A file that exists or may be created, as an open parent directory and a name.
#[derive(Debug)]
pub struct FileTarget {
    /// The parent directory; `None` while it does not exist.
    folder: Option<OwnedFd>,
    name: OsString,
}

/// Content and permissions of a regular file as they were read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileImage {
    /// All of its content.
    pub bytes: Vec<u8>,
    /// Its permissions.
    pub mode: FileMode,
}

/// The permissions of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileMode(u32);

impl FileMode {
    /// Says whether no account may write the file.
    #[must_use]
    pub const fn is_read_only(self) -> bool {
        self.0 & WRITABLE == 0
    }

    fn permission_bits(self) -> Mode {
        Mode::from_raw_mode(self.0 & KEPT_MODE)
    }
}

/// Whether a file that is moved into place may replace another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Overwrite {
    /// An existing file is replaced.
    Allowed,
    /// An existing file stays, and the move fails.
    Refused,
}

/// What happens to missing parent directories.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MissingParents {
    /// They are created.
    Create,
    /// They stay missing, and so does the file.
    Leave,
}

impl Root {
    /// Returns the file `path`, which must lie below `below`.
    ///
    /// Both are relative to the root. `..`, symbolic links and git directories are refused.
    ///
    /// # Errors
    ///
    /// Why the path is refused; see [`PathError`].
    pub fn file_target(
        &self,
        below: &RelPath,
        path: &RelPath,
        folders: MissingParents,
    ) -> Result<FileTarget, PathError> {
        let inside =
            path.as_path().strip_prefix(below.as_path()).map_err(|_| PathError::Outside)?;
        let name = inside.file_name().ok_or(PathError::NotRegular(FileKind::Directory))?;
        let parts = || path.as_path().components();
        if parts().any(|part| matches!(part, Component::ParentDir)) {
            return Err(PathError::Outside);
        }
        // Git runs hooks and configured helpers without asking.
        if parts().any(|part| part.as_os_str().eq_ignore_ascii_case(".git")) {
            return Err(PathError::InGitDir);
        }
        if name.len() > NAME_BYTES {
            return Err(PathError::NameTooLong);
        }
        let folder = self.parent_dir_of(path.as_path(), folders)?;
        if let Some(folder) = &folder {
            self.check_file(folder, name)?;
        }
        Ok(FileTarget::new(folder, name))
    }

    /// Opens the parent directory of `file` without following a link; `None` if it is missing and is not created.
    pub(crate) fn parent_dir_of(
        &self,
        file: &Path,
        folders: MissingParents,
    ) -> Result<Option<OwnedFd>, PathError> {
        let path = file.parent().unwrap_or(Path::new(""));
        let whole = if path.as_os_str().is_empty() { Path::new(".") } else { path };
        match (open_dir_no_links(self.handle(), whole), folders) {
            (Err(PathError::NotFound), MissingParents::Leave) => Ok(None),
            (Err(PathError::NotFound), MissingParents::Create) => {
                self.make_parent_dirs(file).map(Some)
            }
            (opened, _) => {
                let folder = opened?;
                self.check_open(&folder)?;
                self.check_write(&folder, file, 0)?;
                Ok(Some(folder))
            }
        }
    }

    /// Refuses a directory inside a guarded git directory. The last `missing` directories on the way to `file` do
    /// not exist yet.
    pub(crate) fn check_write(
        &self,
        folder: impl AsFd,
        file: &Path,
        missing: usize,
    ) -> Result<(), PathError> {
        if let Some(read_only) = &self.read_only {
            read_only.check(&folder)?;
        }
        match &self.git {
            Some(git) => git.check_write(self.handle(), folder, file, missing),
            None => Ok(()),
        }
    }

    /// Refuses to replace a file that is itself protected or read-only.
    fn check_file(&self, folder: impl AsFd, name: &OsStr) -> Result<(), PathError> {
        let Ok(found) = statat(folder, name, AtFlags::SYMLINK_NOFOLLOW) else { return Ok(()) };
        let id = (found.st_dev, found.st_ino);
        let is_closed =
            [&self.closed, &self.read_only].into_iter().flatten().any(|it| it.contains_id(id));
        if is_closed { Err(PathError::Protected) } else { Ok(()) }
    }

    /// Creates the directories one by one from open handles, so that none is created outside the root.
    fn make_parent_dirs(&self, file: &Path) -> Result<OwnedFd, PathError> {
        let top = Dir::new(open_dir_no_links(self.handle(), Path::new("."))?);
        let mut at = top.with_protected(self.closed.clone());
        let names: Vec<&OsStr> = file.parent().unwrap_or(Path::new("")).iter().collect();
        for (depth, name) in names.iter().enumerate() {
            at = match at.open_dir(name) {
                Err(PathError::NotFound) => {
                    self.check_write(at.handle(), file, names.len() - depth)?;
                    at.ensure_dir(name)
                }
                opened => opened,
            }
            .map_err(link_error)?;
        }
        let folder = at.into_handle();
        self.check_open(&folder)?;
        self.check_write(&folder, file, 0)?;
        Ok(folder)
    }
}

impl FileTarget {
    pub(crate) fn new(folder: Option<OwnedFd>, name: &OsStr) -> Self {
        Self { folder, name: name.to_owned() }
    }

    /// Reads the file, if it exists; at most `max_bytes`.
    ///
    /// # Errors
    ///
    /// [`PathError::TooLarge`] beyond `max_bytes`, [`PathError::SymbolicLink`] for a symbolic link; otherwise why
    /// the file cannot be read.
    pub fn read(&self, max_bytes: u64) -> Result<Option<FileImage>, PathError> {
        let Some((file, mode, len)) = self.open()? else { return Ok(None) };
        let mut bytes = Vec::with_capacity(usize::try_from(len.min(max_bytes)).unwrap_or(0));
        let mut file = file.take(max_bytes.saturating_add(1));
        file.read_to_end(&mut bytes).map_err(PathError::Io)?;
        if bytes.len() as u64 > max_bytes {
            return Err(PathError::TooLarge { max_bytes });
        }
        Ok(Some(FileImage { bytes, mode }))
    }

    /// Says whether the file has exactly this content, or, for `None`, does not exist.
    ///
    /// # Errors
    ///
    /// Why the path cannot be read as a regular file.
    pub fn has_content(&self, bytes: Option<&[u8]>) -> Result<bool, PathError> {
        let (mut file, mut rest) = match (self.open()?, bytes) {
            (Some((file, _, len)), Some(bytes)) if len == bytes.len() as u64 => (file, bytes),
            (found, wanted) => return Ok(found.is_none() && wanted.is_none()),
        };
        let mut chunk = vec![0; COMPARED_BYTES];
        loop {
            match file.read(&mut chunk) {
                Ok(0) => return Ok(rest.is_empty()),
                Ok(count) => match rest.strip_prefix(&chunk[..count]) {
                    Some(behind) => rest = behind,
                    None => return Ok(false),
                },
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(PathError::Io(error)),
            }
        }
    }

    /// Returns the permissions of the file, if it exists.
    ///
    /// # Errors
    ///
    /// Why the path cannot be read as a regular file.
    pub fn mode(&self) -> Result<Option<FileMode>, PathError> {
        Ok(self.open()?.map(|(_, mode, _)| mode))
    }

    fn open(&self) -> Result<Option<(File, FileMode, u64)>, PathError> {
        let Some(folder) = &self.folder else { return Ok(None) };
        let opened =
            match kernel::open_regular(folder, Path::new(&self.name), SymlinkPolicy::Refuse) {
                Ok(opened) => opened,
                Err(PathError::NotFound) => return Ok(None),
                Err(error) => return Err(link_error(error)),
            };
        let stat = fstat(&opened.file).map_err(PathError::from_errno)?;
        Ok(Some((opened.file, FileMode(stat.st_mode), opened.len)))
    }

    /// Replaces the content of the file, which was `before` when it was last read, by `bytes`.
    ///
    /// The permissions stay. `temp` names the file beside it that is written first; a leftover file of that name is
    /// removed. A file that was created since is not replaced.
    ///
    /// # Errors
    ///
    /// [`PathError::ReadOnly`] when the file has no write permission; [`PathError::Exists`] when it was created
    /// since; otherwise why it could not be written. The file is then unchanged.
    pub fn replace(
        &self,
        bytes: &[u8],
        before: Option<&FileImage>,
        temp: &OsStr,
    ) -> Result<(), PathError> {
        self.prepare(bytes, before.map(|image| image.mode), temp)?;
        let over = if before.is_some() { Overwrite::Allowed } else { Overwrite::Refused };
        if let Err(error) = self.move_into_place(temp, over) {
            // Best effort: the caller gets the error above.
            let _ = self.remove_temp(temp);
            return Err(error);
        }
        self.sync()
    }

    /// Writes and fsyncs `bytes` to the file `temp` beside this one, with the permissions `mode` if given. A
    /// leftover file of that name is removed.
    ///
    /// # Errors
    ///
    /// [`PathError::ReadOnly`] when the file has no write permission; otherwise why it could not be written. The
    /// temporary file is then removed.
    pub fn prepare(
        &self,
        bytes: &[u8],
        mode: Option<FileMode>,
        temp: &OsStr,
    ) -> Result<(), PathError> {
        let folder = self.open_parent()?;
        if mode.is_some_and(FileMode::is_read_only) {
            return Err(PathError::ReadOnly);
        }
        remove_leftover(folder, temp)?;
        let done = write_temp(folder, bytes, mode, temp);
        if done.is_err() {
            // Best effort: the caller gets the error above.
            let _ = remove_leftover(folder, temp);
        }
        done
    }

    /// Renames the prepared file `temp` to this file; [`FileTarget::sync`] makes that durable.
    ///
    /// # Errors
    ///
    /// [`PathError::Exists`] when an existing file may not be replaced; otherwise why the rename failed. Both files
    /// are then unchanged.
    pub fn move_into_place(&self, temp: &OsStr, over: Overwrite) -> Result<(), PathError> {
        let (folder, temp, name) = (self.open_parent()?, single_name(temp)?, Path::new(&self.name));
        match over {
            Overwrite::Allowed => renameat(folder, temp, folder, name),
            Overwrite::Refused => {
                match renameat_with(folder, temp, folder, name, RenameFlags::NOREPLACE) {
                    // Some file systems do not support NOREPLACE. A hard link also fails if the file exists.
                    Err(Errno::INVAL) => linkat(folder, temp, folder, name, AtFlags::empty())
                        .and_then(|()| unlinkat(folder, temp, AtFlags::empty())),
                    done => done,
                }
            }
        }
        .map_err(|errno| match errno {
            Errno::EXIST => PathError::Exists,
            Errno::ISDIR => PathError::NotRegular(FileKind::Directory),
            errno => PathError::from_errno(errno),
        })
    }

    /// Removes the file and fsyncs its directory.
    ///
    /// # Errors
    ///
    /// Why it could not be removed.
    pub fn remove(&self) -> Result<(), PathError> {
        self.unlink()?;
        self.sync()
    }

    /// Removes the file without an fsync.
    ///
    /// # Errors
    ///
    /// Why it could not be removed.
    pub fn unlink(&self) -> Result<(), PathError> {
        unlinkat(self.open_parent()?, &self.name, AtFlags::empty()).map_err(PathError::from_errno)
    }

    /// Fsyncs the parent directory, which makes renames and removals durable.
    ///
    /// # Errors
    ///
    /// When the fsync fails.
    pub fn sync(&self) -> Result<(), PathError> {
        fsync(self.open_parent()?).map_err(PathError::from_errno)
    }

    fn open_parent(&self) -> Result<&OwnedFd, PathError> {
        self.folder.as_ref().ok_or(PathError::NotFound)
    }

    /// Removes the temporary file of an interrupted [`FileTarget::replace`], if it exists.
    ///
    /// # Errors
    ///
    /// Why it could not be removed.
    pub fn remove_temp(&self, temp: &OsStr) -> Result<(), PathError> {
        self.folder.as_ref().map_or(Ok(()), |folder| remove_leftover(folder, temp))
    }
}

fn write_temp(
    folder: &OwnedFd,
    bytes: &[u8],
    mode: Option<FileMode>,
    temp: &OsStr,
) -> Result<(), PathError> {
    // A new file gets its mode from the umask. A replacement stays private until its mode is set.
    let first = Mode::from_raw_mode(if mode.is_some() { 0o600 } else { 0o666 });
    let created = kernel::create(folder, single_name(temp)?, first);
    let mut file = File::from(created.map_err(PathError::from_errno)?);
    file.write_all(bytes).map_err(write_error)?;
    if let Some(mode) = mode {
        fchmod(&file, mode.permission_bits()).map_err(PathError::from_errno)?;
    }
    fsync(&file).map_err(PathError::from_errno)
}

fn remove_leftover(folder: &OwnedFd, temp: &OsStr) -> Result<(), PathError> {
    match unlinkat(folder, single_name(temp)?, AtFlags::empty()) {
        Ok(()) | Err(Errno::NOENT) => Ok(()),
        Err(errno) => Err(PathError::from_errno(errno)),
    }
}

fn write_error(error: std::io::Error) -> PathError {
    match error.raw_os_error().map(Errno::from_raw_os_error) {
        Some(errno @ (Errno::NOSPC | Errno::DQUOT)) => PathError::from_errno(errno),
        Some(_) | None => PathError::Io(error),
    }
}

fn open_dir_no_links(at: impl AsFd, path: &Path) -> Result<OwnedFd, PathError> {
    kernel::open_directory(&at, path, SymlinkPolicy::Refuse).map_err(link_error)
}

/// Reports a symbolic link as such: without following links, `ELOOP` means exactly that.
fn link_error(error: PathError) -> PathError {
    if matches!(error, PathError::Loop) { PathError::SymbolicLink } else { error }
}
