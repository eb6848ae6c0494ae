//! Git work trees for children.

use adjutant_workspace::space::{SweepOutcome, WorkspaceError};
use adjutant_workspace::{GitError, SkipReason, Worktrees};

use super::*;

#[test]
fn a_work_tree_has_the_dirty_state_and_keeps_its_result() {
    let user = User::new();
    user.write("README", "dirty\n");
    user.write("untracked", "x\n");
    let before = user.untouched();
    let repository = user.open();
    let snapshot = repository.capture(now()).unwrap();
    let worktrees = Worktrees::open(&repository).unwrap();
    let tree = worktrees.create(&child("w"), &snapshot.commit).unwrap();
    assert_eq!(on_disk(tree.path()), on_disk(&user.tree));
    assert!(tree.is_clean().unwrap());
    let inside = tree.path().to_str().unwrap();
    assert_eq!(user.git(["-C", inside, "status", "--porcelain"]), "", "git agrees");

    tree.remove().unwrap();

    let spaces = user.spaces();
    let space = spaces.make("run", "w", "1", None).unwrap();
    put(&space.directory().join("README"), "child\n");
    put(&space.directory().join("made/by/child"), "child\n");
    put(&space.directory().join("target/ignored"), "built\n");
    fs::remove_file(space.directory().join("untracked")).unwrap();
    let made = space.keep("work\n", now()).unwrap();
    assert_eq!(made.skipped.len(), 1);
    assert_eq!(made.skipped[0].reason, SkipReason::Ignored);
    let commit = made.commit.unwrap();
    let names: Vec<String> = user.files(&commit).into_keys().collect();
    assert_eq!(
        names,
        [".gitignore", "README", "made/by/child", "src/deep/down/file", "src/lib.rs"]
    );
    space.close().unwrap();
    assert!(Worktrees::open(spaces.repository()).unwrap().list().unwrap().is_empty());
    assert_eq!(user.git(["worktree", "list"]).lines().count(), 1);
    assert_eq!(repository.result(&child("w")).unwrap(), Some(commit));
    assert_eq!(user.untouched(), before);
}

#[test]
fn work_that_is_not_committed_is_not_removed() {
    let user = User::new();
    let repository = user.open();
    let worktrees = Worktrees::open(&repository).unwrap();
    let tree = worktrees.create(&child("w"), &user.id("HEAD")).unwrap();
    put(&tree.path().join("new"), "1\n");
    let path = tree.path().to_owned();
    assert!(matches!(tree.remove(), Err(GitError::Changed { .. })));
    assert_eq!(fs::read_to_string(path.join("new")).unwrap(), "1\n");

    let spaces = user.spaces();
    let space = spaces.make("run", "k", "1", None).unwrap();
    put(&space.directory().join("new"), "1\n");
    assert!(space.keep("work\n", now()).unwrap().commit.is_some());
    put(&space.directory().join("new"), "2\n");
    assert!(matches!(space.close(), Err(WorkspaceError::Unkept { .. })));
    drop(space);
    let swept = spaces.sweep(&|_| false, now()).unwrap();
    let [SweepOutcome::Kept(_, kept)] = swept.as_slice() else { panic!("{swept:?}") };
    assert_eq!(user.files(kept)["new"], "100644 2\n");
    assert_eq!(spaces.sweep(&|_| false, now()).unwrap(), [], "looking twice changes nothing");
}

#[test]
fn a_locked_work_tree_is_not_an_orphan_and_cannot_be_created_twice() {
    let user = User::new();
    let spaces = user.spaces();
    let space = spaces.make("run", "w", "1", None).unwrap();
    let worktrees = Worktrees::open(spaces.repository()).unwrap();
    assert_eq!(spaces.sweep(&|_| false, now()).unwrap(), []);
    assert!(worktrees.list().unwrap()[0].live);
    assert!(matches!(worktrees.create(&child("w"), &user.id("HEAD")), Err(GitError::Moved { .. })));
    assert!(worktrees.adopt(&child("w")).is_err());
    let path = space.directory();
    drop(space);
    assert_eq!(spaces.sweep(&|_| false, now()).unwrap(), [SweepOutcome::Removed(child("w"))]);
    assert!(!path.exists());
}

