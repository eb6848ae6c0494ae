//! The auto-approval allowance of clients, the limit of their live runs, and what happens to runs when their
//! server is gone.

use std::fs;

use serde_json::{Value, json};

use crate::support::mcp_client::{Client, SCRIPT, task};
use crate::support::rig::Rig;
use crate::support::server::{KEY, configure};

fn rig() -> Rig {
    Rig::with_script(SCRIPT)
}

fn named(rig: &Rig, name: &str, args: &[&str]) -> Client {
    let mut client = Client::start(rig, args, &[]);
    client.initialize(name, "2025-11-25");
    client
}

fn slow(nth: usize) -> Value {
    json!({ "tasks": [{ "label": "slow", "prompt": format!("Look around {nth}") }] })
}

fn quick(nth: usize) -> Value {
    json!({ "tasks": [{ "label": "quick", "prompt": format!("Look around {nth}") }] })
}

fn clean(rig: &Rig) {
    for run in rig.runs() {
        let _ = rig.run(["cancel", &run]);
    }
}

fn is_waiting(data: &Value) -> bool {
    data["state"] == "awaiting_approval"
}

#[test]
fn worst_cases_add_up_across_servers_and_client_names() {
    let rig = rig();
    let args = ["--approval", "auto-below 2.00", "--budget-usd", "1.00"];
    let mut one = named(&rig, "tester", &args);
    assert!(!is_waiting(&one.data("delegate_start", slow(1))));
    one.kill();
    let mut two = named(&rig, "tester", &args);
    assert!(!is_waiting(&two.data("delegate_start", slow(2))));
    let third = two.data("delegate_start", slow(3));
    assert!(is_waiting(&third), "{third}");
    assert_eq!(third["approval"]["worst_case_usd"], 1.0);
    let mut other = named(&rig, "another", &args);
    let renamed = other.data("delegate_start", slow(4));
    assert!(is_waiting(&renamed), "another name renews nothing: {renamed}");
    clean(&rig);
}

#[test]
fn concurrent_calls_in_two_servers_cannot_both_take_the_last_dollar() {
    let rig = rig();
    let args = ["--approval", "auto-below 3.00", "--budget-usd", "1.00"];
    let mut servers = [named(&rig, "tester", &args), named(&rig, "tester", &args)];
    let mut calls = Vec::new();
    for nth in 0..8 {
        let server = nth % 2;
        calls.push((server, servers[server].begin("delegate_start", slow(nth))));
    }
    let mut waiting = 0;
    for (server, call) in calls {
        let data = servers[server].answer(call)["result"]["structuredContent"].clone();
        waiting += usize::from(is_waiting(&data));
    }
    assert_eq!(waiting, 5);
    clean(&rig);
}

#[test]
fn unspent_money_of_a_run_returns_to_the_allowance() {
    let rig = rig();
    let mut client =
        named(&rig, "tester", &["--approval", "auto-below 1.00", "--budget-usd", "0.90"]);
    for nth in 0..4 {
        let data = client.data("Delegate", quick(nth));
        assert_eq!(data["state"], "completed", "{data}");
        // The process records the cost after the last event of the run.
        assert_eq!(rig.run(["wait", data["run"].as_str().unwrap()]).code, 0);
        wait_for_lines(&rig, 2 * (nth + 1));
    }
}

/// Waits until this many records of spending are on disk.
fn wait_for_lines(rig: &Rig, lines: usize) {
    let start = std::time::Instant::now();
    loop {
        let text = fs::read_to_string(rig.state().join("registry.jsonl")).unwrap();
        if text.lines().filter(|line| line.contains("{\"allowance_")).count() >= lines {
            return;
        }
        assert!(start.elapsed() < crate::support::running::GUARD, "nothing was given back");
        std::thread::yield_now();
    }
}

