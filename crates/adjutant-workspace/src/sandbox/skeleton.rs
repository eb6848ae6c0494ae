//! The part of a sandbox's root that is the same for every run: the system's own files.
//!
//! The holder builds it once, mounted over a directory that sandboxes do not need; the mount namespace of each run
//! has a copy. Every source is opened and restricted while it is detached, and only then attached.
//!
//! A [`MountPiece`] is one mount of a sandbox's root, here or in `rootfs`; its [`MountRole`] says whether it is writable
//! and whether a sandbox can do without it.
//!
//! Invariant: nothing in the skeleton is writable, and every mount ignores set-user-id bits.

use std::ffi::OsStr;
use std::io::{self, Write as _};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Component, Path, PathBuf};

use rustix::fs::{
    CWD, FileType, Mode, OFlags, ResolveFlags, fstat, mkdirat, openat, openat2, readlinkat,
    symlinkat,
};
use rustix::io::Errno;
use rustix::mount::{
    FsMountFlags, FsOpenFlags, MountAttrFlags, MoveMountFlags, OpenTreeFlags, fsconfig_create,
    fsconfig_set_string, fsmount, fsopen, move_mount, open_tree,
};

use super::plan::{SetupFailure, StepErrorContext as _};
use super::raw::{MountAttributes, restrict_mount};

/// System directories that are mounted if they exist. A link is copied as a link.
const SYSTEM: [&str; 9] =
    ["/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/nix/store", "/gnu/store"];

/// The parts of `/etc` that programs need: no passwords, no keys, no machine id.
const ETC: [&str; 37] = [
    "alternatives",
    "bash.bashrc",
    "ca-certificates",
    "ca-certificates.conf",
    "crypto-policies",
    "debian_version",
    "fonts",
    "gai.conf",
    "group",
    "host.conf",
    "java-17-openjdk",
    "java-21-openjdk",
    "ld.so.cache",
    "ld.so.conf",
    "ld.so.conf.d",
    "localtime",
    "locale.alias",
    "locale.conf",
    "magic",
    "maven",
    "mime.types",
    "nsswitch.conf",
    "os-release",
    "passwd",
    "perl",
    "pki/ca-trust",
    "pki/tls/certs",
    "profile",
    "protocols",
    "python3",
    "services",
    "shells",
    "ssl/certs",
    "ssl/openssl.cnf",
    "terminfo",
    "timezone",
    "xattr.conf",
];

/// Devices that reveal nothing about the machine.
const DEVICES: [&str; 5] = ["null", "zero", "full", "random", "urandom"];

/// The terminal of the calling process's session: none, or a pseudo-terminal that was made inside. Some containers
/// lack it.
const TERMINAL: &str = "tty";

/// Where the holder mounts the skeleton: neither the helper nor any grant uses this directory.
const SKELETON_AT: &str = "/sys";

pub(crate) const QUIET: MountAttributes = MountAttributes::NO_SUID.and(MountAttributes::NO_DEVICES);
pub(crate) const LOCKED: MountAttributes = QUIET.and(MountAttributes::READ_ONLY);
pub(crate) const DATA: MountAttributes = LOCKED.and(MountAttributes::NO_PROGRAMS);

/// A detached clone of a mount, and the path at which it is attached.
pub(crate) struct MountPiece {
    pub(crate) at: PathBuf,
    pub(crate) tree: OwnedFd,
    pub(crate) directory: bool,
    pub(crate) role: MountRole,
}

/// What a mount is for: whether programs can write to it, and whether a sandbox can do without it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MountRole {
    /// Shown read-only; left out if its mount point is gone, so that the sandbox shows less.
    Granted,
    /// Writable; left out like a grant.
    Cache,
    /// The workspace or a private directory: writable, and without it no program is started.
    Own,
}

/// The root directory of a sandbox while it is being built.
pub(crate) struct NewRoot {
    pub(crate) root: OwnedFd,
}

/// The host name inside; `/etc/hosts` resolves it.
pub(crate) const HOST_NAME: &str = "sandbox";

/// The addresses that a program finds without a network.
const LOOPBACK_HOSTS: &str =
    "127.0.0.1 localhost\n::1 localhost ip6-localhost ip6-loopback\n127.0.0.1 ";

/// Builds the skeleton and mounts it in this mount namespace. With `network`, names resolve as they do outside.
pub(crate) fn build(network: bool) -> Result<(), SetupFailure> {
    let mut pieces = Vec::new();
    let mut links = Vec::new();
    for path in SYSTEM {
        collect(Path::new(path), &mut pieces, &mut links)?;
    }
    for name in ETC {
        collect(&Path::new("/etc").join(name), &mut pieces, &mut links)?;
    }
    let devices = collect_devices()?;
    let root = new_tmpfs(4 << 20, "755").step("create the root")?;
    let flags = MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH;
    move_mount(&root, "", CWD, SKELETON_AT, flags).step("attach the root")?;
    let new = NewRoot { root };
    for name in ["tmp", "proc", "dev/shm", "dev/pts"] {
        new.ensure_directory(Path::new(name))?;
    }
    for (link, target) in links {
        new.create_link(&link, &target)?;
    }
    for piece in pieces {
        new.attach_piece(&piece)?;
    }
    new.write_name_sources(network)?;
    new.attach_devices(devices)
}

