//! Where the tools of one delegation act.
//!
//! Start at [`Bench::with_toolbox`]. Invariant: nobody is in a workspace while its work is kept, nor
//! afterwards.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError};

use adjutant_core::space::Space;
use adjutant_core::{SessionId, ToolOutput};
use adjutant_tools::{Confinement, Toolbox};
use adjutant_workspace::space::{PutBack, ignored_among};

use super::{CLOSED, Spaces};
use crate::chain::chain;

/// Where the tools of one delegation act.
#[derive(Clone)]
pub(crate) enum Bench {
    /// In the tree of a person.
    Shared(Arc<Toolbox>),
    /// Nowhere: the workspace it belongs to cannot be had.
    Closed,
    /// In a workspace.
    Own { spaces: Arc<Spaces>, owner: SessionId, space: Space, toolbox: Arc<Toolbox> },
}

impl Bench {
    /// Does something with the tools; the workspace is not kept before that is over. Blocks.
    pub(crate) fn with_toolbox<T>(
        &self,
        act: impl FnOnce(&Toolbox) -> Result<T, String>,
    ) -> Result<T, String> {
        let gate = match self {
            Self::Own { spaces, owner, .. } => Some(spaces.gate(*owner)),
            Self::Shared(_) | Self::Closed => None,
        };
        let inside = gate.as_ref().map(|gate| gate.read().unwrap_or_else(PoisonError::into_inner));
        if inside.as_ref().is_some_and(|is_shut| **is_shut) {
            return Err(CLOSED.to_owned());
        }
        act(&*self.toolbox()?)
    }

    /// Runs a command that judges the work of `session`: what it writes is no part of that work. Where it
    /// fails that is put back, as the answer says. Blocks.
    pub(crate) fn judge(
        &self,
        session: SessionId,
        changed: &BTreeSet<PathBuf>,
        act: impl FnOnce(&Toolbox) -> Result<ToolOutput, String>,
    ) -> Result<(ToolOutput, PutBack), String> {
        self.with_toolbox(|toolbox| match self {
            Self::Own { spaces, owner, space, .. } if *owner == session => {
                spaces.judging(session, space, changed, || act(toolbox))
            }
            // Others may be at work there, whose work it is.
            Self::Own { .. } | Self::Shared(_) | Self::Closed => {
                Ok((act(toolbox)?, PutBack::default()))
            }
        })
    }

    /// Returns those of some paths that git ignores in the workspace of `session`, so that its result will not
    /// have them. Blocks.
    pub(crate) fn ignored(
        &self,
        session: SessionId,
        some: &BTreeSet<PathBuf>,
    ) -> BTreeSet<PathBuf> {
        let left_out = match self {
            Self::Own { spaces, owner, space, .. } if *owner == session && !some.is_empty() => {
                let workspace = spaces.get(session, space);
                workspace.and_then(|it| it.left_out().map_err(|error| chain(&error)))
            }
            Self::Own { .. } | Self::Shared(_) | Self::Closed => return BTreeSet::new(),
        };
        // What cannot be told now is told when the work is kept.
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

    /// Returns what commands run in; blocks.
    pub(crate) fn confinement(&self) -> Result<Confinement, String> {
        match self {
            Self::Shared(_) => Err("commands run only in a workspace of your own".to_owned()),
            Self::Closed => Err(CLOSED.to_owned()),
            Self::Own { spaces, owner, space, .. } => spaces.confinement(*owner, space),
        }
    }
}
