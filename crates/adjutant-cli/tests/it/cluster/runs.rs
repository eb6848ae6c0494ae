//! Runs on a cluster look like local runs: their results, their records, and requests to them.

use adjutant_testkit::fake::{Api, Script};
use rustix::process::Signal;

use crate::cluster::node::{Cluster, server, until};
use crate::support::mcp_client::{Client, task};
use crate::support::repository::Repo;
use crate::support::rig::Rig;
use crate::support::server::Server;

const READERS: &str = "
[[turn]]
text = \"Looking.\"
[[turn.call]]
tool = \"Glob\"
args = { pattern = \"*\" }
[[turn]]
text = \"Found {{result | first_line}}\"
";

#[test]
fn readers_on_two_workers_answer_as_locally() {
    let Some(server) = server() else { return };
    let rig = Rig::with_script(READERS);
    rig.write("a.txt", "hello");
    let mut cluster = Cluster::start(&rig, server);
    cluster.start_worker("one", None);
    cluster.start_worker("two", None);
    let runtime = cluster.runtime();
    let tasks = ["-t", "a=Look", "-t", "b=Look again"];
    let local = rig.delegate(&tasks);
    let remote = rig.delegating(&tasks).args(["--runtime", &runtime]).run();
    assert_eq!(remote.code, 0, "{remote}");
    // Redacted, so ids and times do not matter.
    assert_eq!(remote.data(), local.data());
    let run = remote.stdout.split_whitespace().find(|it| it.starts_with("run_")).unwrap();
    let run = run.trim_end_matches(',').to_owned();
    for command in ["result", "tree", "cost", "log", "status"] {
        let output = rig.run([command, &run]);
        assert_eq!(output.code, 0, "{command}: {output}");
        assert!(!output.stdout.is_empty(), "{command}");
    }
    rig.assert_unharmed();
}

#[test]
fn without_a_worker_or_a_server_the_message_says_what_to_start() {
    let Some(server) = server() else { return };
    let rig = Rig::with_script(READERS);
    let cluster = Cluster::start(&rig, server);
    let none = rig.delegating(&["-t", "a=Look", "--runtime", &cluster.runtime()]).run();
    assert_eq!(none.code, 1, "{none}");
    assert!(none.stderr.contains("knows no live worker of Adjutant"), "{none}");
    let gone = rig.delegating(&["-t", "a=Look", "--runtime", "restate://127.0.0.1:1"]).run();
    assert_eq!(gone.code, 1, "{gone}");
    assert!(gone.stderr.contains("no Restate server answers"), "{gone}");
    assert_eq!(rig.runs(), Vec::<String>::new(), "a run that did not begin leaves nothing");
}

#[test]
fn the_runs_of_an_mcp_client_are_on_the_cluster_that_the_configuration_names() {
    let Some(server) = server() else { return };
    let rig = Rig::with_script(
        "price = { input = 0.0, output = 0.0 }\n[[turn]]\ntext = \"An answer of a worker.\"\n",
    );
    let mut cluster = Cluster::start(&rig, server);
    cluster.start_worker("one", None);
    let config = rig.home().join(".config/adjutant");
    std::fs::create_dir_all(&config).unwrap();
    let runtime = format!("[runtime]\nurl = \"{}\"\n", cluster.runtime());
    std::fs::write(config.join("config.toml"), runtime).unwrap();
    let mut client = Client::allowed(&rig, &[]);
    let answer = client.call("Delegate", task("look"));
    assert!(answer.to_string().contains("An answer of a worker."), "{answer}");
    assert!(rig.run_folder(&rig.only_run()).join("runtime").is_file(), "it was on the cluster");
    let (_, code) = client.leave();
    assert_eq!(code, Some(0));
    rig.assert_unharmed();
}

#[test]
fn work_that_needs_a_tool_which_no_worker_has_is_refused() {
    let Some(server) = server() else { return };
    let repo = Repo::new();
    let rig = &repo.rig;
    std::fs::write(rig.path().join("script.toml"), READERS).unwrap();
    let mut cluster = Cluster::start(rig, server);
    cluster.start_worker("one", None);
    let runtime = cluster.runtime();
    let delegate = |tool| {
        let args = ["-t", "a=Look", "--write", "--needs", tool, "--runtime", &runtime];
        rig.delegating(&args).run()
    };
    let refused = delegate("no-such-tool");
    assert_eq!(refused.code, 1, "{refused}");
    let said = "no worker of the cluster can do the work: one lacks the tool no-such-tool";
    assert!(refused.stderr.contains(said), "{refused}");
    assert_eq!(rig.runs(), Vec::<String>::new(), "nothing began");
    // Perl is on every machine that has git.
    let done = delegate("perl");
    assert_eq!(done.code, 0, "{done}");
}

#[test]
fn a_second_worker_with_the_same_name_is_refused() {
    let Some(server) = server() else { return };
    let rig = Rig::new();
    let mut cluster = Cluster::start(&rig, server);
    cluster.start_worker("one", None);
    let second = cluster.try_worker("one");
    assert_eq!(second.code, 1, "{second}");
    assert!(second.stderr.contains("another worker named one is running"), "{second}");
    let listed = rig.run(["cluster", "workers", "--runtime", &cluster.runtime()]);
    assert!(listed.stdout.starts_with("one  on "), "{listed}");
    assert_eq!(cluster.stop_worker("one"), 0);
}

#[test]
fn cancelling_and_telling_reach_the_workers() {
    let Some(node) = server() else { return };
    let rig = Rig::new();
    let provider = Server::start(Api::Chat, slow());
    let mut cluster = Cluster::start(&rig, node);
    cluster.start_worker("one", Some(&provider));
    let runtime = cluster.runtime();
    let args =
        ["delegate", "--yes", "--model", "fake/priced", "-t", "a=Wait", "--runtime", &runtime];
    let mut front = provider.call(&rig, &args).start();
    front.wait_for("[a] started");
    until("the model is called", || !provider.requests().is_empty());
    let run = rig.only_run();
    let child =
        rig.events(&run).iter().find(|it| it["type"] == "started").unwrap()["session"].clone();
    let told = rig.run(["tell", child.as_str().unwrap(), "Hurry"]);
    assert_eq!(told.code, 0, "{told}");
    let cancelled = rig.run(["cancel", &run]);
    assert_eq!(cancelled.code, 0, "{cancelled}");
    assert_eq!(front.finish().code, 130);
    until("the call is dropped", || {
        provider.requests().iter().all(|request| request.delivered.is_some())
    });
    rig.assert_unharmed();
}

#[test]
fn a_run_whose_front_end_died_is_followed_again() {
    let Some(node) = server() else { return };
    let rig = Rig::new();
    let script = Script::from_toml(
        "delay_ms = 500\n[[conversation]]\n[[conversation.turn]]\n\
         parts = [{ call = { name = \"Glob\", arguments = { pattern = \"*\" } } }]\n\
         [[conversation.turn]]\nparts = [{ text = \"Done.\" }]\n",
    );
    let provider = Server::start(Api::Chat, script.unwrap());
    let mut cluster = Cluster::start(&rig, node);
    cluster.start_worker("one", Some(&provider));
    let runtime = cluster.runtime();
    let args =
        ["delegate", "--yes", "--model", "fake/priced", "-t", "a=Look", "--runtime", &runtime];
    let mut front = provider.call(&rig, &args).start();
    front.wait_for("[a] started");
    front.signal(Signal::KILL);
    assert_eq!(front.finish().code, 137);
    let run = rig.only_run();
    let resumed = rig.run(["resume", &run]);
    assert_eq!(resumed.code, 0, "{resumed}");
    assert!(resumed.stdout.contains("Done."), "{resumed}");
    assert_eq!(provider.requests().len(), 2, "nothing is asked again");
    rig.assert_unharmed();
    // It has ended, so its result is all there is.
    let again = rig.run(["resume", &run]);
    assert_eq!(again.code, 0, "{again}");
}

#[test]
fn a_run_without_a_front_end_is_cancelled_on_the_cluster() {
    let Some(node) = server() else { return };
    let rig = Rig::new();
    let provider = Server::start(Api::Chat, slow());
    let mut cluster = Cluster::start(&rig, node);
    cluster.start_worker("one", Some(&provider));
    let runtime = cluster.runtime();
    let args =
        ["delegate", "--yes", "--model", "fake/priced", "-t", "a=Wait", "--runtime", &runtime];
    let mut front = provider.call(&rig, &args).start();
    front.wait_for("[a] started");
    until("the model is called", || !provider.requests().is_empty());
    front.signal(Signal::KILL);
    let _ = front.finish();
    let run = rig.only_run();
    let lead = run.replacen("run_", "sess_", 1);
    for (args, code) in [(&["wait", &run][..], 3), (&["tell", &lead, "Hurry"], 4)] {
        let output = rig.run(args);
        assert_eq!(output.code, code, "{output}");
        assert!(output.stderr.contains("no process here follows"), "{output}");
    }
    let cancelled = rig.run(["cancel", &run]);
    assert_eq!(cancelled.code, 0, "{cancelled}");
    until("the call is dropped", || provider.requests().iter().all(|it| it.delivered.is_some()));
    rig.assert_unharmed();
}

#[test]
fn a_run_whose_front_end_died_before_its_first_record_is_found_again() {
    let Some(node) = server() else { return };
    for command in ["resume", "cancel"] {
        let rig = Rig::new();
        let provider = Server::start(Api::Chat, soon());
        let mut cluster = Cluster::start(&rig, node.clone());
        cluster.start_worker("one", Some(&provider));
        let runtime = cluster.runtime();
        let args =
            ["delegate", "--yes", "--model", "fake/priced", "-t", "a=Look", "--runtime", &runtime];
        let mut front = provider.call(&rig, &args).start();
        until("the model is called", || !provider.requests().is_empty());
        front.signal(Signal::KILL);
        let _ = front.finish();
        let run = rig.only_run();
        // As if it had been lost between the start of the run there and the first record here.
        std::fs::write(rig.run_folder(&run).join("journal.jsonl"), "").unwrap();
        let output = rig.run([command, &run]);
        assert_eq!(output.code, 0, "{command}: {output}");
        rig.assert_unharmed();
    }
}

#[test]
fn an_agent_whose_answer_arrives_slowly_does_not_stall() {
    let Some(node) = server() else { return };
    let rig = Rig::new();
    let script = format!(
        "[[conversation]]\n[[conversation.turn]]\nparts = [{{ text = \"{}Late.\" }}]\n\
         fragment = [8]\ndelivery = {{ event_delay_ms = 1000 }}\n",
        "thinks. ".repeat(12)
    );
    let provider = Server::start(Api::Chat, Script::from_toml(&script).unwrap());
    let mut cluster = Cluster::start(&rig, node);
    cluster.start_worker("one", Some(&provider));
    for runtime in ["local", &cluster.runtime()] {
        let limits = ["--set", "stall_s=8", "--runtime", runtime];
        let args = ["delegate", "--yes", "--model", "fake/priced", "-t", "a=Think"];
        let output = provider.call(&rig, &[&args[..], &limits].concat()).run();
        assert_eq!(output.code, 0, "{runtime}: {output}");
    }
    assert_eq!(provider.requests().len(), 2);
}

/// A model that answers after two seconds.
fn soon() -> Script {
    let text = "delay_ms = 2000\n[[conversation]]\n[[conversation.turn]]\nparts = [{ text = \"Done.\" }]\n";
    Script::from_toml(text).unwrap()
}

#[test]
fn an_agent_on_a_worker_delegates_further() {
    let Some(node) = server() else { return };
    let rig = Rig::with_script(READERS);
    rig.write("a.txt", "hello");
    let mut cluster = Cluster::start(&rig, node);
    cluster.start_worker("one", None);
    let runtime = cluster.runtime();
    let script = "
[[turn]]
label = \"lead\"
text = \"\"
[[turn.call]]
tool = \"Delegate\"
args = { tasks = [{ label = \"child\", prompt = \"Look\" }] }
[[turn]]
label = \"lead\"
text = \"{{result}}\"
[[turn]]
label = \"child\"
text = \"Seen.\"
";
    std::fs::write(rig.path().join("script.toml"), script).unwrap();
    let output = rig
        .delegating(&["-t", "lead=Delegate this", "--set", "max_depth=2", "--runtime", &runtime])
        .run();
    assert_eq!(output.code, 0, "{output}");
    assert!(output.stdout.contains("Seen."), "{output}");
    let events = rig.events(&rig.only_run());
    assert_eq!(events.iter().filter(|event| event["type"] == "granted").count(), 2);
}

#[test]
fn a_deadline_ends_a_delegation_on_a_worker() {
    let Some(node) = server() else { return };
    let rig = Rig::new();
    let provider = Server::start(Api::Chat, slow());
    let mut cluster = Cluster::start(&rig, node);
    cluster.start_worker("one", Some(&provider));
    let runtime = cluster.runtime();
    let args = [
        "delegate",
        "--yes",
        "--model",
        "fake/priced",
        "-t",
        "a=Wait",
        "--set",
        "timeout_s=2",
        "--runtime",
        &runtime,
    ];
    let output = provider.call(&rig, &args).run();
    assert_ne!(output.code, 0, "{output}");
    let events = rig.events(&rig.only_run());
    assert!(
        events
            .iter()
            .any(|event| event["type"] == "timed_out" || event["reason"]["code"] == "TIMEOUT"),
        "{events:?}"
    );
    until("the call is dropped", || provider.requests().iter().all(|it| it.delivered.is_some()));
}

/// A model that answers after a minute.
fn slow() -> Script {
    let text = "delay_ms = 60000\n[[conversation]]\n[[conversation.turn]]\nparts = [{ text = \"Late.\" }]\n";
    Script::from_toml(text).unwrap()
}

#[test]
fn a_worker_that_is_told_to_leave_finishes_its_agents_first() {
    let Some(node) = server() else { return };
    let rig = Rig::new();
    let script = Script::from_toml(
        "delay_ms = 300\n[[conversation]]\n[[conversation.turn]]\n\
         parts = [{ call = { name = \"Glob\", arguments = { pattern = \"*\" } } }]\n\
         [[conversation.turn]]\nparts = [{ text = \"Done.\" }]\n",
    );
    let provider = Server::start(Api::Chat, script.unwrap());
    let mut cluster = Cluster::start(&rig, node);
    cluster.start_worker("one", Some(&provider));
    let runtime = cluster.runtime();
    let args =
        ["delegate", "--yes", "--model", "fake/priced", "-t", "a=Look", "--runtime", &runtime];
    let front = provider.call(&rig, &args).start();
    until("the model is called", || !provider.requests().is_empty());
    assert_eq!(cluster.stop_worker("one"), 0);
    let output = front.finish();
    assert_eq!(output.code, 0, "{output}");
    assert_eq!(provider.requests().len(), 2, "nothing is asked twice");
}

#[test]
fn a_worker_with_the_key_of_the_cluster_takes_only_its_calls() {
    let Some(node) = server() else { return };
    let rig = Rig::with_script(READERS);
    rig.write("a.txt", "hello");
    // An Ed25519 key that is used nowhere else.
    let key = "-----BEGIN PRIVATE KEY-----\nMC4CAQAwBQYDK2VwBCIEIAABAgMEBQYHCAkKCwwNDg8QERITFBUWFxgZGhscHR4f\n-----END PRIVATE KEY-----\n";
    std::fs::write(rig.path().join("identity.pem"), key).unwrap();
    let mut cluster = Cluster::start(&rig, node);
    let log = std::fs::read_to_string(rig.path().join("restate/n1.log")).unwrap();
    let public = log.split("publickeyv1_").nth(1).unwrap();
    let public: String = public.chars().take_while(char::is_ascii_alphanumeric).collect();
    let args = |key: &str| ["--identity-key".to_owned(), format!("publickeyv1_{key}")];
    cluster.start_worker_with("one", None, &args(&public));
    let runtime = cluster.runtime();
    let output = rig.delegating(&["-t", "a=Look", "--runtime", &runtime]).run();
    assert_eq!(output.code, 0, "{output}");
    // The key of another cluster: discovery is refused, so it cannot register.
    let other = "w7YHemBctH5Ck2nQRQ47iBBqhNHy4FV7t2Usbye2A6f";
    let refused = cluster.try_worker_with("two", &args(other));
    assert_eq!(refused.code, 1, "{refused}");
}
