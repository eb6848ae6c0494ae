//! Keeping the work of an agent apart from what the command writes that judges it.
//!
//! The state is committed before the command begins and noted beside the files. Until the agent goes on
//! that commit is the work, and whatever lies in the workspace is not looked at to keep it. Before the agent
//! goes on everything is put back that differs from the commit; what was ignored in that state stays, so that
//! a build need not begin anew. Nothing that the command wrote is stored to find out.
//!
//! Start at [`Workspace::claim`]. Invariant: the note goes only after everything is back, so whoever is
//! killed meanwhile, or finds the disk full, changes nothing. Only what the repository itself has lost of the state
//! is given up: it is named, and what lies there is work from then on.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::os::fd::AsFd as _;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use super::SpaceError;
use super::note::Note;
use super::sweep::said;
use super::workspace::{Kept, Space, Workspace};
use super::workspaces::Shared;
use crate::git::{Listing, PATTERNS, Storing, guarded, read_patterns};
use crate::private;
use crate::trees::{
    PLAIN, Umask, bits_at, has_folder, is_as, kind_at, put, remove_all, set_bits, sync_disk,
    take_out, write_images,
};
use crate::{
    Change, Diff, FileKind, ObjectId, PathError, RelPath, Repository, ResultRef, Root, SkipReason,
    Skipped,
};

/// What the commit of a state says that is judged.
const MESSAGE: &str = "State that was claimed to be done\n";

/// Where contents wait until they are put back.
const BACK: &str = ".back";

/// How often what differs is put back: files with patterns hide others until they are back themselves.
const ROUNDS: usize = 3;

/// The most that is noted of files with patterns that are not in the commit, and how many.
const PATTERNS_BYTES: usize = 4 * 1024 * 1024;
const MAX_PATTERNS: usize = 2_000;

/// What was put back.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PutBack {
    /// The paths that are as they were, in order.
    pub paths: Vec<PathBuf>,
    /// The paths whose content the repository has lost; what lies there is work from now on.
    pub left: Vec<PathBuf>,
    /// Why it is not known what differs, where the repository has lost that.
    pub problem: Option<String>,
}

impl Workspace {
    /// Notes the state as it is: until [`Workspace::put_back`] nothing that is written counts as work.
    ///
    /// Of what is ignored only those of `named` are among what [`Workspace::keep`] says it left out.
    ///
    /// # Errors
    ///
    /// Why it could not be noted; nothing has changed then.
    pub fn claim(&self, at: SystemTime, named: &BTreeSet<PathBuf>) -> Result<(), SpaceError> {
        self.with(|shared, space| {
            self.stand_at_the_claim();
            self.go_on(shared, space)?;
            let (imported, mut skipped) = space.import(MESSAGE, at, Storing::Durable)?;
            let claimed = imported.made.commit;
            shared.hold(self.reference(), &claimed)?;
            let ignored: Vec<Skipped> =
                skipped.extract_if(.., |skipped| skipped.reason == SkipReason::Ignored).collect();
            let root = space.root()?;
            let ignored =
                ignored_among(named, &ignored).filter(|path| kind_at(&root, path).is_some());
            let reason = SkipReason::Ignored;
            skipped.extend(ignored.map(|path| Skipped { path: path.to_owned(), reason }));
            forget_reserved(&shared.repository, &root, &claimed, &mut skipped)?;
            let look = space.look(&root)?;
            let odd = look.odd.iter().filter(|path| !is_pattern_file(path)).cloned().collect();
            let patterns = patterns(&shared.repository, &root, look, &claimed)?;
            let modes = modes(&shared.repository, space, &root, &claimed)?;
            Note { claimed, skipped, odd, patterns, modes }.write(&space.folder())
        })
    }

    /// Puts everything back that was written since [`Workspace::claim`] and that the patterns of that state
    /// do not ignore. What is written from here on is work again.
    ///
    /// # Errors
    ///
    /// Why not everything could be put back; the state that was claimed still counts then, and whoever goes on
    /// here tries again.
    pub fn put_back(&self) -> Result<PutBack, SpaceError> {
        // Should it fail, nobody works here before it is done: that would not be kept.
        self.stand_at_the_claim();
        self.with(|shared, space| self.go_on(shared, space))
    }

