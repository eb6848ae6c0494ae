//! The git object directories that a sandbox shows, and the entries in them that must stay hidden.
//!
//! Every sandbox needs this, so results are cached until a directory changes: even for a large repository at most
//! some 260 directories are checked for changes.
//!
//! Start at [`ObjectDirCache::find`].

use std::collections::{BTreeSet, HashMap};
use std::ffi::OsString;
use std::fs;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use super::WorkspaceError;
use crate::git::{has_essential_parts, open_regular_file};
use crate::{Dir, FileKind, PathError, RelPath, Repository, Root};

/// The longest chain of repositories that borrow each other's objects; git's own limit.
const MAX_CHAIN: usize = 5;

/// The most directories that objects are borrowed from.
const MAX_FOLDERS: usize = 32;

/// The most bytes of a list of alternates that are read.
const LIST_BYTES: u64 = 64 * 1024;

/// The most entries of one object directory that are examined.
const MAX_ENTRIES: usize = 10_000_000;

/// The most entries that can be hidden one by one.
const MAX_HIDDEN: usize = 1_000;

/// The depth of git's own directories below `objects`: `pack/multi-pack-index.d` is the deepest.
const MAX_DEPTH: usize = 2;

/// A directory that changed less than this ago is not cached: it may change again with the same timestamp.
const MIN_CACHEABLE_AGE: Duration = Duration::from_secs(2);

/// Object directories that a sandbox shows, and the paths in them that it hides.
#[derive(Debug, Default)]
pub(super) struct ObjectDirs {
    pub(super) folders: Vec<PathBuf>,
    pub(super) hidden: Vec<PathBuf>,
}

/// Caches which entries of object directories are not objects.
#[derive(Debug)]
pub(super) struct ObjectDirCache {
    known: Mutex<HashMap<PathBuf, (DirStamp, NonObjectEntries)>>,
    settled: Duration,
}

impl Default for ObjectDirCache {
    fn default() -> Self {
        Self { known: Mutex::default(), settled: MIN_CACHEABLE_AGE }
    }
}

/// Changes whenever an entry of a directory is added or removed. Based on the ctime, which programs cannot set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct DirStamp {
    device: u64,
    number: u64,
    changed: Duration,
}

/// The entries of one directory that are not objects, and its subdirectories.
#[derive(Clone, Debug, Default)]
struct NonObjectEntries {
    hidden: Vec<OsString>,
    folders: Vec<OsString>,
}

impl ObjectDirCache {
    /// Returns the object directories of the repository: its own, and those it borrows from.
    ///
    /// The list of alternates comes with the repository and is not trusted: an entry is used only if it is the
    /// object directory of a git directory and lies in a granted path. Objects of other directories are missing for
    /// git inside the sandbox.
    pub(super) fn find(
        &self,
        repository: &Repository,
        is_granted: &dyn Fn(&Path) -> bool,
    ) -> Result<ObjectDirs, WorkspaceError> {
        let mut objects = ObjectDirs::default();
        for folder in object_dirs_of(repository, is_granted) {
            let root = Root::open(&folder).map_err(WorkspaceError::path(&folder))?;
            let top = root.open_dir(&RelPath::default()).map_err(WorkspaceError::path(&folder))?;
            self.hide_others(&top, &folder, 0, &mut objects.hidden)
                .map_err(WorkspaceError::path(&folder))?;
            objects.folders.push(folder);
        }
        Ok(objects)
    }

