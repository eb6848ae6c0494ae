//! Branches of stories that depend on each other, merged with plain git.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use serde_json::{Value, json};

use crate::support::project::{Project, done, runs, writes};
use crate::support::repository::lines;

fn prd(stories: &[(&str, &[&str])]) -> Value {
    let story = |(id, dependencies): &(&str, &[&str])| json!({ "id": id, "title": format!("Do {id}"), "dependencies": dependencies, "passes": false });
    json!({ "userStories": stories.iter().map(story).collect::<Vec<_>>() })
}

fn sed(who: &str, what: &str) -> Value {
    runs(who, &format!("sed -i '{what}' long"))
}

const KINDS: [&str; 2] = ["overlay", "worktree"];

/// A clean checkout of the user's commit, beside the tree.
struct Checkout<'p> {
    project: &'p Project,
    folder: String,
}

impl<'p> Checkout<'p> {
    fn of(project: &'p Project, name: &str) -> Self {
        let folder = format!("../{name}");
        project.repo.git(["worktree", "add", "-q", "--detach", &folder, "main"]);
        Self { project, folder }
    }

    fn git(&self, args: &[&str]) -> String {
        self.project.repo.git([&["-C", self.folder.as_str()], args].concat())
    }

    /// Merges the branches of stories with plain git, one after the other; none may conflict.
    fn merged(self, stories: &[&str]) -> Self {
        for story in stories {
            self.git(&["merge", "-q", "--no-edit", &format!("adjutant/{story}")]);
            assert_eq!(self.git(&["status", "--porcelain"]), "", "{story}");
        }
        self
    }

    fn read(&self, path: &str) -> String {
        self.git(&["show", &format!("HEAD:{path}")]) + "\n"
    }

    fn tree(&self) -> String {
        self.git(&["rev-parse", "HEAD^{tree}"])
    }
}

/// What a branch has that the user's does not: the commits, the latest first.
fn beyond(project: &Project, from: &str, story: &str) -> Vec<String> {
    let range = format!("{from}..adjutant/{story}");
    let list = project.repo.git(["log", "--topo-order", "--format=%H", &range]);
    list.lines().map(str::to_owned).collect()
}

fn tip(project: &Project, story: &str) -> String {
    project.repo.git(["rev-parse", &format!("adjutant/{story}")])
}

/// Checks that every branch has the PRD that the user committed.
#[track_caller]
fn assert_prd_left_out(project: &Project, stories: &[&str]) {
    for story in stories {
        let diff = project.repo.git([
            "diff",
            "--name-only",
            &format!("main..adjutant/{story}"),
            "--",
            "prd.json",
        ]);
        assert_eq!(diff, "", "{story}");
    }
}

#[test]
fn each_branch_of_a_chain_builds_on_the_previous_one() {
    let stories: [(&str, &[&str]); 3] = [("A", &[]), ("B", &["A"]), ("C", &["B"])];
    let turns = [
        sed("A", "s/^line 2$/by a/"),
        done("A"),
        sed("B", "s/^by a$/by a, then b/"),
        done("B"),
        sed("C", "s/^by a, then b$/by a, b, c/"),
        done("C"),
    ];
    for kind in KINDS {
        let project = Project::new(&prd(&stories), turns.clone());
        let out = project.story(&["--workspace", kind]);
        assert_eq!(out.code, 0, "{kind}: {out}");
        let tips = ["C", "B", "A"].map(|story| tip(&project, story));
        assert_eq!(beyond(&project, "main", "C"), tips, "{kind}");
        assert_prd_left_out(&project, &["A", "B", "C"]);
        let one_by_one = Checkout::of(&project, "one").merged(&["A", "B", "C"]);
        assert_eq!(one_by_one.read("long"), lines(&[(2, "by a, b, c")]), "{kind}");
        assert_eq!(one_by_one.git(&["rev-parse", "HEAD"]), tips[0], "all of it fast-forwards");
        assert_eq!(Checkout::of(&project, "last").merged(&["C"]).tree(), one_by_one.tree());
        // The PRD that was written back does not prevent the merge.
        project.repo.git(["merge", "-q", "--ff-only", "adjutant/C"]);
    }
}

