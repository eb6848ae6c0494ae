//! Lost work of earlier runs: no story counts as completed by it, and none is built without it.

use std::fs;

use serde_json::{Value, json};

use crate::support::journal;
use crate::support::project::{Project, done, partial, runs, writes};

/// B builds on what A wrote.
fn chain() -> Value {
    json!({ "userStories": [
        { "id": "A", "title": "First", "passes": false },
        { "id": "B", "title": "Second", "dependencies": ["A"], "passes": false },
    ] })
}

fn project() -> Project {
    let turns =
        [writes("A", "a", "by a\n"), done("A"), runs("B", "cat a > b || echo none > b"), done("B")];
    Project::new(&chain(), turns)
}

fn run_of(project: &Project, story: &str) -> String {
    project.entry(story)["adjutant"]["run"].as_str().unwrap().to_owned()
}

/// Completes A; if `is_forgotten`, restores the PRD to its state before that.
fn after_a(is_forgotten: bool) -> (Project, String) {
    let project = project();
    let out = project.story(&["--story", "A"]);
    assert_eq!(out.code, 0, "{out}");
    let run = run_of(&project, "A");
    if is_forgotten {
        project.repo.git(["checkout", "-q", "prd.json"]);
    }
    (project, run)
}

/// Changes a line of a journal and removes the checkpoint, which would hide the change.
fn damage_journal(project: &Project, run: &str, line: usize) {
    let folder = project.rig().run_folder(run);
    journal::damage(&folder.join("journal.jsonl"), line);
    for entry in fs::read_dir(&folder).unwrap().map(Result::unwrap) {
        if entry.file_name().to_string_lossy().contains("checkpoint") {
            fs::remove_file(entry.path()).unwrap();
        }
    }
}

/// Removes the work of A: by discarding it, or by replacing the repository with a clone.
fn lose(project: &Project, run: &str, how: &str) {
    if how == "discarded" {
        let out = project.call(["discard", run, "--yes"]).run();
        assert_eq!(out.code, 0, "{out}");
        project.repo.git(["branch", "-D", "adjutant/A"]);
        return;
    }
    let (work, prd) = (project.rig().work().to_owned(), project.repo.read("prd.json"));
    let elsewhere = project.rig().path().join("elsewhere");
    project.repo.git([
        "clone",
        "-q",
        "--bare",
        "--no-local",
        "--single-branch",
        "-b",
        "main",
        ".",
        "../bare",
    ]);
    fs::rename(&work, &elsewhere).unwrap();
    fs::create_dir(&work).unwrap();
    project.repo.git(["clone", "-q", "../bare", "."]);
    project.rig().write("prd.json", prd);
}

#[test]
fn a_story_whose_work_is_lost_is_started_again() {
    for (how, why) in [("discarded", "was discarded"), ("cloned", "no longer has the commit")] {
        let (project, run) = after_a(true);
        lose(&project, &run, how);
        let json = project.json(&["--story", "A"], 0);
        assert_ne!(run_of(&project, "A"), run, "{how}: {json:#}");
        let remark = json["stories"][0]["remarks"][0].as_str().unwrap();
        assert!(remark.contains(&run) && remark.contains(why), "{how}: {remark}");
        assert_eq!(project.repo.git(["show", "adjutant/A:a"]), "by a", "{how}");
    }
}

#[test]
fn a_story_whose_work_exists_is_recorded_with_its_branch() {
    for is_branch_gone in [false, true] {
        let (project, run) = after_a(true);
        if is_branch_gone {
            project.repo.git(["branch", "-D", "adjutant/A"]);
        }
        let out = project.story(&["--story", "A"]);
        assert_eq!(out.code, 0, "{out}");
        assert!(out.stdout.contains("--again starts the story over"), "{out}");
        assert_eq!(run_of(&project, "A"), run, "{out}");
        assert_eq!(project.entry("A")["adjutant"]["branch"], "adjutant/A");
        assert_eq!(project.repo.git(["show", "adjutant/A:a"]), "by a");
        assert_eq!(project.rig().runs().len(), 1);
    }
}

#[test]
fn work_that_was_to_be_applied_before_a_crash_is_applied_once() {
    // As if it had been killed before the files were changed, and after that.
    for (merge, is_there) in [("report", false), ("apply", true)] {
        let project = project();
        let out = project.story(&["--story", "A", "--merge", merge]);
        assert_eq!(out.code, 0, "{out}");
        assert_eq!(project.rig().work().join("a").exists(), is_there);
        project.repo.git(["checkout", "-q", "prd.json"]);
        if is_there {
            project.rig().write("a", "by a, and by the person\n");
        }
        let out = project.story(&["--story", "A", "--merge", "apply"]);
        assert_eq!(out.code, 0, "{out}");
        assert_eq!(project.rig().runs().len(), 1, "{out}");
        let text = if is_there { "by a, and by the person\n" } else { "by a\n" };
        assert_eq!(project.repo.read("a"), text, "{merge}: {out}");
        assert_eq!(project.entry("A")["passes"], true, "{out}");
    }
}

