//! Bringing a result into the user's own work tree, all of it or nothing.
//!
//! The result is merged in the object store with the tree as it is now; what then differs is
//! replaced under a journal that survives a crash and stays for an undo. The user's index and
//! references are not touched: the work appears as uncommitted changes.
//!
//! Start at [`Repository::apply`]. Invariant: no uncommitted content that the child never saw is
//! overwritten, and no file that git does not know of.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use rustix::fs::FlockOperation;

use super::export;
use super::journal::{self, Plan, Stage, Step, Stuck, Thing, When, sync_disk};
use super::lock::Held;
use crate::git::{
    Content, Diff, DiffEntry, GitError, ObjectId, Preview, Repository, Snapshot, content, guarded,
};
use crate::{PathError, RelPath, Root};

/// The mode of a submodule's entry.
const SUBMODULE: u32 = 0o160_000;
/// The mode of a link.
pub(super) const LINK: u32 = 0o120_000;

/// The folder of a state directory with the journals.
const APPLIES: &str = "applies";

/// Says why a result was not applied, or not taken back.
#[derive(Debug, thiserror::Error)]
pub enum ApplyError {
    /// It does not merge with the tree as it is.
    #[error("{} files are in conflict", preview.conflicts.len())]
    Conflicts {
        /// The merge that was tried.
        preview: Preview,
    },
    /// Files it would change hold work that is committed nowhere and that the child never saw.
    #[error("{} files have uncommitted changes, first {}", paths.len(), first(paths))]
    Dirty {
        /// The files.
        paths: Vec<PathBuf>,
    },
    /// Files it would change are not there, because the checkout is a sparse one.
    #[error("{} files are not checked out here, first {}", paths.len(), first(paths))]
    Sparse {
        /// The files.
        paths: Vec<PathBuf>,
    },
    /// A step failed; everything is as it was.
    #[error("{} could not be replaced; nothing was changed", path.display())]
    Stuck {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: PathError,
    },
    /// A step failed, and meanwhile somebody changed these files; the others are as they were.
    #[error("{path} could not be replaced, and {left} changed meanwhile", path = path.display(), left = told(left))]
    Torn {
        /// The file that could not be replaced.
        path: PathBuf,
        /// The files that were changed and are left as they are.
        left: Vec<Left>,
        /// Why.
        #[source]
        source: PathError,
    },
    /// A step failed, and what was replaced before it could not be put back either.
    #[error(
        "{}: part of the files are replaced; `adjutant merge` puts them back once the cause is gone, by what is \
         kept in {}", path.display(), journal.display()
    )]
    Unfinished {
        /// The file that could not be put back.
        path: PathBuf,
        /// The folder with everything that is needed to put the files back.
        journal: PathBuf,
        /// Why.
        #[source]
        source: PathError,
    },
    /// Files were changed after the result was applied, so it is not taken back.
    #[error("{} files changed since, first {}", paths.len(), first(paths))]
    ChangedSince {
        /// The files.
        paths: Vec<PathBuf>,
    },
    /// There is no application of this name to take back.
    #[error("nothing was applied under the name {0}")]
    Unknown(String),
    /// Git failed.
    #[error(transparent)]
    Git(#[from] GitError),
}

/// The state a result is merged with.
#[derive(Clone, Copy)]
pub(super) struct Onto<'a> {
    pub(super) commit: &'a ObjectId,
    pub(super) tree: &'a ObjectId,
    /// Files whose uncommitted content is known to have a way back.
    pub(super) known: &'a BTreeSet<PathBuf>,
}

/// A merge that was made in the object store and may be carried out.
pub(super) struct Merge {
    pub(super) tree: ObjectId,
    pub(super) diff: Diff,
    pub(super) submodules: Vec<PathBuf>,
}

/// A result that is now in the work tree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Applied {
    /// The name by which it can be taken back; empty where everything was there already.
    pub name: String,
    /// What changed.
    pub diff: Diff,
    /// Submodules the result changes; they are not applied.
    pub submodules: Vec<PathBuf>,
}

