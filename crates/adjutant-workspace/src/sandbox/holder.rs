//! The namespace holder: a small process that owns a workspace's user and mount namespaces.
//!
//! It mounts the overlay, passes its root to the engine, and then starts the first process of each sandbox inside
//! its namespaces. It ends when the engine's socket closes, and its mounts end with it.
//!
//! Invariant: it runs no program but this binary and reads only the engine's socket.

use std::fs::File;
use std::io;
use std::net::{Ipv4Addr, TcpListener};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, Stdio};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::{CWD, FlockOperation, Mode, OFlags, flock, openat};
use rustix::mount::MountPropagationFlags;
use rustix::process::{Pid, PidfdFlags, WaitOptions, getgid, getuid, pidfd_open, wait};
use rustix::thread::{
    CapabilitySet, CapabilitySets, LinkNameSpaceType, UnshareFlags, capabilities,
    clear_ambient_capability_set, configure_capability_in_ambient_set, move_into_link_name_space,
    set_capabilities,
};

use super::helper::{INIT, SERVE, SUBCOMMAND};
use super::plan::{
    HolderPlan, HolderReply, HolderRequest, OverlayPlan, SandboxLayer, SetupFailure,
    StepErrorContext as _,
};
use super::skeleton::HOST_NAME;
use super::{raw, skeleton, wire};
use crate::overlay::mount_overlay;

/// Enters new namespaces, then starts the process that serves requests and waits for it.
///
/// Two processes are needed: nested process namespaces must have a parent that belongs to the new user namespace,
/// and a process enters a process namespace only by being started in it.
pub(crate) fn run_holder() -> Result<(), SetupFailure> {
    let socket = io::stdin();
    let served = enter().and_then(|()| {
        let mut command = Command::new("/proc/self/exe");
        command.args([SUBCOMMAND, SERVE]).arg0("adjutant-holder").env_clear();
        keep_capabilities().and_then(|()| command.spawn().step("start the holder"))
    });
    match served {
        Ok(mut child) => child.wait().map(|_| ()).step("wait for the holder"),
        Err(failure) => {
            // The plan is read first: closing the socket with unread data would discard the answer.
            let _ = wire::receive::<HolderPlan>(&socket);
            wire::send(&socket, &HolderReply::Failed(failure), &[]).step("answer")
        }
    }
}

/// Mounts the overlay, then serves requests until the engine closes the socket on standard input.
pub(crate) fn serve_namespaces() -> Result<(), SetupFailure> {
    let socket = io::stdin();
    let Some((plan, _)) = wire::receive::<HolderPlan>(&socket).step("read the plan")? else {
        return Ok(());
    };
    let held = match prepare(&plan) {
        Ok(held) => held,
        Err(failure) => {
            return wire::send(&socket, &HolderReply::Failed(failure), &[]).step("answer");
        }
    };
    let files: Vec<_> = held.overlay.iter().flatten().map(AsFd::as_fd).collect();
    wire::send(&socket, &HolderReply::Done, &files).step("answer")?;
    // The holder keeps copies of the locks on upper directories. It drops the root: an open root would keep the
    // mount busy.
    let HeldMounts { overlay, cache_locks: _cache_locks } = held;
    let _upper_lock = overlay.map(|[_root, lock]| lock);
    let own_pids = File::open("/proc/self/ns/pid").step("open the process namespace")?;
    serve(&socket, &own_pids, &plan)
}

fn serve(socket: &io::Stdin, own_pids: &File, plan: &HolderPlan) -> Result<(), SetupFailure> {
    loop {
        reap();
        // Ended children stay zombies until the next request, at most one second.
        let second = rustix::time::Timespec { tv_sec: 1, tv_nsec: 0 };
        let mut ready = [PollFd::new(socket, PollFlags::IN)];
        match poll(&mut ready, Some(&second)) {
            Ok(0) | Err(rustix::io::Errno::INTR) => continue,
            Ok(_) => {}
            Err(errno) => return Err(SetupFailure::new("wait for requests", errno)),
        }
        let Some((request, files)) = wire::receive(socket).step("read a request")? else {
            return Ok(());
        };
        let answer = match request {
            HolderRequest::Run => start_first_process(files, own_pids),
            HolderRequest::Listen => listen_on_loopback(plan),
        };
        match answer {
            Ok(handle) => wire::send(socket, &HolderReply::Done, &[handle.as_fd()]),
            Err(failure) => wire::send(socket, &HolderReply::Failed(failure), &[]),
        }
        .step("answer a request")?;
    }
}

fn reap() {
    while let Ok(Some(_)) = wait(WaitOptions::NOHANG) {}
}

/// Enters new user, mount and process namespaces.
fn enter() -> Result<(), SetupFailure> {
    let (uid, gid) = (getuid().as_raw(), getgid().as_raw());
    let kinds = UnshareFlags::NEWUSER | UnshareFlags::NEWNS | UnshareFlags::NEWPID;
    raw::unshare(kinds).step("create user namespace")?;
    // User and group ids are the same inside and outside, so programs see the expected account and own its files.
    std::fs::write("/proc/self/setgroups", "deny").step("give up changing groups")?;
    std::fs::write("/proc/self/uid_map", format!("{uid} {uid} 1")).step("map the user")?;
    std::fs::write("/proc/self/gid_map", format!("{gid} {gid} 1")).step("map the group")?;
    let private = MountPropagationFlags::PRIVATE | MountPropagationFlags::REC;
    rustix::mount::mount_change("/", private).step("make mounts private")
}

