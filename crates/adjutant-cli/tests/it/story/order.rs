//! Stories that depend on each other: their order, the work each builds on, and their shared budget.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;

use serde_json::{Value, json};

use crate::support::project::{Project, done, runs, writes};

fn prd(stories: &[(&str, &[&str])]) -> Value {
    let story = |(id, dependencies): &(&str, &[&str])| json!({ "id": id, "title": format!("Do {id}"), "dependencies": dependencies, "passes": false });
    json!({ "userStories": stories.iter().map(story).collect::<Vec<_>>() })
}

/// The stories in the order in which runs took them.
fn taken(project: &Project) -> Vec<String> {
    let mut runs: Vec<(u64, String)> = Vec::new();
    for run in project.rig().runs() {
        let log = project.call(["log", &run, "--json"]).run();
        let record = log.lines().find(|it| it["event"]["type"] == "story_taken").unwrap();
        let id = record["event"]["id"].as_str().unwrap().to_owned();
        runs.push((record["wall"].as_u64().unwrap(), id));
    }
    runs.sort_unstable();
    runs.into_iter().map(|(_, id)| id).collect()
}

fn run_of(project: &Project, story: &str) -> String {
    project.entry(story)["adjutant"]["run"].as_str().unwrap().to_owned()
}

#[test]
fn a_story_starts_with_the_work_of_its_dependencies() {
    let stories: [(&str, &[&str]); 4] =
        [("C", &["B"]), ("B", &["A"]), ("A", &[]), ("D", &["A", "C"])];
    let turns = [
        writes("A", "a", "by a\n"),
        done("A"),
        runs("B", "cat a > b; echo by b >> b"),
        done("B"),
        runs("C", "cat a b > c"),
        done("C"),
        runs("D", "cat a b c > d"),
        done("D"),
    ];
    let project = Project::new(&prd(&stories), turns);
    let before = project.own();
    let out = project.story(&[]);
    assert_eq!(out.code, 0, "{out}");
    assert_eq!(taken(&project), ["A", "B", "C", "D"]);
    assert_eq!(project.own(), before, "nothing was merged by the person yet");
    let last = run_of(&project, "D");
    assert_eq!(project.left(&last, "D", "d"), "by a\nby a\nby b\nby a\nby a\nby b");
    // The work of dependencies is not part of the story's own change.
    let kept = project.events(&last, "space_kept");
    let files: Vec<&Value> =
        kept[0]["files"].as_array().unwrap().iter().map(|it| &it["path"]).collect();
    assert_eq!(files, [&json!("d")], "{kept:#?}");
    // The user merges all of it in order without conflicts.
    for story in ["A", "B", "C", "D"] {
        let merged = project.call(["merge", &run_of(&project, story)]).run();
        assert_eq!(merged.code, 0, "{story}: {merged}");
        project.repo.commit(story);
    }
    assert_eq!(project.repo.read("d"), "by a\nby a\nby b\nby a\nby a\nby b\n");
}

#[test]
fn a_story_may_change_the_files_of_its_dependencies() {
    // B edits the line that A wrote, C does not, and D builds on both.
    let stories: [(&str, &[&str]); 4] =
        [("A", &[]), ("B", &["A"]), ("C", &["A"]), ("D", &["B", "C"])];
    let sed = |who: &str, what: &str| runs(who, &format!("sed -i '{what}' long"));
    let turns = [
        sed("A", "s/^line 2$/by a/"),
        done("A"),
        sed("B", "s/^by a$/by a, then b/"),
        done("B"),
        sed("C", "s/^line 18$/by c/"),
        done("C"),
        sed("D", "s/^by a, then b$/by a, b, d/"),
        done("D"),
    ];
    for kind in ["overlay", "worktree"] {
        let project = Project::new(&prd(&stories), turns.clone());
        // All of them start from the uncommitted files.
        project.rig().write("mine", "untracked\n");
        let out = project.story(&["--workspace", kind]);
        assert_eq!(out.code, 0, "{kind}: {out}");
        let last = run_of(&project, "D");
        let long = project.left(&last, "D", "long");
        assert!(long.contains("by a, b, d\n") && long.contains("by c\n"), "{kind}: {long}");
        assert!(project.files(&last, "D").contains(&"mine".to_owned()), "{kind}");
        for story in ["A", "B", "C", "D"] {
            let merged = project.call(["merge", &run_of(&project, story)]).run();
            assert_eq!(merged.code, 0, "{kind}: {story}: {merged}");
        }
        assert_eq!(project.repo.read("long"), format!("{long}\n"), "{kind}");
    }
}

