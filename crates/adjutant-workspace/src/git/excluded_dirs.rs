//! Directories in a work tree that are never part of a workspace or a result.
//!
//! These are git directories not called `.git`, which git treats as ordinary untracked directories, and Adjutant's
//! own paths: its state and the user's configuration. They are not captured, and what an agent writes at their
//! paths is neither kept nor merged.
//!
//! Start at [`ExcludedDirs::owner_around`].

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use super::GitError;
use super::change::{SkipReason, SkippedPath, is_in_dot_git};
use super::repository::Repository;
use crate::git_guard::{FileId, file_id, is_git_dir_shape};
use crate::{Diff, PathError};

/// Who uses an excluded directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum DirOwner {
    /// Git stores the repository there.
    Git,
    /// Adjutant stores its state or the user's configuration there.
    Program,
}

impl DirOwner {
    pub(crate) const fn skip_reason(self) -> SkipReason {
        match self {
            Self::Git => SkipReason::NestedRepository,
            Self::Program => SkipReason::Reserved,
        }
    }

    pub(crate) const fn refusal(self) -> PathError {
        match self {
            Self::Git => PathError::InGitDir,
            Self::Program => PathError::Protected,
        }
    }
}

/// Finds paths in excluded directories, by name and by device and inode.
pub(crate) struct ExcludedDirs<'r> {
    repository: &'r Repository,
    ids: Vec<(FileId, DirOwner)>,
    /// The paths that were examined on disk.
    looked_at: BTreeMap<PathBuf, Option<DirOwner>>,
    met: BTreeSet<(PathBuf, DirOwner)>,
}

impl<'r> ExcludedDirs<'r> {
    pub(super) fn new(repository: &'r Repository) -> Self {
        let ids = all_dirs(repository).filter_map(|(dir, owner)| Some((file_id(dir)?, owner)));
        let ids = ids.collect();
        Self { repository, ids, looked_at: BTreeMap::new(), met: BTreeSet::new() }
    }

    /// Returns the owner of the excluded directory that contains a path, if any.
    ///
    /// Names are compared case-insensitively, as for `.git`: on case-insensitive file systems both spellings are
    /// the same directory. Another path to it, such as a bind mount, is found by its inode.
    pub(super) fn owner_around(&mut self, path: &Path) -> Option<DirOwner> {
        let named = self
            .repository
            .excluded_dirs_list()
            .iter()
            .find(|(own, _)| starts_with(path, own))
            .cloned();
        let found = named.or_else(|| {
            let mut above: Vec<&Path> = path.ancestors().collect();
            // The last ancestor is the work tree itself, which is not excluded.
            above.pop();
            above.into_iter().find_map(|at| Some((at.to_owned(), self.owner_of(at)?)))
        })?;
        let owner = found.1;
        self.met.insert(found);
        Some(owner)
    }

    fn owner_of(&mut self, path: &Path) -> Option<DirOwner> {
        if let Some(known) = self.looked_at.get(path) {
            return *known;
        }
        let full = self.repository.work_tree().join(path);
        let is_link = full.symlink_metadata().is_ok_and(|found| found.is_symlink());
        let id = if is_link { None } else { file_id(&full) };
        let known = self.ids.iter().find(|(known, _)| Some(*known) == id).map(|(_, owner)| *owner);
        self.looked_at.insert(path.to_owned(), known);
        known
    }

    /// Returns the owner of the directory that contains a path, if agents may not write there: one called `.git`,
    /// in any case, or an excluded one.
    pub(crate) fn guarding_owner(&mut self, path: &Path) -> Option<DirOwner> {
        if is_in_dot_git(path) { Some(DirOwner::Git) } else { self.owner_around(path) }
    }

    /// Returns the excluded directories that were found, each once.
    pub(super) fn into_skipped(self) -> impl Iterator<Item = SkippedPath> {
        self.met.into_iter().map(|(path, owner)| SkippedPath { path, reason: owner.skip_reason() })
    }
}

