//! Writing two files as one.
//!
//! Both new files are written beside the old ones and synced; then a record says that they are to
//! take their places. From the moment it is durable the change will happen, by this process or by
//! the next one that opens the folder (see `repair`); before, it has not happened. The steps are
//! data, so that a test can stop after any of them.

use std::ffi::OsStr;

use adjutant_core::fingerprint::Fingerprint;
use adjutant_core::task::Book;
use serde::{Deserialize, Serialize};

use super::error::SpecsError;
use super::folder::Folder;
use super::repair::{PENDING, PENDING_NEW};

pub(super) const TODO: &str = "TODO.md";
pub(super) const STATE: &str = "state.json";

/// The two files and what their replacements are called before they take their places.
pub(super) const FILES: [(&str, &str); 2] =
    [(TODO, ".TODO.md.adjutant-new"), (STATE, ".state.json.adjutant-new")];

/// The contents of both files; a file that is not there is none.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Pair {
    pub(super) todo: Option<String>,
    pub(super) state: Option<String>,
}

/// The record of a change under way: what each file was and is to be.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Record {
    pub(super) v: u32,
    pub(super) files: Vec<Replacement>,
}

/// One file of a change.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Replacement {
    /// Which of [`FILES`] it is.
    pub(super) name: String,
    /// What it was; none where there was none.
    pub(super) before: Option<Fingerprint>,
    /// What it is to be.
    pub(super) after: Fingerprint,
}

/// How writing ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Written {
    /// Both files are new.
    Done,
    /// Someone else changed them meanwhile; nothing was written.
    Overtaken,
}

/// One step of writing.
#[derive(Debug)]
enum Step {
    Create {
        name: &'static str,
        bytes: Vec<u8>,
        like: Option<&'static str>,
    },
    Rename {
        from: &'static str,
        to: &'static str,
    },
    /// Goes on only while the files are what they were.
    Compare,
    Sync,
    Remove {
        name: &'static str,
    },
}

impl Pair {
    pub(super) fn new(todo: &str, state: &str) -> Self {
        Self { todo: Some(todo.to_owned()), state: Some(state.to_owned()) }
    }

    pub(super) fn book(&self, folder: &'static str) -> Result<Book, SpecsError> {
        Book::read(self.todo.as_deref(), self.state.as_deref())
            .map_err(|damage| SpecsError::Damaged { folder, damage })
    }

    fn contents(&self) -> [Option<&str>; 2] {
        [self.todo.as_deref(), self.state.as_deref()]
    }
}

/// Replaces both files; the folder must be locked and mended.
pub(super) fn write(folder: &Folder, old: &Pair, new: &Pair) -> Result<Written, SpecsError> {
    perform(folder, old, steps(folder, old, new)?)
}

fn steps(folder: &Folder, old: &Pair, new: &Pair) -> Result<Vec<Step>, SpecsError> {
    let mut steps = Vec::new();
    let mut files = Vec::new();
    let mut renames = Vec::new();
    for ((name, temp), (before, after)) in
        FILES.into_iter().zip(old.contents().into_iter().zip(new.contents()))
    {
        let Some(after) = after.filter(|_| before != after) else { continue };
        steps.push(Step::Create { name: temp, bytes: after.into(), like: Some(name) });
        files.push(Replacement {
            name: name.to_owned(),
            before: before.map(|text| Fingerprint::of_content(text.as_bytes())),
            after: Fingerprint::of_content(after.as_bytes()),
        });
        renames.push(Step::Rename { from: temp, to: name });
    }
    let record = serde_json::to_vec(&Record { v: 1, files })
        .map_err(|_| SpecsError::BadRecord { path: folder.named(PENDING) })?;
    steps.push(Step::Create { name: PENDING_NEW, bytes: record, like: None });
    steps.push(Step::Compare);
    steps.push(Step::Rename { from: PENDING_NEW, to: PENDING });
    steps.push(Step::Sync);
    steps.extend(renames);
    steps.push(Step::Sync);
    // Not synced: a record that comes back finds both files in place and is removed again.
    steps.push(Step::Remove { name: PENDING });
    Ok(steps)
}

fn perform(folder: &Folder, old: &Pair, steps: Vec<Step>) -> Result<Written, SpecsError> {
    let (dir, name) = (&folder.dir, OsStr::new);
    let mut is_certain = false;
    for step in steps {
        let done = match step {
            Step::Create { name: new, bytes, like } => dir
                .create_file(name(new), &bytes, like.map(name))
                .map_err(|error| folder.failed("write", new, error)),
            Step::Rename { from, to } => {
                is_certain |= to == PENDING;
                dir.rename(name(from), name(to))
                    .map_err(|error| folder.failed("replace", to, error))
            }
            Step::Compare if folder.read()? != *old => {
                discard(folder);
                return Ok(Written::Overtaken);
            }
            Step::Compare => Ok(()),
            Step::Sync => dir.sync().map_err(|error| folder.failed("sync", "", error)),
            Step::Remove { name: gone } => dir
                .remove_file(name(gone))
                .map(drop)
                .map_err(|error| folder.failed("remove", gone, error)),
        };
        if let Err(error) = done {
            // Once the record has its name the change may be durable, and is finished next time.
            if !is_certain {
                discard(folder);
            }
            return Err(error);
        }
    }
    Ok(Written::Done)
}

/// Removes what was prepared for a change that does not happen.
pub(super) fn discard(folder: &Folder) {
    for name in FILES.map(|(_, temp)| temp).into_iter().chain([PENDING_NEW]) {
        // Best effort: what stays is removed by the next writer.
        let _ = folder.dir.remove_file(OsStr::new(name));
    }
}

#[cfg(test)]
#[path = "pair_tests.rs"]
mod tests;
