//! Previewing the merge of a result.
//!
//! The merge happens in the object store; no checkout, index or reference is touched. The child's work is the
//! difference between its commit and the state it started from, so uncommitted files that existed before do not
//! count as its work.
//!
//! Git merges commits and finds their base itself; only git 2.40 and newer can be told the base. So each side becomes
//! a temporary commit whose only parent is the base. Invariant: these commits are never stored in the repository.

use std::collections::BTreeMap;
use std::path::PathBuf;

use super::GitError;
use super::id::ObjectId;
use super::import::quoted;
use super::loose;
use super::repository::{Repository, path_of};
use super::run::GitCall;
use super::scratch::ScratchGitDir;
use crate::private;

/// What conflict markers for a person call the two sides: the target and the result.
pub(crate) const CONFLICT_LABELS: [&str; 2] = ["yours", "result"];

/// The most paths in one call of git, whose arguments have a limited size.
const MAX_PATHSPECS: usize = 500;

/// The outcome of a merge that was not applied.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MergePreview {
    /// The merged tree; files with conflicts contain conflict markers.
    pub tree: ObjectId,
    /// The conflicts, sorted by path.
    pub conflicts: Vec<Conflict>,
}

/// A path that could not be merged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Conflict {
    /// The path.
    pub path: PathBuf,
    /// The kind of conflict.
    pub kind: ConflictKind,
    /// The common version.
    pub base: Option<ConflictSide>,
    /// The version of the target.
    pub ours: Option<ConflictSide>,
    /// The version of the child.
    pub theirs: Option<ConflictSide>,
}

/// One version of a file in a conflict.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConflictSide {
    /// Its mode.
    pub mode: u32,
    /// Its blob.
    pub id: ObjectId,
}

/// The kinds of conflicts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ConflictKind {
    /// Both changed the same lines.
    BothModified,
    /// Both changed a binary file.
    Binary,
    /// Both added the file, with different content.
    BothAdded,
    /// The target deleted what the child changed.
    DeletedByTarget,
    /// The child deleted what the target changed.
    DeletedByChild,
    /// One side renamed what the other renamed, deleted or replaced.
    Rename,
    /// The sides differ in type or mode: a file and a link, or different modes.
    Mode,
    /// One side has a file where the other has a directory.
    FileAndFolder,
    /// A submodule differs.
    Submodule,
    /// The result still has the conflict markers of an earlier merge.
    Markers,
}

impl ConflictKind {
    /// Describes the conflict in a few words.
    #[must_use]
    pub const fn describe(self) -> &'static str {
        match self {
            Self::BothModified => "both changed the same lines",
            Self::Binary => "both changed this binary file",
            Self::BothAdded => "both added it with different content",
            Self::DeletedByTarget => "deleted in the target, changed by the result",
            Self::DeletedByChild => "changed in the target, deleted by the result",
            Self::Rename => "renamed on one side, changed differently on the other",
            Self::Mode => "the sides differ in file type or mode",
            Self::FileAndFolder => "a file on one side, a directory on the other",
            Self::Submodule => "a submodule differs",
            Self::Markers => "the result still has conflict markers",
        }
    }
}

impl Conflict {
    /// A file of a result that still has conflict markers.
    pub(crate) fn marked(path: PathBuf) -> Self {
        Self { path, kind: ConflictKind::Markers, base: None, ours: None, theirs: None }
    }
}

impl MergePreview {
    /// Says whether there are no conflicts.
    #[must_use]
    pub const fn is_clean(&self) -> bool {
        self.conflicts.is_empty()
    }
}

