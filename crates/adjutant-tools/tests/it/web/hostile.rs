//! Servers that want to exhaust or confuse.

use std::cell::Cell;
use std::io::{self, Write};
use std::net::IpAddr;
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use adjutant_tools::{Resolver, ToolName, WebAccess, WebCaps};
use flate2::Compression;
use flate2::write::GzEncoder;
use serde_json::json;

use super::{Server, impatient, response, rig, rig_with, stall, steady};

/// Fetches from a server, with these caps.
fn fetch_with(server: &Server, caps: WebCaps) -> String {
    let web = WebAccess::new().with_caps(caps).with_loopback_for_tests(&[server.port], Vec::new());
    let text = rig_with(web).fetch(&format!("http://127.0.0.1:{}/", server.port));
    steady(&text, server.port)
}

fn fetch(server: &Server) -> String {
    fetch_with(server, WebCaps::default())
}

/// Streams a thousand million bytes of `fill`, compressed, until the client disconnects.
fn bomb(fill: u8) -> Server {
    Server::new(move |_, stream| {
        let head = "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Encoding: gzip\r\n\r\n";
        stream.write_all(head.as_bytes())?;
        let mut encoder = GzEncoder::new(stream, Compression::fast());
        let block = vec![fill; 1 << 20];
        for _ in 0..1024 {
            encoder.write_all(&block)?;
        }
        encoder.finish().map(|_| ())
    })
}

