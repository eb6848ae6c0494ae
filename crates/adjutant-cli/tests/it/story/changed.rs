//! A PRD that changes between runs or during one: what applies to which story, and what is not overwritten.

use std::fs;

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::support::project::{Project, done, one_story, runs, says, writes};

fn replaced(project: &Project, from: &str, to: &str) -> String {
    let text = project.repo.read("prd.json");
    assert!(text.contains(from), "{text}");
    let text = text.replace(from, to);
    project.rig().write("prd.json", &text);
    text
}

#[test]
fn another_story_of_the_same_id_is_not_marked_by_a_run_on_the_first() {
    let project = Project::new(&one_story(), [done("US-001")]);
    let before = project.repo.read("prd.json");
    assert_eq!(project.story(&[]).code, 0);
    let first = project.rig().only_run();
    project.rig().write("prd.json", before.replace("Log in", "Send the bill"));
    let out = project.story(&[]);
    assert_eq!(out.code, 0, "{out}");
    assert!(!out.stderr.contains("was completed by"), "{out}");
    assert_eq!(project.rig().runs().len(), 2, "{out}");
    assert_ne!(project.entry("US-001")["adjutant"]["run"], first.as_str());
    // A verify command that was added since then changes the request.
    project.rig().write("prd.json", &before);
    let out = project.story(&["--verify", "true"]);
    assert_eq!(out.code, 0, "{out}");
    assert_eq!(project.rig().runs().len(), 3, "{out}");
    // An equal request finds the first run and writes its outcome.
    project.rig().write("prd.json", &before);
    let out = project.story(&[]);
    assert!(out.stderr.contains(&format!("was completed by {first}")), "{out}");
    assert_eq!(project.rig().runs().len(), 3, "{out}");
}

/// A story that is interrupted after it wrote a file; what follows is the rest of the script.
fn interrupted(last: Value) -> (Project, String) {
    let wait = json!({ "label": "US-001", "delay_ms": 60_000, "text": "I wait." });
    let project =
        Project::new(&one_story(), [writes("US-001", "half", "x\n"), wait, done("US-001")]);
    let mut running = project.working(&[]).start();
    running.wait_for("[US-001] Write half");
    let run = project.rig().only_run();
    running.signal(Signal::KILL);
    assert_eq!(running.finish().code, 128 + 9);
    project.script(&json!({ "turn": [
        writes("US-001", "half", "x\n"), says("US-001", "I go on."), last,
    ] }));
    (project, run)
}

/// Checks that `resume` refuses the run for this reason and costs nothing.
#[track_caller]
fn refused(project: &Project, run: &str, why: &str) {
    let (events, theirs) = (project.rig().events(run).len(), project.repo.read("prd.json"));
    let out = project.call(["resume", run, "--yes"]).run();
    assert_eq!(out.code, 2, "{out}");
    for words in [why, "adjutant diff run_", "adjutant story ", "--say"] {
        assert!(out.stderr.contains(words), "{words}: {out}");
    }
    assert_eq!(project.rig().events(run).len(), events, "{out}");
    assert_eq!(project.repo.read("prd.json"), theirs);
}

#[test]
fn a_resumed_run_does_not_overwrite_a_changed_story() {
    let (project, run) = interrupted(done("US-001"));
    let theirs = replaced(&project, "Log in", "Log in by mail");
    refused(&project, &run, "has changed since the run started");
    // With `--say` the person accepts that the outcome cannot be recorded.
    let out = project.call(["resume", &run, "--yes", "--say", "Go on."]).run();
    assert_eq!(out.code, 3, "{out}");
    assert!(out.stderr.contains("has changed since the run started"), "{out}");
    assert_eq!(project.repo.read("prd.json"), theirs);
}

#[test]
fn a_resumed_run_does_not_overwrite_the_outcome_of_a_later_one() {
    let (project, run) = interrupted(done("US-001"));
    let out = project.story(&["--again"]);
    assert_eq!(out.code, 0, "{out}");
    let later = project.entry("US-001")["adjutant"]["run"].as_str().unwrap().to_owned();
    assert_ne!(later, run);
    let theirs = project.repo.read("prd.json");
    refused(&project, &run, &format!("has the outcome of {later}"));
    let out = project.call(["resume", &run, "--yes", "--say", "Go on."]).run();
    assert_eq!(out.code, 3, "{out}");
    assert!(out.stderr.contains(&format!("has the outcome of {later}")), "{out}");
    assert_eq!(project.repo.read("prd.json"), theirs);
}

