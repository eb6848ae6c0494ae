//! A Restate cluster of one or several nodes on ports of its own, with workers.

use std::collections::BTreeMap;
use std::fs;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use crate::support::rig::{Call, Output, Rig};
use crate::support::running::{GUARD, Running};
use crate::support::server::{KEY, Server};

/// Names the key with which the node signs its calls.
const IDENTITY: &str = "RESTATE_WORKER__INVOKER__REQUEST_IDENTITY_PRIVATE_KEY_PEM_FILE";

/// A cluster, and its workers by name.
pub(crate) struct Cluster<'rig> {
    rig: &'rig Rig,
    server: PathBuf,
    nodes: Vec<Node>,
    workers: BTreeMap<String, Running<'rig>>,
    /// Variables of all workers.
    pub(crate) environment: Vec<(&'static str, String)>,
}

/// One node of a cluster.
struct Node {
    /// The ports of the ingress, of the admin address and for other nodes.
    ports: [u16; 3],
    process: Option<Child>,
}

/// Returns the server, or says that nothing is checked.
pub(crate) fn server() -> Option<PathBuf> {
    let found = std::env::var_os("ADJUTANT_RESTATE_SERVER").map(PathBuf::from);
    if found.is_none() {
        println!(
            "NOT CHECKED: ADJUTANT_RESTATE_SERVER is not set, so no cluster was tried; tests/cluster/run sets it"
        );
    }
    found
}

impl<'rig> Cluster<'rig> {
    /// Starts one node and waits until it answers.
    pub(crate) fn start(rig: &'rig Rig, server: PathBuf) -> Self {
        Self::start_nodes(rig, server, 1)
    }

    /// Starts several nodes and waits until all of them answer.
    pub(crate) fn start_nodes(rig: &'rig Rig, server: PathBuf, count: usize) -> Self {
        // Bound together, so that they differ.
        let listener = || TcpListener::bind("127.0.0.1:0").unwrap();
        let bound: Vec<[TcpListener; 3]> =
            (0..count).map(|_| [(); 3].map(|()| listener())).collect();
        let port = |it: &TcpListener| it.local_addr().unwrap().port();
        let node = |it: &[TcpListener; 3]| Node { ports: it.each_ref().map(port), process: None };
        let nodes = bound.iter().map(node).collect();
        drop(bound);
        let (workers, environment) = (BTreeMap::new(), Vec::new());
        let mut cluster = Self { rig, server, nodes, workers, environment };
        for node in 0..count {
            cluster.spawn_node(node);
        }
        for node in 0..count {
            cluster.wait_for_node(node);
        }
        cluster
    }

    /// The address of the runtime.
    pub(crate) fn runtime(&self) -> String {
        self.runtime_from(0)
    }

    /// The same, with the ingress of this node before the others.
    pub(crate) fn runtime_from(&self, first: usize) -> String {
        let count = self.nodes.len();
        let in_turn = (0..count).map(|it| &self.nodes[(first + it) % count]);
        let hosts: Vec<String> = in_turn.map(|it| format!("127.0.0.1:{}", it.ports[0])).collect();
        format!("restate://{}", hosts.join(","))
    }

    /// The admin addresses.
    pub(crate) fn admin(&self) -> String {
        let address = |it: &Node| format!("http://127.0.0.1:{}", it.ports[1]);
        self.nodes.iter().map(address).collect::<Vec<_>>().join(",")
    }

    /// Starts a node again with its data, and waits until it answers.
    pub(crate) fn start_node(&mut self, node: usize) {
        self.spawn_node(node);
        self.wait_for_node(node);
    }

