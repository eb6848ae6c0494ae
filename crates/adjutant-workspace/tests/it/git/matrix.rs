//! Many kinds of repositories: each is captured, checked out and worked on.

use adjutant_workspace::{BaseCheckouts, GitError, SkipReason, SkippedPath};

use super::*;

/// Captures the tree and compares it with what plain git would add.
fn check_capture(
    user: &User,
    expected: &BTreeMap<String, String>,
) -> adjutant_workspace::WorkTreeSnapshot {
    let before = user.untouched();
    let snapshot = user.open().capture(now()).unwrap();
    assert_eq!(&user.files(&snapshot.tree), expected);
    assert_eq!(user.untouched(), before);
    assert_eq!(user.id(&format!("{}^{{tree}}", snapshot.commit)), snapshot.tree);
    snapshot
}

fn check_capture_of_disk(user: &User) -> adjutant_workspace::WorkTreeSnapshot {
    check_capture(user, &on_disk(&user.tree))
}

#[test]
fn the_capture_of_a_clean_tree_is_head_itself() {
    let user = User::new();
    let snapshot = check_capture_of_disk(&user);
    assert_eq!(snapshot.commit, user.id("HEAD"));
    assert!(!snapshot.is_dirty());
}

#[test]
fn a_repository_without_commits_is_captured_and_worked_on() {
    let user = User::unborn();
    user.write("a", "a\n");
    user.write("b/c", "staged\n");
    user.git(["add", "b/c"]);
    let snapshot = check_capture_of_disk(&user);
    assert_eq!(snapshot.head, None);
    let repository = user.open();
    put(&user.upper().join("a"), "other\n");
    let made =
        user.commit_layer(&repository, &snapshot.commit, &user.upper(), &child("x")).unwrap();
    assert_eq!(user.files(&made.tree)["a"], "100644 other\n");
}

#[test]
fn an_empty_repository_without_commits_is_captured() {
    let user = User::unborn();
    let snapshot = check_capture(&user, &BTreeMap::new());
    let repository = user.open();
    let lease = BaseCheckouts::open(&repository).unwrap().lease(&snapshot.head_tree).unwrap();
    assert!(on_disk(lease.path()).is_empty());
}

#[test]
fn a_detached_head_is_captured() {
    let user = User::new();
    user.git(["checkout", "-q", "--detach"]);
    user.write("README", "detached\n");
    check_capture_of_disk(&user);
}

#[test]
fn head_is_found_wherever_git_keeps_it() {
    let user = User::new();
    let check = |how: &str| {
        assert_eq!(user.open().head().unwrap(), Some(user.id("HEAD")), "{how}");
    };
    check("a file");
    user.git(["tag", "-a", "-m", "x", "tagged"]);
    user.git(["branch", "main-2"]);
    user.git(["pack-refs", "--all"]);
    assert!(!user.path(".git/refs/heads/main").exists());
    check("packed");
    user.write("README", "newer\n");
    user.commit("newer");
    assert!(user.path(".git/refs/heads/main").exists());
    check("a file, and an older one packed");
    user.git(["symbolic-ref", "HEAD", "refs/heads/main-2"]);
    check("packed, beside one whose name begins the same");
    user.git(["checkout", "-q", "--detach", "tagged"]);
    check("detached");
    user.git(["symbolic-ref", "refs/heads/alias", "refs/heads/main-2"]);
    user.git(["symbolic-ref", "HEAD", "refs/heads/alias"]);
    check("a name for another one");
    user.git(["symbolic-ref", "HEAD", "refs/heads/unborn"]);
    assert_eq!(user.open().head().unwrap(), None);
}

#[test]
fn head_among_very_many_packed_references_is_resolved_by_git() {
    let user = User::new();
    user.git(["pack-refs", "--all"]);
    let packed = user.path(".git/packed-refs");
    let (head, text) = (user.id("HEAD"), std::fs::read_to_string(&packed).unwrap());
    let many = (0..6_000).map(|number| format!("{head} refs/heads/many-{number:05}\n"));
    let (top, rest) = text.split_once('\n').unwrap();
    let (mains, tags) = rest.split_at(rest.find(" refs/tags").map_or(rest.len(), |at| at - 40));
    put(&packed, &format!("{top}\n{mains}{}{tags}", many.collect::<String>()));
    assert_eq!(user.open().head().unwrap(), Some(head));
}