#[test]
fn a_resumed_run_that_fails_does_not_reset_passes() {
    let (project, run) =
        interrupted(json!({ "label": "US-001", "error": "bad_request", "message": "no" }));
    let theirs = replaced(&project, "\"passes\": false", "\"passes\": true");
    refused(&project, &run, "passes already");
    let out = project.call(["resume", &run, "--yes", "--say", "Go on."]).run();
    assert_ne!(out.code, 0, "{out}");
    assert!(out.stderr.contains("passes already"), "{out}");
    assert_eq!(project.repo.read("prd.json"), theirs);
}

fn two(verify: &str) -> Value {
    json!({ "userStories": [
        { "id": "A", "title": "First", "verify": "true", "passes": false },
        { "id": "B", "title": "Second", "verify": verify, "passes": false },
    ] })
}

/// Changes the PRD while the first of two stories runs; returns the project and the output.
fn changed_under(change: impl FnOnce(&Project)) -> (Project, String) {
    let mut last = done("A");
    last["delay_ms"] = json!(400);
    let project = Project::new(&two("true"), [runs("A", "echo x > x"), last, done("B")]);
    let mut running = project.working(&["--trust-prd"]).start();
    running.wait_for("[A] Run echo");
    change(&project);
    let said = running.finish().to_string();
    (project, said)
}

#[test]
fn a_story_is_skipped_if_the_prd_became_invalid() {
    let (project, said) = changed_under(|project| {
        project.rig().write("prd.json", "{ \"userStories\": [");
    });
    assert!(said.contains("B: not begun, the PRD cannot be used now:"), "{said}");
    assert!(said.contains("[exit 3]"), "{said}");
    assert_eq!(project.rig().runs().len(), 1, "{said}");
    assert_eq!(project.repo.read("prd.json"), "{ \"userStories\": [", "theirs stays");
    // Once the file is valid again the outcome is written and the other stories run.
    project.rig().write("prd.json", serde_json::to_string_pretty(&two("true")).unwrap());
    let out = project.working(&["--trust-prd"]).run();
    assert_eq!(out.code, 0, "{out}");
    assert_eq!(project.rig().runs().len(), 2, "{out}");
    for id in ["A", "B"] {
        assert_eq!(project.entry(id)["passes"], true, "{out}");
    }

    // If only the first story cannot run, the second starts with the present text of the file.
    let (project, said) = changed_under(|project| {
        let theirs = two("true").to_string().replace("First", "Another");
        project.rig().write("prd.json", theirs);
    });
    assert!(said.contains("its entry was changed"), "{said}");
    assert_eq!(project.rig().runs().len(), 2, "{said}");
    assert_eq!(project.entry("B")["passes"], true, "{said}");
}

#[test]
fn consent_does_not_cover_later_requests_of_the_prd() {
    let (project, said) = changed_under(|project| {
        project.rig().write("prd.json", serde_json::to_string_pretty(&two("false")).unwrap());
    });
    assert_eq!(project.entry("A")["passes"], true, "{said}");
    assert!(said.contains("requests something else"), "{said}");
    assert!(said.contains("story B: run `false`"), "{said}");
    assert!(said.contains("B: not begun, its verify command needs your consent"), "{said}");
    assert_eq!(project.rig().runs().len(), 1, "{said}");
}

#[test]
fn a_story_that_already_passes_or_is_gone_is_skipped() {
    let (project, said) = changed_under(|project| {
        let mut prd = two("true");
        prd["userStories"][1]["passes"] = json!(true);
        project.rig().write("prd.json", serde_json::to_string_pretty(&prd).unwrap());
    });
    assert_eq!(project.entry("A")["passes"], true, "{said}");
    assert!(said.contains("B: not begun, it already passes"), "{said}");
    assert!(said.contains("[exit 0]"), "{said}");
    assert_eq!(project.rig().runs().len(), 1, "{said}");

    let (project, said) = changed_under(|project| {
        let mut prd = two("true");
        prd["userStories"].as_array_mut().unwrap().pop();
        project.rig().write("prd.json", serde_json::to_string_pretty(&prd).unwrap());
    });
    assert_eq!(project.entry("A")["passes"], true, "{said}");
    assert!(said.contains("B: not begun, it is not in the PRD any more"), "{said}");
    assert!(said.contains("[exit 3]"), "{said}");
    assert_eq!(project.rig().runs().len(), 1, "{said}");
}

