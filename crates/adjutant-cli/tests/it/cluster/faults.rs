//! Workers and the node are killed during runs: no finished step is repeated, and every answer is there once.

use std::collections::BTreeMap;

use adjutant_testkit::fake::{Api, Script};
use serde_json::Value;

use crate::cluster::node::{Cluster, server, until};
use crate::support::repository::Repo;
use crate::support::rig::Rig;
use crate::support::server::Server;

/// The faults of the ordinary suite.
const FAULTS: usize = 20;

/// The tasks of each run, and the model calls of each.
const TASKS: usize = 6;
const TURNS: usize = 6;

/// What is killed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    Worker(&'static str),
    Node,
    NodeAndWorker(&'static str),
}

/// Writes a file, and runs a command that changes it and then does not end.
const WRITER: &str = "
[[turn]]
text = \"\"
[[turn.call]]
tool = \"Write\"
args = { path = \"new.txt\", content = \"made\\n\" }
[[turn]]
text = \"\"
[[turn.call]]
tool = \"Run\"
args = { command = \"echo run >> new.txt; echo begun; sleep 600\" }
[[turn]]
text = \"{{result | first_line}}\"
";

const ORDER: [Fault; 5] = [
    Fault::Worker("one"),
    Fault::Node,
    Fault::Worker("two"),
    Fault::NodeAndWorker("one"),
    Fault::NodeAndWorker("two"),
];

fn provider(delay_ms: u64) -> Server {
    let mut script = format!("delay_ms = {delay_ms}\n[[conversation]]\n");
    for _ in 1..TURNS {
        script += "[[conversation.turn]]\nparts = [{ call = { name = \"Glob\", arguments = { pattern = \"*\" } } }]\n";
    }
    script += "[[conversation.turn]]\nparts = [{ text = \"Done.\" }]\n";
    Server::start(Api::Chat, Script::from_toml(&script).unwrap())
}

fn count(events: &[Value], kind: &str) -> usize {
    events.iter().filter(|event| event["type"] == kind).count()
}

#[test]
fn twenty_kills_of_workers_and_the_node_lose_and_repeat_nothing() {
    let Some(node) = server() else { return };
    let rig = Rig::new();
    rig.write("a.txt", "hello");
    let provider = provider(150);
    let mut cluster = Cluster::start(&rig, node);
    cluster.start_worker("one", Some(&provider));
    cluster.start_worker("two", Some(&provider));
    let mut faults = ORDER.into_iter().cycle().take(FAULTS);
    let (mut done, mut runs, mut lost_calls) = (0, 0, 0);
    while done < FAULTS {
        let runtime = cluster.runtime();
        let mut args = ["delegate", "--yes", "--model", "fake/priced", "--runtime", &runtime]
            .map(str::to_owned)
            .to_vec();
        for task in 0..TASKS {
            args.extend(["-t".to_owned(), format!("t{task}=Look")]);
        }
        let args: Vec<&str> = args.iter().map(String::as_str).collect();
        let mut front = provider.call(&rig, &args).start();
        runs += 1;
        let mut before = provider.requests().len();
        loop {
            until("the run goes on", || {
                front.has_ended() || provider.requests().len() >= before + 3
            });
            if front.has_ended() {
                break;
            }
            let Some(fault) = faults.next() else { break };
            done += 1;
            match fault {
                Fault::Worker(name) => {
                    lost_calls += in_flight(&provider);
                    cluster.kill_worker(name);
                }
                Fault::Node => cluster.kill_node(0),
                Fault::NodeAndWorker(name) => {
                    lost_calls += in_flight(&provider);
                    cluster.kill_node(0);
                    cluster.kill_worker(name);
                }
            }
            if fault != Fault::Worker("one") && fault != Fault::Worker("two") {
                cluster.start_node(0);
            }
            if let Fault::Worker(name) | Fault::NodeAndWorker(name) = fault {
                cluster.start_worker(name, Some(&provider));
            }
            before = provider.requests().len();
        }
        let output = front.finish();
        assert_eq!(output.code, 0, "run {runs} after {done} faults: {output}");
    }
    let mut replies = 0;
    for run in rig.runs() {
        let events = rig.events(&run);
        let mut by_turn: BTreeMap<String, usize> = BTreeMap::new();
        for event in events.iter().filter(|event| event["type"] == "replied") {
            *by_turn.entry(format!("{}-{}", event["session"], event["turn"])).or_default() += 1;
        }
        assert_eq!(by_turn.len(), TASKS * TURNS, "{run}: every turn has an answer");
        assert!(by_turn.values().all(|times| *times == 1), "{run}: {by_turn:?}");
        // The root ends too.
        assert_eq!(count(&events, "ended"), TASKS + 1, "{run}");
        assert_eq!(count(&events, "late"), 0, "{run}");
        replies += by_turn.len();
    }
    let calls = provider.requests().len();
    println!(
        "{done} faults in {runs} runs: {replies} answers from {calls} calls; at most {lost_calls} were lost"
    );
    assert!(
        calls <= replies + lost_calls,
        "{calls} calls for {replies} answers, {lost_calls} lost"
    );
}

/// Returns the calls whose answer may be lost with a worker: those under way, and those answered at this moment.
fn in_flight(provider: &Server) -> usize {
    let requests = provider.requests();
    let last = requests.iter().map(|request| request.at_ns).max().unwrap_or_default();
    // An answer takes 150 ms, and is recorded within another 150 ms.
    let is_recent = |at: u64| last.saturating_sub(at) < 300_000_000;
    requests.iter().filter(|it| it.delivered.is_none() || is_recent(it.at_ns)).count()
}

#[test]
fn the_sessions_of_a_worker_that_never_returns_go_to_another() {
    let Some(node) = server() else { return };
    let rig = Rig::new();
    rig.write("a.txt", "hello");
    let provider = provider(100);
    let mut cluster = Cluster::start(&rig, node);
    cluster.start_worker("one", Some(&provider));
    cluster.start_worker("two", Some(&provider));
    let runtime = cluster.runtime();
    let args = [
        "delegate",
        "--yes",
        "--model",
        "fake/priced",
        "-t",
        "a=Look",
        "-t",
        "b=Look",
        "--runtime",
        &runtime,
    ];
    let front = provider.call(&rig, &args).start();
    until("both have begun", || provider.requests().len() >= 4);
    // The handlers of the runs are on the first worker.
    cluster.kill_worker("one");
    let output = front.finish();
    assert_eq!(output.code, 0, "{output}");
    assert_eq!(count(&rig.events(&rig.only_run()), "replied"), 2 * TURNS);
    rig.assert_unharmed();
}

#[test]
fn a_writer_whose_worker_dies_goes_on_in_its_workspace_and_repeats_no_command() {
    let Some(node) = server() else { return };
    let repo = Repo::new();
    let rig = &repo.rig;
    std::fs::write(rig.path().join("script.toml"), WRITER).unwrap();
    let mut cluster = Cluster::start(rig, node);
    cluster.start_worker("one", None);
    let runtime = cluster.runtime();
    let mut front = rig.delegating(&["-t", "a=Write", "--write", "--runtime", &runtime]).start();
    front.wait_for("[a] Run");
    let run = rig.only_run();
    until("the command runs", || count(&rig.events(&run), "printed") > 0);
    cluster.kill_worker("one");
    cluster.start_worker("one", None);
    let output = front.finish();
    assert_eq!(output.code, 0, "{output}");
    assert!(output.stdout.contains("Interrupted: nobody knows"), "{output}");
    let diff = rig.run(["diff", &run]);
    assert_eq!(diff.stdout.matches("+run").count(), 1, "{diff}");
}

#[test]
fn calls_that_the_server_paused_go_on_when_a_person_says_so() {
    let Some(node) = server() else { return };
    let rig = Rig::new();
    rig.write("a.txt", "hello");
    let provider = provider(300);
    let mut cluster = Cluster::start(&rig, node);
    cluster.start_worker("one", Some(&provider));
    let runtime = cluster.runtime();
    let args =
        ["delegate", "--yes", "--model", "fake/priced", "-t", "a=Look", "--runtime", &runtime];
    let mut front = provider.call(&rig, &args).start();
    until("the model is called", || !provider.requests().is_empty());
    cluster.kill_worker("one");
    until("the server calls again", || {
        cluster.calls_in_state("backing-off").iter().for_each(|id| cluster.pause_call(id));
        !cluster.calls_in_state("paused").is_empty()
    });
    cluster.start_worker("one", Some(&provider));
    assert!(!front.has_ended());
    let admin = cluster.admin();
    let resume = ["cluster", "resume-paused", "--runtime", &runtime, "--admin", &admin];
    let resumed = rig.run(resume);
    assert_eq!(resumed.code, 0, "{resumed}");
    assert!(resumed.stdout.contains("resumed"), "{resumed}");
    let output = front.finish();
    assert_eq!(output.code, 0, "{output}");
    assert_eq!(cluster.calls_in_state("paused"), Vec::<String>::new());
    assert_eq!(count(&rig.events(&rig.only_run()), "replied"), TURNS);
}
