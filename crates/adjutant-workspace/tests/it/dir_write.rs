//! Changing a directory by its handle.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::fs::PermissionsExt;

use adjutant_workspace::{Dir, FileKind, LockMode, Overwrite, PathError};

use crate::{Tree, rel};

fn name(name: &str) -> &OsStr {
    OsStr::new(name)
}

fn top(tree: &Tree) -> Dir {
    tree.root.open_dir(&rel("")).unwrap()
}

#[test]
fn prepared_files_are_moved_into_place_with_their_modes() {
    let tree = Tree::new();
    tree.write("a", "old");
    fs::set_permissions(tree.path("a"), fs::Permissions::from_mode(0o640)).unwrap();
    let dir = top(&tree);
    let (a, b) = (dir.file_target(name("a")).unwrap(), dir.file_target(name("b")).unwrap());
    tree.write(".a.new", "left over");
    a.prepare(b"new", a.mode().unwrap(), name(".a.new")).unwrap();
    b.prepare(b"new", b.mode().unwrap(), name(".b.new")).unwrap();
    assert!(a.has_content(Some(b"old")).unwrap() && b.has_content(None).unwrap());
    a.move_into_place(name(".a.new"), Overwrite::Allowed).unwrap();
    b.move_into_place(name(".b.new"), Overwrite::Refused).unwrap();
    dir.sync().unwrap();
    assert_eq!((tree.read("a").as_str(), tree.read("b").as_str()), ("new", "new"));
    assert_eq!(fs::metadata(tree.path("a")).unwrap().permissions().mode() & 0o7777, 0o640);
    assert!(!tree.path(".a.new").exists() && !tree.path(".b.new").exists());
    a.unlink().unwrap();
    assert!(matches!(a.unlink(), Err(PathError::NotFound)));
}

#[test]
fn a_file_that_was_created_meanwhile_stays_and_so_does_the_prepared_one() {
    let tree = Tree::new();
    let place = top(&tree).file_target(name("a")).unwrap();
    place.prepare(b"ours", None, name(".a.new")).unwrap();
    tree.write("a", "theirs");
    assert!(matches!(
        place.move_into_place(name(".a.new"), Overwrite::Refused),
        Err(PathError::Exists)
    ));
    assert_eq!((tree.read("a").as_str(), tree.read(".a.new").as_str()), ("theirs", "ours"));
}

#[test]
fn a_file_is_compared_to_its_last_byte() {
    let tree = Tree::new();
    let long = "x".repeat(200_000);
    let place = top(&tree).file_target(name("a")).unwrap();
    assert!(place.has_content(None).unwrap() && !place.has_content(Some(b"")).unwrap());
    tree.write("a", &long);
    assert!(place.has_content(Some(long.as_bytes())).unwrap());
    for other in [None, Some(&long[1..]), Some(&*format!("{}y", &long[1..])), Some("")] {
        assert!(!place.has_content(other.map(str::as_bytes)).unwrap());
    }
}

#[test]
fn nothing_is_written_through_a_link_or_outside() {
    let tree = Tree::new();
    tree.link("../secret", "out");
    tree.link("nowhere", "dangling");
    let dir = top(&tree);
    for link in ["out", "dangling"] {
        let place = dir.file_target(name(link)).unwrap();
        assert!(matches!(place.mode(), Err(PathError::SymbolicLink)), "{link}");
        assert!(matches!(place.has_content(None), Err(PathError::SymbolicLink)), "{link}");
        // A link in place of the temporary file is removed, not followed.
        dir.file_target(name("a")).unwrap().prepare(b"x", None, name(link)).unwrap();
        assert_eq!(tree.read(link), "x");
    }
    assert_eq!(fs::read_to_string(tree.outer.path().join("secret")).unwrap(), "outside");
    assert!(!tree.path("nowhere").exists());
    for outside in ["../x", "/x", "b/c", "..", ""] {
        let error = dir.file_target(name(outside)).unwrap_err();
        assert!(matches!(error, PathError::Outside), "{outside}: {error:?}");
        let place = dir.file_target(name("a")).unwrap();
        let error = place.prepare(b"x", None, name(outside)).unwrap_err();
        assert!(matches!(error, PathError::Outside), "{outside}: {error:?}");
        let error = place.move_into_place(name(outside), Overwrite::Allowed).unwrap_err();
        assert!(matches!(error, PathError::Outside), "{outside}: {error:?}");
    }
    tree.link("nowhere", "again");
    assert_eq!(dir.kind_of(name("again")).unwrap(), Some(FileKind::Symlink));
    assert_eq!(dir.kind_of(name("none")).unwrap(), None);
}

#[test]
fn a_directory_is_created_once_and_a_link_in_its_place_is_refused() {
    let tree = Tree::new();
    fs::create_dir(tree.outer.path().join("elsewhere")).unwrap();
    tree.link("../elsewhere", "link");
    let dir = top(&tree);
    let place = dir.ensure_dir(name("new")).unwrap().file_target(name("a")).unwrap();
    place.replace(b"x", None, name(".a.new")).unwrap();
    dir.ensure_dir(name("new")).unwrap();
    assert_eq!(tree.read("new/a"), "x");
    assert!(dir.ensure_dir(name("link")).is_err());
    tree.write("file", "");
    assert!(matches!(dir.ensure_dir(name("file")), Err(PathError::NotDirectory)));
}

#[test]
fn an_exclusive_lock_excludes_others_and_shared_locks_coexist() {
    let tree = Tree::new();
    let (one, other) = (top(&tree), top(&tree));
    let held = one.try_lock(LockMode::Exclusive).unwrap().unwrap();
    assert!(other.try_lock(LockMode::Shared).unwrap().is_none());
    assert!(one.try_lock(LockMode::Exclusive).unwrap().is_none());
    drop(held);
    let _first = one.try_lock(LockMode::Shared).unwrap().unwrap();
    let _second = other.try_lock(LockMode::Shared).unwrap().unwrap();
    assert!(other.try_lock(LockMode::Exclusive).unwrap().is_none());
}