impl Repository {
    /// Merges the work of the commit `result` with the commit or tree `target`, in the object store only.
    ///
    /// # Errors
    ///
    /// [`GitError::Missing`] if `result` has no parent or one of them does not exist; otherwise why git could not
    /// merge.
    pub fn preview(&self, result: &ObjectId, target: &ObjectId) -> Result<MergePreview, GitError> {
        let names = [format!("{result}^1"), tree_name(target), tree_name(result)];
        let mut found = self.resolve_all(&names)?.into_iter();
        let base = found.next().flatten().ok_or_else(|| no_base(result))?;
        self.merge_trees(&base, [target, result], found, None)
    }

    /// Like [`Repository::preview`], with conflict markers for a person: each side has its label, and the common
    /// version is between them.
    pub(crate) fn preview_for_person(
        &self,
        result: &ObjectId,
        target: &ObjectId,
    ) -> Result<MergePreview, GitError> {
        let base = self.base_of(result)?;
        let trees = self.resolve_all(&[tree_name(target), tree_name(result)])?;
        self.merge_trees(&base, [target, result], trees, Some(CONFLICT_LABELS))
    }

    /// Merges everything between the commits `base` and `result` with the commit or tree `target`, in the object
    /// store only.
    pub(crate) fn preview_since(
        &self,
        base: &ObjectId,
        result: &ObjectId,
        target: &ObjectId,
    ) -> Result<MergePreview, GitError> {
        let trees = self.resolve_all(&[tree_name(target), tree_name(result)])?;
        self.merge_trees(base, [target, result], trees, None)
    }

    /// Merges two commits or trees, given with the trees that were found for them, from the commit `base`. Without
    /// `labels`, conflict markers name temporary commits.
    fn merge_trees(
        &self,
        base: &ObjectId,
        sides: [&ObjectId; 2],
        trees: impl IntoIterator<Item = Option<ObjectId>>,
        labels: Option<[&str; 2]>,
    ) -> Result<MergePreview, GitError> {
        let scratch = self.scratch(None)?;
        let mut merged = Vec::new();
        for (side, tree) in sides.into_iter().zip(trees) {
            let tree = tree.ok_or_else(|| GitError::Missing(format!("commit {side}")))?;
            merged.push(scratch.side(&tree, base)?.to_string());
        }
        let mut call = scratch.merge_call();
        if let Some(labels) = labels {
            for (label, commit) in labels.into_iter().zip(&mut merged) {
                scratch.name_commit(label, commit)?;
                label.clone_into(commit);
            }
            call = call.config("merge.conflictStyle=diff3");
        }
        let call = call.args(["-z", "--messages"]);
        let output = call.args(merged.iter().map(String::as_str)).accept(&[0, 1]).run()?;
        read(&output.bytes, &merged)
            .ok_or_else(|| GitError::Unreadable { command: "merge-tree".to_owned() })
    }

    /// Returns those of `paths` whose files in `tree` have conflict markers for a person.
    pub(crate) fn marked_files(
        &self,
        tree: &ObjectId,
        paths: &[PathBuf],
    ) -> Result<Vec<PathBuf>, GitError> {
        let [yours, result] = CONFLICT_LABELS;
        let (scratch, mut marked) = (self.scratch(None)?, Vec::new());
        for some in paths.chunks(MAX_PATHSPECS) {
            let call = scratch.call("grep").args(["-l", "-z", "-E"]);
            let pattern = format!("^(<<<<<<< {yours}|>>>>>>> {result})$");
            let call = call.args(["-e", &pattern, tree.as_str(), "--"]).args(some);
            let output = call.accept(&[0, 1]).run()?;
            // Git writes `tree:path`.
            let names = output.bytes.split(|byte| *byte == 0);
            let names = names.filter_map(|name| name.get(tree.as_str().len() + 1..));
            marked.extend(names.map(path_of));
        }
        Ok(marked)
    }

