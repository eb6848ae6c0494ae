//! A Restate cluster for measurements: its nodes and workers, and front ends that have runs on it.
//!
//! Every process is killed when its guard is dropped, so nothing is left after an error either.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{Read, Seek, SeekFrom, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use serde::Deserialize;
use serde_json::Value;
use tempfile::TempDir;

use crate::Failure;
use crate::fixture::{Fixture, Load};
use crate::spawn::{Binary, target_dir};

/// The variable that names the program of the Restate server.
pub(crate) const SERVER: &str = "ADJUTANT_RESTATE_SERVER";

/// How long anything may take before the measurement is given up.
const LONGEST_WAIT: Duration = Duration::from_secs(300);

/// How often a worker is started. It gives up when its first call is not answered within seconds, and several nodes that
/// have just started on a busy machine may need longer.
const WORKER_TRIES: usize = 5;

/// A process that is killed when this is dropped.
#[derive(Debug)]
pub(crate) struct Process(Child);

impl Process {
    /// Starts a program; `log` gets what it prints.
    fn start(command: &mut Command, log: &Path) -> Result<Self, Failure> {
        let log = File::create(log)?;
        let command = command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
        Ok(Self(command.spawn()?))
    }

    /// Returns the milliseconds of processor time that it has used.
    pub(crate) fn cpu_ms(&self) -> Result<f64, Failure> {
        let stat = fs::read_to_string(format!("/proc/{}/stat", self.0.id()))?;
        // The name of the program, in parentheses, may contain spaces.
        let (_, fields) = stat.rsplit_once(')').ok_or("no processor time")?;
        let ticks = fields.split_whitespace().skip(11).take(2).map(str::parse::<f64>);
        // A tick is 10 ms on every architecture that we build for.
        Ok(ticks.sum::<Result<f64, _>>()? * 10.0)
    }

    /// Returns the most memory that it has used so far, in megabytes.
    pub(crate) fn peak_mb(&self) -> Result<f64, Failure> {
        let status = fs::read_to_string(format!("/proc/{}/status", self.0.id()))?;
        let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
        let peak = peak.and_then(|it| it.trim().strip_suffix(" kB")).ok_or("no peak memory")?;
        Ok(peak.trim().parse::<f64>()? / 1e3)
    }

