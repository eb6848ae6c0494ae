//! A client that calls a model directly and through the gateway, and prints what it measured.
//!
//! It runs as the program of `adjutant gateway`, so the gateway is its parent process.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write as _};
use std::net::TcpStream;
use std::os::unix::process::parent_id;
use std::time::Instant;

use serde_json::json;

use crate::gateway_bars::{ClientPlan, ClientReport};
use crate::{Failure, print};

/// Calls of one batch.
const BATCH: usize = 100;

/// The size of a request: agents send 30 to 55 kB at first.
const REQUEST_BYTES: usize = 40_000;

/// The size of a short answer.
const SHORT: usize = 2_000;

/// Carries out a plan and prints a [`ClientReport`].
pub(crate) fn run(plan: &str) -> Result<(), Failure> {
    let plan: ClientPlan = serde_json::from_str(plan)?;
    let gateway = std::env::var("OPENAI_BASE_URL")?;
    let mut direct = ModelConnection::open(&plan.direct)?;
    let mut through = ModelConnection::open(&gateway)?;
    for _ in 0..BATCH / 2 {
        direct.call(SHORT, 0)?;
        through.call(SHORT, 0)?;
    }
    let mut first_bytes = Vec::new();
    for _ in 0..plan.pairs {
        first_bytes.push((direct.call(SHORT, 0)?, through.call(SHORT, 0)?));
    }
    let mut cpu_ms = Vec::new();
    for _ in 0..plan.batches {
        let before = gateway_cpu_ms()?;
        for _ in 0..BATCH {
            through.call(SHORT, 0)?;
        }
        cpu_ms.push((gateway_cpu_ms()? - before) / BATCH as f64);
    }
    through.call(1 << 20, 0)?;
    let after_short = gateway_peak_kb()?;
    through.call(plan.long_bytes, 0)?;
    let long_growth_kb = gateway_peak_kb()? - after_short;
    let (before, began) = (gateway_peak_kb()?, Instant::now());
    let streams: Vec<_> = (0..plan.streams)
        .map(|_| {
            let (gateway, together) = (gateway.clone(), plan.streams);
            std::thread::spawn(move || -> Result<(), String> {
                let connection = ModelConnection::open(&gateway);
                let called = connection.and_then(|mut it| it.call(1 << 18, together));
                called.map(drop).map_err(|error| error.to_string())
            })
        })
        .collect();
    for stream in streams {
        stream.join().map_err(|_panic| "a stream panicked")??;
    }
    let streams_ms = began.elapsed().as_secs_f64() * 1e3;
    let stream_kb = (gateway_peak_kb()? - before) / plan.streams as f64;
    let report = ClientReport { first_bytes, cpu_ms, long_growth_kb, stream_kb, streams_ms };
    print(&serde_json::to_string(&report)?)
}

/// A kept HTTP connection to a base URL.
struct ModelConnection {
    stream: BufReader<TcpStream>,
    path: String,
}

impl ModelConnection {
    fn open(base_url: &str) -> Result<Self, Failure> {
        let rest = base_url.strip_prefix("http://").ok_or("the base URL is not HTTP")?;
        let (host, path) = rest.split_once('/').ok_or("the base URL has no path")?;
        let stream = TcpStream::connect(host)?;
        stream.set_nodelay(true)?;
        Ok(Self { stream: BufReader::new(stream), path: format!("/{path}/chat/completions") })
    }

    /// Asks for an answer of this size, and reads all of it. Returns the milliseconds to the first byte of its body.
    /// The provider finishes the answer when `together` answers have begun.
    fn call(&mut self, bytes: usize, together: usize) -> Result<f64, Failure> {
        let asked =
            format!("bytes={bytes} together={together} {}", "word ".repeat(REQUEST_BYTES / 5));
        let body = json!({
            "model": "stream", "stream": true, "stream_options": { "include_usage": true }, "max_tokens": 200,
            "messages": [{ "role": "user", "content": asked }],
        });
        let body = body.to_string();
        let request = format!(
            "POST {} HTTP/1.1\r\nhost: provider\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
            self.path,
            body.len()
        );
        let began = Instant::now();
        self.stream.get_mut().write_all(request.as_bytes())?;
        let mut line = self.line()?;
        if !line.contains(" 200 ") {
            return Err(format!("the answer is {line}").into());
        }
        while !line.is_empty() {
            line = self.line()?;
        }
        let (mut first, mut received) = (None, 0);
        let mut chunk = Vec::new();
        loop {
            let size = usize::from_str_radix(&self.line()?, 16)?;
            chunk.resize(size, 0);
            self.stream.read_exact(&mut chunk)?;
            first.get_or_insert_with(|| began.elapsed());
            self.line()?;
            if size == 0 {
                break;
            }
            received += size;
        }
        if received < bytes {
            return Err(format!("{received} of {bytes} bytes arrived").into());
        }
        Ok(first.unwrap_or_default().as_secs_f64() * 1e3)
    }

    fn line(&mut self) -> Result<String, Failure> {
        let mut line = String::new();
        if self.stream.read_line(&mut line)? == 0 {
            return Err("the connection was closed".into());
        }
        Ok(line.trim_end().to_owned())
    }
}

/// Returns the processor time that the threads of the gateway have used.
fn gateway_cpu_ms() -> Result<f64, Failure> {
    let mut nanos = 0.0;
    for thread in fs::read_dir(format!("/proc/{}/task", parent_id()))? {
        // A thread may end meanwhile.
        let text = fs::read_to_string(thread?.path().join("schedstat")).unwrap_or_default();
        nanos += text.split(' ').next().unwrap_or_default().parse().unwrap_or(0.0);
    }
    Ok(nanos / 1e6)
}

/// Returns the most memory that the gateway has used so far.
fn gateway_peak_kb() -> Result<f64, Failure> {
    let status = fs::read_to_string(format!("/proc/{}/status", parent_id()))?;
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let peak = peak.and_then(|it| it.trim().strip_suffix(" kB")).ok_or("no peak memory")?;
    Ok(peak.trim().parse()?)
}
