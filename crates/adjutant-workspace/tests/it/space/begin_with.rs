//! Work that starts with the results of other work, whatever the user did to the history in between.

use std::collections::BTreeSet;

use super::*;
use crate::git::{on_disk, put};

/// A user, and stories that build on each other's results.
struct Stories {
    user: User,
    spaces: Workspaces,
}

impl Stories {
    fn new() -> Self {
        let user = User::new();
        let options =
            WorkspaceOptions { reproducible: true, ..options(WorkspaceBackingChoice::Worktree) };
        let spaces = Workspaces::open(&user.tree, &state(&user), options).unwrap();
        Self { user, spaces }
    }

    /// Does a story based on results: creates and removes files of these names.
    fn story(&self, name: &str, upon: &[&ObjectId], makes: &[&str], removes: &[&str]) -> ObjectId {
        let space = self.begin(name, upon);
        makes.iter().for_each(|path| write(&space, path, &text_of(path)));
        removes.iter().for_each(|path| remove(&space, path));
        space.keep_and_close(name, now()).unwrap().commit.unwrap()
    }

    fn begin(&self, name: &str, upon: &[&ObjectId]) -> Workspace {
        let results: Vec<ObjectId> = upon.iter().map(|it| (*it).clone()).collect();
        assert_eq!(self.spaces.begin_with("run", name, &results).unwrap(), None, "{name}");
        self.spaces.make("run", name, name, None).unwrap()
    }

    /// Returns the files that a story based on results starts with.
    #[track_caller]
    fn check(&self, name: &str, upon: &[&ObjectId], has: &[&str], lacks: &[&str]) {
        let found = files(&self.begin(name, upon));
        for path in has {
            assert!(found.contains_key(*path), "{path} is missing: {:?}", found.keys());
        }
        for path in lacks {
            assert!(!found.contains_key(*path), "{path} came back: {:?}", found.keys());
        }
    }

    /// The user writes a file and leaves it uncommitted.
    fn writes(&self, path: &str) {
        self.user.write(path, &text_of(path));
    }
}

/// Unlike the text of any other file, so that git detects no renames.
fn text_of(path: &str) -> String {
    (0..8).map(|line| format!("{path} {line} {path}\n")).collect()
}

#[test]
fn a_deletion_in_one_result_is_not_reverted_by_another() {
    let all = Stories::new();
    let a = all.story("a", &[], &["by-a"], &[]);
    let b = all.story("b", &[&a], &["by-b"], &["by-a"]);
    all.writes("own-1");
    // It contains A's work by a merge with another state of the tree.
    let c = all.story("c", &[&a], &["by-c"], &[]);
    all.check("last-1", &[&a, &b, &c], &["by-b", "by-c", "own-1"], &["by-a"]);
    all.writes("own-2");
    all.check("last-2", &[&a, &b, &c], &["by-b", "by-c", "own-1", "own-2"], &["by-a"]);
}

#[test]
fn a_deletion_by_the_user_is_not_reverted_by_work_based_on_the_commit() {
    for amends in [true, false] {
        let all = Stories::new();
        all.writes("wrong");
        all.writes("fine");
        all.user.commit("both");
        let a = all.story("a", &[], &["by-a"], &[]);
        std::fs::remove_file(all.user.path("wrong")).unwrap();
        if amends {
            all.user.git(["add", "--all"]);
            all.user.git(["commit", "-q", "--amend", "-m", "one"]);
        } else {
            all.user.git(["reset", "-q", "--hard", "HEAD~1"]);
        }
        all.check("last-3", &[&a], &["by-a"], &["wrong"]);
    }
}

#[test]
fn repeated_work_replaces_the_earlier_result_that_other_work_is_based_on() {
    let all = Stories::new();
    let old = all.story("old", &[], &["by-old"], &[]);
    let b = all.story("b", &[&old], &["by-b"], &[]);
    let new = all.story("new", &[], &["by-new"], &[]);
    all.check("last-4", &[&new, &b], &["by-new", "by-b"], &["by-old"]);
    all.writes("own");
    let c = all.story("c", &[&new, &b], &["by-c"], &[]);
    all.writes("own-2");
    all.check("last-5", &[&new, &b, &c], &["by-new", "by-b", "by-c", "own-2"], &["by-old"]);
}

#[test]
fn a_result_that_the_user_merged_and_reverted_is_merged() {
    let all = Stories::new();
    let a = all.story("a", &[], &["by-a"], &[]);
    let before = all.user.id("HEAD");
    all.user.git(["merge", "-q", "--ff-only", a.as_str()]);
    all.writes("own");
    let b = all.story("b", &[], &["by-b"], &[]);
    all.user.git(["reset", "-q", "--hard", before.as_str()]);
    all.check("last-6", &[&a, &b], &["by-a", "by-b", "own"], &[]);
}

