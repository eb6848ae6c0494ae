//! Resolves host names, once per request.

use std::io;
use std::net::{IpAddr, ToSocketAddrs};

/// Resolves host names to addresses.
///
/// Called exactly once per request; the returned addresses are checked and connected to. May block: it runs
/// on its own thread and is abandoned when the call times out.
pub trait Resolver: Send + Sync + std::fmt::Debug {
    /// Returns all addresses of `host`, in the order in which to try them.
    fn resolve(&self, host: &str) -> io::Result<Vec<IpAddr>>;
}

/// The resolver of the operating system.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemResolver;

impl Resolver for SystemResolver {
    fn resolve(&self, host: &str) -> io::Result<Vec<IpAddr>> {
        Ok((host, 0).to_socket_addrs()?.map(|address| address.ip()).collect())
    }
}
