//! Writing into a directory by its handle.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::fs::PermissionsExt;

use adjutant_workspace::{Dir, FileKind, Lock, PathError};

use crate::{Tree, rel};

fn name(name: &str) -> &OsStr {
    OsStr::new(name)
}

fn top(tree: &Tree) -> Dir {
    tree.root.open_dir(&rel("")).unwrap()
}

#[test]
fn a_file_is_written_beside_its_place_and_renamed_over_it_with_its_mode() {
    let tree = Tree::new();
    tree.write("a", "old");
    fs::set_permissions(tree.path("a"), fs::Permissions::from_mode(0o640)).unwrap();
    let dir = top(&tree);
    dir.create_file(name(".a.new"), b"new", Some(name("a"))).unwrap();
    assert_eq!(tree.read("a"), "old");
    dir.rename(name(".a.new"), name("a")).unwrap();
    dir.sync().unwrap();
    assert_eq!(tree.read("a"), "new");
    assert_eq!(fs::metadata(tree.path("a")).unwrap().permissions().mode() & 0o7777, 0o640);
    assert!(!dir.remove_file(name(".a.new")).unwrap());
    assert!(dir.remove_file(name("a")).unwrap());
}

#[test]
fn nothing_is_created_over_something_or_through_a_link() {
    let tree = Tree::new();
    tree.write("a", "old");
    tree.link("../secret", "out");
    tree.link("nowhere", "dangling");
    let dir = top(&tree);
    for taken in ["a", "out", "dangling"] {
        dir.create_file(name(taken), b"x", None).unwrap_err();
    }
    assert_eq!(tree.read("a"), "old");
    assert_eq!(fs::read_to_string(tree.outer.path().join("secret")).unwrap(), "outside");
    assert!(!tree.path("nowhere").exists());
    for outside in ["../x", "/x", "b/c", "..", ""] {
        let error = dir.create_file(name(outside), b"x", None).unwrap_err();
        assert!(matches!(error, PathError::Outside), "{outside}: {error:?}");
    }
    assert_eq!(dir.kind_of(name("out")).unwrap(), Some(FileKind::Symlink));
    assert_eq!(dir.kind_of(name("none")).unwrap(), None);
}

#[test]
fn a_folder_is_made_once_and_a_link_in_its_place_is_refused() {
    let tree = Tree::new();
    fs::create_dir(tree.outer.path().join("elsewhere")).unwrap();
    tree.link("../elsewhere", "link");
    let dir = top(&tree);
    dir.ensure_dir(name("new")).unwrap().create_file(name("a"), b"x", None).unwrap();
    dir.ensure_dir(name("new")).unwrap();
    assert_eq!(tree.read("new/a"), "x");
    assert!(dir.ensure_dir(name("link")).is_err());
    tree.write("file", "");
    assert!(matches!(dir.ensure_dir(name("file")), Err(PathError::NotDirectory)));
}

#[test]
fn an_exclusive_lock_keeps_others_out_and_shared_ones_get_along() {
    let tree = Tree::new();
    let (one, other) = (top(&tree), top(&tree));
    let held = one.try_lock(Lock::Exclusive).unwrap().unwrap();
    assert!(other.try_lock(Lock::Shared).unwrap().is_none());
    assert!(one.try_lock(Lock::Exclusive).unwrap().is_none());
    drop(held);
    let _first = one.try_lock(Lock::Shared).unwrap().unwrap();
    let _second = other.try_lock(Lock::Shared).unwrap().unwrap();
    assert!(other.try_lock(Lock::Exclusive).unwrap().is_none());
}