    /// Returns whether it has ended.
    pub(crate) fn has_ended(&mut self) -> Result<bool, Failure> {
        Ok(self.0.try_wait()?.is_some())
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // Both fail if it has already exited, which is fine.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A cluster whose workers and nodes are killed when it is dropped.
#[derive(Debug)]
pub(crate) struct Cluster {
    /// The workers by name. They end before the nodes: fields are dropped in this order.
    workers: Vec<(String, Process)>,
    nodes: Vec<Node>,
    dir: TempDir,
    binary: PathBuf,
    /// The most memory that one of the workers that were killed has used, in megabytes.
    worker_peak_mb: f64,
}

#[derive(Debug)]
struct Node {
    /// The ports of the ingress, of the admin address and for other nodes.
    ports: [u16; 3],
    process: Process,
}

impl Cluster {
    /// Starts nodes on free ports and waits until they answer. Several nodes have two copies of everything.
    pub(crate) fn start(binary: &Binary, server: &Path, count: usize) -> Result<Self, Failure> {
        let dir = TempDir::new_in(target_dir()?)?;
        // Bound together, so that they differ.
        let bound = (0..count * 3).map(|_| TcpListener::bind("127.0.0.1:0"));
        let bound = bound.collect::<Result<Vec<_>, _>>()?;
        let ports = bound.iter().map(|it| it.local_addr().map(|it| it.port()));
        let ports = ports.collect::<Result<Vec<u16>, _>>()?;
        drop(bound);
        let (ports, _) = ports.as_chunks::<3>();
        let mut nodes = Vec::new();
        for number in 0..count {
            let process = start_node(server, dir.path(), ports, number)?;
            nodes.push(Node { ports: ports[number], process });
        }
        let binary = binary.path().to_owned();
        let mut cluster = Self { workers: Vec::new(), nodes, dir, binary, worker_peak_mb: 0.0 };
        for (number, node) in cluster.nodes.iter_mut().enumerate() {
            let [ingress, admin, _] = node.ports;
            let log = cluster.dir.path().join(format!("n{}.log", number + 1));
            wait_until("the node answers", || {
                if node.process.has_ended()? {
                    let said = fs::read_to_string(&log)?;
                    return Err(format!("the server of {SERVER} has ended: {said}").into());
                }
                Ok(is_answered(ingress, "GET /restate/health") && is_answered(admin, "GET /health"))
            })?;
        }
        Ok(cluster)
    }

    /// Returns the address of the cluster for `--runtime`.
    pub(crate) fn runtime(&self) -> String {
        let hosts = self.nodes.iter().map(|it| format!("127.0.0.1:{}", it.ports[0]));
        format!("restate://{}", hosts.collect::<Vec<_>>().join(","))
    }

    /// Starts a worker and waits until it takes work.
    pub(crate) fn start_worker(&mut self, name: &str) -> Result<(), Failure> {
        let admin = self.nodes.iter().map(|it| format!("http://127.0.0.1:{}", it.ports[1]));
        let admin = admin.collect::<Vec<_>>().join(",");
        let log = self.dir.path().join(format!("{name}.log"));
        let mut command = Command::new(&self.binary);
        command.args(["serve-worker", "--runtime", &self.runtime(), "--admin", &admin]);
        command.args(["--name", name, "--home"]).arg(self.dir.path().join(name)).env_clear();
        let mut process = Process::start(&mut command, &log)?;
        let mut tries = 1;
        wait_until("the worker takes work", || {
            let said = fs::read_to_string(&log)?;
            if process.has_ended()? {
                if tries == WORKER_TRIES {
                    return Err(format!("the worker has ended: {said}").into());
                }
                tries += 1;
                process = Process::start(&mut command, &log)?;
            }
            Ok(said.contains("takes work"))
        })?;
        self.workers.push((name.to_owned(), process));
        Ok(())
    }

    /// Kills a worker.
    pub(crate) fn kill_worker(&mut self, name: &str) -> Result<(), Failure> {
        self.worker_peak_mb = self.worker_peak_mb()?;
        self.workers.retain(|(other, _)| other != name);
        Ok(())
    }

    /// Returns the most memory that a worker has used so far, in megabytes.
    pub(crate) fn worker_peak_mb(&self) -> Result<f64, Failure> {
        let peaks = self.workers.iter().map(|(_, process)| process.peak_mb());
        Ok(peaks.collect::<Result<Vec<_>, _>>()?.into_iter().fold(self.worker_peak_mb, f64::max))
    }

    /// Returns the most memory that a node has used so far, in megabytes.
    pub(crate) fn node_peak_mb(&self) -> Result<f64, Failure> {
        let peaks = self.nodes.iter().map(|it| it.process.peak_mb());
        Ok(peaks.collect::<Result<Vec<_>, _>>()?.into_iter().fold(0.0, f64::max))
    }

    /// Returns the milliseconds of processor time of all nodes and of all workers that live.
    pub(crate) fn cpu_ms(&self) -> Result<[f64; 2], Failure> {
        let nodes = self.nodes.iter().map(|it| it.process.cpu_ms()).sum::<Result<f64, _>>()?;
        let workers = self.workers.iter().map(|(_, process)| process.cpu_ms());
        Ok([nodes, workers.sum::<Result<f64, _>>()?])
    }

    /// Returns what answers questions about the cluster while something else is done with it.
    pub(crate) fn observer(&self) -> ClusterObserver {
        let [ingress, admin, _] = self.nodes[0].ports;
        ClusterObserver { ingress, admin }
    }
}

/// Asks the first node.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ClusterObserver {
    ingress: u16,
    admin: u16,
}

impl ClusterObserver {
    /// Returns the address of the worker that serves the handlers of all runs.
    pub(crate) fn runs_uri(self) -> Result<String, Failure> {
        let text =
            |found: &Value, field: &str| found[field].as_str().unwrap_or_default().to_owned();
        let service = answer(self.admin, "GET /services/AdjutantRun")?;
        let deployment = text(&service, "deployment_id");
        Ok(text(&answer(self.admin, &format!("GET /deployments/{deployment}"))?, "uri"))
    }

