//! Work that was merged earlier: a story takes it in again if the files no longer have any of it, and never reverts
//! what the user changed in it.

use std::fs;

use serde_json::{Value, json};

use crate::story::chain::git_calls;
use crate::support::project::{Project, done, runs};
use crate::support::repository::lines;

/// A project in which A was done by `command` and merged; B and C, which depend on it, are not done.
///
/// The PRD is ignored, so that what is done to the files leaves it alone.
fn merged(command: &str) -> Project {
    let project = project(&[("A", &[]), ("B", &["A"]), ("C", &["A", "B"])], &[("A", command)]);
    work(&project, "A");
    merge(&project, "A");
    project
}

fn project(stories: &[(&str, &[&str])], commands: &[(&str, &str)]) -> Project {
    let story = |(id, dependencies): &(&str, &[&str])| json!({ "id": id, "title": format!("Do {id}"), "dependencies": dependencies, "passes": false });
    let stories: Vec<Value> = stories.iter().map(story).collect();
    let own = |(id, command): &(&str, &str)| [runs(id, command), done(id)];
    let turns = commands.iter().flat_map(own).chain(["B", "C", "D"].into_iter().flat_map(|id| {
        [runs(id, &format!("cat first second > seen-{id}; echo {id} >> seen-{id}")), done(id)]
    }));
    let project = Project::new(&json!({ "userStories": stories }), turns);
    project.repo.git(["rm", "-q", "--cached", "prd.json"]);
    project.rig().write(".gitignore", "prd.json\n");
    project.rig().write("old", "to be deleted\n");
    project.repo.commit("the PRD is not tracked");
    project
}

#[track_caller]
fn work(project: &Project, id: &str) {
    let out = project.story(&["--story", id]);
    assert_eq!(out.code, 0, "{id}: {out}");
    assert_eq!(project.entry(id)["passes"], true, "{id}: {out}");
}

fn run_of(project: &Project, id: &str) -> String {
    project.entry(id)["adjutant"]["run"].as_str().unwrap().to_owned()
}

#[track_caller]
fn merge(project: &Project, id: &str) {
    let out = project.call(["merge", &run_of(project, id)]).run();
    assert_eq!(out.code, 0, "{id}: {out}");
}

/// The content of a path in the result of a story, if it exists.
fn has(project: &Project, id: &str, path: &str) -> Option<String> {
    let run = run_of(project, id);
    let has_it = project.files(&run, id).iter().any(|it| it == path);
    has_it.then(|| project.left(&run, id, path) + "\n")
}

const TWO: &str = "echo by a > first; echo also > second";

/// A change that the user makes to their files.
type Does = fn(&Project);