#[test]
fn work_that_was_merged_in_between_is_not_merged_twice() {
    for (how, committed) in [("apply", false), ("apply", true), ("branch", true)] {
        let turns = [
            runs("A", "sed -i 's/line 2$/by a/' long"),
            done("A"),
            runs("B", "sed -i 's/by a/by a, then b/' long"),
            done("B"),
        ];
        let project = Project::new(&prd(&[("A", &[]), ("B", &["A"])]), turns);
        assert_eq!(project.story(&["--story", "A"]).code, 0);
        let run = run_of(&project, "A");
        if how == "branch" {
            project.repo.commit("prd");
            project.repo.git(["merge", "-q", "--no-edit", &project.kept(&run, "A")]);
        } else {
            let merged = project.call(["merge", &run]).run();
            assert_eq!(merged.code, 0, "{merged}");
            // The user continues from there.
            let text = project.repo.read("long").replace("by a\n", "by a\nby the person\n");
            project.rig().write("long", text);
            if committed {
                project.repo.commit("taken over");
            }
        }
        let out = project.story(&[]);
        assert_eq!(out.code, 0, "{how}, {committed}: {out}");
        let long = project.left(&run_of(&project, "B"), "B", "long");
        assert_eq!(long.matches("by a, then b").count(), 1, "{how}, {committed}: {long}");
        assert_eq!(long.contains("by the person"), how == "apply", "{how}, {committed}: {long}");
    }
}

#[test]
fn conflicting_work_of_dependencies_is_named() {
    let turns = [
        runs("A", "sed -i 's/line 2$/by a/' long"),
        done("A"),
        runs("B", "sed -i 's/line 2$/by b/' long"),
        done("B"),
        runs("C", "cat long > c"),
        done("C"),
    ];
    let project = Project::new(&prd(&[("A", &[]), ("B", &[]), ("C", &["A", "B"])]), turns);
    let out = project.story(&[]);
    assert_eq!(out.code, 3, "{out}");
    assert_eq!(project.entry("A")["passes"], true);
    assert_eq!(project.entry("B")["passes"], true);
    assert_eq!(project.entry("C")["passes"], false, "{out}");
    let said = format!("{}{}", out.stdout, out.stderr);
    assert!(said.contains("long"), "the file in conflict is named: {out}");
}

#[test]
fn dependency_cycles_and_missing_stories_are_named() {
    let project = Project::new(&prd(&[("A", &["C"]), ("B", &["A"]), ("C", &["B"])]), [done("A")]);
    let out = project.story(&[]);
    assert_eq!(out.code, 2, "{out}");
    assert!(
        out.stderr.contains("prd.json: line 6: the dependencies of stories form a cycle"),
        "{out}"
    );
    assert!(out.stderr.contains("A → C → B → A"), "{out}");
    let project = Project::new(&prd(&[("A", &["US-404"])]), [done("A")]);
    let out = project.story(&[]);
    assert_eq!(out.code, 2, "{out}");
    assert!(out.stderr.contains("US-404"), "{out}");
    assert!(project.rig().runs().is_empty());
}

#[test]
fn a_story_that_cannot_begin_is_reported_before_asking_for_consent_or_a_model() {
    let mut wishes = prd(&[("A", &["B"]), ("B", &["A"])]);
    wishes["userStories"][0]["verify"] = "true".into();
    let project = Project::new(&wishes, []);
    for flags in [&[][..], &["--story", "C"]] {
        let out = project.call(["story", "prd.json"]).args(flags).run();
        assert_eq!(out.code, 2, "{out}");
        assert!(out.stderr.contains("prd.json:"), "{out}");
        assert!(!out.stderr.contains("asks for what only you can allow"), "{out}");
    }
}

#[test]
fn a_prd_whose_path_is_not_utf_8_is_refused_at_once() {
    let project = Project::new(&prd(&[("A", &[])]), [done("A")]);
    let name = OsStr::from_bytes(b"prd-\xff.json");
    fs::copy(project.rig().work().join("prd.json"), project.rig().work().join(name)).unwrap();
    let out = project
        .call([OsStr::new("story"), name])
        .args(["--yes", "--model", "script:../script.json"])
        .run();
    assert_eq!(out.code, 2, "{out}");
    assert!(out.stderr.contains("the path of a PRD must be UTF-8"), "{out}");
    assert!(project.rig().runs().is_empty());
}

