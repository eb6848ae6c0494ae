//! A workspace that is a git work tree.
//!
//! Its `.git` file points to a private git directory, like that of an overlay workspace: programs see the base
//! commit and the objects, and nothing of the user's own git directory.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::delegation_dirs::DelegationDirs;
use super::ignored_files::IgnoredFiles;
use super::interrupted::is_interrupted;
use super::take_in::recover_take_in_at;
use super::workspaces::WorkspacesContext;
use super::{WorkspaceBacking, WorkspaceError, WorkspaceRecord, gitdir};
use crate::git::bytes_of;
use crate::private::{self, ensure_dir, make_private};
use crate::sandbox::{DirectoryNamespaces, count_entries};
use crate::trees::remove_all;
use crate::{Diff, GitError, ObjectId, ResultRef, Root, Worktree, Worktrees};

/// The file beside a work tree that stores how many files and directories it had when it was made. The
/// limit on added entries does not count these.
const BASE_ENTRIES: &str = "base-entries";

/// A work tree that this process has locked.
#[derive(Debug)]
pub(super) struct WorktreeWorkspace {
    pub(super) worktree: Worktree,
    remarks: Vec<String>,
    /// The namespaces of its programs, once one has run: a cache can be mounted only once at a time.
    namespaces: Option<Arc<DirectoryNamespaces>>,
}

impl WorktreeWorkspace {
    /// Makes a work tree of `base`, or reopens an existing one.
    pub(super) fn create_or_reopen(
        shared: &Arc<WorkspacesContext>,
        reference: &ResultRef,
        base: &ObjectId,
        mut remarks: Vec<String>,
    ) -> Result<Self, WorkspaceError> {
        if is_interrupted(&shared.worktree_path(reference))
            && let Some(space) = Self::reopen(shared, reference, remarks.clone())?
        {
            return Ok(space);
        }
        let all = Worktrees::open(&shared.repository)?;
        match adopt(&all, reference)? {
            Some(worktree) if worktree.base() == base || !worktree.is_clean()? => {
                remarks.push("reopened as it was left".to_owned());
                let space = Self { worktree, remarks, namespaces: None };
                space.recover_take_in()?;
                space.make_private(shared)?;
                return Ok(space);
            }
            Some(worktree) => worktree.remove()?,
            None => {
                all.remove_unfinished(reference)?;
            }
        }
        let worktree = match all.create(reference, base) {
            Err(GitError::Moved { .. }) => {
                return Err(WorkspaceError::InUse { path: shared.worktree_path(reference) });
            }
            made => made?,
        };
        let space = Self { worktree, remarks, namespaces: None };
        space.make_private(shared)?;
        if let Some(included) =
            IgnoredFiles::scan(&shared.repository, &shared.options.include_ignored)?
        {
            included.copy(space.worktree.path())?;
        }
        space.record_entries();
        Ok(space)
    }

    /// Reopens an existing work tree; `None` if there is none. If an earlier version was running a verify command
    /// in it, it is recreated from the commit of the work.
    pub(super) fn reopen(
        shared: &Arc<WorkspacesContext>,
        reference: &ResultRef,
        remarks: Vec<String>,
    ) -> Result<Option<Self>, WorkspaceError> {
        let all = Worktrees::open(&shared.repository)?;
        let Some(worktree) = adopt(&all, reference)? else { return Ok(None) };
        if let Some(work) = shared.keep_interrupted(reference, folder_of(&worktree))? {
            let base = worktree.base().clone();
            worktree.discard()?;
            let space = Self::create_or_reopen(shared, reference, &base, remarks)?;
            space.write_changes(shared, &shared.repository.differences(&base, &work)?)?;
            return Ok(Some(space));
        }
        let space = Self { worktree, remarks, namespaces: None };
        space.recover_take_in()?;
        // Creating it may have been interrupted just before this step.
        space.make_private(shared)?;
        Ok(Some(space))
    }

    /// Undoes a merge that a killed process left incomplete.
    fn recover_take_in(&self) -> Result<(), WorkspaceError> {
        let path = self.worktree.path();
        let folder = path.parent().unwrap_or(Path::new("/"));
        recover_take_in_at(folder, || Root::open(path).map_err(WorkspaceError::path(path)))
    }

    fn make_private(&self, shared: &WorkspacesContext) -> Result<(), WorkspaceError> {
        let private = self.private_git_dir();
        ensure_dir(&private).map_err(WorkspaceError::io("creating a private git directory"))?;
        gitdir::write(&shared.repository, &private, self.worktree.base())?;
        let put = || -> std::io::Result<()> {
            fs::copy(self.worktree.git_dir().join("index"), private.join("index"))?;
            make_private(&private.join("index"))?;
            let mut pointer = b"gitdir: ".to_vec();
            pointer.extend_from_slice(bytes_of(&private));
            pointer.push(b'\n');
            fs::write(self.worktree.path().join(".git"), pointer)
        };
        put().map_err(WorkspaceError::io("creating a private git directory"))
    }

