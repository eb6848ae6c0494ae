//! The bars of the MCP server: how soon it answers, how soon a call reaches the model although its run
//! gets a process of its own, and what waiting costs.
//!
//! Starts the real binary over pipes, and a listener that only records when the first request arrives. The state
//! directory is in memory, as in all wall time measurements.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpListener;
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::Failure;
use crate::fixture::{MEMORY, has_memory_disk};
use crate::sample::{Plan, Spread};
use crate::spawn::Binary;
use crate::table::{MEGABYTES, MILLIS, Row};

/// Rounds of what is wall time.
const ROUNDS: usize = 15;
/// Runs that calls wait for. Few, since each is a process and a person may allow no more.
const RUNS: usize = 10;
/// Calls that wait.
const CALLS: usize = 100;
/// How long anything here may take before the machine is to blame.
const PATIENCE: Duration = Duration::from_secs(30);

const LIST: &str =
    "from before the process is started until it has answered initialize and tools/list";
const FIRST: &str = "from writing the call until a socket that plays the provider has the first bytes of the request";

/// Measures the group.
pub(crate) fn measure(plan: &Plan) -> Result<Vec<Row>, Failure> {
    let binary = Binary::build()?;
    if !has_memory_disk() {
        return Ok(vec![Row::skipped(
            "the MCP server",
            "there is no /dev/shm to keep the state in",
        )]);
    }
    let listed = plan.rounds(ROUNDS, || time_tool_list(&binary))?;
    let reached = plan.rounds(ROUNDS, || time_first_request(&binary))?;
    let calls = plan.pick(CALLS, 20);
    let (server, runs) = measure_waiting_calls(&binary, calls)?;
    let what = format!("the server with {calls} calls that wait for {RUNS} runs");
    Ok(vec![
        Row::at_most("start until tools/list is answered", listed, 30.0, MILLIS).note(LIST),
        Row::at_most("call of Delegate until the first model request", reached, 20.0, MILLIS)
            .note(FIRST),
        Row::at_most(what, Spread::exact(server), 50.0, MEGABYTES).note("most memory held"),
        Row::at_most("the process of a run that waits for its model", runs, 15.0, MEGABYTES)
            .note("most memory held"),
    ])
}

/// A client and its server, in a place of their own.
struct Client {
    process: Child,
    stdin: ChildStdin,
    stdout: BufReader<ChildStdout>,
    place: TempDir,
    id: u64,
}

impl Client {
    fn start(binary: &Binary, url: &str) -> Result<Self, Failure> {
        let place = TempDir::new_in(MEMORY)?;
        fs::create_dir(place.path().join("tree"))?;
        let mut command = Command::new(binary.path());
        command.args(["mcp", "--root", "tree", "--model", "anthropic/claude-sonnet-4-5"]);
        command.args(["--approve-below", "1000"]).current_dir(place.path()).env_clear();
        command.env("ADJUTANT_HOME", place.path().join("state"));
        command.env("ANTHROPIC_API_KEY", "test-key").env("ANTHROPIC_BASE_URL", url);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut process = command.spawn()?;
        let stdin = process.stdin.take().ok_or("no standard input")?;
        let stdout = BufReader::new(process.stdout.take().ok_or("no standard output")?);
        let mut client = Self { process, stdin, stdout, place, id: 0 };
        let about = json!({ "name": "bench", "version": "1" });
        let version = "2025-11-25";
        let hello = json!({ "protocolVersion": version, "capabilities": {}, "clientInfo": about });
        let id = client.ask("initialize", &hello)?;
        client.answer(id)?;
        client.send(&json!({ "jsonrpc": "2.0", "method": "notifications/initialized" }))?;
        Ok(client)
    }

    fn send(&mut self, message: &Value) -> Result<(), Failure> {
        self.stdin.write_all(format!("{message}\n").as_bytes())?;
        Ok(self.stdin.flush()?)
    }

