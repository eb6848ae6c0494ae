//! Replacing many files, all or none.
//!
//! Everything new and everything that was there is first written to a folder of its own, then the
//! plan; only then is a file touched. A plan without its mark of completion is put back. Knows
//! nothing of git.
//!
//! The disk is told to catch up a fixed number of times, however many files there are: before the
//! plan, before the first file takes its place, before the mark. So a power cut leaves each file as
//! it was, as it is to be, or removed, and never with half of its bytes.
//!
//! Start at [`ReplacePlan::carry_out`]. Invariant: a file is replaced or put back only while it is exactly
//! what the plan says it was.

use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, Mode, OFlags, fchmod, openat, renameat, symlinkat, syncfs, unlinkat};
use rustix::io::Errno;

use super::export;
use crate::git::{Content, bytes_of, content, path_of};
use crate::kernel::{self, SymlinkPolicy};
use crate::private;
use crate::{MissingParents, PathError, RelPath, Root};

/// What lies, or is to lie, at a path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum FileState {
    Nothing,
    /// A file with these permissions; its bytes are in an image.
    File(u32),
    /// A link; where it leads is in an image.
    Link,
}

/// One path of a plan.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ReplaceStep {
    pub(super) path: PathBuf,
    pub(super) before: FileState,
    pub(super) after: FileState,
}

/// What is to be replaced, with a folder that holds the images.
#[derive(Debug)]
pub(super) struct ReplacePlan {
    pub(super) folder: PathBuf,
    pub(super) steps: Vec<ReplaceStep>,
}

/// Waits until everything written to the file system of a handle is on the disk.
pub(super) type SyncFn<'a> = &'a dyn Fn(BorrowedFd<'_>) -> io::Result<()>;

/// The way the disk really catches up.
pub(crate) fn sync_disk(handle: BorrowedFd<'_>) -> io::Result<()> {
    Ok(syncfs(handle)?)
}

/// Says whether a file lies where a replacement that was cut short left what it had prepared.
///
/// The name is `.adjutant-`, the name of a journal, and a number: nobody's work is called so.
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

/// Removes a journal that nobody needs any more.
///
/// The plan goes first and durably: images are of no use without each other, and a folder without a
/// plan is known to hold nothing to put back, so a kill in the middle of the rest does no harm.
pub(super) fn discard(folder: &Path) -> io::Result<()> {
    match fs::remove_file(folder.join("plan")) {
        Ok(()) => File::open(folder)?.sync_all()?,
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(error),
    }
    fs::remove_dir_all(folder)
}

/// Says whether a journal has a plan, and whether everything in it was replaced.
pub(super) fn stage(folder: &Path) -> io::Result<JournalStage> {
    Ok(match (folder.join("plan").try_exists()?, folder.join("done").try_exists()?) {
        (false, _) => JournalStage::Empty,
        (true, false) => JournalStage::Unfinished,
        (true, true) => JournalStage::Done,
    })
}

/// How far a journal is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum JournalStage {
    /// No file was touched yet, or everything was put back.
    Empty,
    /// Part of the files may be replaced.
    Unfinished,
    /// All files are replaced.
    Done,
}

/// A step that could not be made, and why.
#[derive(Debug)]
pub(super) struct StepError {
    pub(super) path: PathBuf,
    pub(super) source: PathError,
}

/// The two states a step leads between.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum StepSide {
    Before,
    After,
}