/// What was found of an application that was cut short.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Recovered {
    /// The name it had.
    pub name: String,
    /// Files that were changed meanwhile and therefore left as they are.
    pub left: Vec<Left>,
}

/// What became of all applications that were cut short.
#[derive(Debug, Default)]
pub struct Recovery {
    /// Those whose files were put back.
    pub put_back: Vec<Recovered>,
    /// Why one is still unfinished; its journal stays.
    pub stuck: Option<ApplyError>,
}

/// A file that was not put back, because somebody changed it meanwhile.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Left {
    /// The file.
    pub path: PathBuf,
    /// A copy of what it was before; none where there was no file.
    pub before: Option<PathBuf>,
}

impl Repository {
    /// Merges the work of the commit `result` into the work tree's files.
    ///
    /// # Errors
    ///
    /// See [`ApplyError`]; but for [`ApplyError::Torn`] and [`ApplyError::Unfinished`] the work tree is as
    /// it was.
    pub fn apply(&self, result: &ObjectId, at: SystemTime) -> Result<Applied, ApplyError> {
        let _alone = self.apply_lock()?;
        if let Some(stuck) = self.put_back_unfinished()?.stuck {
            return Err(stuck);
        }
        let ours = self.capture(at)?;
        let onto = Onto { commit: &ours.commit, tree: &ours.tree, known: &BTreeSet::new() };
        let Merge { tree, diff, submodules } = self.merge_onto(result, &ours, onto)?;
        if diff.entries.is_empty() {
            return Ok(Applied { name: String::new(), diff, submodules });
        }
        let shown = self.diff(&ours.tree, &tree)?;
        let root = self.root()?;
        let (name, plan) = self.plan(result, &root, &diff)?;
        if let Err(Stuck { path, source }) = plan.carry_out(&root, &sync_disk) {
            let left = self.put_back(&plan)?;
            return Err(if left.is_empty() {
                ApplyError::Stuck { path, source }
            } else {
                ApplyError::Torn { path, left, source }
            });
        }
        Ok(Applied { name, diff: shown, submodules })
    }

    /// Takes an applied result back.
    ///
    /// # Errors
    ///
    /// [`ApplyError::ChangedSince`] when one of its files is not as it was left; nothing changes then.
    /// [`ApplyError::Torn`] when one was changed in this very moment; the others are taken back.
    /// [`ApplyError::Unfinished`] when one could not be put back.
    pub fn undo(&self, name: &str) -> Result<(), ApplyError> {
        let _alone = self.apply_lock()?;
        let unknown = || ApplyError::Unknown(name.to_owned());
        let folder = self.applies().join(name);
        let reading = || GitError::io("reading a journal");
        if name.contains('/') || journal::stage(&folder).map_err(reading())? != Stage::Done {
            return Err(unknown());
        }
        let plan = Plan::load(&folder).map_err(reading())?.ok_or_else(unknown)?;
        let root = self.root()?;
        let paths = plan.changed_since(&root).map_err(stuck)?;
        if !paths.is_empty() {
            return Err(ApplyError::ChangedSince { paths });
        }
        plan.reopen().map_err(stuck)?;
        let left = self.put_back(&plan)?;
        let Some(first) = left.first() else { return Ok(()) };
        Err(ApplyError::Torn { path: first.path.clone(), left, source: PathError::Exists })
    }

    /// Lists what was applied and can be taken back.
    ///
    /// # Errors
    ///
    /// When the journals cannot be read.
    pub fn applied(&self) -> Result<Vec<String>, ApplyError> {
        let _alone = self.apply_lock()?;
        let mut names = Vec::new();
        for (name, folder) in journals(&self.applies())? {
            if journal::stage(&folder).map_err(GitError::io("reading a journal"))? == Stage::Done {
                names.push(name);
            }
        }
        names.sort();
        Ok(names)
    }

