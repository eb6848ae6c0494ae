//! Git work trees for children, where there is no overlay.
//!
//! Each has a directory in the state directory with a record, which is written before anything is created, and a
//! lock, which its owner holds. A work tree whose lock is free was left by a crash.
//!
//! Start at [`Worktrees::create`]. Invariant: the files of a work tree are removed only if its work is committed to
//! its reference or there is none.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use rustix::fs::FlockOperation;

use super::export;
use super::lock::FileLock;
use super::owner_access::{grant_owner_access, grant_top_access};
use super::remove::remove_all;
use crate::git::{
    GitError, ImportedCommit, NewCommit, ObjectId, ObjectStorage, READ_IN_EVERY_DIR, Repository,
    ResultRef, SkipReason, SkippedPath, WorkTreeStatus, bytes_of, check_change_count, is_too_deep,
};
use crate::private;
use crate::{Dir, FileKind, PathError, RelPath, Root};

/// The most entries of one directory.
const MAX_ENTRIES: usize = 10_000_000;

/// How long git may take to end after its parent was killed.
const ORPHANED_GIT_TIMEOUT: Duration = Duration::from_secs(1);

/// The interval between attempts to acquire the lock.
const LOCK_RETRY_INTERVAL: Duration = Duration::from_millis(5);

/// The operation named in errors of reading a record.
const READING: &str = "reading the record of a work tree";

/// The operation named in errors of creating a work tree.
const MAKING: &str = "creating a work tree";

/// The directory of the files until git has an entry for them; no child has this name.
const FILES_BEFORE_RENAME: &str = "files.next";

/// The work trees of children of one repository.
#[derive(Debug)]
pub struct Worktrees<'a> {
    repository: &'a Repository,
    folder: PathBuf,
}

/// A child's work tree, locked by this process.
#[derive(Debug)]
pub struct Worktree {
    repository: Repository,
    reference: ResultRef,
    base: ObjectId,
    /// The repository, opened from this work tree.
    here: Repository,
    slot: PathBuf,
    _lock: FileLock,
}

/// A work tree found on disk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WorktreeEntry {
    /// The reference for its result.
    pub reference: ResultRef,
    /// The directory of its files.
    pub path: PathBuf,
    /// Whether a process has it locked.
    pub live: bool,
}

impl<'a> Worktrees<'a> {
    /// Opens the work trees of a repository in its state directory.
    ///
    /// # Errors
    ///
    /// When the directory cannot be created.
    pub fn open(repository: &'a Repository) -> Result<Self, GitError> {
        let folder = repository.state().join("worktrees");
        private::ensure_dir(&folder)
            .map_err(GitError::io("creating the directory of work trees"))?;
        Ok(Self { repository, folder })
    }

    /// Creates a work tree with the files of the commit `base`.
    ///
    /// # Errors
    ///
    /// Why it could not be created; a partly created one is removed.
    pub fn create(&self, reference: &ResultRef, base: &ObjectId) -> Result<Worktree, GitError> {
        let slot = self.slot(reference);
        private::ensure_dir(&slot).map_err(GitError::io(MAKING))?;
        let held = self.lock_slot(&slot)?;
        let there = slot.join("record").try_exists().map_err(GitError::io(READING))?;
        let held = held.filter(|_| !there);
        let held = held.ok_or_else(|| GitError::Moved { reference: reference.to_string() })?;
        WorktreeRecord { base: base.clone(), stage: WorktreeStage::Making }.write(&slot)?;
        let made = self.add(reference, base, &slot, &held);
        if made.is_err() {
            // Best effort: without a finished record the next sweep removes it.
            let _ = self.remove_leftovers(reference, &slot);
        }
        Ok(self.open_locked(reference, base, slot, &made?, held))
    }

    /// Locks a work tree whose process is gone, to continue in it.
    ///
    /// # Errors
    ///
    /// [`GitError::Missing`] if there is none or another process has it locked; otherwise why it could not be
    /// examined.
    pub fn adopt(&self, reference: &ResultRef) -> Result<Worktree, GitError> {
        let slot = self.slot(reference);
        let missing = || GitError::Missing(format!("free work tree for {reference}"));
        if !slot.is_dir() {
            return Err(missing());
        }
        let held = self.lock_slot(&slot)?.ok_or_else(missing)?;
        match WorktreeRecord::read(&slot)? {
            Some(WorktreeRecord { base, stage: WorktreeStage::Ready(name) }) => {
                // Best effort: later operations report what is wrong.
                let _ = grant_top_access(&slot.join(reference.child()));
                Ok(self.open_locked(reference, &base, slot, &name, held))
            }
            Some(WorktreeRecord {
                stage: WorktreeStage::Making | WorktreeStage::Removing, ..
            })
            | None => Err(missing()),
        }
    }