    /// Returns whether the cluster counts this worker as live.
    pub(crate) fn is_live(self, worker: &str) -> Result<bool, Failure> {
        let workers = answer(self.ingress, "POST /AdjutantCluster/cluster/workers")?;
        let workers = workers.as_array().ok_or("the workers are not a list")?;
        Ok(workers.iter().any(|it| it["name"] == worker))
    }
}

fn start_node(
    server: &Path,
    dir: &Path,
    ports: &[[u16; 3]],
    number: usize,
) -> Result<Process, Failure> {
    let name = format!("n{}", number + 1);
    let [ingress, admin, own] = ports[number];
    let mut text = format!(
        "disable-telemetry = true\nlisten-mode = \"tcp\"\nbind-ip = \"127.0.0.1\"\n\
         bind-address = \"127.0.0.1:{own}\"\nadvertised-address = \"http://127.0.0.1:{own}\"\n\
         default-num-partitions = 4\nrocksdb-total-memory-size = \"256 MiB\"\n"
    );
    let mut sections = format!(
        "[admin]\nbind-address = \"127.0.0.1:{admin}\"\ndisable-web-ui = true\n\
         [ingress]\nbind-address = \"127.0.0.1:{ingress}\"\n"
    );
    if ports.len() > 1 {
        text += &format!(
            "cluster-name = \"bench\"\nauto-provision = {}\ndefault-replication = 2\n",
            number == 0
        );
        let all = ports.iter().map(|ports| format!("\"http://127.0.0.1:{}\"", ports[2]));
        let all = all.collect::<Vec<_>>().join(", ");
        sections += &format!("[metadata-client]\naddresses = [{all}]\n");
    }
    let config = dir.join(format!("{name}.toml"));
    fs::write(&config, text + &sections)?;
    let mut command = Command::new(server);
    command.args(["--no-logo", "--node-name", &name, "--config-file"]).arg(&config);
    command.arg("--base-dir").arg(dir.join("data")).env("DO_NOT_TRACK", "1");
    Process::start(&mut command, &dir.join(format!("{name}.log")))
}

/// Sends a request without a body to this machine and returns the status line and the body of the answer.
fn request(port: u16, line: &str) -> Result<(String, String), Failure> {
    let mut stream = TcpStream::connect(("127.0.0.1", port))?;
    stream.set_read_timeout(Some(LONGEST_WAIT))?;
    // The older version of HTTP has no chunks in its answers.
    stream.write_all(format!("{line} HTTP/1.0\r\naccept: application/json\r\n\r\n").as_bytes())?;
    let mut text = String::new();
    stream.read_to_string(&mut text)?;
    let (head, body) = text.split_once("\r\n\r\n").ok_or("an answer without a body")?;
    Ok((head.lines().next().unwrap_or_default().to_owned(), body.to_owned()))
}

fn is_answered(port: u16, line: &str) -> bool {
    request(port, line).is_ok_and(|(status, _)| status.contains(" 200"))
}

fn answer(port: u16, line: &str) -> Result<Value, Failure> {
    let (status, body) = request(port, line)?;
    if !status.contains(" 200") {
        return Err(format!("{line} was answered with {status}: {body}").into());
    }
    Ok(serde_json::from_str(&body)?)
}

/// Waits until something holds.
pub(crate) fn wait_until(
    what: &str,
    mut holds: impl FnMut() -> Result<bool, Failure>,
) -> Result<(), Failure> {
    let began = Instant::now();
    while !holds()? {
        if began.elapsed() > LONGEST_WAIT {
            return Err(format!("waited in vain until {what}").into());
        }
        thread::sleep(Duration::from_millis(5));
    }
    Ok(())
}

/// A process that has started a run and follows it, on a cluster or by itself.
#[derive(Debug)]
pub(crate) struct FrontEnd {
    pub(crate) process: Process,
    home: PathBuf,
    load: Load,
    journal: Option<File>,
    unread: Vec<u8>,
    /// The records of its journal that were read so far.
    pub(crate) records: Vec<JournalRecord>,
}

/// One record of a journal.
#[derive(Debug, Deserialize)]
pub(crate) struct JournalRecord {
    /// When it happened: for a result, when the process that performed the effect had it.
    pub(crate) wall: u64,
    event: RecordedEvent,
}

#[derive(Debug, Deserialize)]
struct RecordedEvent {
    #[serde(rename = "type")]
    kind: String,
}

impl JournalRecord {
    /// Returns whether it is the answer of a model.
    pub(crate) fn is_reply(&self) -> bool {
        self.event.kind == "replied"
    }
}

impl FrontEnd {
    /// Starts a run of a load on a cluster, or in the process itself.
    pub(crate) fn start(
        fixture: &Fixture,
        binary: &Binary,
        load: Load,
        cluster: Option<&Cluster>,
    ) -> Result<Self, Failure> {
        let home = fixture.home()?;
        let runtime = cluster.map_or_else(|| "local".to_owned(), Cluster::runtime);
        let args: Vec<OsString> = fixture.delegate_args(&home, load, &["--runtime", &runtime])?;
        let mut command = Command::new(binary.path());
        command.args(args).current_dir(fixture.path()).env_clear();
        let process = Process::start(&mut command, &home.join("output.log"))?;
        let (unread, records) = (Vec::new(), Vec::new());
        Ok(Self { process, home, load, journal: None, unread, records })
    }

