//! Replacing files of a workspace with the outcome of a merge, all of them or none.
//!
//! A workspace contains files that git does not know: ignored ones, and ones too large to keep. Anything that is in
//! the way and differs from what was merged is reported as a conflict, and nothing is replaced. Uses the journal of
//! `apply`, here only for undoing.
//!
//! Start at [`Repository::replace_files`]. Invariant: every file is opened beneath the root, and no link is
//! followed.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, unlinkat};

use super::apply::{LINK, save_before, state_after};
use super::export::write_images;
use super::journal::{
    FileState, JournalStage, ReplacePlan, ReplaceStep, StepError, StepSide, discard, stage,
    sync_disk,
};
use crate::git::{Diff, DiffEntry, DiffStatus, GitError, Repository};
use crate::private;
use crate::{Conflict, ConflictKind, ConflictSide, Dir, FileKind, PathError, RelPath, Root};

/// The file of a journal with the caller's note.
const NOTE: &str = "note";

/// The most entries of a directory that is replaced by a file.
const MAX_ENTRIES: usize = 100_000;

impl Repository {
    /// Applies `diff` to the files beneath `root`, or returns the conflicts.
    ///
    /// If conflicts or an error are returned, nothing was replaced. The journal is written to `folder` and stays
    /// there with `note` until it is removed; see [`recover_replacement`]. A rename counts as one removed and one
    /// added file.
    pub(crate) fn replace_files(
        &self,
        root: &Root,
        diff: &Diff,
        folder: &Path,
        note: &str,
    ) -> Result<Vec<Conflict>, GitError> {
        let begin = || -> io::Result<()> {
            remove_journal(folder)?;
            private::create_dir(folder)?;
            private::create_dir(&folder.join("before"))?;
            private::create_dir(&folder.join("after"))?;
            private::write(&folder.join(NOTE), note)?;
            File::open(folder.join(NOTE))?.sync_all()
        };
        begin().map_err(GitError::io("creating a journal"))?;
        let mut plan = ReplacePlan { folder: folder.to_owned(), steps: Vec::new() };
        let done = self.replace_by_plan(&mut plan, root, &split_renames(diff));
        let failed = !matches!(&done, Ok(conflicts) if conflicts.is_empty());
        // Without a saved plan nothing was replaced. A journal that could not be undone stays.
        let saved = !matches!(ReplacePlan::load(folder), Ok(None));
        if failed
            && (!saved || matches!(plan.restore(root, &sync_disk), Ok(left) if left.is_empty()))
        {
            remove_journal(folder).map_err(GitError::io("removing a journal"))?;
        }
        done
    }

    fn replace_by_plan(
        &self,
        plan: &mut ReplacePlan,
        root: &Root,
        diff: &Diff,
    ) -> Result<Vec<Conflict>, GitError> {
        let written = diff.entries.iter().enumerate().filter(|(_, entry)| entry.new_mode != 0);
        let contents = written.map(|(number, entry)| (number, &entry.new_id));
        write_images(self, contents, &plan.folder.join("after"))?;
        let removed = diff.entries.iter().filter(|it| it.old_mode != 0 && it.new_mode == 0);
        let removed: BTreeSet<&Path> = removed.map(|entry| entry.path.as_path()).collect();
        let mut found = Obstacles::default();
        for (number, entry) in diff.entries.iter().enumerate() {
            let way = find_obstacle(root, entry, &removed, &mut found);
            way.map_err(|source| GitError::Path { path: entry.path.clone(), source })?;
            let before = match save_before(root, &entry.path, &plan.image(number, StepSide::Before))
            {
                Ok(before) => before,
                Err(_) => {
                    found.conflicts.push(conflict(&entry.path, entry));
                    FileState::Nothing
                }
            };
            let after = state_after(&before, entry.new_mode);
            plan.steps.push(ReplaceStep { path: entry.path.clone(), before, after });
        }
        found.conflicts.extend(self.changed_files(plan, diff)?);
        if !found.conflicts.is_empty() {
            found.conflicts.sort_by(|one, other| one.path.cmp(&other.path));
            found.conflicts.dedup_by(|one, other| one.path == other.path);
            return Ok(found.conflicts);
        }
        plan.save(&sync_disk).map_err(GitError::io("writing a journal"))?;
        found.remove_empty_folders(root);
        plan.carry_out(root, &sync_disk).map_err(step_error)?;
        Ok(Vec::new())
    }

