//! Moving the work of a closed workspace onto the present state of the user's files.
//!
//! The kept result is merged into a new capture of the user's tree. The merge becomes the kept result, with the capture
//! and the earlier result as parents, and the workspace is recreated from both. Files that both sides changed contain
//! conflict markers, which the agent resolves.

use std::sync::Arc;
use std::time::SystemTime;

use super::WorkspaceError;
use super::workspace::{Workspace, WorkspaceFiles};
use super::workspace_dir::WorkspaceDir;
use super::workspaces::Workspaces;
use super::worktree::WorktreeWorkspace;
use crate::space::WorkspaceBacking;
use crate::{Conflict, GitError, ResultRef};

/// The message of the commit that a rebased workspace starts with.
const REBASED: &str = "Merge with the present files, conflict markers included";

/// A workspace that was recreated from the user's present files.
#[derive(Debug)]
pub struct RebasedWorkspace {
    /// The workspace.
    pub workspace: Workspace,
    /// The conflicts, sorted by path; their files contain conflict markers.
    pub conflicts: Vec<Conflict>,
}

impl Workspaces {
    /// Recreates the closed workspace of a child from the user's present files, with its kept result merged into them.
    ///
    /// Repeating it after a crash is safe: nothing of the earlier result is lost.
    ///
    /// # Errors
    ///
    /// [`GitError::Missing`] without a kept result; [`WorkspaceError::Unkept`] if the workspace still has work that is
    /// not in it; otherwise why the files could not be captured or written.
    pub fn rebase(
        &self,
        run: &str,
        child: &str,
        at: SystemTime,
    ) -> Result<RebasedWorkspace, WorkspaceError> {
        let (shared, reference) = (&self.shared, ResultRef::new(run, child)?);
        let repository = &shared.repository;
        let kept = repository.result(&reference)?;
        let kept = kept.ok_or_else(|| GitError::Missing(reference.to_string()))?;
        let dir = match shared.kind() {
            WorkspaceBacking::Overlay => {
                let dir = WorkspaceDir::lock_or_create(shared.dir_path(&reference))?;
                if let Some(record) = dir.record()?
                    && !shared.is_untouched(&reference, &record)?
                {
                    return Err(WorkspaceError::Unkept { path: shared.dir_path(&reference) });
                }
                Some(dir)
            }
            WorkspaceBacking::Worktree => None,
        };
        let start = shared.batch_start(run, &format!("{child}-rebase"))?;
        let merged = repository.preview_for_person(&kept, &start.base)?;
        let parents = [&start.base, &kept];
        let rebased = repository.commit_tree(&parents, &merged.tree, REBASED, at)?;
        repository.keep(&reference, &rebased, Some(&kept))?;
        let work = repository.differences(&start.base, &rebased)?;
        let files = match dir {
            Some(dir) => {
                WorkspaceFiles::Overlay(shared.make_overlay_on(&reference, dir, start, &work)?)
            }
            None => {
                let (base, remarks) = (start.base, start.remarks);
                let space =
                    WorktreeWorkspace::create_or_reopen(shared, &reference, &base, remarks)?;
                if *space.worktree.base() != base {
                    return Err(WorkspaceError::Unkept { path: space.worktree.path().to_owned() });
                }
                space.write_changes(shared, &work)?;
                WorkspaceFiles::Worktree(Box::new(space))
            }
        };
        let workspace = Workspace::new(&Arc::clone(shared), reference, files);
        Ok(RebasedWorkspace { workspace, conflicts: merged.conflicts })
    }
}
