//! The root directory of one program run: the skeleton, the grants, the workspace, and nothing else.
//!
//! Invariant: only the workspace, the private directories, the caches, `/tmp` and `/dev/shm` are writable; nothing
//! is created by following a link; and every mount ignores set-user-id bits.

use std::fs::File;
use std::io::{self, Write as _};
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, FileType, Mode, OFlags, ResolveFlags, mkdirat, openat, openat2};
use rustix::io::Errno;
use rustix::mount::{
    FsMountFlags, FsOpenFlags, MountAttrFlags, OpenTreeFlags, UnmountFlags, fsconfig_create,
    fsconfig_set_string, fsmount, fsopen, open_tree, unmount,
};
use rustix::process::{fchdir, pivot_root};

use super::pinned_parents::PinnedParents;
use super::plan::{
    BindPlan, ReplacedFile, RunPlan, RunTarget, SandboxLayer, SetupFailure, StepErrorContext as _,
};
use super::raw::{MountAttributes, restrict_mount};
use super::skeleton::{
    DATA, LOCKED, MountPiece, MountRole, NewRoot, QUIET, add_piece, attach, below_root, clone_tree,
    new_tmpfs,
};

/// Files and directories that hold credentials wherever they lie, given as the last components of a path.
pub(crate) const CREDENTIALS: [&str; 39] = [
    ".aws",
    ".azure",
    ".bash_history",
    ".boto",
    ".cargo/credentials",
    ".cargo/credentials.toml",
    ".claude/.credentials.json",
    ".codex/auth.json",
    ".config/adjutant",
    ".config/gcloud",
    ".config/gh",
    ".config/git/credentials",
    ".databrickscfg",
    ".docker/config.json",
    ".env",
    ".git-credentials",
    ".gnupg",
    ".gradle/gradle.properties",
    ".huggingface/token",
    ".kube",
    ".local/share/keyrings",
    ".m2/settings.xml",
    ".mozilla",
    ".my.cnf",
    ".netrc",
    ".npmrc",
    ".password-store",
    ".pgpass",
    ".pypirc",
    ".s3cfg",
    ".ssh",
    ".vault-token",
    "credentials.tfrc.json",
    "huggingface/stored_tokens",
    "huggingface/token",
    "id_dsa",
    "id_ecdsa",
    "id_ed25519",
    "id_rsa",
];

/// Says whether a name of [`CREDENTIALS`] means credentials only for a file, not for a directory.
///
/// `.env` is also a common name for Python virtual environments.
pub(crate) fn is_credential_only_as_file(path: &Path) -> bool {
    path.ends_with(".env")
}

/// Names that mean credentials only at the top of a grant, such as the home of a build tool.
const CREDENTIALS_AT_TOP: [&str; 5] = [
    "credentials",
    "credentials.toml",
    "gradle.properties",
    "settings-security.xml",
    "settings.xml",
];

/// Attempts to cover a path that other processes keep replacing.
const MAX_COVERS: usize = 200;

/// Pseudo-terminals of one run. The kernel bounds them for the whole machine; one run must not use them up.
const MAX_TERMINALS: &str = "256";

/// Where the helper program is mounted for the self-test.
pub(crate) const SELF_TEST_AT: &str = "/.adjutant-self-test";

/// A directory for the self-test that only Landlock protects from writing.
pub(crate) const ONLY_LANDLOCK: &str = "/.adjutant-only-landlock";