    fn spawn_node(&mut self, number: usize) {
        let name = format!("n{}", number + 1);
        let [ingress, admin, own] = self.nodes[number].ports;
        let place = self.rig.path().join("restate");
        fs::create_dir_all(&place).unwrap();
        let config = place.join(format!("{name}.toml"));
        let mut text = format!(
            "disable-telemetry = true\nlisten-mode = \"tcp\"\nbind-ip = \"127.0.0.1\"\n\
             bind-address = \"127.0.0.1:{own}\"\nadvertised-address = \"http://127.0.0.1:{own}\"\n\
             default-num-partitions = 4\nrocksdb-total-memory-size = \"256 MiB\"\n"
        );
        let mut sections = format!(
            "[admin]\nbind-address = \"127.0.0.1:{admin}\"\ndisable-web-ui = true\n\
             [ingress]\nbind-address = \"127.0.0.1:{ingress}\"\n\
             [worker.invoker]\nhttp2-keep-alive-interval = \"5s\"\nhttp2-keep-alive-timeout = \"10s\"\n"
        );
        if self.nodes.len() > 1 {
            text += &format!(
                "cluster-name = \"test\"\nauto-provision = {}\ndefault-replication = 2\n",
                number == 0
            );
            let addresses: Vec<String> = self
                .nodes
                .iter()
                .map(|it| format!("\"http://127.0.0.1:{}\"", it.ports[2]))
                .collect();
            sections += &format!("[metadata-client]\naddresses = [{}]\n", addresses.join(", "));
        }
        fs::write(&config, text + &sections).unwrap();
        let log = place.join(format!("{name}.log"));
        let log = fs::OpenOptions::new().create(true).append(true).open(log).unwrap();
        let mut command = Command::new(&self.server);
        command.args(["--no-logo", "--node-name", &name, "--config-file"]).arg(&config);
        command.arg("--base-dir").arg(place.join("data")).env("DO_NOT_TRACK", "1");
        let identity = self.rig.path().join("identity.pem");
        if identity.is_file() {
            command.env(IDENTITY, identity);
        }
        command.stdin(Stdio::null()).stdout(log.try_clone().unwrap()).stderr(log);
        self.nodes[number].process = Some(command.spawn().unwrap());
    }

    fn wait_for_node(&self, node: usize) {
        let [ingress, admin, _] = self.nodes[node].ports;
        until("the node answers", || {
            let is_well = |port, path| {
                let answer = request(port, path, "");
                answer.and_then(|it| it.lines().next().map(|it| it.contains(" 200"))) == Some(true)
            };
            is_well(ingress, "GET /restate/health") && is_well(admin, "GET /health")
        });
    }

    /// Returns the calls of Adjutant's handlers in this state.
    pub(crate) fn calls_in_state(&self, state: &str) -> Vec<String> {
        let query = format!(
            "SELECT id FROM sys_invocation WHERE status = '{state}' AND target_service_name LIKE 'Adjutant%'"
        );
        let answer = self.admin_request("POST /query", &json!({ "query": query }).to_string());
        let rows = answer["rows"].as_array().unwrap();
        rows.iter().map(|row| row["id"].as_str().unwrap().to_owned()).collect()
    }

    /// Pauses a call, as the server does after many attempts.
    pub(crate) fn pause_call(&self, id: &str) {
        let _ = self.admin_request(&format!("PATCH /invocations/{id}/pause"), "");
    }

    fn admin_request(&self, line: &str, body: &str) -> Value {
        let answer = request(self.nodes[0].ports[1], line, body).unwrap();
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        assert!(head.lines().next().unwrap().contains(" 20"), "{line}: {answer}");
        serde_json::from_str(body).unwrap_or_default()
    }

    /// Kills a node.
    pub(crate) fn kill_node(&mut self, node: usize) {
        let mut process = self.nodes[node].process.take().unwrap();
        process.kill().unwrap();
        process.wait().unwrap();
    }

    /// Sends a signal to a node.
    pub(crate) fn signal_node(&self, node: usize, signal: Signal) {
        let process = self.nodes[node].process.as_ref().unwrap();
        let pid = Pid::from_raw(i32::try_from(process.id()).unwrap()).unwrap();
        kill_process(pid, signal).unwrap();
    }

    /// Starts a worker and waits until it is registered.
    pub(crate) fn start_worker(&mut self, name: &str, provider: Option<&Server>) {
        self.start_worker_with(name, provider, &[]);
    }