/// A diamond: B and C depend on A, D on both. B edits the line that A wrote.
fn diamond() -> Project {
    let stories: [(&str, &[&str]); 4] =
        [("A", &[]), ("B", &["A"]), ("C", &["A"]), ("D", &["B", "C"])];
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
    Project::new(&prd(&stories), turns)
}

#[test]
fn a_story_on_two_branches_builds_on_their_merge() {
    for kind in KINDS {
        let project = diamond();
        let out = project.story(&["--workspace", kind]);
        assert_eq!(out.code, 0, "{kind}: {out}");
        let commits = beyond(&project, "main", "D");
        assert_eq!(commits.len(), 5, "four stories and one merge: {kind}: {commits:?}");
        for story in ["A", "B", "C", "D"] {
            let tip = tip(&project, story);
            assert_eq!(commits.iter().filter(|it| **it == tip).count(), 1, "{kind}: {story}");
        }
        let sum = lines(&[(2, "by a, b, d"), (18, "by c")]);
        let orders: [&[&str]; 4] =
            [&["A", "B", "C", "D"], &["C", "B", "D"], &["D"], &["D", "A", "C"]];
        for (place, order) in orders.into_iter().enumerate() {
            let checkout = Checkout::of(&project, &format!("order-{place}")).merged(order);
            assert_eq!(checkout.read("long"), sum, "{kind}: {order:?}");
        }
    }
}

#[test]
fn a_chain_in_a_tree_with_uncommitted_files_has_them_once() {
    let stories: [(&str, &[&str]); 4] = [("A", &[]), ("B", &["A"]), ("E", &[]), ("F", &["B", "E"])];
    let turns = [
        runs("A", "sed -i 's/^line 2$/by a/' long; echo a >> mine"),
        done("A"),
        runs("B", "sed -i 's/^by a$/by a, then b/' long; echo b >> mine"),
        done("B"),
        // On its own it begins from the same uncommitted files.
        sed("E", "s/^line 18$/by e/"),
        done("E"),
        sed("F", "s/^by e$/by e, then f/"),
        done("F"),
    ];
    for kind in KINDS {
        let project = Project::new(&prd(&stories), turns.clone());
        project.rig().write("mine", "untracked\n");
        project.rig().write("long", lines(&[(10, "not committed")]));
        for story in ["A", "B", "E", "F"] {
            let out = project.story(&["--workspace", kind, "--story", story]);
            assert_eq!(out.code, 0, "{kind}: {story}: {out}");
            assert!(out.stderr.contains("uncommitted"), "{kind}: {story}: {out}");
        }
        let state = project.repo.git(["rev-parse", "adjutant/A~1"]);
        let [a, b] = ["A", "B"].map(|story| tip(&project, story));
        assert_eq!(beyond(&project, "main", "B"), [b, a, state.clone()], "{kind}");
        assert_eq!(beyond(&project, "main", "E"), [tip(&project, "E"), state], "{kind}");
        assert_prd_left_out(&project, &["A", "B", "E", "F"]);
        let sum = [(2, "by a, then b"), (10, "not committed"), (18, "by e, then f")];
        let orders: [&[&str]; 3] = [&["A", "B", "E", "F"], &["E", "A", "B", "F"], &["F"]];
        for (place, order) in orders.into_iter().enumerate() {
            let checkout = Checkout::of(&project, &format!("order-{place}")).merged(order);
            assert_eq!(checkout.read("long"), lines(&sum), "{kind}: {order:?}");
            assert_eq!(checkout.read("mine"), "untracked\na\nb\n", "{kind}: {order:?}");
        }
    }
}