#[test]
fn a_directory_below_the_top_finds_the_whole_repository() {
    let user = User::new();
    let repository = Repository::open(&find_git(), &user.path("src/deep"), &user.state()).unwrap();
    assert_eq!(repository.work_tree(), user.tree);
}

#[test]
fn a_linked_work_tree_is_captured_with_its_own_state() {
    let user = User::new();
    let linked = user.outer.path().join("linked tree");
    user.git(["worktree", "add", "-q", "-b", "side", linked.to_str().unwrap()]);
    put(&linked.join("README"), "linked\n");
    let repository = Repository::open(&find_git(), &linked, &user.state()).unwrap();
    let snapshot = repository.capture(now()).unwrap();
    assert_eq!(user.files(&snapshot.tree), on_disk(&linked));
    assert_eq!(repository.common_dir(), user.path(".git"));
    put(&user.upper().join("x"), "x\n");
    user.commit_layer(&repository, &snapshot.commit, &user.upper(), &child("l")).unwrap();
    assert!(user.open().result(&child("l")).unwrap().is_some(), "references are shared");
}

#[test]
fn a_repository_with_its_git_directory_elsewhere_is_found() {
    let user = User::bare_folder();
    let elsewhere = user.outer.path().join("elsewhere.git");
    user.git(["init", "-q", "--separate-git-dir", elsewhere.to_str().unwrap(), "."]);
    user.write("a", "a\n");
    // The git directory must refer back: any directory could name it.
    let refused = Repository::open(&find_git(), &user.tree, &user.state()).unwrap_err();
    assert!(matches!(refused, GitError::Foreign { .. }), "{refused}");
    assert!(refused.to_string().contains("core.worktree"), "{refused}");
    user.git(["config", "core.worktree", user.tree.to_str().unwrap()]);
    check_capture_of_disk(&user);
}

#[test]
fn without_a_repository_the_error_says_how_to_create_one() {
    let user = User::bare_folder();
    let error = Repository::open(&find_git(), &user.tree, &user.state()).unwrap_err();
    assert!(matches!(error, GitError::NotARepository { .. }));
    assert!(error.to_string().contains("`git init`"), "{error}");
}

#[test]
fn names_with_spaces_quotes_newlines_and_unicode_survive() {
    let user = User::new();
    let names = [
        "with space",
        "tab\tname",
        "new\nline",
        "quo\"te",
        "back\\slash",
        "häß/名前",
        " lead",
        "-x",
        ":(top)y",
        "*",
    ];
    for name in names {
        user.write(name, name);
    }
    check_capture_of_disk(&user);
    user.commit("names");
    for name in names {
        user.write(name, "changed\n");
    }
    let snapshot = check_capture_of_disk(&user);
    assert_eq!(snapshot.changes.len(), names.len());
    let repository = user.open();
    let lease = BaseCheckouts::open(&repository).unwrap().lease(&snapshot.tree).unwrap();
    assert_eq!(on_disk(lease.path()), on_disk(&user.tree));
}

#[test]
fn modes_links_and_read_only_files_survive() {
    let user = User::new();
    user.write("script", "#!/bin/sh\n");
    user.write("frozen", "read-only\n");
    user.commit("files");
    make_executable(&user.path("script"));
    fs::write(user.path("frozen"), "read-only, changed\n").unwrap();
    fs::set_permissions(user.path("frozen"), fs::Permissions::from_mode(0o444)).unwrap();
    link("../secret outside", &user.path("dangling"));
    link("src", &user.path("to a folder"));
    fs::remove_file(user.path("README")).unwrap();
    link("src/lib.rs", &user.path("README"));
    let snapshot = check_capture_of_disk(&user);
    let repository = user.open();
    let lease = BaseCheckouts::open(&repository).unwrap().lease(&snapshot.tree).unwrap();
    assert_eq!(on_disk(lease.path()), on_disk(&user.tree));
}

#[test]
fn a_file_becomes_a_folder_and_a_folder_a_file() {
    let user = User::new();
    fs::remove_file(user.path("README")).unwrap();
    user.write("README/inside", "was a file\n");
    fs::remove_dir_all(user.path("src/deep")).unwrap();
    user.write("src/deep", "was a folder\n");
    let there = check_capture_of_disk(&user);
    let repository = user.open();
    let bases = BaseCheckouts::open(&repository).unwrap();
    drop(bases.lease(&there.head_tree).unwrap());
    let lease = bases.lease(&there.tree).unwrap();
    assert_eq!(on_disk(lease.path()), on_disk(&user.tree));
    drop(lease);
    let lease = bases.lease(&there.head_tree).unwrap();
    assert_eq!(on_disk(lease.path()), user.files(&there.head_tree));
}