    /// Puts back what applications that were cut short had replaced.
    ///
    /// # Errors
    ///
    /// When the journals cannot be read. Why one of them could not be put back is in the answer.
    pub fn recover(&self) -> Result<Recovery, ApplyError> {
        let _alone = self.apply_lock()?;
        self.put_back_unfinished()
    }

    fn put_back_unfinished(&self) -> Result<Recovery, ApplyError> {
        let mut all = Recovery::default();
        for (name, folder) in journals(&self.applies())? {
            match self.finish(&folder) {
                Ok(left) => {
                    all.put_back.extend(left.map(|left| Recovered { name, left }));
                }
                // The others are put back all the same.
                Err(error) => all.stuck = all.stuck.or(Some(error)),
            }
        }
        Ok(all)
    }

    /// Puts back what a journal says, unless it is done; none where there is nothing to put back.
    fn finish(&self, folder: &Path) -> Result<Option<Vec<Left>>, ApplyError> {
        let unread = |error| unfinished(folder, PathError::Io(error));
        match journal::stage(folder).map_err(unread)? {
            Stage::Done => Ok(None),
            // It ended before its first step or after its last one.
            Stage::Empty => {
                // Best effort: it is in nobody's way.
                let _ = journal::discard(folder);
                Ok(None)
            }
            Stage::Unfinished => {
                let plan = Plan::load(folder).map_err(unread)?;
                plan.map(|plan| self.put_back(&plan)).transpose()
            }
        }
    }

    /// Puts back everything nobody changed meanwhile, and removes the journal.
    ///
    /// Of what somebody did change, the earlier content may be nowhere else, so it moves to where a
    /// person finds it. The journal goes all the same: with it a later recovery would bring back what
    /// they have deleted by then.
    fn put_back(&self, plan: &Plan) -> Result<Vec<Left>, ApplyError> {
        let journal = plan.folder.as_path();
        let stopped = |Stuck { path, source }| ApplyError::Unfinished {
            path,
            journal: journal.to_owned(),
            source,
        };
        let paths = plan.put_back(&self.root()?, &sync_disk).map_err(stopped)?;
        let left = plan
            .keep_before(&paths, &self.state().join("left"), &sync_disk)
            .map_err(|error| unfinished(journal, PathError::Io(error)))?;
        // What is left of a journal without its plan is removed by the next one.
        if let Err(error) = journal::discard(journal)
            && journal.join("plan").try_exists().unwrap_or(true)
        {
            return Err(unfinished(journal, PathError::Io(error)));
        }
        Ok(left.into_iter().map(|(path, before)| Left { path, before }).collect())
    }

    /// Merges a result with a state of the work tree in the object store, and judges whether what
    /// then differs may be replaced.
    pub(super) fn merge_onto(
        &self,
        result: &ObjectId,
        ours: &Snapshot,
        onto: Onto<'_>,
    ) -> Result<Merge, ApplyError> {
        let preview = self.preview(result, onto.commit)?;
        if !preview.is_clean() {
            // What nobody committed is theirs to settle first; a conflict with it is no news.
            let touched = preview.conflicts.iter().map(|it| it.path.as_path()).collect();
            self.refuse_unseen(ours, result, &touched, onto.known)?;
            return Err(ApplyError::Conflicts { preview });
        }
        let mut diff = self.differences(onto.tree, &preview.tree)?;
        let submodule = |entry: &DiffEntry| [entry.old_mode, entry.new_mode].contains(&SUBMODULE);
        let submodules: Vec<PathBuf> =
            diff.entries.iter().filter(|entry| submodule(entry)).map(|e| e.path.clone()).collect();
        // Nor is a file put into the folder of one.
        diff.entries.retain(|entry| !submodules.iter().any(|it| entry.path.starts_with(it)));
        let touched = diff.entries.iter().map(|entry| entry.path.as_path()).collect();
        self.refuse_unseen(ours, result, &touched, onto.known)?;
        self.refuse_sparse(&diff, onto.known)?;
        Ok(Merge { tree: preview.tree, diff, submodules })
    }

