//! Clusters that are wrong, gone, confused with another one, or whose clocks differ.

use std::fs;
use std::io::{Read, Write};
use std::net::TcpListener;
use std::path::Path;
use std::thread;

use rustix::process::Signal;
use serde_json::json;

use crate::cluster::node::{Cluster, server, until};
use crate::support::project::{Project, one_story, says, writes};
use crate::support::rig::Rig;

/// What shifts the clock of a program, from the Debian package `libfaketime`.
const FAKETIME: &str = "/usr/lib/x86_64-linux-gnu/faketime/libfaketime.so.1";

const LOOK: &str = "
[[turn]]
text = \"Looking.\"
[[turn.call]]
tool = \"Glob\"
args = { pattern = \"*\" }
[[turn]]
delay_ms = 1000
text = \"Seen.\"
";

#[test]
fn a_server_of_another_version_is_refused() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        for stream in listener.incoming() {
            let Ok(mut stream) = stream else { return };
            let _ = stream.read(&mut [0; 1024]);
            let body = json!({ "version": "1.6.2" }).to_string();
            let answer = format!(
                "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{body}",
                body.len()
            );
            let _ = stream.write_all(answer.as_bytes());
        }
    });
    let rig = Rig::new();
    let admin = format!("http://{address}");
    let runtime = format!("restate://{address}");
    let args = ["serve-worker", "--runtime", &runtime, "--admin", &admin, "--name", "one"];
    let output = rig.run(args);
    assert_eq!(output.code, 1, "{output}");
    let said = "the Restate server has version 1.6.2; this version of Adjutant needs 1.7.x";
    assert!(output.stderr.contains(said), "{output}");
}

#[test]
fn an_admin_address_that_does_not_answer_is_named() {
    let Some(server) = server() else { return };
    let rig = Rig::new();
    let cluster = Cluster::start(&rig, server);
    let runtime = cluster.runtime();
    let wrong = "http://127.0.0.1:1";
    let args = ["serve-worker", "--runtime", &runtime, "--admin", wrong, "--name", "one"];
    for args in [&args[..], &["cluster", "resume-paused", "--runtime", &runtime, "--admin", wrong]]
    {
        let output = rig.run(args);
        assert_eq!(output.code, 1, "{output}");
        assert!(output.stderr.contains(wrong), "{output}");
        assert!(output.stderr.contains("--admin"), "{output}");
    }
}

#[test]
fn two_clusters_with_one_store_do_not_disturb_each_other() {
    let Some(server) = server() else { return };
    let projects = ["first", "second"].map(|content| {
        let turns = [writes("a", "made.txt", content), says("a", "Done.")];
        (content, Project::new(&one_story(), turns))
    });
    let base = Rig::new();
    let store = base.path().join("store");
    fs::create_dir(&store).unwrap();
    let mut clusters = Vec::new();
    for (_, project) in &projects {
        let mut cluster = Cluster::start(project.rig(), server.clone());
        let home = project.rig().path().join("home-of-worker").display().to_string();
        let store = format!("file://{}", store.display());
        let flags = ["--home", &home, "--store", &store, "--keep", "5s"].map(str::to_owned);
        cluster.start_worker_with("one", None, &flags);
        clusters.push(cluster);
    }
    let calls = projects.iter().zip(&clusters).map(|((_, project), cluster)| {
        let model = format!("script:{}", project.rig().path().join("script.json").display());
        let runtime = cluster.runtime();
        let args = ["delegate", "--yes", "--write", "--model", &model, "-t", "a=Write"];
        project.call(args).args(["--runtime", &runtime]).start()
    });
    for running in calls.collect::<Vec<_>>() {
        let output = running.finish();
        assert_eq!(output.code, 0, "{output}");
    }
    for (content, project) in &projects {
        let run = project.rig().only_run();
        assert_eq!(project.left(&run, "a", "made.txt"), *content);
    }
    let stored = || fs::read_dir(store.join("runs")).into_iter().flatten().count();
    until("the store has nothing of the runs", || stored() == 0);
}

#[test]
fn a_run_goes_on_where_it_began_whatever_runtime_is_named_now() {
    let Some(server) = server() else { return };
    let rig = Rig::with_script(LOOK);
    let mut cluster = Cluster::start(&rig, server);
    cluster.start_worker("one", None);
    let runtime = cluster.runtime();
    for (begun_at, now) in [("local", runtime.as_str()), (&runtime, "restate://127.0.0.1:1")] {
        let before = rig.runs();
        let mut front = rig.delegating(&["-t", "a=Look", "--runtime", begun_at]).start();
        front.wait_for("[a] Glob");
        front.signal(Signal::KILL);
        let _ = front.finish();
        let run = rig.runs().into_iter().find(|run| !before.contains(run)).unwrap();
        for command in ["status", "resume", "result", "cost"] {
            let output = rig.call([command, &run]).env("ADJUTANT_RUNTIME", now).run();
            assert_eq!(output.code, 0, "{command} of a run at {begun_at}: {output}");
        }
        assert_eq!(rig.run_folder(&run).join("runtime").is_file(), begun_at != "local");
    }
    // A run that this state directory does not know is not searched for on the cluster.
    let unknown = rig.call(["resume", "run_1700000000_aaaaaa"]).env("ADJUTANT_RUNTIME", &runtime);
    let unknown = unknown.run();
    assert_eq!(unknown.code, 2, "{unknown}");
    rig.assert_unharmed();
}

#[test]
fn workers_whose_clocks_differ_by_minutes_do_the_same_work() {
    let Some(server) = server() else { return };
    if !Path::new(FAKETIME).exists() {
        println!("NOT CHECKED: {FAKETIME} is not installed, so all clocks were right");
        return;
    }
    let rig = Rig::with_script(LOOK);
    rig.write("a.txt", "hello");
    let mut cluster = Cluster::start(&rig, server);
    for (name, shift) in [("early", "-7m"), ("late", "+9m")] {
        let clock =
            [("LD_PRELOAD", FAKETIME), ("FAKETIME", shift), ("FAKETIME_DONT_FAKE_MONOTONIC", "1")];
        cluster.start_worker_in(name, &clock);
    }
    let runtime = cluster.runtime();
    // Shorter than the difference of the clocks.
    let limits = ["--set", "timeout_s=60", "--set", "total_s=60", "--runtime", &runtime];
    let tasks = ["-t", "a=Look", "-t", "b=Look", "-t", "c=Look", "-t", "d=Look"];
    let output = rig.delegating(&[&tasks[..], &limits].concat()).run();
    assert_eq!(output.code, 0, "{output}");
    let events = rig.events(&rig.only_run());
    let ended: Vec<_> = events.iter().filter(|event| event["type"] == "ended").collect();
    assert_eq!(ended.len(), 5, "{events:?}");
    assert!(ended.iter().all(|event| event["outcome"] == "completed"), "{ended:?}");
    let listed = rig.run(["cluster", "workers", "--runtime", &runtime]);
    assert!(listed.stdout.contains("early") && listed.stdout.contains("late"), "{listed}");
}
