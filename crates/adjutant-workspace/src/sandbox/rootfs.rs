//! The root directory of a sandbox: empty, then only what was allowed.
//!
//! Every source is opened before the new root hides anything, restricted while it is still detached, and only
//! then attached. Invariant: nothing but the workspace, `/tmp` and `/dev/shm` can be written, and every
//! mount ignores set-user-id bits.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Write as _};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Component, Path, PathBuf};

use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, ResolveFlags, mkdirat, openat, openat2, readlinkat, statat, symlinkat};
use rustix::io::Errno;
use rustix::mount::{
    FsMountFlags, FsOpenFlags, MountAttrFlags, MoveMountFlags, OpenTreeFlags, UnmountFlags,
    fsconfig_create, fsconfig_set_string, fsmount, fsopen, move_mount, open_tree, unmount,
};
use rustix::process::{fchdir, pivot_root};

use super::plan::{Failure, RunPlan, Start, Step as _};
use super::raw::{MountAttributes, restrict_mount};

/// Directories of the system, shown where they exist. A link is copied as a link.
const SYSTEM: [&str; 9] = [
    "/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/nix/store", "/gnu/store",
];

/// What programs need of `/etc`: no passwords, no keys, no machine identity.
const ETC: [&str; 37] = [
    "alternatives", "bash.bashrc", "ca-certificates", "ca-certificates.conf", "crypto-policies",
    "debian_version", "fonts", "gai.conf", "group", "host.conf", "hosts", "java-17-openjdk",
    "java-21-openjdk", "ld.so.cache", "ld.so.conf", "ld.so.conf.d", "localtime", "locale.alias",
    "locale.conf", "magic", "mime.types", "nsswitch.conf", "os-release", "passwd", "perl",
    "pki/ca-trust", "pki/tls/certs", "profile", "protocols", "python3", "services", "shells",
    "ssl/certs", "ssl/openssl.cnf", "terminfo", "timezone", "xattr.conf",
];

/// Devices that give nothing away.
const DEVICES: [&str; 5] = ["null", "zero", "full", "random", "urandom"];

/// Files and directories with credentials, looked for below every grant.
const CREDENTIALS: [&str; 22] = [
    ".aws", ".azure", ".cargo/credentials", ".cargo/credentials.toml", ".config/gcloud",
    ".config/gh", ".config/git/credentials", ".docker/config.json", ".git-credentials", ".gnupg",
    ".gradle/gradle.properties", ".kube", ".m2/settings.xml", ".netrc", ".npmrc", ".pypirc",
    ".ssh", "credentials", "credentials.toml", "gradle.properties", "settings-security.xml", "settings.xml",
];

/// Where the helper shows itself for the self-test.
pub(crate) const SELF_TEST_AT: &str = "/.adjutant-self-test";

/// A directory of the self-test that nothing but Landlock keeps from being written.
pub(crate) const ONLY_LANDLOCK: &str = "/.adjutant-only-landlock";

const QUIET: MountAttributes = MountAttributes::NO_SUID.and(MountAttributes::NO_DEVICES);
const LOCKED: MountAttributes = QUIET.and(MountAttributes::READ_ONLY);

/// A detached copy of a mount, and where it goes.
struct Piece {
    at: PathBuf,
    tree: OwnedFd,
    directory: bool,
}

/// A root under construction.
struct NewRoot {
    root: OwnedFd,
}

/// Builds the root, moves into it, and returns the workspace's directory.
pub(crate) fn enter(plan: &RunPlan) -> Result<OwnedFd, Failure> {
    let at = below_root(&plan.at.as_path());
    let workspace = clone_tree(&plan.workspace.as_path(), QUIET).step("open the workspace")?;
    let mut pieces = Vec::new();
    let mut links = Vec::new();
    for path in SYSTEM {
        gather(Path::new(path), &mut pieces, &mut links)?;
    }
    for name in ETC {
        gather(&Path::new("/etc").join(name), &mut pieces, &mut links)?;
    }
    if plan.network {
        // Often a link into /run, which is not shown; its content is.
        piece(Path::new("/etc/resolv.conf"), &mut pieces)?;
    }
    for grant in &plan.grants {
        let grant = grant.as_path();
        let real = grant.canonicalize().step("resolve a granted directory")?;
        piece(&real, &mut pieces)?;
    }
    if matches!(plan.start, Start::SelfTest) {
        let tree = helper_tree().step("show the helper")?;
        pieces.push(Piece { at: below_root(Path::new(SELF_TEST_AT)), tree, directory: false });
    }
    let devices = gather_devices()?;
    pieces.sort_by_key(|piece| piece.at.components().count());

    let new = NewRoot::attach()?;
    // Before the grants, which may lie below.
    new.scratch("tmp", plan.bounds.tmp_bytes)?;
    for (link, target) in links {
        new.link(&link, &target)?;
    }
    for piece in pieces {
        new.place(&piece)?;
    }
    new.devices(devices)?;
    new.scratch("dev/shm", plan.bounds.tmp_bytes)?;
    if matches!(plan.start, Start::SelfTest) {
        new.scratch(ONLY_LANDLOCK.trim_start_matches('/'), 64 << 10)?;
    }
    new.proc(plan)?;
    new.hide(plan)?;
    new.place(&Piece { at: at.clone(), tree: workspace, directory: true })?;
    new.guard_git(&at)?;
    new.become_root()?;
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    openat(CWD, plan.at.as_path(), flags, Mode::empty()).step("open the workspace inside")
}