/// What the holder mounted.
struct HeldMounts {
    /// The overlay's root and the lock on its upper directory.
    overlay: Option<[OwnedFd; 2]>,
    cache_locks: Vec<OwnedFd>,
}

/// Sets up what all program runs share.
fn prepare(plan: &HolderPlan) -> Result<HeldMounts, SetupFailure> {
    let mut kinds = UnshareFlags::NEWUTS | UnshareFlags::NEWCGROUP;
    if !plan.network {
        kinds |= UnshareFlags::NEWNET;
    }
    raw::unshare(kinds)
        .step("create namespaces")
        .map_err(|it| it.in_layer(SandboxLayer::Namespaces))?;
    if !plan.network {
        raw::bring_loopback_up()
            .step("bring the loopback interface up")
            .map_err(|it| it.in_layer(SandboxLayer::Network))?;
    }
    rustix::system::sethostname(HOST_NAME.as_bytes()).step("name the host")?;
    let overlay = plan.overlay.as_ref().map(mount_and_lock).transpose()?;
    let mut cache_locks = Vec::new();
    for cache in &plan.caches {
        cache_locks.extend(mount_cache(cache)?);
    }
    // After the overlay is mounted: its layers may lie below the directory that the skeleton covers.
    skeleton::build(plan.network).map_err(|failure| failure.in_layer(SandboxLayer::Root))?;
    Ok(HeldMounts { overlay, cache_locks })
}

fn mount_and_lock(overlay: &OverlayPlan) -> Result<[OwnedFd; 2], SetupFailure> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let upper = openat(CWD, overlay.upper.as_path(), flags, Mode::empty()).step("open upper")?;
    flock(&upper, FlockOperation::NonBlockingLockExclusive).step("lock upper")?;
    mount_overlay(overlay)?;
    let root =
        openat(CWD, overlay.at.as_path(), flags, Mode::empty()).step("open the merged root")?;
    Ok([root, upper])
}

/// Mounts a copy-on-write view of a cache and returns the lock on its upper directory. If that is not possible, the
/// cache is shown read-only.
fn mount_cache(cache: &OverlayPlan) -> Result<Option<OwnedFd>, SetupFailure> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let upper = openat(CWD, cache.upper.as_path(), flags, Mode::empty()).step("open upper")?;
    let locked = flock(&upper, FlockOperation::NonBlockingLockExclusive);
    if locked.is_ok() && mount_overlay(cache).is_ok() {
        return Ok(Some(upper));
    }
    let Some(lower) = cache.lowers.first() else { return Ok(None) };
    let tree = match skeleton::clone_tree(&lower.as_path(), skeleton::LOCKED) {
        Ok(tree) => tree,
        // It was removed meanwhile; programs see an empty directory.
        Err(_) => return Ok(None),
    };
    let at = openat(CWD, cache.at.as_path(), flags, Mode::empty()).step("open a cache")?;
    skeleton::attach(&tree, &at, &cache.at.as_path())?;
    Ok(None)
}

/// Starts the first process of a sandbox in a process namespace of its own.
fn start_first_process(files: Vec<OwnedFd>, own_pids: &File) -> Result<OwnedFd, SetupFailure> {
    let mut files = files.into_iter();
    let mut take = || wire::next_file(&mut files).map(Stdio::from);
    let (control, out, err) = (take().step("files")?, take().step("files")?, take().step("files")?);
    let mut command = Command::new("/proc/self/exe");
    command.args([SUBCOMMAND, INIT]).arg0("adjutant-sandbox").env_clear();
    command.stdin(control).stdout(out).stderr(err);
    raw::unshare(UnshareFlags::NEWPID).step("create process namespace")?;
    let child = keep_capabilities().and_then(|()| command.spawn().step("start the first process"));
    let _ = clear_ambient_capability_set();
    // Returns to the own process namespace: the next one can only be created from here.
    let link = Some(LinkNameSpaceType::ProcessID);
    move_into_link_name_space(own_pids.as_fd(), link).step("leave the process namespace")?;
    pidfd_of(&child?)
}

/// Listens on loopback at a port that the kernel chooses, in the private network namespace.
fn listen_on_loopback(plan: &HolderPlan) -> Result<OwnedFd, SetupFailure> {
    if plan.network {
        return Err(SetupFailure::new("listen", io::Error::from(io::ErrorKind::Unsupported))
            .in_layer(SandboxLayer::Network));
    }
    TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).map(OwnedFd::from).step("listen")
}

fn pidfd_of(child: &Child) -> Result<OwnedFd, SetupFailure> {
    let number = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
    let number =
        number.ok_or(io::ErrorKind::InvalidData).step("read the pid of the first process")?;
    pidfd_open(number, PidfdFlags::empty()).step("open the first process")
}

/// Makes the next program inherit the capabilities of this namespace; it drops them when it no longer needs them.
fn keep_capabilities() -> Result<(), SetupFailure> {
    let mine = capabilities(None).step("read capabilities")?.permitted;
    let all = CapabilitySets { effective: mine, permitted: mine, inheritable: mine };
    set_capabilities(None, all).step("keep capabilities")?;
    for bit in 0..u64::BITS {
        let one = CapabilitySet::from_bits_retain(1 << bit);
        if mine.contains(one) {
            configure_capability_in_ambient_set(one, true).step("keep capabilities")?;
        }
    }
    Ok(())
}
