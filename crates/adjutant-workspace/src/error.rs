//! Why a path could not be opened, in terms a caller can act on.
//!
//! Errors carry no path: the caller knows what it asked for and how to show it.

use std::fmt;
use std::io;

use rustix::io::Errno;

/// Says why a path was not opened.
#[derive(Debug, thiserror::Error)]
pub enum PathError {
    /// The path leads out of the root: by `..`, a symbolic link, or as an absolute path elsewhere.
    #[error("path is outside the workspace")]
    Outside,
    /// Nothing is there, or a directory on the way is missing.
    #[error("no such file or directory")]
    NotFound,
    /// Something is there that is not a regular file.
    #[error("not a regular file but a {0}")]
    NotRegular(FileKind),
    /// A part of the path that must be a directory is not one.
    #[error("not a directory")]
    NotDirectory,
    /// Symbolic links form a loop, or a magic link of the kernel was met.
    #[error("symbolic links loop or lead through a magic link")]
    Loop,
    /// The account may not open it.
    #[error("permission denied")]
    PermissionDenied,
    /// The path, or one name in it, is longer than the kernel takes.
    #[error("path is too long")]
    NameTooLong,
    /// The path can name nothing: it holds a NUL byte.
    #[error("path contains a NUL byte")]
    Invalid,
    /// A symbolic link is on the way or in the place; writing follows none.
    #[error("a symbolic link is in the way")]
    SymbolicLink,
    /// The path leads into a git directory, or would make a directory look like one.
    #[error("path leads into a git directory")]
    InGitDir,
    /// The folder belongs to a repository whose git directory was not found, so nothing in it is written.
    #[error("the git directory that `.git` names cannot be found")]
    GitDirUnknown,
    /// The path leads into the directory in which this program keeps its own records, or into one with the person's
    /// configuration, agents or commands.
    #[error(
        "path leads into the state directory of adjutant, or into your configuration, agents or commands"
    )]
    Protected,
    /// There is a file where there was to be none.
    #[error("a file has appeared there")]
    Exists,
    /// Nobody may write the file.
    #[error("the file is read-only")]
    ReadOnly,
    /// The file holds more than is taken.
    #[error("larger than {max_bytes} bytes")]
    TooLarge {
        /// The most that is taken.
        max_bytes: u64,
    },
    /// There is no space left.
    #[error("no space left on the disk")]
    DiskFull,
    /// The kernel or a seccomp filter does not offer `openat2`; without it nothing is confined.
    #[error("confined file access needs the openat2 system call: Linux 5.6 or newer")]
    Unsupported,
    /// The system failed otherwise.
    #[error("input/output error")]
    Io(#[source] io::Error),
}

impl PathError {
    /// Classifies what the kernel said while resolving or opening.
    pub(crate) fn from_errno(errno: Errno) -> Self {
        match errno {
            Errno::XDEV => Self::Outside,
            Errno::NOENT => Self::NotFound,
            Errno::NOTDIR => Self::NotDirectory,
            Errno::LOOP => Self::Loop,
            Errno::ACCESS | Errno::PERM => Self::PermissionDenied,
            Errno::NOSPC | Errno::DQUOT => Self::DiskFull,
            Errno::NAMETOOLONG => Self::NameTooLong,
            Errno::NOSYS => Self::Unsupported,
            other => Self::Io(other.into()),
        }
    }
}

/// What kind of thing a directory entry or an open handle is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileKind {
    /// Bytes on a disk.
    Regular,
    /// A directory.
    Directory,
    /// A symbolic link.
    Symlink,
    /// A named pipe.
    Fifo,
    /// A Unix socket.
    Socket,
    /// A character device.
    CharDevice,
    /// A block device.
    BlockDevice,
    /// Something the kernel did not name.
    Unknown,
}

impl FileKind {
    pub(crate) fn of(kind: rustix::fs::FileType) -> Self {
        use rustix::fs::FileType;
        match kind {
            FileType::RegularFile => Self::Regular,
            FileType::Directory => Self::Directory,
            FileType::Symlink => Self::Symlink,
            FileType::Fifo => Self::Fifo,
            FileType::Socket => Self::Socket,
            FileType::CharacterDevice => Self::CharDevice,
            FileType::BlockDevice => Self::BlockDevice,
            FileType::Unknown => Self::Unknown,
        }
    }
}

impl fmt::Display for FileKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Regular => "regular file",
            Self::Directory => "directory",
            Self::Symlink => "symbolic link",
            Self::Fifo => "named pipe",
            Self::Socket => "socket",
            Self::CharDevice => "character device",
            Self::BlockDevice => "block device",
            Self::Unknown => "thing of unknown kind",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kernel_without_openat2_is_named_with_the_version_it_needs() {
        let error = PathError::from_errno(Errno::NOSYS);
        assert!(error.to_string().contains("Linux 5.6"), "{error}");
    }

    #[test]
    fn an_unforeseen_errno_keeps_its_cause() {
        let PathError::Io(source) = PathError::from_errno(Errno::MFILE) else {
            panic!("too many open files is an input/output error");
        };
        assert_eq!(source.raw_os_error(), Some(Errno::MFILE.raw_os_error()));
    }
}
