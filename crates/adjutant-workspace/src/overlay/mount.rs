//! Mounting an overlay in the holder's namespaces.
//!
//! Layers are passed one by one (`lowerdir+`): the classic mount options must fit into one page and treat colons as
//! separators. `userxattr` is set because a mount in a user namespace may set no other extended attributes.
//! `metacopy` and `redirect_dir` are off, so that the upper directory holds whole files under their own names and
//! reading it shows the changes.

use std::io;
use std::path::Path;

use rustix::fs::CWD;
use rustix::mount::{
    FsMountFlags, FsOpenFlags, MountAttrFlags, MoveMountFlags, fsconfig_create, fsconfig_set_flag,
    fsconfig_set_string, fsmount, fsopen, move_mount,
};

use crate::private;
use crate::sandbox::{OverlayPlan, SetupFailure, StepErrorContext as _};
use crate::trees::remove_all;

/// Mounts the overlay at `plan.at` in this mount namespace. The caller has locked the upper directory.
///
/// The mount is `volatile`: unmounting does not sync the whole file system, which takes seconds after a large
/// checkout, and programs inside do not wait for `fsync`. A killed process loses nothing by that. What a power loss
/// takes from the upper layer was not committed yet; committed work is synced by git.
pub(crate) fn mount_overlay(plan: &OverlayPlan) -> Result<(), SetupFailure> {
    empty_work(&plan.work.as_path()).step("empty the work directory")?;
    let context = fsopen("overlay", FsOpenFlags::FSOPEN_CLOEXEC).step("open overlayfs")?;
    fsconfig_set_flag(&context, "userxattr").step("overlay option userxattr")?;
    for (option, value) in [("metacopy", "off"), ("redirect_dir", "nofollow"), ("index", "off")] {
        fsconfig_set_string(&context, option, value).step("overlay options")?;
    }
    // Unknown before Linux 5.10.
    let _ = fsconfig_set_flag(&context, "volatile");
    // The kernel expects the topmost lower layer first.
    for lower in plan.lowers.iter().rev() {
        fsconfig_set_string(&context, "lowerdir+", lower.as_path()).step("overlay lower layer")?;
    }
    fsconfig_set_string(&context, "upperdir", plan.upper.as_path()).step("overlay upper layer")?;
    fsconfig_set_string(&context, "workdir", plan.work.as_path()).step("overlay work directory")?;
    fsconfig_create(&context).step("create the overlay")?;
    let attributes = MountAttrFlags::MOUNT_ATTR_NOSUID | MountAttrFlags::MOUNT_ATTR_NODEV;
    let mount =
        fsmount(&context, FsMountFlags::FSMOUNT_CLOEXEC, attributes).step("overlay mount")?;
    let flags = MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH;
    move_mount(&mount, "", CWD, plan.at.as_path(), flags).step("attach the overlay")
}

/// Empties the work directory: after a volatile mount the kernel refuses to use it again.
fn empty_work(work: &Path) -> io::Result<()> {
    if work.join("work").symlink_metadata().is_ok() {
        remove_all(work)?;
        private::ensure_dir(work)?;
    }
    Ok(())
}