    /// Lists the work trees on disk.
    ///
    /// # Errors
    ///
    /// When the directory cannot be read.
    pub fn list(&self) -> Result<Vec<WorktreeEntry>, GitError> {
        let mut found = Vec::new();
        for run in names(&self.folder)? {
            for child in names(&self.folder.join(&run))? {
                let Ok(reference) = ResultRef::new(&run, &child) else { continue };
                let slot = self.slot(&reference);
                let live = self.is_locked(&slot)?;
                let path = slot.join(reference.child());
                found.push(WorktreeEntry { reference, path, live });
            }
        }
        Ok(found)
    }

    /// Removes a work tree whose creation or removal was interrupted: no program has worked in it, or its work is
    /// kept. Returns whether there was one. A work tree with an unreadable record may hold work and stays.
    pub(crate) fn remove_unfinished(&self, reference: &ResultRef) -> Result<bool, GitError> {
        let slot = self.slot(reference);
        if !slot.is_dir() {
            return Ok(false);
        }
        let Some(_held) = self.lock_slot(&slot)? else { return Ok(false) };
        if is_ready(&slot)? {
            return Ok(false);
        }
        self.remove_leftovers(reference, &slot)?;
        Ok(true)
    }

    /// Lets git create the entry under a lock and check out the files meanwhile; returns the name of the entry.
    fn add(
        &self,
        reference: &ResultRef,
        base: &ObjectId,
        slot: &Path,
        held: &FileLock,
    ) -> Result<String, GitError> {
        let path = slot.join(reference.child());
        // Git creates an entry only for an empty directory; the files are moved there afterwards.
        let files = slot.join(FILES_BEFORE_RENAME);
        fs::create_dir(&files).map_err(GitError::io(MAKING))?;
        let scratch = self.repository.scratch(None)?;
        let checkout = export::begin_check_out(&scratch, base, &files, held.duplicate()?)?;
        {
            // Concurrent additions lose each other's entries. The lock is on git's common directory, so that every
            // process on this repository uses the same one.
            let alone = lock_worktree_list(self.repository)?;
            self.repository
                .call("worktree")
                .args(["add", "--quiet", "--no-checkout", "--detach"])
                .arg(&path)
                .arg(base.as_str())
                .holding_lock(alone.duplicate()?)
                .run()?;
        }
        let name = entry_name(self.repository, &path)?;
        checkout.wait_output()?;
        let entry = self.repository.common_dir().join("worktrees").join(&name);
        let put = || -> io::Result<()> {
            fs::rename(path.join(".git"), files.join(".git"))?;
            fs::rename(&files, &path)?;
            move_index(&scratch.index(), &entry.join("index"))
        };
        put().map_err(GitError::io(MAKING))?;
        WorktreeRecord { base: base.clone(), stage: WorktreeStage::Ready(name.clone()) }
            .write(slot)?;
        Ok(name)
    }

    fn remove_leftovers(&self, reference: &ResultRef, slot: &Path) -> Result<(), GitError> {
        remove_files(self.repository, &slot.join(reference.child()))?;
        clear_slot(slot)
    }

    fn open_locked(
        &self,
        reference: &ResultRef,
        base: &ObjectId,
        slot: PathBuf,
        name: &str,
        held: FileLock,
    ) -> Worktree {
        let git_dir = self.repository.common_dir().join("worktrees").join(name);
        Worktree {
            repository: self.repository.clone(),
            here: self.repository.with_work_tree(slot.join(reference.child()), git_dir),
            reference: reference.clone(),
            base: base.clone(),
            slot,
            _lock: held,
        }
    }

    fn is_locked(&self, slot: &Path) -> Result<bool, GitError> {
        let gate = FileLock::open_file(&self.folder.join("lock"))?;
        gate.acquire(FlockOperation::LockExclusive)?;
        // Already removed, so it is not locked and holds no work.
        let Ok(held) = FileLock::open_file(&slot.join("lock")) else { return Ok(false) };
        Ok(!held.acquire(FlockOperation::NonBlockingLockExclusive)?)
    }

