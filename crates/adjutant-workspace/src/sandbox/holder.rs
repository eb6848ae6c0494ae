//! The namespace holder: a small process that owns a workspace's user and mount namespaces.
//!
//! It mounts the overlay, passes its root to the engine, and then starts the first process of each sandbox inside
//! its namespaces. It ends when the engine's socket closes, and its mounts end with it.
//!
//! Invariant: it runs no program but this binary and reads only the engine's socket.

use std::fs::File;
use std::io;
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
    HolderPlan, HolderReply, HolderRequest, SandboxLayer, SetupFailure, StepContext as _,
};
use super::{raw, skeleton, wire};
use crate::overlay::mount_overlay;

/// Enters new namespaces, then starts the process that serves requests and waits for it.
///
/// Two processes are needed: nested process namespaces must have a parent that belongs to the new user namespace,
/// and a process enters a process namespace only by being started in it.
pub(crate) fn hold() -> Result<(), SetupFailure> {
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
    let files: Vec<_> = held.iter().map(AsFd::as_fd).collect();
    wire::send(&socket, &HolderReply::Done, &files).step("answer")?;
    // The holder keeps a copy of the lock on the upper directory. It drops the root: an open root would keep the
    // mount busy.
    let _locks = held.into_iter().skip(1).collect::<Vec<_>>();
    let own_pids = File::open("/proc/self/ns/pid").step("open the process namespace")?;
    serve(&socket, &own_pids)
}

fn serve(socket: &io::Stdin, own_pids: &File) -> Result<(), SetupFailure> {
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
        let Some((HolderRequest::Run, files)) = wire::receive(socket).step("read a request")?
        else {
            return Ok(());
        };
        match start_first_process(files, own_pids) {
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

/// Sets up what all program runs share. Returns the overlay's root and the descriptors that must stay open.
fn prepare(plan: &HolderPlan) -> Result<Vec<OwnedFd>, SetupFailure> {
    let mut kinds = UnshareFlags::NEWUTS | UnshareFlags::NEWCGROUP;
    if !plan.network {
        kinds |= UnshareFlags::NEWNET;
    }
    raw::unshare(kinds)
        .step("create namespaces")
        .map_err(|it| it.in_layer(SandboxLayer::Namespaces))?;
    rustix::system::sethostname(b"sandbox").step("name the host")?;
    let held = mount_and_lock(plan)?;
    // After the overlay is mounted: its layers may lie below the directory that the skeleton covers.
    skeleton::build().map_err(|failure| failure.in_layer(SandboxLayer::Root))?;
    Ok(held)
}

fn mount_and_lock(plan: &HolderPlan) -> Result<Vec<OwnedFd>, SetupFailure> {
    let Some(overlay) = &plan.overlay else { return Ok(Vec::new()) };
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let upper = openat(CWD, overlay.upper.as_path(), flags, Mode::empty()).step("open upper")?;
    flock(&upper, FlockOperation::NonBlockingLockExclusive).step("lock upper")?;
    mount_overlay(overlay)?;
    let root =
        openat(CWD, overlay.at.as_path(), flags, Mode::empty()).step("open the merged root")?;
    Ok(vec![root, upper])
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