#[test]
fn a_run_that_changed_nothing_has_no_lost_work() {
    let project = Project::new(&chain(), [done("A"), done("B")]);
    assert_eq!(project.story(&["--story", "A"]).code, 0);
    project.repo.git(["checkout", "-q", "prd.json"]);
    let out = project.story(&["--story", "A"]);
    assert!(out.stderr.contains("which is now recorded in the PRD"), "{out}");
    assert_eq!(project.rig().runs().len(), 1);
}

#[test]
fn again_ignores_an_earlier_run() {
    let (project, run) = after_a(true);
    let out = project.story(&["--story", "A", "--again"]);
    assert_eq!(out.code, 0, "{out}");
    assert_ne!(run_of(&project, "A"), run, "{out}");
}

#[test]
fn the_cost_of_earlier_runs_does_not_count_now() {
    let (project, _) = after_a(true);
    let first = project.json(&["--story", "A"], 0);
    assert_eq!(first["stories"][0]["earlier"], true, "{first:#}");
    assert_ne!(first["stories"][0]["inclusive"]["usage"]["input"], 0, "{first:#}");
    assert_eq!(
        (&first["usage"]["input"], &first["elapsed_s"]),
        (&json!(0), &json!(0.0)),
        "{first:#}"
    );
    project.repo.git(["checkout", "-q", "prd.json"]);
    let out = project.story(&["--story", "A"]);
    assert!(out.stdout.contains("(finished earlier, nothing was spent now)"), "{out}");
    project.repo.git(["checkout", "-q", "prd.json"]);
    let both = project.json(&[], 0);
    assert_eq!(both["usage"], both["stories"][1]["inclusive"]["usage"], "{both:#}");
    assert_eq!(both["passed"], 2, "{both:#}");
}

#[test]
fn a_story_is_not_built_without_the_work_it_depends_on() {
    for (how, why) in [("discarded", "was discarded"), ("cloned", "is not in this repository")] {
        let (project, run) = after_a(false);
        lose(&project, &run, how);
        let json = project.json(&[], 3);
        let not_begun = &json["not_begun"][0];
        assert_eq!(not_begun["id"], "B", "{how}: {json:#}");
        for words in [&run, why, "Set `passes` of A to false"] {
            assert!(not_begun["why"].as_str().unwrap().contains(words), "{how}: {json:#}");
        }
        assert_eq!(project.rig().runs().len(), 1, "{how}");
        // The advice works: work of the user needs no run, and a story that does not pass runs again.
        let mut prd = project.prd();
        prd["userStories"][0]["passes"] = json!(false);
        project.rig().write("prd.json", prd.to_string());
        let out = project.story(&[]);
        assert_eq!(out.code, 0, "{how}: {out}");
        assert_eq!(project.left(&run_of(&project, "B"), "B", "b"), "by a", "{how}");
    }
}

#[test]
fn a_story_with_an_unreadable_run_is_not_repeated_silently() {
    // Damaged after the record that names the story, and before it: then the story is unknown.
    for (line, is_known) in [(7, true), (2, false)] {
        let (project, run) = after_a(true);
        damage_journal(&project, &run, line);
        if !is_known {
            let out = project.story(&["--story", "A"]);
            assert!(out.stderr.contains(&format!("{run} cannot be read")), "{out}");
            assert_eq!(project.rig().runs().len(), 2, "{out}");
            continue;
        }
        let json = project.json(&["--story", "A"], 3);
        let why = json["not_begun"][0]["why"].as_str().unwrap_or_default();
        assert!(why.starts_with(&format!("{run} cannot be read (")), "{line}: {json:#}");
        assert!(why.contains("--again starts the story over"), "{line}: {json:#}");
        assert_eq!(project.rig().runs().len(), 1, "{line}");
        let json = project.json(&["--story", "A", "--again"], 0);
        assert_eq!(json["passed"], 1, "{line}: {json:#}");
        // What is known of the later run is enough.
        project.repo.git(["checkout", "-q", "prd.json"]);
        let out = project.story(&["--story", "A"]);
        assert_eq!((out.code, project.rig().runs().len()), (0, 2), "{line}: {out}");
    }
}

#[test]
fn runs_of_versions_without_a_registry_are_found_by_their_journals() {
    let (project, run) = after_a(true);
    let registry = project.rig().state().join("registry.jsonl");
    for is_known in [false, true] {
        if !is_known {
            fs::remove_file(&registry).unwrap();
        }
        project.repo.git(["checkout", "-q", "prd.json"]);
        let out = project.story(&["--story", "A"]);
        assert_eq!(out.code, 0, "{out}");
        assert!(out.stderr.contains("which is now recorded in the PRD"), "{out}");
        assert_eq!(project.rig().only_run(), run, "{out}");
        // The journals are searched once; from then on the registry knows it.
        let text = fs::read_to_string(&registry).unwrap();
        assert_eq!(text.matches("story_runs_imported").count(), 1, "{text}");
        assert!(text.contains(&run), "{text}");
    }
}