    /// Adds the entries of an object directory that must be hidden: sockets, pipes, devices, and files and
    /// directories that git does not create.
    ///
    /// Links stay: in the sandbox they lead only to what is visible there anyway.
    fn hide_others(
        &self,
        folder: &Dir,
        path: &Path,
        depth: usize,
        hidden: &mut Vec<PathBuf>,
    ) -> Result<(), PathError> {
        let found = self.inspect(folder, path, depth)?;
        if hidden.len() + found.hidden.len() > MAX_HIDDEN {
            let text = format!("it has more than {MAX_HIDDEN} entries that are not objects");
            return Err(PathError::Io(io::Error::other(text)));
        }
        hidden.extend(found.hidden.iter().map(|name| path.join(name)));
        for name in &found.folders {
            // Temporary files of git may disappear meanwhile.
            let below = folder.open_dir(name);
            match below
                .and_then(|below| self.hide_others(&below, &path.join(name), depth + 1, hidden))
            {
                Ok(()) | Err(PathError::NotFound) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Returns the non-object entries of one directory, from the cache if it did not change.
    fn inspect(
        &self,
        folder: &Dir,
        path: &Path,
        depth: usize,
    ) -> Result<NonObjectEntries, PathError> {
        // Read before the listing, so that a change during the listing invalidates it.
        let stamp = DirStamp::of(folder)?;
        let mut seen = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((known, found)) = seen.get(path)
            && *known == stamp
        {
            return Ok(found.clone());
        }
        let found = find_non_objects(folder, depth)?;
        if stamp.is_older_than(self.settled) {
            seen.insert(path.to_owned(), (stamp, found.clone()));
        } else {
            seen.remove(path);
        }
        Ok(found)
    }
}

impl DirStamp {
    fn of(folder: &Dir) -> Result<Self, PathError> {
        let stat = rustix::fs::fstat(folder.handle()).map_err(PathError::from_errno)?;
        let seconds = Duration::from_secs(u64::try_from(stat.st_ctime).unwrap_or_default());
        let changed = seconds + Duration::from_nanos(stat.st_ctime_nsec);
        Ok(Self { device: stat.st_dev, number: stat.st_ino, changed })
    }

    fn is_older_than(self, least: Duration) -> bool {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        now.checked_sub(self.changed).is_some_and(|age| age >= least)
    }
}

fn find_non_objects(folder: &Dir, depth: usize) -> Result<NonObjectEntries, PathError> {
    let mut found = NonObjectEntries::default();
    for entry in folder.list(MAX_ENTRIES)?.entries {
        let shown = match entry.kind {
            FileKind::Directory => match depth {
                0 => is_git_name(entry.name.as_encoded_bytes()),
                _ => depth <= MAX_DEPTH,
            },
            FileKind::Regular => depth > 0 || is_git_name(entry.name.as_encoded_bytes()),
            FileKind::Symlink => true,
            FileKind::Fifo
            | FileKind::Socket
            | FileKind::CharDevice
            | FileKind::BlockDevice
            | FileKind::Unknown => false,
        };
        if !shown {
            found.hidden.push(entry.name);
        } else if entry.kind == FileKind::Directory {
            found.folders.push(entry.name);
        }
    }
    Ok(found)
}

/// Lists the trusted object directories that git reads for a repository.
fn object_dirs_of(
    repository: &Repository,
    is_granted: &dyn Fn(&Path) -> bool,
) -> BTreeSet<PathBuf> {
    let mut found = BTreeSet::new();
    let own = repository.common_dir().join("objects");
    let mut next = vec![own.clone()];
    for _ in 0..MAX_CHAIN {
        for folder in std::mem::take(&mut next) {
            if found.len() >= MAX_FOLDERS || !is_objects(&folder) || !found.insert(folder.clone()) {
                continue;
            }
            let mut text = Vec::new();
            let read = open_regular_file(&folder.join("info/alternates"));
            let read = read.and_then(|file| file.take(LIST_BYTES).read_to_end(&mut text));
            if read.is_err() {
                continue;
            }
            let lines = text.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
            let named = lines.map(|line| folder.join(crate::git::path_of(line)));
            let named = named.filter_map(|named| fs::canonicalize(named).ok());
            next.extend(named.filter(|named| *named == own || is_granted(named)));
        }
    }
    found
}

/// Says whether a resolved path is the object directory of a git directory.
fn is_objects(folder: &Path) -> bool {
    folder.file_name().is_some_and(|name| name == "objects")
        && folder.parent().is_some_and(has_essential_parts)
}

/// Says whether git creates an entry of this name in an object directory.
fn is_git_name(name: &[u8]) -> bool {
    // Temporary objects may disappear at any time, and a cover over them with them.
    matches!(name, b"pack" | b"info")
        || name.starts_with(b"tmp_obj")
        || (name.len() == 2 && name.iter().all(u8::is_ascii_hexdigit))
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixListener;

    use super::*;

    fn hidden(seen: &ObjectDirCache, folder: &Path) -> Vec<PathBuf> {
        let top = Root::open(folder).unwrap().open_dir(&RelPath::default()).unwrap();
        let mut hidden = Vec::new();
        seen.hide_others(&top, folder, 0, &mut hidden).unwrap();
        hidden.sort();
        hidden
    }

    #[test]
    fn a_socket_that_is_added_later_is_hidden_too() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        for name in ["pack", "ab"] {
            fs::create_dir(at(name)).unwrap();
        }
        fs::write(at("ab/object"), "").unwrap();
        let _one = UnixListener::bind(at("pack/s")).unwrap();
        let seen = ObjectDirCache { settled: Duration::ZERO, ..ObjectDirCache::default() };
        for _ in 0..2 {
            assert_eq!(hidden(&seen, folder.path()), [at("pack/s")]);
        }
        assert_eq!(seen.known.lock().unwrap().len(), 3);

        let stamp = || {
            let root = Root::open(folder.path()).unwrap();
            DirStamp::of(&root.open_dir(&RelPath::new("ab").unwrap()).unwrap()).unwrap()
        };
        let before = stamp();
        let _other = UnixListener::bind(at("ab/t")).unwrap();
        // With coarse timestamps the change would be invisible; this makes the stamp differ.
        while stamp() == before {
            fs::write(at("ab/more"), "").unwrap();
            fs::remove_file(at("ab/more")).unwrap();
        }
        assert_eq!(hidden(&seen, folder.path()), [at("ab/t"), at("pack/s")]);
    }

    #[test]
    fn a_directory_that_changed_just_now_is_not_cached() {
        let folder = tempfile::tempdir().unwrap();
        let seen = ObjectDirCache::default();
        assert!(hidden(&seen, folder.path()).is_empty());
        assert!(seen.known.lock().unwrap().is_empty());
    }
}