/// Builds the root, enters it, and opens the workspace's directory.
pub(crate) fn enter(plan: &RunPlan) -> Result<OwnedFd, SetupFailure> {
    // Every source is opened before anything is mounted.
    let pieces = open_sources(plan)?;
    let new = NewRoot::of_namespace()?;
    // Before the other mounts, which may lie below these.
    if !plan.private.iter().any(|it| it.at.as_path() == Path::new("/tmp")) {
        new.attach_tmpfs("tmp", plan.bounds.tmp_bytes)?;
    }
    new.attach_tmpfs("dev/shm", plan.bounds.tmp_bytes)?;
    let covers = new.attach_and_cover(pieces, plan)?;
    if matches!(plan.start, RunTarget::SelfTest) {
        new.attach_tmpfs(ONLY_LANDLOCK.trim_start_matches('/'), 64 << 10)?;
    }
    if plan.pseudo_terminals {
        new.mount_pseudo_terminals()?;
    }
    new.mount_proc(plan)?;
    new.guard_git(&below_root(&plan.at.as_path()))?;
    for file in &plan.replaced {
        new.replace_file(file)?;
    }
    for cover in covers {
        lock_cover(&cover)?;
    }
    new.become_root()?;
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    openat(CWD, plan.at.as_path(), flags, Mode::empty()).step("open the workspace inside")
}

/// Opens everything that is mounted: what is shown read-only, the caches, the private directories, the workspace.
fn open_sources(plan: &RunPlan) -> Result<Vec<MountPiece>, SetupFailure> {
    let mut pieces = Vec::new();
    if plan.network {
        // Often a link into /run, which is not mounted; its content is.
        add_piece(Path::new("/etc/resolv.conf"), LOCKED, &mut pieces)?;
    }
    for grant in &plan.grants {
        add_piece(&resolve_links(&grant.as_path()), LOCKED, &mut pieces)?;
    }
    for BindPlan { from, at } in &plan.data {
        let before = pieces.len();
        add_piece(&resolve_links(&from.as_path()), DATA, &mut pieces)?;
        pieces[before..].iter_mut().for_each(|piece| piece.at = below_root(&at.as_path()));
    }
    let own = plan.caches.iter().map(|it| (it, MountRole::Cache));
    for (BindPlan { from, at }, role) in
        own.chain(plan.private.iter().map(|it| (it, MountRole::Own)))
    {
        let tree = clone_tree(&from.as_path(), QUIET).step("open a private directory")?;
        pieces.push(MountPiece { at: below_root(&at.as_path()), tree, directory: true, role });
    }
    let workspace = match plan.start {
        RunTarget::Program(_) => clone_tree(&plan.workspace.as_path(), QUIET),
        RunTarget::SelfTest => {
            let tree = helper_tree().step("show the helper")?;
            let at = below_root(Path::new(SELF_TEST_AT));
            pieces.push(MountPiece { at, tree, directory: false, role: MountRole::Granted });
            self_test_workspace()
        }
    };
    let tree = workspace.step("open the workspace")?;
    let at = below_root(&plan.at.as_path());
    pieces.push(MountPiece { at, tree, directory: true, role: MountRole::Own });
    Ok(pieces)
}

/// Changes to the directory `cwd` beneath the workspace, resolved from its handle.
pub(crate) fn enter_directory(workspace: &OwnedFd, cwd: &Path) -> Result<(), SetupFailure> {
    let cwd = if cwd.as_os_str().is_empty() { Path::new(".") } else { cwd };
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let inside = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS;
    let directory = openat2(workspace, cwd, flags, Mode::empty(), inside).step("cwd")?;
    fchdir(&directory).step("cwd")
}

/// Creates a workspace for the self-test in memory: a crash leaves nothing behind, and no other process can have
/// prepared it.
fn self_test_workspace() -> io::Result<OwnedFd> {
    let memory = new_tmpfs(64 << 10, "755")?;
    mkdirat(&memory, ".git", Mode::from_raw_mode(0o755))?;
    Ok(memory)
}

/// Resolves the links of a path; returns it unchanged if it does not exist.
fn resolve_links(path: &Path) -> PathBuf {
    path.canonicalize().unwrap_or_else(|_| path.to_owned())
}

