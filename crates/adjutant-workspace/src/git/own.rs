//! The git directories of a repository that lie among its files under another name than `.git`.
//!
//! Git takes them for ordinary untracked folders. They hold the person's configuration and hooks, so nothing of
//! them is captured, and nothing that an agent makes at their paths is kept.
//!
//! Start at [`OwnGitDirs::around`].

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use super::change::{SkipReason, Skipped, guarded};
use super::repository::Repository;
use crate::Diff;
use crate::git_guard::{FileId, file_id, is_shape};

/// Finds paths in the repository's own git directories, by name and by device and inode.
pub(crate) struct OwnGitDirs<'r> {
    repository: &'r Repository,
    ids: Vec<FileId>,
    /// The folders that were looked at on disk.
    looked_at: BTreeMap<PathBuf, bool>,
    met: BTreeSet<PathBuf>,
}

impl<'r> OwnGitDirs<'r> {
    pub(super) fn new(repository: &'r Repository) -> Self {
        let dirs = [repository.git_dir(), repository.common_dir()];
        let ids = dirs.into_iter().filter_map(file_id).collect();
        Self { repository, ids, looked_at: BTreeMap::new(), met: BTreeSet::new() }
    }

    /// Returns the git directory that a path is or lies in.
    ///
    /// Letters are compared without case, as for `.git`: where the file system does the same, both spellings are
    /// one directory. Another name of it in the person's work tree, such as a bind mount, is found by its inode.
    pub(super) fn around(&mut self, path: &Path) -> Option<PathBuf> {
        let named = self.repository.own().iter().find(|own| starts_with(path, own)).cloned();
        let found = named.or_else(|| {
            let mut above: Vec<&Path> = path.ancestors().collect();
            // The work tree itself comes last, and it is not one of them.
            above.pop();
            above.into_iter().find(|at| self.is_own(at)).map(Path::to_owned)
        })?;
        self.met.insert(found.clone());
        Some(found)
    }

    fn is_own(&mut self, folder: &Path) -> bool {
        if let Some(known) = self.looked_at.get(folder) {
            return *known;
        }
        let path = self.repository.work_tree().join(folder);
        let is_link = path.symlink_metadata().is_ok_and(|found| found.is_symlink());
        let is_own = !is_link && file_id(&path).is_some_and(|id| self.ids.contains(&id));
        self.looked_at.insert(folder.to_owned(), is_own);
        is_own
    }

    /// Says whether a path leads into a git directory: one called `.git` in any spelling, or the repository's own.
    pub(crate) fn guards(&mut self, path: &Path) -> bool {
        guarded(path) || self.around(path).is_some()
    }

    /// Names the git directories that were met, each once.
    pub(super) fn into_skipped(self) -> impl Iterator<Item = Skipped> {
        let reason = SkipReason::NestedRepository;
        self.met.into_iter().map(move |path| Skipped { path, reason })
    }
}

/// Returns where the git directories of a repository lie in its work tree; `.git` is known by its name.
pub(super) fn own_paths(repository: &Repository) -> Vec<PathBuf> {
    let top = repository.work_tree();
    let dirs = [repository.git_dir(), repository.common_dir()];
    let below = dirs.into_iter().filter_map(|dir| dir.strip_prefix(top).ok());
    let below = below.filter(|path| !guarded(path) && !path.as_os_str().is_empty());
    below.map(Path::to_owned).collect::<BTreeSet<_>>().into_iter().collect()
}

fn starts_with(path: &Path, start: &Path) -> bool {
    let mut names = path.iter();
    start.iter().all(|name| names.next().is_some_and(|at| at.eq_ignore_ascii_case(name)))
}

impl Repository {
    /// Returns the directories that would look like git directories once `diff` is in the work tree, of those that
    /// it writes in. Git reads the configuration and runs the hooks of such a directory when it is used there.
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
        let is_like = |folder: &&&Path| is_shape(|name| is_there(&folder.join(name)));
        folders.iter().filter(is_like).map(|folder| folder.to_path_buf()).collect()
    }

    /// Returns those of some folders of the work tree that look like git directories.
    pub(super) fn git_like_on_disk(&self, folders: &[PathBuf]) -> Vec<PathBuf> {
        let is_like = |folder: &&PathBuf| {
            let path = self.work_tree().join(folder);
            is_shape(|name| path.join(name).symlink_metadata().is_ok())
        };
        folders.iter().filter(is_like).cloned().collect()
    }
}