    /// The same with further flags.
    pub(crate) fn start_worker_with(
        &mut self,
        name: &str,
        provider: Option<&Server>,
        flags: &[String],
    ) {
        let args = self.worker_args(name, flags);
        let args: Vec<&str> = args.iter().map(String::as_str).collect();
        let call = match provider {
            Some(provider) => provider.call(self.rig, &args),
            None => self.rig.call(args),
        };
        self.add_worker(name, call.env("FAKE_KEY", KEY));
    }

    /// Starts a worker with these variables, and waits until it is registered.
    pub(crate) fn start_worker_in(&mut self, name: &str, environment: &[(&str, &str)]) {
        let call = self.rig.call(self.worker_args(name, &[]));
        let set = |call: Call<'rig>, (name, value): &(&str, &str)| call.env(name, value);
        self.add_worker(name, environment.iter().fold(call, set));
    }

    fn add_worker(&mut self, name: &str, call: Call<'rig>) {
        // Workspaces need git.
        let call = call.env("PATH", std::env::var_os("PATH").unwrap());
        let set = |call: Call<'rig>, (name, value): &(&str, String)| call.env(name, value);
        let mut worker = self.environment.iter().fold(call, set).start();
        worker.wait_for("takes work");
        self.workers.insert(name.to_owned(), worker);
    }

    fn worker_args(&self, name: &str, flags: &[String]) -> Vec<String> {
        let own = [
            "serve-worker",
            "--runtime",
            &self.runtime(),
            "--admin",
            &self.admin(),
            "--name",
            name,
        ];
        own.map(str::to_owned).into_iter().chain(flags.iter().cloned()).collect()
    }

    /// Runs a worker that is expected to end at once.
    pub(crate) fn try_worker(&self, name: &str) -> Output {
        self.try_worker_with(name, &[])
    }

    /// The same with further flags.
    pub(crate) fn try_worker_with(&self, name: &str, flags: &[String]) -> Output {
        self.rig.call(self.worker_args(name, flags)).run()
    }

    /// Sends a signal to a worker.
    pub(crate) fn signal_worker(&mut self, name: &str, signal: Signal) {
        self.workers.get_mut(name).unwrap().signal(signal);
    }

    /// Kills a worker.
    pub(crate) fn kill_worker(&mut self, name: &str) {
        let mut worker = self.workers.remove(name).unwrap();
        worker.signal(Signal::KILL);
        let _ = worker.finish();
    }

    /// Stops a worker as a person does, and returns what it said.
    pub(crate) fn stop_worker(&mut self, name: &str) -> i32 {
        let mut worker = self.workers.remove(name).unwrap();
        worker.signal(Signal::TERM);
        worker.finish().code
    }
}

impl Drop for Cluster<'_> {
    fn drop(&mut self) {
        for name in self.workers.keys().cloned().collect::<Vec<_>>() {
            self.kill_worker(&name);
        }
        for node in 0..self.nodes.len() {
            if self.nodes[node].process.is_some() {
                self.kill_node(node);
            }
        }
        if thread::panicking() {
            let log = self.rig.path().join("restate/n1.log");
            let log = fs::read_to_string(log).unwrap_or_default();
            let end: Vec<&str> = log.lines().rev().take(20).collect();
            eprintln!("the end of the first node's log, the last line first:\n{}", end.join("\n"));
        }
    }
}

/// Returns the answer to a request on this machine; `None` if there is none.
pub(crate) fn request(port: u16, line: &str, body: &str) -> Option<String> {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).ok()?;
    // The older version of HTTP has no chunks in its answers.
    let request = format!(
        "{line} HTTP/1.0\r\ncontent-type: application/json\r\naccept: application/json\r\n\
         content-length: {}\r\n\r\n{body}",
        body.len()
    );
    stream.write_all(request.as_bytes()).ok()?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).ok()?;
    Some(answer)
}

/// Waits until something holds.
#[track_caller]
pub(crate) fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let began = Instant::now();
    while !holds() {
        assert!(began.elapsed() < GUARD, "waited in vain until {what}");
        thread::sleep(Duration::from_millis(5));
    }
}
