//! Stories that are interrupted, cancelled or resumed, or that never start because of invalid arguments.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::support::project::{Project, done, one_story, partial, says, writes};

/// A story whose child would wait for a minute after it has written a file and read it.
fn slow() -> Vec<Value> {
    vec![
        says("US-001", "[delegate:Implement JWT:1]"),
        done("US-001"),
        writes("Implement JWT", "jwt", "a token\n"),
        json!({ "label": "Implement JWT", "call": [{ "tool": "Read", "args": { "path": "jwt" } }] }),
        json!({ "label": "Implement JWT", "delay_ms": 60_000, "text": "I wait." }),
        done("Implement JWT"),
    ]
}

fn quick(mut turns: Vec<Value>) -> Value {
    turns.iter_mut().for_each(|turn| {
        turn.as_object_mut().unwrap().remove("delay_ms");
    });
    json!({ "turn": turns })
}

#[test]
fn an_interrupted_story_is_named_and_can_be_resumed() {
    let project = Project::new(&one_story(), slow());
    let mut running = project.working(&["--enable-delegation"]).start();
    running.wait_for("[Implement JWT] Write jwt");
    let run = project.rig().only_run();
    // While it runs no other process works on it.
    for flags in [&[][..], &["--again"]] {
        let mut waiting = project.working(flags).start();
        waiting.wait_for(&format!("adjutant wait {run}")).wait_for("waiting until it ends");
        waiting.signal(Signal::KILL);
        assert_eq!(waiting.finish().code, 128 + 9, "not even when it is to be begun anew");
    }
    assert_eq!(project.rig().runs().len(), 1);
    running.signal(Signal::KILL);
    assert_eq!(running.finish().code, 128 + 9);
    let json = project.json(&[], 3);
    assert_eq!(json["not_begun"][0]["id"], "US-001", "{json:#}");
    let why = json["not_begun"][0]["why"].as_str().unwrap();
    assert!(why.contains(&format!("adjutant resume {run}")), "{json:#}");
    assert_eq!(project.entry("US-001"), one_story()["userStories"][0], "nothing is written yet");

    project.script(&quick(slow()));
    let out = project.call(["resume", &run, "--yes"]).run();
    assert_eq!(out.code, 0, "{out}");
    assert_eq!(project.entry("US-001")["passes"], true, "{out}");
    assert_eq!(project.left(&run, "US-001", "jwt"), "a token");
    assert!(out.stdout.contains("US-001 Log in: passes"), "{out}");
    let branches = project.repo.git(["branch", "--list", "adjutant/*"]);
    assert!(branches.contains("adjutant/US-001"), "its work is a branch to look at: {branches}");
    assert_eq!(project.rig().runs().len(), 1);
    // Nothing is left to do.
    let out = project.story(&[]);
    assert_eq!(out.code, 0, "{out}");
    assert_eq!(project.rig().runs().len(), 1);
}

#[test]
fn resume_prints_json_for_stories_too() {
    let project = Project::new(&one_story(), slow());
    let mut running = project.working(&["--enable-delegation"]).start();
    running.wait_for("[Implement JWT] Write jwt");
    running.signal(Signal::KILL);
    assert_eq!(running.finish().code, 128 + 9);
    project.script(&quick(slow()));
    let out = project.call(["resume", "--yes", "--json"]).run();
    assert_eq!(out.code, 0, "{out}");
    assert_eq!(out.json()["stories"][0]["passes"], true, "{out}");
}

#[test]
fn ctrl_c_ends_the_story_and_starts_no_other() {
    let prd = json!({ "userStories": [
        { "id": "US-001", "title": "Log in", "passes": false },
        { "id": "US-002", "title": "Log out", "passes": false },
    ] });
    let project = Project::new(&prd, slow());
    let before = project.own();
    let mut running = project.working(&["--enable-delegation"]).start();
    running.wait_for("[Implement JWT] Read jwt");
    running.signal(Signal::INT);
    let out = running.finish();
    assert_eq!(out.code, 130, "{out}");
    let left = "US-002: not begun, you cancelled US-001 before it";
    assert!(out.stdout.contains(left), "{out}");
    let run = project.rig().only_run();
    project.rig().assert_unharmed();
    assert_eq!(project.own(), before);
    let entry = project.entry("US-001");
    assert_eq!(
        (&entry["passes"], &entry["adjutant"]["status"]),
        (&json!(false), &json!("cancelled"))
    );
    assert_eq!(project.entry("US-002"), prd["userStories"][1]);
    assert_eq!(project.left(&run, "Implement JWT", "jwt"), "a token", "what was done is kept");
    // It can be started again.
    let mut turns = slow();
    turns.push(done("US-002"));
    project.script(&quick(turns));
    let left = project.story(&["--story", "US-001"]);
    assert_eq!(left.code, 3, "what can go on is not begun anew by itself: {left}");
    let out = project.story(&["--again"]);
    assert_eq!(out.code, 0, "{out}");
    assert_eq!(project.entry("US-002")["passes"], true);
}

#[test]
fn a_partial_story_names_the_command_that_resumes_it() {
    let turns = vec![
        writes("US-001", "half", "half\n"),
        partial("US-001"),
        writes("US-001", "whole", "whole\n"),
        done("US-001"),
    ];
    let project = Project::new(&one_story(), turns);
    let out = project.story(&[]);
    assert_eq!(out.code, 3, "{out}");
    let run = project.rig().only_run();
    assert_eq!(project.entry("US-001")["adjutant"]["status"], "partial", "{out}");
    assert!(out.stdout.contains(&format!("adjutant resume {run}")), "{out}");
    let out = project.call(["resume", &run, "--yes", "--say", "The word is whole."]).run();
    assert_eq!(out.code, 0, "{out}");
    assert_eq!(project.entry("US-001")["passes"], true, "{out}");
    let files = project.files(&run, "US-001");
    assert!(files.contains(&"half".to_owned()) && files.contains(&"whole".to_owned()), "{files:?}");
    assert_eq!(project.rig().runs().len(), 1);
}