    /// Refuses to change or remove files that a sparse checkout leaves out: a removal would not be seen at all,
    /// and the index, which says what is left out, is not ours to change.
    fn refuse_sparse(&self, diff: &Diff, known: &BTreeSet<PathBuf>) -> Result<(), ApplyError> {
        // What somebody deleted is not in the captured tree, so git counts as there what is not.
        let is_left_out = |path: &&PathBuf| {
            let found = self.work_tree().join(path).symlink_metadata();
            let is_gone = |error: io::Error| {
                matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory)
            };
            !known.contains(*path) && found.is_err_and(is_gone)
        };
        let old = diff.entries.iter().filter(|entry| entry.old_mode != 0).map(|entry| &entry.path);
        let paths: Vec<PathBuf> = old.filter(is_left_out).cloned().collect();
        if paths.is_empty() { Ok(()) } else { Err(ApplyError::Sparse { paths }) }
    }

    /// Refuses files whose uncommitted content is not what the child began from.
    ///
    /// What another application left exactly so is no such content: its journal has the way back.
    fn refuse_unseen(
        &self,
        ours: &Snapshot,
        result: &ObjectId,
        touched: &BTreeSet<&Path>,
        known: &BTreeSet<PathBuf>,
    ) -> Result<(), ApplyError> {
        let dirty: BTreeSet<&Path> =
            ours.changes.iter().map(|change| change.path().as_path()).collect();
        let dirty: BTreeSet<&Path> = touched.intersection(&dirty).copied().collect();
        if dirty.is_empty() {
            return Ok(());
        }
        let since = self.differences(&self.base_of(result)?, &ours.commit)?;
        let unseen = since.entries.into_iter().map(|entry| entry.path);
        let unseen = unseen.filter(|path| dirty.contains(path.as_path()) && !known.contains(path));
        let mut paths: BTreeSet<PathBuf> = unseen.collect();
        if !paths.is_empty() {
            self.subtract_applied(&mut paths)?;
        }
        let paths: Vec<PathBuf> = paths.into_iter().collect();
        if paths.is_empty() { Ok(()) } else { Err(ApplyError::Dirty { paths }) }
    }

    /// Takes out the paths that are exactly as an earlier application left them.
    fn subtract_applied(&self, paths: &mut BTreeSet<PathBuf>) -> Result<(), ApplyError> {
        let root = self.root()?;
        let reading = || GitError::io("reading a journal");
        for (_, folder) in journals(&self.applies())? {
            if journal::stage(&folder).map_err(reading())? != Stage::Done {
                continue;
            }
            let Some(plan) = Plan::load(&folder).map_err(reading())? else { continue };
            for path in plan.still_as_left(&root, paths).map_err(stuck)? {
                paths.remove(&path);
            }
        }
        Ok(())
    }

    /// Writes down everything that is needed to carry the change out and to take it back.
    fn plan(
        &self,
        result: &ObjectId,
        root: &Root,
        diff: &Diff,
    ) -> Result<(String, Plan), ApplyError> {
        let (name, folder) = self.journal_folder(result)?;
        let mut plan = Plan { folder, steps: Vec::new() };
        let prepared = self.fill(&mut plan, root, diff);
        if prepared.is_err() {
            // Best effort: a journal without a plan is removed by the next one.
            let _ = journal::discard(&plan.folder);
        }
        prepared.map(|()| (name, plan))
    }

    /// Says whether files on disk are not what git has of them, without touching one: git takes files for
    /// unchanged that a person told it to.
    pub(super) fn refuse_hidden(&self, result: &ObjectId, diff: &Diff) -> Result<(), ApplyError> {
        let (_, folder) = self.journal_folder(result)?;
        let mut plan = Plan { folder, steps: Vec::new() };
        let found = self.root().map_err(Into::into);
        let found = found.and_then(|root| self.look(&mut plan, &root, diff));
        // Best effort: a journal without a plan is removed by the next one.
        let _ = journal::discard(&plan.folder);
        let paths = found?;
        if paths.is_empty() { Ok(()) } else { Err(ApplyError::Dirty { paths }) }
    }

    /// Saves what lies at every path, and returns those where it is not what git has of them.
    fn look(&self, plan: &mut Plan, root: &Root, diff: &Diff) -> Result<Vec<PathBuf>, ApplyError> {
        let mut dirty = Vec::new();
        let mut expected = Vec::new();
        for (number, entry) in diff.entries.iter().enumerate() {
            if guarded(&entry.path) {
                let source = PathError::Guarded;
                return Err(ApplyError::Stuck { path: entry.path.clone(), source });
            }
            let before = save_before(root, &entry.path, &plan.image(number, When::Before))?;
            if (before == Thing::Nothing) != (entry.old_mode == 0) {
                dirty.push(entry.path.clone());
            }
            if before != Thing::Nothing {
                expected.push((number, entry));
            }
            let after = thing_after(&before, entry.new_mode);
            plan.steps.push(Step { path: entry.path.clone(), before, after });
        }
        dirty.extend(self.different(plan, &expected)?);
        Ok(dirty)
    }

    fn fill(&self, plan: &mut Plan, root: &Root, diff: &Diff) -> Result<(), ApplyError> {
        let dirty = self.look(plan, root, diff)?;
        if !dirty.is_empty() {
            return Err(ApplyError::Dirty { paths: dirty });
        }
        let images: Vec<DiffEntry> = diff
            .entries
            .iter()
            .enumerate()
            .filter(|(_, entry)| entry.new_mode != 0)
            // An image is a plain file, also of a link.
            .map(|(number, entry)| DiffEntry {
                path: PathBuf::from(number.to_string()),
                new_mode: 0o100_644,
                ..entry.clone()
            })
            .collect();
        let images: Vec<&DiffEntry> = images.iter().collect();
        export::write(self, &images, &plan.folder.join("after"), None)?;
        Ok(plan.save(&sync_disk).map_err(GitError::io("writing a journal"))?)
    }

    /// Returns the files whose content on disk is not what git has of them.
    pub(super) fn different(
        &self,
        plan: &Plan,
        expected: &[(usize, &DiffEntry)],
    ) -> Result<Vec<PathBuf>, GitError> {
        if expected.is_empty() {
            return Ok(Vec::new());
        }
        let scratch = self.scratch(None)?;
        let list: String = expected.iter().map(|(number, _)| format!("{number}\n")).collect();
        let call = scratch.call("hash-object").args(["--no-filters", "--stdin-paths"]);
        let output = call.folder(plan.folder.join("before")).feed(list.as_bytes())?;
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
            let folder = self.applies().join(&name);
            match fs::create_dir(&folder) {
                Ok(()) => {
                    let made = fs::create_dir(folder.join("before"))
                        .and_then(|()| fs::create_dir(folder.join("after")));
                    made.map_err(GitError::io("making a journal"))?;
                    return Ok((name, folder));
                }
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => number += 1,
                Err(error) => return Err(GitError::io("making a journal")(error)),
            }
        }
    }

    pub(super) fn apply_lock(&self) -> Result<Held, GitError> {
        let folder = self.applies();
        fs::create_dir_all(&folder).map_err(GitError::io("making the journals"))?;
        lock(&folder)
    }

    fn applies(&self) -> PathBuf {
        self.state().join(APPLIES)
    }

    pub(super) fn root(&self) -> Result<Root, GitError> {
        Root::open(self.work_tree())
            .map_err(|source| GitError::Path { path: self.work_tree().to_owned(), source })
    }
}

