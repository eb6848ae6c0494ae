//! A journal for replacing many files, all or none.
//!
//! First the new and the old content of every file is written to the journal's directory, then the plan; only then
//! is a file touched. A plan without its `done` mark is undone. This module knows nothing of git.
//!
//! The number of syncs does not depend on the number of files: before the plan, before the first file is moved into
//! place, before the mark. So after a power cut each file has its old content, its new content, or is missing, and
//! is never half written.
//!
//! Start at [`ReplacePlan::carry_out`]. Invariant: a file is replaced or restored only while it is exactly what the
//! plan expects.

mod files;

use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::io::{self, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::path::{Path, PathBuf};

use files::is_absent;
use rustix::fs::syncfs;

use super::export;
use crate::git::{bytes_of, path_of};
use crate::private;
use crate::{PathError, RelPath, Root};

/// What is, or is to be, at a path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum FileState {
    Nothing,
    /// A file with these permissions; its content is stored in the journal.
    File(u32),
    /// A symbolic link; its target is stored in the journal.
    Link,
}

/// The replacement of one path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ReplaceStep {
    pub(super) path: PathBuf,
    pub(super) before: FileState,
    pub(super) after: FileState,
}

/// The replacements, and the journal's directory with the stored content.
#[derive(Debug)]
pub(super) struct ReplacePlan {
    pub(super) folder: PathBuf,
    pub(super) steps: Vec<ReplaceStep>,
}

/// Syncs the file system that a handle belongs to; tests substitute it.
pub(super) type SyncFn<'a> = &'a dyn Fn(BorrowedFd<'_>) -> io::Result<()>;

/// Syncs the file system with `syncfs`.
pub(crate) fn sync_disk(handle: BorrowedFd<'_>) -> io::Result<()> {
    Ok(syncfs(handle)?)
}

/// Says whether a path is a temporary file of an interrupted replacement.
///
/// The name is `.adjutant-`, the name of a journal, and a number; no one names work like that.
pub(crate) fn is_temp_of_replacement(path: &Path) -> bool {
    let name = path.file_name().map(OsStr::as_encoded_bytes).unwrap_or_default();
    let Some(name) = name.strip_prefix(b".adjutant-").and_then(|it| it.strip_suffix(b".new"))
    else {
        return false;
    };
    let parts: Vec<&[u8]> = name.split(|byte| *byte == b'-').collect();
    let is_number = |part: &[u8]| !part.is_empty() && part.iter().all(u8::is_ascii_digit);
    matches!(parts.as_slice(), [commit, times, step]
        if commit.len() == 12 && commit.iter().all(u8::is_ascii_hexdigit)
            && is_number(times) && is_number(step))
}

/// Removes a journal that is no longer needed.
///
/// The plan is removed and fsynced first: a journal without a plan has nothing to undo, so a kill during the rest
/// does no harm.
pub(super) fn discard(folder: &Path) -> io::Result<()> {
    match fs::remove_file(folder.join("plan")) {
        Ok(()) => File::open(folder)?.sync_all()?,
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(error),
    }
    fs::remove_dir_all(folder)
}

/// Returns whether a journal has a plan, and whether that is complete.
pub(super) fn stage(folder: &Path) -> io::Result<JournalStage> {
    Ok(match (folder.join("plan").try_exists()?, folder.join("done").try_exists()?) {
        (false, _) => JournalStage::Empty,
        (true, false) => JournalStage::Unfinished,
        (true, true) => JournalStage::Done,
    })
}

/// The progress of a journal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum JournalStage {
    /// No file was touched yet, or everything was restored.
    Empty,
    /// Some of the files may be replaced.
    Unfinished,
    /// All files are replaced.
    Done,
}

/// Why a path could not be replaced or restored.
#[derive(Debug)]
pub(super) struct StepError {
    pub(super) path: PathBuf,
    pub(super) source: PathError,
}

/// Selects the state of a path before or after its replacement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum StepSide {
    Before,
    After,
}

/// What to do with a path that is to be restored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RestoreDecision {
    /// Nothing: it has its old content.
    AlreadyRestored,
    /// Restore it: the plan wrote what is there.
    WrittenByPlan,
    /// Leave it: it was changed since.
    ChangedSince,
}

impl StepSide {
    const fn folder(self) -> &'static str {
        match self {
            Self::Before => "before",
            Self::After => "after",
        }
    }
}

impl ReplaceStep {
    const fn state(&self, when: StepSide) -> &FileState {
        match when {
            StepSide::Before => &self.before,
            StepSide::After => &self.after,
        }
    }
}

