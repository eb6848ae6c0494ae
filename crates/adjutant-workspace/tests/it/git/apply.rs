//! Applying results to the user's own files, all or nothing, and undoing them.

use adjutant_workspace::{ApplyError, CreatedCommit, RecoveredApply, UnrestoredFile};

use super::*;

/// A child's work on the current state: these files written, these deleted.
pub(super) fn result(user: &User, written: &[(&str, &str)], deleted: &[&str]) -> CreatedCommit {
    let repository = user.open();
    let snapshot = repository.capture(now()).unwrap();
    let upper = user.upper();
    let mut changes: Vec<FileChange> =
        deleted.iter().map(|path| FileChange::Deleted(rel(path))).collect();
    for (path, text) in written {
        put(&upper.join(path), text);
        changes.push(FileChange::Written(rel(path)));
    }
    let root = Root::open(&upper).unwrap();
    repository.commit(work(&snapshot.commit, &root, &changes), &child("w"), None).unwrap().unwrap()
}

fn index(user: &User) -> String {
    user.git(["ls-files", "--stage"])
}

#[test]
fn a_result_is_applied_beside_other_dirty_files_and_undone() {
    let user = User::new();
    user.write("mine", "untracked\n");
    user.write("src/lib.rs", "fn dirty() {}\n");
    let made = result(
        &user,
        &[
            ("README", "one\ntwo\nthree\nfour\n"),
            ("src/new/file", "new\n"),
            ("deep", "now a file\n"),
        ],
        &["src/deep/down/file"],
    );
    let (before, staged) = (on_disk(&user.tree), index(&user));
    let repository = user.open();
    let applied = repository.apply(&made.commit, now()).unwrap();
    assert_eq!(applied.diff.entries.len(), 4);
    let mut expected = before.clone();
    expected.insert("README".into(), "100644 one\ntwo\nthree\nfour\n".into());
    expected.insert("src/new/file".into(), "100644 new\n".into());
    expected.insert("deep".into(), "100644 now a file\n".into());
    expected.remove("src/deep/down/file");
    assert_eq!(on_disk(&user.tree), expected);
    assert_eq!(index(&user), staged, "the index is the user's");
    repository.undo(&applied.name).unwrap();
    assert_eq!(on_disk(&user.tree), before);
    assert!(matches!(repository.undo(&applied.name), Err(ApplyError::Unknown(_))));
}

#[test]
fn modes_links_and_file_types_are_applied_and_undone() {
    let user = User::new();
    let repository = user.open();
    let snapshot = repository.capture(now()).unwrap();
    let upper = user.upper();
    put(&upper.join("README/inside"), "was a file\n");
    put(&upper.join("src/deep"), "was a folder\n");
    put(&upper.join("src/lib.rs"), "fn a() {}\n");
    make_executable(&upper.join("src/lib.rs"));
    link("nowhere", &upper.join("link"));
    let root = Root::open(&upper).unwrap();
    let (mut changes, _) = layer_changes(&root).unwrap();
    changes.push(FileChange::Deleted(rel("src/deep")));
    let made =
        repository.commit(work(&snapshot.commit, &root, &changes), &child("k"), None).unwrap();
    let made = made.unwrap();
    let before = on_disk(&user.tree);
    let applied = repository.apply(&made.commit, now()).unwrap();
    assert_eq!(on_disk(&user.tree), user.files(&made.tree));
    repository.undo(&applied.name).unwrap();
    assert_eq!(on_disk(&user.tree), before);
}

#[test]
fn uncommitted_changes_the_child_did_not_start_from_are_not_overwritten() {
    let user = User::new();
    let made = result(&user, &[("README", "zero\none\ntwo\nthree\n"), ("new", "child\n")], &[]);
    // It would merge, because the lines are far apart, but it is still uncommitted work of the user.
    user.write("README", "one\ntwo\nthree\nmine\n");
    let before = on_disk(&user.tree);
    let ApplyError::Dirty { paths } = user.open().apply(&made.commit, now()).unwrap_err() else {
        panic!("dirty files are refused");
    };
    assert_eq!(paths, [PathBuf::from("README")]);
    assert_eq!(on_disk(&user.tree), before);
    user.commit("saved");
    user.open().apply(&made.commit, now()).unwrap();
    assert_eq!(user.read("README"), "zero\none\ntwo\nthree\nmine\n");
}

#[test]
fn uncommitted_changes_on_the_same_lines_are_reported_as_uncommitted() {
    let user = User::new();
    let made = result(&user, &[("README", "child\n")], &[]);
    user.write("README", "mine\n");
    assert!(matches!(
        user.open().apply(&made.commit, now()),
        Err(ApplyError::Dirty { paths }) if paths == [PathBuf::from("README")]
    ));
    assert_eq!(user.read("README"), "mine\n");
}

#[test]
fn uncommitted_changes_the_child_started_from_are_kept() {
    let user = User::new();
    user.write("README", "one\ntwo\nthree\ndirty\n");
    let made = result(&user, &[("README", "zero\none\ntwo\nthree\ndirty\n")], &[]);
    user.open().apply(&made.commit, now()).unwrap();
    assert_eq!(user.read("README"), "zero\none\ntwo\nthree\ndirty\n");
}