    /// Says for each of several results, given with its base, whether merging it changes nothing in the commit
    /// `target`. A result with conflicts, or one that git cannot read, would change something.
    pub(crate) fn merges_without_change(
        &self,
        results: &[(&ObjectId, &ObjectId)],
        target: &ObjectId,
    ) -> Result<Vec<bool>, GitError> {
        let sides = std::iter::once(target).chain(results.iter().map(|(result, _)| *result));
        let mut trees = self.resolve_all(&sides.map(tree_name).collect::<Vec<_>>())?.into_iter();
        let target = trees.next().flatten();
        let target = target.ok_or_else(|| GitError::Missing("commit to merge into".to_owned()))?;
        let scratch = self.scratch(None)?;
        let (mut asked, mut list) = (Vec::new(), Vec::new());
        for (number, ((_, base), tree)) in results.iter().zip(trees).enumerate() {
            let Some(tree) = tree else { continue };
            let (ours, theirs) = (scratch.side(&target, base)?, scratch.side(&tree, base)?);
            asked.push(number);
            list.push(format!("{ours} {theirs}\n"));
        }
        let mut merged = Vec::new();
        // Git stops at the first result that it cannot read; that one is skipped.
        while let Some(rest) = list.get(merged.len()..).filter(|rest| !rest.is_empty()) {
            let call = scratch.merge_call().args(["--stdin", "--no-messages", "--name-only"]);
            let output = call.accept(&[0, 128]).run_with_input(rest.concat().as_bytes())?;
            read_all(&output.bytes, &mut merged);
            if merged.len() < list.len() {
                merged.push(None);
            }
        }
        let mut unchanged = vec![false; results.len()];
        for (number, tree) in asked.into_iter().zip(merged) {
            if let Some(place) = unchanged.get_mut(number) {
                *place = tree.as_ref() == Some(&target);
            }
        }
        Ok(unchanged)
    }

    /// Returns the commit that a result started from: its first parent.
    ///
    /// # Errors
    ///
    /// [`GitError::Missing`] if the commit has no parent.
    pub fn base_of(&self, result: &ObjectId) -> Result<ObjectId, GitError> {
        self.resolve(&format!("{result}^1"))?.ok_or_else(|| no_base(result))
    }
}

impl ScratchGitDir<'_> {
    /// Creates a temporary commit of `tree` whose only parent is the commit `base`.
    fn side(&self, tree: &ObjectId, base: &ObjectId) -> Result<ObjectId, GitError> {
        loose::write_commit(self.folder(), tree, base)
    }

    /// Lets git find a commit by a name.
    fn name_commit(&self, name: &str, commit: &str) -> Result<(), GitError> {
        let written = private::write(&self.folder().join("refs").join(name), format!("{commit}\n"));
        written.map_err(GitError::io("naming a side of a merge"))
    }

    /// Returns a call that merges commits in the object store and knows the temporary ones.
    fn merge_call(&self) -> GitCall<'_> {
        let call = self.call("merge-tree").arg("--write-tree");
        call.env("GIT_ALTERNATE_OBJECT_DIRECTORIES", quoted(self.folder()))
    }
}

/// Names the tree of a commit or tree.
fn tree_name(id: &ObjectId) -> String {
    format!("{id}^{{tree}}")
}

fn no_base(result: &ObjectId) -> GitError {
    GitError::Missing(format!("base of commit {result}"))
}

/// Parses the output of one merge.
fn read(bytes: &[u8], merged: &[String]) -> Option<MergePreview> {
    let mut records = bytes.split(|byte| *byte == 0);
    let tree = ObjectId::from_bytes(records.next()?)?;
    let mut versions: BTreeMap<PathBuf, [Option<ConflictSide>; 3]> = BTreeMap::new();
    for record in records.by_ref() {
        if record.is_empty() {
            break;
        }
        let at = record.iter().position(|byte| *byte == b'\t')?;
        let (info, path) = (std::str::from_utf8(record.get(..at)?).ok()?, record.get(at + 1..)?);
        let mut parts = info.split(' ');
        let mode = u32::from_str_radix(parts.next()?, 8).ok()?;
        let id = ObjectId::parse(parts.next()?)?;
        let stage: usize = parts.next()?.parse().ok()?;
        let slots = versions.entry(path_of(own_name(path, merged))).or_default();
        *slots.get_mut(stage.checked_sub(1)?)? = Some(ConflictSide { mode, id });
    }
    let said = read_messages(&mut records, merged);
    let conflicts = versions.into_iter().map(|(path, [base, ours, theirs])| {
        let kind = kind(said.get(&path).map_or("", String::as_str), &base, &ours, &theirs);
        Conflict { path, kind, base, ours, theirs }
    });
    Some(MergePreview { tree, conflicts: conflicts.collect() })
}

