//! Git's own folder inside a workspace.
//!
//! It borrows the objects of the user's repository and nothing else: no configuration, hooks,
//! references or attributes of anybody's. The index is the base's own, so that git trusts the dates
//! of files nobody touched and does not read them again.

use std::collections::BTreeSet;
use std::fs;
use std::io::{self, Read as _, Write as _};
use std::path::{Path, PathBuf};

use super::SpaceError;
use crate::git::{bytes_of, open_plain, own_parts};
use crate::{Dir, FileKind, Lease, ObjectId, PathError, RelPath, Repository, Root};

/// How long a chain of repositories that borrow each other's objects may be; git's own limit.
const MAX_CHAIN: usize = 5;

/// The most folders objects are borrowed from.
const MAX_FOLDERS: usize = 32;

/// How much of a list of alternates is read.
const LIST_BYTES: u64 = 64 * 1024;

/// The most entries of one folder of objects that are looked at.
const MAX_OBJECTS: usize = 10_000_000;

/// The most entries that are hidden one by one.
const MAX_HIDDEN: usize = 1_000;

/// How deep git's own folders below the objects go: `pack/multi-pack-index.d` is the deepest.
const MAX_DEPTH: usize = 2;

/// Writes a git directory whose HEAD is `commit`; the index is the caller's.
pub(super) fn write(
    repository: &Repository,
    into: &Path,
    commit: &ObjectId,
) -> Result<(), SpaceError> {
    let made = || -> io::Result<()> {
        fs::create_dir_all(into.join("objects/info"))?;
        fs::create_dir_all(into.join("refs/heads"))?;
        fs::create_dir_all(into.join("info"))?;
        write_head(into, commit)?;
        fs::write(into.join("config"), repository.scratch_config())?;
        let mut alternates = fs::File::create(into.join("objects/info/alternates"))?;
        alternates.write_all(&quoted(&repository.common_dir().join("objects")))?;
        for (from, to) in [("shallow", "shallow"), ("info/exclude", "info/exclude")] {
            let from = repository.common_dir().join(from);
            if from.symlink_metadata().is_ok_and(|found| found.is_file()) {
                io::copy(&mut open_plain(&from)?, &mut fs::File::create(into.join(to))?)?;
            }
        }
        Ok(())
    };
    made().map_err(SpaceError::io("making a private git directory"))
}

/// Writes only HEAD, over a git directory in a lower layer.
pub(super) fn write_head(into: &Path, commit: &ObjectId) -> io::Result<()> {
    fs::create_dir_all(into)?;
    fs::write(into.join("HEAD"), format!("{commit}\n"))
}

/// Writes the index of `commit`, with the dates of the base for every file that is the same in it.
pub(super) fn write_index(
    repository: &Repository,
    lease: &Lease,
    commit: &ObjectId,
    into: &Path,
) -> Result<(), SpaceError> {
    let base = base_index(repository, lease)?;
    fs::copy(base, into).map_err(SpaceError::io("copying an index"))?;
    // Only what differs is touched: the other entries keep what is known of their files.
    let mut diff = repository.differences(lease.tree(), commit)?;
    if diff.entries.is_empty() {
        return Ok(());
    }
    // A folder takes the place of a file only once that is gone.
    diff.entries.sort_by_key(|entry| entry.new_mode != 0);
    let mut list = Vec::new();
    for entry in &diff.entries {
        list.extend_from_slice(format!("{:06o} {} 0\t", entry.new_mode, entry.new_id).as_bytes());
        list.extend_from_slice(bytes_of(&entry.path));
        list.push(0);
    }
    let scratch = repository.scratch(None)?;
    let call = scratch.call("update-index").args(["-z", "--index-info"]);
    call.env("GIT_INDEX_FILE", into).feed(&list)?;
    Ok(())
}

/// Returns the index of a base, which lies next to it and is made once.
fn base_index(repository: &Repository, lease: &Lease) -> Result<PathBuf, SpaceError> {
    let folder = lease.path().parent().unwrap_or(lease.path());
    let index = folder.join(format!("index-{}", lease.tree()));
    if index.exists() {
        return Ok(index);
    }
    let scratch = repository.scratch(None)?;
    scratch.call_in("read-tree", lease.path()).arg(lease.tree().as_str()).run()?;
    let refresh = scratch.call_in("update-index", lease.path()).args(["-q", "--refresh"]);
    refresh.accept(&[0, 1]).run()?;
    let put = || -> io::Result<()> {
        for entry in fs::read_dir(folder)?.flatten() {
            // Of trees the base had before it was moved.
            if entry.file_name().as_encoded_bytes().starts_with(b"index-") {
                fs::remove_file(entry.path())?;
            }
        }
        fs::rename(scratch.index(), &index)
    };
    put().map_err(SpaceError::io("keeping the index of a base"))?;
    Ok(index)
}

