//! The control socket of a live run: where it is bound and how it is reached.
//!
//! What is said over it is of no concern here. A socket's address holds 108 bytes and a state
//! folder may be deeper than that, so both ends name it through a handle on the run's folder.
//!
//! Invariant: only who holds the run binds, so what lies there under another's name is stale.

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

/// Connections the kernel keeps until they are taken.
const BACKLOG: i32 = 16;

/// The right to bind a run's control socket; holds the run as long as it lives.
#[derive(Debug)]
pub struct ControlSocket {
    run: RunDir,
    _lock: Arc<File>,
}

impl ControlSocket {
    pub(crate) const fn new(run: RunDir, lock: Arc<File>) -> Self {
        Self { run, _lock: lock }
    }

    /// Says whether a process of that user may ask anything: ourselves, and who may do all anyway.
    #[must_use]
    pub fn allows_user(uid: u32) -> bool {
        uid == 0 || uid == rustix::process::geteuid().as_raw()
    }

    /// Binds the socket, in place of one that a dead writer left, and listens without blocking.
    pub fn bind(&self) -> Result<UnixListener, FileError> {
        let path = self.run.control_socket_path();
        files::remove(&path).during("remove", &path)?;
        bind(self.run.path()).during("bind", &path)
    }
}

/// Reaches the socket in `folder`. Never waits: a full queue is [`io::ErrorKind::WouldBlock`].
pub(crate) fn connect(folder: &Path) -> io::Result<UnixStream> {
    let (folder, socket) = (open(folder)?, socket()?);
    rustix::net::connect(&socket, &address(&folder)?)?;
    let stream = UnixStream::from(socket);
    stream.set_nonblocking(false)?;
    Ok(stream)
}

fn bind(folder: &Path) -> io::Result<UnixListener> {
    let (folder, socket) = (open(folder)?, socket()?);
    // The name is made with the socket's own mode: it is private from its first instant.
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

/// Returns an address that is short whatever the folder is called.
fn address(folder: &OwnedFd) -> io::Result<SocketAddrUnix> {
    Ok(SocketAddrUnix::new(format!("/proc/self/fd/{}/control.sock", folder.as_raw_fd()))?)
}
