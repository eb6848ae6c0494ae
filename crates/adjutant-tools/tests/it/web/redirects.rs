//! Where a page may lead.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::sync::Arc;

use adjutant_tools::WebAccess;
use rustls::pki_types::PrivatePkcs8KeyDer;
use rustls::{ServerConfig, ServerConnection, StreamOwned};

use super::{Names, Server, Stream, redirect, response, rig, rig_with, steady};

#[test]
fn a_redirect_is_followed_and_every_url_is_listed() {
    let server = Server::new(|head, stream| {
        stream.write_all(&match head.split(' ').nth(1).unwrap() {
            "/a" => redirect("/b/c?d=1#e"),
            "/b/c?d=1" => redirect("f"),
            _ => response("200 OK", "Content-Type: text/plain\r\n", "arrived"),
        })
    });
    let output = rig(server.port).fetched(&format!("http://127.0.0.1:{}/a", server.port));
    insta::assert_snapshot!(steady(&output.text, server.port), @r#"
    <page url="http://127.0.0.1:PORT/b/f" status="200" type="text/plain" bytes="7">
    arrived
    </page>
    [redirected from http://127.0.0.1:PORT/a]
    "#);
    insta::assert_snapshot!(steady(&output.touched.join("\n"), server.port), @"
    http://127.0.0.1:PORT/a
    http://127.0.0.1:PORT/b/c?d=1
    http://127.0.0.1:PORT/b/f
    ");
    let heads = server.requests().join("");
    for absent in ["cookie", "referer", "authorization", "accept-language"] {
        assert!(!heads.to_lowercase().contains(absent), "{heads}");
    }
    insta::assert_snapshot!(steady(&server.requests()[0].replace('\r', ""), server.port), @"
    GET /a HTTP/1.1
    host: 127.0.0.1:PORT
    user-agent: adjutant/VERSION
    accept: text/html, text/markdown, text/plain, application/json, */*;q=0.5
    accept-encoding: gzip
    connection: close
    ");
}

#[test]
fn a_redirect_is_judged_like_a_url_of_its_own() {
    let names = Names::with(&[
        ("start.example", &["127.0.0.1"]),
        ("inside.example", &["10.0.0.1"]),
        ("mixed.example", &["127.0.0.1 192.168.1.1"]),
    ]);
    let places = [
        "http://10.0.0.1/",
        "http://169.254.169.254/latest/meta-data/",
        "http://127.0.0.1/",
        "http://127.0.0.1:8080/",
        "http://2130706433/",
        "http://0x7f.1:8443/",
        "http://[::1]/",
        "http://[::ffff:10.0.0.1]/",
        "//127.1/",
        "http://inside.example/",
        "http://mixed.example/",
        "http://name:word@example.com/",
        "http://127.0.0.1:22/",
        "file:///etc/passwd",
        "javascript:alert(1)",
        "gopher://127.0.0.1:70/",
        "http://",
    ];
    let mut said = Vec::new();
    for place in places {
        let server = Server::fixed(redirect(place));
        let web = WebAccess::new().with_resolver(Arc::clone(&names) as _);
        let rig = rig_with(web.with_loopback_for_tests(&[server.port], Vec::new()));
        said.push(rig.fetch(&format!("http://start.example:{}/", server.port)));
        assert_eq!(server.requests().len(), 1, "{place}");
    }
    insta::assert_snapshot!(said.join("\n"), @"
    error: the page redirects to `http://10.0.0.1/`, which was not followed: `10.0.0.1` resolves to an address that is not public (private), so no request was sent
    error: the page redirects to `http://169.254.169.254/latest/meta-data/`, which was not followed: `169.254.169.254` resolves to an address that is not public (link-local), so no request was sent
    error: the page redirects to `http://127.0.0.1/`, which was not followed: `127.0.0.1` resolves to an address that is not public (loopback), so no request was sent
    error: the page redirects to `http://127.0.0.1:8080/`, which was not followed: `127.0.0.1` resolves to an address that is not public (loopback), so no request was sent
    error: the page redirects to `http://127.0.0.1/`, which was not followed: `127.0.0.1` resolves to an address that is not public (loopback), so no request was sent
    error: the page redirects to `http://127.0.0.1:8443/`, which was not followed: `127.0.0.1` resolves to an address that is not public (loopback), so no request was sent
    error: the page redirects to `http://[::1]/`, which was not followed: `::1` resolves to an address that is not public (loopback), so no request was sent
    error: the page redirects to `http://[::ffff:a00:1]/`, which was not followed: `::ffff:10.0.0.1` resolves to an address that is not public (private), so no request was sent
    error: the page redirects to `http://127.0.0.1/`, which was not followed: `127.0.0.1` resolves to an address that is not public (loopback), so no request was sent
    error: the page redirects to `http://inside.example/`, which was not followed: `inside.example` resolves to an address that is not public (private), so no request was sent
    error: the page redirects to `http://mixed.example/`, which was not followed: `mixed.example` resolves to an address that is not public (loopback), so no request was sent
    error: the page redirects to `http://name:[masked:url-password]@example.com/`, which was not followed: the URL contains a user name or password; leave it out
    error: the page redirects to `http://127.0.0.1:22/`, which was not followed: port 22 is not allowed; use 80, 443, 8080 or 8443
    error: the page redirects to `file:///etc/passwd`, which was not followed: only http and https can be fetched, not `file`
    error: the page redirects to `javascript:alert(1)`, which was not followed: only http and https can be fetched, not `javascript`
    error: the page redirects to `gopher://127.0.0.1:70/`, which was not followed: only http and https can be fetched, not `gopher`
    error: the page redirects to `http://`, which was not followed: `url` is not a full URL such as https://example.com/page: empty host
    ");
}

#[test]
fn a_name_that_resolves_differently_after_a_redirect_is_refused() {
    let server = Server::fixed(redirect("/next"));
    let names = Names::with(&[("rebind.example", &["127.0.0.1", "10.0.0.1"])]);
    let web = WebAccess::new().with_resolver(Arc::clone(&names) as _);
    let rig = rig_with(web.with_loopback_for_tests(&[server.port], Vec::new()));
    let text = rig.fetch(&format!("http://rebind.example:{}/", server.port));
    insta::assert_snapshot!(steady(&text, server.port), @"error: the page redirects to `http://rebind.example:PORT/next`, which was not followed: `rebind.example` resolves to an address that is not public (private), so no request was sent");
    assert_eq!(server.requests().len(), 1);
    assert_eq!(names.asked().len(), 2);
}

#[test]
fn five_redirects_are_followed_and_no_more() {
    let server = Server::fixed(redirect("/again"));
    let output = rig(server.port).fetched(&format!("http://127.0.0.1:{}/", server.port));
    insta::assert_snapshot!(output.text, @"the page redirects more than 5 times");
    assert!(output.is_error);
    assert_eq!(output.touched.len(), 6);
    assert_eq!(server.requests().len(), 6);
}

/// Makes a server with a certificate for `secure.example`; returns that too.
fn secure(
    answer: impl Fn(&str, &mut dyn Stream) -> io::Result<()> + Send + Sync + 'static,
) -> (Server, Vec<u8>) {
    let made = rcgen::generate_simple_self_signed(["secure.example".to_owned()]).unwrap();
    let key = PrivatePkcs8KeyDer::from(made.signing_key.serialize_der());
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![made.cert.der().clone()], key.into())
        .unwrap();
    let config = Arc::new(config);
    let wrap = move |stream: TcpStream| -> Box<dyn Stream> {
        let connection = ServerConnection::new(Arc::clone(&config)).unwrap();
        Box::new(Secured(StreamOwned::new(connection, stream)))
    };
    (Server::over(wrap, Arc::new(answer)), made.cert.der().to_vec())
}

/// Says goodbye properly when it is dropped.
struct Secured(StreamOwned<ServerConnection, TcpStream>);

impl Read for Secured {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.0.read(buffer)
    }
}

impl Write for Secured {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

impl Drop for Secured {
    fn drop(&mut self) {
        self.0.conn.send_close_notify();
        let _ = self.0.flush();
    }
}

#[test]
fn https_certificates_are_checked_and_redirects_to_http_are_refused() {
    let (server, certificate) = secure(|head, stream| {
        stream.write_all(&match head.split(' ').nth(1).unwrap() {
            "/down" => redirect("http://secure.example/"),
            "/away" => redirect("/page"),
            _ => response("200 OK", "Content-Type: text/plain\r\n", "proved"),
        })
    });
    let names =
        Names::with(&[("secure.example", &["127.0.0.1"]), ("other.example", &["127.0.0.1"])]);
    let web = WebAccess::new().with_resolver(names);
    let rig = rig_with(web.with_loopback_for_tests(&[server.port], vec![certificate]));
    let fetch = |host: &str, path: &str| {
        steady(&rig.fetch(&format!("https://{host}:{}{path}", server.port)), server.port)
    };
    insta::assert_snapshot!(fetch("secure.example", "/away"), @r#"
    <page url="https://secure.example:PORT/page" status="200" type="text/plain" bytes="6">
    proved
    </page>
    [redirected from https://secure.example:PORT/away]
    "#);
    insta::assert_snapshot!(fetch("secure.example", "/down"), @"error: the page redirects to `http://secure.example/`, which was not followed: it leads from https to http");
    let wrong = fetch("other.example", "/page");
    assert!(wrong.starts_with("error: no secure connection to `other.example`: "), "{wrong}");
    let stranger = rig_with(
        WebAccess::new()
            .with_resolver(Names::with(&[("secure.example", &["127.0.0.1"])]))
            .with_loopback_for_tests(&[server.port], Vec::new()),
    );
    let unknown = stranger.fetch(&format!("https://secure.example:{}/page", server.port));
    assert!(unknown.starts_with("error: no secure connection to `secure.example`: "), "{unknown}");
}