/// Moves to `cwd` beneath the workspace, by handles.
pub(crate) fn enter_directory(workspace: &OwnedFd, cwd: &Path) -> Result<(), Failure> {
    let cwd = if cwd.as_os_str().is_empty() { Path::new(".") } else { cwd };
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let inside = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS;
    let directory = openat2(workspace, cwd, flags, Mode::empty(), inside).step("cwd")?;
    fchdir(&directory).step("cwd")
}

fn below_root(path: &Path) -> PathBuf {
    path.components().filter(|part| matches!(part, Component::Normal(_))).collect()
}

/// Opens a detached, restricted copy of what is at `path`.
fn clone_tree(path: &Path, attributes: MountAttributes) -> io::Result<OwnedFd> {
    let flags = OpenTreeFlags::OPEN_TREE_CLONE
        | OpenTreeFlags::OPEN_TREE_CLOEXEC
        | OpenTreeFlags::AT_RECURSIVE;
    let tree = open_tree(CWD, path, flags)?;
    restrict_mount(&tree, attributes, true)?;
    Ok(tree)
}

/// Takes what is at `path`: a link as a link, everything else as a read-only copy of its mount.
fn gather(
    path: &Path,
    pieces: &mut Vec<Piece>,
    links: &mut Vec<(PathBuf, PathBuf)>,
) -> Result<(), Failure> {
    match readlinkat(CWD, path, Vec::new()) {
        Ok(target) => {
            let target = PathBuf::from(OsStr::from_bytes(target.as_bytes()));
            links.push((below_root(path), target));
            Ok(())
        }
        Err(Errno::NOENT | Errno::NOTDIR | Errno::ACCESS) => Ok(()),
        Err(_) => piece(path, pieces),
    }
}

/// Takes a read-only copy of what is at `path`, if there is something.
fn piece(path: &Path, pieces: &mut Vec<Piece>) -> Result<(), Failure> {
    let stat = match statat(CWD, path, AtFlags::empty()) {
        Ok(stat) => stat,
        Err(Errno::NOENT | Errno::NOTDIR | Errno::ACCESS) => return Ok(()),
        Err(errno) => return Err(Failure::new(format!("look at {}", path.display()), errno)),
    };
    let directory = FileType::from_raw_mode(stat.st_mode) == FileType::Directory;
    let tree = clone_tree(path, LOCKED).step("copy a mount")?;
    pieces.push(Piece { at: below_root(path), tree, directory });
    Ok(())
}

/// Opens a copy of this program that can be attached.
///
/// Its own handle belongs to the mounts outside. Its path does, too, unless it was replaced since it started;
/// then its bytes are copied.
fn helper_tree() -> io::Result<OwnedFd> {
    let this = File::open("/proc/self/exe")?;
    let path = std::fs::read_link("/proc/self/exe")?;
    let same = |there: &std::fs::Metadata, here: &std::fs::Metadata| {
        (there.dev(), there.ino()) == (here.dev(), here.ino())
    };
    let here = this.metadata()?;
    if std::fs::metadata(&path).is_ok_and(|there| same(&there, &here)) {
        return clone_tree(&path, LOCKED);
    }
    let memory = memory_file_system(here.len() + (1 << 20), "755")?;
    let flags = OFlags::CREATE | OFlags::WRONLY | OFlags::CLOEXEC;
    let copy = openat(&memory, "helper", flags, Mode::from_raw_mode(0o555))?;
    io::copy(&mut &this, &mut File::from(copy))?;
    detach(&memory, "helper")
}

/// Opens a read-only piece of a mount as a mount of its own.
fn detach(mount: &OwnedFd, name: &str) -> io::Result<OwnedFd> {
    let flags = OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC;
    let piece = open_tree(mount, name, flags)?;
    restrict_mount(&piece, LOCKED, false)?;
    Ok(piece)
}

fn gather_devices() -> Result<Vec<(&'static str, OwnedFd)>, Failure> {
    let locked = MountAttributes::NO_SUID;
    let open = |name| clone_tree(&Path::new("/dev").join(name), locked).map(|tree| (name, tree));
    DEVICES.into_iter().map(open).collect::<io::Result<_>>().step("open devices")
}

