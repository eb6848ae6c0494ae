//! Fetches that a person approved for one host.

use adjutant_core::HostSet;
use adjutant_tools::{ApprovedHosts, WebAccess};
use serde_json::json;

use super::{Names, Server, redirect, response, rig_with, steady};
use crate::Rig;

fn fetch(rig: &Rig, url: &str, host: &str, hosts: &[&str]) -> String {
    let hosts = HostSet::new(hosts.iter().copied()).unwrap();
    let approved = ApprovedHosts { host, hosts: &hosts };
    crate::shown(&rig.toolbox.fetch(&json!({ "url": url }), approved, &|| false))
}

#[test]
fn a_url_that_two_parsers_read_differently_is_not_fetched() {
    let server = Server::page("text/plain", "here");
    let rig = rig_with(WebAccess::new().with_loopback_for_tests(&[server.port], Vec::new()));
    let port = server.port;
    // The person who approved the URL read another host than the one a request would go to.
    for (url, host) in [
        (format!("http://127.0.0.1:{port}/"), "docs.rs"),
        (format!("http://2130706433:{port}/"), "2130706433"),
        (format!("http://docs.rs\\@127.0.0.1:{port}/"), "127.0.0.1"),
        (format!("http://127.0.0.1:{port}/"), ""),
    ] {
        let said = fetch(&rig, &url, host, &["docs.rs", "127.0.0.1"]);
        assert!(said.contains("was approved"), "{url} as {host}: {said}");
    }
    assert!(server.requests().is_empty());
    let said = fetch(&rig, &format!("http://127.0.0.1:{port}/"), "127.0.0.1", &["127.0.0.1"]);
    assert!(said.contains("here"), "{said}");
}

#[test]
fn a_redirect_to_a_host_that_is_not_allowed_is_not_followed() {
    let names = Names::with(&[("a.example", &["127.0.0.1"]), ("b.example", &["127.0.0.1"])]);
    let server = Server::new(|head, stream| {
        let host = head.lines().find_map(|line| line.strip_prefix("host: ")).unwrap();
        let port = host.rsplit(':').next().unwrap();
        stream.write_all(&match head.split(' ').nth(1).unwrap() {
            "/start" => redirect(&format!("http://B.example.:{port}/end?q=1")),
            _ => response("200 OK", "Content-Type: text/plain\r\n", "arrived"),
        })
    });
    let web = WebAccess::new().with_loopback_for_tests(&[server.port], Vec::new());
    let rig = rig_with(web.with_resolver(names.clone()));
    let start = format!("http://a.example:{}/start", server.port);
    let said = fetch(&rig, &start, "a.example", &["a.example"]);
    insta::assert_snapshot!(steady(&said, server.port), @"error: the page redirects to `b.example`, which is not approved yet; to request approval, fetch http://b.example:PORT/end?q=1");
    assert_eq!(names.asked(), ["a.example"], "the other name is not even resolved");
    let said = fetch(&rig, &start, "a.example", &["a.example", "b.example"]);
    assert!(said.contains("arrived"), "{said}");
}
