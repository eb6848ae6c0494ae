//! Finding applied results of which the user's files contain nothing any more.
//!
//! Only the paths that the result changed are examined, as they are on disk; nothing is stored. In doubt a result
//! counts as present: the user's own edits to it must not be overwritten by applying it again.
//!
//! Start at [`Repository::fully_undone`].

use std::collections::btree_map::Entry as MapEntry;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use super::apply::LINK;
use super::export::PLAIN;
use crate::git::{FILE_BYTES, OpenedContent, blob_id, content_at};
use crate::{Diff, DiffEntry, GitError, ObjectId, RelPath, Repository, Root};

/// Git's mode of an executable file.
const PROGRAM: u32 = 0o100_755;

/// Git's mode of a submodule entry.
const SUBMODULE: u32 = 0o160_000;

/// What is, or was, at a path.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum PathContent {
    /// No file.
    Nothing,
    /// A file or a link, with its mode.
    File(u32, ObjectId),
    /// A special file, or a file that cannot be read.
    Unclear,
}

/// For each path the changes that results made: content before and after.
type PathChanges<'d> = BTreeMap<&'d Path, Vec<(PathContent, PathContent)>>;

/// A file on disk, and the contents that results connect it with.
#[derive(Debug)]
struct FileOnDisk {
    thing: PathContent,
    /// The contents that results can turn it into, its own included.
    later: BTreeSet<PathContent>,
    /// The contents that results can have turned into it, its own included.
    earlier: BTreeSet<PathContent>,
}

/// The files on disk that were examined, and the changes of the results.
struct DiskComparison<'d> {
    root: Root,
    steps: PathChanges<'d>,
    found: BTreeMap<&'d Path, FileOnDisk>,
}

/// What the file at a path shows about a result that changed it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PathEvidence {
    /// It is as the result, or a later one based on it, left it.
    There,
    /// It is as it was before the result, or before an earlier one that the result is based on.
    Gone,
    /// Both: a later result, or the user, reverted the change.
    Nothing,
    /// It has some other content.
    Other,
}

impl Repository {
    /// Returns those of the applied results of which the work tree contains nothing. `applied` lists the names of
    /// all applications: a later result may have changed the files of an earlier one.
    ///
    /// Costs a few git calls, however many results there are, and reads the files that the results changed.
    ///
    /// # Errors
    ///
    /// When git fails or files cannot be read.
    pub fn fully_undone(
        &self,
        results: &[ObjectId],
        applied: &[String],
    ) -> Result<BTreeSet<ObjectId>, GitError> {
        let gone = self.undone_among(results, results)?;
        // Usually none is undone, and the other applications need not be examined.
        if gone.is_empty() {
            return Ok(gone);
        }
        let gone: Vec<ObjectId> = gone.into_iter().collect();
        let starts = applied.iter().filter_map(|name| name.split('-').next());
        let mut all = self.commits_by_prefix(starts)?;
        all.extend(results.iter().cloned());
        self.undone_among(&gone, &all.into_iter().collect::<Vec<_>>())
    }

    /// Returns those of `results` of which the work tree contains nothing, considering the changes of `others`.
    fn undone_among(
        &self,
        results: &[ObjectId],
        others: &[ObjectId],
    ) -> Result<BTreeSet<ObjectId>, GitError> {
        // A commit without a base is not one of our results, and counts as present.
        let bases = self.bases_of(others)?;
        let diffs = self.differences_of(&bases)?;
        let mut look = DiskComparison::new(self.root()?, &diffs);
        let (mut gone, mut unsure) = (BTreeSet::new(), Vec::new());
        for (result, diff) in results.iter().filter_map(|it| Some((it, diffs.get(it)?))) {
            let own = diff.entries.iter().filter(|entry| !is_submodule(entry));
            let says = own
                .map(|it| Ok((it, look.evidence_at(it)?)))
                .collect::<Result<Vec<_>, GitError>>()?;
            let is_said = |what: PathEvidence| says.iter().any(|(_, it)| *it == what);
            if is_said(PathEvidence::There) {
                continue;
            }
            if is_said(PathEvidence::Other) {
                let others = says.iter().filter(|(_, it)| *it == PathEvidence::Other);
                unsure.push((result, others.map(|(entry, _)| *entry).collect::<Vec<_>>()));
            } else if is_said(PathEvidence::Gone) {
                gone.insert(result.clone());
            }
        }
        gone.extend(self.reverted_in_head(&unsure, &bases, &look)?);
        Ok(gone)
    }

