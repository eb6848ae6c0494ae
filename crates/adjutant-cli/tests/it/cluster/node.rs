//! A Restate server on ports of its own, with workers.

use std::collections::BTreeMap;
use std::fs;
use std::net::{TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::Signal;

use crate::support::rig::{Output, Rig};
use crate::support::running::{GUARD, Running};
use crate::support::server::{KEY, Server};

/// Names the key with which the node signs its calls.
const IDENTITY: &str = "RESTATE_WORKER__INVOKER__REQUEST_IDENTITY_PRIVATE_KEY_PEM_FILE";

/// A cluster of one node, and its workers by name.
pub(crate) struct Cluster<'rig> {
    rig: &'rig Rig,
    server: PathBuf,
    ports: [u16; 3],
    node: Option<Child>,
    workers: BTreeMap<String, Running<'rig>>,
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
    /// Starts a node and waits until it answers.
    pub(crate) fn start(rig: &'rig Rig, server: PathBuf) -> Self {
        // Bound together, so that they differ.
        let bound = [(); 3].map(|()| TcpListener::bind("127.0.0.1:0").unwrap());
        let ports = bound.each_ref().map(|it| it.local_addr().unwrap().port());
        drop(bound);
        let mut cluster = Self { rig, server, ports, node: None, workers: BTreeMap::new() };
        cluster.start_node();
        cluster
    }

    /// The address of the runtime.
    pub(crate) fn runtime(&self) -> String {
        format!("restate://127.0.0.1:{}", self.ports[0])
    }

    fn admin(&self) -> String {
        format!("http://127.0.0.1:{}", self.ports[1])
    }

    /// Starts the node again with its data.
    pub(crate) fn start_node(&mut self) {
        let [ingress, admin, node] = self.ports;
        let place = self.rig.path().join("restate");
        fs::create_dir_all(&place).unwrap();
        let config = place.join("restate.toml");
        let text = format!(
            "disable-telemetry = true\nlisten-mode = \"tcp\"\nbind-ip = \"127.0.0.1\"\n\
             bind-address = \"127.0.0.1:{node}\"\nadvertised-address = \"http://127.0.0.1:{node}\"\n\
             default-num-partitions = 4\nrocksdb-total-memory-size = \"256 MiB\"\n\
             [admin]\nbind-address = \"127.0.0.1:{admin}\"\ndisable-web-ui = true\n\
             [ingress]\nbind-address = \"127.0.0.1:{ingress}\"\n"
        );
        fs::write(&config, text).unwrap();
        let log = fs::OpenOptions::new().create(true).append(true).open(place.join("log")).unwrap();
        let mut command = Command::new(&self.server);
        command.args(["--no-logo", "--node-name", "n1", "--config-file"]).arg(&config);
        command.arg("--base-dir").arg(place.join("data")).env("DO_NOT_TRACK", "1");
        let identity = self.rig.path().join("identity.pem");
        if identity.is_file() {
            command.env(IDENTITY, identity);
        }
        command.stdin(Stdio::null()).stdout(log.try_clone().unwrap()).stderr(log);
        self.node = Some(command.spawn().unwrap());
        until("the node answers", || {
            let answers = |port: u16, path: &str| {
                let Ok(mut stream) = TcpStream::connect(("127.0.0.1", port)) else { return false };
                use std::io::{Read, Write};
                let request =
                    format!("GET {path} HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n");
                let mut answer = String::new();
                let _ = stream.write_all(request.as_bytes());
                let _ = stream.read_to_string(&mut answer);
                answer.starts_with("HTTP/1.1 200")
            };
            answers(ingress, "/restate/health") && answers(admin, "/health")
        });
    }

    /// Kills the node.
    pub(crate) fn kill_node(&mut self) {
        let mut node = self.node.take().unwrap();
        node.kill().unwrap();
        node.wait().unwrap();
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
        // Workspaces need git.
        let path = std::env::var_os("PATH").unwrap();
        let mut worker = call.env("FAKE_KEY", KEY).env("PATH", path).start();
        worker.wait_for("is at work");
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
        if self.node.is_some() {
            self.kill_node();
        }
        if thread::panicking() {
            let log = fs::read_to_string(self.rig.path().join("restate/log")).unwrap_or_default();
            let end: Vec<&str> = log.lines().rev().take(20).collect();
            eprintln!("the end of the node's log:\n{}", end.join("\n"));
        }
    }
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
