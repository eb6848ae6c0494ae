//! The web tools against servers of the tests' own, on loopback.

mod approved;
mod hostile;
mod pages;
mod redirects;
mod search;
mod urls;

use std::collections::BTreeMap;
use std::io::{self, Read, Write};
use std::net::{IpAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use adjutant_tools::{Resolver, ToolCallResult, ToolName, WebAccess, WebCaps};
use serde_json::{Value, json};

use crate::{Rig, shown};

/// What a server does with one connection, once it has read the request's head.
type Answer = dyn Fn(&str, &mut dyn Stream) -> io::Result<()> + Send + Sync;

trait Stream: Read + Write {}

impl<S: Read + Write> Stream for S {}

/// A server on loopback; it remembers the requests it got.
struct Server {
    port: u16,
    requests: Arc<Mutex<Vec<String>>>,
}

impl Server {
    fn new(
        answer: impl Fn(&str, &mut dyn Stream) -> io::Result<()> + Send + Sync + 'static,
    ) -> Self {
        Self::over(|stream| Box::new(stream), Arc::new(answer))
    }

    /// Answers everything with the same bytes.
    fn fixed(answer: impl Into<Vec<u8>>) -> Self {
        let answer = answer.into();
        Self::new(move |_, stream| stream.write_all(&answer))
    }

    /// Answers everything with a page.
    fn page(content_type: &str, body: impl AsRef<[u8]>) -> Self {
        Self::fixed(response("200 OK", &format!("Content-Type: {content_type}\r\n"), body))
    }

    fn over(
        wrap: impl Fn(TcpStream) -> Box<dyn Stream> + Send + Sync + 'static,
        answer: Arc<Answer>,
    ) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let requests = Arc::new(Mutex::new(Vec::new()));
        let kept = Arc::clone(&requests);
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let mut stream = wrap(stream.unwrap());
                // A client that hangs up in the middle is what many of these tests are about.
                let Ok(head) = read_head(&mut *stream) else { continue };
                kept.lock().unwrap().push(head.clone());
                let _ = answer(&head, &mut *stream).and_then(|()| stream.flush());
            }
        });
        Self { port, requests }
    }

    fn requests(&self) -> Vec<String> {
        self.requests.lock().unwrap().clone()
    }
}

fn read_head(stream: &mut dyn Stream) -> io::Result<String> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        stream.read_exact(&mut byte)?;
        head.push(byte[0]);
    }
    Ok(String::from_utf8(head).unwrap())
}

/// Waits until the client hangs up.
fn stall(stream: &mut dyn Stream) -> io::Result<()> {
    io::copy(&mut { stream }, &mut io::sink()).map(|_| ())
}

fn response(status: &str, headers: &str, body: impl AsRef<[u8]>) -> Vec<u8> {
    let body = body.as_ref();
    let mut bytes = format!("HTTP/1.1 {status}\r\n{headers}Content-Length: {}\r\n\r\n", body.len())
        .into_bytes();
    bytes.extend_from_slice(body);
    bytes
}

fn redirect(to: &str) -> Vec<u8> {
    response("302 Found", &format!("Location: {to}\r\n"), "")
}

/// A resolver with fixed answers: each lookup gets the next one; the last one repeats.
#[derive(Debug, Default)]
struct Names {
    answers: BTreeMap<&'static str, Vec<Vec<IpAddr>>>,
    asked: Mutex<Vec<String>>,
}

impl Names {
    fn with(names: &[(&'static str, &[&str])]) -> Arc<Self> {
        let answers = names.iter().map(|(name, answers)| {
            let parse = |answer: &&str| answer.split(' ').map(|ip| ip.parse().unwrap()).collect();
            (*name, answers.iter().map(parse).collect())
        });
        Arc::new(Self { answers: answers.collect(), asked: Mutex::default() })
    }

    fn asked(&self) -> Vec<String> {
        self.asked.lock().unwrap().clone()
    }
}

impl Resolver for Names {
    fn resolve(&self, host: &str) -> io::Result<Vec<IpAddr>> {
        let mut asked = self.asked.lock().unwrap();
        let before = asked.iter().filter(|name| *name == host).count();
        asked.push(host.to_owned());
        let answers = self.answers.get(host).ok_or(io::ErrorKind::NotFound)?;
        Ok(answers.get(before).or(answers.last()).cloned().unwrap_or_default())
    }
}

/// Caps for servers that never answer: the tests wait for these, so they are short.
fn impatient() -> WebCaps {
    WebCaps { idle_time: Duration::from_millis(80), ..WebCaps::default() }
}

/// Makes tools with the web, on which only this port of loopback counts as public.
fn rig(port: u16) -> Rig {
    rig_with(WebAccess::new().with_loopback_for_tests(&[port], Vec::new()))
}

fn rig_with(web: WebAccess) -> Rig {
    let Rig { outer, toolbox } = Rig::new();
    Rig { outer, toolbox: toolbox.with_web(web) }
}

impl Rig {
    fn fetched(&self, url: &str) -> ToolCallResult {
        self.output(ToolName::WebFetch, &json!({ "url": url }))
    }

    fn fetch(&self, url: &str) -> String {
        shown(&self.fetched(url))
    }

    fn search(&self, arguments: Value) -> String {
        self.call(ToolName::WebSearch, arguments)
    }
}

/// Shows text with the port of the test's server replaced.
fn steady(text: &str, port: u16) -> String {
    let version = format!("adjutant/{}", env!("CARGO_PKG_VERSION"));
    text.replace(&format!(":{port}"), ":PORT").replace(&version, "adjutant/VERSION")
}