    /// Says that nobody judges any more: the state that was claimed is the work, whatever lies there now. Whoever
    /// works here again finds that state.
    pub fn accept(&self) {
        self.stand_at_the_claim();
    }
}

/// Puts back what a command wrote, where one was at work.
pub(super) fn put_back(
    shared: &Shared,
    reference: &ResultRef,
    space: &mut Space,
) -> Result<PutBack, SpaceError> {
    let (folder, repository) = (space.folder(), &shared.repository);
    let mut back = PutBack::default();
    let note = Note::read(&folder)?;
    if let Some(note) = &note
        && let Err(error) = restore(repository, space, note, &BTreeSet::new(), &mut back)
    {
        // Whatever else is wrong may be right the next time, and until then the note holds the work.
        let lost = lost(repository, space, note);
        if lost.is_empty() {
            return Err(error);
        }
        match repository.listing(&note.claimed) {
            Ok(_) => restore(repository, space, note, &lost, &mut back)?,
            Err(_) => back.problem = Some(said(&error)),
        }
    }
    Note::remove(&folder)?;
    if let Some(note) = note {
        shared.let_go_of(reference, &note.claimed);
    }
    Ok(back)
}

/// Returns what the repository no longer has of a state; nothing where that cannot be told.
fn lost(repository: &Repository, space: &Space, note: &Note) -> BTreeSet<ObjectId> {
    let base = space.record().base();
    // Where not even the base is found it is not this state that is lost.
    let knows_base = base.is_ok_and(|base| matches!(repository.has(&base), Ok(true)));
    let lost = || repository.lost(&note.claimed).unwrap_or_default();
    if knows_base { lost() } else { BTreeSet::new() }
}

/// Keeps the state that was claimed; the files are not looked at.
pub(super) fn keep_claimed(
    shared: &Shared,
    reference: &ResultRef,
    base: ObjectId,
    note: Note,
    (message, at): (&str, SystemTime),
) -> Result<Kept, SpaceError> {
    let repository = &shared.repository;
    let before = repository.result(reference)?;
    let had = before.as_ref().map(|commit| repository.tree_of(commit)).transpose()?;
    let tree = repository.tree_of(&note.claimed)?;
    let commit = match before {
        Some(before) if had.as_ref() == Some(&tree) => Some(before),
        None if tree == repository.tree_of(&base)? => None,
        before => {
            let made = repository.commit_tree(&[&base], &tree, message, at)?;
            repository.keep(reference, &made, before.as_ref())?;
            Some(made)
        }
    };
    let diff = match &commit {
        Some(commit) => repository.diff(&base, commit)?,
        None => Diff::default(),
    };
    Ok(Kept { commit, reference: reference.clone(), base, diff, skipped: note.skipped })
}

/// Returns those of some paths that were left out as ignored, by themselves or with a folder above them.
pub fn ignored_among<'n>(
    named: &'n BTreeSet<PathBuf>,
    skipped: &[Skipped],
) -> impl Iterator<Item = &'n Path> + use<'n> {
    let ignored = skipped.iter().filter(|skipped| skipped.reason == SkipReason::Ignored);
    let ignored: BTreeSet<PathBuf> = ignored.map(|skipped| skipped.path.clone()).collect();
    let is_in = move |path: &&Path| path.ancestors().any(|at| ignored.contains(at));
    named.iter().map(PathBuf::as_path).filter(is_in)
}

/// Takes reserved files out of what was skipped that are as in the commit: they were put back before.
fn forget_reserved(
    repository: &Repository,
    root: &Root,
    claimed: &ObjectId,
    skipped: &mut Vec<Skipped>,
) -> Result<(), SpaceError> {
    let is_reserved = |skipped: &Skipped| skipped.reason == SkipReason::Reserved;
    if !skipped.iter().any(is_reserved) {
        return Ok(());
    }
    let tree = repository.listing(claimed)?;
    let mut is_back = BTreeSet::new();
    for it in skipped.iter().filter(|it| is_reserved(it)) {
        if let Some(entry) = tree.get(&it.path)
            && is_as(root, &it.path, entry)?
        {
            is_back.insert(it.path.clone());
        }
    }
    skipped.retain(|it| !(is_reserved(it) && is_back.contains(&it.path)));
    Ok(())
}

