//! Which URLs are fetched at all.

use std::sync::Arc;

use adjutant_tools::{ToolName, WebAccess};
use serde_json::json;

use super::{Names, Server, rig, rig_with, steady};
use crate::args::refused_arguments;
use crate::{Rig, shown};

#[test]
fn no_notation_of_a_private_address_passes() {
    let names = Names::with(&[
        ("localhost", &["127.0.0.1 ::1"]),
        ("metadata.google.internal", &["169.254.169.254"]),
        ("mixed.example", &["93.184.215.14 10.0.0.1"]),
        ("mixed6.example", &["93.184.215.14 fe80::1"]),
        ("empty.example", &[]),
    ]);
    let rig = rig_with(WebAccess::new().with_resolver(names));
    let urls = "
        http://127.0.0.1/ http://127.1/ http://2130706433/ http://0x7f000001/ http://0177.0.0.1/
        http://0x7f.0x0.0x0.0x1/ http://0/ http://0.0.0.0/ http://127.0.0.1./ http://127.0.0.1../
        http://127.0.1/ http://10.1/ http://%31%32%37.0.0.1/ http://127%2e0%2e0%2e1/
        http://１２７.０.０.１/ http://127。0。0。1/ http://①②⑦.0.0.1/ http://127.0.0.1:443/
        http://192.168.0.1\\@example.com/ http:\\\\127.0.0.1/ http:/127.0.0.1/ http:127.0.0.1
        http://[::1]/ http://[::]/ http://[::ffff:127.0.0.1]/ http://[::ffff:7f00:1]/ http://[::127.0.0.1]/
        http://[64:ff9b::a9fe:a9fe]/ http://[2002:7f00:1::]/ http://[fe80::1]/ http://[fe80::1%25eth0]/
        http://[fd00:ec2::254]/ http://169.254.169.254/latest/meta-data/ http://[0:0:0:0:0:0:0:1]/
        http://localhost/ http://LOCALHOST./ http://metadata.google.internal/ http://mixed.example/
        http://mixed6.example/ http://empty.example/ http://unknown.example/
        http://256.1.1.1/ http://1.2.3.4.5/ http://0x100000000/ http://./ http://a..b/ http:///
    ";
    let said: Vec<_> =
        urls.split_whitespace().map(|url| format!("{url}\n  {}", rig.fetch(url))).collect();
    insta::assert_snapshot!(said.join("\n"), @r"
    http://127.0.0.1/
      error: `127.0.0.1` resolves to an address that is not public (loopback), so no request was sent
    http://127.1/
      error: `127.0.0.1` resolves to an address that is not public (loopback), so no request was sent
    http://2130706433/
      error: `127.0.0.1` resolves to an address that is not public (loopback), so no request was sent
    http://0x7f000001/
      error: `127.0.0.1` resolves to an address that is not public (loopback), so no request was sent
    http://0177.0.0.1/
      error: `127.0.0.1` resolves to an address that is not public (loopback), so no request was sent
    http://0x7f.0x0.0x0.0x1/
      error: `127.0.0.1` resolves to an address that is not public (loopback), so no request was sent
    http://0/
      error: `0.0.0.0` resolves to an address that is not public (this-network), so no request was sent
    http://0.0.0.0/
      error: `0.0.0.0` resolves to an address that is not public (this-network), so no request was sent
    http://127.0.0.1./
      error: `127.0.0.1` resolves to an address that is not public (loopback), so no request was sent
    http://127.0.0.1../
      error: `127.0.0.1` resolves to an address that is not public (loopback), so no request was sent
    http://127.0.1/
      error: `127.0.0.1` resolves to an address that is not public (loopback), so no request was sent
    http://10.1/
      error: `10.0.0.1` resolves to an address that is not public (private), so no request was sent
    http://%31%32%37.0.0.1/
      error: `127.0.0.1` resolves to an address that is not public (loopback), so no request was sent
    http://127%2e0%2e0%2e1/
      error: `127.0.0.1` resolves to an address that is not public (loopback), so no request was sent
    http://１２７.０.０.１/
      error: `127.0.0.1` resolves to an address that is not public (loopback), so no request was sent
    http://127。0。0。1/
      error: `127.0.0.1` resolves to an address that is not public (loopback), so no request was sent
    http://①②⑦.0.0.1/
      error: `127.0.0.1` resolves to an address that is not public (loopback), so no request was sent
    http://127.0.0.1:443/
      error: `127.0.0.1` resolves to an address that is not public (loopback), so no request was sent
    http://192.168.0.1\@example.com/
      error: `192.168.0.1` resolves to an address that is not public (private), so no request was sent
    http:\\127.0.0.1/
      error: `127.0.0.1` resolves to an address that is not public (loopback), so no request was sent
    http:/127.0.0.1/
      error: `127.0.0.1` resolves to an address that is not public (loopback), so no request was sent
    http:127.0.0.1
      error: `127.0.0.1` resolves to an address that is not public (loopback), so no request was sent
    http://[::1]/
      error: `::1` resolves to an address that is not public (loopback), so no request was sent
    http://[::]/
      error: `::` resolves to an address that is not public (unspecified), so no request was sent
    http://[::ffff:127.0.0.1]/
      error: `::ffff:127.0.0.1` resolves to an address that is not public (loopback), so no request was sent
    http://[::ffff:7f00:1]/
      error: `::ffff:127.0.0.1` resolves to an address that is not public (loopback), so no request was sent
    http://[::127.0.0.1]/
      error: `::7f00:1` resolves to an address that is not public (IPv4-compatible), so no request was sent
    http://[64:ff9b::a9fe:a9fe]/
      error: `64:ff9b::a9fe:a9fe` resolves to an address that is not public (link-local), so no request was sent
    http://[2002:7f00:1::]/
      error: `2002:7f00:1::` resolves to an address that is not public (6to4), so no request was sent
    http://[fe80::1]/
      error: `fe80::1` resolves to an address that is not public (link-local), so no request was sent
    http://[fe80::1%25eth0]/
      error: `url` is not a full URL such as https://example.com/page: invalid IPv6 address
    http://[fd00:ec2::254]/
      error: `fd00:ec2::254` resolves to an address that is not public (unique local), so no request was sent
    http://169.254.169.254/latest/meta-data/
      error: `169.254.169.254` resolves to an address that is not public (link-local), so no request was sent
    http://[0:0:0:0:0:0:0:1]/
      error: `::1` resolves to an address that is not public (loopback), so no request was sent
    http://localhost/
      error: `localhost` resolves to an address that is not public (loopback), so no request was sent
    http://LOCALHOST./
      error: `localhost` resolves to an address that is not public (loopback), so no request was sent
    http://metadata.google.internal/
      error: `metadata.google.internal` resolves to an address that is not public (link-local), so no request was sent
    http://mixed.example/
      error: `mixed.example` resolves to an address that is not public (private), so no request was sent
    http://mixed6.example/
      error: `mixed6.example` resolves to an address that is not public (link-local), so no request was sent
    http://empty.example/
      error: no address is known for `empty.example`; check the spelling of the host
    http://unknown.example/
      error: no address is known for `unknown.example`; check the spelling of the host
    http://256.1.1.1/
      error: `url` is not a full URL such as https://example.com/page: invalid IPv4 address
    http://1.2.3.4.5/
      error: `url` is not a full URL such as https://example.com/page: invalid IPv4 address
    http://0x100000000/
      error: `url` is not a full URL such as https://example.com/page: invalid IPv4 address
    http://./
      error: `url` is not a full URL such as https://example.com/page: empty host
    http://a..b/
      error: `url` is not a full URL such as https://example.com/page: it has no host
    http:///
      error: `url` is not a full URL such as https://example.com/page: empty host
    ");
}

#[test]
fn only_http_and_https_urls_are_accepted() {
    let rig = rig(1);
    let long = format!("http://example.com/{}", "a".repeat(2048));
    let urls = [
        "",
        "example.com",
        "/etc/passwd",
        "file:///etc/passwd",
        "ftp://example.com/",
        "gopher://example.com/",
        "data:text/html,hello",
        "javascript:alert(1)",
        "view-source:http://example.com",
        "http://name@example.com/",
        "http://:pw@example.com/",
        "http://example.com:22/",
        "http://example.com:25/",
        "http://example.com:6379/",
        "http://example.com:99999/",
        "http://exa mple.com/",
        "http://example.com/\r\nHost: evil",
        "http://exam\tple.com/",
        &long,
    ];
    let said: Vec<_> = urls.iter().map(|url| rig.fetch(url)).collect();
    insta::assert_snapshot!(said.join("\n"), @"
    error: `url` is required
    error: `url` is not a full URL such as https://example.com/page: relative URL without a base
    error: `url` is not a full URL such as https://example.com/page: relative URL without a base
    error: only http and https can be fetched, not `file`
    error: only http and https can be fetched, not `ftp`
    error: only http and https can be fetched, not `gopher`
    error: only http and https can be fetched, not `data`
    error: only http and https can be fetched, not `javascript`
    error: only http and https can be fetched, not `view-source`
    error: the URL contains a user name or password; leave it out
    error: the URL contains a user name or password; leave it out
    error: port 22 is not allowed; use 80, 443, 8080 or 8443
    error: port 25 is not allowed; use 80, 443, 8080 or 8443
    error: port 6379 is not allowed; use 80, 443, 8080 or 8443
    error: `url` is not a full URL such as https://example.com/page: invalid port number
    error: `url` is not a full URL such as https://example.com/page: it contains whitespace
    error: `url` is not a full URL such as https://example.com/page: it contains whitespace
    error: `url` is not a full URL such as https://example.com/page: it contains whitespace
    error: the URL has 2067 bytes, at most 2048 are sent
    ");
}

#[test]
fn a_url_that_contains_a_secret_is_not_requested() {
    let names = Names::with(&[("example.com", &["127.0.0.1"])]);
    let rig = rig_with(WebAccess::new().with_resolver(Arc::clone(&names) as _));
    for url in [
        "http://example.com/?q=own-key-of-the-engine",
        "http://own-key-of-the-engine.example.com/",
        "http://example.com/%6fwn-key-of-the-engine",
        "http://example.com/%256fwn-key-of-the-engine",
        "http://example.com/%25256fwn-key-of-the-engine",
        "http://example.com/%2525256fwn-key-of-the-engine",
        "http://example.com/#own-key-of-the-engine",
        "http://example.com/ghp_0123456789abcdefghijklmnopqrstuvwxyzAB",
        "http://example.com/?token=a8f5f167f44f4964e6c998dee827110c",
    ] {
        assert_eq!(rig.fetch(url), "error: the URL contains a secret, so it was not sent", "{url}");
    }
    assert_eq!(names.asked(), Vec::<String>::new());
}

#[test]
fn a_homograph_host_is_resolved_and_shown_by_its_ascii_name() {
    let server = Server::page("text/plain", "hello");
    let names = Names::with(&[("xn--pple-43d.example", &["127.0.0.1"])]);
    let web = WebAccess::new().with_resolver(Arc::clone(&names) as _);
    let rig = rig_with(web.with_loopback_for_tests(&[server.port], Vec::new()));
    let text = rig.fetch(&format!("http://аpple.example:{}/", server.port));
    insta::assert_snapshot!(steady(&text, server.port), @r#"
    <page url="http://xn--pple-43d.example:PORT/" status="200" type="text/plain" bytes="5">
    hello
    </page>
    "#);
}

#[test]
fn a_name_is_resolved_once_and_that_answer_is_used() {
    let server = Server::page("text/plain", "hello");
    let names = Names::with(&[("rebind.example", &["127.0.0.1", "10.0.0.1"])]);
    let web = WebAccess::new().with_resolver(Arc::clone(&names) as _);
    let rig = rig_with(web.with_loopback_for_tests(&[server.port], Vec::new()));
    let url = format!("http://rebind.example:{}/", server.port);
    assert!(rig.fetch(&url).contains("hello"));
    assert_eq!(names.asked(), ["rebind.example"]);
    let head = &server.requests()[0];
    assert!(head.contains(&format!("host: rebind.example:{}\r\n", server.port)), "{head}");
    // The next call resolves anew, and judges anew.
    insta::assert_snapshot!(rig.fetch(&url), @"error: `rebind.example` resolves to an address that is not public (private), so no request was sent");
    assert_eq!(server.requests().len(), 1);
}

#[test]
fn one_private_address_among_public_ones_refuses_them_all() {
    let server = Server::page("text/plain", "hello");
    let names = Names::with(&[("mixed.example", &["127.0.0.1 10.0.0.1"])]);
    let web = WebAccess::new().with_resolver(names);
    let rig = rig_with(web.with_loopback_for_tests(&[server.port], Vec::new()));
    let text = rig.fetch(&format!("http://mixed.example:{}/", server.port));
    insta::assert_snapshot!(text, @"error: `mixed.example` resolves to an address that is not public (private), so no request was sent");
    assert_eq!(server.requests().len(), 0);
}

#[test]
fn web_tools_exist_only_with_web_access() {
    let names =
        |rig: &Rig| rig.toolbox.specs().into_iter().map(|spec| spec.name).collect::<Vec<_>>();
    assert_eq!(names(&Rig::new()), ["Read", "Grep", "Glob", "Note", "Edit", "Write", "Run"]);
    let rig = rig_with(WebAccess::new());
    assert_eq!(names(&rig), ["Read", "Grep", "Glob", "Note", "WebFetch", "Edit", "Write", "Run"]);
    for spec in rig.toolbox.specs() {
        assert_eq!(refused_arguments(&rig, &spec), Vec::<String>::new(), "{}", spec.name);
    }
    let answer = shown(&rig.output(ToolName::WebFetch, &json!({"address": "x"})));
    insta::assert_snapshot!(answer, @"error: unknown argument `address`; WebFetch takes `url`, `max_chars`");
}
