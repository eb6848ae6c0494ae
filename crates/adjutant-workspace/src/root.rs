//! The root of a workspace: one directory handle, opened once.
//!
//! Everything an agent reads is opened beneath this handle, whatever happens to the path the
//! root once had. It does not decide what may be read (see `adjutant-tools`).
//!
//! Start at [`Root::open`]. Invariant: no handle given out lies outside the root.

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
    /// The root's path as given and with links resolved; text only, never opened again.
    names: Vec<PathBuf>,
    /// Directories out of reach, wherever they lie.
    pub(crate) closed: Option<ProtectedPaths>,
    /// Directories that may be read and not written, wherever they lie.
    pub(crate) read_only: Option<ProtectedPaths>,
    /// Git directories that nothing is written in, besides those called `.git`.
    pub(crate) git: Option<GitGuard>,
    /// Something that must live as long as the handle is used.
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
    /// [`PathError::Unsupported`] where the kernel has no `openat2`; otherwise why `path` is no
    /// directory that can be opened.
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
        Self::checked(handle, names)
    }

    /// Takes an open directory handle as a root, known to models by the absolute path `name`.
    ///
    /// For workspaces that no path of this process leads to, such as an overlay mounted elsewhere.
    ///
    /// # Errors
    ///
    /// [`PathError::NotDirectory`] when the handle is none, [`PathError::Unsupported`] as in [`Root::open`].
    pub fn from_handle(handle: OwnedFd, name: impl Into<PathBuf>) -> Result<Self, PathError> {
        let stat = fstat(&handle).map_err(PathError::from_errno)?;
        match FileKind::of(FileType::from_raw_mode(stat.st_mode)) {
            FileKind::Directory => Self::checked(handle, vec![name.into()]),
            FileKind::Regular
            | FileKind::Symlink
            | FileKind::Fifo
            | FileKind::Socket
            | FileKind::CharDevice
            | FileKind::BlockDevice
            | FileKind::Unknown => Err(PathError::NotDirectory),
        }
    }

    /// Keeps something alive for as long as the root is.
    pub(crate) fn keeping_alive(mut self, what: Arc<dyn Any + Send + Sync>) -> Self {
        self._keep_alive = Some(what);
        self
    }

    /// Keeps a directory or a file out of reach from now on, besides those before, whatever path leads to it; also one that does
    /// not exist yet.
    pub fn close(&mut self, folder: &Path) {
        self.closed = ProtectedPaths::adding(self.closed.as_ref(), &self.handle, folder);
    }

    /// Refuses to write in a directory from now on, as [`Root::close`] does; it may be read.
    pub fn make_read_only(&mut self, folder: &Path) {
        self.read_only = ProtectedPaths::adding(self.read_only.as_ref(), &self.handle, folder);
    }

    /// Refuses to write in git directories from now on: those of the repository that the root lies in, by device
    /// and inode, and every directory that looks like one. For a tree of a person that agents write in.
    pub fn guard_git_dirs(&mut self) {
        self.git = Some(GitGuard::around(self.path()));
    }

    /// Refuses to write in the git directories of a guard.
    pub(crate) fn guarding(mut self, git: GitGuard) -> Self {
        self.git = Some(git);
        self
    }

    /// Returns the path the root was opened by; for showing, not for opening.
    #[must_use]
    pub fn path(&self) -> &Path {
        self.names.first().map_or(Path::new(""), PathBuf::as_path)
    }

    /// Takes a path as a model wrote it: relative, or absolute below the root's own path.
    ///
    /// The prefix is removed as text; opening the rest is confined all the same.
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

    /// Refuses what lies in a directory that is out of reach.
    pub(crate) fn check_open(&self, handle: impl AsFd) -> Result<(), PathError> {
        self.closed.as_ref().map_or(Ok(()), |closed| closed.check(handle))
    }

    /// Returns the numbers of the device and the directory, the same for every handle to this root.
    ///
    /// # Errors
    ///
    /// Why the system does not tell.
    pub fn identity(&self) -> Result<(u64, u64), PathError> {
        let stat = fstat(&self.handle).map_err(PathError::from_errno)?;
        Ok((stat.st_dev, stat.st_ino))
    }

    pub(crate) const fn handle(&self) -> &OwnedFd {
        &self.handle
    }

    /// Proves once that confined opening works here, so that later errors are about paths.
    fn checked(handle: OwnedFd, names: Vec<PathBuf>) -> Result<Self, PathError> {
        match kernel::open(&handle, Path::new("."), OFlags::PATH, SymlinkPolicy::Refuse) {
            Ok(_) => Ok(Self {
                handle,
                names,
                closed: None,
                read_only: None,
                git: None,
                _keep_alive: None,
            }),
            // Some seccomp filters answer EPERM to system calls they do not know.
            Err(Errno::NOSYS | Errno::PERM) => Err(PathError::Unsupported),
            Err(errno) => Err(PathError::from_errno(errno)),
        }
    }
}