    /// Records the number of entries in the new work tree, which do not count as added.
    fn record_entries(&self) -> u64 {
        let count = count_entries(self.worktree.path()).unwrap_or(0);
        // Best effort: without the file, all current entries count as part of the base.
        let _ = private::write(&folder_of(&self.worktree).join(BASE_ENTRIES), count.to_string());
        count
    }

    /// Returns how many files and directories the work tree had when it was made.
    pub(super) fn base_entries(&self) -> u64 {
        let noted = fs::read_to_string(folder_of(&self.worktree).join(BASE_ENTRIES)).ok();
        let noted = noted.and_then(|text| text.trim().parse().ok());
        noted.unwrap_or_else(|| self.record_entries())
    }

    pub(super) fn delegation_dirs(&self) -> DelegationDirs {
        DelegationDirs::in_folder(folder_of(&self.worktree))
    }

    /// Returns the namespaces of its programs, creating them at the first call.
    pub(super) fn namespaces(
        &mut self,
        shared: &WorkspacesContext,
    ) -> Result<Arc<DirectoryNamespaces>, WorkspaceError> {
        if let Some(known) = &self.namespaces {
            return Ok(Arc::clone(known));
        }
        let options = &shared.options;
        let caches = self.delegation_dirs().make_caches(&options.caches)?;
        let made = DirectoryNamespaces::create(&options.helper, options.network, caches);
        let made =
            made.map_err(|why| WorkspaceError::io("creating namespaces")(io::Error::other(why)))?;
        Ok(Arc::clone(self.namespaces.insert(Arc::new(made))))
    }

    /// Removes the work tree as [`Worktree::remove`] does, and the private directories with it.
    pub(super) fn remove(self) -> Result<(), WorkspaceError> {
        let dirs = self.delegation_dirs();
        drop(self.namespaces);
        dirs.remove()?;
        Ok(self.worktree.remove()?)
    }

    /// Removes the work tree whatever it contains, and the private directories with it.
    pub(super) fn discard(self) -> Result<(), WorkspaceError> {
        let dirs = self.delegation_dirs();
        drop(self.namespaces);
        // Files first: on a full disk there would be no space to record the removal.
        let _ = remove_all(self.worktree.path());
        dirs.remove()?;
        Ok(self.worktree.discard()?)
    }

    /// Returns the private git directory, which lies next to the files.
    pub(super) fn private_git_dir(&self) -> PathBuf {
        self.worktree.path().parent().unwrap_or(Path::new("/")).join("git")
    }

    pub(super) fn record(&self) -> WorkspaceRecord {
        WorkspaceRecord {
            kind: WorkspaceBacking::Worktree,
            path: self.worktree.path().to_string_lossy().into_owned(),
            base: self.worktree.base().to_string(),
            layers: Vec::new(),
            remarks: self.remarks.clone(),
        }
    }

    /// Removes a leftover work tree, whatever it contains.
    pub(super) fn discard_leftover(
        shared: &WorkspacesContext,
        reference: &ResultRef,
    ) -> Result<bool, WorkspaceError> {
        let all = Worktrees::open(&shared.repository)?;
        match adopt(&all, reference)? {
            Some(worktree) => worktree.discard().map(|()| true),
            None => all.remove_unfinished(reference),
        }
        .map_err(WorkspaceError::from)
    }

    /// Writes the changes of `diff` over the files.
    pub(super) fn write_changes(
        &self,
        shared: &WorkspacesContext,
        diff: &Diff,
    ) -> Result<(), WorkspaceError> {
        let path = self.worktree.path();
        for gone in shared.repository.write_layer_of(diff, path)? {
            let at = path.join(gone);
            if at.symlink_metadata().is_ok() {
                fs::remove_file(at).map_err(WorkspaceError::io("restoring work"))?;
            }
        }
        Ok(())
    }
}

/// Returns the directory that contains a work tree and its records.
fn folder_of(worktree: &Worktree) -> &Path {
    worktree.path().parent().unwrap_or(Path::new("/"))
}

/// Locks an existing, free work tree. An error means that it may hold work.
fn adopt(all: &Worktrees<'_>, reference: &ResultRef) -> Result<Option<Worktree>, GitError> {
    match all.adopt(reference) {
        Ok(worktree) => Ok(Some(worktree)),
        Err(GitError::Missing(_)) => Ok(None),
        Err(error) => Err(error),
    }
}
