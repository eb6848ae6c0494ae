//! Where the tools of a delegation act: in the person's working tree or in a workspace.
//!
//! Start at [`ToolSite::with_toolbox`]. Invariant: no tool runs in a workspace while its work is kept, or
//! afterwards.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::{Arc, PoisonError};

use adjutant_core::workspace::OwnWorkspace;
use adjutant_core::{SessionId, ToolOutput};
use adjutant_tools::{Confinement, Masker, Toolbox};
use adjutant_workspace::sandbox::Sandbox;

use super::recorded::ignored_among;
use super::{CLOSED, RunWorkspaces, WorkDiff};
use crate::error_chain::error_chain;

/// The directory in which the tools of one delegation act.
#[derive(Clone)]
pub(crate) enum ToolSite {
    /// The person's working tree.
    Shared(Arc<Toolbox>),
    /// None: the delegation has a workspace that cannot be opened.
    Closed,
    /// A workspace, the delegation's own or that of an ancestor. `message` is that of a commit of its work.
    Own {
        spaces: Arc<RunWorkspaces>,
        owner: SessionId,
        space: OwnWorkspace,
        toolbox: Arc<Toolbox>,
        message: String,
    },
}

impl ToolSite {
    /// Calls `act` with the tools. The work in the workspace is not kept before it returns. Blocks.
    pub(crate) fn with_toolbox<T>(
        &self,
        act: impl FnOnce(&Toolbox) -> Result<T, String>,
    ) -> Result<T, String> {
        self.while_open(|| act(&*self.toolbox()?))
    }

    fn while_open<T>(&self, act: impl FnOnce() -> Result<T, String>) -> Result<T, String> {
        let gate = match self {
            Self::Own { spaces, owner, .. } => Some(spaces.gate(*owner)),
            Self::Shared(_) | Self::Closed => None,
        };
        let inside = gate.as_ref().map(|gate| gate.read().unwrap_or_else(PoisonError::into_inner));
        if inside.as_ref().is_some_and(|is_shut| **is_shut) {
            return Err(CLOSED.to_owned());
        }
        act()
    }

    /// Stores the work in the workspace after a step that may have changed it, if other machines may go on with it. If
    /// that fails, the output of the step says so. Blocks.
    pub(crate) fn store_work(&self, mut output: ToolOutput) -> ToolOutput {
        let Self::Own { spaces, owner, space, message, .. } = self else { return output };
        if let Err(problem) = self.while_open(|| spaces.store_work(*owner, space, message)) {
            output.content += &format!(
                "\n[not stored for other machines: {problem}. If this machine is lost, so is this change.]"
            );
        }
        output
    }

    /// Runs the verify command of `session` in a fresh workspace, made from a commit of the present work with
    /// `message`; files that match the globs `keep` are those of the base. Returns the output and the changed files
    /// that were taken from the base. Blocks.
    pub(crate) fn verify(
        &self,
        session: SessionId,
        (message, keep): (&str, &[String]),
        run: impl FnOnce(&Toolbox, &Confinement) -> ToolOutput,
    ) -> Result<(ToolOutput, Vec<String>), String> {
        match self {
            Self::Own { spaces, owner, space, toolbox, .. } => self.while_open(|| {
                spaces.verify(session, (*owner, space), (message, keep), toolbox, run)
            }),
            Self::Shared(_) | Self::Closed => Err(self.no_confinement()),
        }
    }

    /// Returns the files that the work of `session` changed in its own workspace, compared with the base. Returns
    /// `None` if it has none or they cannot be compared. Blocks.
    pub(crate) fn changed_files(
        &self,
        session: SessionId,
        message: &str,
    ) -> Option<BTreeSet<String>> {
        match self {
            Self::Own { spaces, owner, space, .. } if *owner == session => {
                self.while_open(|| spaces.changed_files(session, space, message)).ok()
            }
            Self::Own { .. } | Self::Shared(_) | Self::Closed => None,
        }
    }

    /// Returns the work of `session` in its own workspace as a diff, masked, of at most about `max_bytes`. Returns
    /// `None` if it has no workspace or there is no diff. Blocks.
    pub(crate) fn diff(
        &self,
        session: SessionId,
        message: &str,
        max_bytes: usize,
        masker: &Masker,
    ) -> Option<WorkDiff> {
        match self {
            Self::Own { spaces, owner, space, .. } if *owner == session => self
                .while_open(|| spaces.work_diff(session, space, message, max_bytes, masker))
                .ok()
                .flatten(),
            Self::Own { .. } | Self::Shared(_) | Self::Closed => None,
        }
    }

    /// Returns those of `some` paths that git ignores in the workspace of `session`, and that its result therefore
    /// will not contain. Blocks.
    pub(crate) fn ignored(
        &self,
        session: SessionId,
        some: &BTreeSet<PathBuf>,
    ) -> BTreeSet<PathBuf> {
        let (left_out, folder) = match self {
            Self::Own { spaces, owner, space, .. } if *owner == session && !some.is_empty() => {
                let workspace = spaces.get(session, space);
                let left_out =
                    workspace.and_then(|it| it.left_out().map_err(|error| error_chain(&error)));
                (left_out, spaces.all.subfolder())
            }
            Self::Own { .. } | Self::Shared(_) | Self::Closed => return BTreeSet::new(),
        };
        // Best effort: keeping the work reports ignored files as well.
        let left_out = left_out.unwrap_or_default();
        let from_top = some.iter().map(|path| folder.join(path)).collect();
        let ignored = ignored_among(&from_top, &left_out);
        ignored.filter_map(|path| Some(path.strip_prefix(folder).ok()?.to_owned())).collect()
    }

    fn toolbox(&self) -> Result<Arc<Toolbox>, String> {
        match self {
            Self::Shared(toolbox) => Ok(Arc::clone(toolbox)),
            Self::Closed => Err(CLOSED.to_owned()),
            Self::Own { spaces, owner, space, toolbox, .. } => {
                spaces.toolbox(*owner, space, toolbox).map(Arc::new)
            }
        }
    }

    /// Returns the confinement of commands. Blocks.
    pub(crate) fn confinement(&self) -> Result<Confinement, String> {
        match self {
            Self::Shared(_) | Self::Closed => Err(self.no_confinement()),
            Self::Own { spaces, owner, space, .. } => spaces.confinement(*owner, space),
        }
    }

    /// Calls `act` with a sandbox for a worker, in which `folders` are visible too. Blocks.
    pub(crate) fn with_worker_sandbox<T>(
        &self,
        folders: &[PathBuf],
        act: impl FnOnce(Sandbox) -> T,
    ) -> Result<T, String> {
        self.while_open(|| match self {
            Self::Shared(_) | Self::Closed => Err(self.no_confinement()),
            Self::Own { spaces, owner, space, .. } => {
                spaces.worker_sandbox(*owner, space, folders).map(act)
            }
        })
    }

    fn no_confinement(&self) -> String {
        match self {
            Self::Shared(_) => "commands run only in a workspace of your own".to_owned(),
            Self::Closed | Self::Own { .. } => CLOSED.to_owned(),
        }
    }
}