#[test]
fn staged_unstaged_and_half_removed_files_are_captured_as_they_are_on_disk() {
    let user = User::new();
    user.write("README", "staged\n");
    user.git(["add", "README"]);
    user.write("README", "and changed again\n");
    user.write("added", "staged only\n");
    user.git(["add", "added"]);
    user.write("meant", "intent to add\n");
    user.git(["add", "-N", "meant"]);
    user.git(["rm", "-q", "--cached", "src/lib.rs"]);
    user.git(["rm", "-q", "src/deep/down/file"]);
    check_capture_of_disk(&user);
}

#[test]
fn a_merge_in_progress_is_captured_with_its_markers() {
    let user = User::new();
    user.git(["checkout", "-q", "-b", "other"]);
    user.write("README", "other\n");
    user.commit("other");
    user.git(["checkout", "-q", "main"]);
    user.write("README", "mine\n");
    user.commit("mine");
    assert!(!user.try_git(["merge", "-q", "other"]).status.success());
    let snapshot = check_capture_of_disk(&user);
    assert!(user.files(&snapshot.tree)["README"].contains("<<<<<<<"));
}

#[test]
fn ignored_files_stay_out_and_are_listed() {
    let user = User::new();
    user.write("target/a/b", "built\n");
    user.write("note.log", "log\n");
    user.write(".git/info/exclude", "private\n");
    user.write("private", "own pattern\n");
    let global = user.outer.path().join("excludes");
    put(&global, "*.swp\n");
    user.write("x.swp", "editor\n");
    let repository = user.open().with_excludes(global);
    let snapshot = repository.capture(now()).unwrap();
    assert!(!snapshot.is_dirty(), "{:?}", snapshot.changes);
    let mut ignored = repository.ignored().unwrap();
    ignored.sort();
    assert_eq!(ignored, ["note.log", "private", "target", "x.swp"].map(PathBuf::from));
}

#[test]
fn a_submodule_is_left_empty_and_reported() {
    let inner = User::new();
    let user = User::new();
    user.git([
        "-c",
        "protocol.file.allow=always",
        "submodule",
        "add",
        "-q",
        inner.tree.to_str().unwrap(),
        "the module",
    ]);
    user.commit("module");
    user.write("the module/README", "dirty inside\n");
    user.write("README", "dirty outside\n");
    let repository = user.open();
    let snapshot = repository.capture(now()).unwrap();
    assert_eq!(snapshot.submodules, [PathBuf::from("the module")]);
    assert_eq!(snapshot.changes, [FileChange::Written(rel("README"))]);
    assert_eq!(user.files(&snapshot.tree)["the module"], "160000 commit");
    let lease = BaseCheckouts::open(&repository).unwrap().lease(&snapshot.tree).unwrap();
    assert_eq!(fs::read_dir(lease.path().join("the module")).unwrap().count(), 0);
}

#[test]
fn a_nested_repository_is_left_out_and_reported() {
    let user = User::new();
    user.write("vendor/inner/file", "x\n");
    user.git(["init", "-q", "vendor/inner"]);
    user.write("vendor/beside", "y\n");
    let snapshot = user.open().capture(now()).unwrap();
    assert_eq!(snapshot.changes, [FileChange::Written(rel("vendor/beside"))]);
    let inner = SkippedPath { path: "vendor/inner".into(), reason: SkipReason::NestedRepository };
    assert_eq!(snapshot.skipped, [inner]);
}

#[test]
fn a_result_never_contains_files_of_a_git_directory() {
    let user = User::new();
    let repository = user.open();
    let base = user.id("HEAD");
    let upper = user.upper();
    put(&upper.join("fine"), "x\n");
    for name in [".git/config", "sub/.git/hooks/post-checkout", "sub/.GIT/x"] {
        put(&upper.join(name), "planted\n");
    }
    let root = Root::open(&upper).unwrap();
    let (mut changes, skipped) = layer_changes(&root).unwrap();
    assert_eq!(skipped.len(), 3);
    changes.push(FileChange::Written(rel("sub/.git/hooks/post-checkout")));
    changes.push(FileChange::Deleted(rel("../elsewhere")));
    let made = repository.commit(work(&base, &root, &changes), &child("g"), None).unwrap().unwrap();
    assert_eq!(made.skipped.len(), 2);
    let names: Vec<String> = user.files(&made.tree).into_keys().collect();
    assert_eq!(names, [".gitignore", "README", "fine", "src/deep/down/file", "src/lib.rs"]);
}

