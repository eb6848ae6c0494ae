//! Open directories: listing them and opening what they hold.
//!
//! Walking from handle to handle cannot be redirected by a rename. Symbolic links are never followed here, because
//! a target beneath *this* directory need not lie beneath the root.

use std::ffi::{OsStr, OsString};
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, FileType, RawDir, statat};
use rustix::io::Errno;

use crate::kernel::{self, SymlinkPolicy};
use crate::protected::ProtectedPaths;
use crate::root::OpenedFile;
use crate::{FileKind, PathError};

/// Bytes of names fetched per system call; the size glibc uses.
const BUFFER_BYTES: usize = 32 * 1024;

/// The longest path passed to the kernel at once; PATH_MAX is 4,096 with its NUL.
const MAX_PART_BYTES: usize = 2048;

/// An open directory beneath a root.
#[derive(Debug)]
pub struct Dir {
    handle: OwnedFd,
    closed: Option<ProtectedPaths>,
}

/// An entry of a directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DirEntry {
    /// The file name: any bytes but `/` and NUL.
    pub name: OsString,
    /// The kind of file; symbolic links are not followed.
    pub kind: FileKind,
}

/// The entries of a directory.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DirListing {
    /// The entries sorted by name, bytewise, without `.` and `..`.
    pub entries: Vec<DirEntry>,
    /// Whether there are more entries than were asked for. The kernel decides which ones are left out.
    pub truncated: bool,
}

impl Dir {
    pub(crate) fn new(handle: OwnedFd) -> Self {
        Self { handle, closed: None }
    }

    /// Refuses to open these protected paths from here.
    pub(crate) fn with_protected(self, closed: Option<ProtectedPaths>) -> Self {
        Self { closed, ..self }
    }

    pub(crate) fn handle(&self) -> &OwnedFd {
        &self.handle
    }

    pub(crate) fn into_handle(self) -> OwnedFd {
        self.handle
    }

    /// Lists at most `max` entries, sorted.
    ///
    /// # Errors
    ///
    /// When the directory cannot be read.
    pub fn list(&self, max: usize) -> Result<DirListing, PathError> {
        // Opens the directory again: the read position belongs to the open file description.
        let handle = kernel::open_directory(&self.handle, Path::new("."), SymlinkPolicy::Refuse)?;
        let mut buffer = vec![MaybeUninit::uninit(); BUFFER_BYTES];
        let mut reader = RawDir::new(handle, &mut buffer);
        let mut listing = DirListing::default();
        while let Some(next) = reader.next() {
            let entry = match next {
                Ok(entry) => entry,
                Err(Errno::INTR) => continue,
                Err(errno) => return Err(PathError::from_errno(errno)),
            };
            let name = OsStr::from_bytes(entry.file_name().to_bytes());
            if name == "." || name == ".." {
                continue;
            }
            if listing.entries.len() == max {
                listing.truncated = true;
                break;
            }
            let kind = self.kind(name, entry.file_type());
            listing.entries.push(DirEntry { name: name.to_owned(), kind });
        }
        listing.entries.sort_unstable_by(|a, b| a.name.cmp(&b.name));
        Ok(listing)
    }

    /// Opens the regular file called `name`; a symbolic link is refused.
    ///
    /// # Errors
    ///
    /// Why it was not opened; [`PathError::Outside`] if `name` is not a single path component.
    pub fn open_file(&self, name: &OsStr) -> Result<OpenedFile, PathError> {
        kernel::open_regular(&self.handle, single_name(name)?, SymlinkPolicy::Refuse)
    }

    /// Opens the directory called `name`; a symbolic link is refused.
    ///
    /// # Errors
    ///
    /// Why it was not opened; [`PathError::Outside`] if `name` is not a single path component.
    pub fn open_dir(&self, name: &OsStr) -> Result<Self, PathError> {
        let handle =
            kernel::open_directory(&self.handle, single_name(name)?, SymlinkPolicy::Refuse)?;
        if self.closed.as_ref().is_some_and(|closed| closed.is_one(&handle)) {
            return Err(PathError::Protected);
        }
        Ok(Self::new(handle).with_protected(self.closed.clone()))
    }

    /// Opens a directory any number of levels below without following a symbolic link.
    ///
    /// Resolves a path that is too long for the kernel in several parts.
    ///
    /// # Errors
    ///
    /// Why it was not opened; [`PathError::Outside`] if `path` is absolute or contains `..`.
    pub fn descend(&self, path: &Path) -> Result<Self, PathError> {
        let mut step = PathBuf::from(".");
        let mut reached: Option<OwnedFd> = None;
        for name in path {
            let name = single_name(name)?;
            if step.as_os_str().len() + name.as_os_str().len() > MAX_PART_BYTES {
                reached = Some(self.open_part(reached.as_ref(), &step)?);
                step = PathBuf::from(".");
            }
            step.push(name);
        }
        let handle = self.open_part(reached.as_ref(), &step)?;
        self.closed.as_ref().map_or(Ok(()), |closed| closed.check(&handle))?;
        Ok(Self::new(handle).with_protected(self.closed.clone()))
    }

    fn open_part(&self, from: Option<&OwnedFd>, path: &Path) -> Result<OwnedFd, PathError> {
        kernel::open_directory(from.unwrap_or(&self.handle), path, SymlinkPolicy::Refuse)
    }

    fn kind(&self, name: &OsStr, listed: FileType) -> FileKind {
        let kind = FileKind::of(listed);
        if kind != FileKind::Unknown {
            return kind;
        }
        // Some file systems do not report the kind in directory listings.
        statat(&self.handle, name, AtFlags::SYMLINK_NOFOLLOW)
            .map_or(FileKind::Unknown, |stat| FileKind::of(FileType::from_raw_mode(stat.st_mode)))
    }
}

/// Refuses a name that is not exactly one path component.
pub(crate) fn single_name(name: &OsStr) -> Result<&Path, PathError> {
    match name.as_bytes() {
        b"" | b"." | b".." => Err(PathError::Outside),
        bytes if bytes.contains(&b'/') => Err(PathError::Outside),
        bytes if bytes.contains(&0) => Err(PathError::Invalid),
        _ => Ok(Path::new(name)),
    }
}
