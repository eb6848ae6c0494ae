//! Writing files: only beneath the root, never through a link, whole or not at all.

use std::ffi::OsStr;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use adjutant_workspace::{MissingParents, PathError, RelPath};
use rustix::fs::{CWD, FileType, Mode, RenameFlags, mknodat, renameat_with};

use crate::{Tree, rel, word};

const TEMP: &str = ".half.tmp";
const MAX: u64 = 1_000;

impl Tree {
    /// Writes a file like a tool, or returns the error.
    fn put(&self, below: &str, written: impl AsRef<Path>, text: &str) -> String {
        let done = || -> Result<(), PathError> {
            let below = RelPath::new(below)?;
            let path = self.root.relative(written)?;
            let place = self.root.file_target(&below, &path, MissingParents::Create)?;
            let before = place.read(MAX)?;
            place.replace(text.as_bytes(), before.as_ref(), OsStr::new(TEMP))
        };
        done().map_or_else(|error| word(&error), |()| "written".to_owned())
    }

    fn names(&self, folder: &str) -> Vec<String> {
        let entries = std::fs::read_dir(self.path(folder)).unwrap();
        let mut names: Vec<String> =
            entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }
}

#[test]
fn a_hostile_path_writes_nothing() {
    let tree = Tree::new();
    tree.write("dir/file", "old");
    tree.write("specs/a", "old");
    tree.link("../secret", "out");
    tree.link("..", "up");
    tree.link("dir", "in");
    tree.link("file", "dir/link");
    tree.link("nowhere", "dangling");
    mknodat(CWD, tree.path("pipe"), FileType::Fifo, Mode::RWXU, 0).unwrap();
    let long = "x".repeat(256);
    for (below, path, expected) in [
        ("", "../secret", "<Outside>"),
        ("", "dir/../../secret", "<Outside>"),
        ("", "dir/../dir/file", "<Outside>"),
        ("", "/etc/passwd", "<Outside>"),
        ("", "out", "<SymbolicLink>"),
        ("", "up/secret", "<SymbolicLink>"),
        ("", "in/file", "<SymbolicLink>"),
        ("", "dir/link", "<SymbolicLink>"),
        ("", "dangling", "<SymbolicLink>"),
        ("", "dangling/file", "<SymbolicLink>"),
        ("", "pipe", "<<named pipe>>"),
        ("", "dir", "<<directory>>"),
        ("", "", "<<directory>>"),
        ("", "dir/file/below", "<NotDirectory>"),
        ("", "nul\0", "<Invalid>"),
        ("", long.as_str(), "<NameTooLong>"),
        ("", ".git/hooks/pre-commit", "<InGitDir>"),
        ("", "dir/.GIT/config", "<InGitDir>"),
        ("", ".git", "<InGitDir>"),
        ("specs", "dir/file", "<Outside>"),
        ("specs", "specs", "<<directory>>"),
        ("specs", "specs/../dir/file", "<Outside>"),
        ("specs", "specsmore/file", "<Outside>"),
    ] {
        let expected = expected.replace("<<", "<").replace(">>", ">");
        assert_eq!(tree.put(below, path, "new"), expected, "{path:?} below {below:?}");
    }
    assert_eq!(std::fs::read_to_string(tree.outer.path().join("secret")).unwrap(), "outside");
    assert_eq!(tree.read("dir/file"), "old");
    assert!(!tree.path("specsmore").exists() && !tree.path(".git").exists());
    assert!(!tree.path("dir/.GIT").exists());
}

#[test]
fn a_device_is_not_written() {
    let tree = Tree::new();
    // Only root can create a device; /dev as the root proves the same.
    let root = adjutant_workspace::Root::open("/dev").unwrap();
    let place = root.file_target(&RelPath::default(), &rel("null"), MissingParents::Leave).unwrap();
    assert_eq!(word(&place.read(MAX).unwrap_err()), "<character device>");
    drop(tree);
}

#[test]
fn parent_directories_are_created_and_a_file_is_replaced_whole() {
    let tree = Tree::new();
    assert_eq!(tree.put("specs/plans", "specs/plans/one/a.md", "first"), "written");
    assert_eq!(tree.put("specs/plans", tree.path("specs/plans/one/a.md"), "second"), "written");
    assert_eq!(tree.read("specs/plans/one/a.md"), "second");
    assert_eq!(tree.names("specs/plans/one"), ["a.md"]);
    // Opening a target creates nothing.
    let place =
        tree.root.file_target(&rel(""), &rel("new/folder/file"), MissingParents::Leave).unwrap();
    assert_eq!(place.read(MAX).unwrap(), None);
    assert_eq!(word(&place.replace(b"", None, OsStr::new(TEMP)).unwrap_err()), "<NotFound>");
    assert!(!tree.path("new").exists());
}

