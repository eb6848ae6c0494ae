//! Names become addresses here, once per request.

use std::io;
use std::net::{IpAddr, ToSocketAddrs};

/// Finds the addresses of a name.
///
/// Asked exactly once for each request, and the answer is what is checked and connected to. May
/// block; it runs on a thread of its own and is not waited for once the call's time is up.
pub trait Resolver: Send + Sync + std::fmt::Debug {
    /// Returns all addresses of `host`, in the order they should be tried.
    fn resolve(&self, host: &str) -> io::Result<Vec<IpAddr>>;
}

/// Asks the operating system.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemResolver;

impl Resolver for SystemResolver {
    fn resolve(&self, host: &str) -> io::Result<Vec<IpAddr>> {
        Ok((host, 0).to_socket_addrs()?.map(|address| address.ip()).collect())
    }
}