    /// Locks the directory of a work tree; `None` while a process has it locked.
    ///
    /// If its owner was just killed, a git process that inherited the lock may still be ending.
    fn lock_slot(&self, slot: &Path) -> Result<Option<FileLock>, GitError> {
        let deadline = Instant::now() + ORPHANED_GIT_TIMEOUT;
        loop {
            let held = self.try_lock_once(slot)?;
            if held.is_some() || Instant::now() >= deadline {
                return Ok(held);
            }
            thread::sleep(LOCK_RETRY_INTERVAL);
        }
    }

    fn try_lock_once(&self, slot: &Path) -> Result<Option<FileLock>, GitError> {
        // The outer lock keeps `is_locked`, which acquires the lock for a moment, from disturbing this.
        let gate = FileLock::open_file(&self.folder.join("lock"))?;
        gate.acquire(FlockOperation::LockExclusive)?;
        let held = FileLock::open_file(&slot.join("lock"))?;
        Ok(held.acquire(FlockOperation::NonBlockingLockExclusive)?.then_some(held))
    }

    fn slot(&self, reference: &ResultRef) -> PathBuf {
        self.folder.join(reference.run()).join(reference.child())
    }
}

impl Worktree {
    /// Returns the directory with the files.
    #[must_use]
    pub fn path(&self) -> &Path {
        self.here.work_tree()
    }

    /// Returns the commit it started from.
    #[must_use]
    pub const fn base(&self) -> &ObjectId {
        &self.base
    }

    /// Says whether nothing differs from the base.
    ///
    /// # Errors
    ///
    /// When git fails.
    pub fn is_clean(&self) -> Result<bool, GitError> {
        Ok(self.status()?.changes.is_empty())
    }

    /// Commits the differences from the base, even if there are none; no reference is moved.
    pub(crate) fn import(
        &self,
        message: &str,
        at: SystemTime,
        storing: ObjectStorage,
    ) -> Result<(ImportedCommit, Vec<SkippedPath>), GitError> {
        let WorkTreeStatus { changes, mut skipped, .. } = self.status()?;
        let changes = self.repository.without_reserved(changes, &mut skipped);
        check_change_count(&changes)?;
        let root = Root::open(self.path())
            .map_err(|source| GitError::Path { path: self.path().to_owned(), source })?;
        let commit =
            NewCommit { base: Some(&self.base), root: &root, changes: &changes, message, at };
        let scratch = self.repository.scratch(None)?;
        let imported = scratch.import(commit, storing)?;
        // Git does not look into the directory of a submodule, which is empty at first.
        let submodules = self.repository.submodules(&scratch, &imported.base_tree)?;
        let used = submodules.into_iter().filter(|path| {
            fs::read_dir(self.path().join(path)).is_ok_and(|mut entries| entries.next().is_some())
        });
        let reason = SkipReason::NestedRepository;
        skipped.extend(used.map(|path| SkippedPath { path, reason }));
        let ignored = self.here.ignored()?.into_iter();
        skipped.extend(ignored.map(|path| SkippedPath { path, reason: SkipReason::Ignored }));
        skipped.extend(imported.made.skipped.iter().cloned());
        Ok((imported, skipped))
    }

    /// Returns git's entry for this work tree.
    pub(crate) fn git_dir(&self) -> &Path {
        self.here.git_dir()
    }

    /// Removes the files and git's entry; committed work stays in its reference.
    ///
    /// # Errors
    ///
    /// [`GitError::Changed`] if there is uncommitted work; otherwise why it could not be removed.
    pub fn remove(self) -> Result<(), GitError> {
        if self.path().exists() && !self.is_saved()? {
            return Err(GitError::Changed { path: self.path().to_owned() });
        }
        self.discard()
    }

    /// Removes the files and git's entry without checking: the caller knows that the work is kept.
    pub(crate) fn discard(self) -> Result<(), GitError> {
        // Recorded first, so that missing files are not taken for deletions by the child.
        WorktreeRecord { base: self.base.clone(), stage: WorktreeStage::Removing }
            .write(&self.slot)?;
        remove_files(&self.repository, self.path())?;
        clear_slot(&self.slot)
    }

    /// Says whether the reference contains all differences from the base.
    fn is_saved(&self) -> Result<bool, GitError> {
        if self.is_clean()? {
            return Ok(true);
        }
        let Some(kept) = self.repository.result(&self.reference)? else { return Ok(false) };
        let now =
            self.here.capture_from(Some(self.base.clone()), |_| Ok(SystemTime::UNIX_EPOCH))?;
        Ok(self.repository.tree_of(&kept)? == now.tree)
    }

