//! Previews, references, branches, pruning.

use adjutant_workspace::{ConflictKind, DiffStatus, GitError};

use super::*;

/// Commits `theirs` as a child's work on HEAD, then `ours` on top of HEAD, and returns the conflicts.
fn check_conflicts(
    ours: impl Fn(&User),
    theirs: impl Fn(&Path),
    deleted: &[&str],
) -> Vec<(String, ConflictKind)> {
    let user = User::new();
    user.write("binary", "\0\x01one");
    let base = user.commit("base");
    let repository = user.open();
    let upper = user.upper();
    theirs(&upper);
    let root = Root::open(&upper).unwrap();
    let (mut changes, _) = layer_changes(&root).unwrap();
    changes.extend(deleted.iter().map(|path| FileChange::Deleted(rel(path))));
    let made = repository.commit(work(&base, &root, &changes), &child("c"), None).unwrap().unwrap();
    ours(&user);
    let target = user.commit("ours");
    let before = user.untouched();
    let preview = repository.preview(&made.commit, &target).unwrap();
    assert_eq!(user.untouched(), before);
    let conflicts = preview.conflicts.into_iter();
    conflicts.map(|conflict| (conflict.path.to_str().unwrap().to_owned(), conflict.kind)).collect()
}

#[test]
fn every_kind_of_conflict_is_named_with_its_file() {
    let one = |path: &str, kind| vec![(path.to_owned(), kind)];
    assert_eq!(
        check_conflicts(
            |user| user.write("README", "ours\n"),
            |upper| put(&upper.join("README"), "theirs\n"),
            &[]
        ),
        one("README", ConflictKind::BothModified)
    );
    assert_eq!(
        check_conflicts(
            |user| user.write("binary", "\0\x01two"),
            |upper| put(&upper.join("binary"), "\0\x01three"),
            &[]
        ),
        one("binary", ConflictKind::Binary)
    );
    assert_eq!(
        check_conflicts(
            |user| user.write("new\nfile", "ours\n"),
            |upper| put(&upper.join("new\nfile"), "theirs\n"),
            &[]
        ),
        one("new\nfile", ConflictKind::BothAdded)
    );
    assert_eq!(
        check_conflicts(
            |user| fs::remove_file(user.path("README")).unwrap(),
            |upper| put(&upper.join("README"), "theirs\n"),
            &[]
        ),
        one("README", ConflictKind::DeletedByTarget)
    );
    assert_eq!(
        check_conflicts(|user| user.write("README", "ours\n"), |_| (), &["README"]),
        one("README", ConflictKind::DeletedByChild)
    );
    assert_eq!(
        check_conflicts(
            |user| {
                user.git(["mv", "README", "OURS"]);
            },
            |upper| put(&upper.join("THEIRS"), "one\ntwo\nthree\n"),
            &["README"]
        )
        .iter()
        .map(|(_, kind)| *kind)
        .collect::<std::collections::BTreeSet<_>>(),
        [ConflictKind::Rename].into()
    );
    // Reported under its own name, not under the one that git gives it beside the directory.
    assert_eq!(
        check_conflicts(
            |user| user.write("thing/inside", "ours\n"),
            |upper| put(&upper.join("thing"), "theirs\n"),
            &[]
        ),
        one("thing", ConflictKind::FileAndFolder)
    );
    assert!(
        check_conflicts(
            |user| user.write("thing", "ours\n"),
            |upper| link("src", &upper.join("thing")),
            &[]
        )
        .iter()
        .any(|(_, kind)| *kind == ConflictKind::Mode)
    );
    assert!(
        check_conflicts(
            |user| user.write("README", "zero\none\ntwo\nthree\n"),
            |upper| put(&upper.join("README"), "one\ntwo\nthree\nfour\n"),
            &[]
        )
        .is_empty()
    );
}

#[test]
fn a_result_is_merged_from_its_own_base_whatever_the_history_of_the_target() {
    let user = User::new();
    let older = user.id("HEAD");
    user.write("later", "later\n");
    let base = user.commit("later");
    let repository = user.open();
    put(&user.upper().join("work"), "work\n");
    let made = user.commit_layer(&repository, &base, &user.upper(), &child("c")).unwrap();
    user.git(["checkout", "-q", "--orphan", "unrelated"]);
    user.write("unrelated", "unrelated\n");
    let unrelated = user.commit("unrelated");
    let tree = repository.tree_of(&older).unwrap();
    let has = |target: &ObjectId, path: &str| {
        let preview = repository.preview(&made.commit, target).unwrap();
        assert!(preview.is_clean(), "{target}");
        user.files(&preview.tree).contains_key(path)
    };
    // A target that git itself would only move forward, one without a common history, and a tree.
    for target in [&older, &unrelated, &base, &made.commit, &tree] {
        assert!(has(target, "work"), "{target}");
        assert_eq!(has(target, "later"), *target != older && *target != tree, "{target}");
    }
    let missing = ObjectId::parse(&"1".repeat(40)).unwrap();
    assert!(matches!(repository.preview(&made.commit, &missing), Err(GitError::Missing(_))));
    assert!(matches!(repository.preview(&missing, &base), Err(GitError::Missing(_))));
}