/// Parses the output of several merges: status, tree, paths with conflicts, and an empty record.
fn read_all(bytes: &[u8], trees: &mut Vec<Option<ObjectId>>) {
    let mut records = bytes.split(|byte| *byte == 0);
    while let Some(status) = records.next().filter(|status| !status.is_empty()) {
        let Some(tree) = records.next().and_then(ObjectId::from_bytes) else { return };
        if !records.by_ref().any(<[u8]>::is_empty) {
            return;
        }
        trees.push((status == b"1").then_some(tree));
    }
}

/// Returns the original path of a file. If a directory or a file of another type is in its place, git renames it to
/// `name~commit` or `name~commit_0`.
fn own_name<'b>(path: &'b [u8], merged: &[String]) -> &'b [u8] {
    let Some(at) = path.iter().rposition(|byte| *byte == b'~') else { return path };
    let (name, mark) = path.split_at(at);
    let is_mark = |label: &String| {
        let rest = mark.get(1..).and_then(|mark| mark.strip_prefix(label.as_bytes()));
        let is_number = |rest: &[u8]| rest.iter().all(u8::is_ascii_digit);
        rest.is_some_and(|rest| rest.is_empty() || rest.strip_prefix(b"_").is_some_and(is_number))
    };
    if merged.iter().any(is_mark) { name } else { path }
}

/// Parses the kind of conflict for each path: `count`, paths, kind, text.
fn read_messages<'b>(
    records: &mut impl Iterator<Item = &'b [u8]>,
    merged: &[String],
) -> BTreeMap<PathBuf, String> {
    let mut said = BTreeMap::new();
    while let Some(count) = records.next() {
        let Some(count) = std::str::from_utf8(count).ok().and_then(|text| text.parse().ok()) else {
            break;
        };
        let named = |path: &'b [u8]| path_of(own_name(path, merged));
        let paths: Vec<PathBuf> = records.by_ref().take(count).map(named).collect();
        let kind = records.next().map(String::from_utf8_lossy).unwrap_or_default();
        records.next();
        if kind.starts_with("CONFLICT") {
            for path in paths {
                said.entry(path).or_insert_with(|| kind.clone().into_owned());
            }
        }
    }
    said
}

fn kind(
    said: &str,
    base: &Option<ConflictSide>,
    ours: &Option<ConflictSide>,
    theirs: &Option<ConflictSide>,
) -> ConflictKind {
    if said.contains("submodule") {
        return ConflictKind::Submodule;
    }
    if said.contains("rename") {
        return ConflictKind::Rename;
    }
    if said.contains("file/directory") {
        return ConflictKind::FileAndFolder;
    }
    if said.contains("distinct") {
        return ConflictKind::Mode;
    }
    if said.contains("binary") {
        return ConflictKind::Binary;
    }
    match (base, ours, theirs) {
        (_, None, _) => ConflictKind::DeletedByTarget,
        (_, _, None) => ConflictKind::DeletedByChild,
        (None, Some(_), Some(_)) => ConflictKind::BothAdded,
        (Some(_), Some(ours), Some(theirs)) if ours.id == theirs.id => ConflictKind::Mode,
        (Some(_), Some(_), Some(_)) => ConflictKind::BothModified,
    }
}
