//! Ignored files that are copied into workspaces: dependencies and build results that programs need.
//!
//! They are copied, because a mounted layer must not change while the user's own files do. One copy is made for
//! each state of the files, identified by names, sizes and timestamps; on file systems with reflinks the copies
//! share their content.

use std::fs;
use std::io;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, UNIX_EPOCH};

use rustix::fs::{AtFlags, ioctl_ficlone, statat};

use super::WorkspaceError;
use crate::git::{OpenedContent, bytes_of, content_at, has_only_normal_components, is_in_dot_git};
use crate::git_guard::{FileId, file_id};
use crate::{Dir, FileKind, PathError, RelPath, Repository, Root};

/// The most entries of one directory.
const MAX_ENTRIES: usize = 10_000_000;

/// The ignored files and directories to copy.
#[derive(Debug)]
pub(super) struct IgnoredFiles {
    root: Root,
    /// The repository's git directories and the protected paths, which are never copied.
    left_out: Vec<FileId>,
    entries: Vec<IgnoredEntry>,
    key: String,
}

/// A file or directory to copy.
#[derive(Debug)]
struct IgnoredEntry {
    path: RelPath,
    kind: FileKind,
    mode: u32,
    modified: Duration,
}

impl IgnoredFiles {
    /// Lists the files below the wanted paths; `None` if there are none.
    pub(super) fn scan(
        repository: &Repository,
        wanted: &[PathBuf],
    ) -> Result<Option<Self>, WorkspaceError> {
        let tree = repository.work_tree();
        let root = Root::open(tree).map_err(WorkspaceError::path(tree))?;
        let left_out = [repository.git_dir(), repository.common_dir()].into_iter();
        let left_out = left_out.chain(repository.protected_paths().iter().map(PathBuf::as_path));
        let left_out = left_out.filter_map(file_id).collect();
        let mut found = Self { root, left_out, entries: Vec::new(), key: String::new() };
        let mut hash = Fnv1aHash::default();
        let mut own = repository.excluded_dirs();
        for path in wanted {
            if !has_only_normal_components(path)
                || own.guarding_owner(path).is_some()
                || path.as_os_str().is_empty()
            {
                return Err(WorkspaceError::Include { path: path.clone() });
            }
            found.add_all(path, &mut hash).map_err(WorkspaceError::path(path))?;
        }
        found.key = format!("{:016x}", hash.0);
        Ok((!found.entries.is_empty()).then_some(found))
    }

    /// Returns a key that identifies this state of the files.
    pub(super) fn key(&self) -> &str {
        &self.key
    }

    fn add_all(&mut self, wanted: &Path, hash: &mut Fnv1aHash) -> Result<(), PathError> {
        let parent = wanted.parent().unwrap_or(Path::new(""));
        let folder = match self.root.open_dir(&RelPath::new(parent)?) {
            Ok(folder) => folder,
            // Missing paths are skipped.
            Err(PathError::NotFound | PathError::NotDirectory) => return Ok(()),
            Err(error) => return Err(error),
        };
        for above in parent.ancestors().filter(|above| !above.as_os_str().is_empty()) {
            let entry = IgnoredEntry {
                path: RelPath::new(above)?,
                kind: FileKind::Directory,
                mode: 0o755,
                modified: Duration::ZERO,
            };
            self.entries.push(entry);
        }
        let name = wanted.file_name().unwrap_or_default();
        match folder.kind_of(name)? {
            Some(kind) => self.add(&folder, name, wanted, kind, hash),
            None => Ok(()),
        }
    }

    fn add(
        &mut self,
        folder: &Dir,
        name: &std::ffi::OsStr,
        path: &Path,
        kind: FileKind,
        hash: &mut Fnv1aHash,
    ) -> Result<(), PathError> {
        if is_in_dot_git(path) {
            return Ok(());
        }
        let stat = match statat(folder.handle(), name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) => stat,
            // Removed meanwhile, for example by a build.
            Err(rustix::io::Errno::NOENT) => return Ok(()),
            Err(errno) => return Err(PathError::from_errno(errno)),
        };
        if self.left_out.contains(&(stat.st_dev, stat.st_ino)) {
            return Ok(());
        }
        let seconds = u64::try_from(stat.st_mtime).unwrap_or_default();
        let nanoseconds = u32::try_from(stat.st_mtime_nsec).unwrap_or_default();
        let modified = Duration::new(seconds, nanoseconds.min(999_999_999));
        let (mode, size) = (stat.st_mode, stat.st_size);
        hash.add(bytes_of(path));
        hash.add(format!("\0{mode}\0{size}\0{modified:?}\0").as_bytes());
        let entry = IgnoredEntry { path: RelPath::new(path)?, kind, mode, modified };
        match kind {
            FileKind::Directory => {
                self.entries.push(entry);
                let below = folder.open_dir(name)?;
                let mut listed = below.list(MAX_ENTRIES)?.entries;
                listed.sort_by(|one, other| one.name.cmp(&other.name));
                for item in listed {
                    self.add(&below, &item.name, &path.join(&item.name), item.kind, hash)?;
                }
            }
            FileKind::Regular | FileKind::Symlink => self.entries.push(entry),
            FileKind::Fifo
            | FileKind::Socket
            | FileKind::CharDevice
            | FileKind::BlockDevice
            | FileKind::Unknown => {}
        }
        Ok(())
    }

    /// Copies everything into a directory; existing files stay.
    pub(super) fn copy(&self, into: &Path) -> Result<(), WorkspaceError> {
        for entry in &self.entries {
            let to = into.join(entry.path.as_path());
            if entry.kind == FileKind::Directory {
                fs::create_dir_all(&to).map_err(WorkspaceError::io("copying ignored files"))?;
                continue;
            }
            let opened = content_at(&self.root, &entry.path)
                .map_err(WorkspaceError::path(entry.path.as_path()))?;
            let done = match opened {
                Ok(OpenedContent::File { file, .. }) => copy_file(file, &to, entry),
                Ok(OpenedContent::Link(target)) => {
                    std::os::unix::fs::symlink(crate::git::path_of(&target), &to)
                }
                // Removed or unreadable: a build that needs it will report that.
                Ok(OpenedContent::Nothing) | Err(_) => Ok(()),
            };
            match done {
                Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
                    return Err(WorkspaceError::io("copying ignored files")(error));
                }
                Ok(()) | Err(_) => {}
            }
        }
        Ok(())
    }
}

fn copy_file(mut from: fs::File, to: &Path, entry: &IgnoredEntry) -> io::Result<()> {
    let mode = (entry.mode & 0o777) | 0o600;
    let mut copy = fs::File::options().write(true).create_new(true).mode(mode).open(to)?;
    if ioctl_ficlone(&copy, &from).is_err() {
        io::copy(&mut from, &mut copy)?;
    }
    // Build tools compare timestamps.
    copy.set_modified(UNIX_EPOCH + entry.modified)
}

/// FNV-1a, 64 bits: distinguishes states; not safe against deliberate collisions.
#[derive(Debug)]
pub(super) struct Fnv1aHash(pub(super) u64);

impl Default for Fnv1aHash {
    fn default() -> Self {
        Self(0xcbf2_9ce4_8422_2325)
    }
}

impl Fnv1aHash {
    pub(super) fn add(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = (self.0 ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
        }
    }
}
