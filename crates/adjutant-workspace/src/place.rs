//! A place for a file: the folder it lies in, as a handle, and its name there.
//!
//! Writing follows no symbolic link, anywhere on the way, and replaces none. A file is replaced
//! whole: what is new is written beside it, synced, and renamed over it.
//!
//! Start at [`Root::place`]. Invariant: nothing outside the folder a place was opened beneath is
//! created, changed or removed.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path};

use rustix::fs::{
    AtFlags, Mode, OFlags, RenameFlags, fchmod, fstat, fsync, linkat, mkdirat, renameat,
    renameat_with, unlinkat,
};
use rustix::io::Errno;

use crate::kernel::{self, Links};
use crate::{FileKind, PathError, RelPath, Root};

/// The bits of a mode that are kept; nothing written here runs as somebody else.
const KEPT_MODE: u32 = 0o777;

/// Who may write a file.
const WRITABLE: u32 = 0o222;

/// The longest a file's name may be.
const NAME_BYTES: usize = 255;

/// A place where a file is, or may come to be.
#[derive(Debug)]
pub struct Place {
    /// The folder; absent while it is not there.
    folder: Option<OwnedFd>,
    name: OsString,
}

/// A regular file as it was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Image {
    /// All of its content.
    pub bytes: Vec<u8>,
    /// Its permissions.
    mode: u32,
}

/// Whether folders that are missing on the way are made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Folders {
    /// They are made.
    Made,
    /// They are not; the place is then empty.
    Expected,
}

impl Root {
    /// Opens the place of the file `path`, which must lie below `below`.
    ///
    /// Both are relative to the root. `..`, symbolic links and the folders of git are refused.
    ///
    /// # Errors
    ///
    /// Why there can be no such place; see [`PathError`].
    pub fn place(
        &self,
        below: &RelPath,
        path: &RelPath,
        folders: Folders,
    ) -> Result<Place, PathError> {
        let inside =
            path.as_path().strip_prefix(below.as_path()).map_err(|_| PathError::Outside)?;
        let name = inside.file_name().ok_or(PathError::NotRegular(FileKind::Directory))?;
        let parts = || path.as_path().components();
        if parts().any(|part| matches!(part, Component::ParentDir)) {
            return Err(PathError::Outside);
        }
        // A hook or a configuration of git is a program that a person runs without looking.
        if parts().any(|part| part.as_os_str().eq_ignore_ascii_case(".git")) {
            return Err(PathError::Guarded);
        }
        if name.len() > NAME_BYTES {
            return Err(PathError::NameTooLong);
        }
        let parent = path.as_path().parent().unwrap_or(Path::new(""));
        let folder = self.folder(parent, folders)?;
        Ok(Place { folder, name: name.to_owned() })
    }

    /// Opens a folder without following a link; nothing where it is missing.
    pub(crate) fn folder(
        &self,
        path: &Path,
        folders: Folders,
    ) -> Result<Option<OwnedFd>, PathError> {
        let whole = if path.as_os_str().is_empty() { Path::new(".") } else { path };
        match (open_folder(self.handle(), whole), folders) {
            (Err(PathError::NotFound), Folders::Expected) => Ok(None),
            (Err(PathError::NotFound), Folders::Made) => self.make_folders(path).map(Some),
            (opened, _) => opened.map(Some),
        }
    }

    /// Goes down from handle to handle, so that nothing is made anywhere but in what was opened.
    fn make_folders(&self, path: &Path) -> Result<OwnedFd, PathError> {
        let mut at = open_folder(self.handle(), Path::new("."))?;
        for name in path {
            let name = Path::new(name);
            match open_folder(&at, name) {
                Err(PathError::NotFound) => {
                    let mode = Mode::from_raw_mode(KEPT_MODE);
                    match mkdirat(&at, name, mode) {
                        // Someone else was faster; whether it is a folder is seen below.
                        Ok(()) | Err(Errno::EXIST) => {}
                        Err(errno) => return Err(PathError::from_errno(errno)),
                    }
                    fsync(&at).map_err(PathError::from_errno)?;
                    at = open_folder(&at, name)?;
                }
                opened => at = opened?,
            }
        }
        Ok(at)
    }
}