    /// Reads what is new in the journal.
    pub(crate) fn read_journal(&mut self) -> Result<(), Failure> {
        if self.journal.is_none() {
            let runs = fs::read_dir(self.home.join("runs"));
            let run = runs.ok().and_then(|mut runs| runs.next()).transpose()?;
            self.journal = run.and_then(|run| File::open(run.path().join("journal.jsonl")).ok());
        }
        let Some(journal) = &mut self.journal else { return Ok(()) };
        journal.read_to_end(&mut self.unread)?;
        let whole = self.unread.iter().rposition(|byte| *byte == b'\n').map_or(0, |end| end + 1);
        for line in self.unread[..whole].split(|byte| *byte == b'\n').filter(|it| !it.is_empty()) {
            self.records.push(serde_json::from_slice(line)?);
        }
        self.unread.drain(..whole);
        Ok(())
    }

    /// Reads the journal until it has this many records.
    pub(crate) fn wait_for_records(&mut self, count: usize) -> Result<(), Failure> {
        wait_until("the run has its records", || {
            let has_ended = self.process.has_ended()?;
            self.read_journal()?;
            if has_ended && self.records.len() < count {
                return Err(
                    format!("the run has ended before record {count}: {}", self.said()).into()
                );
            }
            Ok(self.records.len() >= count)
        })
    }

    /// Waits for the end of the run, and checks that it was the whole load.
    pub(crate) fn finish(&mut self) -> Result<(), Failure> {
        wait_until("the run ends", || self.process.has_ended()).map_err(|error| {
            format!("{error}; it has {} records: {}", self.records.len(), self.said())
        })?;
        self.read_journal()?;
        let replies = self.replies().len();
        // Each child takes its turns and reports.
        if replies != self.load.children * (self.load.turns + 1) {
            return Err(format!("the run has {replies} replies: {}", self.said()).into());
        }
        Ok(())
    }

    /// Returns when the replies of models came, in milliseconds.
    pub(crate) fn replies(&self) -> Vec<u64> {
        self.records.iter().filter(|it| it.is_reply()).map(|it| it.wall).collect()
    }

    fn said(&self) -> String {
        let mut end = String::new();
        if let Ok(mut log) = File::open(self.home.join("output.log")) {
            // A short text has no place that far from its end.
            let _ = log.seek(SeekFrom::End(-2_000));
            let _ = log.read_to_string(&mut end);
        }
        end
    }
}