#[test]
fn the_mode_of_a_file_stays_and_a_read_only_file_is_not_replaced() {
    let tree = Tree::new();
    for mode in [0o600, 0o644, 0o755, 0o700, 0o664] {
        tree.write("file", "old");
        std::fs::set_permissions(tree.path("file"), PermissionsExt::from_mode(mode)).unwrap();
        assert_eq!(tree.put("", "file", "new"), "written");
        let is = std::fs::metadata(tree.path("file")).unwrap().mode() & 0o7777;
        assert_eq!(is, mode, "{is:o}");
    }
    std::fs::set_permissions(tree.path("file"), PermissionsExt::from_mode(0o444)).unwrap();
    assert_eq!(tree.put("", "file", "other"), "<ReadOnly>");
    assert_eq!(tree.read("file"), "new");
    // Set-user-id bits are not kept.
    std::fs::set_permissions(tree.path("file"), PermissionsExt::from_mode(0o4755)).unwrap();
    assert_eq!(tree.put("", "file", "other"), "written");
    assert_eq!(std::fs::metadata(tree.path("file")).unwrap().mode() & 0o7777, 0o755);
}

#[test]
fn a_file_that_was_created_meanwhile_is_not_replaced_and_no_temporary_file_remains() {
    let tree = Tree::new();
    let place = tree.root.file_target(&rel(""), &rel("file"), MissingParents::Create).unwrap();
    assert_eq!(place.read(MAX).unwrap(), None);
    tree.write("file", "theirs");
    assert_eq!(word(&place.replace(b"ours", None, OsStr::new(TEMP)).unwrap_err()), "<Exists>");
    assert_eq!(tree.read("file"), "theirs");
    assert_eq!(tree.names(""), ["file"]);
    // A leftover temporary file does no harm and can be removed.
    tree.write(TEMP, "half");
    let before = place.read(MAX).unwrap();
    place.replace(b"ours", before.as_ref(), OsStr::new(TEMP)).unwrap();
    assert_eq!((tree.read("file").as_str(), tree.names("").len()), ("ours", 1));
    tree.write(TEMP, "half");
    place.remove_temp(OsStr::new(TEMP)).unwrap();
    place.remove_temp(OsStr::new(TEMP)).unwrap();
    assert_eq!(tree.names(""), ["file"]);
    for temp in ["", "../x", "a/b"] {
        assert_eq!(word(&place.remove_temp(OsStr::new(temp)).unwrap_err()), "<Outside>", "{temp}");
    }
    place.remove().unwrap();
    assert_eq!(tree.names(""), [""; 0]);
}

#[test]
fn a_file_above_the_size_limit_is_refused() {
    let tree = Tree::new();
    tree.write("big", &"x".repeat(1_001));
    assert_eq!(tree.put("", "big", "new"), "<TooLarge { max_bytes: 1000 }>");
    tree.write("big", &"x".repeat(1_000));
    assert_eq!(tree.put("", "big", "new"), "written");
}

#[test]
fn a_read_only_directory_is_not_written() {
    let tree = Tree::new();
    tree.write("locked/file", "old");
    std::fs::set_permissions(tree.path("locked"), PermissionsExt::from_mode(0o555)).unwrap();
    let said = tree.put("", "locked/file", "new");
    std::fs::set_permissions(tree.path("locked"), PermissionsExt::from_mode(0o755)).unwrap();
    // Permissions do not restrict root.
    let expected =
        if rustix::process::geteuid().is_root() { "written" } else { "<PermissionDenied>" };
    assert_eq!(said, expected);
}

/// Swaps a directory with a link that leads outside while files are written into it.
#[test]
fn a_directory_flipped_to_an_outward_link_is_never_written_through() {
    let tree = Tree::new();
    tree.write("flip/file", "inside");
    std::fs::create_dir(tree.outer.path().join("away")).unwrap();
    std::fs::write(tree.outer.path().join("away/file"), "outside").unwrap();
    tree.link("../away", "other");
    let (flip, other) = (tree.path("flip"), tree.path("other"));
    let done = AtomicBool::new(false);
    let mut written = 0_u32;
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                renameat_with(CWD, &flip, CWD, &other, RenameFlags::EXCHANGE).unwrap();
            }
        });
        let mut index = 0;
        // On a busy machine every write may hit the link; then more are tried.
        while index < 3_000 || (written == 0 && index < 300_000) {
            let path = if index % 2 == 0 { "flip/file" } else { "flip/deep/er/file" };
            written += u32::from(tree.put("flip", path, &format!("inside {index}")) == "written");
            index += 1;
        }
        done.store(true, Ordering::Relaxed);
    });
    let away = tree.outer.path().join("away");
    assert_eq!(std::fs::read_to_string(away.join("file")).unwrap(), "outside");
    assert_eq!(std::fs::read_dir(away).unwrap().count(), 1, "something was made outside");
    assert!(written > 0, "the race was never won by the directory, so nothing was tested");
}
