//! Two hundred faults on three nodes and three workers that share only a store, and a call of twenty minutes.
//!
//! `tests/cluster/run --long` runs what is here. After each fault the test waits until the run goes on.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use adjutant_testkit::fake::{Api, DeliveryOutcome, RecordedRequest, Script};
use rustix::process::Signal;
use serde_json::Value;

use crate::cluster::node::{Cluster, server, until};
use crate::support::project::{Project, one_story};
use crate::support::running::Running;
use crate::support::server::Server;

/// The number of faults.
const FAULTS: usize = 200;

/// How many agents a run has.
const TASKS: usize = 4;

/// The requests that must arrive at the provider after a fault, so that the next one hits a run at work.
const PROGRESS: usize = 4;

/// How long a process or the store is away.
const PAUSE: Duration = Duration::from_secs(3);

/// Long enough that a paused worker counts as lost, and its sessions move.
const LONG_PAUSE: Duration = Duration::from_secs(15);

/// What is broken and mended again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Fault {
    /// A worker is killed and restarted.
    KilledWorker,
    /// A node is killed and restarted.
    KilledNode,
    /// The node is killed whose ingress the front end and the workers use.
    KilledIngress,
    /// A worker and a node are killed together.
    KilledBoth,
    /// A worker is killed, its state is deleted, and one of another name takes its place.
    LostWorker,
    /// A worker stands still for a moment.
    PausedWorker,
    /// A worker stands still until its sessions have moved, and then goes on.
    SilentWorker,
    /// A node stands still for a moment.
    PausedNode,
    /// The store is not there for a moment.
    MissingStore,
}

const FAULT_ORDER: [Fault; 20] = [
    Fault::KilledWorker,
    Fault::KilledNode,
    Fault::KilledIngress,
    Fault::MissingStore,
    Fault::KilledBoth,
    Fault::PausedWorker,
    Fault::KilledWorker,
    Fault::KilledIngress,
    Fault::LostWorker,
    Fault::KilledNode,
    Fault::PausedNode,
    Fault::KilledBoth,
    Fault::KilledWorker,
    Fault::MissingStore,
    Fault::KilledNode,
    Fault::SilentWorker,
    Fault::KilledBoth,
    Fault::PausedWorker,
    Fault::KilledWorker,
    Fault::PausedNode,
];

/// What an agent does: it looks, writes, runs two commands that must each happen once, and reports.
fn provider() -> Server {
    let call = |name: &str, arguments: &str| {
        format!(
            "[[conversation.turn]]\nparts = [{{ call = {{ name = \"{name}\", arguments = {arguments} }} }}]\n"
        )
    };
    let mut script = "delay_ms = 150\n[[conversation]]\n".to_owned();
    script += &call("Glob", "{ pattern = \"*\" }");
    script += &call("Write", "{ file_path = \"made.txt\", content = \"made\\n\" }");
    script += &call("Run", "{ command = \"echo one >> made.txt\" }");
    script += &call("Grep", "{ pattern = \"made\" }");
    script += &call("Run", "{ command = \"echo two >> made.txt\" }");
    script += "[[conversation.turn]]\nparts = [{ text = \"Done.\" }]\n";
    Server::start(Api::Chat, Script::from_toml(&script).unwrap())
}

/// The turns of each agent.
const TURNS: usize = 6;

/// Three nodes, three workers, and a run at work.
struct FaultRig<'rig> {
    project: &'rig Project,
    provider: &'rig Server,
    cluster: Cluster<'rig>,
    /// The workers by name; a lost one is replaced.
    workers: Vec<String>,
    started: usize,
    turn: usize,
    /// The calls whose answers may have been lost with a worker.
    lost_calls: usize,
}

impl<'rig> FaultRig<'rig> {
    fn new(project: &'rig Project, provider: &'rig Server, server: PathBuf) -> Self {
        let cluster = Cluster::start_nodes(project.rig(), server, 3);
        fs::create_dir_all(project.rig().path().join("store")).unwrap();
        let workers = Vec::new();
        let mut rig =
            Self { project, provider, cluster, workers, started: 0, turn: 0, lost_calls: 0 };
        for _ in 0..3 {
            rig.add_worker();
        }
        rig
    }

    fn add_worker(&mut self) {
        self.started += 1;
        let name = format!("w{}", self.started);
        self.start_worker(&name);
        self.workers.push(name);
    }

    fn home(&self, name: &str) -> PathBuf {
        self.project.rig().path().join(format!("home-{name}"))
    }

    fn start_worker(&mut self, name: &str) {
        let store = format!("file://{}", self.project.rig().path().join("store").display());
        let home = self.home(name).display().to_string();
        let flags = ["--home", &home, "--store", &store].map(str::to_owned);
        self.cluster.start_worker_with(name, Some(self.provider), &flags);
    }

