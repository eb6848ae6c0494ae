//! Opening single paths beneath a root.

use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::UnixListener;

use adjutant_workspace::{PathError, Root};
use proptest::prelude::*;
use rustix::fs::{CWD, FileType, Mode, mknodat};

use crate::{Tree, rel, word};

#[test]
fn a_file_beneath_the_root_opens_with_its_length() {
    let tree = Tree::new();
    tree.write("src/a.txt", "hello");
    let opened = tree.root.open_file(&rel("src/a.txt")).unwrap();
    assert_eq!(opened.len, 5);
    assert_eq!(std::io::read_to_string(opened.file).unwrap(), "hello");
}

#[test]
fn every_way_out_of_the_root_is_refused() {
    let tree = Tree::new();
    tree.write("dir/a.txt", "inside");
    tree.link("../secret", "escape");
    tree.link("../..", "up");
    tree.link("/etc/passwd", "absolute");
    tree.link("/dev/zero", "zero");
    let outside = tree.outer.path().join("secret");
    for written in ["../secret", "dir/../../secret", "escape", "up/secret", "absolute", "zero", "/"]
    {
        assert_eq!(tree.read(written), "<Outside>", "{written}");
    }
    assert_eq!(tree.read(outside), "<Outside>");
}

#[test]
fn links_and_dots_that_stay_beneath_are_followed() {
    let tree = Tree::new();
    tree.write("dir/a.txt", "inside");
    tree.link("dir/a.txt", "link");
    tree.link("dir", "folder");
    tree.link("../dir/a.txt", "dir/around");
    for written in ["link", "folder/a.txt", "dir/around", "dir/../dir/a.txt", "./dir//a.txt"] {
        assert_eq!(tree.read(written), "inside", "{written}");
    }
}

#[test]
fn an_absolute_path_below_the_root_is_converted_to_a_relative_one() {
    let tree = Tree::new();
    tree.write("dir/a.txt", "inside");
    assert_eq!(tree.read(tree.path("dir/a.txt")), "inside");
    assert_eq!(tree.read(tree.path("../secret")), "<Outside>");
    assert_eq!(tree.root.path(), tree.path("").components().as_path());
    let mut sibling = tree.root.path().as_os_str().to_owned();
    sibling.push("-other/a.txt");
    assert_eq!(tree.read(sibling), "<Outside>");
}

#[test]
fn a_root_reached_through_a_link_accepts_both_of_its_names() {
    let tree = Tree::new();
    tree.write("a.txt", "inside");
    let alias = tree.outer.path().join("alias");
    std::os::unix::fs::symlink("root", &alias).unwrap();
    let root = Root::open(&alias).unwrap();
    for written in [alias.join("a.txt"), std::fs::canonicalize(tree.path("a.txt")).unwrap()] {
        let path = root.relative(&written).unwrap();
        assert!(root.open_file(&path).is_ok(), "{}", written.display());
    }
}

#[test]
fn only_regular_files_open_and_nothing_blocks() {
    let tree = Tree::new();
    std::fs::create_dir(tree.path("dir")).unwrap();
    mknodat(CWD, tree.path("pipe"), FileType::Fifo, Mode::RWXU, 0).unwrap();
    let _listener = UnixListener::bind(tree.path("socket")).unwrap();
    assert_eq!(tree.read("pipe"), "<named pipe>");
    assert_eq!(tree.read("socket"), "<socket>");
    assert_eq!(tree.read("dir"), "<directory>");
    assert_eq!(tree.read(""), "<directory>");
}

#[test]
fn a_failed_open_says_why() {
    let tree = Tree::new();
    tree.write("a.txt", "x");
    tree.link("loop-b", "loop-a");
    tree.link("loop-a", "loop-b");
    tree.link("nowhere", "dangling");
    let cases = [
        ("missing", "<NotFound>"),
        ("missing/deeper", "<NotFound>"),
        ("dangling", "<NotFound>"),
        ("a.txt/below", "<NotDirectory>"),
        ("loop-a", "<Loop>"),
        ("nul\0byte", "<Invalid>"),
    ];
    for (written, expected) in cases {
        assert_eq!(tree.read(written), expected, "{written:?}");
    }
    assert_eq!(tree.read("n".repeat(300)), "<NameTooLong>");
    assert_eq!(tree.read("d/".repeat(3000)), "<NameTooLong>");
}

#[test]
fn magic_links_of_the_kernel_are_not_followed() {
    let root = Root::open("/proc/self").unwrap();
    let error = root.open_file(&rel("exe")).unwrap_err();
    assert!(matches!(error, PathError::Loop | PathError::Outside), "{error:?}");
}

#[test]
fn a_root_must_be_a_directory_that_exists() {
    let tree = Tree::new();
    let missing = Root::open(tree.outer.path().join("missing")).unwrap_err();
    let file = Root::open(tree.outer.path().join("secret")).unwrap_err();
    assert_eq!([word(&missing), word(&file)], ["<NotFound>", "<NotDirectory>"]);
    let handle = std::fs::File::open(tree.outer.path().join("secret")).unwrap().into();
    assert_eq!(word(&Root::from_handle(handle, "/work").unwrap_err()), "<NotDirectory>");
}

#[test]
fn a_root_from_a_handle_accepts_paths_below_its_given_name() {
    let tree = Tree::new();
    tree.write("a.txt", "inside");
    let handle = std::fs::File::open(tree.path("")).unwrap().into();
    let root = Root::from_handle(handle, "/workspace").unwrap();
    let path = root.relative("/workspace/a.txt").unwrap();
    assert_eq!(path, rel("a.txt"));
    assert!(root.open_file(&path).is_ok());
}

#[test]
fn a_root_that_is_moved_away_still_reads_its_own_files() {
    let tree = Tree::new();
    tree.write("a.txt", "inside");
    std::fs::rename(tree.path(""), tree.outer.path().join("moved")).unwrap();
    assert_eq!(tree.read("a.txt"), "inside");
}

proptest! {
    #[test]
    fn no_path_panics_or_reads_the_secret(bytes in proptest::collection::vec(
        prop_oneof![Just(b'/'), Just(b'.'), Just(b'a'), any::<u8>()], 0..40))
    {
        let tree = Tree::new();
        tree.write("a/a", "inside");
        tree.link("..", "a/..a");
        let text = tree.read(std::ffi::OsStr::from_bytes(&bytes));
        prop_assert_ne!(text, "outside");
    }
}