#[test]
fn changes_of_the_user_between_two_stories_of_a_chain_are_combined_with_both() {
    for how in ["edits", "commits", "edits what was uncommitted"] {
        let turns =
            [sed("A", "s/^line 2$/by a/"), done("A"), sed("B", "s/^by a$/by b/"), done("B")];
        let project = Project::new(&prd(&[("A", &[]), ("B", &["A"])]), turns);
        if how == "edits what was uncommitted" {
            project.rig().write("long", lines(&[(10, "first")]));
        }
        assert_eq!(project.story(&["--story", "A"]).code, 0);
        project.rig().write("long", lines(&[(10, "by the person")]));
        if how == "commits" {
            project.repo.git(["commit", "-q", "-m", "own", "long"]);
        }
        let out = project.story(&[]);
        assert_eq!(out.code, 0, "{how}: {out}");
        let commits = beyond(&project, "main", "B");
        let a = tip(&project, "A");
        assert_eq!(commits.iter().filter(|it| **it == a).count(), 1, "{how}: {commits:?}");
        let sum = lines(&[(2, "by b"), (10, "by the person")]);
        let orders: [&[&str]; 2] = [&["A", "B"], &["B"]];
        for (place, order) in orders.into_iter().enumerate() {
            let checkout = Checkout::of(&project, &format!("order-{place}")).merged(order);
            assert_eq!(checkout.read("long"), sum, "{how}: {order:?}");
        }
    }
}

#[test]
fn branches_built_on_different_states_of_the_tree_are_combined_in_a_later_story() {
    let project = diamond();
    for (story, own) in [("A", 1), ("B", 1), ("C", 2), ("D", 3)] {
        // C contains A's work as part of a merge with another state of the tree; B changed that work.
        project.rig().write("own", format!("not committed, {own}\n"));
        let out = project.story(&["--story", story]);
        assert_eq!(out.code, 0, "{story}: {out}");
    }
    let show = |path: &str| project.repo.git(["show", &format!("adjutant/D:{path}")]) + "\n";
    assert_eq!(show("long"), lines(&[(2, "by a, b, d"), (18, "by c")]));
    assert_eq!(show("own"), "not committed, 3\n");
}

#[test]
fn a_story_after_a_merged_branch_starts_from_the_merge() {
    for how in ["--ff-only", "--no-ff", "--squash"] {
        let turns = [
            sed("A", "s/^line 2$/by a/"),
            done("A"),
            sed("B", "s/^by a$/by a, then b/"),
            done("B"),
        ];
        let project = Project::new(&prd(&[("A", &[]), ("B", &["A"])]), turns);
        assert_eq!(project.story(&["--story", "A"]).code, 0);
        project.repo.git(["merge", "-q", how, "adjutant/A"]);
        if how == "--squash" {
            project.repo.git(["commit", "-q", "-m", "squashed"]);
        }
        let head = project.repo.git(["rev-parse", "HEAD"]);
        let out = project.story(&[]);
        assert_eq!(out.code, 0, "{how}: {out}");
        assert_eq!(beyond(&project, &head, "B"), [tip(&project, "B")], "{how}");
        assert_eq!(project.repo.git(["rev-parse", "adjutant/B~1"]), head, "{how}");
        project.repo.git(["merge", "-q", "--ff-only", "adjutant/B"]);
        assert_eq!(project.repo.read("long"), lines(&[(2, "by a, then b")]), "{how}");
    }
}

/// Squash-merges a branch, as many projects do: one commit without the branch as parent.
fn squash(project: &Project, story: &str) {
    project.repo.git(["merge", "-q", "--squash", &format!("adjutant/{story}")]);
    project.repo.git(["commit", "-q", "-m", story]);
}