pub(crate) fn below_root(path: &Path) -> PathBuf {
    path.components().filter(|part| matches!(part, Component::Normal(_))).collect()
}

/// Opens a detached, restricted clone of the mount at `path`.
pub(crate) fn clone_tree(path: &Path, attributes: MountAttributes) -> io::Result<OwnedFd> {
    let flags = OpenTreeFlags::OPEN_TREE_CLONE
        | OpenTreeFlags::OPEN_TREE_CLOEXEC
        | OpenTreeFlags::AT_RECURSIVE;
    let tree = open_tree(CWD, path, flags)?;
    restrict_mount(&tree, attributes, true)?;
    Ok(tree)
}

/// Collects `path`: a link as a link, everything else as a read-only clone of its mount.
fn collect(
    path: &Path,
    pieces: &mut Vec<MountPiece>,
    links: &mut Vec<(PathBuf, PathBuf)>,
) -> Result<(), SetupFailure> {
    match readlinkat(CWD, path, Vec::new()) {
        Ok(target) => {
            let target = PathBuf::from(OsStr::from_bytes(target.as_bytes()));
            links.push((below_root(path), target));
            Ok(())
        }
        Err(Errno::NOENT | Errno::NOTDIR | Errno::ACCESS) => Ok(()),
        Err(_) => add_piece(path, LOCKED, pieces),
    }
}

/// Adds a clone of the mount at `path`, if the path exists.
pub(crate) fn add_piece(
    path: &Path,
    attributes: MountAttributes,
    pieces: &mut Vec<MountPiece>,
) -> Result<(), SetupFailure> {
    let tree = match clone_tree(path, attributes) {
        Ok(tree) => tree,
        Err(error) => {
            let errno = Errno::from_io_error(&error);
            // A path that is missing or unreadable for this account stays missing in the sandbox.
            if matches!(errno, Some(Errno::NOENT | Errno::NOTDIR | Errno::ACCESS)) {
                return Ok(());
            }
            return Err(SetupFailure::new(format!("copy the mount of {}", path.display()), error));
        }
    };
    // The clone is examined, because the path may have been replaced meanwhile.
    let stat = fstat(&tree).step("examine a mount")?;
    let directory = FileType::from_raw_mode(stat.st_mode) == FileType::Directory;
    pieces.push(MountPiece { at: below_root(path), tree, directory, role: MountRole::Granted });
    Ok(())
}

fn collect_devices() -> Result<Vec<(&'static str, OwnedFd)>, SetupFailure> {
    // A read-only mount does not restrict writing to a device; the permissions of the device do.
    let locked = MountAttributes::NO_SUID.and(MountAttributes::READ_ONLY);
    let open = |name| clone_tree(&Path::new("/dev").join(name), locked).map(|tree| (name, tree));
    let devices: io::Result<Vec<_>> = DEVICES.into_iter().map(open).collect();
    let mut devices = devices.step("open devices")?;
    devices.extend(open(TERMINAL).ok());
    Ok(devices)
}

pub(crate) fn new_tmpfs(bytes: u64, mode: &str) -> rustix::io::Result<OwnedFd> {
    let context = fsopen("tmpfs", FsOpenFlags::FSOPEN_CLOEXEC)?;
    fsconfig_set_string(&context, "size", bytes.to_string())?;
    fsconfig_set_string(&context, "mode", mode)?;
    fsconfig_create(&context)?;
    let quiet = MountAttrFlags::MOUNT_ATTR_NOSUID | MountAttrFlags::MOUNT_ATTR_NODEV;
    fsmount(&context, FsMountFlags::FSMOUNT_CLOEXEC, quiet)
}

