//! Cached checkouts that serve as the lowest layer of overlays.
//!
//! A base is a directory with exactly the files of one git tree. Each user holds a lease, and a leased base is not
//! changed. An unused base is updated to another tree by writing the differences.
//!
//! Start at [`BaseCheckouts::lease`]. Invariant: the `state` file says `ready` only while the directory is
//! complete. A lease is a file lock, so a crash releases it; git inherits the exclusive lock while it writes, even
//! if its parent is killed.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use rustix::fs::FlockOperation;

use super::dates::CheckoutDates;
use super::disk_usage;
use super::export;
use super::lock::FileLock;
use crate::Root;
use crate::git::{DiffEntry, GitError, ObjectId, Repository};
use crate::private;

/// The number of bases beyond which an unused one is updated instead of adding another; each needs the space of a
/// checkout.
const MAX_BASES: usize = 3;

/// An unused base that differs in more files than this is not updated while a new one can be added.
const MAX_MOVED_FILES: usize = 5_000;

/// The bases of one repository.
#[derive(Debug)]
pub struct BaseCheckouts<'a> {
    repository: &'a Repository,
    folder: PathBuf,
    /// The most bytes that the workspaces of all repositories may occupy.
    bound: Option<u64>,
}

/// A base that is not changed while this exists.
#[derive(Debug)]
pub struct BaseLease {
    path: PathBuf,
    tree: ObjectId,
    cost: BaseLeaseCost,
    _lock: FileLock,
}

/// What was done to provide a base.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BaseLeaseCost {
    /// It existed.
    Warm,
    /// An unused base was updated; this many files differed.
    Moved(usize),
    /// A new one was checked out.
    Created,
}

impl BaseLease {
    /// Returns the directory with the files.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the git tree whose files the base has.
    #[must_use]
    pub const fn tree(&self) -> &ObjectId {
        &self.tree
    }

    /// Returns what was done to provide it.
    #[must_use]
    pub const fn cost(&self) -> BaseLeaseCost {
        self.cost
    }
}

/// The content of a base's `state` file.
#[derive(Debug, PartialEq, Eq)]
enum BaseState {
    Ready(ObjectId),
    Moving { from: ObjectId, to: ObjectId },
    Unknown,
}

impl<'a> BaseCheckouts<'a> {
    /// Opens the bases of a repository in its state directory.
    ///
    /// # Errors
    ///
    /// When the directory cannot be created.
    pub fn open(repository: &'a Repository) -> Result<Self, GitError> {
        let folder = repository.state().join("bases");
        private::ensure_dir(&folder)
            .map_err(GitError::io("creating the directory of base checkouts"))?;
        Ok(Self { repository, folder, bound: None })
    }

    /// Before a base is added, removes unused ones of all repositories in the state directory, so that everything there
    /// occupies at most `bytes`.
    #[must_use]
    pub fn bounded(mut self, bytes: Option<u64>) -> Self {
        self.bound = bytes;
        self
    }

    /// Leases a base with the files of `tree`: an existing, an updated or a new one.
    ///
    /// # Errors
    ///
    /// Why no base could be provided.
    pub fn lease(&self, tree: &ObjectId) -> Result<BaseLease, GitError> {
        self.lease_dated(tree, None)
    }

    /// Leases a base like [`BaseCheckouts::lease`], whose files have the times of the user's checkout.
    pub(crate) fn lease_dated(
        &self,
        tree: &ObjectId,
        dates: Option<&CheckoutDates>,
    ) -> Result<BaseLease, GitError> {
        loop {
            if let Some(lease) = self.lease_warm(tree, dates)? {
                return Ok(lease);
            }
            // One at a time: if eight workspaces need the same base, one makes it and seven find it.
            let making = FileLock::open_file(&self.folder.join("lock"))?;
            making.acquire(FlockOperation::LockExclusive)?;
            if let Some(lease) = self.lease_warm(tree, dates)? {
                return Ok(lease);
            }
            if let Some(lease) = self.make(tree, dates)? {
                return Ok(lease);
            }
        }
    }

    fn list(&self) -> Result<Vec<PathBuf>, GitError> {
        let entries =
            fs::read_dir(&self.folder).map_err(GitError::io("listing the base checkouts"))?;
        let mut all: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
        all.retain(|path| path.is_dir());
        all.sort();
        Ok(all)
    }