fn memory_file_system(bytes: u64, mode: &str) -> rustix::io::Result<OwnedFd> {
    let context = fsopen("tmpfs", FsOpenFlags::FSOPEN_CLOEXEC)?;
    fsconfig_set_string(&context, "size", bytes.to_string())?;
    fsconfig_set_string(&context, "mode", mode)?;
    fsconfig_create(&context)?;
    let quiet = MountAttrFlags::MOUNT_ATTR_NOSUID | MountAttrFlags::MOUNT_ATTR_NODEV;
    fsmount(&context, FsMountFlags::FSMOUNT_CLOEXEC, quiet)
}

impl NewRoot {
    /// Makes an empty root and attaches it over a directory of the old one, which needs it no more.
    fn attach() -> Result<Self, Failure> {
        let root = memory_file_system(4 << 20, "755").step("create the root")?;
        let flags = MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH;
        move_mount(&root, "", CWD, "/usr", flags).step("attach the root")?;
        Ok(Self { root })
    }

    /// Opens what is at `path`; links on the way are those of the new root.
    fn open(&self, path: &Path, flags: OFlags) -> rustix::io::Result<OwnedFd> {
        let path = if path.as_os_str().is_empty() { Path::new(".") } else { path };
        let inside = ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS;
        openat2(&self.root, path, flags | OFlags::PATH | OFlags::CLOEXEC, Mode::empty(), inside)
    }

    /// Opens the directory at `path`, made where it was missing.
    fn directory(&self, path: &Path) -> Result<OwnedFd, Failure> {
        let say = |errno| Failure::new(format!("make {}", path.display()), errno);
        match (self.open(path, OFlags::DIRECTORY), path.parent(), path.file_name()) {
            (Ok(there), ..) => Ok(there),
            (Err(Errno::NOENT), Some(parent), Some(name)) => {
                let parent = self.directory(parent)?;
                mkdirat(&parent, name, Mode::from_raw_mode(0o755)).map_err(say)?;
                self.open(path, OFlags::DIRECTORY).map_err(say)
            }
            (Err(errno), ..) => Err(say(errno)),
        }
    }

    /// Opens the file at `path`, made empty where it was missing.
    fn file(&self, path: &Path) -> Result<OwnedFd, Failure> {
        let say = |errno| Failure::new(format!("make {}", path.display()), errno);
        match (self.open(path, OFlags::empty()), path.parent(), path.file_name()) {
            (Ok(there), ..) => Ok(there),
            (Err(Errno::NOENT), Some(parent), Some(name)) => {
                let parent = self.directory(parent)?;
                let flags = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY | OFlags::CLOEXEC;
                openat(&parent, name, flags, Mode::from_raw_mode(0o444)).map_err(say)?;
                self.open(path, OFlags::empty()).map_err(say)
            }
            (Err(errno), ..) => Err(say(errno)),
        }
    }

    fn link(&self, path: &Path, target: &Path) -> Result<(), Failure> {
        let parent = self.directory(path.parent().unwrap_or(Path::new("")))?;
        let name = path.file_name().unwrap_or_default();
        symlinkat(target, &parent, name).step("make a link")
    }

    fn place(&self, piece: &Piece) -> Result<(), Failure> {
        let at = if piece.directory { self.directory(&piece.at)? } else { self.file(&piece.at)? };
        attach(&piece.tree, &at, &piece.at)
    }

    fn devices(&self, devices: Vec<(&str, OwnedFd)>) -> Result<(), Failure> {
        for (name, tree) in devices {
            let at = Path::new("dev").join(name);
            attach(&tree, &self.file(&at)?, &at)?;
        }
        let streams = [("fd", "fd"), ("stdin", "fd/0"), ("stdout", "fd/1"), ("stderr", "fd/2")];
        for (name, of_self) in streams {
            self.link(&Path::new("dev").join(name), &Path::new("/proc/self").join(of_self))?;
        }
        Ok(())
    }

    /// A directory in memory that everyone inside may write.
    fn scratch(&self, path: &str, bytes: u64) -> Result<(), Failure> {
        let memory = memory_file_system(bytes, "1777").step("create /tmp")?;
        attach(&memory, &self.directory(Path::new(path))?, Path::new(path))
    }

