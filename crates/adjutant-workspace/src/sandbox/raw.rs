//! System calls without a safe wrapper.
//!
//! All other code in this crate is safe. Most functions make one system call without pointers, or with one
//! structure that lives on the stack during the call; two install closures that make a few system calls between
//! fork and exec.
#![expect(
    unsafe_code,
    reason = "close_range, mount_setattr, unshare, interface flags and a session of its own have no safe wrapper"
)]

use std::io;
use std::os::fd::{AsFd, AsRawFd, IntoRawFd as _};
use std::os::unix::process::CommandExt as _;
use std::process::Command;

use rustix::io::dup;
use rustix::process::{Signal, getpid, getppid, set_parent_process_death_signal, setsid};
use rustix::thread::UnshareFlags;

/// Mount attributes that cannot be removed again inside the sandbox.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct MountAttributes(u64);

impl MountAttributes {
    /// Nothing on the mount can be changed.
    pub(crate) const READ_ONLY: Self = Self(libc::MOUNT_ATTR_RDONLY);
    /// Set-user-id bits are ignored.
    pub(crate) const NO_SUID: Self = Self(libc::MOUNT_ATTR_NOSUID);
    /// Device files do not work as devices.
    pub(crate) const NO_DEVICES: Self = Self(libc::MOUNT_ATTR_NODEV);
    /// Nothing on the mount can be executed.
    pub(crate) const NO_PROGRAMS: Self = Self(libc::MOUNT_ATTR_NOEXEC);

    /// Returns both together.
    pub(crate) const fn and(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

/// Closes every file descriptor except the standard three.
///
/// Must be called before this process opens a file itself.
///
/// # Errors
///
/// When the kernel is older than 5.9.
pub fn close_inherited_files() -> io::Result<()> {
    // SAFETY: no pointers. Nothing in this process owns a descriptor above 2 yet: it is the first call.
    let result = unsafe { libc::syscall(libc::SYS_close_range, 3, libc::c_uint::MAX, 0) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Restricts a mount; with `recursive` also all mounts below it.
pub(crate) fn restrict_mount(
    mount: impl AsFd,
    attributes: MountAttributes,
    recursive: bool,
) -> io::Result<()> {
    let wanted =
        libc::mount_attr { attr_set: attributes.0, attr_clr: 0, propagation: 0, userns_fd: 0 };
    let flags = libc::AT_EMPTY_PATH | if recursive { libc::AT_RECURSIVE } else { 0 };
    // SAFETY: the path is a literal, the structure outlives the call and its true size is given.
    let result = unsafe {
        libc::syscall(
            libc::SYS_mount_setattr,
            mount.as_fd().as_raw_fd(),
            c"".as_ptr(),
            flags,
            &raw const wanted,
            size_of::<libc::mount_attr>(),
        )
    };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Moves this process into new namespaces.
pub(crate) fn unshare(namespaces: UnshareFlags) -> rustix::io::Result<()> {
    // SAFETY: unshare is unsafe because threads could get different descriptor tables; FILES is never passed here.
    unsafe { rustix::thread::unshare_unsafe(namespaces - UnshareFlags::FILES) }
}

/// Brings the loopback interface of this network namespace up; the kernel adds 127.0.0.1 and ::1 by itself.
pub(crate) fn bring_loopback_up() -> io::Result<()> {
    let socket = rustix::net::socket(
        rustix::net::AddressFamily::INET,
        rustix::net::SocketType::DGRAM,
        None,
    )?;
    // SAFETY: all fields are integers or arrays of integers, for which zero is valid.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    for (to, from) in request.ifr_name.iter_mut().zip(b"lo") {
        // Signed on some architectures.
        *to = libc::c_char::from_ne_bytes([*from]);
    }
    request.ifr_ifru.ifru_flags = (libc::IFF_UP | libc::IFF_RUNNING) as libc::c_short;
    // SAFETY: the structure has the layout that this request expects and outlives the call.
    let result = unsafe {
        libc::ioctl(socket.as_raw_fd(), libc::SIOCSIFFLAGS as libc::Ioctl, &raw const request)
    };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Starts a command in its own session, without a terminal. The kernel kills it when the starting thread ends.
pub(crate) fn start_in_own_session(command: &mut Command) -> &mut Command {
    let prepare = || {
        setsid()?;
        set_parent_process_death_signal(Some(Signal::KILL))?;
        Ok(())
    };
    // SAFETY: two system calls that touch no memory and no lock, as is allowed between fork and exec.
    unsafe { command.pre_exec(prepare) }
}

/// Makes the kernel send SIGTERM to a command when the starting thread ends, so that git can remove its lock files.
///
/// Children of the command inherit a duplicate of its standard input: a lock that was passed there is held until
/// all of them have ended.
pub(crate) fn terminate_with_parent(command: &mut Command) -> &mut Command {
    let us = getpid();
    let prepare = move || {
        // Deliberately leaked, so that it stays open across exec.
        let _ = dup(rustix::stdio::stdin())?.into_raw_fd();
        set_parent_process_death_signal(Some(Signal::TERM))?;
        // If the parent died before that call, the signal will never come.
        if getppid() == Some(us) { Ok(()) } else { Err(io::ErrorKind::Interrupted.into()) }
    };
    // SAFETY: a few system calls that touch no memory and no lock, as is allowed between fork and exec; the error
    // holds no allocation.
    unsafe { command.pre_exec(prepare) }
}