    fn lease_warm(
        &self,
        tree: &ObjectId,
        dates: Option<&CheckoutDates>,
    ) -> Result<Option<BaseLease>, GitError> {
        for base in self.list()? {
            if read_state(&base) != BaseState::Ready(tree.clone()) {
                continue;
            }
            // It may be being removed.
            let Ok(held) = FileLock::open_file(&base.join("lock")) else { continue };
            if !held.acquire(FlockOperation::NonBlockingLockShared)? {
                continue;
            }
            if let Some(dates) = dates
                && !is_dated(&base, dates)?
            {
                // Only an unused base is changed.
                if !held.acquire(FlockOperation::NonBlockingLockExclusive)? {
                    continue;
                }
                stamp(&base, dates)?;
                // Converting a lock is not atomic: another process may have changed the base meanwhile.
                if !held.acquire(FlockOperation::NonBlockingLockShared)? {
                    continue;
                }
            }
            if read_state(&base) == BaseState::Ready(tree.clone()) {
                return Ok(Some(leased(&base, tree, BaseLeaseCost::Warm, held)));
            }
        }
        Ok(None)
    }

    /// Makes a base; `None` if another process changed it before it could be leased.
    fn make(
        &self,
        tree: &ObjectId,
        dates: Option<&CheckoutDates>,
    ) -> Result<Option<BaseLease>, GitError> {
        let mut unused = Vec::new();
        let all = self.list()?;
        for base in &all {
            let held = FileLock::open_file(&base.join("lock"))?;
            if held.acquire(FlockOperation::NonBlockingLockExclusive)? {
                unused.push((base.clone(), held));
            }
        }
        let mut best: Option<(usize, PathBuf, FileLock, ObjectId)> = None;
        for (base, held) in unused {
            let Some((from, distance)) = self.distance(&base, &held, tree)? else {
                fs::remove_dir_all(&base)
                    .map_err(GitError::io("removing a broken base checkout"))?;
                continue;
            };
            if best.as_ref().is_none_or(|(least, ..)| distance < *least) {
                best = Some((distance, base, held, from));
            }
        }
        let crowded = all.len() >= MAX_BASES;
        if let Some((distance, base, held, from)) = best
            && (distance <= MAX_MOVED_FILES || crowded)
        {
            self.move_base(&base, &held, &from, tree)?;
            dates.map_or(Ok(()), |dates| stamp(&base, dates))?;
            return downgrade_to_lease(&base, tree, BaseLeaseCost::Moved(distance), held);
        }
        self.create(tree, dates)
    }

    /// Returns the tree of an unused base and the number of files that differ from `tree`; `None` if the base is
    /// broken.
    fn distance(
        &self,
        base: &Path,
        held: &FileLock,
        tree: &ObjectId,
    ) -> Result<Option<(ObjectId, usize)>, GitError> {
        let from = match read_state(base) {
            BaseState::Ready(from) => from,
            BaseState::Moving { from, to } => {
                // The process that updated it was killed; repeating the whole update gives the right files.
                if self.move_base(base, held, &from, &to).is_err() {
                    return Ok(None);
                }
                to
            }
            BaseState::Unknown => return Ok(None),
        };
        // Its tree may have been garbage collected.
        let differences = self.repository.differences(&from, tree);
        Ok(differences.ok().map(|diff| (from, diff.entries.len())))
    }

    fn move_base(
        &self,
        base: &Path,
        held: &FileLock,
        from: &ObjectId,
        to: &ObjectId,
    ) -> Result<(), GitError> {
        let diff = self.repository.differences(from, to)?;
        let files = base.join("tree");
        let at = |source| GitError::Path { path: files.clone(), source };
        let root = Root::open(&files).map_err(at)?;
        set_state(base, &format!("moving {from} {to}"))?;
        // Its size changes.
        let _ = fs::remove_file(base.join(disk_usage::SIZE_FILE));
        let (gone, written): (Vec<&DiffEntry>, Vec<&DiffEntry>) =
            diff.entries.iter().partition(|entry| entry.new_mode == 0);
        for entry in gone {
            export::remove_with_empty_parents(&root, &entry.path)
                .map_err(|source| GitError::Path { path: entry.path.clone(), source })?;
        }
        export::write(self.repository, &written, &files, Some(held.duplicate()?))?;
        set_state(base, &format!("ready {to}"))
    }