/// Lines of `long`, by their numbers.
type Changed<'l> = &'l [(usize, &'l str)];

/// The ways in which a user can remove all merged work from the files.
const GONE: [(&str, Does); 7] = [
    ("a branch without it", |project| {
        project.repo.git(["checkout", "-q", "-b", "feature"]);
        project.repo.commit("work");
        project.repo.git(["checkout", "-q", "main"]);
    }),
    ("a branch without it that went on", |project| {
        project.repo.git(["checkout", "-q", "-b", "feature"]);
        project.repo.commit("work");
        project.repo.git(["checkout", "-q", "main"]);
        project.rig().write("long", lines(&[(18, "by the person")]));
        project.repo.commit("own");
    }),
    ("checkout and clean", |project| {
        project.repo.git(["checkout", "-q", "."]);
        project.repo.git(["clean", "-q", "-fd"]);
    }),
    ("stash", |project| _ = project.repo.git(["stash", "-q", "-u"])),
    ("reset", |project| {
        project.repo.commit("work");
        project.repo.git(["reset", "-q", "--hard", "HEAD~"]);
    }),
    ("revert", |project| {
        project.repo.commit("work");
        project.repo.git(["revert", "--no-edit", "HEAD"]);
    }),
    ("merge --undo", |project| {
        let out = project.call(["merge", "--undo", &run_of(project, "A")]).run();
        assert_eq!(out.code, 0, "{out}");
    }),
];

#[test]
fn a_story_starts_with_merged_work_that_the_files_no_longer_contain() {
    for (how, lose) in GONE {
        let project = merged(TWO);
        lose(&project);
        assert!(!project.rig().work().join("first").exists(), "{how}");
        let own = project.own();
        work(&project, "B");
        assert_eq!(has(&project, "B", "seen-B").unwrap(), "by a\nalso\nB\n", "{how}");
        assert_eq!(has(&project, "B", "second").unwrap(), "also\n", "{how}");
        assert_eq!(project.own(), own, "{how}");
    }
}

#[test]
fn every_kind_of_reverted_change_is_detected() {
    type Seen = fn(&Project, &str) -> bool;
    let kinds: [(&str, &str, Seen); 5] = [
        ("edit", "sed -i 's/^line 2$/by a/' long", |project, id| {
            has(project, id, "long").unwrap().contains("by a")
        }),
        ("delete", "rm old", |project, id| has(project, id, "old").is_none()),
        ("mode", "chmod +x old", |project, id| {
            let kept = project.kept(&run_of(project, id), id);
            project.repo.git(["ls-tree", &kept, "old"]).starts_with("100755")
        }),
        ("rename", "mv old new", |project, id| {
            has(project, id, "old").is_none() && has(project, id, "new").is_some()
        }),
        ("link", "ln -s old link", |project, id| has(project, id, "link").is_some()),
    ];
    for (kind, command, is_seen) in kinds {
        for (how, lose) in GONE.into_iter().filter(|(how, _)| how.contains("branch")) {
            let project = merged(command);
            lose(&project);
            work(&project, "B");
            assert!(is_seen(&project, "B"), "{kind}: {how}");
            let stands = project.repo.git(["log", "--format=%s", "main..adjutant/B"]);
            assert!(stands.lines().count() > 1, "{kind}: {how}: {stands}");
        }
        let project = merged(command);
        work(&project, "B");
        assert!(is_seen(&project, "B"), "{kind}: not committed");
        project.repo.commit("work");
        work(&project, "C");
        assert!(is_seen(&project, "C"), "{kind}: committed");
    }
}

#[test]
fn edits_of_the_user_to_merged_work_are_kept() {
    let cases: [(&str, Does, Option<&str>, Option<&str>); 6] = [
        ("left", |_| {}, Some("by a\n"), Some("also\n")),
        (
            "edited",
            |project| _ = project.rig().write("first", "by the person\n"),
            Some("by the person\n"),
            Some("also\n"),
        ),
        (
            "one deleted",
            |project| fs::remove_file(project.rig().work().join("second")).unwrap(),
            Some("by a\n"),
            None,
        ),
        (
            "one edited, one deleted",
            |project| {
                project.rig().write("first", "by the person\n");
                fs::remove_file(project.rig().work().join("second")).unwrap();
            },
            Some("by the person\n"),
            None,
        ),
        (
            "one renamed, one deleted",
            |project| {
                let work = project.rig().work();
                fs::rename(work.join("second"), work.join("first")).unwrap();
            },
            Some("also\n"),
            None,
        ),
        (
            "one made executable, one deleted",
            |project| {
                use std::os::unix::fs::PermissionsExt as _;
                let work = project.rig().work();
                fs::remove_file(work.join("second")).unwrap();
                fs::set_permissions(work.join("first"), fs::Permissions::from_mode(0o755)).unwrap();
            },
            Some("by a\n"),
            None,
        ),
    ];
    for (how, make, first, second) in cases {
        for is_committed in [false, true] {
            let project = merged(TWO);
            make(&project);
            if is_committed {
                project.repo.commit("work");
            }
            work(&project, "B");
            assert_eq!(has(&project, "B", "first").as_deref(), first, "{how}: {is_committed}");
            assert_eq!(has(&project, "B", "second").as_deref(), second, "{how}: {is_committed}");
        }
    }
}

#[test]
fn lines_that_the_user_removed_from_merged_work_stay_removed() {
    for is_committed in [false, true] {
        let project = merged("sed -i 's/^line 2$/by a/; s/^line 18$/by a too/' long");
        project.rig().write("long", lines(&[(18, "by a too")]));
        if is_committed {
            project.repo.commit("half of it");
        }
        work(&project, "B");
        let long = has(&project, "B", "long").unwrap();
        assert_eq!(long, lines(&[(18, "by a too")]), "{is_committed}");
    }
}

#[test]
fn missing_parts_of_a_merged_chain_are_detected() {
    let chain = [("A", "sed -i 's/^line 2$/by a/' long"), ("B", "sed -i 's/^by a$/by b/' long")];
    let stories: [(&str, &[&str]); 3] = [("A", &[]), ("B", &["A"]), ("C", &["B"])];
    let cases: [(&str, Does, Changed<'_>); 5] = [
        ("nothing", |_| {}, &[(2, "by b")]),
        ("all", |project| _ = project.repo.git(["checkout", "-q", "."]), &[(2, "by b")]),
        (
            "the second",
            |project| _ = project.rig().write("long", lines(&[(2, "by a")])),
            &[(2, "by b")],
        ),
        (
            "all, on a branch that went on while both were committed",
            |project| {
                project.repo.git(["checkout", "-q", "-b", "feature"]);
                project.repo.commit("work");
                project.repo.git(["checkout", "-q", "main"]);
                project.rig().write("long", lines(&[(18, "by the person")]));
                project.repo.commit("own");
            },
            &[(2, "by b"), (18, "by the person")],
        ),
        (
            "all, on a branch that went on",
            |project| {
                project.repo.git(["checkout", "-q", "."]);
                project.rig().write("long", lines(&[(18, "by the person")]));
                project.repo.commit("own");
            },
            &[(2, "by b"), (18, "by the person")],
        ),
    ];
    for (lost, lose, expected) in cases {
        let project = project(&stories, &chain);
        for id in ["A", "B"] {
            work(&project, id);
            merge(&project, id);
        }
        lose(&project);
        work(&project, "C");
        assert_eq!(has(&project, "C", "long").unwrap(), lines(expected), "{lost}");
    }
}

#[test]
fn files_that_a_later_story_deleted_are_not_restored() {
    // C knows of B, which deletes what A made; D does not.
    let chain = [("A", "echo by a > first"), ("B", "rm first; echo by b > third")];
    let stories: [(&str, &[&str]); 4] = [("A", &[]), ("B", &["A"]), ("C", &["B"]), ("D", &["A"])];
    let both = || {
        let project = project(&stories, &chain);
        for id in ["A", "B"] {
            work(&project, id);
            merge(&project, id);
        }
        project
    };
    let project = both();
    for id in ["C", "D"] {
        work(&project, id);
        assert_eq!(has(&project, id, "first"), None, "{id}");
        assert_eq!(has(&project, id, "third").unwrap(), "by b\n", "{id}");
    }
    let project = both();
    project.repo.git(["clean", "-q", "-fd"]);
    work(&project, "C");
    assert_eq!(has(&project, "C", "first"), None);
    assert_eq!(has(&project, "C", "third").unwrap(), "by b\n");
}

#[test]
fn merged_work_that_is_gone_and_was_discarded_is_named() {
    let project = merged(TWO);
    project.repo.git(["clean", "-q", "-fd"]);
    let run = run_of(&project, "A");
    assert_eq!(project.call(["discard", &run, "--yes"]).run().code, 0);
    project.repo.git(["branch", "-D", "adjutant/A"]);
    let json = project.json(&["--story", "B"], 3);
    let why = json["not_begun"][0]["why"].as_str().unwrap();
    assert!(why.contains(&run) && why.contains("was discarded"), "{json:#}");
}

/// Works on stories, each merged as `merge` says, then counts the calls of git for one that depends on all of them;
/// where `is_gone`, nothing of a story is in the files when the next begins.
fn calls_after(count: usize, merge: &str, is_gone: bool) -> usize {
    let id = |number: usize| format!("S-{number}");
    let last = id(count + 1);
    let story = |number: usize| {
        let before: Vec<String> = (1..number).map(id).filter(|_| number > count).collect();
        json!({ "id": id(number), "title": "A part", "dependencies": before, "passes": false })
    };
    let turns = |number: usize| {
        let id = id(number);
        [runs(&id, &format!("echo {id} > {id}")), done(&id)]
    };
    let prd = json!({ "userStories": (1..=count + 1).map(story).collect::<Vec<_>>() });
    let project = Project::new(&prd, (1..=count + 1).flat_map(turns));
    for number in 1..=count {
        let out = project.story(&["--story", &id(number), "--merge", merge]);
        assert_eq!(out.code, 0, "{out}");
        if is_gone {
            project.repo.git(["clean", "-q", "-fd"]);
        }
    }
    let calls = git_calls(&project, &last);
    let files = project.files(&run_of(&project, &last), &last);
    assert_eq!(files.iter().filter(|file| file.starts_with("S-")).count(), count + 1, "{files:?}");
    calls
}

#[test]
fn detecting_merged_work_takes_a_constant_number_of_git_calls() {
    let there = [2, 6].map(|count| calls_after(count, "apply", false));
    assert!(there[1] <= there[0], "{there:?}");
    // Missing work is merged again like work that was never merged, which has its own cost.
    let more =
        [2, 6].map(|count| calls_after(count, "apply", true) - calls_after(count, "report", true));
    assert!(more[0] > 0 && more[1] <= more[0], "{more:?}");
}
