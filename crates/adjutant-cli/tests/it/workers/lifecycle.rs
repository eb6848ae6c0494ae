//! The life of a worker beside its model calls: cancelled, told, repaired, verified, resumed, killed.

use std::fs;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use super::site::{WorkerRun, WorkerSite, call, done, processes_with, prompts, wait_until};
use crate::support::mcp_client::Client;
use crate::support::server::KEY;

/// What `cancel` promises.
const PROMISED: Duration = Duration::from_secs(2);

/// A directory that the agent can see, where a test puts a file to let it go on.
struct Gate {
    folder: String,
}

impl Gate {
    fn new(site: &WorkerSite) -> Self {
        let folder = site.rig().path().canonicalize().unwrap().join("gate");
        fs::create_dir(&folder).unwrap();
        Self { folder: folder.display().to_string() }
    }

    /// Returns the step that waits for it.
    fn step(&self) -> Value {
        json!({"wait_for": format!("{}/open", self.folder)})
    }

    fn open(&self) {
        fs::write(format!("{}/open", self.folder), "").unwrap();
    }
}

/// Returns the steps that start a daemon with the marker of the site.
fn daemon(site: &WorkerSite) -> Value {
    json!({"fork_daemon": format!("sleep 300; echo {}", site.marker())})
}

fn has_daemon(site: &WorkerSite) -> bool {
    processes_with(&site.marker()).iter().any(|(_, line)| line.starts_with("sh -c sleep 300"))
}

#[test]
fn cancel_ends_a_worker_that_ignores_it_and_its_daemon() {
    let site = WorkerSite::new();
    let write = json!({"write": {"path": "half", "text": "half done\n"}});
    site.script(&prompts([json!(["ignore_cancel", call(), write, daemon(&site), "silent"])]));
    let running = site.delegate(&[]).start();
    wait_until("the daemon", || has_daemon(&site));
    let start = Instant::now();
    let out = site.call(&["cancel"]).run();
    assert_eq!(out.code, 0, "{out}");
    let ended = running.finish();
    assert!(start.elapsed() < PROMISED, "{:?}", start.elapsed());
    assert_eq!(ended.code, 130, "{ended}");
    assert_eq!(processes_with(&site.marker()), []);
    assert_eq!(site.kept("half"), "half done");
    site.assert_settled_once();
    site.rig().assert_unharmed();
}

#[test]
fn cancel_settles_a_call_that_is_under_way() {
    let slow = adjutant_testkit::fake::Turn::says("never").delivered(|it| it.delay_ms = 60_000);
    let script = adjutant_testkit::fake::Script::always([slow]);
    let site = WorkerSite::with(adjutant_testkit::fake::Api::Chat, script);
    site.script(&prompts([json!([call(), done()])]));
    let running = site.delegate(&[]).start();
    site.provider.wait_for_requests(1);
    let start = Instant::now();
    assert_eq!(site.call(&["cancel"]).run().code, 0);
    let ended = running.finish();
    assert!(start.elapsed() < PROMISED, "{:?}", start.elapsed());
    assert_eq!(ended.code, 130, "{ended}");
    site.assert_settled_once();
    assert_eq!(site.events("worker_call_settled")[0]["how"], "abandoned");
    site.wait_until_gone();
}

