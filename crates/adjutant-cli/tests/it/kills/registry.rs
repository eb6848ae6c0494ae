//! Kills runs of MCP clients at the Nth write, fsync or rename. The registry never reports less than was spent, and
//! releases what a killed process held.

use std::fs;
use std::io::Write as _;
use std::process::{Command, Stdio};

use adjutant_core::registry::CallKey;
use adjutant_core::{RegistryCommand, RunId};
use adjutant_engine::{Archive, RegistryHandle, new_run_id, wall_now};
use serde_json::{Value, json};

use super::book::Book;
use super::cast::{Inject, under};
use super::sweep::{CALLS, SHORT, has_strace};
use super::tell;
use crate::mcp::begin::answer_over_stdio;
use crate::support::mcp_client::{Client, SCRIPT, task};
use crate::support::rig::{BINARY, Rig};
use crate::support::running::ProcessGroup;

/// Records that the registry has before; after a few more it is replaced by a checkpoint.
const RECORDS: u8 = 254;

/// One run at a time, auto-approved, started like the server starts it.
const ARGS: [&str; 11] = [
    "delegate",
    "--detached",
    "--approval",
    "auto-below 50.00",
    "--max-runs",
    "1",
    "--budget-usd",
    "1.00",
    "-t",
    "quick=Look around",
    "--model",
];

/// Begins a call as the server does, and runs the process of its run to the end; says whether it succeeded.
fn start(rig: &Rig, registry: &RegistryHandle, call: &str, inject: Option<Inject>) -> bool {
    let (call, run) = (CallKey::new(call), new_run_id().unwrap());
    let holder = registry.holder().unwrap();
    let begin = RegistryCommand::BeginCall { holder, call: call.clone(), run, instead_of: None };
    registry.submit(begin).unwrap();
    let mut command: Command = under(inject, BINARY.as_ref());
    command.args(ARGS).arg(rig.model()).current_dir(rig.work()).envs(rig.environment());
    command.stdin(Stdio::piped()).stdout(Stdio::null());
    let log = fs::File::create(rig.path().join("stderr")).unwrap();
    let mut process = command.stderr(log).spawn().unwrap();
    let handover = json!({ "run": run, "call": call, "owner": null, "bytes": 0 });
    // A process that is killed early does not read it.
    let _ = writeln!(process.stdin.take().unwrap(), "{handover}");
    process.wait().unwrap().success()
}

/// What all runs have cost by their journals, in dollars.
fn cost(rig: &Rig) -> f64 {
    let spent = |run: &String| {
        let out = rig.run(["cost", run, "--json"]);
        let json: Value = serde_json::from_str(&out.stdout).unwrap_or_default();
        json["total"]["cost_usd"].as_f64().unwrap_or(0.0)
    };
    rig.runs().iter().map(spent).sum()
}

#[test]
fn a_kill_at_any_registry_write_releases_slots_and_keeps_spending() {
    if !has_strace() {
        tell("NOT CHECKED: there is no strace here, so no kill was aimed at a system call");
        return;
    }
    let mut kills = 0;
    for call in CALLS {
        for nth in SHORT {
            let rig = Rig::with_script(SCRIPT);
            fs::create_dir_all(rig.state()).unwrap();
            let registry = RegistryHandle::at(&rig.state());
            for number in 0..RECORDS {
                let digest = format!("{number:02x}").repeat(32);
                registry.submit(RegistryCommand::GiveConsent { digest }).unwrap();
            }
            let is_through = start(&rig, &registry, "killed", Some(Inject { call, nth }));
            kills += u64::from(!is_through);
            let before = registry.read_unlocked().unwrap().spent_unasked(wall_now());
            assert!(start(&rig, &registry, "another", None), "{call} {nth}: {}", said(&rig));
            let known = registry.read_unlocked().unwrap();
            assert_eq!(known.live_runs().count(), 0, "{call} {nth}");
            let spent = known.spent_unasked(wall_now());
            assert!(spent >= before, "{call} {nth}: {spent} after {before}");
            let cost = cost(&rig);
            assert!(
                cost > 0.0 && spent.as_dollars() >= cost - 1e-9,
                "{call} {nth}: {spent}, {cost}"
            );
            for number in 0..RECORDS {
                assert!(known.has_consent(&format!("{number:02x}").repeat(32)), "{call} {nth}");
            }
            if is_through {
                break;
            }
        }
    }
    tell(&format!("{kills} kills at writes of runs for clients"));
    assert!(kills >= 10, "only {kills} processes were killed");
}

/// The runs that were given a slot, by the records of the registry.
fn admitted(rig: &Rig) -> Vec<RunId> {
    let text = fs::read_to_string(rig.state().join("registry.jsonl")).unwrap();
    let records = text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let runs = records.map(|record| record["event"]["run_admitted"]["run"].clone());
    runs.filter_map(|run| run.as_str()?.parse().ok()).collect()
}

/// The next run gets a slot only if that of the killed one is free.
const ONE_PLACE: [&str; 2] = ["--max-runs", "1"];

/// The process of a run creates the folder of the run after it has its slot, and writes the first record after that.
#[test]
fn a_run_killed_before_its_first_record_is_reported_and_an_equal_call_starts_a_new_one() {
    if !has_strace() {
        tell("NOT CHECKED: there is no strace here, so no kill was aimed at a system call");
        return;
    }
    let mut hits = 0;
    for nth in 1..10 {
        let rig = Rig::with_script(SCRIPT);
        // The server finds its folders, so that it makes fewer than the process of the run.
        drop(Archive::open(&rig.state()).unwrap().registry().holder().unwrap());
        let mut server = under(Some(Inject { call: "/^mkdir", nth }), BINARY.as_ref());
        server.args(["mcp", "--model", rig.model(), "--approve-below", "10000"]).args(ONE_PLACE);
        server.env_clear().envs(rig.environment()).current_dir(rig.work());
        server.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let Some(answer) = answer_over_stdio(ProcessGroup::start(server)) else {
            // The server itself was killed.
            continue;
        };
        let result = &answer["result"];
        if result["isError"] == false {
            break;
        }
        let said = &result["content"][0]["text"];
        assert_eq!(said, "the run's process exited without an error message", "{nth}: {answer}");
        let [killed] = admitted(&rig).try_into().unwrap();
        let journal = rig.run_folder(&killed.to_string()).join("journal.jsonl");
        assert!(!Book::read(&journal).began(), "{nth}: {killed}");
        hits += 1;
        let data = Client::allowed(&rig, &ONE_PLACE).data("Delegate", task("quick"));
        assert_eq!(data["state"], "completed", "{nth}: {data}");
        assert_ne!(data["run"], json!(killed), "{nth}: {data}");
        let known = RegistryHandle::at(&rig.state()).read_unlocked().unwrap();
        assert!(known.live_runs().all(|(run, _)| run != killed), "{nth}");
        rig.assert_unharmed();
    }
    tell(&format!("{hits} kills between the place of a run and its first record"));
    assert!(hits > 0, "no process was killed there");
}

fn said(rig: &Rig) -> String {
    fs::read_to_string(rig.path().join("stderr")).unwrap_or_default()
}
