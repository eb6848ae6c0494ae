//! Several results in order: rehearsed, applied, undone.

use std::path::PathBuf;

use adjutant_workspace::{ApplyError, BinaryContent, PatchOptions};

use super::*;

/// The work of a child that started from this state.
fn result_on(user: &User, base: &ObjectId, name: &str, files: &[(&str, &str)]) -> ObjectId {
    let upper = user.outer.path().join(format!("upper-{name}"));
    let written = |(path, text): &(&str, &str)| {
        put(&upper.join(path), text);
        FileChange::Written(rel(path))
    };
    let changes: Vec<FileChange> = files.iter().map(written).collect();
    let root = Root::open(&upper).unwrap();
    let repository = user.open();
    let made = repository.commit(work(base, &root, &changes), &child(name), None).unwrap();
    made.unwrap().commit
}

/// Three children of one state: two change different lines of a file, the third the same line as the first.
fn three(user: &User) -> [ObjectId; 3] {
    let lines: String = (1..=20).map(|n| format!("line {n}\n")).collect();
    user.write("long", &lines);
    let base = user.commit("long");
    let with = |n: usize, text: &str| lines.replace(&format!("line {n}\n"), &format!("{text}\n"));
    [("a", 2, "by a"), ("b", 2, "by b"), ("c", 18, "by c")]
        .map(|(name, n, text)| result_on(user, &base, name, &[("long", &with(n, text))]))
}

#[test]
fn a_rehearsal_predicts_what_applying_does() {
    let user = User::new();
    let results = three(&user);
    let repository = user.open();
    let (before, untouched) = (on_disk(&user.tree), user.untouched());
    let rehearsed = repository.rehearse(&results, now()).unwrap();
    assert_eq!(on_disk(&user.tree), before, "only tried");
    assert_eq!(user.untouched(), untouched);
    assert!(rehearsed[0].is_ok() && rehearsed[2].is_ok(), "{rehearsed:?}");
    assert!(matches!(&rehearsed[1], Err(ApplyError::Conflicts { preview })
        if preview.conflicts[0].path == Path::new("long")));
    // The third is merged with what the first left, although that is not committed.
    let first = repository.apply(&results[0], now()).unwrap();
    assert!(matches!(repository.apply(&results[1], now()), Err(ApplyError::Conflicts { .. })));
    let third = repository.apply(&results[2], now()).unwrap();
    let text = user.read("long");
    assert!(text.contains("by a") && text.contains("by c") && !text.contains("by b"), "{text}");
    assert_eq!(third.diff, rehearsed[2].as_ref().unwrap().diff);
    // Undone in the order in which that is possible.
    assert!(matches!(repository.undo(&first.name), Err(ApplyError::ChangedSince { .. })));
    repository.undo(&third.name).unwrap();
    repository.undo(&first.name).unwrap();
    assert_eq!(on_disk(&user.tree), before);
}

#[test]
fn changes_made_after_an_application_are_not_overwritten() {
    let user = User::new();
    let results = three(&user);
    let repository = user.open();
    repository.apply(&results[0], now()).unwrap();
    user.write("long", &format!("{}and mine\n", user.read("long")));
    let before = on_disk(&user.tree);
    let rehearsed = repository.rehearse(&results[2..], now()).unwrap();
    assert!(matches!(&rehearsed[0], Err(ApplyError::Dirty { paths }) if paths.len() == 1));
    assert!(matches!(repository.apply(&results[2], now()), Err(ApplyError::Dirty { .. })));
    assert_eq!(on_disk(&user.tree), before);
}

#[test]
fn an_ignored_file_in_the_way_is_found_in_the_rehearsal() {
    let user = User::new();
    let base = user.id("HEAD");
    let result = result_on(&user, &base, "l", &[("a.log", "by the child\n")]);
    user.write("a.log", "mine, ignored\n");
    let rehearsed = user.open().rehearse(std::slice::from_ref(&result), now()).unwrap();
    assert!(matches!(&rehearsed[0], Err(ApplyError::Dirty { .. })), "{rehearsed:?}");
    assert!(matches!(user.open().apply(&result, now()), Err(ApplyError::Dirty { .. })));
    assert_eq!(user.read("a.log"), "mine, ignored\n");
}

#[test]
fn a_patch_of_some_paths_is_exact_and_applies_elsewhere() {
    let user = User::new();
    let base = user.id("HEAD");
    let files = [("README", "another\n"), ("src/ü\tb", "\u{1b}[31m\0\u{1}"), ("*", "star\n")];
    let result = result_on(&user, &base, "p", &files);
    let repository = user.open();
    let patch = |paths: &[PathBuf], binary| {
        let what = PatchOptions { paths, binary, max_bytes: 1 << 20 };
        let (bytes, more) = repository.patch_of(&base, &result, what).unwrap();
        assert!(!more);
        String::from_utf8(bytes).unwrap()
    };
    let star = patch(&["*".into()], BinaryContent::Whole);
    assert!(star.contains("+star") && !star.contains("README"), "no pattern: {star}");
    let named = patch(&["src".into()], BinaryContent::Named);
    assert!(named.contains("Binary files") && named.contains("ü\\t"), "{named}");
    let whole = patch(&[], BinaryContent::Whole);
    let file = user.outer.path().join("all.patch");
    fs::write(&file, whole).unwrap();
    user.git(["apply", file.to_str().unwrap()]);
    for (path, text) in files {
        assert_eq!(user.read(path), text);
    }
}
