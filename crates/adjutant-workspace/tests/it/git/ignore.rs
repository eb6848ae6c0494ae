//! Ignored files in the layer of a child.

use super::*;

fn check(user: &User, written: &[&str]) -> (Vec<String>, Vec<String>) {
    let upper = user.upper();
    for path in written.iter().filter(|path| !path.ends_with(".gitignore")) {
        put(&upper.join(path), "x\n");
    }
    let root = Root::open(&upper).unwrap();
    let (changes, _) = layer_changes(&root).unwrap();
    let base = user.id("HEAD");
    let (kept, left) = user.open().leave_out_ignored(&base, &root, changes).unwrap();
    let text = |path: &Path| path.to_str().unwrap().to_owned();
    (
        kept.iter().map(|change| text(change.path().as_path())).collect(),
        left.iter().map(|skipped| text(&skipped.path)).collect(),
    )
}

#[test]
fn patterns_of_the_base_and_of_the_layer_apply_and_tracked_files_are_never_ignored() {
    let user = User::new();
    user.write("src/.gitignore", "/generated\n!keep.log\n");
    user.write("src/tracked.log", "tracked all the same\n");
    user.write("new\nline/.gitignore", "secret\n");
    user.git(["add", "-f", "src/tracked.log"]);
    user.commit("patterns");
    user.write(".git/info/exclude", "own\n");
    put(&user.upper().join("made/.gitignore"), "*.tmp\n");
    let (kept, left) = check(
        &user,
        &[
            "target/debug/a",
            "src/generated/b",
            "src/deep/generated",
            "src/keep.log",
            "src/other.log",
            "src/tracked.log",
            "made/x.tmp",
            "made/x",
            "new\nline/secret",
            "new\nline/open",
            "own",
            ":(top)x",
            "*",
            "-z.log",
        ],
    );
    assert_eq!(
        kept,
        [
            "*",
            ":(top)x",
            "made/.gitignore",
            "made/x",
            "new\nline/open",
            "src/deep/generated",
            "src/keep.log",
            "src/tracked.log"
        ]
    );
    assert_eq!(
        left,
        [
            "-z.log",
            "made/x.tmp",
            "new\nline/secret",
            "own",
            "src/generated/b",
            "src/other.log",
            "target/debug/a"
        ]
    );
}

#[test]
fn a_layer_that_deletes_the_patterns_ignores_nothing_by_them() {
    let user = User::new();
    put(&user.upper().join("target/a"), "x\n");
    let root = Root::open(user.upper()).unwrap();
    let changes =
        vec![FileChange::Deleted(rel(".gitignore")), FileChange::Written(rel("target/a"))];
    let base = user.id("HEAD");
    let (kept, left) = user.open().leave_out_ignored(&base, &root, changes.clone()).unwrap();
    assert_eq!((kept, left), (changes, Vec::new()));
}

#[test]
fn many_directories_are_checked_in_batches() {
    let user = User::new();
    let paths: Vec<String> = (0..1200).map(|number| format!("target/{number}/x")).collect();
    let paths: Vec<&str> = paths.iter().map(String::as_str).chain(["src/lib.rs"]).collect();
    let (kept, left) = check(&user, &paths);
    assert_eq!(kept, ["src/lib.rs"]);
    assert_eq!(left.len(), 1200);
}