#[test]
fn merging_stores_no_commit_in_the_repository() {
    let user = User::new();
    let base = user.id("HEAD");
    let repository = user.open();
    put(&user.upper().join("README"), "theirs\n");
    let made = user.commit_layer(&repository, &base, &user.upper(), &child("c")).unwrap();
    user.write("other", "ours\n");
    let target = user.commit("ours");
    let commits = || {
        let all = ["cat-file", "--batch-all-objects", "--batch-check=%(objecttype)"];
        user.git(all).lines().filter(|line| *line == "commit").count()
    };
    let before = commits();
    assert!(repository.preview(&made.commit, &target).unwrap().is_clean());
    assert!(!repository.results().unwrap()[0].merged);
    assert_eq!(commits(), before);
}

#[test]
fn a_rename_is_seen_in_the_diff() {
    let user = User::new();
    let base = user.id("HEAD");
    let upper = user.upper();
    put(&upper.join("moved here"), "one\ntwo\nthree\n");
    let root = Root::open(&upper).unwrap();
    let changes = [FileChange::Deleted(rel("README")), FileChange::Written(rel("moved here"))];
    let repository = user.open();
    let made = repository.commit(work(&base, &root, &changes), &child("r"), None).unwrap().unwrap();
    let diff = repository.diff(&base, &made.commit).unwrap();
    assert_eq!(diff.entries.len(), 1);
    assert_eq!(diff.entries[0].status, DiffStatus::Renamed("README".into()));
    assert_eq!(diff.entries[0].path, PathBuf::from("moved here"));
}

#[test]
fn a_reference_moves_only_from_where_it_is_known_to_be() {
    let user = User::new();
    let repository = user.open();
    let base = user.id("HEAD");
    put(&user.upper().join("x"), "1\n");
    let first = user.commit_layer(&repository, &base, &user.upper(), &child("x")).unwrap();
    put(&user.upper().join("x"), "2\n");
    let root = Root::open(user.upper()).unwrap();
    let changes = [FileChange::Written(rel("x"))];
    let again = |expected| repository.commit(work(&base, &root, &changes), &child("x"), expected);
    assert!(matches!(again(None), Err(GitError::Moved { .. })));
    assert!(matches!(again(Some(&base)), Err(GitError::Moved { .. })));
    assert_eq!(repository.result(&child("x")).unwrap(), Some(first.commit.clone()));
    let second = again(Some(&first.commit)).unwrap().unwrap();
    assert_eq!(repository.result(&child("x")).unwrap(), Some(second.commit.clone()));
    assert!(matches!(repository.discard(&child("x"), &first.commit), Err(GitError::Moved { .. })));
    repository.discard(&child("x"), &second.commit).unwrap();
    assert_eq!(repository.result(&child("x")).unwrap(), None);
}

#[test]
fn nothing_is_committed_where_nothing_differs() {
    let user = User::new();
    let repository = user.open();
    put(&user.upper().join("README"), "one\ntwo\nthree\n");
    let base = user.id("HEAD");
    assert_eq!(user.commit_layer(&repository, &base, &user.upper(), &child("n")), None);
    assert_eq!(repository.result(&child("n")).unwrap(), None);
}

#[test]
fn a_result_has_an_author_and_its_base_as_parent() {
    let user = User::new();
    let repository = user.open();
    put(&user.upper().join("x"), "1\n");
    let base = user.id("HEAD");
    let made = user.commit_layer(&repository, &base, &user.upper(), &child("x")).unwrap();
    let shown = user.git(["log", "-1", "--format=%an <%ae> %cn %ct %P", made.commit.as_str()]);
    assert_eq!(shown, format!("Adjutant <adjutant@localhost> Adjutant 1800000000 {base}"));
}

#[test]
fn a_branch_is_made_once_and_never_over_another() {
    let user = User::new();
    let repository = user.open();
    put(&user.upper().join("x"), "1\n");
    let base = user.id("HEAD");
    let made = user.commit_layer(&repository, &base, &user.upper(), &child("b")).unwrap();
    assert_eq!(repository.branch(&child("b")).unwrap(), "adjutant/run-b");
    assert_eq!(repository.branch(&child("b")).unwrap(), "adjutant/run-b");
    assert_eq!(user.id("refs/heads/adjutant/run-b"), made.commit);
    user.git(["update-ref", "refs/heads/adjutant/run-b", base.as_str()]);
    assert!(matches!(repository.branch(&child("b")), Err(GitError::Moved { .. })));
    assert!(matches!(repository.branch(&child("none")), Err(GitError::Missing(_))));
}

#[test]
fn merged_results_are_told_from_others() {
    let user = User::new();
    let repository = user.open();
    let base = user.id("HEAD");
    for (name, text) in [("merged", "m\n"), ("copied", "c\n"), ("open", "o\n")] {
        let upper = user.outer.path().join(name);
        put(&upper.join(name), text);
        user.commit_layer(&repository, &base, &upper, &child(name)).unwrap();
    }
    user.git(["merge", "-q", "--no-edit", "refs/adjutant/run/merged"]);
    user.write("copied", "c\n");
    user.commit("the same work by hand");
    let kept: BTreeMap<String, bool> = repository
        .results()
        .unwrap()
        .into_iter()
        .map(|kept| (kept.reference.child().to_owned(), kept.merged))
        .collect();
    let expected = [("copied", true), ("merged", true), ("open", false)];
    assert_eq!(kept, expected.map(|(name, merged)| (name.to_owned(), merged)).into());
}