impl ReplacePlan {
    /// Writes the plan. From here on it must be carried out or undone.
    pub(super) fn save(&self, sync: SyncFn<'_>) -> io::Result<()> {
        let folder = File::open(&self.folder)?;
        sync(folder.as_fd())?;
        let mut bytes = Vec::new();
        for step in &self.steps {
            bytes.extend_from_slice(bytes_of(&step.path));
            bytes.push(0);
            for thing in [&step.before, &step.after] {
                let word = match thing {
                    FileState::Nothing => "-".to_owned(),
                    FileState::File(mode) => format!("{mode:o}"),
                    FileState::Link => "l".to_owned(),
                };
                bytes.extend_from_slice(word.as_bytes());
                bytes.push(0);
            }
        }
        let next = self.folder.join("plan.next");
        let mut file = private::create_file(&next)?;
        file.write_all(&bytes)?;
        file.sync_all()?;
        fs::rename(&next, self.folder.join("plan"))?;
        folder.sync_all()
    }

    /// Reads a plan; `None` if it was never completely written.
    pub(super) fn load(folder: &Path) -> io::Result<Option<Self>> {
        let bytes = match fs::read(folder.join("plan")) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error),
        };
        let steps = parse_steps(&bytes).ok_or(io::ErrorKind::InvalidData)?;
        Ok(Some(Self { folder: folder.to_owned(), steps }))
    }

    /// Replaces all files; after a failure the caller must undo the plan.
    pub(super) fn carry_out(&self, root: &Root, sync: SyncFn<'_>) -> Result<(), StepError> {
        self.replace_all(root, sync)?;
        let mark = || {
            private::create_file(&self.folder.join("done"))?.sync_all()?;
            File::open(&self.folder)?.sync_all()
        };
        mark().map_err(|error| self.step_failed(error))
    }

    /// Removes the `done` mark, so that a recovery continues to undo the plan.
    pub(super) fn unmark_done(&self) -> Result<(), StepError> {
        match fs::remove_file(self.folder.join("done")) {
            Ok(()) => File::open(&self.folder).and_then(|folder| folder.sync_all()),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            Err(error) => Err(error),
        }
        .map_err(|error| self.step_failed(error))
    }

    /// Restores every path that still is as the plan left it; returns the paths that were changed since.
    pub(super) fn restore(&self, root: &Root, sync: SyncFn<'_>) -> Result<Vec<PathBuf>, StepError> {
        // An interrupted step may have left its temporary file.
        for (number, step) in self.steps.iter().enumerate() {
            export::remove_with_empty_parents(root, &step.path.with_file_name(self.temp(number)))
                .map_err(|source| StepError { path: step.path.clone(), source })?;
        }
        let (mut left, mut back) = (Vec::new(), Vec::new());
        for number in self.order(StepSide::Before) {
            let Some(step) = self.steps.get(number) else { continue };
            match self.restore_decision(root, number, step)? {
                RestoreDecision::AlreadyRestored => {}
                RestoreDecision::ChangedSince => left.push(step.path.clone()),
                // Removals come first and make room for the files that are prepared.
                RestoreDecision::WrittenByPlan => {
                    self.prepare(root, number, step, StepSide::Before)?;
                    back.push((number, step));
                }
            }
        }
        self.sync_root(root, sync)?;
        for (number, step) in back {
            if self.restore_decision(root, number, step)? == RestoreDecision::ChangedSince {
                left.push(step.path.clone());
                export::remove_with_empty_parents(
                    root,
                    &step.path.with_file_name(self.temp(number)),
                )
                .map_err(|source| StepError { path: step.path.clone(), source })?;
            } else {
                self.move_into_place(root, number, step, StepSide::Before)?;
            }
        }
        self.sync_root(root, sync)?;
        Ok(left)
    }

    /// Decides whether a path is to be restored.
    fn restore_decision(
        &self,
        root: &Root,
        number: usize,
        step: &ReplaceStep,
    ) -> Result<RestoreDecision, StepError> {
        if self.matches(root, number, step, StepSide::Before)? {
            return Ok(RestoreDecision::AlreadyRestored);
        }
        // An interrupted step leaves nothing in place of what it removed. Files that the plan put in place of a
        // directory were already removed here, because those steps come first.
        let ours = is_absent(root, &step.path)?
            || (step.after != FileState::Nothing
                && self.matches(root, number, step, StepSide::After)?);
        Ok(if ours { RestoreDecision::WrittenByPlan } else { RestoreDecision::ChangedSince })
    }

    /// Copies the old content of `paths` to the same paths below a new directory in `lefts` and syncs it; returns
    /// where each copy is.
    pub(super) fn keep_before(
        &self,
        paths: &[PathBuf],
        lefts: &Path,
        sync: SyncFn<'_>,
    ) -> io::Result<Vec<(PathBuf, Option<PathBuf>)>> {
        let (mut kept, mut into) = (Vec::new(), None);
        for (number, step) in self.steps.iter().enumerate() {
            if !paths.contains(&step.path) {
                continue;
            }
            let mut copy = None;
            if step.before != FileState::Nothing {
                let into = match &mut into {
                    Some(into) => into,
                    none => none.insert(self.new_folder(lefts)?),
                };
                let to = into.join(&step.path);
                private::ensure_dir(to.parent().unwrap_or(into))?;
                fs::copy(self.image(number, StepSide::Before), &to)?;
                copy = Some(to);
            }
            kept.push((step.path.clone(), copy));
        }
        if let Some(into) = into {
            sync(File::open(into)?.as_fd())?;
        }
        Ok(kept)
    }

    /// Creates a directory named after the journal; another journal of the same name may have left one.
    fn new_folder(&self, within: &Path) -> io::Result<PathBuf> {
        private::ensure_dir(within)?;
        let mut name = self.folder.file_name().unwrap_or_default().to_owned();
        loop {
            let folder = within.join(&name);
            match private::create_dir(&folder) {
                Ok(()) => return Ok(folder),
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => name.push("+"),
                Err(error) => return Err(error),
            }
        }
    }

    /// Returns the paths that were changed since the plan was carried out.
    pub(super) fn changed_since(&self, root: &Root) -> Result<Vec<PathBuf>, StepError> {
        let mut changed = Vec::new();
        for (number, step) in self.steps.iter().enumerate() {
            if !self.matches(root, number, step, StepSide::After)? {
                changed.push(step.path.clone());
            }
        }
        Ok(changed)
    }

    /// Returns those of `paths` that this plan replaced and that were not changed since.
    pub(super) fn still_as_left(
        &self,
        root: &Root,
        paths: &BTreeSet<PathBuf>,
    ) -> Result<Vec<PathBuf>, StepError> {
        let mut left = Vec::new();
        for (number, step) in self.steps.iter().enumerate() {
            if paths.contains(&step.path) && self.matches(root, number, step, StepSide::After)? {
                left.push(step.path.clone());
            }
        }
        Ok(left)
    }

    pub(super) fn image(&self, number: usize, when: StepSide) -> PathBuf {
        self.folder.join(when.folder()).join(number.to_string())
    }

    /// Returns the name of the temporary file of a step.
    fn temp(&self, number: usize) -> OsString {
        let mut name = OsString::from(".adjutant-");
        name.push(self.folder.file_name().unwrap_or_default());
        name.push(format!("-{number}.new"));
        name
    }

    fn replace_all(&self, root: &Root, sync: SyncFn<'_>) -> Result<(), StepError> {
        let order = self.order(StepSide::After);
        let steps = || order.iter().filter_map(|at| Some((*at, self.steps.get(*at)?)));
        for (number, step) in steps() {
            if step.after == FileState::Nothing {
                self.expect_before(root, number, step)?;
            }
            self.prepare(root, number, step, StepSide::After)?;
        }
        self.sync_root(root, sync)?;
        for (number, step) in steps().filter(|(_, step)| step.after != FileState::Nothing) {
            self.expect_before(root, number, step)?;
            self.move_into_place(root, number, step, StepSide::After)?;
        }
        self.sync_root(root, sync)
    }

    fn expect_before(
        &self,
        root: &Root,
        number: usize,
        step: &ReplaceStep,
    ) -> Result<(), StepError> {
        if self.matches(root, number, step, StepSide::Before)? {
            return Ok(());
        }
        Err(StepError { path: step.path.clone(), source: PathError::Exists })
    }

    fn sync_root(&self, root: &Root, sync: SyncFn<'_>) -> Result<(), StepError> {
        // The handle of a root is an `O_PATH` descriptor, which cannot be synced.
        let top = root.open_dir(&RelPath::default());
        let top = top.map_err(|source| StepError { path: PathBuf::new(), source })?;
        sync(top.handle().as_fd()).map_err(|error| self.step_failed(error))
    }

    fn step_failed(&self, error: io::Error) -> StepError {
        StepError { path: self.folder.clone(), source: PathError::Io(error) }
    }

    /// Returns the order of the steps: removals first, so that a file can replace a directory and the other way
    /// round.
    fn order(&self, to: StepSide) -> Vec<usize> {
        let gone = |number: &usize| {
            self.steps.get(*number).is_some_and(|step| *step.state(to) == FileState::Nothing)
        };
        let (mut first, then): (Vec<usize>, Vec<usize>) = (0..self.steps.len()).partition(gone);
        first.extend(then);
        first
    }
}