/// Returns the files with patterns that are not in a commit, the highest first where there are many.
fn patterns(
    repository: &Repository,
    root: &Root,
    look: Look,
    claimed: &ObjectId,
) -> Result<BTreeMap<PathBuf, Vec<u8>>, SpaceError> {
    let mut files = look.into_files();
    files.retain(|path| is_pattern_file(path));
    if files.is_empty() {
        return Ok(BTreeMap::new());
    }
    let tree = repository.listing(claimed)?;
    files.retain(|path| !tree.contains_key(path));
    files.sort_by_key(|path| path.components().count());
    let (mut found, mut left) = (BTreeMap::new(), PATTERNS_BYTES);
    for path in files.into_iter().take(MAX_PATTERNS) {
        if let Some(bytes) = patterns_at(root, &path)
            && let Some(rest) = left.checked_sub(bytes.len())
        {
            left = rest;
            found.insert(path, bytes);
        }
    }
    Ok(found)
}

/// Returns the permissions of what a commit has, as far as they are not those of a checkout.
fn modes(
    repository: &Repository,
    space: &Space,
    root: &Root,
    claimed: &ObjectId,
) -> Result<BTreeMap<PathBuf, u32>, SpaceError> {
    let umask = Umask::now();
    let all = space.inhabitants(root)?.into_iter();
    let unusual = all.filter_map(|path| {
        let bits = bits_at(root, &path).filter(|bits| umask.is_unusual(*bits))?;
        Some((path, bits.mode))
    });
    let mut unusual: BTreeMap<PathBuf, u32> = unusual.collect();
    // The top is often ours alone, and always there.
    if unusual.keys().any(|path| !path.as_os_str().is_empty()) {
        let tree = repository.listing(claimed)?;
        unusual.retain(|path, _| is_of(&tree, path));
    }
    Ok(unusual)
}

/// Says whether a tree has a file or a folder at a path.
fn is_of(tree: &Listing, path: &Path) -> bool {
    let from = (Bound::Included(path), Bound::Unbounded);
    let first = tree.range::<Path, _>(from).next();
    path.as_os_str().is_empty() || first.is_some_and(|(at, _)| at.starts_with(path))
}

fn is_pattern_file(path: &Path) -> bool {
    path.file_name().is_some_and(|name| name == PATTERNS)
}

fn patterns_at(root: &Root, path: &Path) -> Option<Vec<u8>> {
    read_patterns(root, &RelPath::new(path).ok()?).ok().flatten()
}

/// What a look at a workspace found.
#[derive(Debug)]
pub(super) struct Look {
    /// What differs from the base.
    pub(super) changes: Vec<Change>,
    /// What no commit takes, and more that is worth a look.
    pub(super) odd: Vec<PathBuf>,
}

impl Look {
    /// Lists what is there.
    fn into_files(self) -> Vec<PathBuf> {
        let written = self.changes.into_iter().filter_map(|change| match change {
            Change::Written(path) => Some(path.as_path().to_owned()),
            Change::Deleted(_) => None,
        });
        let mut files: Vec<PathBuf> = written.chain(self.odd).collect();
        files.sort();
        files.dedup();
        files
    }
}