#[test]
fn a_later_story_does_not_restore_merged_files_that_the_user_removed() {
    let stories: [(&str, &[&str]); 3] = [("A", &[]), ("B", &["A"]), ("C", &["B"])];
    let turns = ["A", "B", "C"].map(|id| [writes(id, &format!("{id}.txt"), "made\n"), done(id)]);
    for kind in KINDS {
        let project = Project::new(&prd(&stories), turns.concat());
        for story in ["A", "B"] {
            assert_eq!(project.story(&["--workspace", kind, "--story", story]).code, 0);
            squash(&project, story);
        }
        project.repo.git(["rm", "-q", "A.txt"]);
        project.repo.git(["commit", "-q", "-m", "not needed"]);
        let out = project.story(&["--workspace", kind]);
        assert_eq!(out.code, 0, "{kind}: {out}");
        let files = project.repo.git(["ls-tree", "--name-only", "adjutant/C"]);
        assert!(!files.contains("A.txt") && files.contains("B.txt\nC.txt"), "{kind}: {files}");
    }
}

#[test]
fn a_story_continues_from_the_squashed_end_of_its_chain() {
    let stories: [(&str, &[&str]); 4] = [("A", &[]), ("B", &["A"]), ("C", &["B"]), ("D", &["C"])];
    let turns = ["A", "B", "C", "D"].map(|id| [runs(id, &format!("echo {id} >> chain")), done(id)]);
    let project = Project::new(&prd(&stories), turns.concat());
    for story in ["A", "B", "C"] {
        assert_eq!(project.story(&["--story", story]).code, 0);
    }
    squash(&project, "C");
    let out = project.story(&[]);
    assert_eq!(out.code, 0, "{out}");
    assert_eq!(project.repo.git(["show", "adjutant/D:chain"]), "A\nB\nC\nD");
    assert_eq!(beyond(&project, "main", "D"), [tip(&project, "D")]);
}

#[test]
fn a_repeated_dependency_replaces_its_earlier_work() {
    let stories: [(&str, &[&str]); 3] = [("A", &[]), ("B", &["A"]), ("C", &["B"])];
    let turns = [writes("A", "a", "first\n"), done("A"), writes("B", "b", "b\n"), done("B")];
    let project = Project::new(&prd(&stories), turns);
    assert_eq!(project.story(&["--story", "A"]).code, 0);
    assert_eq!(project.story(&["--story", "B"]).code, 0);
    let text = project.repo.read("prd.json").replacen("\"passes\": true", "\"passes\": false", 1);
    project.rig().write("prd.json", text);
    let turns = [writes("A", "again", "again\n"), done("A"), writes("C", "c", "c\n"), done("C")];
    project.script(&json!({ "turn": turns }));
    let out = project.story(&["--story", "A", "--again"]);
    assert_eq!(out.code, 0, "{out}");
    let out = project.story(&["--story", "C"]);
    assert_eq!(out.code, 0, "{out}");
    let files = project.repo.git(["ls-tree", "--name-only", "adjutant/C"]);
    for (file, is_there) in [("a", false), ("again", true), ("b", true), ("c", true)] {
        assert_eq!(files.lines().any(|it| it == file), is_there, "{file}: {files}");
    }
}

#[test]
fn stories_work_with_the_reftable_format() {
    let turns = [writes("A", "a", "a\n"), done("A"), writes("B", "b", "b\n"), done("B")];
    let project = Project::new(&prd(&[("A", &[]), ("B", &["A"])]), turns);
    fs::remove_dir_all(project.rig().work().join(".git")).unwrap();
    project.repo.git(["init", "-q", "-b", "main", "--ref-format=reftable", "."]);
    project.repo.commit("first");
    let out = project.story(&[]);
    assert_eq!(out.code, 0, "{out}");
    assert_eq!(project.entry("B")["adjutant"]["branch"], "adjutant/B");
    assert_eq!(beyond(&project, "main", "B"), ["B", "A"].map(|story| tip(&project, story)));
}