impl NewRoot {
    /// Opens the skeleton in this mount namespace.
    pub(crate) fn of_namespace() -> Result<Self, SetupFailure> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let root = openat(CWD, SKELETON_AT, flags, Mode::empty()).step("open the root")?;
        Ok(Self { root })
    }

    /// Opens `path` in the new root, which also resolves the links on the way.
    pub(crate) fn open(&self, path: &Path, flags: OFlags) -> rustix::io::Result<OwnedFd> {
        let path = if path.as_os_str().is_empty() { Path::new(".") } else { path };
        let inside = ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS;
        openat2(&self.root, path, flags | OFlags::PATH | OFlags::CLOEXEC, Mode::empty(), inside)
    }

    /// Opens `path` in the new root without following any link.
    ///
    /// Mount points are opened this way: a program may have put a link into a directory that later runs see.
    pub(crate) fn open_exactly(&self, path: &Path, flags: OFlags) -> rustix::io::Result<OwnedFd> {
        let path = if path.as_os_str().is_empty() { Path::new(".") } else { path };
        let inside =
            ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS | ResolveFlags::NO_SYMLINKS;
        openat2(&self.root, path, flags | OFlags::PATH | OFlags::CLOEXEC, Mode::empty(), inside)
    }

    /// Opens the directory at `path`, creating it if it is missing. No link is followed.
    pub(crate) fn ensure_directory(&self, path: &Path) -> Result<OwnedFd, SetupFailure> {
        let say = |errno| SetupFailure::new(format!("make {}", path.display()), errno);
        match (self.open_exactly(path, OFlags::DIRECTORY), path.parent(), path.file_name()) {
            (Ok(there), ..) => Ok(there),
            (Err(Errno::NOENT), Some(parent), Some(name)) => {
                let parent = self.ensure_directory(parent)?;
                match mkdirat(&parent, name, Mode::from_raw_mode(0o755)) {
                    // Another run of the same workspace created it first: they share these directories.
                    Ok(()) | Err(Errno::EXIST) => {}
                    Err(errno) => return Err(say(errno)),
                }
                self.open_exactly(path, OFlags::DIRECTORY).map_err(say)
            }
            (Err(errno), ..) => Err(say(errno)),
        }
    }

    /// Opens the file at `path`, creating it empty if it is missing. No link is followed.
    fn ensure_file(&self, path: &Path) -> Result<OwnedFd, SetupFailure> {
        let say = |errno| SetupFailure::new(format!("make {}", path.display()), errno);
        match (self.open_exactly(path, OFlags::empty()), path.parent(), path.file_name()) {
            (Ok(there), ..) => Ok(there),
            (Err(Errno::NOENT), Some(parent), Some(name)) => {
                let parent = self.ensure_directory(parent)?;
                let flags = OFlags::CREATE | OFlags::NOFOLLOW | OFlags::WRONLY | OFlags::CLOEXEC;
                openat(&parent, name, flags, Mode::from_raw_mode(0o444)).map_err(say)?;
                self.open_exactly(path, OFlags::empty()).map_err(say)
            }
            (Err(errno), ..) => Err(say(errno)),
        }
    }

    fn create_link(&self, path: &Path, target: &Path) -> Result<(), SetupFailure> {
        let parent = self.ensure_directory(path.parent().unwrap_or(Path::new("")))?;
        let name = path.file_name().unwrap_or_default();
        symlinkat(target, &parent, name).step("make a link")
    }

    pub(crate) fn attach_piece(&self, piece: &MountPiece) -> Result<(), SetupFailure> {
        let at = if piece.directory {
            self.ensure_directory(&piece.at)?
        } else {
            self.ensure_file(&piece.at)?
        };
        attach(&piece.tree, &at, &piece.at)
    }

    fn attach_devices(&self, devices: Vec<(&str, OwnedFd)>) -> Result<(), SetupFailure> {
        for (name, tree) in devices {
            let at = Path::new("dev").join(name);
            attach(&tree, &self.ensure_file(&at)?, &at)?;
        }
        let streams = [("fd", "fd"), ("stdin", "fd/0"), ("stdout", "fd/1"), ("stderr", "fd/2")];
        for (name, of_self) in streams {
            self.create_link(&Path::new("dev").join(name), &Path::new("/proc/self").join(of_self))?;
        }
        // Leads nowhere in runs without pseudo-terminals.
        self.create_link(Path::new("dev/ptmx"), Path::new("pts/ptmx"))
    }

    /// Writes `/etc/hosts`, which names the sandbox's own host: some programs resolve it when they start. Without a
    /// network, also an empty `/etc/resolv.conf`: there is no name server.
    fn write_name_sources(&self, network: bool) -> Result<(), SetupFailure> {
        let outside = if network { std::fs::read_to_string("/etc/hosts").ok() } else { None };
        let text = match outside {
            Some(outside) => format!("{}\n127.0.0.1 {HOST_NAME}\n", outside.trim_end()),
            None => format!("{LOOPBACK_HOSTS}{HOST_NAME}\n"),
        };
        let etc = self.ensure_directory(Path::new("etc"))?;
        let flags = OFlags::CREATE | OFlags::NOFOLLOW | OFlags::WRONLY | OFlags::CLOEXEC;
        let file = openat(&etc, "hosts", flags, Mode::from_raw_mode(0o444)).step("make hosts")?;
        std::fs::File::from(file).write_all(text.as_bytes()).step("write hosts")?;
        if !network {
            self.ensure_file(Path::new("etc/resolv.conf"))?;
        }
        Ok(())
    }

    /// Attaches an in-memory directory that every program inside may write.
    pub(crate) fn attach_tmpfs(&self, path: &str, bytes: u64) -> Result<(), SetupFailure> {
        let memory = new_tmpfs(bytes, "1777").step("create /tmp")?;
        attach(&memory, &self.ensure_directory(Path::new(path))?, Path::new(path))
    }
}

/// Attaches a detached mount over an open file or directory.
pub(crate) fn attach(tree: &OwnedFd, over: &OwnedFd, shown: &Path) -> Result<(), SetupFailure> {
    let flags = MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH | MoveMountFlags::MOVE_MOUNT_T_EMPTY_PATH;
    move_mount(tree, "", over, "", flags)
        .map_err(|errno| SetupFailure::new(format!("attach {}", shown.display()), errno))
}
