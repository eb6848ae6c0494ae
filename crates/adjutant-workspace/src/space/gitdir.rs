//! The private git directory of a workspace.
//!
//! It borrows the objects of the user's repository and nothing else: no configuration, hooks, references or
//! attributes. The index is a copy of the base's index, so that git trusts the timestamps of unchanged files and
//! does not read them again.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use super::WorkspaceError;
use crate::git::{ScratchGitDir, bytes_of, open_regular_file};
use crate::private;
use crate::{BaseLease, Diff, DiffEntry, ObjectId, Repository};

/// The prefix of index file names; the id of the base's tree follows.
const INDEX: &str = "index-";

/// If a base was moved by more files than this, its index is written from scratch.
const MAX_UPDATED_FILES: usize = 5_000;

/// Git's mode of a submodule entry.
const SUBMODULE: u32 = 0o160_000;

/// Skips the checksum over all entries: nothing verifies it, and computing it costs more than writing the index.
const SKIP_CHECKSUM: &str = "index.skipHash=true";

/// Writes a git directory whose HEAD is `commit`; the caller writes the index.
pub(super) fn write(
    repository: &Repository,
    into: &Path,
    commit: &ObjectId,
) -> Result<(), WorkspaceError> {
    let made = || -> io::Result<()> {
        for folder in ["objects/info", "refs/heads", "info"] {
            private::ensure_dir(&into.join(folder))?;
        }
        write_head(into, commit)?;
        private::write(&into.join("config"), repository.scratch_config())?;
        let objects = quoted(&repository.common_dir().join("objects"));
        private::write(&into.join("objects/info/alternates"), objects)?;
        for (from, to) in [("shallow", "shallow"), ("info/exclude", "info/exclude")] {
            let from = repository.common_dir().join(from);
            if from.symlink_metadata().is_ok_and(|found| found.is_file()) {
                io::copy(
                    &mut open_regular_file(&from)?,
                    &mut private::create_file(&into.join(to))?,
                )?;
            }
        }
        Ok(())
    };
    made().map_err(WorkspaceError::io("creating a private git directory"))
}

/// Writes only HEAD, over a git directory in a lower layer.
pub(super) fn write_head(into: &Path, commit: &ObjectId) -> io::Result<()> {
    private::ensure_dir(into)?;
    private::write(&into.join("HEAD"), format!("{commit}\n"))
}

/// Writes the index for a tree that differs from the base by `diff`; all other files keep the base's timestamps.
pub(super) fn write_index(
    repository: &Repository,
    lease: &BaseLease,
    diff: &Diff,
    into: &Path,
) -> Result<(), WorkspaceError> {
    let base = base_index(repository, lease)?;
    fs::copy(base, into).map_err(WorkspaceError::io("copying an index"))?;
    update(&repository.scratch(None)?, diff, into)
}

/// Updates only the entries of `diff`; the other entries keep their file timestamps.
fn update(scratch: &ScratchGitDir<'_>, diff: &Diff, index: &Path) -> Result<(), WorkspaceError> {
    if diff.entries.is_empty() {
        return Ok(());
    }
    let mut entries: Vec<&DiffEntry> = diff.entries.iter().collect();
    // Removals come first: a directory can replace a file only after the file's entry is gone.
    entries.sort_by_key(|entry| entry.new_mode != 0);
    let mut list = Vec::new();
    for entry in entries {
        list.extend_from_slice(format!("{:06o} {} 0\t", entry.new_mode, entry.new_id).as_bytes());
        list.extend_from_slice(bytes_of(&entry.path));
        list.push(0);
    }
    let call = scratch.call("update-index").config(SKIP_CHECKSUM).args(["-z", "--index-info"]);
    call.env("GIT_INDEX_FILE", index).run_with_input(&list)?;
    Ok(())
}

/// Returns the index of a base, which is written once and lies next to it.
fn base_index(repository: &Repository, lease: &BaseLease) -> Result<PathBuf, WorkspaceError> {
    let folder = lease.path().parent().unwrap_or(lease.path());
    let index = folder.join(format!("{INDEX}{}", lease.tree()));
    if index.exists() {
        return Ok(index);
    }
    let scratch = repository.scratch(None)?;
    let before = indexes(folder).map_err(WorkspaceError::io("writing the index of a base"))?;
    if !index_from_previous(repository, &scratch, lease, &before)? {
        let read = scratch.call_in("read-tree", lease.path()).config(SKIP_CHECKSUM);
        read.arg(lease.tree().as_str()).run()?;
        let refresh = scratch.call_in("update-index", lease.path()).config(SKIP_CHECKSUM);
        refresh.args(["-q", "--refresh"]).accept(&[0, 1]).run()?;
    }
    let put = || -> io::Result<()> {
        for (path, _) in &before {
            fs::remove_file(path)?;
        }
        private::make_private(&scratch.index())?;
        fs::rename(scratch.index(), &index)
    };
    put().map_err(WorkspaceError::io("writing the index of a base"))?;
    Ok(index)
}

/// Writes the index of a moved base by updating its previous index. Returns false if there is none.
///
/// Files that did not change are not examined, however large the base is.
fn index_from_previous(
    repository: &Repository,
    scratch: &ScratchGitDir<'_>,
    lease: &BaseLease,
    before: &[(PathBuf, ObjectId)],
) -> Result<bool, WorkspaceError> {
    let [(path, tree)] = before else { return Ok(false) };
    // The previous tree may have been removed from the repository.
    let Ok(diff) = repository.differences(tree, lease.tree()) else { return Ok(false) };
    if diff.entries.len() > MAX_UPDATED_FILES {
        return Ok(false);
    }
    fs::copy(path, scratch.index()).map_err(WorkspaceError::io("copying an index"))?;
    update(scratch, &diff, &scratch.index())?;
    let mut list = Vec::new();
    // Only files have timestamps.
    let is_file = |entry: &&DiffEntry| !matches!(entry.new_mode, 0 | SUBMODULE);
    for entry in diff.entries.iter().filter(is_file) {
        list.extend_from_slice(bytes_of(&entry.path));
        list.push(0);
    }
    if !list.is_empty() {
        let call = scratch.call_in("update-index", lease.path()).config(SKIP_CHECKSUM);
        call.args(["-z", "--stdin"]).run_with_input(&list)?;
    }
    Ok(true)
}

/// Lists the index files next to a base, each with its tree.
fn indexes(folder: &Path) -> io::Result<Vec<(PathBuf, ObjectId)>> {
    let mut all = Vec::new();
    for entry in fs::read_dir(folder)?.flatten() {
        let name = entry.file_name();
        let tree = name.to_str().and_then(|name| name.strip_prefix(INDEX));
        all.extend(tree.and_then(ObjectId::parse).map(|tree| (entry.path(), tree)));
    }
    Ok(all)
}

/// Quotes a path the way git expects it in a list of alternates.
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
