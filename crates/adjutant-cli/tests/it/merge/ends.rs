//! Results at their end: discarded, gone, pruned; and runs of other folders.

use std::fs;

use serde_json::json;

use crate::support::journal;
use crate::support::repository::{Repo, fates};
use crate::support::terminal::Terminal;

fn references(repo: &Repo) -> String {
    repo.git(["for-each-ref", "--format=%(refname)", "refs/adjutant"])
}

#[test]
fn a_result_is_discarded_only_after_a_yes_and_can_still_be_found() {
    let repo = Repo::new();
    let ran = repo.ran(&["one", "two"]);
    let one = repo.keep_lines(&ran, 0, &[(2, "by one")]);
    repo.keep_lines(&ran, 1, &[(18, "by two")]);
    let session = ran.sessions[0].as_str();

    let unasked = repo.rig.run(["discard", session]);
    assert_eq!(unasked.code, 4, "{unasked}");
    assert!(unasked.stderr.contains("Add --yes"), "{unasked}");
    let mut terminal = Terminal::start(&repo.rig, 100, &[], &["discard", session]);
    terminal.wait_for("Discard 1 result? [y/N]").types("n\n");
    assert_eq!(terminal.finish(), 4);
    assert!(terminal.screen().contains("1 file, +1 -1, not merged"), "{}", terminal.screen());
    assert_eq!(references(&repo).lines().count(), 2, "nobody said yes");

    let mut terminal = Terminal::start(&repo.rig, 100, &[], &["discard", session]);
    terminal.wait_for("[y/N]").types("y\n");
    assert_eq!(terminal.finish(), 0);
    assert!(terminal.raw.contains(&one), "{}", terminal.raw);
    assert_eq!(references(&repo).lines().count(), 1);

    // It is named as gone, with the commit that git still has.
    for args in [["diff", session], ["merge", session], ["discard", session]] {
        let out = repo.rig.run(args);
        assert_eq!(out.code, 1, "{out}");
        let words = format!("its commit {one} is still there: `git show {one}`");
        assert!(out.stderr.contains(&words), "{out}");
    }
    let merged = repo.json(&["merge"], 3);
    assert_eq!(fates(&merged), ["merged"]);
    assert_eq!(merged["gone"][0]["commit"], json!(one));

    let rest = repo.json(&["discard", &ran.run, "--yes"], 0);
    assert_eq!(rest["results"][0]["discarded"], true);
    assert_eq!(references(&repo), "");
    // An earlier merge can still be undone.
    assert_eq!(fates(&repo.json(&["merge", "--undo", &ran.run], 0)), ["not_merged", "taken_back"]);
    assert_eq!(repo.git(["status", "--porcelain"]), "");
}

#[test]
fn diff_reports_a_run_without_results_and_defaults_to_the_latest_with_results() {
    let repo = Repo::new();
    let none = repo.rig.run(["diff"]);
    assert_eq!(none.code, 2, "{none}");
    assert!(none.stderr.contains("has results"), "{none}");
    let ran = repo.ran(&["one"]);
    repo.keep_lines(&ran, 0, &[(2, "by one")]);
    let later = repo.ran(&["two"]);
    let empty = repo.rig.run(["diff", &later.run]);
    assert_eq!((empty.code, empty.stdout.as_str()), (0, ""), "{empty}");
    assert!(empty.stderr.contains("has no results"), "{empty}");
    assert_eq!(repo.json(&["diff"], 0)["run"], json!(ran.run));
    assert_eq!(repo.json(&["merge", &later.run], 0)["results"], json!([]));
}

#[test]
fn a_run_of_another_folder_is_merged_where_it_worked() {
    let repo = Repo::new();
    let ran = repo.ran(&["one"]);
    repo.keep_lines(&ran, 0, &[(2, "by one")]);
    let other = repo.rig.path().join("other");
    fs::create_dir(&other).unwrap();
    let here = repo.rig.call(["merge"]).cwd(&other).run();
    assert_eq!(here.code, 2, "{here}");
    let named = repo.rig.call(["merge", &ran.run]).cwd(&other).run();
    assert_eq!(named.code, 0, "{named}");
    assert!(named.stderr.contains(&format!("{} worked in ", ran.run)), "{named}");
    assert!(repo.read("long").contains("by one"));
    assert_eq!(fs::read_dir(&other).unwrap().count(), 0);
    fs::rename(repo.rig.work(), repo.rig.path().join("moved")).unwrap();
    let gone = repo.rig.call(["diff", &ran.run]).cwd(&other).run();
    assert_eq!(gone.code, 1, "{gone}");
    assert!(gone.stderr.contains("which is not there any more"), "{gone}");
}

#[test]
fn prune_removes_old_results_only_if_they_are_merged() {
    let repo = Repo::new();
    let ran = repo.ran(&["one", "two", "three"]);
    let old = 1_500_000_000;
    let write = |name: &'static str| {
        move |tree: &std::path::Path| fs::write(tree.join(name), "x\n").unwrap()
    };
    let merged = repo.keep_at(&ran, 0, old, write("one"));
    let unmerged = repo.keep_at(&ran, 1, old, write("two"));
    // A result of today is not old, merged or not.
    repo.keep_at(&ran, 2, 4_000_000_000, write("three"));
    repo.git(["merge", "-q", &merged]);

    let pruned = repo.json(&["prune"], 0);
    assert_eq!(pruned["results_dropped"][0]["commit"], json!(merged));
    assert_eq!(pruned["results_left"][0]["commit"], json!(unmerged));
    assert_eq!(references(&repo).lines().count(), 2);
    let text = repo.rig.run(["prune"]);
    assert!(text.stdout.contains("old and not merged"), "{text}");
    assert!(text.stderr.contains("adjutant prune --unmerged"), "{text}");
    assert_eq!(references(&repo).lines().count(), 2, "nobody said it");
    let all = repo.rig.run(["prune", "--unmerged"]);
    assert!(all.stdout.contains(&format!("(not merged): commit {unmerged}")), "{all}");
    assert_eq!(references(&repo).lines().count(), 1);
}

#[test]
fn the_results_of_a_pruned_run_still_exist() {
    let repo = Repo::new();
    let ran = repo.ran(&["one"]);
    repo.keep_lines(&ran, 0, &[(2, "by one")]);
    journal::age(&repo.rig.run_folder(&ran.run), &ran.run);
    assert_eq!(repo.json(&["prune"], 0)["expired"], json!([ran.run]));
    assert_eq!(repo.json(&["diff"], 0)["results"][0]["added"], 1);
    assert_eq!(fates(&repo.json(&["merge", &ran.run], 0)), ["merged"]);
}

#[test]
fn doctor_reports_what_writing_agents_need() {
    let repo = Repo::new();
    let json = repo.json(&["doctor"], 0);
    let names: Vec<&str> = json["findings"]
        .as_array()
        .unwrap()
        .iter()
        .map(|it| it["name"].as_str().unwrap())
        .collect();
    for name in ["git", "user namespaces", "sandbox", "workspaces", "disk space"] {
        assert_eq!(names.iter().filter(|it| **it == name).count(), 1, "{names:?}");
    }
    let without = repo.rig.call(["doctor", "--json"]).env("PATH", "/nonexistent").run();
    let findings = without.json()["findings"].clone();
    let git = findings.as_array().unwrap().iter().find(|it| it["name"] == "git").unwrap();
    assert_eq!(git["ok"], false, "{git}");
    assert!(git["says"].as_str().unwrap().contains("no git program"), "{git}");
}
