//! Access to the web, which enables the web tools, and its configuration.

use std::sync::{Arc, OnceLock};

use rustls::ClientConfig;
use rustls::pki_types::CertificateDer;
use rustls_platform_verifier::Verifier;

use crate::web::address::AddressScope;
use crate::web::endpoint::SearchEndpoint;
use crate::web::{Resolver, SystemResolver, WebCaps};

/// Access to the web: allowed addresses, name resolution, search engine and limits.
///
/// Creating it is cheap; certificates are loaded by the first request that needs them.
#[derive(Debug)]
pub struct WebAccess {
    resolver: Arc<dyn Resolver>,
    search: Option<SearchEndpoint>,
    caps: WebCaps,
    tls: OnceLock<Result<Arc<ClientConfig>, String>>,
    tests: WebTestHook,
}

/// Settings for tests, which no configuration can reach.
#[derive(Debug, Default)]
struct WebTestHook {
    loopback_ports: Vec<u16>,
    extra_roots: Vec<Vec<u8>>,
}

impl Default for WebAccess {
    fn default() -> Self {
        Self {
            resolver: Arc::new(SystemResolver),
            search: None,
            caps: WebCaps::default(),
            tls: OnceLock::new(),
            tests: WebTestHook::default(),
        }
    }
}

impl WebAccess {
    /// Makes the access that `--allow-network` grants: every public domain, no search engine.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets the search engine, which must come from the user and never from a project.
    #[must_use]
    pub fn with_search(self, endpoint: SearchEndpoint) -> Self {
        Self { search: Some(endpoint), ..self }
    }

    /// Sets the limits.
    #[must_use]
    pub fn with_caps(self, caps: WebCaps) -> Self {
        Self { caps, ..self }
    }

    /// Sets the resolver for host names.
    #[must_use]
    pub fn with_resolver(self, resolver: Arc<dyn Resolver>) -> Self {
        Self { resolver, ..self }
    }

    /// Allows loopback addresses on these ports and trusts these certificates (DER).
    ///
    /// For tests, which use local servers.
    #[doc(hidden)]
    #[must_use]
    pub fn with_loopback_for_tests(self, ports: &[u16], extra_roots: Vec<Vec<u8>>) -> Self {
        Self { tests: WebTestHook { loopback_ports: ports.to_vec(), extra_roots }, ..self }
    }

    pub(crate) fn resolver(&self) -> Arc<dyn Resolver> {
        Arc::clone(&self.resolver)
    }

    pub(crate) fn search(&self) -> Option<&SearchEndpoint> {
        self.search.as_ref()
    }

    pub(crate) fn caps(&self) -> &WebCaps {
        &self.caps
    }

    pub(crate) fn reach(&self) -> AddressScope<'_> {
        AddressScope::Public { loopback_ports: &self.tests.loopback_ports }
    }

    pub(crate) fn is_test_port(&self, port: u16) -> bool {
        self.tests.loopback_ports.contains(&port)
    }

    /// Returns the TLS configuration; loads the system's certificates on first use.
    pub(crate) fn tls(&self) -> Result<Arc<ClientConfig>, String> {
        let load = || self.load_tls().map_err(|error| error.to_string());
        self.tls.get_or_init(load).clone()
    }

    fn load_tls(&self) -> Result<Arc<ClientConfig>, rustls::Error> {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let extra = || self.tests.extra_roots.iter().cloned().map(CertificateDer::from);
        let bundled = || webpki_root_certs::TLS_SERVER_ROOT_CERTS.iter().cloned();
        // The roots in this program are for a system that has none.
        let verifier = Verifier::new_with_extra_roots(extra(), Arc::clone(&provider))
            .or_else(|_| Verifier::new_with_extra_roots(bundled(), Arc::clone(&provider)))?;
        let config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()?
            // `dangerous` is rustls' name for setting any custom verifier; this one uses the system's roots.
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(verifier))
            .with_no_client_auth();
        Ok(Arc::new(config))
    }
}