/// Puts everything back but what is `lost`.
fn restore(
    repository: &Repository,
    space: &mut Space,
    note: &Note,
    lost: &BTreeSet<ObjectId>,
    back: &mut PutBack,
) -> Result<(), SpaceError> {
    let skipped = note.skipped.iter().map(|skipped| &skipped.path);
    let state = State {
        tree: repository.listing(&note.claimed)?,
        moved: repository.differences(&space.record().base()?, &note.claimed)?,
        note,
        unknown: skipped.chain(&note.odd).map(PathBuf::as_path).collect(),
    };
    let images = space.folder().join(BACK);
    let mut touched = BTreeSet::new();
    let root = space.root()?;
    let (mut round, mut failed) = (0, None);
    let left = loop {
        // Before anything is opened up to be looked at.
        let worn = state.worn(&root, space.inhabitants(&root)?);
        let wrong = Wrong { worn, ..state.wrong(repository, &root, space.look(&root)?)? };
        let (mut wrong, mut left) = wrong.without(lost);
        if round == ROUNDS {
            // Permissions that stay as they are lose nothing of the work.
            left.extend(std::mem::take(&mut wrong.worn).iter().map(|(path, _)| shown(path)));
        }
        let paths = wrong.paths();
        let Some(first) = paths.first() else { break left };
        if round == ROUNDS {
            let (path, source) = failed.map_or((first.clone(), None), |(at, why)| (at, Some(why)));
            return Err(SpaceError::NotBack { path, source });
        }
        round += 1;
        let mended = wrong.mend(repository, &root, &images);
        // Also where it failed: they take the room that may be missing.
        let cleared = remove_all(&images).map_err(SpaceError::io("putting files back"));
        failed = mended?;
        cleared?;
        touched.extend(paths);
    };
    if !touched.is_empty() {
        let top = root.open_dir(&RelPath::default()).map_err(SpaceError::path(root.path()))?;
        sync_disk(top.handle().as_fd()).map_err(SpaceError::io("putting files back"))?;
    }
    back.paths = touched.into_iter().collect();
    back.left = left;
    Ok(())
}

/// A state that was claimed.
struct State<'n> {
    tree: Listing,
    /// What it has differently from the base.
    moved: Diff,
    note: &'n Note,
    /// What there was that the tree does not have.
    unknown: BTreeSet<&'n Path>,
}

/// What differs from a state.
#[derive(Debug, Default)]
struct Wrong {
    /// What was not there.
    gone: Vec<PathBuf>,
    /// What was there, and with which content.
    missed: Vec<(PathBuf, u32, Source)>,
    /// What has other permissions, and which it had.
    worn: Vec<(PathBuf, u32)>,
}

#[derive(Debug)]
enum Source {
    Stored(ObjectId),
    Noted(Vec<u8>),
}

impl State<'_> {
    /// Says whether it is not known what was at a path, so that it stays as it is.
    fn is_unknown(&self, path: &Path) -> bool {
        path.ancestors().any(|at| self.unknown.contains(at))
    }

    fn wrong(&self, repository: &Repository, root: &Root, look: Look) -> Result<Wrong, SpaceError> {
        let mut wrong = Wrong::default();
        for path in self.suspects(&look) {
            let Some(entry) = self.tree.get(path) else { continue };
            if !self.is_unknown(path) && !is_as(root, path, entry)? {
                wrong.missed.push((path.to_owned(), entry.mode, Source::Stored(entry.id.clone())));
            }
        }
        for (path, bytes) in &self.note.patterns {
            let is_same = || patterns_at(root, path).as_ref() == Some(bytes);
            if !self.is_unknown(path) && has_folder(root, path) && !is_same() {
                wrong.missed.push((path.clone(), PLAIN, Source::Noted(bytes.clone())));
            }
        }
        let is_ours = |path: &Path| {
            self.tree.contains_key(path)
                || self.note.patterns.contains_key(path)
                || self.is_unknown(path)
        };
        let others = look.into_files().into_iter().filter(|path| !is_ours(path));
        let mut others: BTreeSet<PathBuf> =
            others.filter(|path| kind_at(root, path).is_some()).collect();
        // Git cannot be asked about its own folders, but about what could lie beside them.
        let asked = |path: &PathBuf| match guarded(path) {
            true => path.with_file_name(".git-"),
            false => path.clone(),
        };
        let all = others.iter().map(asked).collect();
        let ignored = repository.ignored_in(&self.tree, &self.note.patterns, &all)?;
        others.retain(|path| !ignored.contains(&asked(path)));
        // A file of the base is never ignored, and git does not list one that is as it was there.
        let removed = self.moved.entries.iter().map(|entry| &entry.path);
        let is_back = |path: &&PathBuf| {
            !is_ours(path) && kind_at(root, path).is_some_and(|kind| kind != FileKind::Directory)
        };
        others.extend(removed.filter(is_back).cloned());
        wrong.gone = others.into_iter().collect();
        Ok(wrong)
    }

    /// Lists the files and folders of the state that have other permissions, folders before what is in them.
    fn worn(&self, root: &Root, all: BTreeSet<PathBuf>) -> Vec<(PathBuf, u32)> {
        let umask = Umask::now();
        let ours = all.into_iter().filter(|path| is_of(&self.tree, path) && !self.is_unknown(path));
        ours.filter_map(|path| {
            let entry = self.tree.get(&path);
            let can_run = entry.is_none_or(|entry| entry.mode & 0o100 != 0);
            let usual = if can_run { umask.runnable() } else { umask.plain() };
            let wanted = self.note.modes.get(&path).copied().unwrap_or(usual);
            let found = bits_at(root, &path)?;
            // What is in the place of another thing goes.
            (found.is_folder == entry.is_none() && found.mode != wanted).then_some((path, wanted))
        })
        .collect()
    }

    /// Lists the files of the state that may not be as they were: all others are as in the base.
    fn suspects(&self, look: &Look) -> BTreeSet<&Path> {
        let mut all = BTreeSet::new();
        let mut add = |path: &Path| {
            let from = (Bound::Included(path), Bound::Unbounded);
            let below = self.tree.range::<Path, _>(from).map(|(at, _)| at.as_path());
            all.extend(below.take_while(|at| at.starts_with(path)));
            let above = path.ancestors().skip(1);
            all.extend(above.filter_map(|at| Some(self.tree.get_key_value(at)?.0.as_path())));
        };
        look.changes.iter().for_each(|change| add(change.path().as_path()));
        look.odd.iter().for_each(|path| add(path));
        self.moved.entries.iter().for_each(|entry| add(&entry.path));
        all
    }
}

