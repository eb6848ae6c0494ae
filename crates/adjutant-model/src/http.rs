//! The HTTP clients: one for plain and one for TLS connections, each created on first use.
//!
//! Owns timeouts, TLS and connection reuse. Plain connections need no TLS setup, and certificate roots are
//! loaded at the first TLS request. There is no total timeout, because a response may take as long as it
//! makes progress; `read_timeout` detects silence. Redirects are not followed: a key must not be sent to an
//! address that the user did not configure.
//!
//! Roots come from the system (`rustls-platform-verifier`, which reqwest depends on anyway), so that a
//! company's own certificates work and no root list in the binary becomes outdated. Mozilla's list in the binary is used
//! only where the system has no certificates at all, as in an empty container.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use reqwest::Client;
use reqwest::redirect::Policy;
use rustls::ClientConfig;
use rustls_platform_verifier::Verifier;

/// Timeouts for connecting, for silence, and for the end of a finished response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HttpTimeouts {
    /// The maximum time for connecting.
    pub connect: Duration,
    /// The maximum time until the next byte, including the first; then the attempt fails as idle.
    pub idle: Duration,
    /// How long to wait for the end of the HTTP body after the end of the answer. Only then can the connection be
    /// reused, but each answer of a server that keeps its bodies open is delayed by this time.
    pub drain: Duration,
}

impl Default for HttpTimeouts {
    /// Ten seconds to connect, five minutes of silence, which is more than the slowest reasoning models need, and
    /// 20 milliseconds for the end of the body.
    fn default() -> Self {
        Self {
            connect: Duration::from_secs(10),
            idle: Duration::from_secs(300),
            drain: Duration::from_millis(20),
        }
    }
}

/// The HTTP clients of a process, shared by all its models.
#[derive(Debug, Default)]
pub(crate) struct HttpClients {
    timeouts: HttpTimeouts,
    plain: OnceLock<Option<Client>>,
    encrypted: OnceLock<Option<Client>>,
}

impl HttpClients {
    pub(crate) fn new(timeouts: HttpTimeouts) -> Self {
        Self { timeouts, ..Self::default() }
    }

    /// Returns how long to wait for the end of the body of a finished response.
    pub(crate) const fn drain_time(&self) -> Duration {
        self.timeouts.drain
    }

    /// Returns the client for plain or TLS connections; `None` if TLS cannot be set up.
    pub(crate) fn client(&self, encrypted: bool) -> Option<&Client> {
        if encrypted {
            self.encrypted.get_or_init(|| self.make_encrypted()).as_ref()
        } else {
            self.plain.get_or_init(|| self.make_plain()).as_ref()
        }
    }

    fn make_encrypted(&self) -> Option<Client> {
        // Fails if a provider is already installed, which is fine.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let builder = || self.builder().https_only(true);
        builder()
            .build()
            .ok()
            .or_else(|| builder().tls_backend_preconfigured(bundled_roots().ok()?).build().ok())
    }

    /// An unused TLS configuration without roots keeps reqwest from loading the system's.
    fn make_plain(&self) -> Option<Client> {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let unused = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .ok()?
            .with_root_certificates(rustls::RootCertStore::empty())
            .with_no_client_auth();
        // Plain connections are local, so no proxy is used.
        self.builder().tls_backend_preconfigured(unused).no_proxy().build().ok()
    }

    fn builder(&self) -> reqwest::ClientBuilder {
        Client::builder()
            .connect_timeout(self.timeouts.connect)
            .read_timeout(self.timeouts.idle)
            .redirect(Policy::none())
            // Without /etc/hosts the C library does not know this name. Port 0 stands for the port of the URL.
            .resolve_to_addrs(
                "localhost",
                &[
                    SocketAddr::from((Ipv4Addr::LOCALHOST, 0)),
                    SocketAddr::from((Ipv6Addr::LOCALHOST, 0)),
                ],
            )
            .user_agent(concat!("adjutant/", env!("CARGO_PKG_VERSION")))
    }
}

/// Returns a TLS configuration with the roots in this program, for a system that has none.
fn bundled_roots() -> Result<ClientConfig, rustls::Error> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let roots = webpki_root_certs::TLS_SERVER_ROOT_CERTS.iter().cloned();
    let verifier = Verifier::new_with_extra_roots(roots, Arc::clone(&provider))?;
    Ok(ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(verifier))
        .with_no_client_auth())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bundled_roots_are_accepted() {
        let added = bundled_roots().map(|config| config.alpn_protocols.len());
        assert_eq!(added.ok(), Some(0));
    }
}