    /// Starts a run whose front end uses the ingress of node `first`.
    fn start_run(&self, first: usize) -> Running<'rig> {
        let runtime = self.cluster.runtime_from(first);
        let mut args: Vec<String> =
            ["delegate", "--yes", "--write", "--model", "fake/priced", "--runtime", &runtime]
                .map(str::to_owned)
                .to_vec();
        for task in 0..TASKS {
            args.extend(["-t".to_owned(), format!("t{task}=Work")]);
        }
        let args: Vec<&str> = args.iter().map(String::as_str).collect();
        let path = std::env::var_os("PATH").unwrap();
        self.provider.call(self.project.rig(), &args).env("PATH", path).start()
    }

    fn breaks(&mut self, fault: Fault, first: usize) {
        self.turn += 1;
        let worker = self.turn % self.workers.len();
        let name = self.workers[worker].clone();
        // Not the first in the list of addresses.
        let node = (first + 1 + self.turn % 2) % 3;
        match fault {
            Fault::KilledWorker => {
                self.lost_calls += in_flight(self.provider);
                self.cluster.kill_worker(&name);
                self.start_worker(&name);
            }
            Fault::KilledNode => self.restart_node(node),
            Fault::KilledIngress => self.restart_node(first),
            Fault::KilledBoth => {
                self.lost_calls += in_flight(self.provider);
                self.cluster.kill_node(node);
                self.cluster.kill_worker(&name);
                self.cluster.start_node(node);
                self.start_worker(&name);
            }
            Fault::LostWorker => {
                self.lost_calls += in_flight(self.provider);
                self.cluster.kill_worker(&name);
                fs::remove_dir_all(self.home(&name)).unwrap();
                self.workers.remove(worker);
                self.add_worker();
            }
            Fault::PausedWorker => self.pause_worker(&name, PAUSE),
            Fault::SilentWorker => self.pause_worker(&name, LONG_PAUSE),
            Fault::PausedNode => {
                self.cluster.signal_node(node, Signal::STOP);
                std::thread::sleep(PAUSE);
                self.cluster.signal_node(node, Signal::CONT);
            }
            Fault::MissingStore => {
                let store = self.project.rig().path().join("store");
                let away = self.project.rig().path().join("store-away");
                fs::rename(&store, &away).unwrap();
                std::thread::sleep(PAUSE);
                assert!(!store.exists(), "a worker made a new store");
                fs::rename(&away, &store).unwrap();
            }
        }
    }

    fn restart_node(&mut self, node: usize) {
        self.cluster.kill_node(node);
        self.cluster.start_node(node);
    }

    fn pause_worker(&mut self, name: &str, pause: Duration) {
        // Its calls may be made again by another worker, or be cut off by its own time limits.
        self.lost_calls += in_flight(self.provider);
        self.cluster.signal_worker(name, Signal::STOP);
        std::thread::sleep(pause);
        self.cluster.signal_worker(name, Signal::CONT);
    }
}

/// Returns the calls whose answers may be lost with a worker: those under way, and those that it may not have recorded.
fn in_flight(provider: &Server) -> usize {
    let requests = provider.requests();
    let last = requests.iter().map(|it| it.at_ns).max().unwrap_or_default();
    let is_recent = |it: &&RecordedRequest| {
        it.delivered.is_none() || last.saturating_sub(it.at_ns) < 500_000_000
    };
    requests.iter().filter(is_recent).count()
}

#[test]
#[ignore = "takes a quarter of an hour; `tests/cluster/run --long` runs it"]
fn two_hundred_faults_lose_and_repeat_nothing() {
    let Some(server) = server() else { return };
    let project = Project::new(&one_story(), []);
    let provider = provider();
    let mut rig = FaultRig::new(&project, &provider, server);
    let mut faults = FAULT_ORDER.into_iter().cycle().take(FAULTS);
    let mut times: BTreeMap<Fault, Vec<Duration>> = BTreeMap::new();
    let (mut done, mut runs) = (0, 0);
    while done < FAULTS {
        let first = runs % 3;
        let mut front = rig.start_run(first);
        runs += 1;
        let mut before = provider.requests().len();
        loop {
            until("the run goes on", || {
                front.has_ended() || provider.requests().len() >= before + PROGRESS
            });
            if front.has_ended() {
                break;
            }
            let Some(fault) = faults.next() else { break };
            done += 1;
            let began = Instant::now();
            rig.breaks(fault, first);
            before = provider.requests().len();
            until("the run goes on after a fault", || {
                front.has_ended() || provider.requests().len() > before
            });
            times.entry(fault).or_default().push(began.elapsed());
            println!("{done:3} {fault:?}: goes on after {:.1} s", began.elapsed().as_secs_f64());
        }
        let output = front.finish();
        assert_eq!(output.code, 0, "run {runs} after {done} faults: {output}");
    }
    let replies = check_runs(&project);
    let calls = provider.requests();
    let whole = calls.iter().filter(|it| it.delivered == Some(DeliveryOutcome::Whole)).count();
    println!("\nfault            times   goes on after, median and longest");
    for (fault, mut times) in times {
        times.sort_unstable();
        let (median, longest) = (times[times.len() / 2], times[times.len() - 1]);
        println!(
            "{:<16} {:>5}   {:.1} s   {:.1} s",
            format!("{fault:?}"),
            times.len(),
            median.as_secs_f64(),
            longest.as_secs_f64()
        );
    }
    println!(
        "{done} faults in {runs} runs: {replies} answers, each recorded once, from {} calls, {whole} of them answered; at most {} could be lost with a worker",
        calls.len(),
        rig.lost_calls
    );
    assert!(
        calls.len() <= replies + rig.lost_calls,
        "{} calls for {replies} answers, {} lost",
        calls.len(),
        rig.lost_calls
    );
}

