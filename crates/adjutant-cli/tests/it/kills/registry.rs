//! Runs for clients, killed at the Nth write, sync or rename: what the registry says is never less than what was
//! spent, and what a killed process held is free.

use std::fs;
use std::io::Write as _;
use std::process::{Command, Stdio};

use adjutant_core::RegistryCommand;
use adjutant_core::registry::CallKey;
use adjutant_engine::{RegistryHandle, new_run_id, wall_now};
use serde_json::{Value, json};

use super::cast::{Inject, under};
use super::sweep::{CALLS, SHORT, has_strace};
use super::tell;
use crate::support::mcp_client::SCRIPT;
use crate::support::rig::{BINARY, Rig};

/// Records that the registry has before; after a few more it is replaced by a checkpoint.
const RECORDS: u8 = 254;

/// One run at a time, which starts unasked, as the server starts it.
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
fn a_kill_at_any_write_of_the_registry_frees_what_was_held_and_forgets_no_spending() {
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
            let before = registry.look().unwrap().spent_unasked(wall_now());
            assert!(start(&rig, &registry, "another", None), "{call} {nth}: {}", said(&rig));
            let known = registry.look().unwrap();
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

fn said(rig: &Rig) -> String {
    fs::read_to_string(rig.path().join("stderr")).unwrap_or_default()
}