    /// Returns the files that differ from what was merged.
    ///
    /// A file that already has the new content is no conflict.
    fn changed_files(&self, plan: &ReplacePlan, diff: &Diff) -> Result<Vec<Conflict>, GitError> {
        let steps = || plan.steps.iter().zip(&diff.entries).enumerate();
        let there: Vec<(usize, &DiffEntry)> = steps()
            .filter(|(_, (step, entry))| step.before != FileState::Nothing && entry.old_mode != 0)
            .map(|(number, (_, entry))| (number, entry))
            .collect();
        let changed: BTreeSet<PathBuf> = self.differing_files(plan, &there)?.into_iter().collect();
        let mut changed_paths = Vec::new();
        for (number, (step, entry)) in steps() {
            let same = match (&step.before, entry.old_mode) {
                // Already removed.
                (FileState::Nothing, mode) => mode == 0 || entry.new_mode == 0,
                (FileState::Link, LINK) => !changed.contains(&step.path),
                (FileState::Link | FileState::File(_), 0) => is_after(plan, number, step)?,
                (FileState::Link, _) | (FileState::File(_), LINK) => false,
                (FileState::File(mode), old) => {
                    (mode ^ old) & 0o100 == 0 && !changed.contains(&step.path)
                }
            };
            if !same {
                changed_paths.push(conflict(&step.path, entry));
            }
        }
        Ok(changed_paths)
    }
}

/// Undoes an interrupted replacement and removes its journal.
///
/// If the replacement was complete, returns its note and leaves the journal; the caller removes it with
/// [`remove_journal`] once the note is recorded.
pub(crate) fn recover_replacement(
    folder: &Path,
    root: impl FnOnce() -> Result<Root, PathError>,
) -> Result<Option<String>, GitError> {
    if !folder.exists() {
        return Ok(None);
    }
    let reading = || GitError::io("reading a journal");
    match stage(folder).map_err(reading())? {
        JournalStage::Done => {
            let note = fs::read_to_string(folder.join(NOTE));
            return note.map(Some).map_err(reading());
        }
        JournalStage::Unfinished => {
            let plan = ReplacePlan::load(folder).map_err(reading())?;
            let root =
                root().map_err(|source| GitError::Path { path: folder.to_owned(), source })?;
            // Files that were changed meanwhile stay as they are: they are work like any other.
            if let Some(plan) = plan {
                plan.restore(&root, &sync_disk).map_err(step_error)?;
            }
        }
        // It was interrupted before its first step.
        JournalStage::Empty => {}
    }
    remove_journal(folder).map_err(GitError::io("removing a journal"))?;
    Ok(None)
}

/// Removes a journal, if it exists.
pub(crate) fn remove_journal(folder: &Path) -> io::Result<()> {
    match discard(folder) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        removed => removed,
    }
}

/// What is in the way of the files to write.
#[derive(Default)]
struct Obstacles {
    conflicts: Vec<Conflict>,
    /// Directories that a file replaces and that contain only removed files, deepest first.
    folders: Vec<PathBuf>,
}

impl Obstacles {
    /// Removes empty directories; the others are removed with their files.
    fn remove_empty_folders(&self, root: &Root) {
        for path in &self.folders {
            let Ok(Some((_, FileKind::Directory, parent))) = first_non_directory(root, path) else {
                continue;
            };
            let name = Path::new(path.file_name().unwrap_or_default());
            // A directory that is not empty is removed later.
            let _ = unlinkat(parent.handle(), name, AtFlags::REMOVEDIR);
        }
    }
}