#[test]
fn a_deadline_ends_a_worker_and_its_daemon_and_keeps_its_work() {
    let site = WorkerSite::new();
    let write = json!({"write": {"path": "half", "text": "half done\n"}});
    let steps = json!(["ignore_cancel", call(), write, daemon(&site), "silent"]);
    let run = site.run(&prompts([steps]), &["--set", "timeout_s=2"]);
    insta::assert_snapshot!(run.end(), @"
    partial
    TIMEOUT: Timed out after 2 s, its own timeout.
    `adjutant resume sess_0000000000_aaaaaa` gives it as much time again; what was found so far is in the result.
    ");
    assert_eq!(processes_with(&site.marker()), []);
    assert_eq!(site.kept("half"), "half done");
}

#[test]
fn a_finished_worker_leaves_no_daemon() {
    let site = WorkerSite::new();
    let run = site.run(&prompts([json!([call(), daemon(&site), done()])]), &[]);
    assert_eq!(run.end(), "completed");
    assert_eq!(processes_with(&site.marker()), []);
}

#[test]
fn a_message_reaches_the_worker_with_its_next_prompt() {
    let site = WorkerSite::new();
    let gate = Gate::new(&site);
    let first = json!([call(), {"run": "true"}, gate.step(), done()]);
    let second = json!([call(), {"say": "Told: {prompt}"}]);
    site.script(&prompts([first, second]));
    let running = site.delegate(&["--grant", &gate.folder]).start();
    site.wait_for_event("\"status\":\"completed\"");
    let told = site.call(&["tell", "a", "Leave the tests out"]).run();
    assert_eq!(told.code, 0, "{told}");
    gate.open();
    let run = WorkerRun::read(running.finish());
    assert_eq!(run.status(), "completed", "{}", run.out);
    assert!(run.report().contains("Leave the tests out"), "{}", run.report());
    // The session knows the task already.
    assert!(!run.report().contains("Do the work"), "{}", run.report());
}

#[test]
fn a_return_that_breaks_the_contract_is_repaired_by_a_further_prompt() {
    let site = WorkerSite::new();
    let valid = json!({
        "status": "completed", "summary": "It is done. Nothing is left.", "artifacts": [],
        "errors": [],
    });
    let first = json!([call(), {"say": "I did it, trust me."}]);
    let second = json!([call(), {"write": {"path": "prompt", "text": "repaired\n"}},
        {"say": format!("```json\n{valid}\n```")}]);
    let run = site.run(&prompts([first, second]), &["--set", "contract=standard"]);
    assert_eq!(run.status(), "completed", "{}\n{}", run.end(), run.out);
    assert_eq!(site.kept("prompt"), "repaired");
    let opened = site.events("worker_session_opened");
    assert_eq!(opened.len(), 1, "one session: {opened:?}");
}

#[test]
fn a_failed_verification_is_repaired_by_a_further_prompt() {
    let site = WorkerSite::new();
    let first = json!([call(), {"write": {"path": "state", "text": "bad\n"}}, done()]);
    let second = json!([call(), {"write": {"path": "state", "text": "good\n"}}, done()]);
    let run = site.run(&prompts([first, second]), &["--verify", "grep good state"]);
    assert_eq!(run.end(), "completed");
    assert_eq!(site.kept("state"), "good");
    assert_eq!(site.provider.requests().len(), 2);
}

#[test]
fn a_verification_that_never_passes_is_not_completed() {
    let site = WorkerSite::new();
    let steps = json!([call(), {"write": {"path": "state", "text": "bad\n"}}, done()]);
    let flags = ["--verify", "grep good state", "--set", "verify_attempts=2"];
    let run = site.run(&prompts([steps]), &flags);
    insta::assert_snapshot!(run.end(), @"
    partial
    BUILD_ERROR: The work does not pass: `grep good state` failed 2 times; the last time: exit 1.
    Look at what was done with `adjutant diff`, then `adjutant resume` with --say what to do differently.
    ");
}

/// Kills Adjutant in the middle of a worker's first prompt, and resumes. Returns the result.
#[track_caller]
fn resumed(site: &WorkerSite, keys: &Value) -> WorkerRun {
    let gate = Gate::new(site);
    let first = json!([call(), {"write": {"path": "first", "text": "one\n"}}, gate.step(), done()]);
    let second =
        json!([call(), {"write": {"path": "second", "text": "two\n"}}, {"say": "Asked: {prompt}"}]);
    let mut script = prompts([first, second]);
    script.as_object_mut().unwrap().extend(keys.as_object().unwrap().clone());
    site.script(&script);
    let mut running = site.delegate(&["--grant", &gate.folder]).start();
    site.wait_for_event("\"status\":\"completed\"");
    running.signal(Signal::KILL);
    assert_eq!(running.finish().code, 137);
    site.wait_until_gone();
    gate.open();
    let out = site.call(&["resume", "--yes", "--json"]).run();
    assert_eq!(out.code, 0, "{out}");
    site.assert_settled_once();
    site.rig().assert_unharmed();
    assert_eq!(site.kept("first"), "one");
    WorkerRun::read(out)
}

#[test]
fn resume_after_a_kill_loads_the_session_of_the_worker() {
    let site = WorkerSite::new();
    let run = resumed(&site, &json!({}));
    assert_eq!(run.status(), "completed", "{}", run.out);
    assert_eq!(site.kept("second"), "two");
    let opened = site.events("worker_session_opened");
    let starts: Vec<&Value> = opened.iter().map(|event| &event["start"]).collect();
    assert_eq!(starts, ["new", "loaded"]);
    assert_eq!(opened[0]["id"], opened[1]["id"]);
    // The loaded session knows the rules; the task was not answered, so it is repeated.
    assert_eq!(run.report(), "Asked: Do the work");
    assert_eq!(site.provider.requests().len(), 2);
}

#[test]
fn resume_after_a_kill_retells_the_task_if_the_worker_cannot_load_its_session() {
    let site = WorkerSite::new();
    let run = resumed(&site, &json!({"load_session": false}));
    assert_eq!(run.status(), "completed", "{}", run.out);
    let opened = site.events("worker_session_opened");
    let starts: Vec<&Value> = opened.iter().map(|event| &event["start"]).collect();
    assert_eq!(starts, ["new", "retold"]);
}

#[test]
fn a_killed_agent_is_reported_and_resumed() {
    let site = WorkerSite::new();
    let gate = Gate::new(&site);
    let first = json!([call(), {"write": {"path": "first", "text": "one\n"}}, gate.step(), done()]);
    site.script(&prompts([first, json!([call(), done()])]));
    let running = site.delegate(&["--grant", &gate.folder]).start();
    site.wait_for_event("\"status\":\"completed\"");
    kill_agents(&site);
    let run = WorkerRun::read(running.finish());
    insta::assert_snapshot!(run.end(), @"
    failed
    TOOL_UNAVAILABLE: worker failed: scripted: it was killed by signal 9
    `adjutant workers` says what each worker needs; `adjutant log` shows what it did.
    ");
    gate.open();
    let run = WorkerRun::read(site.call(&["resume", "--yes", "--json"]).run());
    assert_eq!(run.status(), "completed", "{}", run.out);
    assert_eq!(site.kept("first"), "one");
    site.assert_settled_once();
}

/// Kills the agents of a site.
pub(super) fn kill_agents(site: &WorkerSite) {
    for (pid, line) in processes_with(&site.marker()) {
        if line.contains("acp-agent") {
            let _ = kill_process(Pid::from_raw(pid).unwrap(), Signal::KILL);
        }
    }
}

#[test]
fn an_mcp_client_gives_work_to_the_worker_of_an_agent_file() {
    let site = WorkerSite::new();
    let steps = json!([call(), {"write": {"path": "made", "text": "made\n"}}, done()]);
    site.script(&prompts([steps]));
    let config = site.rig().home().join(".config/adjutant/config.toml");
    let text = fs::read_to_string(&config).unwrap();
    let unasked = "[mcp]\nwrite_unasked = true\napproval = \"auto-below 20\"\n";
    fs::write(config, format!("{text}\n{unasked}")).unwrap();
    let agent = "---\nname: outside\ndescription: Works with another agent.\n\
                 adjutant: { worker: scripted }\n---\nYou are careful.\n";
    site.rig().write(".claude/agents/outside.md", agent);
    site.repo.commit("agent");
    let path = std::env::var("PATH").unwrap();
    let env = [("PATH", path.as_str()), ("FAKE_KEY", KEY)];
    let mut client = Client::start_in_account_on(site.rig(), "fake/priced", &[], &env);
    client.initialize("tester", "2025-11-25");
    let task = json!([{"label": "fix", "prompt": "Do the work"}]);
    let unknown = json!({"tasks": task, "agent": "missing"});
    let said = client.failure("delegate_write", unknown);
    assert!(said.contains("missing"), "{said}");

    let data = client.data("delegate_write", json!({"tasks": task, "agent": "outside"}));
    assert_eq!(data["state"], "completed", "{data}");
    assert_eq!(data["results"]["results"][0]["kept"]["files"][0]["path"], "made", "{data}");
    assert_eq!(site.provider.requests().len(), 1);
    let run = data["run"].as_str().unwrap();
    let opened = site.rig().events(run);
    assert!(opened.iter().any(|event| event["type"] == "worker_session_opened"));
    site.wait_until_gone();
}
