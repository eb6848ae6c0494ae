//! The findings of `doctor` about git, the sandbox and workspaces.

use std::path::Path;

use adjutant_engine::results::{MachineCapabilities, disk_usage, probe_machine};

use super::{disk_usage_text, search};

/// Returns findings about what writing agents need: name, whether it is fine, explanation.
pub(crate) fn findings(home: &Path) -> [(&'static str, bool, String); 5] {
    let MachineCapabilities { git, sandbox, overlay, user_namespaces } =
        probe_machine(&search(), home);
    let git = match git {
        Ok(version) => (true, format!("git version {version}")),
        Err(why) => (false, format!("{why}; only agents that write need it")),
    };
    let sandbox = match sandbox {
        Ok((level, missing)) => (missing.is_empty(), level),
        Err(why) => (false, format!("none: {why}; programs of agents are refused")),
    };
    let namespaces = if user_namespaces {
        "an ordinary user may make them"
    } else {
        "not allowed here; a kernel setting such as kernel.unprivileged_userns_clone or \
         kernel.apparmor_restrict_unprivileged_userns may forbid them"
    };
    let workspace = match overlay {
        // Both kinds of workspaces need git.
        Ok(()) | Err(_) if !git.0 => (false, "none without a git that can be used".to_owned()),
        Ok(()) => (true, "overlay: made in constant time".to_owned()),
        Err(why) => (false, format!("git work trees, slower to make: {why}")),
    };
    let disk = disk_usage_text(disk_usage(home)).unwrap_or_else(|| "no workspaces".to_owned());
    [
        ("git", git.0, git.1),
        ("user namespaces", user_namespaces, namespaces.to_owned()),
        ("sandbox", sandbox.0, sandbox.1),
        ("workspaces", workspace.0, workspace.1),
        ("disk space", true, disk),
    ]
}