    /// Returns those of the results of which HEAD contains nothing, if the given files are as in HEAD; HEAD may
    /// have changed them in other ways. Then reverting the result in HEAD, alone or with everything since its fork
    /// point, changes nothing.
    fn reverted_in_head(
        &self,
        results: &[(&ObjectId, Vec<&DiffEntry>)],
        bases: &BTreeMap<ObjectId, ObjectId>,
        look: &DiskComparison<'_>,
    ) -> Result<BTreeSet<ObjectId>, GitError> {
        let head = if results.is_empty() { None } else { self.head()? };
        let Some(head) = head else { return Ok(BTreeSet::new()) };
        let listing = self.listing(&head)?;
        let is_clean = |entry: &DiffEntry| {
            let known = listing.get(&entry.path);
            let known =
                known.map_or(PathContent::Nothing, |it| PathContent::File(it.mode, it.id.clone()));
            look.found.get(entry.path.as_path()).is_some_and(|found| found.thing == known)
        };
        let clean = results.iter().filter(|(_, entries)| entries.iter().all(|it| is_clean(it)));
        let clean: Vec<&ObjectId> = clean.map(|(result, _)| *result).collect();
        // The results it is based on may have been reverted with it.
        let forks = self.forks(&clean, &head)?;
        let under = |result: &ObjectId| [bases.get(result), forks.get(result)];
        let pairs: Vec<_> = clean
            .iter()
            .flat_map(|result| under(result).into_iter().flatten().map(|base| (base, *result)))
            .collect();
        if pairs.is_empty() {
            return Ok(BTreeSet::new());
        }
        let without = self.merges_without_change(&pairs, &head)?;
        let same = pairs.iter().zip(without).filter(|(_, is_same)| *is_same);
        Ok(same.map(|((_, result), _)| (*result).clone()).collect())
    }
}

impl<'d> DiskComparison<'d> {
    fn new(root: Root, diffs: &'d BTreeMap<ObjectId, Diff>) -> Self {
        let mut steps = PathChanges::new();
        for entry in diffs.values().flat_map(|diff| &diff.entries) {
            let step = (PathContent::before(entry), PathContent::after(entry));
            steps.entry(&entry.path).or_default().push(step);
        }
        Self { root, steps, found: BTreeMap::new() }
    }

    /// Compares the file at a path with the change of a result.
    fn evidence_at(&mut self, entry: &'d DiffEntry) -> Result<PathEvidence, GitError> {
        let path = entry.path.as_path();
        let found = match self.found.entry(path) {
            MapEntry::Occupied(known) => known.into_mut(),
            MapEntry::Vacant(place) => {
                let thing = PathContent::on_disk(&self.root, path, &entry.old_id)?;
                let steps = self.steps.get(path).map(Vec::as_slice).unwrap_or_default();
                place.insert(FileOnDisk::new(thing, steps))
            }
        };
        let is_before = found.later.contains(&PathContent::before(entry));
        let is_after = found.earlier.contains(&PathContent::after(entry));
        Ok(match (is_before, is_after) {
            (true, true) => PathEvidence::Nothing,
            (true, false) => PathEvidence::Gone,
            (false, true) => PathEvidence::There,
            (false, false) => PathEvidence::Other,
        })
    }
}

impl FileOnDisk {
    fn new(thing: PathContent, steps: &[(PathContent, PathContent)]) -> Self {
        let later = reachable(&thing, steps.iter().map(|(from, to)| (from, to)));
        let earlier = reachable(&thing, steps.iter().map(|(from, to)| (to, from)));
        Self { thing, later, earlier }
    }
}

impl PathContent {
    fn before(entry: &DiffEntry) -> Self {
        Self::of(entry.old_mode, &entry.old_id)
    }

    fn after(entry: &DiffEntry) -> Self {
        Self::of(entry.new_mode, &entry.new_id)
    }

    fn of(mode: u32, id: &ObjectId) -> Self {
        if mode == 0 { Self::Nothing } else { Self::File(mode, id.clone()) }
    }

    fn on_disk(root: &Root, path: &Path, like: &ObjectId) -> Result<Self, GitError> {
        let Ok(named) = RelPath::new(path) else { return Ok(Self::Unclear) };
        let Ok(Ok(found)) = content_at(root, &named) else { return Ok(Self::Unclear) };
        let (mode, id) = match found {
            OpenedContent::Nothing => return Ok(Self::Nothing),
            OpenedContent::Link(target) => {
                (LINK, blob_id(&mut target.as_slice(), target.len() as u64, like)?)
            }
            // Results never contain files of that size.
            OpenedContent::File { len, .. } if len > FILE_BYTES => return Ok(Self::Unclear),
            OpenedContent::File { mut file, len, executable } => {
                (if executable { PROGRAM } else { PLAIN }, blob_id(&mut file, len, like)?)
            }
        };
        Ok(id.map_or(Self::Unclear, |id| Self::File(mode, id)))
    }
}

/// Returns everything that is reachable from `start` by these changes, itself included.
fn reachable<'t>(
    start: &'t PathContent,
    steps: impl Iterator<Item = (&'t PathContent, &'t PathContent)>,
) -> BTreeSet<PathContent> {
    let mut next: BTreeMap<&PathContent, Vec<&PathContent>> = BTreeMap::new();
    for (from, to) in steps {
        next.entry(from).or_default().push(to);
    }
    let (mut all, mut open) = (BTreeSet::from([start]), vec![start]);
    while let Some(at) = open.pop() {
        let to = next.get(at).into_iter().flatten();
        open.extend(to.filter(|to| all.insert(to)));
    }
    all.into_iter().cloned().collect()
}

/// Says whether an entry is a submodule; applying a result leaves submodules unchanged.
fn is_submodule(entry: &DiffEntry) -> bool {
    [entry.old_mode, entry.new_mode].contains(&SUBMODULE)
}
