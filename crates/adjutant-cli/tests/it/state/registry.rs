//! The registry of runs: which commands write to it, and what a damaged one stops.

use std::fs;

use adjutant_engine::RegistryHandle;
use serde_json::json;

use crate::support::mcp_client::{Client, SCRIPT, task};
use crate::support::project::{Project, done, one_story, writes};
use crate::support::repository::{Repo, lines};
use crate::support::rig::{Output, Rig};

/// Changes a byte in the first line of the registry; others follow, so it is not taken for one that was torn.
fn damage(rig: &Rig) {
    let path = rig.state().join("registry.jsonl");
    let text = fs::read_to_string(&path).unwrap();
    assert!(text.lines().count() > 1, "{text}");
    fs::write(&path, text.replacen("\"event\"", "\"evenT\"", 1)).unwrap();
}

fn names_the_line(said: &str) -> bool {
    said.contains("registry.jsonl cannot be read") && said.contains("damaged at line 1")
}

fn is_fine(out: Output) {
    assert_eq!(out.code, 0, "{out}");
}

#[test]
fn a_run_typed_at_a_terminal_records_only_what_it_consumed() {
    let rig = Rig::with_script(SCRIPT);
    is_fine(rig.delegate(&["-t", "quick=Look around", "-t", "also=Look there"]));
    is_fine(rig.run(["status"]));
    assert!(!rig.state().join("holders").exists());
    let log = fs::read_to_string(rig.state().join("registry.jsonl")).unwrap();
    assert_eq!(log.lines().count(), 1, "{log}");
    assert!(log.contains(r#""event":{"delegations_sampled":"#), "{log}");
}

#[test]
fn a_damaged_registry_stops_new_runs_of_clients_and_nothing_else() {
    let rig = Rig::with_script(SCRIPT);
    let mut client = Client::allowed(&rig, &[]);
    let run = client.data("delegate_start", task("slow"))["run"].as_str().unwrap().to_owned();
    damage(&rig);
    let said = client.failure("delegate_start", task("quick"));
    assert!(names_the_line(&said), "{said}");
    assert_eq!(rig.only_run(), run);
    let status = client.data("delegate_status", json!({ "run": run }));
    assert_eq!(status["runs"][0]["run"], json!(run), "{status}");
    is_fine(rig.run(["status"]));
    let cancelled = client.data("delegate_cancel", json!({ "run": run }));
    assert_eq!(cancelled["state"], "cancelled");
    is_fine(rig.delegate(&["-t", "quick=Look around"]));
    let said = client.failure("delegate_start", task("quick"));
    assert!(names_the_line(&said), "{said}");
}

#[test]
fn with_a_damaged_registry_approvals_says_what_cannot_be_listed_and_what_to_do() {
    let rig = Rig::with_script(SCRIPT);
    let mut client = Client::allowed(&rig, &[]);
    client.data("delegate_start", task("quick"));
    damage(&rig);
    for args in [&["approvals"][..], &["approvals", "--json"]] {
        let out = rig.run(args);
        assert_eq!((out.code, out.stdout.as_str()), (1, ""), "{out}");
        assert!(names_the_line(&out.stderr), "{out}");
        let advice = "and move it away: open questions, consents and what was spent today";
        assert!(out.stderr.contains(advice), "{out}");
    }
    // As the advice says.
    fs::remove_file(rig.state().join("registry.jsonl")).unwrap();
    let out = rig.run(["approvals"]);
    assert_eq!((out.code, out.stdout.as_str()), (0, "Nothing waits for your approval.\n"), "{out}");
}

#[test]
fn a_damaged_registry_stops_new_stories_but_not_resume() {
    let wait = json!({ "label": "US-001", "delay_ms": 60_000, "text": "I wait." });
    let project = Project::new(&one_story(), [writes("US-001", "half", "x\n"), wait]);
    let mut running = project.working(&[]).start();
    running.wait_for("Write");
    drop(running);
    let run = project.rig().only_run();
    damage(project.rig());
    let out = project.story(&["--again"]);
    assert_eq!(out.code, 1, "{out}");
    assert!(names_the_line(&out.stderr), "{out}");
    let turns = [writes("US-001", "half", "x\n"), done("US-001"), done("US-001")];
    project.script(&json!({ "turn": turns }));
    let out = project.call(["resume", &run, "--yes"]).run();
    assert!(names_the_line(&out.stderr), "{out}");
    assert_eq!(project.entry("US-001")["passes"], true, "{out}");
}

#[test]
fn a_damaged_registry_refuses_a_merge_but_allows_undoing_one() {
    let repo = Repo::new();
    let ran = repo.ran(&["one", "two"]);
    let first = repo.keep_lines(&ran, 0, &[(3, "by one")]);
    let second = repo.keep_lines(&ran, 1, &[(18, "by two")]);
    let merged = || -> Vec<String> {
        let known = RegistryHandle::at(&repo.rig.state()).read_unlocked().unwrap();
        known.merges().map(|it| it.commit.clone()).collect()
    };
    let [one, two] = [&ran.sessions[0], &ran.sessions[1]];
    is_fine(repo.rig.run(["merge", one]));
    is_fine(repo.rig.run(["merge", two]));
    assert_eq!(merged(), [first.clone(), second]);
    is_fine(repo.rig.run(["merge", "--undo", two]));
    assert_eq!(merged(), [first]);

    damage(&repo.rig);
    let before = repo.read("long");
    let out = repo.rig.run(["merge", two]);
    assert_eq!(out.code, 1, "{out}");
    assert!(names_the_line(&out.stdout), "{out}");
    assert_eq!(repo.read("long"), before);
    let out = repo.rig.run(["merge", "--undo", one]);
    assert_eq!(out.code, 0, "{out}");
    assert_eq!(repo.read("long"), lines(&[]));
}
