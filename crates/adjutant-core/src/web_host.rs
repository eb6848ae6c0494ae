//! Extracts the host of a WebFetch call, accepting only hosts that every URL parser reads alike.
//!
//! A person approves the host that is parsed here, while the fetching tool parses the URL again
//! with its own parser and refuses if it finds another host. Therefore only plain ASCII names and
//! addresses in their usual notation are accepted; everything else is an error and is never
//! fetched.
//!
//! A [`HostSet`] is a set of host names that are allowed.

use std::collections::BTreeSet;
use std::net::{Ipv4Addr, Ipv6Addr};

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// The tool that fetches pages.
pub const WEB_FETCH: &str = "WebFetch";

/// The accepted names of the URL argument.
const URL_NAMES: [&str; 3] = ["url", "uri", "link"];
/// The longest URL that is accepted, in bytes. Inclusive.
const URL_BYTES: usize = 2_048;
/// The DNS limits for a name and for one label, in bytes.
const NAME_BYTES: usize = 253;
const LABEL_BYTES: usize = 63;

/// A set of host names. Each matches exactly; subdomains are not included.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct HostSet(BTreeSet<String>);

impl HostSet {
    /// Collects host names. Returns the first text that is not a host name as the error.
    pub fn new<'a>(names: impl IntoIterator<Item = &'a str>) -> Result<Self, &'a str> {
        names
            .into_iter()
            .map(|name| host_name(name).ok_or(name))
            .collect::<Result<_, _>>()
            .map(Self)
    }

    /// Says whether `host` is in the set.
    #[must_use]
    pub fn contains(&self, host: &str) -> bool {
        self.0.contains(host)
    }

    /// Says whether the set is empty.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Adds a host that `host_name` or `asked_host` returned.
    pub(crate) fn insert(&mut self, host: &str) {
        self.0.insert(host.to_owned());
    }
}

/// Returns the URL of a call as written, and its host.
pub fn asked_host(arguments: &Value) -> Result<(&str, String), &'static str> {
    let mut given =
        URL_NAMES.iter().filter_map(|name| arguments.get(name)).filter(|value| !value.is_null());
    let (Some(Value::String(url)), None) = (given.next(), given.next()) else {
        return Err("give one `url`, as a string");
    };
    Ok((url, host_of(url)?))
}

fn host_of(url: &str) -> Result<String, &'static str> {
    let url = url.trim();
    if url.len() > URL_BYTES {
        return Err("the URL has more than 2,048 bytes");
    }
    if url.chars().any(|c| c.is_control() || c.is_whitespace()) {
        return Err("the URL contains whitespace or control characters");
    }
    let rest = ["https://", "http://"].iter().find_map(|scheme| {
        let (head, rest) = url.split_at_checked(scheme.len())?;
        head.eq_ignore_ascii_case(scheme).then_some(rest)
    });
    let rest = rest.ok_or("the URL must begin with https:// or http://")?;
    let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
    let (host, port) = match authority.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        Some((address, port)) => {
            let address = address.parse::<Ipv6Addr>().map_err(|_| ODD)?;
            (Some(address.to_string()), port)
        }
        None => {
            let at = authority.find(':').unwrap_or(authority.len());
            let (name, port) = authority.split_at(at);
            (plain_name(name), port)
        }
    };
    let is_port = port.is_empty() || port.strip_prefix(':').is_some_and(is_number);
    host.filter(|_| is_port).ok_or(ODD)
}

const ODD: &str = "the host of the URL must be a plain ASCII name or address, without a user name; \
write an international name in its xn-- form";

fn is_number(text: &str) -> bool {
    (1..=5).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_digit())
}

/// Normalises a host that a person wrote: `Docs.rs`, `10.0.0.1`, `::1`. Returns `None` if it is not
/// a host.
#[must_use]
pub fn host_name(text: &str) -> Option<String> {
    text.parse::<Ipv6Addr>().map_or_else(|_| plain_name(text), |address| Some(address.to_string()))
}

fn plain_name(text: &str) -> Option<String> {
    // `name.` and `name` are the same host.
    let name = text.strip_suffix('.').unwrap_or(text).to_ascii_lowercase();
    let is_label = |label: &str| {
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
        (1..=LABEL_BYTES).contains(&label.len()) && label.bytes().all(plain)
    };
    if name.len() > NAME_BYTES || !name.split('.').all(is_label) {
        return None;
    }
    // Browsers read a name that ends in a number as an IPv4 address, in several notations. Only the
    // dotted-decimal one is accepted here.
    let last = name.rsplit('.').next().unwrap_or_default();
    let is_numeric = last.starts_with("0x") || last.bytes().all(|byte| byte.is_ascii_digit());
    let is_address = || name.parse::<Ipv4Addr>().is_ok_and(|address| address.to_string() == name);
    (!is_numeric || is_address()).then_some(name)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_host_is_accepted_if_every_parser_reads_it_alike() {
        for (url, host) in [
            ("https://docs.rs", "docs.rs"),
            ("HTTP://Docs.RS:8080/a?b=@evil.example#c", "docs.rs"),
            (" https://a-b_c.example./x\u{e9} ".trim_end(), "a-b_c.example"),
            ("https://xn--bcher-kva.example?q", "xn--bcher-kva.example"),
            ("https://192.0.2.7/", "192.0.2.7"),
            ("https://[2001:DB8:0::1]:443/", "2001:db8::1"),
            ("https://a.example#@b.example", "a.example"),
        ] {
            assert_eq!(asked_host(&json!({ "url": url })).map(|(_, host)| host), Ok(host.into()));
        }
    }

    #[test]
    fn an_ambiguous_url_is_rejected() {
        for url in [
            "https://a.example\\@b.example/",
            "https://a.example\\.b.example/",
            "https://a@b.example/",
            "https://a:b@c.example/",
            "https:///a.example/",
            "https:a.example/",
            "//a.example/",
            "ftp://a.example/",
            "javascript:fetch('https://a.example')",
            "https://a.example:/",
            "https://a.example:80:80/",
            "https://a.example:0x50/",
            "https://a%2eexample/",
            "https://a..example/",
            "https://.example/",
            "https://a.example../",
            "https://b\u{fc}cher.example/",
            "https://a\u{3002}example/",
            "https://a.exa\tmple/",
            "https://a.example/\nx",
            "https://2130706433/",
            "https://0x7f.1/",
            "https://127.1/",
            "https://0177.0.0.1/",
            "https://127.0.0.0x1/",
            "https://[::1",
            "https://[::1]x/",
            "https://[::1%25eth0]/",
            "https://[127.0.0.1]/",
            "https://",
            "",
        ] {
            assert!(asked_host(&json!({ "url": url })).is_err(), "{url:?}");
        }
        assert!(host_of(&format!("https://{}.example/", "a".repeat(64))).is_err());
        assert!(host_of(&format!("https://a.example/{}", "a".repeat(2_048))).is_err());
    }

    #[test]
    fn exactly_one_url_is_required_and_it_must_be_a_string() {
        let read = |arguments: Value| asked_host(&arguments).map(|(_, host)| host).ok();
        let url = "https://a.example/";
        assert_eq!(read(json!({ "link": url, "url": null })), Some("a.example".into()));
        for odd in [
            json!({ "url": url, "uri": "https://b.example/" }),
            json!({ "url": url, "link": url }),
            json!({ "url": [url] }),
            json!({ "url": 7 }),
            json!({ "URL": url }),
            json!({}),
            json!(url),
            Value::Null,
        ] {
            assert_eq!(read(odd.clone()), None, "{odd}");
        }
    }
}