/// Folders with objects that a sandbox may show, and what it must not show of them.
#[derive(Debug, Default)]
pub(super) struct Objects {
    pub(super) folders: Vec<PathBuf>,
    pub(super) hidden: Vec<PathBuf>,
}

/// Returns the folders with the repository's objects: its own, and those it borrows from.
///
/// The list of those comes with the repository, so what it names is believed only where it is the
/// folder of objects of a git directory. Git inside lacks the objects of the others.
pub(super) fn objects(repository: &Repository) -> Result<Objects, SpaceError> {
    let mut found = BTreeSet::new();
    let mut next = vec![repository.common_dir().join("objects")];
    for _ in 0..MAX_CHAIN {
        for folder in std::mem::take(&mut next) {
            if found.len() >= MAX_FOLDERS || !is_objects(&folder) || !found.insert(folder.clone()) {
                continue;
            }
            let mut text = Vec::new();
            let read = open_plain(&folder.join("info/alternates"));
            let read = read.and_then(|file| file.take(LIST_BYTES).read_to_end(&mut text));
            if read.is_err() {
                continue;
            }
            let lines = text.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
            let named = lines.map(|line| folder.join(crate::git::path_of(line)));
            next.extend(named.filter_map(|named| fs::canonicalize(named).ok()));
        }
    }
    let mut objects = Objects::default();
    for folder in found {
        let root = Root::open(&folder).map_err(SpaceError::path(&folder))?;
        let top = root.open_dir(&RelPath::default()).map_err(SpaceError::path(&folder))?;
        hide_others(&top, &folder, 0, &mut objects.hidden).map_err(SpaceError::path(&folder))?;
        objects.folders.push(folder);
    }
    Ok(objects)
}

/// Says whether a path without links is the folder of objects of a git directory.
fn is_objects(folder: &Path) -> bool {
    folder.file_name().is_some_and(|name| name == "objects")
        && folder.parent().is_some_and(own_parts)
}

/// Adds what lies in a folder of objects and is none: sockets, pipes, devices, and files and folders
/// of other names than git's.
///
/// A link stays: in the sandbox it leads to what is shown there anyway.
fn hide_others(
    folder: &Dir,
    path: &Path,
    depth: usize,
    hidden: &mut Vec<PathBuf>,
) -> Result<(), PathError> {
    for entry in folder.list(MAX_OBJECTS)?.entries {
        let shown = match entry.kind {
            FileKind::Directory => match depth {
                0 => is_gits(entry.name.as_encoded_bytes()),
                _ => depth <= MAX_DEPTH,
            },
            FileKind::Regular => depth > 0 || is_gits(entry.name.as_encoded_bytes()),
            FileKind::Symlink => true,
            FileKind::Fifo
            | FileKind::Socket
            | FileKind::CharDevice
            | FileKind::BlockDevice
            | FileKind::Unknown => false,
        };
        let at = path.join(&entry.name);
        if !shown {
            if hidden.len() >= MAX_HIDDEN {
                let text = format!("more than {MAX_HIDDEN} entries in it are no objects");
                return Err(PathError::Io(io::Error::other(text)));
            }
            hidden.push(at);
        } else if entry.kind == FileKind::Directory {
            // What git is writing comes and goes while this is read.
            let below = folder.open_dir(&entry.name);
            match below.and_then(|below| hide_others(&below, &at, depth + 1, hidden)) {
                Ok(()) | Err(PathError::NotFound) => {}
                Err(error) => return Err(error),
            }
        }
    }
    Ok(())
}

/// Says whether git has a folder of this name among its objects.
fn is_gits(name: &[u8]) -> bool {
    // What git is writing goes away at any time, and a cover with it.
    matches!(name, b"pack" | b"info")
        || name.starts_with(b"tmp_obj")
        || (name.len() == 2 && name.iter().all(u8::is_ascii_hexdigit))
}

/// Writes a path the way git reads one in a list of alternates.
fn quoted(path: &Path) -> Vec<u8> {
    let bytes = bytes_of(path);
    if !bytes.iter().any(|byte| matches!(byte, b'"' | b'\n' | b'\\' | b'#')) {
        return [bytes, b"\n"].concat();
    }
    let mut text = vec![b'"'];
    for byte in bytes {
        match byte {
            b'"' => text.extend_from_slice(b"\\\""),
            b'\\' => text.extend_from_slice(b"\\\\"),
            b'\n' => text.extend_from_slice(b"\\n"),
            other => text.push(*other),
        }
    }
    text.extend_from_slice(b"\"\n");
    text
}
