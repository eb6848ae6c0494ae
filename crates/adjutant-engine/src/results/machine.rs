//! Probing what this machine offers to agents that write: git, the sandbox, overlay workspaces.

use std::ffi::OsStr;
use std::path::Path;

use adjutant_workspace::Git;
use adjutant_workspace::overlay::{Overlay, OverlayError};
use adjutant_workspace::sandbox::{Sandbox, SandboxHelper};

use super::SPACES;
use crate::error_chain::error_chain;

/// What this machine supports, found out by trying.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MachineCapabilities {
    /// The version of git, or why git cannot be used.
    pub git: Result<String, String>,
    /// The sandbox level and its missing layers, or why no sandbox works.
    pub sandbox: Result<(String, Vec<String>), String>,
    /// `Ok` if overlay workspaces work, or why workspaces are git work trees instead.
    pub overlay: Result<(), String>,
    /// Whether an unprivileged user may create user namespaces.
    pub user_namespaces: bool,
}

/// Probes the machine. This program must be its own sandbox helper.
#[must_use]
pub fn probe_machine(search: &OsStr, state: &Path) -> MachineCapabilities {
    let helper = SandboxHelper::this_program();
    let git = Git::find(search).map(|git| git.version().to_owned());
    let level = Sandbox::level_here(&helper);
    let sandbox = level.map(|level| {
        let missing = level.missing().iter().map(ToString::to_string).collect();
        (level.to_string(), missing)
    });
    let spaces = state.join(SPACES);
    let made = adjutant_store::ensure_private_dir(&spaces).map_err(OverlayError::Holder);
    let overlay = made.and_then(|()| Overlay::probe(&helper, &spaces));
    let user_namespaces = !matches!(overlay, Err(OverlayError::NoUserNamespaces(_)));
    MachineCapabilities {
        git: git.map_err(|error| error.to_string()),
        sandbox: sandbox.map_err(|error| error.why),
        overlay: overlay.map_err(|error| error_chain(&error)),
        user_namespaces,
    }
}
