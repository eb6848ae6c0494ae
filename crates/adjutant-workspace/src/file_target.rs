//! A place for a file: the folder it lies in, as a handle, and its name there.
//!
//! Writing follows no symbolic link, anywhere on the way, and replaces none. A file is replaced
//! whole: what is new is written beside it, synced, and renamed over it. Whoever replaces several
//! files together prepares all of them before the first takes its place.
//!
//! Start at [`Root::file_target`] or [`Dir::file_target`], then [`FileTarget::replace`]. Invariant: nothing outside the folder a place was opened beneath is
//! created, changed or removed.

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

/// The bits of a mode that are kept; nothing written here runs as somebody else.
const KEPT_MODE: u32 = 0o777;

/// Who may write a file.
const WRITABLE: u32 = 0o222;

/// Bytes compared at a time.
const COMPARED_BYTES: usize = 64 * 1024;

/// The longest a file's name may be.
const NAME_BYTES: usize = 255;

/// A place where a file is, or may come to be.
#[derive(Debug)]
pub struct FileTarget {
    /// The folder; absent while it is not there.
    folder: Option<OwnedFd>,
    name: OsString,
}

/// A regular file as it was read.
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
    fn is_read_only(self) -> bool {
        self.0 & WRITABLE == 0
    }

    fn kept(self) -> Mode {
        Mode::from_raw_mode(self.0 & KEPT_MODE)
    }
}

/// What a file that takes its place may take it from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Overwrite {
    /// The file that is there.
    Allowed,
    /// Nothing: what came to be there meanwhile stays.
    Refused,
}

/// Whether folders that are missing on the way are made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MissingParents {
    /// They are made.
    Create,
    /// They are not; the place is then empty.
    Leave,
}

impl Root {
    /// Opens the place of the file `path`, which must lie below `below`.
    ///
    /// Both are relative to the root. `..`, symbolic links and the folders of git are refused.
    ///
    /// # Errors
    ///
    /// Why there can be no such place; see [`PathError`].
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
        // A hook or a configuration of git is a program that a person runs without looking.
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

    /// Opens the folder that a file is to be written in, without following a link; nothing where it is missing.
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

    /// Refuses a folder in a git directory that is guarded. The last `missing` folders on the way to `file` do
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

    /// Refuses to replace a file that is itself out of reach or read-only.
    fn check_file(&self, folder: impl AsFd, name: &OsStr) -> Result<(), PathError> {
        let Ok(found) = statat(folder, name, AtFlags::SYMLINK_NOFOLLOW) else { return Ok(()) };
        let id = (found.st_dev, found.st_ino);
        let is_closed =
            [&self.closed, &self.read_only].into_iter().flatten().any(|it| it.contains_id(id));
        if is_closed { Err(PathError::Protected) } else { Ok(()) }
    }

    /// Goes down from handle to handle, so that nothing is made anywhere but in what was opened.
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
            .map_err(as_link)?;
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

    /// Reads the file, if there is one; at most `max_bytes`.
    ///
    /// # Errors
    ///
    /// [`PathError::TooLarge`] beyond `max_bytes`, [`PathError::SymbolicLink`] for a symbolic link; otherwise
    /// why what is there is no file that can be read.
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

    /// Says whether the file holds exactly `bytes`; for none, whether there is none.
    ///
    /// # Errors
    ///
    /// Why what is there is no file that can be read.
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

    /// Returns the permissions of the file, if there is one.
    ///
    /// # Errors
    ///
    /// Why what is there is no file that can be read.
    pub fn mode(&self) -> Result<Option<FileMode>, PathError> {
        Ok(self.open()?.map(|(_, mode, _)| mode))
    }

    fn open(&self) -> Result<Option<(File, FileMode, u64)>, PathError> {
        let Some(folder) = &self.folder else { return Ok(None) };
        let opened =
            match kernel::open_regular(folder, Path::new(&self.name), SymlinkPolicy::Refuse) {
                Ok(opened) => opened,
                Err(PathError::NotFound) => return Ok(None),
                Err(error) => return Err(as_link(error)),
            };
        let stat = fstat(&opened.file).map_err(PathError::from_errno)?;
        Ok(Some((opened.file, FileMode(stat.st_mode), opened.len)))
    }