#[test]
fn a_broken_branch_of_another_tool_does_not_stop_a_story() {
    let turns = [writes("A", "a", "a\n"), done("A"), writes("B", "b", "b\n"), done("B")];
    let project = Project::new(&prd(&[("A", &[]), ("B", &["A"])]), turns);
    assert_eq!(project.story(&["--story", "A"]).code, 0);
    let broken = project.rig().work().join(".git/refs/heads/broken");
    fs::write(broken, format!("{}\n", "1234567890".repeat(4))).unwrap();
    let out = project.story(&[]);
    assert_eq!(out.code, 0, "{out}");
    assert_eq!(beyond(&project, "main", "B"), ["B", "A"].map(|story| tip(&project, story)));
    for command in [&["diff"][..], &["discard", "latest", "--yes"]] {
        let out = project.call(command).run();
        assert_eq!(out.code, 0, "{command:?}: {out}");
    }
}

#[test]
fn an_unresolved_merge_of_the_user_is_named_in_the_report() {
    let project = Project::new(&prd(&[("A", &[])]), [writes("A", "a", "a\n"), done("A")]);
    project.repo.git(["checkout", "-q", "-b", "other"]);
    project.rig().write("long", lines(&[(2, "theirs")]));
    project.repo.commit("theirs");
    project.repo.git(["checkout", "-q", "main"]);
    project.rig().write("long", lines(&[(2, "ours")]));
    project.repo.commit("ours");
    project.repo.git(["read-tree", "-m", "-u", "main~1", "main", "other"]);
    let out = project.story(&[]);
    assert_eq!(out.code, 0, "{out}");
    assert!(out.stdout.contains("included with their conflict markers: long"), "{out}");
}

#[test]
fn an_uncommitted_prd_does_not_prevent_a_merge() {
    let turns = [writes("A", "a", "a\n"), done("A"), writes("B", "b", "b\n"), done("B")];
    for kind in KINDS {
        let project = Project::new(&prd(&[("A", &[]), ("B", &["A"])]), turns.clone());
        project.repo.git(["rm", "-q", "--cached", "prd.json"]);
        project.repo.git(["commit", "-q", "-m", "the PRD is not tracked"]);
        let out = project.story(&["--workspace", kind]);
        assert_eq!(out.code, 0, "{kind}: {out}");
        assert_eq!(beyond(&project, "main", "B").len(), 2, "{kind}");
        project.repo.git(["merge", "-q", "--ff-only", "adjutant/B"]);
        let files = project.repo.git(["ls-tree", "-r", "--name-only", "HEAD"]);
        assert!(!files.contains("prd.json") && files.contains('b'), "{kind}: {files}");
        assert_eq!(project.entry("B")["passes"], true, "{kind}");
    }
}

#[test]
fn a_result_that_builds_on_unmerged_work_names_it_in_order() {
    let stories = prd(&[("A", &[]), ("B", &["A"]), ("C", &["B"])]);
    let turns = [
        writes("A", "chain", "a\n"),
        done("A"),
        runs("B", "echo b >> chain"),
        done("B"),
        runs("C", "echo c >> chain"),
        done("C"),
    ];
    let project = Project::new(&stories, turns);
    let out = project.story(&["--merge", "report"]);
    assert_eq!(out.code, 0, "{out}");
    let mut runs: Vec<(String, String)> = project
        .rig()
        .runs()
        .into_iter()
        .map(|run| {
            let taken = project.events(&run, "story_taken");
            (taken[0]["id"].as_str().unwrap().to_owned(), run)
        })
        .collect();
    runs.sort();
    let [a, b, c] = [0, 1, 2].map(|at: usize| runs[at].1.clone());
    let merge = |run: &str| project.call(["merge", run]).run();
    let out = merge(&c);
    assert_eq!(out.code, 1, "{out}");
    let said = format!(
        "{c} builds on the work of {a}, {b}, which is not merged yet: `adjutant merge {a}` first."
    );
    assert!(out.stderr.contains(&said), "{out}");
    for run in [&a, &b, &c] {
        let out = merge(run);
        assert_eq!(out.code, 0, "{out}");
    }
    assert_eq!(project.repo.read("chain"), "a\nb\nc\n");
}

