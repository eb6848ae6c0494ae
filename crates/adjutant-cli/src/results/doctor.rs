//! The findings of `doctor` about git, the sandbox and workspaces.

use std::path::Path;

use adjutant_engine::results::{
    MachineCapabilities, UserNamespaceObstacle, disk_usage, probe_machine,
};

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
    let namespaces = match user_namespaces {
        Ok(()) => "an ordinary user may make them".to_owned(),
        Err(obstacle) => format!("not allowed here; {}", how_to_allow(obstacle)),
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
        ("user namespaces", user_namespaces.is_ok(), namespaces),
        ("sandbox", sandbox.0, sandbox.1),
        ("workspaces", workspace.0, workspace.1),
        ("disk space", true, disk),
    ]
}

/// Returns what forbids user namespaces, and the command that allows them.
fn how_to_allow(obstacle: UserNamespaceObstacle) -> String {
    match obstacle {
        UserNamespaceObstacle::MaximumIsZero => "the setting user.max_user_namespaces is 0. Run: \
             sudo sysctl user.max_user_namespaces=15000"
            .to_owned(),
        UserNamespaceObstacle::UnprivilegedCloneIsOff => {
            "the setting kernel.unprivileged_userns_clone is 0. Run: \
             sudo sysctl kernel.unprivileged_userns_clone=1"
                .to_owned()
        }
        UserNamespaceObstacle::SystemCallFilter => "a system call filter forbids them, as in a \
             container. Start the container with `docker run --security-opt seccomp=unconfined \
             --security-opt apparmor=unconfined --security-opt systempaths=unconfined` or with \
             `podman run --security-opt seccomp=unconfined --security-opt unmask=ALL`"
            .to_owned(),
        UserNamespaceObstacle::AppArmor => apparmor_command(),
        UserNamespaceObstacle::Unknown => {
            "the kernel does not say why; docs/platforms.md lists what can forbid them".to_owned()
        }
    }
}

/// Returns the command that gives this program the AppArmor profile of the Debian package.
fn apparmor_command() -> String {
    let program = std::env::current_exe().unwrap_or_else(|_| "/usr/bin/adjutant".into());
    format!(
        "AppArmor allows them only to programs with a profile. Run: \
         printf 'abi <abi/4.0>,\\ninclude <tunables/global>\\nprofile adjutant \"{}\" \
         flags=(unconfined) {{ userns, }}\\n' | sudo tee /etc/apparmor.d/adjutant && \
         sudo apparmor_parser -r /etc/apparmor.d/adjutant",
        program.display()
    )
}