/// Who put in place what lies at a path that is to be put back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RestoreDecision {
    /// It is what it was before.
    AlreadyRestored,
    /// The plan, so it may be put back.
    WrittenByPlan,
    /// Somebody else, so it stays.
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
    /// Writes the plan itself; from here on it is carried out or put back.
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

    /// Reads a plan; none where it was never complete.
    pub(super) fn load(folder: &Path) -> io::Result<Option<Self>> {
        let bytes = match fs::read(folder.join("plan")) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error),
        };
        let steps = parse_steps(&bytes).ok_or(io::ErrorKind::InvalidData)?;
        Ok(Some(Self { folder: folder.to_owned(), steps }))
    }

    /// Replaces everything; after any failure the caller puts it back.
    pub(super) fn carry_out(&self, root: &Root, sync: SyncFn<'_>) -> Result<(), StepError> {
        self.replace_all(root, sync)?;
        let mark = || {
            private::create_file(&self.folder.join("done"))?.sync_all()?;
            File::open(&self.folder)?.sync_all()
        };
        mark().map_err(|error| self.failed(error))
    }

    /// Takes the mark of completion away, so that from here on a recovery goes on with putting back.
    pub(super) fn reopen(&self) -> Result<(), StepError> {
        match fs::remove_file(self.folder.join("done")) {
            Ok(()) => File::open(&self.folder).and_then(|folder| folder.sync_all()),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            Err(error) => Err(error),
        }
        .map_err(|error| self.failed(error))
    }

    /// Puts everything back that is as it was made; returns what somebody changed meanwhile.
    pub(super) fn put_back(
        &self,
        root: &Root,
        sync: SyncFn<'_>,
    ) -> Result<Vec<PathBuf>, StepError> {
        // A step that was cut short may have left what it was about to put in its place.
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
                // Those that are to be gone come first and make room for what is prepared.
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

    /// Says who put in place what lies there now.
    fn restore_decision(
        &self,
        root: &Root,
        number: usize,
        step: &ReplaceStep,
    ) -> Result<RestoreDecision, StepError> {
        if self.matches(root, number, step, StepSide::Before)? {
            return Ok(RestoreDecision::AlreadyRestored);
        }
        // A step that was cut short leaves nothing in the place of what it removed. What the plan made
        // in place of a folder, or of a file on the way, is gone by now: those steps come first.
        let ours = is_absent(root, &step.path)?
            || (step.after != FileState::Nothing
                && self.matches(root, number, step, StepSide::After)?);
        Ok(if ours { RestoreDecision::WrittenByPlan } else { RestoreDecision::ChangedSince })
    }

    /// Copies what was before at `paths` to the same paths below a new folder in `lefts`, durably;
    /// returns where each now lies.
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

    /// Makes a folder named after the journal; another journal of the same name may have left one.
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

    /// Returns the paths that are not as they were left.
    pub(super) fn changed_since(&self, root: &Root) -> Result<Vec<PathBuf>, StepError> {
        let mut changed = Vec::new();
        for (number, step) in self.steps.iter().enumerate() {
            if !self.matches(root, number, step, StepSide::After)? {
                changed.push(step.path.clone());
            }
        }
        Ok(changed)
    }

    /// Returns those of `paths` that this plan replaced and nobody changed since.
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

    /// Names the file beside a place that is written first.
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
        // The handle of a root only names it; the disk is reached by one that is open.
        let top = root.open_dir(&RelPath::default());
        let top = top.map_err(|source| StepError { path: PathBuf::new(), source })?;
        sync(top.handle().as_fd()).map_err(|error| self.failed(error))
    }

    fn failed(&self, error: io::Error) -> StepError {
        StepError { path: self.folder.clone(), source: PathError::Io(error) }
    }

    /// Removals first, so that a file can come where a folder was and the other way round.
    fn order(&self, to: StepSide) -> Vec<usize> {
        let gone = |number: &usize| {
            self.steps.get(*number).is_some_and(|step| *step.state(to) == FileState::Nothing)
        };
        let (mut first, then): (Vec<usize>, Vec<usize>) = (0..self.steps.len()).partition(gone);
        first.extend(then);
        first
    }

    fn matches(
        &self,
        root: &Root,
        number: usize,
        step: &ReplaceStep,
        when: StepSide,
    ) -> Result<bool, StepError> {
        let at_path = |error| StepError { path: step.path.clone(), source: PathError::Io(error) };
        let image = || fs::read(self.image(number, when)).map_err(at_path);
        // What cannot be read is certainly not what the plan knows.
        let Some(found) = open_content(root, &step.path)? else { return Ok(false) };
        match (found, step.state(when)) {
            (Content::Nothing, FileState::Nothing) => Ok(true),
            (Content::Link(target), FileState::Link) => Ok(target == image()?),
            (Content::File { mut file, executable, .. }, FileState::File(mode)) => {
                let mut bytes = Vec::new();
                file.read_to_end(&mut bytes).map_err(at_path)?;
                Ok(executable == (mode & 0o100 != 0) && bytes == image()?)
            }
            (Content::Nothing | Content::Link(_) | Content::File { .. }, _) => Ok(false),
        }
    }

    /// Removes what is to be gone; writes everything else beside its place.
    fn prepare(
        &self,
        root: &Root,
        number: usize,
        step: &ReplaceStep,
        when: StepSide,
    ) -> Result<(), StepError> {
        let at_path = |source| StepError { path: step.path.clone(), source };
        let thing = step.state(when);
        if *thing == FileState::Nothing {
            return export::remove_with_empty_parents(root, &step.path).map_err(at_path);
        }
        let folder = folder_of(root, step)?;
        let bytes = fs::read(self.image(number, when)).map_err(PathError::Io).map_err(at_path)?;
        create_temp(&folder, &self.temp(number), thing, &bytes)
            .map_err(PathError::from_errno)
            .map_err(at_path)
    }

    /// Lets what was prepared take its place.
    fn move_into_place(
        &self,
        root: &Root,
        number: usize,
        step: &ReplaceStep,
        when: StepSide,
    ) -> Result<(), StepError> {
        let at_path = |source| StepError { path: step.path.clone(), source };
        if *step.state(when) == FileState::Nothing {
            return Ok(());
        }
        let folder = folder_of(root, step)?;
        let name = step.path.file_name().ok_or(PathError::Outside).map_err(at_path)?;
        renameat(&folder, self.temp(number), &folder, name)
            .map_err(PathError::from_errno)
            .map_err(at_path)
    }
}