/// Drops the way back of applications in a state directory that were carried out before `before`;
/// returns how many.
///
/// # Errors
///
/// Why one could not be looked at or removed.
pub fn forget_applied(state: &Path, before: SystemTime) -> Result<usize, GitError> {
    let folder = state.join(APPLIES);
    if !folder.is_dir() {
        return Ok(0);
    }
    let _alone = lock(&folder)?;
    let mut count = 0;
    for (_, folder) in journals(&folder)? {
        let forgotten = || -> io::Result<bool> {
            // One that is not done is still to be put back, however old.
            let old = journal::stage(&folder)? == Stage::Done
                && folder.join("done").metadata()?.modified()? < before;
            if old {
                journal::discard(&folder)?;
            }
            Ok(old)
        };
        count += usize::from(forgotten().map_err(GitError::io("dropping a journal"))?);
    }
    Ok(count)
}

/// Keeps everyone else from the journals of a work tree.
fn lock(applies: &Path) -> Result<Held, GitError> {
    let held = Held::file(&applies.join("lock"))?;
    held.take(FlockOperation::LockExclusive)?;
    Ok(held)
}

/// Lists the journals with their folders.
fn journals(applies: &Path) -> Result<Vec<(String, PathBuf)>, GitError> {
    let mut all = Vec::new();
    let listing = || GitError::io("listing the journals");
    for entry in fs::read_dir(applies).map_err(listing())? {
        let entry = entry.map_err(listing())?;
        if entry.file_type().map_err(listing())?.is_dir() {
            all.push((entry.file_name().to_string_lossy().into_owned(), entry.path()));
        }
    }
    Ok(all)
}