    fn status(&self) -> Result<WorkTreeStatus, GitError> {
        let mut skipped = Vec::new();
        let at = |source| GitError::Path { path: self.path().to_owned(), source };
        // Git would skip files that a program made inaccessible.
        grant_top_access(self.path()).map_err(at)?;
        let root = Root::open(self.path()).map_err(at)?;
        grant_owner_access(&root, &root).map_err(at)?;
        let top = root.open_dir(&RelPath::default()).map_err(at)?;
        scan_before_status(&top, Path::new(""), &mut skipped).map_err(at)?;
        let mut status = self.here.scratch(Some(&self.base))?.status(&self.here)?;
        status.skipped.append(&mut skipped);
        Ok(status)
    }
}

/// Lists paths that are too deep for git, and removes pipes with the name of a file that git reads: it would block.
fn scan_before_status(
    folder: &Dir,
    at: &Path,
    skipped: &mut Vec<SkippedPath>,
) -> Result<(), PathError> {
    for entry in folder.list(MAX_ENTRIES)?.entries {
        let path = at.join(&entry.name);
        if entry.kind == FileKind::Fifo && READ_IN_EVERY_DIR.iter().any(|name| entry.name == *name)
        {
            folder.file_target(&entry.name)?.unlink()?;
            skipped.push(SkippedPath { path, reason: SkipReason::Special });
        } else if entry.kind == FileKind::Directory {
            if is_too_deep(&path) {
                skipped.push(SkippedPath { path, reason: SkipReason::TooDeep });
                continue;
            }
            match folder.open_dir(&entry.name) {
                Ok(below) => scan_before_status(&below, &path, skipped)?,
                // A running program removed it or made it inaccessible again; git cannot see it either.
                Err(PathError::NotFound) => {}
                Err(PathError::PermissionDenied) => {
                    skipped.push(SkippedPath { path, reason: SkipReason::Unreadable });
                }
                Err(error) => return Err(error),
            }
        }
    }
    Ok(())
}

/// Moves an index and keeps its timestamp: git trusts the timestamps of files that are older than the index.
fn move_index(from: &Path, to: &Path) -> io::Result<()> {
    match fs::rename(from, to) {
        Err(error) if error.kind() == io::ErrorKind::CrossesDevices => {
            let modified = fs::metadata(from)?.modified()?;
            fs::copy(from, to)?;
            File::options().write(true).open(to)?.set_modified(modified)
        }
        done => done,
    }
}

/// Locks the repository's list of work trees.
fn lock_worktree_list(repository: &Repository) -> Result<FileLock, GitError> {
    let folder = FileLock::open_dir(repository.common_dir())?;
    folder.acquire(FlockOperation::LockExclusive)?;
    Ok(folder)
}

/// Returns the name of git's entry for a new work tree.
fn entry_name(repository: &Repository, path: &Path) -> Result<String, GitError> {
    let text = fs::read_to_string(path.join(".git")).unwrap_or_default();
    let target = Path::new(text.trim_start_matches("gitdir: ").trim_end_matches('\n'));
    let inside = target.parent().and_then(|parent| fs::canonicalize(parent).ok())
        == fs::canonicalize(repository.common_dir().join("worktrees")).ok();
    let name = target.file_name().and_then(|name| name.to_str()).filter(|_| inside);
    name.map(str::to_owned)
        .ok_or_else(|| GitError::Unreadable { command: "worktree add".to_owned() })
}

/// Removes the files of a work tree and git's entry for it; either may be missing.
pub(super) fn remove_files(repository: &Repository, path: &Path) -> Result<(), GitError> {
    remove_all(path).map_err(GitError::io("removing a work tree"))?;
    let alone = lock_worktree_list(repository)?;
    // Git exits with 128 if it has no entry for the path.
    let call = repository.call("worktree").args(["remove", "--force", "--force"]).arg(path);
    call.holding_lock(alone.duplicate()?).accept(&[0, 128]).run()?;
    remove_leftover_git_entry(repository, path);
    Ok(())
}

