//! Writing two files as one.
//!
//! Both new files are written beside the old ones and synced; then a record says that they are to
//! take their places. From the moment it is durable the change will happen, by this process or by
//! the next one that opens the folder (see `repair`); before, it has not happened. The steps are
//! data, so that a test can stop after any of them.

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

/// The two files and what their replacements are called before they take their places.
pub(super) const FILES: [(&str, &str); 2] =
    [(TODO, ".TODO.md.adjutant-new"), (STATE, ".state.json.adjutant-new")];

/// The contents of both files, in the order of [`FILES`]; a file that is not there is none.
pub(super) type FilePair<'a> = [Option<&'a str>; 2];

/// The record of a change under way: what each file was and is to be.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct PendingRecord {
    pub(super) v: u32,
    pub(super) files: Vec<FileReplacement>,
}

/// One file of a change.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct FileReplacement {
    /// Which of [`FILES`] it is.
    pub(super) name: String,
    /// What it was; none where there was none.
    pub(super) before: Option<Fingerprint>,
    /// What it is to be.
    pub(super) after: Fingerprint,
}

/// How writing ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum WriteOutcome {
    /// Both files are new.
    Done,
    /// Someone else changed them meanwhile; nothing was written.
    Overtaken,
}

/// One step of writing.
#[derive(Debug)]
enum WriteStep<'a> {
    /// Writes a file beside its place.
    Prepare {
        name: &'static str,
        temp: &'static str,
        bytes: Cow<'a, [u8]>,
    },
    /// Lets a file take its place.
    Settle {
        name: &'static str,
        temp: &'static str,
        over: Overwrite,
    },
    /// Goes on only while the files are what they were.
    Compare,
    Sync,
    /// Forgets the record.
    Forget,
}

/// Replaces both files; the folder must be locked and mended.
pub(super) fn write(
    folder: &SpecsFolder,
    old: FilePair<'_>,
    new: FilePair<'_>,
) -> Result<WriteOutcome, SpecsError> {
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
        .map_err(|_| SpecsError::BadRecord { path: folder.named(PENDING) })?;
    let bytes = Cow::Owned(record);
    steps.push(WriteStep::Prepare { name: PENDING, temp: PENDING_NEW, bytes });
    steps.push(WriteStep::Compare);
    steps.push(WriteStep::Settle { name: PENDING, temp: PENDING_NEW, over: Overwrite::Refused });
    steps.push(WriteStep::Sync);
    steps.extend(settled);
    steps.push(WriteStep::Sync);
    // Not synced: a record that comes back finds both files in place and is removed again.
    steps.push(WriteStep::Forget);
    Ok(steps)
}

fn perform(
    folder: &SpecsFolder,
    old: FilePair<'_>,
    steps: Vec<WriteStep<'_>>,
) -> Result<WriteOutcome, SpecsError> {
    let mut is_certain = false;
    for step in steps {
        is_certain |= matches!(step, WriteStep::Settle { .. });
        match take(folder, old, step) {
            Ok(WriteOutcome::Done) => {}
            Ok(WriteOutcome::Overtaken) => {
                discard(folder);
                return Ok(WriteOutcome::Overtaken);
            }
            Err(error) => {
                // Once the record has its name the change may be durable, and is finished next time.
                if !is_certain {
                    discard(folder);
                }
                return Err(error);
            }
        }
    }
    Ok(WriteOutcome::Done)
}

fn take(
    folder: &SpecsFolder,
    old: FilePair<'_>,
    step: WriteStep<'_>,
) -> Result<WriteOutcome, SpecsError> {
    match step {
        WriteStep::Prepare { name, temp, bytes } => {
            let place = folder.place(name)?;
            let prepare = || place.prepare(&bytes, place.mode()?, OsStr::new(temp));
            prepare().map_err(|error| folder.failed("write", name, error))?;
        }
        WriteStep::Settle { name, temp, over } => {
            let settled = folder.place(name)?.move_into_place(OsStr::new(temp), over);
            settled.map_err(|error| folder.failed("replace", name, error))?;
        }
        WriteStep::Compare => {
            for ((name, _), text) in FILES.into_iter().zip(old) {
                let same = folder.place(name)?.has_content(text.map(str::as_bytes));
                if !same.map_err(|error| folder.failed("read", name, error))? {
                    return Ok(WriteOutcome::Overtaken);
                }
            }
        }
        WriteStep::Sync => folder.dir.sync().map_err(|error| folder.failed("sync", "", error))?,
        WriteStep::Forget => {
            let gone = folder.place(PENDING)?.unlink();
            gone.map_err(|error| folder.failed("remove", PENDING, error))?;
        }
    }
    Ok(WriteOutcome::Done)
}

/// Removes what was prepared for a change that does not happen.
pub(super) fn discard(folder: &SpecsFolder) {
    for (name, temp) in FILES.into_iter().chain([(PENDING, PENDING_NEW)]) {
        // Best effort: what stays is removed by the next writer.
        let _ = folder.place(name).map(|place| place.remove_temp(OsStr::new(temp)));
    }
}

#[cfg(test)]
#[path = "file_pair_tests.rs"]
mod tests;
