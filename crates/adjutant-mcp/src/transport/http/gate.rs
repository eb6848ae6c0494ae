//! Checks the head of a request before its body is read: host, origin, path and token.
//!
//! A web page in a browser can reach this port too. It cannot set `Host` and `Origin` freely, so they are
//! compared with known names; and it does not have the token.

use hyper::header::{AUTHORIZATION, HOST, HeaderMap, ORIGIN};
use hyper::http::uri::Authority;
use hyper::{StatusCode, Uri};

use super::BearerToken;

/// The path of the MCP endpoint.
pub(crate) const PATH: &str = "/mcp";

/// What the head of every request is compared with.
#[derive(Clone, Debug)]
pub(crate) struct RequestGate {
    /// The server's port, which `Host` must name.
    pub(crate) port: u16,
    /// Allowed names in `Host`: those of this machine.
    pub(crate) names: Vec<String>,
    /// Additional allowed origins, in lower case.
    pub(crate) origins: Vec<String>,
    /// The token. `None` only for conformance suites, which cannot send one.
    pub(crate) token: Option<BearerToken>,
}

/// Explains why a request is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct HttpRefusal {
    /// The status code of the response.
    pub(crate) status: StatusCode,
    /// The body of the response.
    pub(crate) text: &'static str,
}

const fn refusal(status: StatusCode, text: &'static str) -> HttpRefusal {
    HttpRefusal { status, text }
}

const FOREIGN_HOST: HttpRefusal =
    refusal(StatusCode::FORBIDDEN, "Host is not an address of this server");
const FOREIGN_ORIGIN: HttpRefusal = refusal(
    StatusCode::FORBIDDEN,
    "this Origin is not allowed; start the server with --allow-origin to allow it",
);
const WRONG_PATH: HttpRefusal = refusal(StatusCode::NOT_FOUND, "the server is at /mcp");
const WRONG_TOKEN: HttpRefusal =
    refusal(StatusCode::UNAUTHORIZED, "the bearer token is missing or wrong");

impl RequestGate {
    /// Checks host, origin and path.
    pub(crate) fn check_address(&self, uri: &Uri, headers: &HeaderMap) -> Result<(), HttpRefusal> {
        let mut hosts = headers.get_all(HOST).iter();
        let (first, second) = (hosts.next(), hosts.next());
        let named = first.and_then(|host| host.to_str().ok()).and_then(|host| host.parse().ok());
        let is_ours = second.is_none() && named.is_some_and(|host| self.is_own_host(&host));
        if !is_ours || !uri.authority().is_none_or(|host| self.is_own_host(host)) {
            return Err(FOREIGN_HOST);
        }
        let mut origins = headers.get_all(ORIGIN).iter();
        if !origins.all(|origin| origin.to_str().is_ok_and(|origin| self.is_allowed_origin(origin)))
        {
            return Err(FOREIGN_ORIGIN);
        }
        if uri.path() == PATH { Ok(()) } else { Err(WRONG_PATH) }
    }

    /// Checks the token.
    pub(crate) fn check_token(&self, headers: &HeaderMap) -> Result<(), HttpRefusal> {
        let Some(token) = &self.token else { return Ok(()) };
        let mut shown = headers.get_all(AUTHORIZATION).iter();
        let (first, second) = (shown.next(), shown.next());
        let bearer = first.filter(|_| second.is_none()).and_then(|shown| {
            let (scheme, rest) = shown.as_bytes().split_at_checked(7)?;
            scheme.eq_ignore_ascii_case(b"bearer ").then_some(rest)
        });
        if bearer.is_some_and(|shown| token.matches(shown.trim_ascii())) {
            Ok(())
        } else {
            Err(WRONG_TOKEN)
        }
    }

    fn is_own_host(&self, host: &Authority) -> bool {
        let name = host.host().to_ascii_lowercase();
        let has_user = host.as_str().contains('@');
        !has_user && host.port_u16().unwrap_or(80) == self.port && self.names.contains(&name)
    }

    fn is_allowed_origin(&self, origin: &str) -> bool {
        let origin = origin.to_ascii_lowercase();
        let own = origin.strip_prefix("http://").and_then(|rest| rest.parse().ok());
        own.is_some_and(|host| self.is_own_host(&host)) || self.origins.contains(&origin)
    }
}

