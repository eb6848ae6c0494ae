//! Git's own folder inside a workspace.
//!
//! It borrows the objects of the user's repository and nothing else: no configuration, hooks,
//! references or attributes of anybody's. The index is the base's own, so that git trusts the dates
//! of files nobody touched and does not read them again.

use std::fs;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use super::SpaceError;
use crate::git::{bytes_of, open_plain};
use crate::{Lease, ObjectId, Repository};

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