/// Opens this program as a mount that can be attached.
///
/// `/proc/self/exe` belongs to the mounts outside and cannot be cloned. Its path can, unless the file was replaced
/// since the start; then its bytes are copied.
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
    let memory = new_tmpfs(here.len() + (1 << 20), "755")?;
    let flags = OFlags::CREATE | OFlags::WRONLY | OFlags::CLOEXEC;
    let copy = openat(&memory, "helper", flags, Mode::from_raw_mode(0o555))?;
    io::copy(&mut &this, &mut File::from(copy))?;
    detach_read_only(&memory, "helper")
}

/// Clones a file of a mount as a read-only mount of its own.
fn detach_read_only(mount: &OwnedFd, name: &str) -> io::Result<OwnedFd> {
    let flags = OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC;
    let piece = open_tree(mount, name, flags)?;
    restrict_mount(&piece, LOCKED, false)?;
    Ok(piece)
}

impl NewRoot {
    /// Mounts the `/proc` of this process namespace: sets the process limit, then makes it read-only.
    fn mount_proc(&self, plan: &RunPlan) -> Result<(), SetupFailure> {
        let context = fsopen("proc", FsOpenFlags::FSOPEN_CLOEXEC).step("open proc")?;
        let made = fsconfig_create(&context).and_then(|()| {
            let quiet = MountAttrFlags::MOUNT_ATTR_NOSUID
                | MountAttrFlags::MOUNT_ATTR_NODEV
                | MountAttrFlags::MOUNT_ATTR_NOEXEC;
            fsmount(&context, FsMountFlags::FSMOUNT_CLOEXEC, quiet)
        });
        let proc =
            made.step("mount proc").map_err(|failure| failure.in_layer(SandboxLayer::Proc))?;
        let bounded =
            write_proc_value(&proc, "sys/kernel/pid_max", &plan.bounds.processes.to_string());
        if let Err(error) = bounded
            && !plan.may_miss.contains(&SandboxLayer::PidMax)
        {
            return Err(SetupFailure::new("set pid_max", error).in_layer(SandboxLayer::PidMax));
        }
        restrict_mount(&proc, MountAttributes::READ_ONLY, false).step("make proc read-only")?;
        attach(&proc, &self.ensure_directory(Path::new("proc"))?, Path::new("proc"))
    }

    /// Mounts a `/dev/pts` of its own: it shows the pseudo-terminals of this run and no others.
    fn mount_pseudo_terminals(&self) -> Result<(), SetupFailure> {
        let context = fsopen("devpts", FsOpenFlags::FSOPEN_CLOEXEC).step("open devpts")?;
        // Every mount is an instance of its own since Linux 4.7. The group of the terminals is this account's: `tty`
        // is not mapped in the user namespace.
        for (name, value) in [("ptmxmode", "0666"), ("mode", "0620"), ("max", MAX_TERMINALS)] {
            fsconfig_set_string(&context, name, value).step("configure devpts")?;
        }
        // A read-only mount does not restrict writing to a terminal.
        let locked = MountAttrFlags::MOUNT_ATTR_NOSUID
            | MountAttrFlags::MOUNT_ATTR_NOEXEC
            | MountAttrFlags::MOUNT_ATTR_RDONLY;
        let terminals = fsconfig_create(&context)
            .and_then(|()| fsmount(&context, FsMountFlags::FSMOUNT_CLOEXEC, locked))
            .step("mount devpts")?;
        let at = Path::new("dev/pts");
        attach(&terminals, &self.ensure_directory(at)?, at)
    }

