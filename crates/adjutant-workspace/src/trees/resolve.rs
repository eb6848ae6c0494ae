//! A work tree with conflict markers, in which a person merges a result with the present state of their files.
//!
//! The merge with its markers is a commit with two parents: the captured state of the user's files, and the result. The
//! work tree is a checkout of it, so everything is known from the disk after a crash. The finished merge has the same
//! parents: it is based on the user's files, and the earlier result stays reachable.
//!
//! Start at [`Repository::begin_resolution`].

use std::fs;
use std::io::{self, BufRead as _};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use super::worktree::{Worktree, Worktrees, remove_files};
use crate::git::{
    CONFLICT_LABELS, Conflict, GitError, ObjectId, ObjectStorage, Repository, ResultRef,
};

/// The message of the commit with conflict markers.
const MARKED: &str = "Merge with conflict markers";

/// The message of the commit in which a person resolved the conflicts.
const RESOLVED: &str = "Merge with resolved conflicts";

/// A merge that a person is to complete in a work tree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConflictResolution {
    /// The directory of the work tree.
    pub path: PathBuf,
    /// The conflicts, sorted by path; empty if only uncommitted changes prevent the merge.
    pub conflicts: Vec<Conflict>,
    /// Whether the work tree was there before.
    pub is_continued: bool,
}

/// Why a resolution could not be completed.
#[derive(Debug, thiserror::Error)]
pub enum ResolveError {
    /// There is no work tree for this result.
    #[error("no conflicts of {0} are being resolved")]
    NotBegun(ResultRef),
    /// The files of the work tree are gone.
    #[error("the work tree {} is gone", .0.display())]
    FilesGone(PathBuf),
    /// These files still contain conflict markers, or are the copies that git makes of both sides.
    #[error("conflicts are not resolved in {}", count_files(.0.len()))]
    Unresolved(Vec<PathBuf>),
    /// The result is another one than when the work tree was made.
    #[error("{0} has another result than when its conflicts were written to the work tree")]
    ResultChanged(ResultRef),
    /// Git failed.
    #[error(transparent)]
    Git(#[from] GitError),
}

fn count_files(count: usize) -> String {
    if count == 1 { "1 file".to_owned() } else { format!("{count} files") }
}

impl Repository {
    /// Makes a work tree with the merge of a result and the present files, or finds the existing one.
    ///
    /// # Errors
    ///
    /// Why git failed, or [`GitError::Missing`] if there is no such result.
    pub fn begin_resolution(
        &self,
        reference: &ResultRef,
        at: SystemTime,
    ) -> Result<ConflictResolution, GitError> {
        let _alone = self.apply_lock()?;
        let result = self.result(reference)?;
        let result = result.ok_or_else(|| GitError::Missing(reference.to_string()))?;
        let all = Worktrees::open(self)?;
        if let Some(worktree) = adopt(&all, reference)? {
            let [ours, work] = self.sides(worktree.base())?;
            if worktree.path().is_dir() {
                let conflicts = self.preview_for_person(&work, &ours)?.conflicts;
                let path = worktree.path().to_owned();
                return Ok(ConflictResolution { path, conflicts, is_continued: true });
            }
            worktree.discard()?;
        } else if !all.remove_unfinished(reference)? {
            // The directory may have been deleted by hand; git refuses to reuse its path until its entry is gone.
            remove_files(self, &self.resolution_path(reference))?;
        }
        let ours = self.capture(at)?;
        let merged = self.preview_for_person(&result, &ours.commit)?;
        let marked = self.commit_tree(&[&ours.commit, &result], &merged.tree, MARKED, at)?;
        let worktree = all.create(reference, &marked)?;
        let path = worktree.path().to_owned();
        Ok(ConflictResolution { path, conflicts: merged.conflicts, is_continued: false })
    }

