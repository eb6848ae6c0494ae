//! An HTTP model server: the strict fake of the Anthropic API, in a separate process.
//!
//! As a separate process, its CPU time and memory are not counted as adjutant's. It does share the
//! machine, which affects wall time.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use serde::Deserialize;
use serde_json::json;

use crate::Failure;
use crate::fixture::{Load, task};
use crate::spawn::build;

/// What the parent is told; the server knows it by these words.
pub(crate) const GOAL: &str = "Have every part read by someone and say what is wrong with them.";

/// The fake server's program.
#[derive(Clone, Debug)]
pub(crate) struct FakeModelProgram(PathBuf);

/// A server that runs until it is dropped, playing a parent and its children.
#[derive(Debug)]
pub(crate) struct Server {
    /// Where it listens.
    pub(crate) url: String,
    /// What it plays.
    pub(crate) load: Load,
    log: PathBuf,
    process: Child,
}

/// What the log says of one request.
#[derive(Debug, Deserialize)]
struct LoggedRequest {
    at_ns: u64,
    status: u16,
    connection: u64,
}

/// What a run sent.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RunRequests {
    /// From before the process was started until the server had its first request.
    pub(crate) first_ms: f64,
    /// How many connections were used.
    pub(crate) connections: f64,
}

impl FakeModelProgram {
    /// Builds it where it is missing or stale.
    pub(crate) fn build() -> Result<Self, Failure> {
        build("adjutant-testkit", "fake-model").map(Self)
    }
}

impl Server {
    /// Starts to listen; every answer waits `delay_ms`.
    pub(crate) fn start(
        program: &FakeModelProgram,
        dir: &Path,
        load: Load,
        delay_ms: u64,
    ) -> Result<Self, Failure> {
        let Load { children, turns } = load;
        let name = format!("server_{children}_{turns}_{delay_ms}");
        let (script, log) = (dir.join(format!("{name}.toml")), dir.join(format!("{name}.log")));
        fs::write(&script, script_for_load(load)?)?;
        let mut command = Command::new(&program.0);
        command.args(["--api", "anthropic", "--delay-ms", &delay_ms.to_string(), "--no-bodies"]);
        command.arg("--script").arg(&script).arg("--log").arg(&log);
        let mut process = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn()?;
        let mut url = String::new();
        BufReader::new(process.stdout.take().ok_or("no standard output")?).read_line(&mut url)?;
        let server = Self { url: url.trim().to_owned(), load, log, process };
        if server.url.is_empty() {
            return Err("the fake model did not start".into());
        }
        Ok(server)
    }

    /// Returns what arrived since `began_ns`; an error unless it is exactly what the load asks.
    ///
    /// A run that a limit cut short would be a fast one.
    pub(crate) fn since(&self, began_ns: u64) -> Result<RunRequests, Failure> {
        let log = fs::read_to_string(&self.log)?;
        let mut arrivals = log
            .lines()
            .map(serde_json::from_str)
            .collect::<Result<Vec<LoggedRequest>, serde_json::Error>>()?;
        arrivals.retain(|arrival| arrival.at_ns >= began_ns);
        // The parent hands down and sums up; each child reads and reports.
        let expected = 2 + self.load.children * (self.load.turns + 1);
        let answered = arrivals.iter().filter(|arrival| arrival.status == 200).count();
        if arrivals.len() != expected || answered != expected {
            let came = arrivals.len();
            return Err(format!("{came} requests, {answered} answered, {expected} expected").into());
        }
        let first_ns = arrivals.iter().map(|arrival| arrival.at_ns).min().unwrap_or(began_ns);
        let used: BTreeSet<u64> = arrivals.iter().map(|arrival| arrival.connection).collect();
        let first_ms = (first_ns - began_ns) as f64 / 1e6;
        Ok(RunRequests { first_ms, connections: used.len() as f64 })
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // Both fail if the process has already exited, which is fine.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Writes what the server says to the parent and to its children.
fn script_for_load(Load { children, turns }: Load) -> Result<String, Failure> {
    // The strings of JSON are strings of TOML.
    let quoted = |text: &str| serde_json::to_string(text);
    let tasks: Vec<_> = (1..=children).map(task).collect();
    let call = quoted(&json!({ "tasks": tasks }).to_string())?;
    let mut script = String::from("usage = { input = 100, output = 10 }\n[[conversation]]\n");
    writeln!(script, "when = {}", quoted(GOAL)?)?;
    writeln!(
        script,
        "turn = [{{ parts = [{{ call = {{ name = \"Delegate\", raw = {call} }} }}] }},"
    )?;
    script += "{ parts = [{ text = \"Nothing is wrong with any of them.\" }] }]\n";
    script += "[[conversation]]\nturn = [\n";
    for turn in 1..=turns {
        writeln!(
            script,
            "{{ parts = [{{ text = \"Reading part {turn}.\" }}, \
             {{ call = {{ name = \"Read\", arguments = {{ path = \"part_{turn}.txt\" }} }} }}] }},"
        )?;
    }
    script += "{ parts = [{ text = \"I read all of them and found nothing wrong.\" }] }]\n";
    Ok(script)
}