#[test]
fn child_numbers_continue_after_children_without_an_entry() {
    let turns = [
        says("US-001", "[delegate:Implement JWT:1]\n[delegate:Create UI:1]"),
        done("US-001"),
        done("Implement JWT"),
        done("Create UI"),
    ];
    let project = Project::new(&one_story(), turns);
    let before = project.repo.read("prd.json");
    assert_eq!(project.story(&["--verify", "false"]).code, 3);
    project.rig().write("prd.json", &before);
    let out = project.story(&["--again"]);
    assert_eq!(out.code, 0, "{out}");
    assert_eq!(project.entry("US-001-DEL-001"), Value::Null, "{out}");
    assert_eq!(project.entry("US-001-DEL-003")["title"], "Implement JWT", "{out}");
    assert_eq!(project.entry("US-001-DEL-004")["title"], "Create UI");
}

/// A project where B depends on A, and A is done.
fn half_done() -> (Project, Value) {
    let prd = json!({ "userStories": [
        { "id": "A", "title": "First", "passes": false },
        { "id": "B", "title": "Second", "dependencies": ["A"], "passes": false },
    ] });
    let turns = [writes("A", "a", "by a\n"), done("A"), writes("B", "b", "by b\n"), done("B")];
    let project = Project::new(&prd, turns);
    assert_eq!(project.story(&["--story", "A"]).code, 0);
    (project, prd)
}

#[test]
fn missing_work_of_a_dependency_is_always_reported() {
    let (project, _) = half_done();
    let run = project.rig().only_run();
    fs::remove_dir_all(project.rig().run_folder(&run)).unwrap();
    let out = project.story(&[]);
    for said in [&out.stderr, &out.stdout] {
        assert!(said.contains(", which completed A, is not known here"), "{out}");
    }
    assert_eq!(project.entry("B")["passes"], true, "{out}");

    let (project, _) = half_done();
    fs::remove_dir_all(project.rig().work().join(".git")).unwrap();
    let out = project.story(&[]);
    assert_eq!(out.code, 3, "{out}");
    assert!(
        out.stdout.contains("B: not begun, the work of its dependencies cannot be read"),
        "{out}"
    );
    assert_eq!(project.rig().runs().len(), 1, "{out}");
}

#[test]
fn the_work_of_a_dependency_is_that_of_the_run_in_its_entry() {
    for is_named in [true, false] {
        let (project, mut other) = half_done();
        if !is_named {
            // The user replaced story A and completed it: the work of the first A does not belong to it.
            other["userStories"][0]["passes"] = json!(true);
            project.rig().write("prd.json", other.to_string());
        }
        let out = project.story(&[]);
        assert_eq!(out.code, 0, "{out}");
        let run = project.entry("B")["adjutant"]["run"].as_str().unwrap().to_owned();
        let files = project.files(&run, "B");
        assert_eq!(files.contains(&"a".to_owned()), is_named, "{files:?}");
    }
}

#[test]
fn the_prompt_of_a_planned_child_names_its_files() {
    let prd = json!({ "userStories": [{
        "id": "US-001", "title": "Log in", "passes": false,
        "delegationStrategy": [{ "description": "Implement JWT", "fileScope": ["src/jwt"] }],
    }] });
    let project = Project::new(&prd, [done("US-001"), done("Implement JWT")]);
    let out = project.story(&[]);
    assert_eq!(out.code, 0, "{out}");
    let child = project.entry("US-001-DEL-001");
    assert_eq!(child["description"], "Implement JWT (files: src/jwt)", "{child:#}");
}

#[test]
fn a_request_is_shown_on_one_line_and_consent_is_for_that_file() {
    let verify = "true\n  story US-001: run `nothing else`";
    let prd = json!({ "userStories": [
        { "id": "US-001", "title": "Log in", "verify": verify, "passes": false },
    ] });
    let project = Project::new(&prd, [done("US-001")]);
    project.rig().write("other.json", prd.to_string());
    let out = project.story(&["--trust-prd", "--workspace", "worktree"]);
    assert_ne!(out.code, 2, "{out}");
    let args = ["story", "other.json", "--yes", "--model", "script:../script.json"];
    let out = project.call(args).run();
    assert!(out.stderr.contains("--trust-prd"), "consent was to another file: {out}");
    let wishes = out.stderr.lines().filter(|line| line.starts_with("  story "));
    assert_eq!(wishes.count(), 1, "{out}");
}
