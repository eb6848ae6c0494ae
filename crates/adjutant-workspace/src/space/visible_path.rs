//! The path at which commands see a workspace: that of the user's checkout, where possible.
//!
//! Virtual environments, build directories and editable installs contain absolute paths, so they work unchanged only
//! at the same path.

use std::path::Path;

/// Directories of the system that a sandbox shows or makes itself.
const SYSTEM: [&str; 14] = [
    "/bin",
    "/dev",
    "/etc",
    "/gnu/store",
    "/lib",
    "/lib32",
    "/lib64",
    "/libx32",
    "/nix/store",
    "/proc",
    "/sbin",
    "/sys",
    "/tmp",
    "/usr",
];

/// Says whether commands can have a private home directory at this path: it would hide no system directory.
pub(super) fn can_be_home(home: &Path) -> bool {
    !SYSTEM.iter().any(|system| Path::new(system).starts_with(home))
}

/// Returns why a workspace cannot be shown at the path of the checkout; `None` if it can.
pub(super) fn why_not_at(checkout: &Path, home: Option<&Path>) -> Option<&'static str> {
    if SYSTEM.iter().any(|system| Path::new(system).starts_with(checkout)) {
        return Some("the checkout contains system directories");
    }
    // Below /dev/shm, but not the directory itself, which every sandbox has.
    let is_in_memory = checkout.parent().is_some_and(|parent| parent.starts_with("/dev/shm"));
    let kernel = ["/dev", "/proc", "/sys"];
    if !is_in_memory && kernel.iter().any(|system| checkout.starts_with(system)) {
        return Some("the checkout lies in a directory of the kernel");
    }
    if home.is_some_and(|home| home.starts_with(checkout)) {
        return Some("the checkout contains the home directory");
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_workspace_is_shown_elsewhere_only_if_it_would_hide_the_system_or_the_home_directory() {
        let why = |checkout: &str| why_not_at(Path::new(checkout), Some(Path::new("/home/me")));
        for checkout in ["/home/me/code", "/tmp/x", "/srv/x", "/dev/shm/x", "/home/meadow"] {
            assert_eq!(why(checkout), None, "{checkout}");
        }
        for checkout in ["/", "/usr", "/tmp", "/nix", "/home", "/home/me", "/dev/shm", "/dev/x"] {
            assert!(why(checkout).is_some(), "{checkout}");
        }
    }
}
