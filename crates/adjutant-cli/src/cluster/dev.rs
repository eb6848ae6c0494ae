//! `cluster dev`: a Restate node and two workers on this machine, to try a cluster out.
//!
//! The server is a program of its own with its own licence; it comes from npm and is kept in the state directory.

use std::fs::{self, DirBuilder, File};
use std::net::TcpListener;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use adjutant_restate::{Admin, Ingress};
use rustix::process::{Pid, Signal, kill_process};
use tokio::signal::unix::{SignalKind, signal};

use crate::args::cluster::DevArgs;
use crate::exit::{Exit, Failure};
use crate::hints::program;
use crate::output::say;
use crate::settings;

/// The server's package and the version that this version was tested with.
const PACKAGE: &str = "@restatedev/restate-server@1.7.12";

/// The usual ports of the ingress, the admin address and the node.
const PORTS: [u16; 3] = [8080, 9070, 5122];

/// The names of the workers.
const WORKERS: [&str; 2] = ["dev-1", "dev-2"];

/// How long the cluster may take until all of it answers.
const START_TIMEOUT: Duration = Duration::from_secs(60);

/// The pause between two looks at the programs.
const POLL_INTERVAL: Duration = Duration::from_millis(200);

/// How long a program has to end after a signal.
const STOP_TIMEOUT: Duration = Duration::from_secs(15);

/// The programs of the cluster, the node first. They are stopped when this is dropped.
#[derive(Default)]
struct ClusterProcesses(Vec<(String, Child)>);

/// Runs the command until a signal, or until one of the programs has ended.
pub(crate) fn run_dev(args: &DevArgs, home: Option<PathBuf>) -> Result<Exit, Failure> {
    let home = settings::home(home)?;
    let place = home.join("cluster-dev");
    let failed = |what: &str, error: &dyn std::fmt::Display| {
        Failure::new(Exit::Failed, format!("cannot {what}: {error}"))
    };
    // Private from the start: the store has the user's files, and the next command would say that it was not.
    let made = DirBuilder::new().recursive(true).mode(0o700).create(place.join("store"));
    made.map_err(|error| failed("create the cluster's directory", &error))?;
    let server = match &args.server {
        Some(server) => server.clone(),
        None => installed_server(&place)?,
    };
    let ports = free_ports().map_err(|error| failed("find free ports", &error))?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| failed("start the runtime", &error))?;
    runtime.block_on(async {
        let catch = |kind| signal(kind).map_err(|error| failed("catch signals", &error));
        let (mut interrupt, mut terminate) =
            (catch(SignalKind::interrupt())?, catch(SignalKind::terminate())?);
        let mut programs = ClusterProcesses::default();
        let node = start_node(&server, &place, ports)
            .map_err(|error| failed(&format!("start {}", server.display()), &error))?;
        programs.0.push(("node".to_owned(), node));
        let [ingress, admin] = [ports[0], ports[1]].map(|port| format!("http://127.0.0.1:{port}"));
        let nodes = Ingress::new(vec![ingress]);
        let began = Instant::now();
        while nodes.check().await.is_err() || Admin::new(vec![admin.clone()]).version().await.is_err() {
            programs.wait_for_start(began, &place).await?;
        }
        let cluster = format!("restate://127.0.0.1:{}", ports[0]);
        for name in WORKERS {
            let worker = start_worker(&home, &place, name, &cluster, &admin)
                .map_err(|error| failed("start a worker", &error))?;
            programs.0.push((format!("worker {name}"), worker));
        }
        while nodes.workers().await.map_or(0, |workers| workers.len()) < WORKERS.len() {
            programs.wait_for_start(began, &place).await?;
        }
        say(&format!(
            "A cluster of one node and two workers runs on this machine; its data and logs are in {}.\n\
             Next, in another terminal:\n\n  {} delegate --runtime {cluster} -t look='Count the TODOs'\n\n\
             ctrl+c stops it. Runs that are under way go on when it is started again.",
            place.display(),
            program(),
        ));
        let ended = loop {
            tokio::select! {
                _ = interrupt.recv() => break None,
                _ = terminate.recv() => break None,
                () = tokio::time::sleep(POLL_INTERVAL) => {}
            }
            if let Some(name) = programs.ended() {
                break Some(name);
            }
        };
        drop(programs);
        match ended {
            None => Ok(Exit::Completed),
            Some(name) => {
                let text = format!("the {name} has ended, so the cluster was stopped");
                let logs = place.display();
                Err(Failure::new(Exit::Failed, text).hint(format!("The logs are in {logs}.")))
            }
        }
    })
}

