//! Where the tools of a delegation act: in the person's working tree or in a workspace.
//!
//! Start at [`ToolSite::with_toolbox`]. Invariant: no tool runs in a workspace while its work is kept, or
//! afterwards.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError};

use adjutant_core::workspace::OwnWorkspace;
use adjutant_core::{SessionId, ToolOutput};
use adjutant_tools::{Confinement, Toolbox};

use super::recorded::ignored_among;
use super::{CLOSED, RunWorkspaces};
use crate::error_chain::error_chain;

/// The directory in which the tools of one delegation act.
#[derive(Clone)]
pub(crate) enum ToolSite {
    /// The person's working tree.
    Shared(Arc<Toolbox>),
    /// None: the delegation has a workspace that cannot be opened.
    Closed,
    /// A workspace, the delegation's own or that of an ancestor.
    Own { spaces: Arc<RunWorkspaces>, owner: SessionId, space: OwnWorkspace, toolbox: Arc<Toolbox> },
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

    /// Runs the verify command of `session` in a fresh workspace, made from a commit of the present work with
    /// `message`. Blocks.
    pub(crate) fn verify(
        &self,
        session: SessionId,
        message: &str,
        run: impl FnOnce(&Toolbox, &Confinement) -> ToolOutput,
    ) -> Result<ToolOutput, String> {
        match self {
            Self::Own { spaces, owner, space, toolbox } => {
                self.while_open(|| spaces.verify(session, (*owner, space), message, toolbox, run))
            }
            Self::Shared(_) | Self::Closed => Err(self.no_confinement()),
        }
    }

    /// Returns those of `some` paths that git ignores in the workspace of `session`, and that its result therefore
    /// will not contain. Blocks.
    pub(crate) fn ignored(
        &self,
        session: SessionId,
        some: &BTreeSet<PathBuf>,
    ) -> BTreeSet<PathBuf> {
        let left_out = match self {
            Self::Own { spaces, owner, space, .. } if *owner == session && !some.is_empty() => {
                let workspace = spaces.get(session, space);
                workspace.and_then(|it| it.left_out().map_err(|error| error_chain(&error)))
            }
            Self::Own { .. } | Self::Shared(_) | Self::Closed => return BTreeSet::new(),
        };
        // Best effort: keeping the work reports ignored files as well.
        let left_out = left_out.unwrap_or_default();
        ignored_among(some, &left_out).map(Path::to_owned).collect()
    }

    fn toolbox(&self) -> Result<Arc<Toolbox>, String> {
        match self {
            Self::Shared(toolbox) => Ok(Arc::clone(toolbox)),
            Self::Closed => Err(CLOSED.to_owned()),
            Self::Own { spaces, owner, space, toolbox } => {
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

    fn no_confinement(&self) -> String {
        match self {
            Self::Shared(_) => "commands run only in a workspace of your own".to_owned(),
            Self::Closed | Self::Own { .. } => CLOSED.to_owned(),
        }
    }
}