/// Checks what is in the way of a file to write.
fn find_obstacle(
    root: &Root,
    entry: &DiffEntry,
    removed: &BTreeSet<&Path>,
    found: &mut Obstacles,
) -> Result<(), PathError> {
    if entry.new_mode == 0 {
        return Ok(());
    }
    let Some((at, kind, parent)) = first_non_directory(root, &entry.path)? else { return Ok(()) };
    if at == entry.path {
        if kind == FileKind::Directory {
            let folder = parent.open_dir(entry.path.file_name().unwrap_or_default())?;
            if let Some(other) = first_kept_file(&folder, &at, removed, &mut found.folders)? {
                let kind = ConflictKind::FileAndFolder;
                found.conflicts.push(Conflict { kind, ..conflict(&other, entry) });
            }
            found.folders.push(at);
        }
    } else if !removed.contains(at.as_path()) {
        let kind = ConflictKind::FileAndFolder;
        found.conflicts.push(Conflict { kind, ..conflict(&at, entry) });
    }
    Ok(())
}

/// Returns what is at a path, or the first component on the way that is not a directory, with its parent.
fn first_non_directory(
    root: &Root,
    path: &Path,
) -> Result<Option<(PathBuf, FileKind, Dir)>, PathError> {
    let mut folder = root.open_dir(&RelPath::default())?;
    let mut at = PathBuf::new();
    let mut names = path.iter().peekable();
    while let Some(name) = names.next() {
        at.push(name);
        match folder.kind_of(name)? {
            None => return Ok(None),
            Some(FileKind::Directory) if names.peek().is_some() => {
                folder = folder.open_dir(name)?
            }
            Some(kind) => return Ok(Some((at, kind, folder))),
        }
    }
    Ok(None)
}

/// Returns the first file in a directory that is not going to be removed.
fn first_kept_file(
    folder: &Dir,
    path: &Path,
    removed: &BTreeSet<&Path>,
    folders: &mut Vec<PathBuf>,
) -> Result<Option<PathBuf>, PathError> {
    let listed = folder.list(MAX_ENTRIES)?;
    if listed.truncated {
        return Ok(Some(path.to_owned()));
    }
    for entry in listed.entries {
        let at = path.join(&entry.name);
        if entry.kind == FileKind::Directory {
            let below = folder.open_dir(&entry.name)?;
            if let Some(other) = first_kept_file(&below, &at, removed, folders)? {
                return Ok(Some(other));
            }
            folders.push(at);
        } else if !removed.contains(at.as_path()) {
            return Ok(Some(at));
        }
    }
    Ok(None)
}

/// Says whether the file already is what it is to become.
fn is_after(plan: &ReplacePlan, number: usize, step: &ReplaceStep) -> Result<bool, GitError> {
    if step.before != step.after {
        return Ok(false);
    }
    let read = |when| fs::read(plan.image(number, when));
    let same = || -> io::Result<bool> { Ok(read(StepSide::Before)? == read(StepSide::After)?) };
    same().map_err(GitError::io("reading a journal"))
}

/// Splits each rename into a removed and an added file, sorted by path.
fn split_renames(diff: &Diff) -> Diff {
    let mut single = Diff::default();
    for entry in &diff.entries {
        let mut entry = entry.clone();
        if let DiffStatus::Renamed(from) = &entry.status {
            let gone = DiffEntry { path: from.clone(), new_mode: 0, ..entry.clone() };
            single.entries.push(DiffEntry { status: DiffStatus::Deleted, ..gone });
            entry = DiffEntry { status: DiffStatus::Added, old_mode: 0, ..entry };
        }
        single.entries.push(entry);
    }
    single.entries.sort_by(|one, other| one.path.cmp(&other.path));
    single
}

/// Returns a conflict with a file that git does not know.
fn conflict(path: &Path, entry: &DiffEntry) -> Conflict {
    let side = |mode: u32, id: &crate::ObjectId| {
        (mode != 0).then(|| ConflictSide { mode, id: id.clone() })
    };
    let kind = match (entry.old_mode, entry.new_mode) {
        (0, _) => ConflictKind::BothAdded,
        (_, 0) => ConflictKind::DeletedByChild,
        (_, _) => ConflictKind::BothModified,
    };
    let base = side(entry.old_mode, &entry.old_id);
    let theirs = side(entry.new_mode, &entry.new_id);
    Conflict { path: path.to_owned(), kind, base, ours: None, theirs }
}

fn step_error(step_error: StepError) -> GitError {
    GitError::Path { path: step_error.path, source: step_error.source }
}