/// Completes A, then resumes its run, which ends partial with a commit other than the one that passed.
fn after_more(first: &[Value]) -> (Project, String) {
    let more = [runs("A", "echo more >> a; echo half > half"), partial("A")];
    let second = [runs("B", "cat a > b || echo none > b"), done("B")];
    let project = Project::new(&chain(), [first, &more, &second].concat());
    let out = project.story(&["--story", "A"]);
    assert_eq!(out.code, 0, "{out}");
    let run = run_of(&project, "A");
    let out = project.call(["resume", &run, "--yes", "--say", "more"]).run();
    assert_eq!(out.code, 3, "{out}");
    assert_eq!(project.entry("A")["passes"], true, "{out}");
    (project, run)
}

#[test]
fn a_story_builds_on_the_commit_that_passed_even_if_the_run_was_resumed() {
    for is_registered in [true, false] {
        let (project, run) = after_more(&[writes("A", "a", "by a\n"), done("A")]);
        let passed = project.repo.git(["rev-parse", "adjutant/A"]);
        assert_eq!(project.entry("A")["adjutant"]["commit"], passed.as_str());
        assert_ne!(project.kept(&run, "A"), passed, "the run has other work by now");
        if !is_registered {
            // As a version without a registry left it.
            fs::remove_file(project.rig().state().join("registry.jsonl")).unwrap();
        }
        let out = project.story(&[]);
        assert_eq!(out.code, 0, "{out}");
        assert_eq!(project.left(&run_of(&project, "B"), "B", "b"), "by a", "{out}");
        assert_eq!(project.repo.git(["rev-parse", "adjutant/B~1"]), passed);
    }
}

#[test]
fn the_registry_knows_the_commit_that_passed_if_the_journal_is_damaged() {
    let (project, run) = after_a(false);
    damage_journal(&project, &run, 7);
    let out = project.story(&[]);
    assert_eq!(out.code, 0, "{out}");
    assert_eq!(project.left(&run_of(&project, "B"), "B", "b"), "by a", "{out}");
}

#[test]
fn a_dependency_that_changed_nothing_adds_no_commit() {
    let (project, _) = after_more(&[done("A")]);
    assert_eq!(project.entry("A")["adjutant"].get("commit"), None);
    let out = project.story(&[]);
    assert_eq!(out.code, 0, "{out}");
    assert_eq!(project.left(&run_of(&project, "B"), "B", "b"), "none", "{out}");
}

#[test]
fn a_story_is_skipped_if_the_commit_of_its_dependency_is_unknown() {
    for (how, why) in [("no commit", "names no commit"), ("another commit", "is not the commit")] {
        let (project, _) = after_more(&[writes("A", "a", "by a\n"), done("A")]);
        let mut prd = project.prd();
        let record = prd["userStories"][0]["adjutant"].as_object_mut().unwrap();
        // A PRD of an earlier version, or one edited to make the story build on other content.
        if how == "no commit" {
            record.remove("commit");
        } else {
            record["commit"] = json!(project.repo.git(["rev-parse", "HEAD"]));
        }
        project.rig().write("prd.json", prd.to_string());
        let json = project.json(&[], 3);
        let left = json["not_begun"][0]["why"].as_str().unwrap();
        assert!(left.contains(why) && left.contains("Set `passes` of A to false"), "{json:#}");
        assert_eq!(project.rig().runs().len(), 1, "{how}");
    }
}

#[test]
fn discarded_work_that_a_branch_or_the_users_commit_has_is_built_on() {
    for how in ["branch", "head", "brought back"] {
        let (project, run) = after_a(false);
        let commit = project.kept(&run, "A");
        if how == "head" {
            project.repo.git(["merge", "-q", "--ff-only", "adjutant/A"]);
        }
        assert_eq!(project.call(["discard", &run, "--yes"]).run().code, 0);
        if how != "branch" {
            project.repo.git(["branch", "-D", "adjutant/A"]);
        }
        if how == "brought back" {
            project.repo.git(["branch", "again", &commit]);
        }
        let out = project.story(&[]);
        assert_eq!(out.code, 0, "{how}: {out}");
        assert_eq!(project.left(&run_of(&project, "B"), "B", "b"), "by a", "{how}");
    }
}

#[test]
fn a_run_that_is_not_known_here_is_named_in_the_report() {
    let (project, run) = after_a(false);
    let stranger = "run_1768900000_abc123";
    let prd = project.repo.read("prd.json").replace(&run, stranger);
    project.rig().write("prd.json", prd);
    let json = project.json(&[], 0);
    let remark = json["stories"][0]["remarks"][0].as_str().unwrap();
    assert!(remark.contains(stranger) && remark.contains("not known here"), "{json:#}");
    // The text output names it too.
    let prd = project.repo.read("prd.json");
    let (before, after) = prd.split_once("\"id\": \"B\"").unwrap();
    let again = after.replacen("\"passes\": true", "\"passes\": false", 1);
    project.rig().write("prd.json", format!("{before}\"id\": \"B\"{again}"));
    let out = project.story(&[]);
    assert_eq!(out.code, 0, "{out}");
    assert!(out.stdout.contains(&format!("note     {stranger}, which completed A")), "{out}");
}
