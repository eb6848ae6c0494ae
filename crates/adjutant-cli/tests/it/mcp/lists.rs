//! The runs that a client sees if it names none.

use std::collections::BTreeSet;
use std::fs;

use serde_json::{Value, json};

use crate::support::mcp_client::{Client, SCRIPT, task};
use crate::support::rig::Rig;

fn text(data: &Value, key: &str) -> String {
    data[key].as_str().unwrap_or_else(|| panic!("no {key} in {data}")).to_owned()
}

fn listed(client: &mut Client) -> (Vec<String>, Value) {
    let data = client.data("delegate_status", json!({}));
    let runs = data["runs"].as_array().unwrap().iter().map(|run| text(run, "run")).collect();
    (runs, data)
}

/// Every run that is listed as a resource, page after page.
fn resources(client: &mut Client) -> Vec<Vec<String>> {
    let (mut pages, mut params) = (Vec::new(), json!({}));
    loop {
        let answer = client.request("resources/list", params)["result"].clone();
        let all = answer["resources"].as_array().unwrap().iter().map(|it| text(it, "name"));
        pages.push(all.filter(|name| !name.contains('/')).collect());
        let Some(cursor) = answer["nextCursor"].as_str() else { return pages };
        params = json!({ "cursor": cursor });
    }
}

/// Adds a run that looks newer than the other and whose tree is unknown.
fn stranger(rig: &Rig, run: &str, later: u64) {
    let (stamp, chance) = run.trim_start_matches("run_").split_once('_').unwrap();
    let id = format!("run_{}_{chance}", stamp.parse::<u64>().unwrap() + later);
    // Renamed into place, because incomplete run directories are removed.
    let made = rig.path().join("made");
    fs::create_dir(&made).unwrap();
    for file in ["journal.jsonl", "lock"] {
        fs::copy(rig.run_folder(run).join(file), made.join(file)).unwrap();
    }
    fs::rename(made, rig.run_folder(&id)).unwrap();
}

/// Live runs are listed first, however many later runs there are here or elsewhere.
#[test]
fn a_live_run_is_listed_before_all_others() {
    let rig = Rig::with_script(SCRIPT);
    let mut client = Client::allowed(&rig, &["--detach-after", "1"]);
    let slow = text(&client.data("Delegate", task("slow")), "run");
    let quick: Vec<_> = (0..30)
        .map(|n| text(&client.data("Delegate", task(&format!("quick{n}"))), "run"))
        .collect();
    for later in 1..=250 {
        stranger(&rig, &quick[29], 1000 + later);
    }
    // Also for a server that was just started and knows nothing.
    for mut client in [client, Client::allowed(&rig, &[])] {
        let (runs, data) = listed(&mut client);
        assert_eq!(runs[0], slow, "{data}");
        assert_eq!(runs.len(), 11, "{data}");
        assert_eq!((&data["more"], &data["unseen"]), (&json!(20), &json!(0)), "{data}");
        let said = text(&client.call("delegate_status", json!({}))["content"][0], "text");
        assert!(said.contains("20 more"), "{said}");
        let pages = resources(&mut client);
        assert_eq!(pages[0][0], slow);
        let all: Vec<_> = pages.concat();
        let once: BTreeSet<_> = all.iter().cloned().collect();
        let wanted = quick.iter().chain([&slow]).cloned().collect();
        assert_eq!((all.len(), once), (31, wanted));
        for cursor in ["", "x", "-1", "100000", "1.5"] {
            let answer = client.request("resources/list", json!({ "cursor": cursor }));
            assert_eq!(answer["error"]["code"], -32602, "{cursor}: {answer}");
        }
    }
    Client::allowed(&rig, &[]).data("delegate_cancel", json!({ "run": slow }));
}

/// A client at its run limit sees all its live runs.
#[test]
fn at_the_run_limit_all_live_runs_are_listed() {
    let rig = Rig::with_script(SCRIPT);
    let mut client = Client::allowed(&rig, &["--max-runs", "12"]);
    let call = |n: usize| json!({ "tasks": [{ "label": "slow", "prompt": format!("Look {n}") }] });
    let begun: BTreeSet<_> =
        (0..12).map(|n| text(&client.data("delegate_start", call(n)), "run")).collect();
    let full = client.failure("delegate_start", call(12));
    assert!(full.contains("QUEUE_FULL"), "{full}");
    let (runs, data) = listed(&mut client);
    assert_eq!(runs.iter().cloned().collect::<BTreeSet<_>>(), begun, "{data}");
    // A short result leaves out whole runs and counts them.
    let mut short = Client::allowed(&rig, &["--result-bytes", "4000"]);
    let (runs, data) = listed(&mut short);
    assert!(!runs.is_empty() && data.to_string().len() < 4000, "{data}");
    assert_eq!(data["more"], 12 - runs.len(), "{data}");
    for run in begun {
        client.data("delegate_cancel", json!({ "run": run }));
    }
}