impl Place {
    /// Reads the file, if there is one; at most `max_bytes`.
    ///
    /// # Errors
    ///
    /// [`PathError::TooLarge`] beyond `max_bytes`, [`PathError::Link`] for a symbolic link; otherwise
    /// why what is there is no file that can be read.
    pub fn read(&self, max_bytes: u64) -> Result<Option<Image>, PathError> {
        let Some(folder) = &self.folder else { return Ok(None) };
        let opened = match kernel::open_regular(folder, Path::new(&self.name), Links::Never) {
            Ok(opened) => opened,
            Err(PathError::NotFound) => return Ok(None),
            Err(PathError::Loop) => return Err(PathError::Link),
            Err(error) => return Err(error),
        };
        let stat = fstat(&opened.file).map_err(PathError::from_errno)?;
        let mut bytes = Vec::new();
        let mut file = opened.file.take(max_bytes.saturating_add(1));
        file.read_to_end(&mut bytes).map_err(PathError::Io)?;
        if bytes.len() as u64 > max_bytes {
            return Err(PathError::TooLarge { max_bytes });
        }
        Ok(Some(Image { bytes, mode: stat.st_mode }))
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
        before: Option<&Image>,
        temp: &OsStr,
    ) -> Result<(), PathError> {
        let folder = self.folder.as_ref().ok_or(PathError::NotFound)?;
        if before.is_some_and(|image| image.mode & WRITABLE == 0) {
            return Err(PathError::ReadOnly);
        }
        remove_leftover(folder, temp)?;
        let done = self.write_beside(folder, bytes, before, temp);
        if done.is_err() {
            // Best effort: the error that matters is the one above.
            let _ = unlinkat(folder, temp, AtFlags::empty());
        }
        done
    }

    fn write_beside(
        &self,
        folder: &OwnedFd,
        bytes: &[u8],
        before: Option<&Image>,
        temp: &OsStr,
    ) -> Result<(), PathError> {
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW;
        // The umask has its say where the file is new; where it is not, nobody reads it too early.
        let mode = Mode::from_raw_mode(if before.is_some() { 0o600 } else { 0o666 });
        let handle = rustix::fs::openat(folder, single(temp)?, flags | OFlags::CLOEXEC, mode)
            .map_err(PathError::from_errno)?;
        let mut file = File::from(handle);
        file.write_all(bytes).map_err(full_or_broken)?;
        if let Some(image) = before {
            let mode = Mode::from_raw_mode(image.mode & KEPT_MODE);
            fchmod(&file, mode).map_err(PathError::from_errno)?;
        }
        fsync(&file).map_err(PathError::from_errno)?;
        if before.is_some() {
            renameat(folder, temp, folder, &self.name)
        } else {
            match renameat_with(folder, temp, folder, &self.name, RenameFlags::NOREPLACE) {
                // Some file systems cannot promise it; a second name is as good, and then the first goes.
                Err(Errno::INVAL) => linkat(folder, temp, folder, &self.name, AtFlags::empty())
                    .and_then(|()| unlinkat(folder, temp, AtFlags::empty())),
                done => done,
            }
        }
        .map_err(|errno| match errno {
            Errno::EXIST => PathError::Exists,
            Errno::ISDIR => PathError::NotRegular(FileKind::Directory),
            errno => PathError::from_errno(errno),
        })?;
        fsync(folder).map_err(PathError::from_errno)
    }

    /// Removes the file.
    ///
    /// # Errors
    ///
    /// Why it could not be removed.
    pub fn remove(&self) -> Result<(), PathError> {
        let folder = self.folder.as_ref().ok_or(PathError::NotFound)?;
        unlinkat(folder, &self.name, AtFlags::empty()).map_err(PathError::from_errno)?;
        fsync(folder).map_err(PathError::from_errno)
    }

    /// Removes what an interrupted [`Place::replace`] left beside the file, if anything.
    ///
    /// # Errors
    ///
    /// Why it could not be removed.
    pub fn clean(&self, temp: &OsStr) -> Result<(), PathError> {
        self.folder.as_ref().map_or(Ok(()), |folder| remove_leftover(folder, temp))
    }
}

fn remove_leftover(folder: &OwnedFd, temp: &OsStr) -> Result<(), PathError> {
    match unlinkat(folder, single(temp)?, AtFlags::empty()) {
        Ok(()) | Err(Errno::NOENT) => Ok(()),
        Err(errno) => Err(PathError::from_errno(errno)),
    }
}

fn full_or_broken(error: std::io::Error) -> PathError {
    match error.raw_os_error().map(Errno::from_raw_os_error) {
        Some(errno @ (Errno::NOSPC | Errno::DQUOT)) => PathError::from_errno(errno),
        Some(_) | None => PathError::Io(error),
    }
}

fn single(name: &OsStr) -> Result<&Path, PathError> {
    if name.is_empty() || name.as_bytes().contains(&b'/') {
        return Err(PathError::Outside);
    }
    Ok(Path::new(name))
}

fn open_folder(at: impl AsFd, path: &Path) -> Result<OwnedFd, PathError> {
    kernel::open_directory(&at, path, Links::Never)
        .map_err(|error| if matches!(error, PathError::Loop) { PathError::Link } else { error })
}
