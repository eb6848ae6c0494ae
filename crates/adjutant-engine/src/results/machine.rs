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
    /// `Ok` if this user may create user namespaces, or what forbids it.
    pub user_namespaces: Result<(), UserNamespaceObstacle>,
}

/// What keeps this user from creating user namespaces, as far as the system says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UserNamespaceObstacle {
    /// `user.max_user_namespaces` is 0.
    MaximumIsZero,
    /// `kernel.unprivileged_userns_clone` is 0.
    UnprivilegedCloneIsOff,
    /// This process has a system call filter, as in a container.
    SystemCallFilter,
    /// `kernel.apparmor_restrict_unprivileged_userns` is 1: only programs with a profile may.
    AppArmor,
    /// None of the above.
    Unknown,
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
    let user_namespaces = match overlay {
        Err(OverlayError::NoUserNamespaces(_)) => Err(find_obstacle(Path::new("/proc"))),
        Ok(()) | Err(_) => Ok(()),
    };
    MachineCapabilities {
        git: git.map_err(|error| error.to_string()),
        sandbox: sandbox.map_err(|error| error.why),
        overlay: overlay.map_err(|error| error_chain(&error)),
        user_namespaces,
    }
}

/// Reads below `proc` what forbids user namespaces.
fn find_obstacle(proc: &Path) -> UserNamespaceObstacle {
    let reads = |file: &str, value: &str| {
        std::fs::read_to_string(proc.join(file)).is_ok_and(|text| text.trim() == value)
    };
    let status = std::fs::read_to_string(proc.join("self/status")).unwrap_or_default();
    let filters = |line: &str| line.strip_prefix("Seccomp:").is_some_and(|mode| mode.trim() == "2");
    if reads("sys/user/max_user_namespaces", "0") {
        UserNamespaceObstacle::MaximumIsZero
    } else if reads("sys/kernel/unprivileged_userns_clone", "0") {
        UserNamespaceObstacle::UnprivilegedCloneIsOff
    } else if status.lines().any(filters) {
        // Asked before AppArmor: in a container on Ubuntu, the filter is what the user can change.
        UserNamespaceObstacle::SystemCallFilter
    } else if reads("sys/kernel/apparmor_restrict_unprivileged_userns", "1") {
        UserNamespaceObstacle::AppArmor
    } else {
        UserNamespaceObstacle::Unknown
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_setting_that_forbids_user_namespaces_is_the_obstacle() {
        let obstacle = |files: &[(&str, &str)]| {
            let proc = tempfile::tempdir().unwrap();
            for (file, text) in files {
                let path = proc.path().join(file);
                std::fs::create_dir_all(path.parent().unwrap()).unwrap();
                std::fs::write(path, text).unwrap();
            }
            find_obstacle(proc.path())
        };
        let apparmor = ("sys/kernel/apparmor_restrict_unprivileged_userns", "1\n");
        let maximum = ("sys/user/max_user_namespaces", "15000\n");
        let clone = ("sys/kernel/unprivileged_userns_clone", "1\n");
        let container = ("self/status", "Name:\tsh\nSeccomp:\t2\nSeccomp_filters:\t1\n");
        assert_eq!(obstacle(&[]), UserNamespaceObstacle::Unknown);
        assert_eq!(obstacle(&[maximum, clone, apparmor]), UserNamespaceObstacle::AppArmor);
        assert_eq!(obstacle(&[apparmor, container]), UserNamespaceObstacle::SystemCallFilter);
        assert_eq!(
            obstacle(&[("sys/kernel/unprivileged_userns_clone", "0\n"), apparmor]),
            UserNamespaceObstacle::UnprivilegedCloneIsOff
        );
        assert_eq!(
            obstacle(&[("sys/user/max_user_namespaces", "0\n"), container]),
            UserNamespaceObstacle::MaximumIsZero
        );
    }
}