#[test]
fn a_resumed_run_knows_the_other_stories_of_a_read_only_prd() {
    let mut prd = one_story();
    let other = json!({ "id": "US-002", "title": "Other", "dependencies": ["US-001"] });
    prd["userStories"].as_array_mut().unwrap().push(other);
    for is_gone in [false, true] {
        let turns = [
            partial("US-001"),
            says("US-001", "[delegate:US-002:1]"),
            done("US-001"),
            done("US-002"),
        ];
        let project = Project::new(&prd, turns);
        assert_eq!(project.story(&["--story", "US-001"]).code, 3);
        let run = project.rig().only_run();
        let file = project.rig().work().join("prd.json");
        if is_gone {
            fs::remove_file(file).unwrap();
        } else {
            fs::set_permissions(file, fs::Permissions::from_mode(0o444)).unwrap();
        }
        let out = project.call(["resume", &run, "--yes", "--say", "Go on."]).run();
        let refused = project.told(&run, "US-001").join("\n").contains("is the name of a story");
        assert_eq!(refused, !is_gone, "{out}");
        let said = out.stderr.contains("cannot read the PRD");
        assert_eq!(said, is_gone, "{out}");
    }
}

#[test]
fn an_outcome_that_was_not_written_is_written_by_the_next_call() {
    let project = Project::new(&one_story(), [writes("US-001", "jwt", "x\n"), done("US-001")]);
    let before = project.repo.read("prd.json");
    assert_eq!(project.story(&[]).code, 0);
    let written = project.repo.read("prd.json");
    // As if it had been killed between the end of the run and the file.
    project.rig().write("prd.json", &before);
    project.script(&json!({ "turn": [{ "text": "I must not be asked." }] }));
    let out = project.story(&[]);
    assert_eq!(out.code, 0, "{out}");
    assert_eq!(project.repo.read("prd.json"), written, "{out}");
    assert_eq!(project.rig().runs().len(), 1);
}

#[test]
fn without_a_repository_it_says_how_to_make_one() {
    let project = Project::new(&one_story(), [done("US-001")]);
    fs::remove_dir_all(project.rig().work().join(".git")).unwrap();
    let before = project.repo.read("prd.json");
    let out = project.story(&[]);
    assert_eq!(out.code, 2, "{out}");
    assert!(out.stderr.contains("git init"), "{out}");
    assert_eq!(project.repo.read("prd.json"), before);
    assert!(project.rig().runs().is_empty(), "nothing was begun");
}

#[test]
fn a_story_works_in_a_repository_without_a_commit() {
    let project = Project::new(&one_story(), [writes("US-001", "jwt", "x\n"), done("US-001")]);
    fs::remove_dir_all(project.rig().work().join(".git")).unwrap();
    project.repo.git(["init", "-q", "-b", "main", "."]);
    let out = project.story(&[]);
    assert_eq!(out.code, 0, "{out}");
    assert_eq!(project.left(&project.rig().only_run(), "US-001", "jwt"), "x");
}

#[test]
fn the_preset_serves_other_commands_without_a_story() {
    let turns = [json!({ "text": "Done.\n[delegate:Implement JWT:4]\n", "times": "forever" })];
    let project = Project::new(&one_story(), turns);
    let model = ["--model", "script:../script.json", "--yes", "--preset", "story"];
    let run = project.call(["run", "Log in"]).args(model).run();
    assert!(!run.stderr.contains("panicked"), "{run}");
    assert!([0, 3, 4].contains(&run.code), "{run}");
    let out = project.call(["delegate", "-t", "one=Log in"]).args(model).run();
    assert!(!out.stderr.contains("panicked"), "{out}");
    assert_eq!(out.code, 4, "delegation is off in that preset: {out}");
    assert!(out.stderr.contains("enable") || out.stdout.contains("enable"), "{out}");
    let args = ["--enable-delegation"];
    let out = project.call(["delegate", "-t", "one=Log in"]).args(model).args(args).run();
    assert!(!out.stderr.contains("panicked"), "{out}");
    // Outside stories a marker is plain text.
    for run in project.rig().runs() {
        let events = project.rig().events(&run);
        assert!(events.iter().all(|event| event["type"] != "markers_read"), "{run}");
    }
    project.rig().assert_unharmed();
}

#[test]
fn invalid_arguments_are_refused_before_anything_starts() {
    let project = Project::new(&one_story(), [done("US-001")]);
    for (flags, named) in [
        (&["--story", "US-9"][..], "US-9"),
        (&["--story"], "--story"),
        (&["--workspace", "cupboard"], "cupboard"),
        (&["--set", "max_depth=9"], "max_depth"),
        (&["--set", "nothing=9"], "nothing"),
        (&["--merge", "sideways"], "sideways"),
        (&["--no-such-flag"], "--no-such-flag"),
    ] {
        let out = project.working(flags).run();
        assert_eq!(out.code, 2, "{flags:?}: {out}");
        assert!(out.stderr.contains(named), "{flags:?}: {out}");
    }
    for args in [&["story"][..], &["story", "prd.json", "--model", "script:../nowhere.json"]] {
        let out = project.call(args).run();
        assert_eq!(out.code, 2, "{out}");
        assert!(out.stderr.contains("nowhere.json") || out.stderr.contains("PRD.json"), "{out}");
    }
    assert!(project.rig().runs().is_empty());
    assert_eq!(project.entry("US-001"), one_story()["userStories"][0]);
}