#[cfg(test)]
mod tests {
    use hyper::header::{HeaderName, HeaderValue};

    use super::*;

    fn gate() -> RequestGate {
        RequestGate {
            port: 8080,
            names: ["127.0.0.1", "localhost", "[::1]"].map(str::to_owned).to_vec(),
            origins: vec!["https://app.example:8443".into()],
            token: Some(BearerToken::parse(&"t".repeat(32)).unwrap()),
        }
    }

    fn headers(all: &[(&'static str, &str)]) -> HeaderMap {
        let pair = |(name, value): &(&'static str, &str)| {
            (HeaderName::from_static(name), HeaderValue::from_bytes(value.as_bytes()).unwrap())
        };
        let mut map = HeaderMap::new();
        for (name, value) in all.iter().map(pair) {
            map.append(name, value);
        }
        map
    }

    #[test]
    fn only_names_of_this_machine_with_the_right_port_are_accepted_hosts() {
        for (host, is_ours) in [
            ("127.0.0.1:8080", true),
            ("localhost:8080", true),
            ("LocalHost:8080", true),
            ("[::1]:8080", true),
            ("127.0.0.1", false),
            ("127.0.0.1:80", false),
            ("localhost:8081", false),
            ("localhost.evil.example:8080", false),
            ("evil.example:8080", false),
            ("evil.example@127.0.0.1:8080", false),
            ("127.0.0.1:8080@evil.example", false),
            ("127.0.0.2:8080", false),
            ("0.0.0.0:8080", false),
            ("", false),
            ("127.0.0.1:8080, evil.example", false),
        ] {
            let judged =
                gate().check_address(&Uri::from_static("/mcp"), &headers(&[("host", host)]));
            assert_eq!(judged.is_ok(), is_ours, "{host}: {judged:?}");
        }
        let twice = headers(&[("host", "localhost:8080"), ("host", "evil.example")]);
        assert_eq!(gate().check_address(&Uri::from_static("/mcp"), &twice), Err(FOREIGN_HOST));
        let none = gate().check_address(&Uri::from_static("/mcp"), &HeaderMap::new());
        assert_eq!(none, Err(FOREIGN_HOST));
        let absolute = Uri::from_static("http://evil.example/mcp");
        let judged = gate().check_address(&absolute, &headers(&[("host", "localhost:8080")]));
        assert_eq!(judged, Err(FOREIGN_HOST));
    }

    #[test]
    fn only_own_and_allowed_origins_are_accepted() {
        for (origin, is_allowed) in [
            ("http://127.0.0.1:8080", true),
            ("http://localhost:8080", true),
            ("http://[::1]:8080", true),
            ("https://app.example:8443", true),
            ("https://APP.example:8443", true),
            ("https://app.example", false),
            ("http://app.example:8443", false),
            ("https://localhost:8080", false),
            ("http://localhost:3000", false),
            ("http://localhost:8080.evil.example", false),
            ("null", false),
            ("", false),
            ("file://", false),
        ] {
            let headers = headers(&[("host", "localhost:8080"), ("origin", origin)]);
            let judged = gate().check_address(&Uri::from_static("/mcp"), &headers);
            assert_eq!(judged.is_ok(), is_allowed, "{origin}: {judged:?}");
        }
    }

    #[test]
    fn only_one_complete_token_is_accepted() {
        let right = "t".repeat(32);
        for (shown, is_open) in [
            (format!("Bearer {right}"), true),
            (format!("bearer  {right}"), true),
            (right.clone(), false),
            ("Bearer ".into(), false),
            ("Bearer".into(), false),
            (String::new(), false),
            (format!("Basic {right}"), false),
            (format!("Bearer {right}t"), false),
            (format!("Bearer {}", "t".repeat(31)), false),
        ] {
            let judged = gate().check_token(&headers(&[("authorization", &shown)]));
            assert_eq!(judged.is_ok(), is_open, "{shown:?}");
        }
        let shown = format!("Bearer {right}");
        let twice = headers(&[("authorization", &shown), ("authorization", &shown)]);
        assert_eq!(gate().check_token(&twice), Err(WRONG_TOKEN));
        assert_eq!(gate().check_token(&HeaderMap::new()), Err(WRONG_TOKEN));
    }
}
