//! The root of a workspace: one directory handle, opened once.
//!
//! Everything an agent reads is opened beneath this handle, even after the directory was renamed. It does not
//! decide what may be read (see `adjutant-tools`).
//!
//! Start at [`Root::open`]. Invariant: every returned handle lies beneath the root.

use std::any::Any;
use std::fs::File;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::{CWD, FileType, Mode, OFlags, fstat, openat};
use rustix::io::Errno;

use crate::dir::Dir;
use crate::git_guard::GitGuard;
use crate::kernel::{self, SymlinkPolicy};
use crate::protected::ProtectedPaths;
use crate::{FileKind, PathError, RelPath};

/// A workspace's root directory.
#[derive(Debug)]
pub struct Root {
    handle: OwnedFd,
    /// The root's path as given and with links resolved; only for comparing and showing.
    names: Vec<PathBuf>,
    /// Paths that must not be opened.
    pub(crate) closed: Option<ProtectedPaths>,
    /// Paths that may be read but not written.
    pub(crate) read_only: Option<ProtectedPaths>,
    /// Git directories that must not be written, besides those called `.git`.
    pub(crate) git: Option<GitGuard>,
    /// Dropped with the root, such as the mount that the handle belongs to.
    _keep_alive: Option<Arc<dyn Any + Send + Sync>>,
}

/// A regular file beneath a root, open for reading.
#[derive(Debug)]
pub struct OpenedFile {
    /// The open file.
    pub file: File,
    /// Its size in bytes when it was opened; it may have changed since.
    pub len: u64,
}

impl Root {
    /// Opens the directory at `path` as a root.
    ///
    /// # Errors
    ///
    /// [`PathError::Unsupported`] if the kernel has no `openat2`; otherwise why the directory cannot be opened.
    pub fn open(path: impl AsRef<Path>) -> Result<Self, PathError> {
        let path = path.as_ref();
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let handle = openat(CWD, path, flags, Mode::empty()).map_err(PathError::from_errno)?;
        let mut names: Vec<PathBuf> = std::path::absolute(path).into_iter().collect();
        if let Ok(resolved) = std::fs::canonicalize(path)
            && !names.contains(&resolved)
        {
            names.push(resolved);
        }
        Self::check_openat2(handle, names)
    }

    /// Uses an open directory as a root. Models know it by the absolute path `name`.
    ///
    /// For workspaces without a path in this process, such as an overlay mounted in another namespace.
    ///
    /// # Errors
    ///
    /// [`PathError::NotDirectory`] if it is not a directory, [`PathError::Unsupported`] as in [`Root::open`].
    pub fn from_handle(handle: OwnedFd, name: impl Into<PathBuf>) -> Result<Self, PathError> {
        let stat = fstat(&handle).map_err(PathError::from_errno)?;
        match FileKind::of(FileType::from_raw_mode(stat.st_mode)) {
            FileKind::Directory => Self::check_openat2(handle, vec![name.into()]),
            FileKind::Regular
            | FileKind::Symlink
            | FileKind::Fifo
            | FileKind::Socket
            | FileKind::CharDevice
            | FileKind::BlockDevice
            | FileKind::Unknown => Err(PathError::NotDirectory),
        }
    }

    /// Lets models also use the absolute path `name` for the root, and shows that one.
    #[must_use]
    pub fn known_as(mut self, name: &Path) -> Self {
        self.names.retain(|known| known != name);
        self.names.insert(0, name.to_owned());
        self
    }

    /// Returns the directory `folder` beneath this root as a root, with the same protection.
    ///
    /// # Errors
    ///
    /// Why it was not opened, such as a symbolic link on the way.
    pub fn subfolder(mut self, folder: &Path) -> Result<Self, PathError> {
        if !folder.as_os_str().is_empty() {
            self.handle = kernel::open_directory(&self.handle, folder, SymlinkPolicy::Refuse)?;
            self.check_open(&self.handle)?;
            self.names = self.names.iter().map(|name| name.join(folder)).collect();
        }
        Ok(self)
    }

    /// Keeps a value alive until the root is dropped.
    pub(crate) fn keeping_alive(mut self, what: Arc<dyn Any + Send + Sync>) -> Self {
        self._keep_alive = Some(what);
        self
    }