#[test]
fn the_lock_file_of_a_killed_git_does_not_block_a_result_forever() {
    let user = User::new();
    let repository = user.open().with_stale_lock(Duration::from_secs(3));
    let base = user.id("HEAD");
    let lock = user.path(".git/refs/adjutant/run/x.lock");
    put(&lock, "");
    put(&user.upper().join("x"), "1\n");
    let root = Root::open(user.upper()).unwrap();
    let changes = [FileChange::Written(rel("x"))];
    let commit = || repository.commit(work(&base, &root, &changes), &child("x"), None);
    // Another git may be writing, so the lock is waited for as long as an update could take.
    let began = std::time::Instant::now();
    let made = commit().unwrap().unwrap();
    assert!(began.elapsed() >= Duration::from_secs(2), "the lock was not waited for");
    let old = SystemTime::now() - Duration::from_secs(120);
    let age = || fs::File::options().write(true).open(&lock).unwrap().set_modified(old).unwrap();
    assert_eq!(repository.result(&child("x")).unwrap(), Some(made.commit.clone()));
    put(&lock, "");
    age();
    repository.discard(&child("x"), &made.commit).unwrap();
}

#[test]
fn the_lock_file_of_a_slow_update_is_waited_for() {
    let user = User::new();
    let (repository, base) = (user.open(), user.id("HEAD"));
    let lock = user.path(".git/refs/adjutant/run/x.lock");
    put(&lock, "");
    let slow = SystemTime::now() - Duration::from_secs(20);
    fs::File::options().write(true).open(&lock).unwrap().set_modified(slow).unwrap();
    std::thread::scope(|scope| {
        let keeping = scope.spawn(|| repository.keep(&child("x"), &base, None));
        // Not for synchronisation: the lock must not be removed during this time.
        std::thread::sleep(Duration::from_secs(1));
        assert!(lock.exists() && !keeping.is_finished());
        fs::remove_file(&lock).unwrap();
        keeping.join().unwrap().unwrap();
    });
    assert_eq!(repository.result(&child("x")).unwrap(), Some(base));
}

#[test]
fn merged_results_are_found_with_one_git_call() {
    let user = User::new();
    let repository = user.open();
    let base = user.id("HEAD");
    // Ten of each kind in turn, and twenty references for each.
    let mut orders = String::new();
    for number in 0..10 {
        user.git(["checkout", "-q", "--detach", base.as_str()]);
        user.write(format!("new/{number}"), "content\n");
        let work = user.commit("work");
        user.git(["checkout", "-q", "main"]);
        match number % 3 {
            0 => drop(user.git(["merge", "-q", "--no-edit", work.as_str()])),
            1 => drop(user.git(["cherry-pick", work.as_str()])),
            _ => {}
        }
        for twin in 0..20 {
            orders += &format!("create refs/adjutant/run/c{number}-{twin} {work}\n");
        }
    }
    // A reference without a commit or without a base must not affect the others.
    let rootless = user.git(["commit-tree", "-m", "rootless", "HEAD^{tree}"]);
    let blob = user.git(["rev-parse", "HEAD:README"]);
    orders += &format!("create refs/adjutant/run/rootless {rootless}\n");
    orders += &format!("create refs/adjutant/run/blob {blob}\n");
    let input = user.outer.path().join("orders");
    fs::write(&input, orders).unwrap();
    let mut update = user.command(["update-ref", "--stdin"]);
    assert!(update.stdin(fs::File::open(input).unwrap()).status().unwrap().success());
    drop(repository);

    let log = user.outer.path().join("calls");
    let folder = user.outer.path().join("bin");
    let real = std::env::split_paths(&std::env::var_os("PATH").unwrap())
        .map(|folder| folder.join("git"))
        .find(|path| path.exists());
    let real = real.unwrap();
    let text =
        format!("#!/bin/sh\necho x >> '{}'\nexec '{}' \"$@\"\n", log.display(), real.display());
    put(&folder.join("git"), &text);
    make_executable(&folder.join("git"));
    let git = Git::find(folder.as_os_str()).unwrap();
    let repository = Repository::open(&git, &user.tree, &user.state()).unwrap();
    fs::remove_file(&log).unwrap();
    let kept = repository.results().unwrap();
    assert_eq!(kept.len(), 201);
    for one in &kept {
        let child = one.reference.child();
        let merged = child.strip_prefix('c').and_then(|rest| rest.split_once('-'));
        let merged = merged.is_some_and(|(number, _)| number.parse::<u32>().unwrap() % 3 < 2);
        assert_eq!(one.merged, merged, "{child}");
    }
    let calls = fs::read_to_string(&log).unwrap().lines().count();
    assert!(calls <= 5, "{calls} calls of git");
}