#[test]
fn a_prd_without_stories_says_that_it_has_none() {
    let project = Project::new(&prd(&[]), []);
    let out = project.story(&[]);
    assert_eq!((out.code, out.stdout.as_str()), (0, ""), "{out}");
    assert!(out.stderr.contains("the PRD has no stories, there is nothing to do"), "{out}");
}

#[test]
fn one_story_is_chosen_by_its_id() {
    let project = Project::new(&prd(&[("A", &[]), ("B", &["A"])]), [done("A"), done("B")]);
    let out = project.story(&["--story", "B"]);
    assert_eq!(out.code, 2, "{out}");
    assert!(out.stderr.contains("`B`") && out.stderr.contains('A'), "{out}");
    let out = project.story(&["--story", "a"]);
    assert_eq!(out.code, 2, "{out}");
    assert!(out.stderr.contains("did you mean `A`"), "{out}");
    assert!(project.rig().runs().is_empty());
    assert_eq!(project.story(&["--story", "A"]).code, 0);
    assert_eq!(project.story(&["--story", "B"]).code, 0);
    let out = project.story(&["--story", "A"]);
    assert_eq!(out.code, 2, "it passes: {out}");
    let out = project.story(&[]);
    assert_eq!(out.code, 0, "{out}");
    assert!(out.stderr.contains("nothing to do"), "{out}");
    assert_eq!(taken(&project), ["A", "B"]);
}

#[test]
fn stories_that_depend_on_a_failed_one_are_skipped_and_the_rest_runs() {
    let turns = [
        json!({ "label": "A", "error": "bad_request", "message": "no" }),
        done("B"),
        done("C"),
        done("D"),
    ];
    let stories: [(&str, &[&str]); 4] = [("A", &[]), ("B", &["A"]), ("C", &[]), ("D", &["B"])];
    let project = Project::new(&prd(&stories), turns);
    let json = project.json(&[], 3);
    assert_eq!(taken(&project), ["A", "C"]);
    let not_begun = json["not_begun"].as_array().unwrap();
    let ids: Vec<&Value> = not_begun.iter().map(|it| &it["id"]).collect();
    assert_eq!(ids, [&json!("B"), &json!("D")], "{json:#}");
    assert_eq!(not_begun[0]["why"], "waits for A", "{json:#}");
    assert_eq!((&json["passed"], &json["total"]), (&json!(1), &json!(2)), "{json:#}");
    assert_eq!(project.entry("C")["passes"], true);
    assert_eq!(project.entry("A")["passes"], false);
    assert_eq!(project.entry("A")["adjutant"]["status"], "failed");
}

#[test]
fn all_stories_share_one_budget() {
    let script = json!({
        "price": { "input": 1.0, "output": 1.0, "cache_read": 1.0, "cache_write": 1.0 },
        "turn": [
            { "label": "A", "usage": { "input": 60_000, "output": 0 },
              "call": done("A")["call"] },
            { "label": "B", "usage": { "input": 60_000, "output": 0 }, "text": "I think about it." },
            done("B"),
        ],
    });
    let stories = prd(&[("A", &[]), ("B", &[])]);
    let project = Project::with_script(&stories, &script);
    let out = project.story(&["--set", "budget_usd=0.10"]);
    assert_eq!(out.code, 3, "{out}");
    assert_eq!(project.entry("A")["passes"], true, "{out}");
    assert_eq!(project.entry("B")["passes"], false, "{out}");
    let run = run_of(&project, "B");
    let policy = project.rig().events(&run)[0]["policy"]["budget_usd"].clone();
    assert_eq!(policy, json!(0.04), "the second story has what the first left");
    // The same for tokens; with a used-up budget no story starts.
    let project = Project::with_script(&stories, &script);
    let out = project.story(&["--set", "budget_tokens_run=60000"]);
    assert_eq!(project.entry("B"), stories["userStories"][1], "{out}");
    assert!(out.stdout.contains("B: not begun, the budget of all stories is used up"), "{out}");
    assert_eq!(taken(&project), ["A"]);
    assert_eq!(out.code, 3, "{out}");
    let json = project.call(["status", "--json"]).run();
    assert_eq!(json.code, 0, "{json}");
}
