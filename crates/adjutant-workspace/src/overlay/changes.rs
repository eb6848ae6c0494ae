//! What an overlay's upper directory says was changed.
//!
//! Reading costs as much as there are changes, whatever lies below. A 0/0 character device, or a file with the
//! whiteout attribute, is a deletion; a directory marked opaque hides everything that was below it.

use std::ffi::OsStr;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags, Stat, fgetxattr, openat, statat};
use rustix::io::Errno;

/// The deepest tree that is read.
const MAX_DEPTH: usize = 1000;

/// What became of one path.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ChangeKind {
    /// A regular file was written, created, or had its mode changed.
    File {
        /// Whether its owner may run it.
        executable: bool,
    },
    /// A symbolic link was made.
    Link,
    /// What was here below is gone.
    Deleted,
    /// A directory is here; what lower layers hold there, if anything, still shows through.
    Directory,
    /// A directory is here and nothing of what was below: it replaces a file, or a directory that was deleted.
    ReplacedDirectory,
    /// A pipe, socket or device, which no commit can hold.
    Special,
}

/// One path and what became of it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Change {
    /// Relative to the workspace.
    pub path: PathBuf,
    /// What became of it.
    pub kind: ChangeKind,
}

/// Everything the upper directory holds, parents before children, sorted by name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Changes {
    /// One entry for each path.
    pub all: Vec<Change>,
    /// Directories that this account may not look into; what they hold is not in the list.
    pub unreadable: Vec<PathBuf>,
}

impl Changes {
    /// Reads an upper directory.
    ///
    /// # Errors
    ///
    /// When it cannot be read, or is deeper than a thousand levels.
    pub fn read(upper: &Path) -> io::Result<Self> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let top = openat(rustix::fs::CWD, upper, flags, Mode::empty())?;
        let mut changes = Self::default();
        changes.add(&top, Path::new(""), 0)?;
        Ok(changes)
    }

    /// Whether nothing was changed. Directories alone count as nothing: no commit holds them.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.unreadable.is_empty()
            && self.all.iter().all(|change| change.kind == ChangeKind::Directory)
    }

    /// The paths of one kind of change.
    pub fn paths(&self, wanted: impl Fn(ChangeKind) -> bool) -> impl Iterator<Item = &Path> {
        self.all.iter().filter(move |it| wanted(it.kind)).map(|it| it.path.as_path())
    }

    fn add(&mut self, directory: &OwnedFd, path: &Path, depth: usize) -> io::Result<()> {
        if depth > MAX_DEPTH {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "the tree is too deep"));
        }
        let mut names = Vec::new();
        for entry in Dir::read_from(directory)? {
            let entry = entry?;
            if entry.file_name() != c"." && entry.file_name() != c".." {
                names.push(entry.file_name().to_owned());
            }
        }
        names.sort_unstable();
        for name in names {
            let at = path.join(OsStr::from_bytes(name.as_bytes()));
            let stat = match statat(directory, &name, AtFlags::SYMLINK_NOFOLLOW) {
                Ok(stat) => stat,
                // Gone while we looked: a program still runs.
                Err(Errno::NOENT) => continue,
                Err(errno) => return Err(errno.into()),
            };
            if FileType::from_raw_mode(stat.st_mode) != FileType::Directory {
                let kind = kind_of(&stat, || marked(directory, &name, "user.overlay.whiteout"));
                self.all.push(Change { path: at, kind });
                continue;
            }
            self.descend(directory, &name, at, depth)?;
        }
        Ok(())
    }

    fn descend(
        &mut self,
        parent: &OwnedFd,
        name: &std::ffi::CStr,
        at: PathBuf,
        depth: usize,
    ) -> io::Result<()> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        match openat(parent, name, flags, Mode::empty()) {
            Ok(folder) => {
                let opaque = attribute(&folder, "user.overlay.opaque") == Some(b'y');
                let kind =
                    if opaque { ChangeKind::ReplacedDirectory } else { ChangeKind::Directory };
                self.all.push(Change { path: at.clone(), kind });
                self.add(&folder, &at, depth + 1)
            }
            Err(Errno::ACCESS) => {
                self.unreadable.push(at);
                Ok(())
            }
            Err(Errno::NOENT | Errno::NOTDIR) => Ok(()),
            Err(errno) => Err(errno.into()),
        }
    }
}

fn kind_of(stat: &Stat, whiteout: impl FnOnce() -> bool) -> ChangeKind {
    match FileType::from_raw_mode(stat.st_mode) {
        FileType::RegularFile if stat.st_size == 0 && whiteout() => ChangeKind::Deleted,
        FileType::RegularFile => ChangeKind::File { executable: stat.st_mode & 0o100 != 0 },
        FileType::Symlink => ChangeKind::Link,
        FileType::CharacterDevice if stat.st_rdev == 0 => ChangeKind::Deleted,
        FileType::CharacterDevice
        | FileType::BlockDevice
        | FileType::Fifo
        | FileType::Socket
        | FileType::Directory
        | FileType::Unknown => ChangeKind::Special,
    }
}

fn marked(directory: &OwnedFd, name: &std::ffi::CStr, attribute_name: &str) -> bool {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    openat(directory, name, flags, Mode::empty())
        .is_ok_and(|file| attribute(file, attribute_name).is_some())
}

/// Returns the first byte of an extended attribute, zero when it is empty.
fn attribute(file: impl AsFd, name: &str) -> Option<u8> {
    let mut value = [0; 4];
    match fgetxattr(file, name, &mut value) {
        Ok(0) => Some(0),
        Ok(_) => value.first().copied(),
        Err(_) => None,
    }
}