#[test]
fn unchanged_large_file_storage_pointers_stay_pointers() {
    let user = User::new();
    let pointer = "version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 5\n";
    user.write(".gitattributes", "*.bin filter=lfs -text\n");
    user.write("big.bin", pointer);
    user.write("other.bin", pointer);
    user.commit("pointers");
    // The effect of a smudge filter: other content on disk, and an index with its timestamps.
    user.git(["config", "filter.lfs.smudge", "echo smudged"]);
    user.git(["config", "filter.lfs.clean", &format!("printf '{pointer}'")]);
    fs::remove_file(user.path("big.bin")).unwrap();
    fs::remove_file(user.path("other.bin")).unwrap();
    user.git(["checkout", "--", "big.bin", "other.bin"]);
    assert_eq!(user.read("big.bin"), "smudged\n");
    let old = SystemTime::now() - Duration::from_secs(100);
    for name in ["big.bin", "other.bin"] {
        fs::File::options().write(true).open(user.path(name)).unwrap().set_modified(old).unwrap();
    }
    user.git(["status"]);
    let snapshot = user.open().capture(now()).unwrap();
    assert!(!snapshot.is_dirty(), "{:?}", snapshot.changes);
    assert!(snapshot.filtered && !User::new().open().capture(now()).unwrap().filtered);
    assert_eq!(user.files(&snapshot.tree)["big.bin"], format!("100644 {pointer}"));
    user.write("other.bin", "really changed\n");
    let snapshot = user.open().capture(now()).unwrap();
    assert_eq!(snapshot.changes, [FileChange::Written(rel("other.bin"))]);
    assert_eq!(user.files(&snapshot.tree)["other.bin"], "100644 really changed\n");
}

#[test]
fn a_sparse_checkout_keeps_the_excluded_files() {
    for index in ["--no-sparse-index", "--sparse-index"] {
        let user = User::new();
        user.git(["sparse-checkout", "set", "--cone", index, "src/deep"]);
        user.git(["sparse-checkout", "reapply", index]);
        assert!(!user.path("src/lib.rs").exists() || user.path("README").exists());
        user.write("elsewhere/file", "x\n");
        user.commit_with_sparse();
        user.git(["sparse-checkout", "set", "--cone", index, "src/deep"]);
        user.write("src/deep/down/file", "changed\n");
        let before = user.untouched();
        let snapshot = user.open().capture(now()).unwrap();
        assert_eq!(snapshot.changes, [FileChange::Written(rel("src/deep/down/file"))], "{index}");
        let files = user.files(&snapshot.tree);
        assert_eq!(files["elsewhere/file"], "100644 x\n");
        assert_eq!(files["src/deep/down/file"], "100644 changed\n");
        assert_eq!(user.untouched(), before);
    }
}

#[test]
fn a_split_index_is_read() {
    let user = User::new();
    user.git(["update-index", "--split-index"]);
    user.write("README", "changed\n");
    user.git(["add", "README"]);
    user.write("new", "x\n");
    check_capture_of_disk(&user);
}

#[test]
fn a_change_within_the_same_tick_as_the_index_is_seen() {
    for round in 0..30 {
        let user = User::new();
        user.write("racy", "aaaa\n");
        user.git(["add", "racy"]);
        user.write("racy", "bbbb\n");
        let snapshot = user.open().capture(now()).unwrap();
        assert_eq!(user.files(&snapshot.tree)["racy"], "100644 bbbb\n", "round {round}");
    }
}

#[test]
fn sha256_object_ids_work() {
    let user = User::bare_folder();
    user.git(["init", "-q", "--object-format=sha256", "."]);
    user.write("a/b", "x\n");
    user.commit("first");
    user.write("a/c", "y\n");
    let snapshot = check_capture_of_disk(&user);
    assert_eq!(snapshot.tree.as_str().len(), 64);
    let repository = user.open();
    let lease = BaseCheckouts::open(&repository).unwrap().lease(&snapshot.tree).unwrap();
    assert_eq!(on_disk(lease.path()), on_disk(&user.tree));
    put(&user.upper().join("a/b"), "z\n");
    let made =
        user.commit_layer(&repository, &snapshot.commit, &user.upper(), &child("s")).unwrap();
    assert!(repository.preview(&made.commit, &snapshot.commit).unwrap().is_clean());
}