#[test]
fn a_result_that_was_in_the_files_for_a_while_is_merged() {
    let all = Stories::new();
    let a = all.story("a", &[], &["by-a"], &[]);
    let b = all.story("b", &[&a], &["by-b"], &[]);
    // Applied, so that only B is requested.
    all.writes("by-a");
    let c = all.story("c", &[&b], &["by-c"], &[]);
    std::fs::remove_file(all.user.path("by-a")).unwrap();
    all.check("last-7", &[&b, &c], &["by-b", "by-c"], &["by-a"]);
    all.writes("own");
    all.check("last", &[&a, &b, &c], &["by-a", "by-b", "by-c", "own"], &[]);
}

#[test]
fn a_merged_result_is_merged_again_once_the_files_no_longer_contain_it() {
    let all = Stories::new();
    let a = all.story("a", &[], &["by-a"], &[]);
    let b = all.story("b", &[&a], &["by-b"], &[]);
    // It is not known that this is A's work.
    all.writes("by-a");
    let c = all.story("c", &[&a, &b], &["by-c"], &[]);
    std::fs::remove_file(all.user.path("by-a")).unwrap();
    all.check("last", &[&a, &b, &c], &["by-a", "by-b", "by-c"], &[]);
}

/// The number of random histories; the first ones already detect a merge that contains too much or too little.
const SEEDS: u64 = 4;

/// A deterministic pseudo-random generator.
struct Dice(u64);

impl Dice {
    fn below(&mut self, end: usize) -> usize {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(self.0 >> 33).unwrap() % end
    }
}

/// A completed story: its dependencies, transitively, the file it created and the files of others that it removed.
struct Done {
    commit: ObjectId,
    upon: BTreeSet<usize>,
    makes: String,
    removes: BTreeSet<String>,
}

/// Does something to the tree or its history that a user may do between two stories.
fn meddle(all: &Stories, dice: &mut Dice, number: usize, done: &[Done]) {
    let (user, own) = (&all.user, format!("own-{number}"));
    match dice.below(7) {
        0 => all.writes(&own),
        1 => {
            all.writes(&own);
            user.commit("own");
        }
        2 => {
            all.writes(&own);
            user.git(["add", "--all"]);
            user.git(["commit", "-q", "--amend", "-m", "amended"]);
        }
        3 => drop(user.try_git(["reset", "-q", "--hard", "HEAD~1"])),
        4 if !done.is_empty() => {
            let commit = &done[dice.below(done.len())].commit;
            user.git(["stash", "-q", "--include-untracked"]);
            user.try_git(["merge", "-q", "--no-edit", commit.as_str()]);
            assert_eq!(user.git(["status", "--porcelain"]), "");
        }
        _ => {}
    }
}

#[test]
fn a_story_always_starts_with_the_users_files_and_its_dependencies() {
    for seed in 0..SEEDS {
        let (all, mut dice) = (Stories::new(), Dice(seed));
        let mut done: Vec<Done> = Vec::new();
        for number in 0..7 {
            meddle(&all, &mut dice, number, &done);
            let mut upon = BTreeSet::new();
            for (earlier, story) in done.iter().enumerate() {
                if dice.below(2) == 0 {
                    upon.extend(story.upon.iter().copied().chain([earlier]));
                }
            }
            let mut expected: BTreeSet<String> = on_disk(&all.user.tree).into_keys().collect();
            // Work that the user's branch contains is not requested.
            let commits: Vec<ObjectId> = upon.iter().map(|it| done[*it].commit.clone()).collect();
            let had = all.spaces.repository().merged_in_head(&commits).unwrap();
            let asked = || upon.iter().map(|it| &done[*it]).filter(|it| !had.contains(&it.commit));
            for it in asked() {
                expected.insert(it.makes.clone());
                expected.retain(|path| !it.removes.contains(path));
            }
            let results: Vec<&ObjectId> = asked().map(|it| &it.commit).collect();
            let name = format!("story-{number}");
            let space = all.begin(&name, &results);
            let found: BTreeSet<String> = files(&space).into_keys().collect();
            assert_eq!(found, expected, "seed {seed}, story {number} upon {upon:?}");
            let makes = format!("by-{number}");
            write(&space, &makes, &text_of(&makes));
            let mut removes = BTreeSet::new();
            for path in upon.iter().map(|it| &done[*it].makes).filter(|it| found.contains(*it)) {
                if dice.below(3) == 0 {
                    remove(&space, path);
                    removes.insert(path.clone());
                }
            }
            let commit = space.keep_and_close(&name, now()).unwrap().commit.unwrap();
            done.push(Done { commit, upon, makes, removes });
        }
    }
}

#[test]
fn a_commit_with_a_timestamp_outside_the_range_of_system_time_is_captured() {
    let all = Stories::new();
    let (tree, file) = (all.user.id("HEAD^{tree}"), all.user.outer.path().join("commit"));
    let who = format!("a <a@b> {} +0000", u64::MAX);
    put(&file, &format!("tree {tree}\nauthor {who}\ncommitter {who}\n\nx\n"));
    let store = ["hash-object", "--literally", "-t", "commit", "-w", file.to_str().unwrap()];
    let commit = all.user.git(store);
    all.user.git(["reset", "-q", commit.trim()]);
    all.writes("own");
    let a = all.story("a", &[], &["by-a"], &[]);
    all.check("last", &[&a], &["by-a", "own"], &[]);
}
