//! One complete path from the user's tree to a reviewed result.

use adjutant_workspace::{BaseCheckouts, BaseLeaseCost, DiffStatus, FileChange, LineCounts};

use super::*;

#[test]
fn a_dirty_tree_becomes_a_base_a_result_a_diff_and_a_preview() {
    let user = User::new();
    user.write("README", "one\ntwo\nthree\ndirty\n");
    user.write("untracked file", "new\n");
    user.write("target/built", "ignored\n");
    fs::remove_file(user.path("src/deep/down/file")).unwrap();
    let before = user.untouched();
    let repository = user.open();

    let snapshot = repository.capture(now()).unwrap();
    assert_eq!(
        snapshot.changes,
        [
            FileChange::Deleted(rel("src/deep/down/file")),
            FileChange::Written(rel("README")),
            FileChange::Written(rel("untracked file")),
        ]
    );
    let mut expected = on_disk(&user.tree);
    expected.remove("target/built");
    assert_eq!(user.files(&snapshot.tree), expected);

    let bases = BaseCheckouts::open(&repository).unwrap();
    let lease = bases.lease(&snapshot.head_tree).unwrap();
    assert_eq!(lease.cost(), BaseLeaseCost::Created);
    assert_eq!(on_disk(lease.path()), user.files(&snapshot.head_tree));

    let upper = user.upper();
    put(&upper.join("src/lib.rs"), "fn a() {}\nfn b() {}\n");
    put(&upper.join("src/new/mod.rs"), "new\n");
    let done = user.commit_layer(&repository, &snapshot.commit, &upper, &child("a")).unwrap();
    assert_eq!(repository.result(&child("a")).unwrap(), Some(done.commit.clone()));

    let diff = repository.diff(&snapshot.commit, &done.commit).unwrap();
    let names: Vec<_> =
        diff.entries.iter().map(|e| (e.path.to_str().unwrap(), &e.status)).collect();
    assert_eq!(
        names,
        [("src/lib.rs", &DiffStatus::Modified), ("src/new/mod.rs", &DiffStatus::Added)]
    );
    assert_eq!(diff.lines(), LineCounts { added: 2, removed: 0 });
    let (patch, more) = repository.patch(&snapshot.commit, &done.commit, 1 << 20).unwrap();
    assert!(!more && String::from_utf8_lossy(&patch).contains("+fn b() {}"));
    let (patch, more) = repository.patch(&snapshot.commit, &done.commit, 10).unwrap();
    assert!(more && patch.len() == 10);

    let preview = repository.preview(&done.commit, &snapshot.head.unwrap()).unwrap();
    assert!(preview.is_clean());
    let merged = user.files(&preview.tree);
    assert_eq!(merged["README"], "100644 one\ntwo\nthree\n", "the dirty line is not the child's");
    assert_eq!(merged["src/new/mod.rs"], "100644 new\n");
    assert_eq!(user.untouched(), before);
}