    /// Attaches all mounts, and covers what must stay hidden in them: the paths of the plan, and credentials.
    ///
    /// Parents come first: a home directory can be hidden below one grant and contain another. Returns the covers.
    fn attach_and_cover(
        &self,
        pieces: Vec<MountPiece>,
        plan: &RunPlan,
    ) -> Result<Vec<OwnedFd>, SetupFailure> {
        let is_own = |at: &Path| pieces.iter().any(|it| it.role == MountRole::Own && at == it.at);
        let workspace = below_root(&plan.at.as_path());
        let hidden = plan.hidden.iter().map(|hidden| below_root(&resolve_links(&hidden.as_path())));
        // A private directory replaces what is hidden at its path, and the workspace replaces the user's checkout.
        let hidden: Vec<PathBuf> =
            hidden.filter(|at| !is_own(at) && !at.starts_with(&workspace)).collect();
        let shown = pieces.iter().filter(|piece| piece.role != MountRole::Own);
        let secrets: Vec<PathBuf> = shown
            .flat_map(|it| {
                CREDENTIALS.iter().chain(&CREDENTIALS_AT_TOP).map(|name| it.at.join(name))
            })
            .collect();
        let mut steps: Vec<(PathBuf, Option<MountPiece>)> =
            pieces.into_iter().map(|piece| (piece.at.clone(), Some(piece))).collect();
        steps.extend(hidden.into_iter().chain(secrets).map(|at| (at, None)));
        steps.sort_by_key(|(at, _)| at.components().count());
        let (mut covers, mut pins) = (Vec::new(), PinnedParents::new());
        for (at, step) in steps {
            let Some(piece) = step else {
                covers.extend(self.cover(&at)?);
                continue;
            };
            match pins.pin(self, &at).and_then(|()| self.attach_piece(&piece)) {
                // Its mount point lay in another mount and was removed or replaced meanwhile.
                Err(failure) if piece.role != MountRole::Own && failure.is_mount_point_gone() => {}
                placed => placed?,
            }
            if piece.role != MountRole::Granted {
                pins.add_writable(at);
            }
        }
        Ok(covers)
    }

    /// Shows a file with other content; a file that does not exist stays absent. A link stays as it is: commands see its
    /// target only if that is shown, too.
    fn replace_file(&self, file: &ReplacedFile) -> Result<(), SetupFailure> {
        let at = below_root(&file.at.as_path());
        let there = match self.open_exactly(&at, OFlags::empty()) {
            Ok(there) => there,
            Err(Errno::NOENT | Errno::NOTDIR | Errno::ACCESS | Errno::LOOP) => return Ok(()),
            Err(errno) => {
                return Err(SetupFailure::new(format!("replace {}", at.display()), errno));
            }
        };
        let content = file.content.as_os();
        let memory = new_tmpfs(content.len() as u64 + (64 << 10), "755").step("replace a file")?;
        let flags = OFlags::CREATE | OFlags::WRONLY | OFlags::CLOEXEC;
        let copy =
            openat(&memory, "file", flags, Mode::from_raw_mode(0o444)).step("replace a file")?;
        File::from(copy).write_all(content.as_encoded_bytes()).step("replace a file")?;
        attach(&detach_read_only(&memory, "file").step("replace a file")?, &there, &at)
    }

    /// Covers a file or directory with an empty one, if it exists.
    ///
    /// Other processes may remove or replace the path meanwhile: retries until the path leads to the cover or to
    /// nothing.
    fn cover(&self, path: &Path) -> Result<Option<OwnedFd>, SetupFailure> {
        let mut last = SetupFailure::new(format!("hide {}", path.display()), Errno::AGAIN);
        for _ in 0..MAX_COVERS {
            let there = match self.open(path, OFlags::empty()) {
                Ok(there) => there,
                // A path that this process cannot open cannot be opened by any program in the sandbox.
                Err(Errno::NOENT | Errno::NOTDIR | Errno::ACCESS | Errno::LOOP) => return Ok(None),
                Err(errno) => {
                    return Err(SetupFailure::new(format!("hide {}", path.display()), errno));
                }
            };
            if is_credential_only_as_file(path) && is_directory(&there) {
                return Ok(None);
            }
            match self.cover_once(path, &there) {
                Ok((cover, locks)) if self.leads_to(path, &cover) => {
                    return Ok(locks.then_some(cover));
                }
                // The covered file was moved away.
                Ok((cover, _)) => lock_cover(&cover)?,
                Err(failure) => last = failure,
            }
        }
        Err(last)
    }