/// Parses the steps of a plan; `None` if they are invalid.
fn parse_steps(bytes: &[u8]) -> Option<Vec<ReplaceStep>> {
    let mut words = bytes.split(|byte| *byte == 0);
    let mut steps = Vec::new();
    loop {
        let path = words.next()?;
        if path.is_empty() {
            // A plan always has at least one step.
            return (words.next().is_none() && !steps.is_empty()).then_some(steps);
        }
        let mut thing = || match words.next()? {
            b"-" => Some(FileState::Nothing),
            b"l" => Some(FileState::Link),
            mode => {
                let text = std::str::from_utf8(mode).ok()?;
                u32::from_str_radix(text, 8).ok().map(FileState::File)
            }
        };
        let (before, after) = (thing()?, thing()?);
        steps.push(ReplaceStep { path: path_of(path), before, after });
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::collections::BTreeMap;

    use super::*;

    /// A plan that replaces many files, removes one and adds one.
    fn plan(outer: &Path, count: usize) -> ReplacePlan {
        let (tree, folder) = (outer.join("tree"), outer.join("journal"));
        fs::create_dir_all(tree.join("sub")).unwrap();
        for when in [StepSide::Before, StepSide::After] {
            fs::create_dir_all(folder.join(when.folder())).unwrap();
        }
        let mut plan = ReplacePlan { folder, steps: Vec::new() };
        for number in 0..count {
            let path = PathBuf::from(format!("sub/{number}"));
            let there = |is: bool| if is { FileState::File(0o644) } else { FileState::Nothing };
            let (before, after) = (there(number != 0), there(number != 1));
            for (when, thing, text) in
                [(StepSide::Before, &before, "old"), (StepSide::After, &after, "new")]
            {
                if *thing != FileState::Nothing {
                    fs::write(plan.image(number, when), text).unwrap();
                }
            }
            if before != FileState::Nothing {
                fs::write(tree.join(&path), "old").unwrap();
            }
            plan.steps.push(ReplaceStep { path, before, after });
        }
        plan
    }

    fn files(folder: &Path) -> BTreeMap<String, String> {
        let entries = fs::read_dir(folder).into_iter().flatten().flatten();
        let pair = |entry: fs::DirEntry| {
            let text = fs::read_to_string(entry.path()).unwrap();
            (entry.file_name().into_string().unwrap(), text)
        };
        entries.map(pair).collect()
    }

    /// Carries a plan out and returns the files at each sync, as a power cut would leave them.
    fn carried_out(outer: &Path, count: usize) -> Vec<BTreeMap<String, String>> {
        let plan = plan(outer, count);
        let seen = RefCell::new(Vec::new());
        let sync = |_: BorrowedFd<'_>| {
            assert!(!outer.join("journal/done").exists(), "the mark comes last");
            seen.borrow_mut().push(files(&outer.join("tree/sub")));
            Ok(())
        };
        plan.save(&sync).unwrap();
        plan.carry_out(&Root::open(outer.join("tree")).unwrap(), &sync).unwrap();
        assert_eq!(stage(&plan.folder).unwrap(), JournalStage::Done);
        seen.into_inner()
    }

    #[test]
    fn the_number_of_syncs_does_not_depend_on_the_number_of_files() {
        for count in [3, 300] {
            let outer = tempfile::tempdir().unwrap();
            let seen = carried_out(outer.path(), count);
            let [before, prepared, after] = seen.as_slice() else {
                panic!("{count} files: {} times", seen.len());
            };
            assert!(before.len() == count - 1 && before.values().all(|text| text == "old"));
            // All temporary files are complete before the first one is moved.
            let beside = |(name, _): &(&String, &String)| name.ends_with(".new");
            let (new, old): (Vec<_>, Vec<_>) = prepared.iter().partition(beside);
            assert!(new.len() == count - 1 && new.iter().all(|(_, text)| *text == "new"));
            assert!(old.len() == count - 2 && old.iter().all(|(_, text)| *text == "old"));
            assert!(after.len() == count - 1 && after.values().all(|text| text == "new"));
        }
    }

    #[test]
    fn a_failed_sync_changes_nothing() {
        for refused in 1..=3 {
            let outer = tempfile::tempdir().unwrap();
            let plan = plan(outer.path(), 5);
            let before = files(&outer.path().join("tree/sub"));
            let calls = RefCell::new(0);
            let sync = |_: BorrowedFd<'_>| {
                *calls.borrow_mut() += 1;
                if *calls.borrow() == refused { Err(io::Error::other("worn out")) } else { Ok(()) }
            };
            let root = Root::open(outer.path().join("tree")).unwrap();
            let saved = plan.save(&sync);
            assert_eq!(saved.is_err(), refused == 1);
            if saved.is_ok() {
                plan.carry_out(&root, &sync).unwrap_err();
                assert_eq!(stage(&plan.folder).unwrap(), JournalStage::Unfinished);
                assert_eq!(plan.restore(&root, &sync).unwrap(), Vec::<PathBuf>::new());
            }
            assert_eq!(files(&outer.path().join("tree/sub")), before);
        }
    }
}