    fn ask(&mut self, method: &str, params: &Value) -> Result<u64, Failure> {
        self.id += 1;
        let id = self.id;
        self.send(&json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params }))?;
        Ok(id)
    }

    fn call(&mut self, tool: &str, arguments: &Value) -> Result<u64, Failure> {
        self.ask("tools/call", &json!({ "name": tool, "arguments": arguments }))
    }

    fn answer(&mut self, id: u64) -> Result<Value, Failure> {
        loop {
            let mut line = String::new();
            if self.stdout.read_line(&mut line)? == 0 {
                return Err("the server said nothing more".into());
            }
            let message: Value = serde_json::from_str(&line)?;
            if message["id"] == id {
                return Ok(message["result"].clone());
            }
        }
    }

    /// Begins a run and returns its handle.
    fn begin(&mut self, label: &str) -> Result<Value, Failure> {
        let task = json!({ "label": label, "prompt": "Look around" });
        let id = self.call("delegate_start", &json!({ "tasks": [task] }))?;
        let answer = self.answer(id)?;
        if answer["isError"] != false {
            return Err(format!("no run was begun: {answer}").into());
        }
        Ok(answer["structuredContent"]["run"].clone())
    }

    /// Ends every run that is left.
    fn clean(&mut self) -> Result<(), Failure> {
        for entry in fs::read_dir(self.place.path().join("state/runs"))? {
            let run = entry?.file_name().to_string_lossy().into_owned();
            let id = self.call("delegate_cancel", &json!({ "run": run }))?;
            self.answer(id)?;
        }
        Ok(())
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        // Both fail if the process has already exited, which is fine.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Listens as a provider would, notes when requests begin and answers none of them.
fn start_silent_provider() -> Result<(String, Receiver<Instant>), Failure> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let url = format!("http://{}", listener.local_addr()?);
    let (sender, arrivals) = channel();
    thread::spawn(move || {
        let mut open = Vec::new();
        for mut stream in listener.incoming().map_while(Result::ok) {
            let mut byte = [0];
            let came = stream.read_exact(&mut byte);
            if came.is_err() || sender.send(Instant::now()).is_err() {
                break;
            }
            open.push(stream);
        }
    });
    Ok((url, arrivals))
}

fn time_tool_list(binary: &Binary) -> Result<f64, Failure> {
    let began = Instant::now();
    let mut client = Client::start(binary, "http://127.0.0.1:9")?;
    let id = client.ask("tools/list", &json!({}))?;
    let tools = client.answer(id)?;
    let taken = millis(began.elapsed());
    if !tools["tools"].is_array() {
        return Err(format!("no tools were listed: {tools}").into());
    }
    Ok(taken)
}

fn time_first_request(binary: &Binary) -> Result<f64, Failure> {
    let (url, arrivals) = start_silent_provider()?;
    let mut client = Client::start(binary, &url)?;
    let began = Instant::now();
    client.call("Delegate", &json!({ "tasks": [{ "label": "a", "prompt": "Look around" }] }))?;
    let came = arrivals.recv_timeout(PATIENCE)?;
    client.clean()?;
    Ok(millis(came.duration_since(began)))
}

/// Returns the memory of a server whose calls all wait, and that of the runs.
fn measure_waiting_calls(binary: &Binary, calls: usize) -> Result<(f64, Spread), Failure> {
    let (url, arrivals) = start_silent_provider()?;
    let mut client = Client::start(binary, &url)?;
    let runs: Vec<Value> =
        (0..RUNS).map(|nth| client.begin(&format!("r{nth}"))).collect::<Result<_, _>>()?;
    for _ in &runs {
        arrivals.recv_timeout(PATIENCE)?;
    }
    for nth in 0..calls {
        client.call("delegate_wait", &json!({ "run": runs[nth % RUNS], "timeout_s": 60 }))?;
    }
    // Answered in its turn, so everything before it has been taken in.
    let id = client.call("delegate_status", &json!({}))?;
    client.answer(id)?;
    let server = peak_megabytes(client.process.id())?;
    let mut held = Vec::new();
    for run in &runs {
        let run = run.as_str().ok_or("a run without a name")?;
        let lock = client.place.path().join("state/runs").join(run).join("lock");
        let holder: Value = serde_json::from_str(&fs::read_to_string(lock)?)?;
        let pid = holder["pid"].as_u64().and_then(|pid| u32::try_from(pid).ok());
        held.push(peak_megabytes(pid.ok_or("a lock without a holder")?)?);
    }
    client.clean()?;
    Ok((server, Spread::of(held)))
}

fn peak_megabytes(pid: u32) -> Result<f64, Failure> {
    let status = fs::read_to_string(Path::new("/proc").join(pid.to_string()).join("status"))?;
    let line = status.lines().find(|line| line.starts_with("VmHWM:")).ok_or("no VmHWM")?;
    let kib: f64 = line.split_whitespace().nth(1).ok_or("no number")?.parse()?;
    Ok(kib * 1024.0 / 1e6)
}

fn millis(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1e3
}