#[test]
fn a_decompression_bomb_stops_at_the_cap() {
    let text = fetch(&bomb(b'a'));
    let (page, remarks) = text.split_at(text.find("</page>").unwrap());
    assert_eq!(page.lines().nth(1).unwrap().len(), 40_000);
    insta::assert_snapshot!(remarks, @"
    </page>
    [cut after 40000 characters of 2097152]
    [only the first 2097152 bytes were read]
    ");
    insta::assert_snapshot!(fetch(&bomb(0)), @r#"
    <page url="http://127.0.0.1:PORT/" status="200" type="text/plain"/>
    [this is not text, so it is not shown]
    "#);
}

#[test]
fn an_endless_answer_is_cut() {
    let server = Server::new(|_, stream| {
        stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\n\r\n")?;
        loop {
            stream.write_all(&[b'x'; 65_536])?;
        }
    });
    let text = fetch_with(&server, WebCaps { body_bytes: 100, ..WebCaps::default() });
    insta::assert_snapshot!(text, @r#"
    <page url="http://127.0.0.1:PORT/" status="200" type="text/plain" bytes="100">
    xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx
    </page>
    [only the first 100 bytes were read]
    "#);
}

#[test]
fn an_endless_stream_of_empty_compressed_blocks_ends() {
    let server = Server::new(|_, stream| {
        let head = "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Encoding: gzip\r\n\r\n";
        stream.write_all(head.as_bytes())?;
        let nothing = GzEncoder::new(Vec::new(), Compression::fast()).finish()?.repeat(100);
        loop {
            stream.write_all(&nothing)?;
        }
    });
    let text = fetch_with(&server, WebCaps { body_bytes: 10_000, ..WebCaps::default() });
    insta::assert_snapshot!(text, @r#"
    <page url="http://127.0.0.1:PORT/" status="200" type="text/plain" bytes="0">
    </page>
    [only the first 0 bytes were read]
    "#);
}

#[test]
fn broken_compression_is_an_error() {
    let headers = "Content-Type: text/plain\r\nContent-Encoding: gzip\r\n";
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(b"a text that is long enough to be cut").unwrap();
    let whole = encoder.finish().unwrap();
    let garbage = fetch(&Server::fixed(response("200 OK", headers, "this is not gzip")));
    let half = fetch(&Server::fixed(response("200 OK", headers, &whole[..whole.len() - 12])));
    let empty = fetch(&Server::fixed(response("200 OK", headers, "")));
    let unasked = "Content-Type: text/plain\r\nContent-Encoding: br\r\n";
    let unasked = fetch(&Server::fixed(response("200 OK", unasked, "?")));
    let twice = "Content-Type: text/plain\r\nContent-Encoding: gzip\r\nContent-Encoding: gzip\r\n";
    let twice = fetch(&Server::fixed(response("200 OK", twice, &whole)));
    insta::assert_snapshot!([garbage, half, empty, unasked, twice].join("\n"), @r#"
    error: `127.0.0.1` did not answer properly: invalid gzip header
    error: `127.0.0.1` did not answer properly: corrupt gzip stream does not have a matching checksum
    <page url="http://127.0.0.1:PORT/" status="200" type="text/plain" bytes="0">
    </page>
    error: the answer is encoded as `br`, which was not requested
    error: the answer is encoded as `gzip, gzip`, which was not requested
    "#);
}

#[test]
fn a_silent_server_is_abandoned_at_the_timeout() {
    let before = Server::new(|_, stream| stall(stream));
    let in_head = Server::new(|_, stream| {
        stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Ty")?;
        stall(stream)
    });
    let in_body = Server::new(|_, stream| {
        stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nabc")?;
        stall(stream)
    });
    let total = WebCaps { total_time: Duration::from_millis(80), ..WebCaps::default() };
    let said = [
        fetch_with(&before, impatient()),
        fetch_with(&in_head, impatient()),
        fetch_with(&in_body, impatient()),
        fetch_with(&in_body, total),
    ];
    insta::assert_snapshot!(said.join("\n"), @"
    error: `127.0.0.1` sent nothing for 0.08 s
    error: `127.0.0.1` sent nothing for 0.08 s
    error: `127.0.0.1` sent nothing for 0.08 s
    error: it took longer than 0.08 s
    ");
}

/// A resolver that answers once its other half is gone.
#[derive(Debug)]
struct Stuck(Mutex<Receiver<()>>);

impl Resolver for Stuck {
    fn resolve(&self, _: &str) -> io::Result<Vec<IpAddr>> {
        let _ = self.0.lock().unwrap().recv();
        Ok(Vec::new())
    }
}

#[test]
fn a_resolver_that_hangs_is_abandoned_at_the_timeout() {
    let (release, stuck) = channel();
    let caps = WebCaps { total_time: Duration::from_millis(80), ..WebCaps::default() };
    let web = WebAccess::new().with_caps(caps).with_resolver(Arc::new(Stuck(Mutex::new(stuck))));
    insta::assert_snapshot!(rig_with(web).fetch("http://slow.example/"), @"error: it took longer than 0.08 s");
    drop(release);
}

#[test]
fn a_call_works_on_a_thread_of_the_engine() {
    let server = Server::page("text/plain", "hello");
    let port = server.port;
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let work =
        runtime.spawn_blocking(move || rig(port).fetch(&format!("http://127.0.0.1:{port}/")));
    assert!(runtime.block_on(work).unwrap().contains("hello"));
}

#[test]
fn a_call_ends_when_it_is_stopped() {
    let server = Server::new(|_, stream| stall(stream));
    let rig = rig(server.port);
    let url = format!("http://127.0.0.1:{}/", server.port);
    let left = Cell::new(3);
    let should_stop = || {
        left.set(left.get() - 1);
        left.get() == 0
    };
    let output = rig.toolbox.call(ToolName::WebFetch, &json!({ "url": url }), &should_stop);
    insta::assert_snapshot!(output.text, @"stopped before the answer was complete");
    assert_eq!(output.touched, [url]);
}

#[test]
fn what_is_not_http_is_an_error() {
    let many = "X: y\r\n".repeat(101);
    let huge = format!("X: {}\r\n", "y".repeat(70_000));
    let answers = [
        String::new(),
        "220 mail.example ESMTP\r\n".to_owned(),
        "HTTP/1.1 200 OK\r\nbad header\r\n\r\n".to_owned(),
        format!("HTTP/1.1 200 OK\r\n{many}\r\n"),
        format!("HTTP/1.1 200 OK\r\n{huge}\r\n"),
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzzz\r\n".to_owned(),
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nabc".to_owned(),
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nfffffffffffffffff\r\n".to_owned(),
        "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nabcdef".to_owned(),
        "HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\nabc".to_owned(),
    ];
    let said: Vec<_> = answers.into_iter().map(|answer| fetch(&Server::fixed(answer))).collect();
    insta::assert_snapshot!(said.join("\n"), @"
    error: `127.0.0.1` did not answer properly: connection closed before message completed
    error: `127.0.0.1` did not answer properly: invalid HTTP version parsed
    error: `127.0.0.1` did not answer properly: invalid HTTP header parsed
    error: `127.0.0.1` did not answer properly: message head is too large
    error: `127.0.0.1` did not answer properly: message head is too large
    error: `127.0.0.1` did not answer properly: error reading a body from connection: Invalid chunk size line: missing size digit
    error: `127.0.0.1` did not answer properly: error reading a body from connection: end of file before message length reached
    error: `127.0.0.1` did not answer properly: error reading a body from connection: invalid chunk size: overflow
    error: `127.0.0.1` did not answer properly: invalid content-length parsed
    error: `127.0.0.1` did not answer properly: error reading a body from connection: end of file before message length reached
    ");
}

#[test]
fn nested_and_misnested_html_costs_no_stack_and_little_time() {
    let deep =
        |open: &str, close: &str| format!("{}x{}", open.repeat(100_000), close.repeat(100_000));
    let fonts: String = (0..60_000).map(|n| format!("<div><font c={n}></div>")).collect();
    let attributes: String = (0..150_000).map(|n| format!(" a{n}=1")).collect();
    let pages = [
        deep("<div>", "</div>"),
        deep("<blockquote>", "</blockquote>"),
        deep("<ul><li>", ""),
        deep("<a href=x>", "</a>"),
        deep("<b><p>", ""),
        deep("<table><tr><td>", ""),
        deep("<svg>", "</svg>"),
        deep("", "</div>"),
        fonts,
        format!("<p{attributes}>x"),
        "<".repeat(1_000_000),
        "&".repeat(1_000_000),
        "<!--".repeat(300_000),
        "<p/".repeat(300_000),
        "&#x41;".repeat(200_000),
    ];
    for page in pages {
        let text = fetch(&Server::page("text/html", page));
        assert!(text.starts_with("<page url="), "{text}");
        assert!(text.len() < 250_000);
    }
    let lists = fetch(&Server::page("text/html", deep("<ol><li>", "")));
    assert!(lists.lines().count() < 10, "{lists}");
}

#[test]
fn lines_in_deep_quotations_are_limited() {
    let page = format!("{}<pre>{}", "<blockquote>".repeat(1_000), "\n".repeat(1_000_000));
    let text = fetch(&Server::page("text/html", page));
    assert!(text.len() < 50_000, "{}", text.len());
    assert!(text.contains("too tangled"), "{}", &text[text.len() - 300..]);
}