/// Returns the server, and installs it first if it is not there.
fn installed_server(place: &Path) -> Result<PathBuf, Failure> {
    let machine = match std::env::consts::ARCH {
        "aarch64" => "arm64",
        _ => "x64",
    };
    let packages = place.join("server");
    let server = packages.join(format!(
        "node_modules/@restatedev/restate-server-linux-{machine}/bin/restate-server"
    ));
    if server.exists() {
        return Ok(server);
    }
    say(&format!(
        "adjutant: installing {PACKAGE} from npm, once (about 220 MB; its licence is the Business Source License 1.1)"
    ));
    let install = Command::new("npm")
        .args(["install", "--ignore-scripts", "--no-audit", "--no-fund", "--no-update-notifier"])
        .arg("--prefix")
        .arg(&packages)
        .arg(PACKAGE)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .status();
    let hint = "Install it yourself and name it with --server FILE.";
    match install {
        Ok(status) if status.success() && server.exists() => Ok(server),
        Ok(_) => {
            Err(Failure::new(Exit::Failed, format!("npm cannot install {PACKAGE}")).hint(hint))
        }
        Err(error) => {
            Err(Failure::new(Exit::Failed, format!("cannot run npm: {error}")).hint(hint))
        }
    }
}

/// Returns the usual ports, each replaced by any free one if it is taken.
fn free_ports() -> std::io::Result<[u16; 3]> {
    let bind = |port: u16| {
        TcpListener::bind(("127.0.0.1", port)).or_else(|_| TcpListener::bind("127.0.0.1:0"))
    };
    // Held together, so that they differ.
    let held = PORTS.map(bind);
    let mut ports = [0; 3];
    for (port, held) in ports.iter_mut().zip(held) {
        *port = held?.local_addr()?.port();
    }
    Ok(ports)
}

fn start_node(server: &Path, place: &Path, ports: [u16; 3]) -> std::io::Result<Child> {
    let [ingress, admin, node] = ports;
    let config = format!(
        "disable-telemetry = true\nlisten-mode = \"tcp\"\nbind-ip = \"127.0.0.1\"\n\
         bind-address = \"127.0.0.1:{node}\"\nadvertised-address = \"http://127.0.0.1:{node}\"\n\
         default-num-partitions = 4\nrocksdb-total-memory-size = \"256 MiB\"\n\
         log-disable-ansi-codes = true\n\n\
         [admin]\nbind-address = \"127.0.0.1:{admin}\"\ndisable-web-ui = true\n\n\
         [ingress]\nbind-address = \"127.0.0.1:{ingress}\"\n\n\
         [worker.invoker]\nhttp2-keep-alive-interval = \"5s\"\nhttp2-keep-alive-timeout = \"10s\"\n"
    );
    let file = place.join("restate.toml");
    fs::write(&file, config)?;
    let log = File::create(place.join("node.log"))?;
    let mut command = Command::new(server);
    command.args(["--no-logo", "--node-name", "dev", "--config-file"]).arg(file);
    command.arg("--base-dir").arg(place.join("data")).env("DO_NOT_TRACK", "1");
    command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log).spawn()
}

fn start_worker(
    home: &Path,
    place: &Path,
    name: &str,
    cluster: &str,
    admin: &str,
) -> std::io::Result<Child> {
    let log = File::create(place.join(format!("worker-{name}.log")))?;
    let mut command = Command::new(std::env::current_exe()?);
    command.args(["serve-worker", "--runtime", cluster, "--admin", admin, "--name", name]);
    command
        .arg("--home")
        .arg(home)
        .arg("--store")
        .arg(format!("file://{}", place.join("store").display()));
    command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log).spawn()
}

impl ClusterProcesses {
    /// Waits a moment for the cluster to start. Fails if a program has ended, or it takes too long.
    async fn wait_for_start(&mut self, began: Instant, place: &Path) -> Result<(), Failure> {
        let problem = match self.ended() {
            Some(name) => format!("the {name} has ended"),
            None if began.elapsed() > START_TIMEOUT => "it takes too long".to_owned(),
            None => {
                tokio::time::sleep(POLL_INTERVAL).await;
                return Ok(());
            }
        };
        let text = format!("the cluster does not start: {problem}");
        Err(Failure::new(Exit::Failed, text).hint(format!("The logs are in {}.", place.display())))
    }

    /// Returns the name of a program that has ended.
    fn ended(&mut self) -> Option<String> {
        let ended = |(name, child): &mut (String, Child)| {
            (!matches!(child.try_wait(), Ok(None))).then(|| name.clone())
        };
        self.0.iter_mut().find_map(ended)
    }
}

impl Drop for ClusterProcesses {
    /// Stops the programs, the workers before the node.
    fn drop(&mut self) {
        while let Some((_, mut child)) = self.0.pop() {
            if let Some(pid) = i32::try_from(child.id()).ok().and_then(Pid::from_raw)
                && matches!(child.try_wait(), Ok(None))
            {
                // It has not been waited for, so the pid is its own.
                let signal = if self.0.is_empty() { Signal::TERM } else { Signal::INT };
                let _ = kill_process(pid, signal);
            }
            let began = Instant::now();
            while matches!(child.try_wait(), Ok(None)) && began.elapsed() < STOP_TIMEOUT {
                std::thread::sleep(Duration::from_millis(20));
            }
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}
