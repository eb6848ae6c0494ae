//! Preparing a journal: it stores the old and the new content of every path before anything is replaced.
//!
//! Start at [`Repository::plan`]. Invariant: a file whose content on disk differs from what git has is refused.

use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use super::ApplyError;
use crate::git::{Diff, DiffEntry, GitError, ObjectId, OpenedContent, Repository, content_at};
use crate::private;
use crate::trees::export::write_images;
use crate::trees::journal::{self, FileState, ReplacePlan, ReplaceStep, StepSide, sync_disk};
use crate::{PathError, RelPath, Root};

/// Git's mode of a symbolic link.
pub(in crate::trees) const LINK: u32 = 0o120_000;

impl Repository {
    /// Writes a journal with everything needed to carry the change out and to undo it.
    pub(super) fn plan(
        &self,
        result: &ObjectId,
        root: &Root,
        diff: &Diff,
    ) -> Result<(String, ReplacePlan), ApplyError> {
        let (name, folder) = self.journal_folder(result)?;
        let mut plan = ReplacePlan { folder, steps: Vec::new() };
        let prepared = self.fill_journal(&mut plan, root, diff);
        if prepared.is_err() {
            // Best effort: a journal without a plan is removed later.
            let _ = journal::discard(&plan.folder);
        }
        prepared.map(|()| (name, plan))
    }

    /// Refuses files whose content on disk differs from what git has, without touching one: git reports files as
    /// unchanged that the user marked so (`assume-unchanged`).
    pub(in crate::trees) fn refuse_hidden(
        &self,
        result: &ObjectId,
        diff: &Diff,
    ) -> Result<(), ApplyError> {
        let (_, folder) = self.journal_folder(result)?;
        let mut plan = ReplacePlan { folder, steps: Vec::new() };
        let found = self.root().map_err(Into::into);
        let found = found.and_then(|root| self.store_current(&mut plan, &root, diff));
        // Best effort: a journal without a plan is removed later.
        let _ = journal::discard(&plan.folder);
        let paths = found?;
        if paths.is_empty() { Ok(()) } else { Err(ApplyError::Dirty { paths }) }
    }

    /// Stores the current content of every path, and returns the paths where it differs from what git has.
    fn store_current(
        &self,
        plan: &mut ReplacePlan,
        root: &Root,
        diff: &Diff,
    ) -> Result<Vec<PathBuf>, ApplyError> {
        let mut dirty = Vec::new();
        let mut expected = Vec::new();
        for (number, entry) in diff.entries.iter().enumerate() {
            let before = save_before(root, &entry.path, &plan.image(number, StepSide::Before))?;
            if (before == FileState::Nothing) != (entry.old_mode == 0) {
                dirty.push(entry.path.clone());
            }
            if before != FileState::Nothing {
                expected.push((number, entry));
            }
            let after = state_after(&before, entry.new_mode);
            plan.steps.push(ReplaceStep { path: entry.path.clone(), before, after });
        }
        dirty.extend(self.differing_files(plan, &expected)?);
        Ok(dirty)
    }

    fn fill_journal(
        &self,
        plan: &mut ReplacePlan,
        root: &Root,
        diff: &Diff,
    ) -> Result<(), ApplyError> {
        let dirty = self.store_current(plan, root, diff)?;
        if !dirty.is_empty() {
            return Err(ApplyError::Dirty { paths: dirty });
        }
        let written = diff.entries.iter().enumerate().filter(|(_, entry)| entry.new_mode != 0);
        let contents = written.map(|(number, entry)| (number, &entry.new_id));
        write_images(self, contents, &plan.folder.join("after"))?;
        Ok(plan.save(&sync_disk).map_err(GitError::io("writing a journal"))?)
    }

    /// Returns the files whose stored content differs from what git has.
    pub(in crate::trees) fn differing_files(
        &self,
        plan: &ReplacePlan,
        expected: &[(usize, &DiffEntry)],
    ) -> Result<Vec<PathBuf>, GitError> {
        if expected.is_empty() {
            return Ok(Vec::new());
        }
        let scratch = self.scratch(None)?;
        let list: String = expected.iter().map(|(number, _)| format!("{number}\n")).collect();
        let call = scratch.call("hash-object").args(["--no-filters", "--stdin-paths"]);
        let output = call.folder(plan.folder.join("before")).run_with_input(list.as_bytes())?;
        let ids: Vec<Option<ObjectId>> =
            output.bytes.split(|byte| *byte == b'\n').map(ObjectId::from_bytes).collect();
        let differs = |(at, (_, entry)): (usize, &(usize, &DiffEntry))| {
            let same = ids.get(at).and_then(Option::as_ref) == Some(&entry.old_id);
            (!same && entry.old_mode != 0).then(|| entry.path.clone())
        };
        Ok(expected.iter().enumerate().filter_map(differs).collect())
    }

    fn journal_folder(&self, result: &ObjectId) -> Result<(String, PathBuf), GitError> {
        let short = result.as_str().get(..12).unwrap_or_default();
        let mut number = 1;
        loop {
            let name = format!("{short}-{number}");
            let folder = self.journals_dir().join(&name);
            match private::create_dir(&folder) {
                Ok(()) => {
                    let made = private::create_dir(&folder.join("before"))
                        .and_then(|()| private::create_dir(&folder.join("after")));
                    made.map_err(GitError::io("creating a journal"))?;
                    return Ok((name, folder));
                }
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => number += 1,
                Err(error) => return Err(GitError::io("creating a journal")(error)),
            }
        }
    }
}

/// Copies the content of a path into the journal.
pub(in crate::trees) fn save_before(
    root: &Root,
    path: &Path,
    image: &Path,
) -> Result<FileState, ApplyError> {
    let stuck = |source| ApplyError::Stuck { path: path.to_owned(), source };
    let copying = GitError::io("copying a file into the journal");
    let found = RelPath::new(path).and_then(|path| content_at(root, &path)).map_err(stuck)?;
    match found {
        Ok(OpenedContent::Nothing) => Ok(FileState::Nothing),
        Ok(OpenedContent::Link(target)) => {
            private::write(image, target).map_err(copying)?;
            Ok(FileState::Link)
        }
        Ok(OpenedContent::File { mut file, .. }) => {
            let mut copy = || -> io::Result<u32> {
                io::copy(&mut file, &mut private::create_file(image)?)?;
                Ok(file.metadata()?.permissions().mode())
            };
            Ok(FileState::File(copy().map_err(copying)? & 0o777))
        }
        Err(_) => Err(stuck(PathError::PermissionDenied)),
    }
}

/// Returns the state after the change: permissions stay, except for the executable bits.
pub(in crate::trees) fn state_after(before: &FileState, mode: u32) -> FileState {
    match mode {
        0 => FileState::Nothing,
        LINK => FileState::Link,
        mode => {
            let kept = if let FileState::File(kept) = before { *kept } else { 0o644 };
            // Every account that may read it may execute it.
            let executable = (kept & 0o444) >> 2;
            let plain = kept & !0o111;
            FileState::File(if mode & 0o100 == 0 { plain } else { kept | executable })
        }
    }
}
