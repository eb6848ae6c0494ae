//! Listing directories and walking on handles.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use adjutant_workspace::FileKind;
use rustix::fs::{CWD, Mode, OFlags, mkdirat, openat};

use crate::{Tree, rel, word};

#[test]
fn a_listing_is_sorted_and_reports_kinds_without_following_links() {
    let tree = Tree::new();
    tree.write("b.txt", "");
    tree.write("a/x", "");
    tree.link("a", "c");
    std::fs::write(tree.path("").join(OsStr::from_bytes(b"\xff\n")), "").unwrap();
    let listing = tree.root.open_dir(&rel("")).unwrap().list(100).unwrap();
    let seen: Vec<_> =
        listing.entries.iter().map(|entry| (entry.name.as_bytes(), entry.kind)).collect();
    let expected: [(&[u8], FileKind); 4] = [
        (b"a", FileKind::Directory),
        (b"b.txt", FileKind::Regular),
        (b"c", FileKind::Symlink),
        (b"\xff\n", FileKind::Regular),
    ];
    assert_eq!(seen, expected);
    assert!(!listing.truncated);
}

#[test]
fn a_listing_stops_at_its_limit_and_says_so() {
    let tree = Tree::new();
    for index in 0..20 {
        tree.write(&format!("f{index}"), "");
    }
    let dir = tree.root.open_dir(&rel("")).unwrap();
    let listing = dir.list(5).unwrap();
    assert_eq!((listing.entries.len(), listing.truncated), (5, true));
    let listing = dir.list(20).unwrap();
    assert_eq!((listing.entries.len(), listing.truncated), (20, false));
}

#[test]
fn a_directory_handle_opens_single_names_and_no_links() {
    let tree = Tree::new();
    tree.write("d/e/a.txt", "x");
    tree.link("e", "d/link");
    tree.link("../../secret", "d/out");
    let dir = tree.root.open_dir(&rel("d")).unwrap();
    assert!(dir.open_dir(OsStr::new("e")).unwrap().open_file(OsStr::new("a.txt")).is_ok());
    for name in ["..", ".", "", "e/a.txt", "/etc"] {
        assert_eq!(word(&dir.open_dir(OsStr::new(name)).unwrap_err()), "<Outside>", "{name:?}");
    }
    for name in ["link", "out"] {
        assert_eq!(word(&dir.open_file(OsStr::new(name)).unwrap_err()), "<Loop>", "{name:?}");
    }
}

#[test]
fn a_directory_two_thousand_levels_down_is_opened() {
    let tree = Tree::new();
    let mut handle = openat(CWD, tree.path(""), OFlags::DIRECTORY, Mode::empty()).unwrap();
    for _ in 0..2000 {
        mkdirat(&handle, "deep", Mode::RWXU).unwrap();
        handle = openat(&handle, "deep", OFlags::DIRECTORY, Mode::empty()).unwrap();
    }
    mkdirat(&handle, "bottom", Mode::RWXU).unwrap();
    let start = tree.root.open_dir(&rel("")).unwrap();
    let path = "deep/".repeat(2000);
    let listing = start.descend(Path::new(&path)).unwrap().list(10).unwrap();
    assert_eq!(listing.entries[0].name, "bottom");
}

#[test]
fn descend_refuses_parent_components() {
    let tree = Tree::new();
    tree.write("a/b", "");
    let start = tree.root.open_dir(&rel("a")).unwrap();
    for path in ["..", "x/../..", "/etc"] {
        assert_eq!(word(&start.descend(Path::new(path)).unwrap_err()), "<Outside>", "{path}");
    }
}