/// Returns what people are shown of a path; the top has no name of its own.
fn shown(path: &Path) -> PathBuf {
    if path.as_os_str().is_empty() { PathBuf::from(".") } else { path.to_owned() }
}

impl Wrong {
    fn paths(&self) -> Vec<PathBuf> {
        let missed = self.missed.iter().map(|(path, ..)| path);
        let all: BTreeSet<&PathBuf> = self.gone.iter().chain(missed).collect();
        let mut all: BTreeSet<PathBuf> = all.into_iter().cloned().collect();
        all.extend(self.worn.iter().map(|(path, _)| shown(path)));
        all.into_iter().collect()
    }

    /// Takes out what cannot be put back because its content is lost, and names it.
    fn without(mut self, lost: &BTreeSet<ObjectId>) -> (Self, Vec<PathBuf>) {
        let is_lost = |source: &Source| matches!(source, Source::Stored(id) if lost.contains(id));
        let gone = self.missed.extract_if(.., |(_, _, source)| is_lost(source));
        let left = gone.map(|(path, ..)| path).collect();
        (self, left)
    }

    /// Makes the paths what they were; returns the first where that did not work, which the next look finds
    /// again.
    fn mend(
        &self,
        repository: &Repository,
        root: &Root,
        images: &Path,
    ) -> Result<Option<(PathBuf, PathError)>, SpaceError> {
        let mut failed = None;
        let mut note = |path: &Path, done: Result<(), PathError>| {
            if let Err(error) = done {
                failed.get_or_insert((path.to_owned(), error));
            }
        };
        // First: nothing can be put into a folder that nobody may write to. What does not work is seen by
        // the next look.
        for (path, mode) in &self.worn {
            let _ = set_bits(root, path, *mode);
        }
        for path in &self.gone {
            note(path, take_out(root, path));
        }
        let clear = || remove_all(images).and_then(|()| private::create_dir(images));
        clear().map_err(SpaceError::io("putting files back"))?;
        let mut stored = Vec::new();
        for (number, (_, _, source)) in self.missed.iter().enumerate() {
            match source {
                Source::Stored(id) => stored.push((number, id)),
                Source::Noted(bytes) => private::write(&images.join(number.to_string()), bytes)
                    .map_err(SpaceError::io("putting files back"))?,
            }
        }
        write_images(repository, stored.into_iter(), images)?;
        for (number, (path, mode, _)) in self.missed.iter().enumerate() {
            note(path, put(root, path, *mode, &images.join(number.to_string())));
        }
        Ok(failed)
    }
}
