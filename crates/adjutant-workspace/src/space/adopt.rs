//! Reopening recorded workspaces, after a crash or to continue a run.

use std::sync::Arc;

use super::overlay::{OverlayWorkspace, WorkspaceStart};
use super::record::LayerName;
use super::take_in::recover_take_in_at;
use super::workspace::{Workspace, WorkspaceFiles};
use super::workspace_dir::WorkspaceDir;
use super::workspaces::{Workspaces, WorkspacesContext};
use super::worktree::WorktreeWorkspace;
use super::{WorkspaceBacking, WorkspaceError, WorkspaceRecord};
use crate::{Diff, ResultRef};

impl Workspaces {
    /// Reopens a recorded workspace.
    ///
    /// The record in the workspace's own directory takes precedence over `record`, which may have been written
    /// before a child was made from the workspace. If the files are gone, they are recreated from the base and the
    /// kept result.
    ///
    /// # Errors
    ///
    /// [`WorkspaceError::InUse`] while a running process uses it; otherwise why it cannot be reopened.
    pub fn adopt(
        &self,
        run: &str,
        child: &str,
        record: &WorkspaceRecord,
    ) -> Result<Workspace, WorkspaceError> {
        let shared = &self.shared;
        let reference = ResultRef::new(run, child)?;
        let space = match record.kind {
            WorkspaceBacking::Overlay => {
                let dir = WorkspaceDir::lock_or_create(shared.dir_path(&reference))?;
                match dir.record_or(&reference, record)? {
                    Some(newer) => {
                        Some(WorkspaceFiles::Overlay(shared.reopen(&reference, dir, &newer)?))
                    }
                    None => {
                        dir.remove()?;
                        None
                    }
                }
            }
            WorkspaceBacking::Worktree => {
                let found = WorktreeWorkspace::reopen(shared, &reference, record.remarks.clone())?;
                found.map(|space| WorkspaceFiles::Worktree(Box::new(space)))
            }
        };
        let space = match space {
            Some(space) => space,
            None => shared.restore_from_result(&reference, record)?,
        };
        Ok(Workspace::new(shared, reference, space))
    }
}

impl WorkspacesContext {
    /// Mounts the layers of an existing workspace. If an earlier version was running a verify command in it, it is
    /// recreated from the commit of the work.
    pub(super) fn reopen(
        self: &Arc<Self>,
        reference: &ResultRef,
        dir: WorkspaceDir,
        record: &WorkspaceRecord,
    ) -> Result<OverlayWorkspace, WorkspaceError> {
        let base = record.base()?;
        if let Some(work) = self.keep_interrupted(reference, &self.dir_path(reference))? {
            let diff = self.repository.differences(&base, &work)?;
            return self.make_overlay(reference, dir, record, &diff);
        }
        let is_own = |name: &LayerName| matches!(name, LayerName::Upper(of, _) if of == reference);
        let (own, below): (Vec<_>, Vec<_>) = record.layers()?.into_iter().partition(is_own);
        let top = own.len().saturating_sub(1);
        let mut remarks = record.remarks.clone();
        let lower = match self.lower_layers(&below) {
            Ok(lower) => Arc::new(lower),
            // A layer of an ancestor is gone. The base commit has everything of it that git keeps.
            Err(WorkspaceError::Record(_)) => {
                remarks.push("ignored files of its parent are gone".to_owned());
                self.layers_for_commit(&below, base.clone())?.lower
            }
            Err(error) => return Err(error),
        };
        let start = WorkspaceStart { lower, base, remarks };
        let folder = self.dir_path(reference);
        let mut space =
            OverlayWorkspace::mount(Arc::clone(self), reference.clone(), dir, start, top)?;
        recover_take_in_at(&folder, || space.root())?;
        Ok(space)
    }

    /// Recreates a workspace from its base and its kept result.
    pub(super) fn restore_from_result(
        self: &Arc<Self>,
        reference: &ResultRef,
        record: &WorkspaceRecord,
    ) -> Result<WorkspaceFiles, WorkspaceError> {
        let base = record.base()?;
        let work = match self.repository.result(reference)? {
            Some(kept) => self.repository.differences(&base, &kept)?,
            None => Diff::default(),
        };
        let mut remarks = record.remarks.clone();
        remarks.push("recreated from its kept result".to_owned());
        match self.kind() {
            WorkspaceBacking::Worktree => {
                let space = WorktreeWorkspace::create_or_reopen(self, reference, &base, remarks)?;
                space.write_changes(self, &work)?;
                Ok(WorkspaceFiles::Worktree(Box::new(space)))
            }
            WorkspaceBacking::Overlay => {
                let dir = WorkspaceDir::lock_or_create(self.dir_path(reference))?;
                let record = WorkspaceRecord { remarks, ..record.clone() };
                Ok(WorkspaceFiles::Overlay(self.make_overlay(reference, dir, &record, &work)?))
            }
        }
    }
}