    /// Makes `bytes` the content of the file, which was `before` when it was last looked at.
    ///
    /// The permissions stay. `temp` names the file beside it that is written first; a leftover of
    /// that name is removed. A file that came to be since is not replaced.
    ///
    /// # Errors
    ///
    /// [`PathError::ReadOnly`] when nobody may write the file; [`PathError::Exists`] when there was to
    /// be none; otherwise why it could not be written. The file is then as it was.
    pub fn replace(
        &self,
        bytes: &[u8],
        before: Option<&FileImage>,
        temp: &OsStr,
    ) -> Result<(), PathError> {
        self.prepare(bytes, before.map(|image| image.mode), temp)?;
        let over = if before.is_some() { Overwrite::Allowed } else { Overwrite::Refused };
        if let Err(error) = self.move_into_place(temp, over) {
            // Best effort: the error that matters is the one above.
            let _ = self.remove_temp(temp);
            return Err(error);
        }
        self.sync()
    }

    /// Writes `bytes` beside the file, as `temp`, whole and synced, with the permissions `mode` where
    /// the file is to keep some; a leftover of that name is removed.
    ///
    /// # Errors
    ///
    /// [`PathError::ReadOnly`] when nobody may write the file; otherwise why it could not be written.
    /// What was begun is removed again.
    pub fn prepare(
        &self,
        bytes: &[u8],
        mode: Option<FileMode>,
        temp: &OsStr,
    ) -> Result<(), PathError> {
        let folder = self.folder()?;
        if mode.is_some_and(FileMode::is_read_only) {
            return Err(PathError::ReadOnly);
        }
        remove_leftover(folder, temp)?;
        let done = write_temp(folder, bytes, mode, temp);
        if done.is_err() {
            // Best effort: the error that matters is the one above.
            let _ = remove_leftover(folder, temp);
        }
        done
    }

    /// Lets the file that was prepared as `temp` take its place; [`FileTarget::sync`] makes that durable.
    ///
    /// # Errors
    ///
    /// [`PathError::Exists`] when something is there that was not to be; otherwise why it could not.
    /// Both files are then as they were.
    pub fn move_into_place(&self, temp: &OsStr, over: Overwrite) -> Result<(), PathError> {
        let (folder, temp, name) = (self.folder()?, single_name(temp)?, Path::new(&self.name));
        match over {
            Overwrite::Allowed => renameat(folder, temp, folder, name),
            Overwrite::Refused => {
                match renameat_with(folder, temp, folder, name, RenameFlags::NOREPLACE) {
                    // Some file systems cannot promise it; a second name is as good, and then the
                    // first goes.
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

    /// Removes the file, durably.
    ///
    /// # Errors
    ///
    /// Why it could not be removed.
    pub fn remove(&self) -> Result<(), PathError> {
        self.unlink()?;
        self.sync()
    }

    /// Removes the file, and does not wait until that is durable.
    ///
    /// # Errors
    ///
    /// Why it could not be removed.
    pub fn unlink(&self) -> Result<(), PathError> {
        unlinkat(self.folder()?, &self.name, AtFlags::empty()).map_err(PathError::from_errno)
    }

    /// Makes what was last done at the place durable.
    ///
    /// # Errors
    ///
    /// When the disk does not confirm it.
    pub fn sync(&self) -> Result<(), PathError> {
        fsync(self.folder()?).map_err(PathError::from_errno)
    }

    fn folder(&self) -> Result<&OwnedFd, PathError> {
        self.folder.as_ref().ok_or(PathError::NotFound)
    }

    /// Removes what an interrupted [`FileTarget::replace`] left beside the file, if anything.
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
    // The umask has its say where the file is new; where it is not, nobody reads it too early.
    let first = Mode::from_raw_mode(if mode.is_some() { 0o600 } else { 0o666 });
    let created = kernel::create(folder, single_name(temp)?, first);
    let mut file = File::from(created.map_err(PathError::from_errno)?);
    file.write_all(bytes).map_err(write_error)?;
    if let Some(mode) = mode {
        fchmod(&file, mode.kept()).map_err(PathError::from_errno)?;
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
    kernel::open_directory(&at, path, SymlinkPolicy::Refuse).map_err(as_link)
}

/// Where no link is followed, one on the way is the whole reason.
fn as_link(error: PathError) -> PathError {
    if matches!(error, PathError::Loop) { PathError::SymbolicLink } else { error }
}