/// Copies what lies at a path into an image.
pub(super) fn save_before(root: &Root, path: &Path, image: &Path) -> Result<Thing, ApplyError> {
    let stuck = |source| ApplyError::Stuck { path: path.to_owned(), source };
    let copying = GitError::io("copying a file into the journal");
    let found = RelPath::new(path).and_then(|path| content(root, &path)).map_err(stuck)?;
    match found {
        Ok(Content::Nothing) => Ok(Thing::Nothing),
        Ok(Content::Link(target)) => {
            fs::write(image, target).map_err(copying)?;
            Ok(Thing::Link)
        }
        Ok(Content::File { mut file, .. }) => {
            let mut copy = || -> io::Result<u32> {
                io::copy(&mut file, &mut File::create(image)?)?;
                Ok(file.metadata()?.permissions().mode())
            };
            Ok(Thing::File(copy().map_err(copying)? & 0o777))
        }
        Err(_) => Err(stuck(PathError::PermissionDenied)),
    }
}

/// Says what is to lie there: permissions stay, but for the executable bit.
pub(super) fn thing_after(before: &Thing, mode: u32) -> Thing {
    match mode {
        0 => Thing::Nothing,
        LINK => Thing::Link,
        mode => {
            let kept = if let Thing::File(kept) = before { *kept } else { 0o644 };
            // Whoever may read it may run it.
            let executable = (kept & 0o444) >> 2;
            let plain = kept & !0o111;
            Thing::File(if mode & 0o100 == 0 { plain } else { kept | executable })
        }
    }
}

/// Says that a journal could not be followed to its end.
fn unfinished(journal: &Path, source: PathError) -> ApplyError {
    ApplyError::Unfinished { path: journal.to_owned(), journal: journal.to_owned(), source }
}

fn stuck(stuck: Stuck) -> ApplyError {
    ApplyError::Stuck { path: stuck.path, source: stuck.source }
}

/// Says which files were left, and where the earlier content of the first one lies.
fn told(left: &[Left]) -> String {
    let Some(first) = left.first() else { return "nothing".to_owned() };
    let before = first.before.as_ref().map_or_else(String::new, |before| {
        format!(" (what it was before lies in {})", before.display())
    });
    let more = match left.len() {
        1 => String::new(),
        count => format!(" and {} more", count - 1),
    };
    format!("{}{before}{more}", first.path.display())
}

fn first(paths: &[PathBuf]) -> String {
    paths.first().map_or_else(String::new, |path| path.display().to_string())
}