#[test]
fn a_large_file_is_streamed() {
    let user = User::new();
    let text = "0123456789abcdef".repeat(700_000);
    user.write("large", &text);
    user.write("large too", &text[1..]);
    let snapshot = check_capture_of_disk(&user);
    assert_eq!(snapshot.changes.len(), 2);
}

#[test]
fn a_pipe_and_a_socket_are_left_out_and_reported() {
    let user = User::new();
    let upper = user.upper();
    put(&upper.join("x"), "x\n");
    let _socket = std::os::unix::net::UnixListener::bind(upper.join("socket")).unwrap();
    let (changes, skipped) = layer_changes(&Root::open(&upper).unwrap()).unwrap();
    assert_eq!(changes, [FileChange::Written(rel("x"))]);
    assert_eq!(skipped, [SkippedPath { path: "socket".into(), reason: SkipReason::Special }]);
}

#[test]
fn a_link_on_the_way_is_not_followed_into_a_result() {
    let user = User::new();
    let upper = user.upper();
    put(&user.outer.path().join("secrets/key"), "secret\n");
    link(user.outer.path().join("secrets").to_str().unwrap(), &upper.join("door"));
    let root = Root::open(&upper).unwrap();
    let base = user.id("HEAD");
    let changes = [FileChange::Written(rel("door/key")), FileChange::Written(rel("door"))];
    let made =
        user.open().commit(work(&base, &root, &changes), &child("d"), None).unwrap().unwrap();
    let files = user.files(&made.tree);
    assert!(files["door"].starts_with("120000 "), "{files:?}");
    assert!(!files.contains_key("door/key"));
}

#[test]
fn deletions_and_replaced_folders_of_a_layer_are_read() {
    use rustix::fs::{CWD, FileType, Mode, XattrFlags, mknodat, setxattr};
    let user = User::new();
    let upper = user.upper();
    let gone = upper.join("README");
    mknodat(CWD, &gone, FileType::CharacterDevice, Mode::empty(), 0).unwrap();
    put(&upper.join("src/lib.rs"), "only this\n");
    setxattr(upper.join("src"), "user.overlay.opaque", b"y", XattrFlags::empty()).unwrap();
    let base = user.id("HEAD");
    let made = user.commit_layer(&user.open(), &base, &upper, &child("l")).unwrap();
    let names: Vec<String> = user.files(&made.tree).into_keys().collect();
    assert_eq!(names, [".gitignore", "src/lib.rs"]);
}

#[test]
fn a_shallow_clone_is_captured_merged_and_pruned() {
    let full = User::new();
    full.write("README", "second\n");
    full.commit("second");
    let user = User::bare_folder();
    let from = format!("file://{}", full.tree.display());
    user.git(["clone", "-q", "--depth=1", &from, "."]);
    user.write("README", "dirty\n");
    let snapshot = check_capture_of_disk(&user);
    let repository = user.open();
    put(&user.upper().join("x"), "x\n");
    let made =
        user.commit_layer(&repository, &snapshot.commit, &user.upper(), &child("s")).unwrap();
    let head = snapshot.head.unwrap();
    assert!(repository.preview(&made.commit, &head).unwrap().is_clean());
    assert!(!repository.results().unwrap()[0].merged);
    repository.apply(&made.commit, now()).unwrap();
    assert_eq!(user.read("x"), "x\n");
}

#[test]
fn references_in_packed_or_other_form_are_read() {
    let user = User::new();
    user.git(["pack-refs", "--all"]);
    user.write("README", "dirty\n");
    let snapshot = check_capture_of_disk(&user);
    assert_eq!(snapshot.head, Some(user.id("HEAD")));

    let user = User::bare_folder();
    // Older than 2.45, git has only references in files.
    if !user.try_git(["init", "-q", "--ref-format=reftable", "."]).status.success() {
        return;
    }
    user.write("a", "a\n");
    let head = user.commit("first");
    user.write("a", "b\n");
    let snapshot = check_capture_of_disk(&user);
    assert_eq!(snapshot.head, Some(head));
    let repository = user.open();
    put(&user.upper().join("x"), "x\n");
    user.commit_layer(&repository, &snapshot.commit, &user.upper(), &child("s")).unwrap();
    assert_eq!(repository.results().unwrap().len(), 1);
}
