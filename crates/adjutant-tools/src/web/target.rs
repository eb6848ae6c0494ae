//! The target of a web request: a URL that is checked before anything is sent.
//!
//! The `url` crate parses hosts like browsers: `0x7f.1`, `2130706433`, `127。0。0。1` and `%31%32%37.0.0.1` all
//! become the address 127.0.0.1, and the host that is checked here is the one that is connected to. A
//! look-alike name is shown in its ASCII form.

use std::borrow::Cow;
use std::net::IpAddr;

use adjutant_core::HostSet;
use percent_encoding::percent_decode_str;
use url::{Host, Url};

use crate::Masker;
use crate::args::brief;
use crate::web::page::visible;
use crate::web::{WebAccess, WebError};

/// The allowed ports. Others belong to mail servers, databases and shells, which a crafted request could
/// abuse.
const PORTS: [u16; 4] = [80, 443, 8080, 8443];

/// How many times a percent-encoded text is decoded in search of a secret.
const DECODINGS: usize = 3;

/// A URL that passed all checks that need no network.
#[derive(Clone, Debug)]
pub(crate) struct RequestTarget {
    url: Url,
    host: Host<String>,
    port: u16,
}

impl RequestTarget {
    /// Checks a URL that a model wrote.
    pub(crate) fn parse(web: &WebAccess, masker: &Masker, text: &str) -> Result<Self, WebError> {
        check_length(text, web)?;
        // The parser would drop line breaks and tabs, so that different texts would become the same URL.
        if text.trim().chars().any(|c| c.is_control() || c.is_whitespace()) {
            return Err(WebError::NotAUrl("it contains whitespace".to_owned()));
        }
        let url = Url::parse(text.trim()).map_err(|error| WebError::NotAUrl(error.to_string()))?;
        let has_secret = holds_secret(masker, text) || holds_secret(masker, url.as_str());
        let target = Self::check_url(web, url)?;
        if has_secret { Err(WebError::Secret("URL")) } else { Ok(target) }
    }

    /// Checks the target of a redirect like a new URL.
    ///
    /// Only the search for secrets is skipped: the server cannot know ours, and its redirects often contain
    /// tokens of its own.
    pub(crate) fn parse_redirect(&self, web: &WebAccess, location: &str) -> Result<Self, WebError> {
        let judge = || {
            check_length(location, web)?;
            let url = self.url.join(location);
            let url = url.map_err(|error| WebError::NotAUrl(error.to_string()))?;
            let target = Self::check_url(web, url)?;
            if self.is_secure() && !target.is_secure() {
                return Err(WebError::Downgrade);
            }
            Ok(target)
        };
        judge().map_err(|error| WebError::Redirect {
            to: visible(&brief(location)),
            source: Box::new(error),
        })
    }

    /// Returns `self` if its host is the approved one.
    pub(crate) fn approved_for(self, host: Option<&str>) -> Result<Self, WebError> {
        match host {
            Some(host) if host != self.name() => {
                Err(WebError::OtherHost { found: brief(&self.name()), approved: brief(host) })
            }
            Some(_) | None => Ok(self),
        }
    }

    /// Returns `self` if a redirect to its host is allowed; otherwise the user must approve it first.
    pub(crate) fn allowed_by(self, hosts: Option<&HostSet>) -> Result<Self, WebError> {
        match hosts {
            Some(hosts) if !hosts.contains(&self.name()) => Err(WebError::NewHost {
                host: brief(&self.name()),
                url: visible(self.url.as_str()),
            }),
            Some(_) | None => Ok(self),
        }
    }

    /// Makes a target from the URL of a configured endpoint.
    pub(crate) fn configured(url: Url) -> Result<Self, WebError> {
        let setup = |words: &str| WebError::SearchSetup(words.to_owned());
        if !matches!(url.scheme(), "http" | "https") {
            return Err(setup("its URL must begin with http:// or https://"));
        }
        if !url.username().is_empty() || url.password().is_some() {
            return Err(setup("its URL must not contain a user name or password"));
        }
        Self::from_url(url).ok_or_else(|| setup("its URL has no host"))
    }

    fn check_url(web: &WebAccess, mut url: Url) -> Result<Self, WebError> {
        if !matches!(url.scheme(), "http" | "https") {
            return Err(WebError::Scheme(brief(url.scheme())));
        }
        if !url.username().is_empty() || url.password().is_some() {
            return Err(WebError::Credentials);
        }
        check_length(url.as_str(), web)?;
        url.set_fragment(None);
        // `name.` and `name` are the same host; the dot is removed, so that allow-lists and certificates
        // match.
        let rooted = url.host_str().and_then(|host| host.strip_suffix('.')).map(str::to_owned);
        if let Some(host) = rooted {
            url.set_host(Some(&host)).map_err(|error| WebError::NotAUrl(error.to_string()))?;
        }
        let target =
            Self::from_url(url).ok_or_else(|| WebError::NotAUrl("it has no host".to_owned()))?;
        if !PORTS.contains(&target.port) && !web.is_test_port(target.port) {
            return Err(WebError::Port(target.port));
        }
        Ok(target)
    }

    fn from_url(url: Url) -> Option<Self> {
        let host = url.host()?.to_owned();
        if matches!(&host, Host::Domain(name) if name.split('.').any(str::is_empty)) {
            return None;
        }
        let port = url.port_or_known_default()?;
        Some(Self { url, host, port })
    }

    /// Returns the URL for display and for the journal.
    pub(crate) fn url(&self) -> &Url {
        &self.url
    }

    /// Returns the host without brackets.
    pub(crate) fn name(&self) -> Cow<'_, str> {
        match &self.host {
            Host::Domain(name) => Cow::Borrowed(name),
            Host::Ipv4(address) => Cow::Owned(address.to_string()),
            Host::Ipv6(address) => Cow::Owned(address.to_string()),
        }
    }

    /// Returns the IP address, if the host is one.
    pub(crate) fn address(&self) -> Option<IpAddr> {
        match self.host {
            Host::Domain(_) => None,
            Host::Ipv4(address) => Some(address.into()),
            Host::Ipv6(address) => Some(address.into()),
        }
    }

    /// Returns the value of the `Host` header, with the port only if it is not the default.
    pub(crate) fn authority(&self) -> String {
        match self.url.port() {
            Some(port) => format!("{}:{port}", self.host),
            None => self.host.to_string(),
        }
    }

    /// Returns the path and query for the request line.
    pub(crate) fn path(&self) -> &str {
        &self.url[url::Position::BeforePath..url::Position::AfterQuery]
    }

    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    pub(crate) fn is_secure(&self) -> bool {
        self.url.scheme() == "https"
    }
}

fn check_length(text: &str, web: &WebAccess) -> Result<(), WebError> {
    let (bytes, max) = (text.len(), web.caps().url_bytes);
    if bytes > max { Err(WebError::UrlTooLong { bytes, max }) } else { Ok(()) }
}

/// Returns whether a text contains a secret, also in percent-encoded form.
pub(crate) fn holds_secret(masker: &Masker, text: &str) -> bool {
    let mut text = Cow::Borrowed(text);
    for _ in 0..=DECODINGS {
        if matches!(masker.mask(&text), Cow::Owned(_)) {
            return true;
        }
        let decoded = percent_decode_str(&text).decode_utf8_lossy();
        if decoded == text {
            return false;
        }
        text = Cow::Owned(decoded.into_owned());
    }
    // A text that is encoded more often is treated as if it contained a secret.
    true
}
