//! The control socket of a live run: binds it and connects to it.
//!
//! The protocol is not defined here. A socket address has at most 108 bytes and the state directory's path
//! may be longer, so both sides address the socket through a file descriptor of the run's directory.
//!
//! Invariant: only the process that holds the run's lock binds the socket, so an existing one is stale.
//!
//! A [`ControlSocket`] is the bound socket.

use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::sync::Arc;

use rustix::fs::{Mode, OFlags};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};

use crate::files::{self, FileError, FileErrorContext};
use crate::run_dir::RunDir;

/// How many connections the kernel queues until they are accepted.
const BACKLOG: i32 = 16;

/// The control socket of a run that this process has locked. Keeps the run locked until it is dropped.
#[derive(Debug)]
pub struct ControlSocket {
    run: RunDir,
    _lock: Arc<File>,
}

impl ControlSocket {
    pub(crate) const fn new(run: RunDir, lock: Arc<File>) -> Self {
        Self { run, _lock: lock }
    }

    /// Returns whether processes of this user may send requests: only the current user and root.
    #[must_use]
    pub fn allows_user(uid: u32) -> bool {
        uid == 0 || uid == rustix::process::geteuid().as_raw()
    }

    /// Binds the socket and returns a non-blocking listener. Replaces a socket that a killed writer left.
    pub fn bind(&self) -> Result<UnixListener, FileError> {
        let path = self.run.control_socket_path();
        files::remove(&path).during("remove", &path)?;
        bind(self.run.path()).during("bind", &path)
    }
}

/// Connects to the socket in `folder`. Never blocks: a full queue is [`io::ErrorKind::WouldBlock`].
pub(crate) fn connect(folder: &Path) -> io::Result<UnixStream> {
    let (folder, socket) = (open(folder)?, socket()?);
    rustix::net::connect(&socket, &address(&folder)?)?;
    let stream = UnixStream::from(socket);
    stream.set_nonblocking(false)?;
    Ok(stream)
}

fn bind(folder: &Path) -> io::Result<UnixListener> {
    let (folder, socket) = (open(folder)?, socket()?);
    // `bind` creates the file with the socket's mode, so it is never accessible to other users.
    rustix::fs::fchmod(&socket, Mode::RUSR | Mode::WUSR)?;
    rustix::net::bind(&socket, &address(&folder)?)?;
    rustix::net::listen(&socket, BACKLOG)?;
    Ok(UnixListener::from(socket))
}

fn socket() -> io::Result<OwnedFd> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    Ok(rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?)
}

fn open(folder: &Path) -> io::Result<OwnedFd> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    Ok(rustix::fs::open(folder, flags, Mode::empty())?)
}

/// Returns a socket address that is short even if the path of the directory is long.
fn address(folder: &OwnedFd) -> io::Result<SocketAddrUnix> {
    Ok(SocketAddrUnix::new(format!("/proc/self/fd/{}/control.sock", folder.as_raw_fd()))?)
}