    /// Covers an open file or directory. The flag says whether the cover still has to be made read-only.
    fn cover_once(&self, path: &Path, there: &OwnedFd) -> Result<(OwnedFd, bool), SetupFailure> {
        let memory = new_tmpfs(64 << 10, "755").step("hide")?;
        if is_directory(there) {
            attach(&memory, there, path)?;
            return Ok((memory, true));
        }
        let flags = OFlags::CREATE | OFlags::WRONLY | OFlags::CLOEXEC;
        openat(&memory, "empty", flags, Mode::from_raw_mode(0o444)).step("hide a file")?;
        let empty = detach_read_only(&memory, "empty").step("hide a file")?;
        attach(&empty, there, path)?;
        Ok((empty, false))
    }

    /// Says whether a path leads to this mount, or to nothing.
    fn leads_to(&self, path: &Path, mount: &OwnedFd) -> bool {
        let device = |handle: &OwnedFd| rustix::fs::fstat(handle).map(|stat| stat.st_dev);
        match self.open(path, OFlags::empty()) {
            Ok(there) => device(&there).is_ok_and(|it| device(mount) == Ok(it)),
            Err(errno) => matches!(errno, Errno::NOENT | Errno::NOTDIR),
        }
    }

    /// Makes `.git`, a directory or a file that names one, read-only.
    fn guard_git(&self, workspace: &Path) -> Result<(), SetupFailure> {
        let workspace = self.ensure_directory(workspace)?;
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let git = match openat(&workspace, ".git", flags, Mode::empty()) {
            Ok(git) => git,
            Err(Errno::NOENT) => return Ok(()),
            Err(errno) => return Err(SetupFailure::new("examine .git", errno)),
        };
        let stat = rustix::fs::fstat(&git).step("examine .git")?;
        if FileType::from_raw_mode(stat.st_mode) == FileType::Symlink {
            // A link cannot be a mount point, and a link that can be replaced protects nothing.
            return Err(SetupFailure::new("guard .git, which is a symbolic link", Errno::LOOP));
        }
        let flags = OpenTreeFlags::OPEN_TREE_CLONE
            | OpenTreeFlags::OPEN_TREE_CLOEXEC
            | OpenTreeFlags::AT_RECURSIVE
            | OpenTreeFlags::AT_EMPTY_PATH;
        let tree = open_tree(&git, "", flags).step("guard .git")?;
        restrict_mount(&tree, LOCKED, true).step("guard .git")?;
        attach(&tree, &git, Path::new(".git"))
    }

    fn become_root(&self) -> Result<(), SetupFailure> {
        fchdir(&self.root).step("enter the root")?;
        // With both arguments `.`, the old root is mounted over the new one and can be unmounted at once.
        pivot_root(".", ".").step("change the root")?;
        unmount(".", UnmountFlags::DETACH).step("unmount the old root")?;
        fchdir(&self.root).step("enter the root")?;
        restrict_mount(&self.root, MountAttributes::READ_ONLY, false)
            .step("make the root read-only")
    }
}

fn is_directory(handle: &OwnedFd) -> bool {
    rustix::fs::fstat(handle)
        .is_ok_and(|stat| FileType::from_raw_mode(stat.st_mode) == FileType::Directory)
}

/// Makes a cover read-only.
fn lock_cover(cover: &OwnedFd) -> Result<(), SetupFailure> {
    match restrict_mount(cover, MountAttributes::READ_ONLY, false) {
        // The kernel removes a mount with the directory under it; then there is nothing left to write to.
        Err(error) if Errno::from_io_error(&error) == Some(Errno::INVAL) => Ok(()),
        done => done.step("make a cover read-only"),
    }
}

fn write_proc_value(proc: &OwnedFd, name: &str, value: &str) -> io::Result<()> {
    let flags = OFlags::WRONLY | OFlags::CLOEXEC;
    File::from(openat(proc, name, flags, Mode::empty())?).write_all(value.as_bytes())
}