/// Removes an incomplete entry that a killed git left.
///
/// Git does not list such an entry and would prune it later; until then the name is taken.
fn remove_leftover_git_entry(repository: &Repository, path: &Path) {
    let name = path.file_name().map(OsStr::as_encoded_bytes).unwrap_or_default();
    let folder = repository.common_dir().join("worktrees");
    for entry in fs::read_dir(&folder).into_iter().flatten().flatten() {
        // Git appends digits to a name that is taken.
        let found = entry.file_name();
        let rest = found.as_encoded_bytes().strip_prefix(name);
        let named = rest.is_some_and(|rest| rest.iter().all(u8::is_ascii_digit));
        let torn = match fs::read(entry.path().join("gitdir")) {
            Ok(leads) => leads.trim_ascii_end() == bytes_of(&path.join(".git")),
            Err(_) => true,
        };
        if named && torn {
            // Best effort: a leftover entry does no harm.
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}

/// Removes the directory of a work tree; the record goes first, so that a crash here leaves nothing that looks
/// usable.
fn clear_slot(slot: &Path) -> Result<(), GitError> {
    // Best effort: an empty run directory is harmless.
    let _ = fs::remove_file(slot.join("record"));
    remove_all(slot).map_err(GitError::io("removing a work tree"))?;
    if let Some(run) = slot.parent() {
        let _ = fs::remove_dir(run);
    }
    Ok(())
}

/// The record of a work tree.
struct WorktreeRecord {
    base: ObjectId,
    stage: WorktreeStage,
}

/// The stage of a work tree's life.
enum WorktreeStage {
    /// It is being created.
    Making,
    /// It is ready; git's entry has this name.
    Ready(String),
    /// It is being removed; its work is kept.
    Removing,
}

impl WorktreeRecord {
    fn write(&self, slot: &Path) -> Result<(), GitError> {
        let stage = match &self.stage {
            WorktreeStage::Making => "making".to_owned(),
            WorktreeStage::Ready(name) => format!("ready {name}"),
            WorktreeStage::Removing => "removing".to_owned(),
        };
        let next = slot.join("record.next");
        // Fsynced before the rename: an empty record would say nothing about the work.
        let write = || -> io::Result<()> {
            let mut file = private::create_file(&next)?;
            file.write_all(format!("{}\n{stage}\n", self.base).as_bytes())?;
            file.sync_all()?;
            fs::rename(&next, slot.join("record"))?;
            File::open(slot)?.sync_all()
        };
        write().map_err(GitError::io("writing the record of a work tree"))
    }

    /// Reads the record; `None` if there is none.
    fn read(slot: &Path) -> Result<Option<Self>, GitError> {
        let path = slot.join("record");
        let text = match fs::read_to_string(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(GitError::io(READING)(error)),
        };
        let unclear =
            || GitError::io(READING)(io::Error::other(format!("{} is invalid", path.display())));
        Self::parse(&text).map(Some).ok_or_else(unclear)
    }

    fn parse(text: &str) -> Option<Self> {
        let mut lines = text.lines();
        let base = ObjectId::parse(lines.next()?)?;
        let stage = match lines.next()? {
            "making" => WorktreeStage::Making,
            "removing" => WorktreeStage::Removing,
            ready => {
                let name = ready.strip_prefix("ready ").filter(|name| !name.is_empty())?;
                WorktreeStage::Ready(name.to_owned())
            }
        };
        Some(Self { base, stage })
    }
}

fn is_ready(slot: &Path) -> Result<bool, GitError> {
    Ok(matches!(
        WorktreeRecord::read(slot)?,
        Some(WorktreeRecord { stage: WorktreeStage::Ready(_), .. })
    ))
}

fn names(folder: &Path) -> Result<Vec<String>, GitError> {
    let entries = fs::read_dir(folder).map_err(GitError::io("listing the work trees"))?;
    let folders = entries.flatten().filter(|entry| entry.path().is_dir());
    let mut all: Vec<String> =
        folders.filter_map(|entry| entry.file_name().into_string().ok()).collect();
    all.sort();
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_moved_index_keeps_its_timestamp() {
        // `/dev/shm` is another file system on most machines.
        let [from, near] = [(); 2].map(|()| tempfile::tempdir().unwrap());
        let far = tempfile::tempdir_in("/dev/shm").unwrap();
        let time = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000_000);
        for to in [near.path(), far.path()] {
            let index = from.path().join("index");
            fs::write(&index, "entries").unwrap();
            File::options().write(true).open(&index).unwrap().set_modified(time).unwrap();
            let to = to.join("index");
            move_index(&index, &to).unwrap();
            assert_eq!(fs::read_to_string(&to).unwrap(), "entries");
            assert_eq!(fs::metadata(&to).unwrap().modified().unwrap(), time);
        }
    }
}