fn all_dirs(repository: &Repository) -> impl Iterator<Item = (&Path, DirOwner)> {
    let git = [repository.git_dir(), repository.common_dir()].map(|dir| (dir, DirOwner::Git));
    let closed = repository.protected_paths().iter().map(|dir| (dir.as_path(), DirOwner::Program));
    git.into_iter().chain(closed)
}

/// Returns the paths of excluded directories in the work tree, except those called `.git`.
pub(super) fn excluded_paths(repository: &Repository) -> Vec<(PathBuf, DirOwner)> {
    let top = repository.work_tree();
    let below =
        all_dirs(repository).filter_map(|(dir, of)| Some((dir.strip_prefix(top).ok()?, of)));
    let below = below.filter(|(path, _)| !is_in_dot_git(path) && !path.as_os_str().is_empty());
    let below: BTreeSet<_> = below.map(|(path, owner)| (path.to_owned(), owner)).collect();
    below.into_iter().collect()
}

/// Resolves the links in the existing part of a path.
fn resolve_existing_part(path: &Path) -> PathBuf {
    let mut missing = Vec::new();
    for at in path.ancestors() {
        if let Ok(found) = at.canonicalize() {
            return missing.into_iter().rev().fold(found, |path, name| path.join(name));
        }
        missing.extend(at.file_name());
    }
    path.to_owned()
}

fn starts_with(path: &Path, start: &Path) -> bool {
    let mut names = path.iter();
    start.iter().all(|name| names.next().is_some_and(|at| at.eq_ignore_ascii_case(name)))
}

impl Repository {
    /// Excludes directories and files of Adjutant, such as the user's configuration, from every workspace and
    /// result, and merges nothing into them. They may lie anywhere and need not exist yet.
    #[must_use]
    pub fn with_protected(mut self, paths: &[PathBuf]) -> Self {
        self.closed.extend(paths.iter().map(|path| resolve_existing_part(path)));
        self.own = excluded_paths(&self);
        self
    }

    /// Returns those of the protected paths in the work tree that HEAD contains.
    ///
    /// # Errors
    ///
    /// When git fails.
    pub fn tracked_protected(&self) -> Result<Vec<PathBuf>, GitError> {
        let mut tracked = Vec::new();
        for (path, _) in self.own.iter().filter(|(_, owner)| *owner == DirOwner::Program) {
            let Some(text) = path.to_str() else { continue };
            if self.resolve(&format!("HEAD:{text}"))?.is_some() {
                tracked.push(path.clone());
            }
        }
        Ok(tracked)
    }

    /// Returns the directories written by `diff` that would look like git directories once it is applied. Git uses
    /// the configuration and the hooks of such a directory when it runs there.
    #[must_use]
    pub fn git_like(&self, diff: &Diff) -> Vec<PathBuf> {
        let written: BTreeSet<&Path> =
            diff.entries.iter().filter(|it| it.new_mode != 0).map(|it| it.path.as_path()).collect();
        let folders: BTreeSet<&Path> =
            written.iter().flat_map(|path| path.ancestors().skip(1)).collect();
        let is_there = |path: &Path| {
            written.contains(path)
                || folders.contains(path)
                || self.work_tree().join(path).symlink_metadata().is_ok()
        };
        let is_like = |folder: &&&Path| is_git_dir_shape(|name| is_there(&folder.join(name)));
        folders.iter().filter(is_like).map(|folder| folder.to_path_buf()).collect()
    }

    /// Returns those of the directories of the work tree that look like git directories.
    pub(super) fn git_like_on_disk(&self, folders: &[PathBuf]) -> Vec<PathBuf> {
        let is_like = |folder: &&PathBuf| {
            let path = self.work_tree().join(folder);
            is_git_dir_shape(|name| path.join(name).symlink_metadata().is_ok())
        };
        folders.iter().filter(is_like).cloned().collect()
    }
}
