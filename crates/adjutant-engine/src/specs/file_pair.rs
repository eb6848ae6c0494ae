//! Replacing `TODO.md` and `state.json` atomically, both or none.
//!
//! Both new files are written under temporary names and synced; then a record of the change is renamed into
//! place. Once the record is durable, this process or the next one that opens the folder (see `repair`) renames
//! the files. The steps are data, so that a test can stop after any of them.

use std::borrow::Cow;
use std::ffi::OsStr;

use adjutant_core::fingerprint::Fingerprint;
use adjutant_workspace::Overwrite;
use serde::{Deserialize, Serialize};

use super::error::SpecsError;
use super::folder::SpecsFolder;
use super::repair::{PENDING, PENDING_NEW};

pub(super) const TODO: &str = "TODO.md";
pub(super) const STATE: &str = "state.json";

/// The two files with the temporary names of their replacements.
pub(super) const FILES: [(&str, &str); 2] =
    [(TODO, ".TODO.md.adjutant-new"), (STATE, ".state.json.adjutant-new")];

/// The contents of both files, in the order of [`FILES`]; `None` for a missing file.
pub(super) type FilePair<'a> = [Option<&'a str>; 2];

/// The record of a change in progress: the old and new fingerprint of each file.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct PendingRecord {
    pub(super) v: u32,
    pub(super) files: Vec<FileReplacement>,
}

/// The old and new content of one file, as fingerprints, in the record of a change.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct FileReplacement {
    /// The name, one of [`FILES`].
    pub(super) name: String,
    /// The old content; `None` if the file was missing.
    pub(super) before: Option<Fingerprint>,
    /// The new content.
    pub(super) after: Fingerprint,
}

/// Whether both files were replaced. Failures are a `SpecsError`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FilePairOutcome {
    /// Both files were replaced.
    Replaced,
    /// They were changed meanwhile; nothing was replaced.
    Overtaken,
}

/// One step of replacing the files.
#[derive(Debug)]
enum WriteStep<'a> {
    /// Writes a new file under its temporary name and syncs it.
    Prepare {
        name: &'static str,
        temp: &'static str,
        bytes: Cow<'a, [u8]>,
    },
    /// Renames a new file to its final name.
    Settle {
        name: &'static str,
        temp: &'static str,
        over: Overwrite,
    },
    /// Stops if the files have changed.
    Compare,
    Sync,
    /// Removes the record.
    Forget,
}

/// Replaces both files. The folder must be locked, and an interrupted change finished.
pub(super) fn write(
    folder: &SpecsFolder,
    old: FilePair<'_>,
    new: FilePair<'_>,
) -> Result<FilePairOutcome, SpecsError> {
    perform(folder, old, steps(folder, old, new)?)
}

fn steps<'a>(
    folder: &SpecsFolder,
    old: FilePair<'_>,
    new: FilePair<'a>,
) -> Result<Vec<WriteStep<'a>>, SpecsError> {
    let mut steps = Vec::new();
    let mut files = Vec::new();
    let mut settled = Vec::new();
    for ((name, temp), (before, after)) in FILES.into_iter().zip(old.into_iter().zip(new)) {
        let Some(after) = after.filter(|_| before != after) else { continue };
        folder.check_size(name, after)?;
        let bytes = Cow::Borrowed(after.as_bytes());
        steps.push(WriteStep::Prepare { name, temp, bytes });
        files.push(FileReplacement {
            name: name.to_owned(),
            before: before.map(|text| Fingerprint::of_content(text.as_bytes())),
            after: Fingerprint::of_content(after.as_bytes()),
        });
        let over = if before.is_some() { Overwrite::Allowed } else { Overwrite::Refused };
        settled.push(WriteStep::Settle { name, temp, over });
    }
    let record = serde_json::to_vec(&PendingRecord { v: 1, files })
        .map_err(|_| SpecsError::BadRecord { path: folder.relative_path(PENDING) })?;
    let bytes = Cow::Owned(record);
    steps.push(WriteStep::Prepare { name: PENDING, temp: PENDING_NEW, bytes });
    steps.push(WriteStep::Compare);
    steps.push(WriteStep::Settle { name: PENDING, temp: PENDING_NEW, over: Overwrite::Refused });
    steps.push(WriteStep::Sync);
    steps.extend(settled);
    steps.push(WriteStep::Sync);
    // Not synced: if the record reappears after a crash, repair finds both files in place and removes it.
    steps.push(WriteStep::Forget);
    Ok(steps)
}

fn perform(
    folder: &SpecsFolder,
    old: FilePair<'_>,
    steps: Vec<WriteStep<'_>>,
) -> Result<FilePairOutcome, SpecsError> {
    let mut is_certain = false;
    for step in steps {
        is_certain |= matches!(step, WriteStep::Settle { .. });
        match take(folder, old, step) {
            Ok(FilePairOutcome::Replaced) => {}
            Ok(FilePairOutcome::Overtaken) => {
                discard(folder);
                return Ok(FilePairOutcome::Overtaken);
            }
            Err(error) => {
                // Once the record is renamed the change may be durable; the next process finishes it.
                if !is_certain {
                    discard(folder);
                }
                return Err(error);
            }
        }
    }
    Ok(FilePairOutcome::Replaced)
}

fn take(
    folder: &SpecsFolder,
    old: FilePair<'_>,
    step: WriteStep<'_>,
) -> Result<FilePairOutcome, SpecsError> {
    match step {
        WriteStep::Prepare { name, temp, bytes } => {
            let place = folder.place(name)?;
            let prepare = || place.prepare(&bytes, place.mode()?, OsStr::new(temp));
            prepare().map_err(|error| folder.file_error("write", name, error))?;
        }
        WriteStep::Settle { name, temp, over } => {
            let settled = folder.place(name)?.move_into_place(OsStr::new(temp), over);
            settled.map_err(|error| folder.file_error("replace", name, error))?;
        }
        WriteStep::Compare => {
            for ((name, _), text) in FILES.into_iter().zip(old) {
                let same = folder.place(name)?.has_content(text.map(str::as_bytes));
                if !same.map_err(|error| folder.file_error("read", name, error))? {
                    return Ok(FilePairOutcome::Overtaken);
                }
            }
        }
        WriteStep::Sync => {
            folder.dir.sync().map_err(|error| folder.file_error("sync", "", error))?
        }
        WriteStep::Forget => {
            let gone = folder.place(PENDING)?.unlink();
            gone.map_err(|error| folder.file_error("remove", PENDING, error))?;
        }
    }
    Ok(FilePairOutcome::Replaced)
}

/// Removes the temporary files of a change that is given up.
pub(super) fn discard(folder: &SpecsFolder) {
    for (name, temp) in FILES.into_iter().chain([(PENDING, PENDING_NEW)]) {
        // Best effort: the next writer removes them.
        let _ = folder.place(name).map(|place| place.remove_temp(OsStr::new(temp)));
    }
}

#[cfg(test)]
#[path = "file_pair_tests.rs"]
mod tests;