/// Works on one story, and returns how often git was called for it.
pub(crate) fn git_calls(project: &Project, story: &str) -> usize {
    let [folder, calls] = ["counted", "calls"].map(|name| project.rig().path().join(name));
    let found = std::env::var_os("PATH").unwrap();
    let git = std::env::split_paths(&found).map(|it| it.join("git")).find(|it| it.exists());
    let text = format!(
        "#!/bin/sh\necho called >> '{}'\nexec '{}' \"$@\"\n",
        calls.display(),
        git.unwrap().display()
    );
    fs::create_dir_all(&folder).unwrap();
    fs::write(folder.join("git"), text).unwrap();
    fs::set_permissions(folder.join("git"), fs::Permissions::from_mode(0o755)).unwrap();
    fs::write(&calls, "").unwrap();
    let search = std::env::join_paths([folder].into_iter().chain(std::env::split_paths(&found)));
    let out = project.working(&["--story", story]).env("PATH", search.unwrap()).run();
    assert_eq!(out.code, 0, "{out}");
    fs::read_to_string(calls).unwrap().lines().count()
}

#[test]
fn the_time_of_a_story_does_not_grow_with_the_stories_before_it() {
    const STORIES: usize = 16;
    let id = |number: usize| format!("S-{number:02}");
    let story = |number: usize| {
        let before: Vec<String> = (1..number).map(id).collect();
        // One depends on all before it, as a chain does in the end.
        json!({ "id": id(number), "title": "A part", "dependencies": before, "passes": false })
    };
    let turns = |number: usize| {
        let id = id(number);
        [runs(&id, &format!("echo {id} >> chain")), done(&id)]
    };
    let prd = json!({ "userStories": (1..=STORIES).map(story).collect::<Vec<_>>() });
    for writes in [false, true] {
        let project = Project::new(&prd, (1..=STORIES).flat_map(turns));
        // Work based on an earlier state of the tree has to be merged with the present one.
        let by_person = |number: usize| {
            if writes {
                project.rig().write(&format!("own-{number}"), "not committed\n");
            }
        };
        for number in [1, 2] {
            assert_eq!(project.story(&["--story", &id(number)]).code, 0);
        }
        by_person(3);
        let third = git_calls(&project, &id(3));
        for number in 4..STORIES {
            assert_eq!(project.story(&["--story", &id(number)]).code, 0);
        }
        by_person(STORIES);
        let last = git_calls(&project, &id(STORIES));
        assert!(
            third > 0 && last <= third,
            "{third} calls of git with 2 before it, {last} with 15; a person writes: {writes}"
        );
        let tip = project.repo.git(["show", &format!("adjutant/{}:chain", id(STORIES))]);
        assert_eq!(tip.lines().count(), STORIES);
    }
}

#[test]
fn a_chain_of_a_prd_outside_the_repository_starts_from_one_state() {
    let turns = [writes("A", "a", "a\n"), done("A"), writes("B", "b", "b\n"), done("B")];
    let project = Project::new(&prd(&[("A", &[]), ("B", &["A"])]), turns);
    let tree = project.rig().work();
    fs::rename(tree.join("prd.json"), tree.join("../elsewhere.json")).unwrap();
    project.repo.commit("no PRD");
    project.rig().write("mine", "not committed\n");
    for story in ["A", "B"] {
        let call = project.call(["story", "../elsewhere.json", "--yes", "--model"]);
        let out = call.args(["script:../script.json", "--story", story]).run();
        assert_eq!(out.code, 0, "{out}");
    }
    let [a, b] = ["A", "B"].map(|story| tip(&project, story));
    let state = project.repo.git(["rev-parse", "adjutant/A~1"]);
    assert_eq!(beyond(&project, "main", "B"), [b, a, state]);
    // With the date of the clock the commit would differ a second later.
    let dates =
        ["main", "adjutant/A~1"].map(|it| project.repo.git(["log", "-1", "--format=%ct", it]));
    assert_eq!(dates[0], dates[1]);
}
