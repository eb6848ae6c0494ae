//! Going on with a workspace that was made on another machine.

use std::sync::Arc;

use super::workspace::Workspace;
use super::workspaces::{Workspaces, base_refs};
use super::worktree::WorktreeWorkspace;
use super::{WorkspaceBacking, WorkspaceError, WorkspaceRecord};
use crate::{ObjectId, ResultRef};

impl Workspaces {
    /// Recreates a workspace from its base and from the commit of the work that another machine has done in it. Both
    /// must be in the repository. Files that an earlier owner left here under the same name are removed.
    ///
    /// # Errors
    ///
    /// [`WorkspaceError::InUse`] while a running process uses it; otherwise why it cannot be recreated.
    pub fn recreate(
        &self,
        run: &str,
        child: &str,
        record: &WorkspaceRecord,
        work: &ObjectId,
    ) -> Result<Workspace, WorkspaceError> {
        let shared = &self.shared;
        let reference = ResultRef::new(run, child)?;
        if *work == record.base()? {
            // There is no work yet, so there is no result either.
            if let Some(earlier) = shared.repository.result(&reference)? {
                shared.repository.discard(&reference, &earlier)?;
            }
        } else {
            shared.repository.set_result(&reference, work)?;
        }
        if shared.kind() == WorkspaceBacking::Worktree
            && let Some(stale) = WorktreeWorkspace::reopen(shared, &reference, Vec::new())?
        {
            stale.discard()?;
        }
        let files = shared.restore_from_result(&reference, record)?;
        Ok(Workspace::new(&Arc::clone(shared), reference, files))
    }
}

/// Returns the reference that keeps a base commit for a run.
pub(super) fn base_ref(run: &str, commit: &ObjectId) -> String {
    format!("{}{commit}", base_refs(run))
}