    /// A `/proc` of this process namespace: bounded first, then read-only.
    fn proc(&self, plan: &RunPlan) -> Result<(), Failure> {
        use super::plan::Layer;
        let context = fsopen("proc", FsOpenFlags::FSOPEN_CLOEXEC).step("open proc")?;
        let made = fsconfig_create(&context).and_then(|()| {
            let quiet = MountAttrFlags::MOUNT_ATTR_NOSUID
                | MountAttrFlags::MOUNT_ATTR_NODEV
                | MountAttrFlags::MOUNT_ATTR_NOEXEC;
            fsmount(&context, FsMountFlags::FSMOUNT_CLOEXEC, quiet)
        });
        let proc = made.step("mount proc").map_err(|failure| failure.of(Layer::Proc))?;
        let bounded = set(&proc, "sys/kernel/pid_max", &plan.bounds.processes.to_string());
        if let Err(error) = bounded && !plan.may_miss.contains(&Layer::PidMax) {
            return Err(Failure::new("set pid_max", error).of(Layer::PidMax));
        }
        restrict_mount(&proc, MountAttributes::READ_ONLY, false).step("make proc read-only")?;
        attach(&proc, &self.directory(Path::new("proc"))?, Path::new("proc"))
    }

    /// Covers what must not be seen below a grant: what the caller named, and credentials.
    fn hide(&self, plan: &RunPlan) -> Result<(), Failure> {
        for hidden in &plan.hidden {
            self.cover(&below_root(&hidden.as_path()))?;
        }
        for grant in &plan.grants {
            let grant = grant.as_path();
            let grant = below_root(&grant.canonicalize().unwrap_or(grant));
            for name in CREDENTIALS {
                self.cover(&grant.join(name))?;
            }
        }
        Ok(())
    }

    /// Puts something empty over a file or directory, when it is there.
    fn cover(&self, path: &Path) -> Result<(), Failure> {
        if path.as_os_str().is_empty() {
            return Ok(());
        }
        let there = match self.open(path, OFlags::empty()) {
            Ok(there) => there,
            Err(Errno::NOENT | Errno::NOTDIR) => return Ok(()),
            Err(errno) => return Err(Failure::new(format!("hide {}", path.display()), errno)),
        };
        let stat = rustix::fs::fstat(&there).step("hide")?;
        let memory = memory_file_system(64 << 10, "755").step("hide")?;
        if FileType::from_raw_mode(stat.st_mode) == FileType::Directory {
            attach(&memory, &there, path)
        } else {
            let flags = OFlags::CREATE | OFlags::WRONLY | OFlags::CLOEXEC;
            openat(&memory, "empty", flags, Mode::from_raw_mode(0o444)).step("hide a file")?;
            let empty = detach(&memory, "empty").step("hide a file")?;
            attach(&empty, &there, path)
        }
    }

    /// Makes the repository's own folder, or the file that points to it, read-only.
    fn guard_git(&self, workspace: &Path) -> Result<(), Failure> {
        let workspace = self.directory(workspace)?;
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let git = match openat(&workspace, ".git", flags, Mode::empty()) {
            Ok(git) => git,
            Err(Errno::NOENT) => return Ok(()),
            Err(errno) => return Err(Failure::new("look at .git", errno)),
        };
        let stat = rustix::fs::fstat(&git).step("look at .git")?;
        if FileType::from_raw_mode(stat.st_mode) == FileType::Symlink {
            // A mount cannot sit on a link; the link itself holds nothing, and git of ours never follows it.
            return Ok(());
        }
        let flags = OpenTreeFlags::OPEN_TREE_CLONE
            | OpenTreeFlags::OPEN_TREE_CLOEXEC
            | OpenTreeFlags::AT_RECURSIVE
            | OpenTreeFlags::AT_EMPTY_PATH;
        let tree = open_tree(&git, "", flags).step("guard .git")?;
        restrict_mount(&tree, LOCKED, true).step("guard .git")?;
        attach(&tree, &git, Path::new(".git"))
    }

    fn become_root(&self) -> Result<(), Failure> {
        fchdir(&self.root).step("enter the root")?;
        // Both in one place: the old root ends up over the new one, and goes.
        pivot_root(".", ".").step("change the root")?;
        unmount(".", UnmountFlags::DETACH).step("let go of the old root")?;
        fchdir(&self.root).step("enter the root")?;
        restrict_mount(&self.root, MountAttributes::READ_ONLY, false).step("lock the root")
    }
}

/// Attaches a detached mount over an open file or directory.
fn attach(tree: &OwnedFd, over: &OwnedFd, shown: &Path) -> Result<(), Failure> {
    let flags =
        MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH | MoveMountFlags::MOVE_MOUNT_T_EMPTY_PATH;
    move_mount(tree, "", over, "", flags)
        .map_err(|errno| Failure::new(format!("attach {}", shown.display()), errno))
}

fn set(proc: &OwnedFd, name: &str, value: &str) -> io::Result<()> {
    let flags = OFlags::WRONLY | OFlags::CLOEXEC;
    File::from(openat(proc, name, flags, Mode::empty())?).write_all(value.as_bytes())
}
