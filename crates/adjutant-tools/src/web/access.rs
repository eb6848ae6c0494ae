//! The handle that turns the web tools on, and what a person chose for them.

use std::sync::{Arc, OnceLock};

use rustls::ClientConfig;
use rustls::pki_types::CertificateDer;
use rustls_platform_verifier::Verifier;

use crate::web::address::AddressScope;
use crate::web::endpoint::SearchEndpoint;
use crate::web::{Resolver, SystemResolver, WebCaps};

/// The web, for those who were granted it: whom to ask, how names are resolved, and the caps.
///
/// Making one costs nothing; certificates are loaded by the first request that needs them.
#[derive(Debug)]
pub struct WebAccess {
    resolver: Arc<dyn Resolver>,
    search: Option<SearchEndpoint>,
    caps: WebCaps,
    tls: OnceLock<Result<Arc<ClientConfig>, String>>,
    tests: WebTestHook,
}

/// What only tests set: there is no way to it from a configuration.
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
    /// Makes the web as `--allow-network` grants it: every public domain, no search engine.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Searches with `endpoint`, which must come from a person and never from a project.
    #[must_use]
    pub fn with_search(self, endpoint: SearchEndpoint) -> Self {
        Self { search: Some(endpoint), ..self }
    }

    /// Takes at most what `caps` says.
    #[must_use]
    pub fn with_caps(self, caps: WebCaps) -> Self {
        Self { caps, ..self }
    }

    /// Resolves names with `resolver`.
    #[must_use]
    pub fn with_resolver(self, resolver: Arc<dyn Resolver>) -> Self {
        Self { resolver, ..self }
    }

    /// Treats loopback addresses as public on these ports, and trusts these certificates (DER).
    ///
    /// For tests, which have no other server than their own.
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

    /// Returns how secure connections are made, loading the system's certificates on first use.
    pub(crate) fn tls(&self) -> Result<Arc<ClientConfig>, String> {
        let load = || self.load_tls().map_err(|error| error.to_string());
        self.tls.get_or_init(load).clone()
    }

    fn load_tls(&self) -> Result<Arc<ClientConfig>, rustls::Error> {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let roots = self.tests.extra_roots.iter().cloned().map(CertificateDer::from);
        let verifier = Verifier::new_with_extra_roots(roots, Arc::clone(&provider))?;
        let config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()?
            // Named so by rustls for any verifier but its own; this one asks the system's roots.
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(verifier))
            .with_no_client_auth();
        Ok(Arc::new(config))
    }
}
