//! A server of the engine that programs in a sandbox reach on their private loopback interface.
//!
//! The namespace holder binds the socket, because the network namespace is its own, and passes it to the engine. The
//! socket belongs to that namespace for good: programs outside cannot connect to it, whatever process serves it.

use std::io;
use std::net::TcpListener;
use std::os::fd::OwnedFd;

use super::run::{NetworkAccess, Sandbox};
use super::wire;

/// Says why there is no listener in a sandbox's network namespace.
#[derive(Debug, thiserror::Error)]
pub enum LoopbackListenError {
    /// The sandbox has no network namespace of its own.
    #[error(
        "programs of this sandbox use the machine's network; a listener for them needs a private one"
    )]
    NetworkGranted,
    /// The kernel refused.
    #[error("cannot listen on the sandbox's loopback address: {why}")]
    Refused {
        /// What failed, with the system's error message.
        why: String,
    },
    /// The namespace holder failed.
    #[error("the sandbox helper failed")]
    Helper(#[from] io::Error),
}

impl Sandbox {
    /// Listens at `127.0.0.1` in the network namespace of this sandbox, at a port that the kernel chooses.
    ///
    /// The caller serves the connections; they come from programs in this workspace and from nowhere else. Every run of
    /// this sandbox can connect, and so can runs of other sandboxes of the same mounted workspace.
    ///
    /// # Errors
    ///
    /// [`LoopbackListenError::NetworkGranted`] if programs use the machine's network; otherwise what failed.
    pub fn listen_on_loopback(&self) -> Result<TcpListener, LoopbackListenError> {
        match self.config().network {
            NetworkAccess::Off => {}
            NetworkAccess::Granted => return Err(LoopbackListenError::NetworkGranted),
        }
        let holder = self.holder().ok_or(io::ErrorKind::NotConnected).map_err(io::Error::from)?;
        let files = holder
            .listen()?
            .map_err(|failure| LoopbackListenError::Refused { why: failure.to_string() })?;
        let socket = wire::next_file(&mut files.into_iter())?;
        Ok(TcpListener::from(OwnedFd::from(socket)))
    }
}