#[test]
fn the_approval_mode_comes_from_the_user_s_config_and_a_flag_overrides_it() {
    let rig = rig();
    let config = rig.home().join(".config/adjutant");
    fs::create_dir_all(&config).unwrap();
    fs::write(config.join("config.toml"), "[mcp]\napproval = \"deny\"\n").unwrap();
    let mut client = named(&rig, "tester", &[]);
    insta::assert_snapshot!(client.failure("Delegate", task("a")), @"
    Not approved: the person who set this server up lets nothing start that needs their approval.
      Spawn 1 subagent (risk: medium): [a] Look around
      Only a person can allow it: with `approval = \"inbox\"` or `approval = \"auto-below 5.00\"` in [mcp] of their own config.toml, or by starting the server with --approval.
    ");
    assert!(rig.runs().is_empty(), "{:?}", rig.runs());
    let mut client = named(&rig, "tester", &["--approval", "auto-below 5"]);
    assert_eq!(client.data("Delegate", task("a"))["state"], "completed");

    // The auto-approval of the user's own runs does not apply to clients.
    fs::write(config.join("config.toml"), "[policy]\napprove_below_usd = 9.0\n").unwrap();
    let mut client = named(&rig, "tester", &[]);
    assert!(is_waiting(&client.data("Delegate", task("b"))));
    for wrong in ["approval = \"yes\"", "approval = \"auto-below\"", "max_run = 3"] {
        fs::write(config.join("config.toml"), format!("[mcp]\n{wrong}\n")).unwrap();
        assert_eq!(rig.run(["mcp"]).code, 2, "{wrong}");
    }
    fs::remove_file(config.join("config.toml")).unwrap();
    clean(&rig);
}

#[test]
fn a_client_has_at_most_the_allowed_number_of_live_runs() {
    let rig = rig();
    let mut client = Client::allowed(&rig, &["--max-runs", "2"]);
    let first = client.data("delegate_start", slow(1));
    client.data("delegate_start", slow(2));
    let said = client.failure("delegate_start", slow(3));
    assert!(said.contains("QUEUE_FULL") && said.contains("limit 2"), "{said}");
    assert!(said.contains("delegate_cancel"), "{said}");
    assert_eq!(rig.runs().len(), 2);
    let mut other = Client::allowed(&rig, &["--max-runs", "2"]);
    assert!(other.failure("delegate_start", slow(3)).contains("QUEUE_FULL"), "any server counts");
    assert_eq!(
        client.data("delegate_cancel", json!({ "run": first["run"] }))["state"],
        "cancelled"
    );
    client.data("delegate_start", slow(3));
    clean(&rig);
}

/// A run counts while it works, and not until its process has written transcripts and is gone.
#[test]
fn a_client_that_delegates_sequentially_is_not_refused_at_a_limit_of_one() {
    let rig = rig();
    let mut client = Client::allowed(&rig, &["--max-runs", "1"]);
    for nth in 0..40 {
        let data = client.data("Delegate", quick(nth));
        assert_eq!(data["state"], "completed", "{nth}: {data}");
    }
}

#[test]
fn with_on_disconnect_cancel_runs_end_with_their_server() {
    for is_killed in [false, true] {
        let rig = rig();
        let mut client = Client::allowed(&rig, &["--on-disconnect", "cancel"]);
        let data = client.data("delegate_start", task("slow"));
        let run = data["run"].as_str().unwrap();
        if is_killed {
            client.kill();
        } else {
            client.leave();
        }
        let out = rig.run(["wait", run, "--timeout", "20"]);
        assert_eq!(out.code, 130, "{out}");
    }
}

#[test]
fn a_provider_that_does_not_answer_takes_nothing_from_the_daily_allowance() {
    let rig = Rig::new();
    configure(&rig, "http://127.0.0.1:1", "anthropic");
    let args = ["--approval", "auto-below 1.00", "--budget-usd", "1.00"];
    let mut client = Client::start_on(&rig, "fake/priced", &args, &[("FAKE_KEY", KEY)]);
    client.initialize("tester", "2025-11-25");
    for nth in 1..=2 {
        let answer = client.call("Delegate", quick(nth));
        assert_eq!(answer["structuredContent"]["state"], "failed", "{answer}");
        // The worst case of the call, and its actual cost.
        wait_for_lines(&rig, 2 * nth);
    }
    clean(&rig);
}