#[test]
fn an_ignored_file_in_the_way_is_not_overwritten() {
    let user = User::new();
    let made = result(&user, &[("precious.log", "child\n"), ("README", "child\n")], &[]);
    user.write("precious.log", "mine, ignored\n");
    let before = on_disk(&user.tree);
    assert!(matches!(
        user.open().apply(&made.commit, now()),
        Err(ApplyError::Dirty { paths }) if paths == [PathBuf::from("precious.log")]
    ));
    assert_eq!(on_disk(&user.tree), before);
}

#[test]
fn a_failure_in_the_middle_restores_everything() {
    let user = User::new();
    user.write("zz/tracked", "x\n");
    user.commit("folder");
    let made = result(
        &user,
        &[("README", "changed\n"), ("a new one", "new\n"), ("zz", "a file now\n")],
        &["zz/tracked", "src/lib.rs"],
    );
    // The ignored file is unknown to git: the directory cannot become a file.
    user.write("zz/ignored.log", "mine\n");
    let (before, unchanged) = (on_disk(&user.tree), user.untouched());
    let repository = user.open();
    let error = repository.apply(&made.commit, now()).unwrap_err();
    assert!(matches!(error, ApplyError::Stuck { .. }), "{error:?}");
    assert_eq!(on_disk(&user.tree), before);
    assert_eq!(user.git(["status", "--porcelain"]), "");
    assert_eq!(user.untouched()[3..], unchanged[3..]);
    assert!(repository.recover().unwrap().put_back.is_empty(), "nothing is left to put back");
}

#[test]
fn a_conflict_is_refused_with_its_files() {
    let user = User::new();
    let made = result(&user, &[("README", "child\n")], &[]);
    user.write("README", "mine\n");
    user.commit("mine");
    let ApplyError::Conflicts { preview } = user.open().apply(&made.commit, now()).unwrap_err()
    else {
        panic!("a conflict is refused");
    };
    assert_eq!(preview.conflicts[0].path, PathBuf::from("README"));
    assert_eq!(user.read("README"), "mine\n");
}

#[test]
fn an_application_is_not_undone_over_later_changes() {
    let user = User::new();
    let made = result(&user, &[("README", "child\n"), ("other", "child\n")], &[]);
    let repository = user.open();
    let applied = repository.apply(&made.commit, now()).unwrap();
    user.write("README", "child, then mine\n");
    let before = on_disk(&user.tree);
    assert!(matches!(
        repository.undo(&applied.name),
        Err(ApplyError::ChangedSince { paths }) if paths == [PathBuf::from("README")]
    ));
    assert_eq!(on_disk(&user.tree), before);
}

#[test]
fn a_link_put_in_place_of_a_directory_is_not_followed() {
    let user = User::new();
    let made = result(&user, &[("src/lib.rs", "child\n")], &[]);
    let outside = user.outer.path().join("outside");
    put(&outside.join("lib.rs"), "fn a() {}\n");
    fs::remove_dir_all(user.path("src")).unwrap();
    link(outside.to_str().unwrap(), &user.path("src"));
    assert!(user.open().apply(&made.commit, now()).is_err());
    assert_eq!(fs::read_to_string(outside.join("lib.rs")).unwrap(), "fn a() {}\n");
}

#[test]
fn applied_results_that_can_be_undone_are_listed() {
    let user = User::new();
    let made = result(&user, &[("README", "child\n")], &[]);
    let repository = user.open();
    let applied = repository.apply(&made.commit, now()).unwrap();
    assert_eq!(repository.applied_results().unwrap(), std::slice::from_ref(&applied.name));
    repository.undo(&applied.name).unwrap();
    assert!(repository.applied_results().unwrap().is_empty());
}

#[test]
fn files_that_an_interrupted_application_cannot_restore_are_saved_and_reported() {
    let user = User::new();
    user.write("src/lib.rs", "fn dirty() {}\n");
    let made = result(&user, &[("README", "child\n"), ("src/lib.rs", "child\n")], &["src/deep"]);
    let before = on_disk(&user.tree);
    let repository = user.open();
    let applied = repository.apply(&made.commit, now()).unwrap();
    // The state after a kill right before the mark, and later edits of the user.
    fs::remove_file(user.state().join("applies").join(&applied.name).join("done")).unwrap();
    user.write("src/lib.rs", "mine since\n");
    let recovered = repository.recover().unwrap().put_back;
    let [RecoveredApply { left, .. }] = recovered.as_slice() else { panic!("{recovered:?}") };
    let [UnrestoredFile { path, before: Some(copy) }] = left.as_slice() else { panic!("{left:?}") };
    assert_eq!(path, Path::new("src/lib.rs"));
    assert_eq!(fs::read_to_string(copy).unwrap(), "fn dirty() {}\n");
    let mut expected = before;
    expected.insert("src/lib.rs".into(), "100644 mine since\n".into());
    assert_eq!(on_disk(&user.tree), expected);
    // The recovery is complete: what is deleted now does not come back.
    fs::remove_file(user.path("README")).unwrap();
    assert_eq!(repository.recover().unwrap().put_back, []);
    assert!(!user.path("README").exists());
    assert!(copy.exists());
}