#[test]
fn eight_work_trees_are_created_at_once() {
    let user = User::new();
    let spaces = user.spaces();
    std::thread::scope(|scope| {
        for number in 0..8 {
            let spaces = &spaces;
            scope.spawn(move || {
                let space = spaces.make("run", &format!("w{number}"), "1", None).unwrap();
                put(&space.directory().join("own"), &number.to_string());
                assert!(space.keep("work\n", now()).unwrap().commit.is_some());
            });
        }
    });
    let repository = spaces.repository();
    assert_eq!(user.git(["worktree", "list"]).lines().count(), 9);
    let worktrees = Worktrees::open(repository).unwrap();
    assert_eq!(worktrees.list().unwrap().len(), 8);
    for number in 0..8 {
        let name = child(&format!("w{number}"));
        let kept = repository.result(&name).unwrap().unwrap();
        let tree = user.id(&format!("{kept}^{{tree}}"));
        assert_eq!(user.files(&tree)["own"], format!("100644 {number}"));
    }
}

#[test]
fn work_is_committed_and_removed_although_the_child_damaged_its_dot_git_and_permissions() {
    let user = User::new();
    let space = user.spaces().make("run", "w", "1", None).unwrap();
    put(&space.directory().join("work"), "x\n");
    fs::write(space.directory().join(".git"), "gitdir: /nonexistent\n").unwrap();
    fs::create_dir(space.directory().join("shut")).unwrap();
    fs::set_permissions(space.directory().join("shut"), fs::Permissions::from_mode(0o500)).unwrap();
    assert!(space.keep("work\n", now()).unwrap().commit.is_some());
    space.close().unwrap();
    assert_eq!(user.git(["worktree", "list"]).lines().count(), 1);
}

#[test]
fn an_interrupted_removal_is_completed_and_does_not_look_like_deletions() {
    let user = User::new();
    let spaces = user.spaces();
    let space = spaces.make("run", "w", "1", None).unwrap();
    put(&space.directory().join("new"), "1\n");
    let made = space.keep("work\n", now()).unwrap().commit;
    let path = space.directory();
    drop(space);
    // The state after a kill in the middle of the removal.
    fs::remove_dir_all(path.join("src")).unwrap();
    let record = path.parent().unwrap().join("record");
    let text = fs::read_to_string(&record).unwrap();
    let ready = text.lines().nth(1).unwrap();
    fs::write(&record, text.replace(ready, "removing")).unwrap();
    assert_eq!(spaces.sweep(&|_| false, now()).unwrap(), [SweepOutcome::Removed(child("w"))]);
    assert_eq!(spaces.repository().result(&child("w")).unwrap(), made);
    assert_eq!(user.git(["worktree", "list"]).lines().count(), 1);
}

/// Repositories in which a work tree must work like in any other.
fn odd_repositories() -> Vec<(&'static str, User)> {
    let unborn = User::unborn();
    unborn.write("a", "a\n");
    let detached = User::new();
    detached.git(["checkout", "-q", "--detach"]);
    let sparse = User::new();
    sparse.git(["sparse-checkout", "set", "--cone", "src/deep"]);
    let split = User::new();
    split.git(["config", "core.splitIndex", "true"]);
    split.git(["update-index", "--split-index"]);
    let own = User::new();
    own.git(["config", "extensions.worktreeConfig", "true"]);
    let longer = User::bare_folder();
    longer.git(["init", "-q", "--object-format=sha256", "."]);
    longer.write("a", "a\n");
    longer.commit("first");
    vec![
        ("unborn", unborn),
        ("detached", detached),
        ("sparse", sparse),
        ("split", split),
        ("own configuration", own),
        ("sha256", longer),
    ]
}

#[test]
fn work_trees_work_in_odd_repositories() {
    for (kind, user) in odd_repositories() {
        user.write("src/added by the user", "x\n");
        let before = user.untouched();
        let repository = user.open();
        let snapshot = repository.capture(now()).unwrap();
        let worktrees = Worktrees::open(&repository).unwrap();
        let tree = worktrees.create(&child("w"), &snapshot.commit).unwrap();
        assert_eq!(on_disk(tree.path()), user.files(&snapshot.tree), "{kind}");
        assert!(tree.is_clean().unwrap(), "{kind}");
        tree.remove().unwrap();
        let space = user.spaces().make("run", "w", "1", None).unwrap();
        put(&space.directory().join("src/work"), "x\n");
        let kept = space.keep("work\n", now()).unwrap();
        assert_eq!(kept.diff.entries.len(), 1, "{kind}: {kept:?}");
        space.close().unwrap();
        assert_eq!(user.untouched(), before, "{kind}");
    }
}
