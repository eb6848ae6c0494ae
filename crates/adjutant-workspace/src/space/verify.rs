//! Fresh workspaces for verify commands.
//!
//! The agent's work is committed to its reference, and the command runs in a new workspace with the files of that
//! commit: the same base and included files, but nothing that git ignores or that the agent built. So a passing
//! command has verified exactly what will be merged, and nothing it writes has to be undone.
//!
//! Start at [`Workspace::make_verify_workspace`]. Invariant: a verify workspace never has a result; leftovers are
//! removed by the next verification of the same agent or by the sweep.

use std::ops::Deref;
use std::sync::Arc;
use std::time::SystemTime;

use super::layers::retry_while_holder_exits;
use super::overlay::OverlayWorkspace;
use super::record::LayerName;
use super::workspace::{AnyWorkspace, Workspace};
use super::workspace_dir::WorkspaceDir;
use super::workspaces::WorkspacesContext;
use super::worktree::WorktreeWorkspace;
use super::{WorkspaceBacking, WorkspaceError, WorkspaceRecord};
use crate::trees::remove_with_empty_parents;
use crate::{Diff, ObjectId, ResultRef, Root};

/// The suffix of names of verify workspaces; no agent's name has it.
const SUFFIX: &str = ".verify";

/// A workspace with the files of one commit, for one verify command. Dropping it removes it.
#[derive(Debug)]
pub struct VerifyWorkspace {
    workspace: Workspace,
}

impl Deref for VerifyWorkspace {
    type Target = Workspace;

    fn deref(&self) -> &Workspace {
        &self.workspace
    }
}

impl Drop for VerifyWorkspace {
    fn drop(&mut self) {
        // Best effort: the sweep removes leftovers.
        let _ = self.workspace.discard();
    }
}

impl Workspace {
    /// Keeps the work as [`Workspace::keep`] does, and makes a fresh workspace from that commit for a verify
    /// command.
    ///
    /// `name` identifies the verify workspace; leftovers of an interrupted verification with the same name are
    /// removed first. The files of this workspace stay as they are.
    ///
    /// # Errors
    ///
    /// Why the work could not be kept or the workspace could not be made.
    pub fn make_verify_workspace(
        &self,
        name: &str,
        message: &str,
        at: SystemTime,
    ) -> Result<VerifyWorkspace, WorkspaceError> {
        let kept = self.keep(message, at)?;
        let shared = self.shared();
        let reference = ResultRef::new(self.reference().run(), &format!("{name}{SUFFIX}"))?;
        let work = kept.commit.as_ref().unwrap_or(&kept.base);
        let space = shared.make_fresh(&reference, &self.record(), work)?;
        Ok(VerifyWorkspace { workspace: Workspace::new(shared, reference, space) })
    }
}

/// Says whether a reference names a verify workspace.
pub(super) fn is_verify_workspace(reference: &ResultRef) -> bool {
    reference.child().ends_with(SUFFIX)
}

impl WorkspacesContext {
    /// Makes a workspace that starts like the recorded one and has the files of `work`.
    fn make_fresh(
        self: &Arc<Self>,
        reference: &ResultRef,
        record: &WorkspaceRecord,
        work: &ObjectId,
    ) -> Result<AnyWorkspace, WorkspaceError> {
        let base = record.base()?;
        let diff = self.repository.differences(&base, work)?;
        let mut space = match record.kind {
            WorkspaceBacking::Worktree => {
                WorktreeWorkspace::discard_leftover(self, reference)?;
                let space =
                    WorktreeWorkspace::create_or_reopen(self, reference, &base, Vec::new())?;
                space.write_changes(self, &diff)?;
                AnyWorkspace::Worktree(Box::new(space))
            }
            WorkspaceBacking::Overlay => {
                let dir = WorkspaceDir::lock_or_create(self.dir_path(reference))?;
                AnyWorkspace::Overlay(self.make_overlay(reference, dir, record, &diff)?)
            }
        };
        let root = space.root()?;
        remove_emptied_directories(&root, &diff)?;
        // The base is a layer on top of a checkout; its whiteouts hide files but leave their directories.
        if let Some(LayerName::Base(tree)) = record.layers()?.first() {
            remove_emptied_directories(&root, &self.repository.differences(tree, work)?)?;
        }
        Ok(space)
    }

    /// Makes an overlay workspace in a directory after emptying it: the base of the recorded workspace with the
    /// changes of `diff`.
    pub(super) fn make_overlay(
        self: &Arc<Self>,
        reference: &ResultRef,
        dir: WorkspaceDir,
        record: &WorkspaceRecord,
        diff: &Diff,
    ) -> Result<OverlayWorkspace, WorkspaceError> {
        let mut start = self.layers_for_commit(&record.layers()?, record.base()?)?;
        start.remarks.clone_from(&record.remarks);
        // The holder of a killed process may still be ending.
        let emptied = retry_while_holder_exits(|| match dir.remove_contents() {
            Err(WorkspaceError::InUse { .. }) => Ok(None),
            done => done.map(Some),
        })?;
        emptied.ok_or_else(|| WorkspaceError::InUse { path: self.dir_path(reference) })?;
        // Before the record is written: if this is interrupted, it starts again from the beginning.
        dir.make_upper(0)?;
        self.write_files(diff, &dir.upper(0))?;
        OverlayWorkspace::mount(Arc::clone(self), reference.clone(), dir, start, 0)
    }
}

/// Removes directories that a checkout of the commit would not have: git stores files only.
fn remove_emptied_directories(root: &Root, diff: &Diff) -> Result<(), WorkspaceError> {
    for entry in diff.entries.iter().filter(|entry| entry.new_mode == 0) {
        let removed = remove_with_empty_parents(root, &entry.path);
        removed.map_err(WorkspaceError::path(&entry.path))?;
    }
    Ok(())
}
