//! Errors of opening and changing files, in terms a caller can act on.
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
    /// The file or a directory on the way to it does not exist.
    #[error("no such file or directory")]
    NotFound,
    /// The path leads to something that is not a regular file.
    #[error("not a regular file but a {0}")]
    NotRegular(FileKind),
    /// A part of the path that must be a directory is not one.
    #[error("not a directory")]
    NotDirectory,
    /// Symbolic links form a loop, or the path goes through a magic link such as `/proc/self/exe`.
    #[error("path goes through a loop of symbolic links or a magic link")]
    Loop,
    /// The user account may not open the file.
    #[error("permission denied")]
    PermissionDenied,
    /// The path or one of its components is longer than the kernel accepts.
    #[error("path is too long")]
    NameTooLong,
    /// The path contains a NUL byte.
    #[error("path contains a NUL byte")]
    Invalid,
    /// The path is or passes through a symbolic link; writing follows none.
    #[error("path is or goes through a symbolic link")]
    SymbolicLink,
    /// The path leads into a git directory, or would make a directory look like one.
    #[error("path leads into a git directory")]
    InGitDir,
    /// The directory belongs to a repository whose git directory was not found, so writing is refused.
    #[error("the git directory that `.git` names cannot be found")]
    GitDirUnknown,
    /// The path leads into Adjutant's state directory, or into the user's configuration, agents or commands.
    #[error(
        "path leads into Adjutant's state directory, or into your configuration, agents or commands"
    )]
    Protected,
    /// A file exists that was expected to be absent.
    #[error("a file was created there meanwhile")]
    Exists,
    /// No account has write permission for the file.
    #[error("the file is read-only")]
    ReadOnly,
    /// The file is larger than the caller accepts.
    #[error("larger than {max_bytes} bytes")]
    TooLarge {
        /// The caller's limit.
        max_bytes: u64,
    },
    /// The disk or the quota is full.
    #[error("no space left on the disk")]
    DiskFull,
    /// The kernel or a seccomp filter does not offer `openat2`, without which paths cannot be confined.
    #[error("confined file access needs the openat2 system call: Linux 5.6 or newer")]
    Unsupported,
    /// Another input/output error.
    #[error("input/output error")]
    Io(#[source] io::Error),
}

impl PathError {
    /// Converts an error of a system call that resolved or opened a path.
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

/// The kind of a directory entry or an open file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileKind {
    /// A regular file.
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
    /// The kernel did not report the kind.
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
            Self::Unknown => "file of unknown kind",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kernel_without_openat2_is_reported_with_the_required_version() {
        let error = PathError::from_errno(Errno::NOSYS);
        assert!(error.to_string().contains("Linux 5.6"), "{error}");
    }

    #[test]
    fn an_unexpected_errno_is_kept_as_the_cause() {
        let PathError::Io(source) = PathError::from_errno(Errno::MFILE) else {
            panic!("too many open files is an input/output error");
        };
        assert_eq!(source.raw_os_error(), Some(Errno::MFILE.raw_os_error()));
    }
}