    /// Commits the files of the work tree as the new result and returns it. The work tree stays. Asking again gives
    /// the same commit, unless the files changed.
    ///
    /// # Errors
    ///
    /// See [`ResolveError`].
    pub fn commit_resolution(
        &self,
        reference: &ResultRef,
        at: SystemTime,
    ) -> Result<ObjectId, ResolveError> {
        let _alone = self.apply_lock()?;
        let worktree = self.resolution(reference)?;
        let path = worktree.path();
        if !path.is_dir() {
            return Err(ResolveError::FilesGone(path.to_owned()));
        }
        let [ours, work] = self.sides(worktree.base())?;
        let now = self.result(reference)?;
        let is_ours = |commit: &ObjectId| {
            Ok::<_, GitError>(
                *commit == work || self.sides(commit).ok() == Some([ours.clone(), work.clone()]),
            )
        };
        let Some(now) = now else { return Err(ResolveError::ResultChanged(reference.clone())) };
        if !is_ours(&now)? {
            return Err(ResolveError::ResultChanged(reference.clone()));
        }
        let (imported, _) = worktree.import(RESOLVED, at, ObjectStorage::Durable)?;
        let tree = imported.made.tree;
        let changed = self.differences(&ours, &tree)?.entries.into_iter();
        let changed = changed.filter(|entry| entry.new_mode != 0).map(|entry| entry.path);
        let unresolved: Vec<PathBuf> = changed.filter(|it| is_unresolved(path, it)).collect();
        if !unresolved.is_empty() {
            return Err(ResolveError::Unresolved(unresolved));
        }
        if now != work && self.tree_of(&now)? == tree {
            return Ok(now);
        }
        let resolved = self.commit_tree(&[&ours, &work], &tree, RESOLVED, at)?;
        self.keep(reference, &resolved, Some(&now))?;
        Ok(resolved)
    }

    /// Removes the work tree of a resolution, whatever it contains. The result stays.
    ///
    /// # Errors
    ///
    /// [`ResolveError::NotBegun`], or why git failed.
    pub fn end_resolution(&self, reference: &ResultRef) -> Result<PathBuf, ResolveError> {
        let worktree = self.resolution(reference)?;
        let path = worktree.path().to_owned();
        worktree.discard()?;
        Ok(path)
    }

    /// Returns the work tree in which the conflicts of a result are being resolved.
    #[must_use]
    pub fn resolution_in_progress(&self, reference: &ResultRef) -> Option<PathBuf> {
        Some(self.resolution_path(reference)).filter(|path| path.is_dir())
    }

    fn resolution(&self, reference: &ResultRef) -> Result<Worktree, ResolveError> {
        let found = adopt(&Worktrees::open(self)?, reference)?;
        found.ok_or_else(|| ResolveError::NotBegun(reference.clone()))
    }

    fn resolution_path(&self, reference: &ResultRef) -> PathBuf {
        let (run, child) = (reference.run(), reference.child());
        self.state().join("worktrees").join(run).join(child).join(child)
    }

    /// Returns the two parents of a merge: the user's files, and the result.
    fn sides(&self, merge: &ObjectId) -> Result<[ObjectId; 2], GitError> {
        let parent = |number: u8| {
            let found = self.resolve(&format!("{merge}^{number}"))?;
            found.ok_or_else(|| GitError::Missing(format!("parent {number} of commit {merge}")))
        };
        Ok([parent(1)?, parent(2)?])
    }
}

fn adopt(all: &Worktrees<'_>, reference: &ResultRef) -> Result<Option<Worktree>, GitError> {
    match all.adopt(reference) {
        Ok(worktree) => Ok(Some(worktree)),
        Err(GitError::Missing(_)) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Says whether a file has a conflict marker of ours, or is a side that git stored beside a directory as `name~yours`
/// or `name~result`.
fn is_unresolved(top: &Path, path: &Path) -> bool {
    let [yours, result] = CONFLICT_LABELS;
    let name = path.to_string_lossy();
    if CONFLICT_LABELS.iter().any(|label| name.ends_with(&format!("~{label}"))) {
        return true;
    }
    let Some(file) = open_plain(&top.join(path)) else { return false };
    let (first, last) = (format!("<<<<<<< {yours}"), format!(">>>>>>> {result}"));
    let is_marker =
        |line: &[u8]| line.starts_with(first.as_bytes()) || line.starts_with(last.as_bytes());
    io::BufReader::new(file).split(b'\n').map_while(Result::ok).any(|line| is_marker(&line))
}

/// Opens a file that is not a link.
fn open_plain(path: &Path) -> Option<fs::File> {
    let is_file = path.symlink_metadata().is_ok_and(|found| found.is_file());
    fs::File::open(path).ok().filter(|_| is_file)
}