/// Checks that every run has each answer, end and piece of work once. Returns the number of answers.
fn check_runs(project: &Project) -> usize {
    let rig = project.rig();
    let mut replies = 0;
    for run in rig.runs() {
        let events = rig.events(&run);
        let mut by_turn: BTreeMap<String, usize> = BTreeMap::new();
        for event in events.iter().filter(|event| event["type"] == "replied") {
            *by_turn.entry(format!("{}-{}", event["session"], event["turn"])).or_default() += 1;
        }
        assert_eq!(by_turn.len(), TASKS * TURNS, "{run}: every turn has an answer");
        assert!(by_turn.values().all(|times| *times == 1), "{run}: {by_turn:?}");
        let ended = events.iter().filter(|event| event["type"] == "ended").count();
        // The root ends too.
        assert_eq!(ended, TASKS + 1, "{run}");
        for kept in events.iter().filter(|event| event["type"] == "space_kept") {
            check_work(project, &run, kept, &events);
        }
        replies += by_turn.len();
    }
    replies
}

/// Checks that no command of an agent happened twice, and that each that was not interrupted happened.
fn check_work(project: &Project, run: &str, kept: &Value, events: &[Value]) {
    let file = format!("{}:made.txt", kept["commit"].as_str().unwrap());
    let work = project.repo.git(["show", &file]);
    let answers = events
        .iter()
        .filter(|event| event["type"] == "tool_returned" && event["session"] == kept["session"]);
    let interrupted = answers
        .filter(|event| {
            event["content"].as_str().is_some_and(|text| text.starts_with("Interrupted"))
        })
        .count();
    let times = |line: &str| work.lines().filter(|it| *it == line).count();
    for line in ["made", "one", "two"] {
        assert!(times(line) <= 1, "{run} {}: {line} was repeated:\n{work}", kept["session"]);
    }
    let happened = times("made") + times("one") + times("two");
    assert!(
        happened + interrupted >= 3,
        "{run} {}: only {interrupted} calls were interrupted:\n{work}",
        kept["session"]
    );
}

#[test]
#[ignore = "takes twenty minutes; `tests/cluster/run --long` runs it"]
fn a_call_of_twenty_minutes_completes_once() {
    let Some(server) = server() else { return };
    let project = Project::new(&one_story(), []);
    // A piece of the answer every 20 seconds, as a provider that silence would time out.
    let script = format!(
        "[[conversation]]\n[[conversation.turn]]\nparts = [{{ text = \"{}Late.\" }}]\n\
         fragment = [8]\ndelivery = {{ event_delay_ms = 20000 }}\n",
        "thinks. ".repeat(60)
    );
    let provider = Server::start(Api::Chat, Script::from_toml(&script).unwrap());
    let mut cluster = Cluster::start(project.rig(), server);
    cluster.start_worker("one", Some(&provider));
    cluster.start_worker("two", Some(&provider));
    let runtime = cluster.runtime();
    let args =
        ["delegate", "--yes", "--model", "fake/priced", "-t", "a=Think", "--runtime", &runtime];
    let began = Instant::now();
    let mut front = provider.call(project.rig(), &args).start();
    while !front.has_ended() {
        assert!(began.elapsed() < Duration::from_secs(1500), "it does not end");
        std::thread::sleep(Duration::from_secs(1));
    }
    let output = front.finish();
    assert_eq!(output.code, 0, "{output}");
    assert!(output.stdout.contains("Late."), "{output}");
    assert!(began.elapsed() >= Duration::from_secs(1200), "the answer took twenty minutes");
    assert_eq!(provider.requests().len(), 1, "the call was made once");
    println!("a call of {:.0} s was made once", began.elapsed().as_secs_f64());
}