    fn create(
        &self,
        tree: &ObjectId,
        dates: Option<&CheckoutDates>,
    ) -> Result<Option<BaseLease>, GitError> {
        // The bases of this repository are in SPACES/REPOSITORY/.private/bases.
        if let (Some(bound), Some(spaces)) = (self.bound, self.folder.ancestors().nth(3)) {
            disk_usage::make_room(spaces, bound)?;
        }
        let mut number = 0;
        let base = loop {
            let base = self.folder.join(format!("{number:04}"));
            match private::create_dir(&base) {
                Ok(()) => break base,
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => number += 1,
                Err(error) => return Err(GitError::io("creating a base checkout")(error)),
            }
        };
        let held = FileLock::open_file(&base.join("lock"))?;
        held.acquire(FlockOperation::LockExclusive)?;
        let files = base.join("tree");
        let made = (|| {
            fs::create_dir(&files).map_err(GitError::io("creating a base checkout"))?;
            let scratch = self.repository.scratch(None)?;
            export::check_out(&scratch, tree, &files, held.duplicate()?)?;
            dates.map_or(Ok(()), |dates| stamp(&base, dates))?;
            set_state(&base, &format!("ready {tree}"))
        })();
        if let Err(error) = made {
            // Best effort: without a state file the next process treats it as broken.
            let _ = fs::remove_dir_all(&base);
            return Err(error);
        }
        downgrade_to_lease(&base, tree, BaseLeaseCost::Created, held)
    }
}

fn is_dated(base: &Path, dates: &CheckoutDates) -> Result<bool, GitError> {
    dates
        .match_base(&base.join("tree"))
        .map_err(GitError::io("reading file times of a base checkout"))
}

/// Gives the files of a locked base the times of the user's checkout. Indexes that recorded other times are removed.
fn stamp(base: &Path, dates: &CheckoutDates) -> Result<(), GitError> {
    let stamp = || -> io::Result<()> {
        for entry in fs::read_dir(base)?.flatten() {
            if entry.file_name().as_encoded_bytes().starts_with(b"index-") {
                fs::remove_file(entry.path())?;
            }
        }
        dates.stamp(&base.join("tree"))
    };
    stamp().map_err(GitError::io("setting file times of a base checkout"))
}

/// Converts the maker's exclusive lock into a lease; `None` if another process was faster.
fn downgrade_to_lease(
    base: &Path,
    tree: &ObjectId,
    cost: BaseLeaseCost,
    held: FileLock,
) -> Result<Option<BaseLease>, GitError> {
    // Converting a lock is not atomic: the kernel releases the old one first.
    let kept = held.acquire(FlockOperation::NonBlockingLockShared)?
        && read_state(base) == BaseState::Ready(tree.clone());
    Ok(kept.then(|| leased(base, tree, cost, held)))
}

fn leased(base: &Path, tree: &ObjectId, cost: BaseLeaseCost, held: FileLock) -> BaseLease {
    BaseLease { path: base.join("tree"), tree: tree.clone(), cost, _lock: held }
}

fn read_state(base: &Path) -> BaseState {
    let Ok(text) = fs::read_to_string(base.join("state")) else { return BaseState::Unknown };
    let mut words = text.split_whitespace();
    // After a restart it is unknown which files reached the disk.
    if words.next() != Some(boot_id().as_str()) {
        return BaseState::Unknown;
    }
    let kind = words.next();
    let mut id = || words.next().and_then(ObjectId::parse);
    match (kind, id(), id()) {
        (Some("ready"), Some(tree), None) => BaseState::Ready(tree),
        (Some("moving"), Some(from), Some(to)) => BaseState::Moving { from, to },
        _ => BaseState::Unknown,
    }
}

fn set_state(base: &Path, words: &str) -> Result<(), GitError> {
    let next = base.join("state.next");
    let set = || -> io::Result<()> {
        private::write(&next, format!("{} {words}\n", boot_id()))?;
        fs::rename(&next, base.join("state"))
    };
    set().map_err(GitError::io("writing the state of a base checkout"))
}

/// Returns the boot id, which changes with every start of the machine.
pub(crate) fn boot_id() -> String {
    let id = fs::read_to_string("/proc/sys/kernel/random/boot_id");
    id.map_or_else(|_| "unknown".to_owned(), |text| text.trim().to_owned())
}