    /// Refuses to open a directory or file from now on, whatever path leads to it, even if it is created later.
    pub fn protect(&mut self, folder: &Path) {
        self.closed = ProtectedPaths::with_added(self.closed.as_ref(), &self.handle, folder);
    }

    /// Refuses writes to a directory or file from now on, as [`Root::protect`] does; it may be read.
    pub fn make_read_only(&mut self, folder: &Path) {
        self.read_only = ProtectedPaths::with_added(self.read_only.as_ref(), &self.handle, folder);
    }

    /// Refuses writes to git directories from now on: those of the repositories around the root, by device and
    /// inode, and every directory that looks like one. For a user's own work tree that agents write to.
    pub fn guard_git_dirs(&mut self) {
        self.git = Some(GitGuard::around(self.path()));
    }

    /// Refuses writes to the git directories of a guard.
    pub(crate) fn with_git_guard(mut self, git: GitGuard) -> Self {
        self.git = Some(git);
        self
    }

    /// Returns the path the root was opened with, for messages only.
    #[must_use]
    pub fn path(&self) -> &Path {
        self.names.first().map_or(Path::new(""), PathBuf::as_path)
    }

    /// Converts a path that a model wrote: relative, or absolute below the root's own path.
    ///
    /// The root's path is removed as text only; opening the rest is confined as usual.
    ///
    /// # Errors
    ///
    /// [`PathError::Outside`] for other absolute paths, [`PathError::Invalid`] for a NUL byte.
    pub fn relative(&self, written: impl AsRef<Path>) -> Result<RelPath, PathError> {
        let written = written.as_ref();
        let below = self.names.iter().find_map(|name| written.strip_prefix(name).ok());
        RelPath::new(below.unwrap_or(written))
    }

    /// Opens a regular file, following symbolic links that stay beneath the root.
    ///
    /// # Errors
    ///
    /// Why it was not opened; see [`PathError`].
    pub fn open_file(&self, path: &RelPath) -> Result<OpenedFile, PathError> {
        let opened =
            kernel::open_regular(&self.handle, path.to_open(), SymlinkPolicy::FollowBeneath)?;
        self.check_open(&opened.file)?;
        Ok(opened)
    }

    /// Opens a directory, following symbolic links that stay beneath the root.
    ///
    /// # Errors
    ///
    /// Why it was not opened; see [`PathError`].
    pub fn open_dir(&self, path: &RelPath) -> Result<Dir, PathError> {
        let handle =
            kernel::open_directory(&self.handle, path.to_open(), SymlinkPolicy::FollowBeneath)?;
        self.check_open(&handle)?;
        Ok(Dir::new(handle).with_protected(self.closed.clone()))
    }

    /// Refuses a handle to a protected path.
    pub(crate) fn check_open(&self, handle: impl AsFd) -> Result<(), PathError> {
        self.closed.as_ref().map_or(Ok(()), |closed| closed.check(handle))
    }

    /// Returns the device and inode of the root, which are the same for every handle to it.
    ///
    /// # Errors
    ///
    /// When `fstat` fails.
    pub fn identity(&self) -> Result<(u64, u64), PathError> {
        let stat = fstat(&self.handle).map_err(PathError::from_errno)?;
        Ok((stat.st_dev, stat.st_ino))
    }

    pub(crate) const fn handle(&self) -> &OwnedFd {
        &self.handle
    }

    /// Checks once that `openat2` works, so that later errors are about paths.
    fn check_openat2(handle: OwnedFd, names: Vec<PathBuf>) -> Result<Self, PathError> {
        match kernel::open(&handle, Path::new("."), OFlags::PATH, SymlinkPolicy::Refuse) {
            Ok(_) => Ok(Self {
                handle,
                names,
                closed: None,
                read_only: None,
                git: None,
                _keep_alive: None,
            }),
            // Some seccomp filters return EPERM for system calls they do not know.
            Err(Errno::NOSYS | Errno::PERM) => Err(PathError::Unsupported),
            Err(errno) => Err(PathError::from_errno(errno)),
        }
    }
}
