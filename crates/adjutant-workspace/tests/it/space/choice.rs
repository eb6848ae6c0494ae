//! Compares the chosen kind with a mount made without our code: a machine that supports overlays gets overlays, and
//! one that does not gets the reason.

use std::fs;
use std::path::Path;
use std::process::Command;

use adjutant_workspace::space::{WorkspaceBacking, WorkspaceBackingChoice, Workspaces};
use tempfile::TempDir;

use super::{options, state, user};

/// Mounts an overlay with `unshare` and its layers in `folder`; returns whether it worked.
///
/// Without our own code, which is under test. A machine without `unshare` fails the test, because there is nothing
/// to compare with.
fn machine_can(folder: &Path) -> Result<(), String> {
    for name in ["lower", "upper", "work", "at"] {
        fs::create_dir_all(folder.join(name)).unwrap();
    }
    fs::write(folder.join("lower/below"), "below\n").unwrap();
    let script = "mount -t overlay overlay -o lowerdir=lower,upperdir=upper,workdir=work,userxattr at \
                  && grep -q below at/below && echo new > at/new && rm at/below && umount at";
    let tried = Command::new("unshare")
        .args(["--user", "--map-root-user", "--mount", "/bin/sh", "-c", script])
        .current_dir(folder)
        .output()
        .unwrap_or_else(|error| {
            panic!("unshare, of util-linux, tells what this machine can do: {error}")
        });
    if !tried.status.success() {
        return Err(String::from_utf8_lossy(&tried.stderr).into_owned());
    }
    assert_eq!(fs::read_to_string(folder.join("upper/new")).unwrap(), "new\n");
    Ok(())
}

#[test]
fn overlays_are_chosen_exactly_where_the_machine_supports_them() {
    // The usual disk, and memory, which is another file system.
    for place in ["/var/tmp", "/dev/shm"] {
        let folder = TempDir::new_in(place).unwrap();
        let user = user();
        let by_hand = folder.path().join("by-hand");
        let can = machine_can(&by_hand);
        let all = Workspaces::open(
            &user.tree,
            &folder.path().join("state"),
            options(WorkspaceBackingChoice::Best),
        );
        let all = all.unwrap();
        match can {
            Ok(()) => {
                assert_eq!(
                    all.kind(),
                    WorkspaceBacking::Overlay,
                    "{place}: it fell back: {:?}",
                    all.fallback_reason()
                );
                assert_eq!(all.fallback_reason(), None, "{place}");
                let space = all.make("run", "child", "batch", None).unwrap();
                assert_eq!(space.record().kind, WorkspaceBacking::Overlay, "{place}");
                space.close().unwrap();
            }
            Err(why) => {
                assert_eq!(all.kind(), WorkspaceBacking::Worktree, "{place}: {why}");
                assert!(all.fallback_reason().is_some(), "{place}: {why}");
            }
        }
        // The kernel leaves a directory there that its owner cannot list.
        let inner = by_hand.join("work/work");
        let open = std::os::unix::fs::PermissionsExt::from_mode(0o700);
        let _ = fs::set_permissions(inner, open);
    }
}

/// An explicit choice gives that kind or the reason why not, never the other kind.
#[test]
fn the_requested_kind_is_used_or_refused() {
    let user = user();
    let can = machine_can(&user.outer.path().join("by-hand"));
    let opened =
        Workspaces::open(&user.tree, &state(&user), options(WorkspaceBackingChoice::Overlay));
    assert_eq!(opened.is_ok(), can.is_ok(), "{can:?} {:?}", opened.err());
    let opened =
        Workspaces::open(&user.tree, &state(&user), options(WorkspaceBackingChoice::Worktree))
            .unwrap();
    assert_eq!(opened.kind(), WorkspaceBacking::Worktree);
    assert_eq!(opened.fallback_reason(), Some("work trees were requested"));
}