fn folder_of(root: &Root, step: &ReplaceStep) -> Result<OwnedFd, StepError> {
    let at_path = |source| StepError { path: step.path.clone(), source };
    let folder = root.parent_dir_of(&step.path, MissingParents::Create).map_err(at_path)?;
    folder.ok_or(PathError::NotFound).map_err(at_path)
}

/// Opens what lies at a path; none where it cannot be read.
fn open_content(root: &Root, path: &Path) -> Result<Option<Content>, StepError> {
    let at_path = |source| StepError { path: path.to_owned(), source };
    let found = RelPath::new(path).and_then(|path| content(root, &path)).map_err(at_path)?;
    Ok(found.ok())
}

/// Says whether there is nothing at all at a path, and nothing on the way but folders.
fn is_absent(root: &Root, path: &Path) -> Result<bool, StepError> {
    let flags = OFlags::PATH | OFlags::NOFOLLOW;
    match kernel::open(root.handle(), path, flags, SymlinkPolicy::Refuse) {
        Ok(_) | Err(Errno::NOTDIR | Errno::LOOP) => Ok(false),
        Err(Errno::NOENT) => Ok(true),
        Err(errno) => {
            Err(StepError { path: path.to_owned(), source: PathError::from_errno(errno) })
        }
    }
}

/// Reads the steps of a plan; none where it means nothing.
fn parse_steps(bytes: &[u8]) -> Option<Vec<ReplaceStep>> {
    let mut words = bytes.split(|byte| *byte == 0);
    let mut steps = Vec::new();
    loop {
        let path = words.next()?;
        if path.is_empty() {
            // A plan without steps is never written.
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

fn create_temp(
    folder: &OwnedFd,
    temp: &OsString,
    thing: &FileState,
    bytes: &[u8],
) -> Result<(), Errno> {
    match unlinkat(folder, temp, AtFlags::empty()) {
        Ok(()) | Err(Errno::NOENT) => {}
        Err(errno) => return Err(errno),
    }
    let FileState::File(mode) = thing else {
        return symlinkat(path_of(bytes), folder.as_fd(), temp);
    };
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let mut file = File::from(openat(folder, temp, flags, Mode::from_raw_mode(0o600))?);
    file.write_all(bytes).map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))?;
    fchmod(&file, Mode::from_raw_mode(mode & 0o777))
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::collections::BTreeMap;

    use super::*;

    /// Many files that are to be replaced, one that goes and one that comes.
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

    /// What a power cut may show of the tree, at each time the disk caught up.
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
    fn the_disk_catches_up_as_often_for_many_files_as_for_a_few() {
        for count in [3, 300] {
            let outer = tempfile::tempdir().unwrap();
            let seen = carried_out(outer.path(), count);
            let [before, prepared, after] = seen.as_slice() else {
                panic!("{count} files: {} times", seen.len());
            };
            assert!(before.len() == count - 1 && before.values().all(|text| text == "old"));
            // Whole and beside their places before the first one is replaced.
            let beside = |(name, _): &(&String, &String)| name.ends_with(".new");
            let (new, old): (Vec<_>, Vec<_>) = prepared.iter().partition(beside);
            assert!(new.len() == count - 1 && new.iter().all(|(_, text)| *text == "new"));
            assert!(old.len() == count - 2 && old.iter().all(|(_, text)| *text == "old"));
            assert!(after.len() == count - 1 && after.values().all(|text| text == "new"));
        }
    }

    #[test]
    fn a_disk_that_does_not_catch_up_changes_nothing() {
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
                assert_eq!(plan.put_back(&root, &sync).unwrap(), Vec::<PathBuf>::new());
            }
            assert_eq!(files(&outer.path().join("tree/sub")), before);
        }
    }
}
