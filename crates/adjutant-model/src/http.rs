//! The connections: one client for plain servers, one for encrypted ones, each made when needed.
//!
//! Owns timeouts, TLS and reuse. A local server costs no TLS at all, and certificate roots are
//! read at the first encrypted request. There is no total timeout, because an answer may take as
//! long as it gives signs of life; `read_timeout` notices when it does not. Redirects are not
//! followed: a key must not travel to an address that nobody configured.
//!
//! Roots come from the system (`rustls-platform-verifier`, which reqwest brings along anyway), so
//! that a company's own certificates work and nothing goes stale inside the binary.

use std::sync::OnceLock;
use std::time::Duration;

use reqwest::Client;
use reqwest::redirect::Policy;

/// How long to wait for a connection and for its next byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HttpTimeouts {
    /// For the connection to be made.
    pub connect: Duration,
    /// For the next byte, the first one included; then the attempt ends as idle.
    pub idle: Duration,
}

impl Default for HttpTimeouts {
    /// Ten seconds to connect; five minutes of silence, which the slowest thinkers stay below.
    fn default() -> Self {
        Self { connect: Duration::from_secs(10), idle: Duration::from_secs(300) }
    }
}

/// The clients of a process, shared by all its models.
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

    /// Returns the client for an address, making it at the first call; `None` when TLS is broken.
    pub(crate) fn client(&self, encrypted: bool) -> Option<&Client> {
        if encrypted {
            self.encrypted.get_or_init(|| self.make_encrypted()).as_ref()
        } else {
            self.plain.get_or_init(|| self.make_plain()).as_ref()
        }
    }

    fn make_encrypted(&self) -> Option<Client> {
        // Fails when someone installed one before, which is as good.
        let _ = rustls::crypto::ring::default_provider().install_default();
        self.builder().https_only(true).build().ok()
    }

    /// A configuration without roots keeps reqwest from reading the system's; it is never used.
    fn make_plain(&self) -> Option<Client> {
        let provider = std::sync::Arc::new(rustls::crypto::ring::default_provider());
        let unused = rustls::ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .ok()?
            .with_root_certificates(rustls::RootCertStore::empty())
            .with_no_client_auth();
        // A proxy is for the outside; what is plain is local.
        self.builder().tls_backend_preconfigured(unused).no_proxy().build().ok()
    }

    fn builder(&self) -> reqwest::ClientBuilder {
        Client::builder()
            .connect_timeout(self.timeouts.connect)
            .read_timeout(self.timeouts.idle)
            .redirect(Policy::none())
            .user_agent(concat!("adjutant/", env!("CARGO_PKG_VERSION")))
    }
}
