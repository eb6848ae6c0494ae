//! How the objects of a commit are stored in a shared repository.

use std::collections::BTreeSet;
use std::io::Write as _;
use std::process::Stdio;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use super::*;

/// The variable with the repository's path for the child process.
const PLACE: &str = "ADJUTANT_TEST_FEW_FILES";

/// The descriptor limit of the child process.
const FEW_FILES: u64 = 64;

/// Stores a tree with these lines of `git ls-tree`, with each mode written as given.
fn store_tree(user: &User, listed: &str) -> String {
    let mut bytes = Vec::new();
    for line in listed.lines() {
        let (head, name) = line.split_once('\t').unwrap();
        let mut words = head.split(' ');
        let mode = words.next().unwrap();
        let id = words.nth(1).unwrap();
        bytes.extend_from_slice(format!("{mode} {name}\0").as_bytes());
        bytes.extend(
            (0..id.len()).step_by(2).map(|at| u8::from_str_radix(&id[at..at + 2], 16).unwrap()),
        );
    }
    let mut command = user.command(["hash-object", "-t", "tree", "--literally", "-w", "--stdin"]);
    let mut git = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    git.stdin.take().unwrap().write_all(&bytes).unwrap();
    let output = git.wait_with_output().unwrap();
    assert!(output.status.success());
    String::from_utf8(output.stdout).unwrap().trim().to_owned()
}

#[test]
fn directories_of_old_repositories_keep_their_other_files() {
    let user = User::new();
    // Git prints every mode with six digits, and early versions also stored trees that way.
    let tree = store_tree(&user, &user.git(["ls-tree", "HEAD"]));
    assert_ne!(tree, user.id("HEAD^{tree}").as_str());
    let old = ObjectId::parse(&user.git(["commit-tree", "-m", "old", &tree])).unwrap();
    let before = user.files(&user.id("HEAD^{tree}"));

    let repository = user.open();
    let upper = user.upper();
    put(&upper.join("src/new"), "new\n");
    let root = Root::open(&upper).unwrap();
    let changes = [FileChange::Deleted(rel("src/lib.rs")), FileChange::Written(rel("src/new"))];
    let made = repository.commit(work(&old, &root, &changes), &child("old"), None).unwrap();
    let mut after = before;
    after.remove("src/lib.rs");
    after.insert("src/new".to_owned(), "100644 new\n".to_owned());
    assert_eq!(user.files(&made.unwrap().tree), after);
}

/// As many changes as are ever stored as loose objects, each in its own eight directories.
fn deep_changes(upper: &Path) -> Vec<FileChange> {
    let path = |number| {
        let folders: Vec<String> = (0..8).map(|level| format!("d{number}-{level}")).collect();
        rel(&format!("{}/file", folders.join("/")))
    };
    let mut changes: Vec<FileChange> =
        (0..200).map(|number| FileChange::Written(path(number))).collect();
    changes.iter().for_each(|change| put(&upper.join(change.path().as_path()), "text\n"));
    changes.sort();
    changes
}

#[test]
#[ignore = "the part of the process that may open few files; started by the test below"]
fn child_process_with_few_file_descriptors() {
    let Some(place) = std::env::var_os(PLACE) else { return };
    let place = PathBuf::from(place);
    let limit = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: Some(FEW_FILES), ..limit }).unwrap();
    let repository =
        Repository::open(&find_git(), &place.join("user tree"), &place.join("state")).unwrap();
    let head = repository.head().unwrap().unwrap();
    let root = Root::open(place.join("upper")).unwrap();
    let (changes, _) = layer_changes(&root).unwrap();
    let few = &changes[..10];
    repository.commit(work(&head, &root, few), &child("few"), None).unwrap().unwrap();
    repository.commit(work(&head, &root, &changes), &child("deep"), None).unwrap().unwrap();
}

#[test]
fn many_changes_are_kept_by_a_process_that_may_open_few_files() {
    let user = User::new();
    let changes = deep_changes(&user.upper());
    let keeper = Command::new(std::env::current_exe().unwrap())
        .args([
            "--exact",
            "git::storing::child_process_with_few_file_descriptors",
            "--ignored",
            "--nocapture",
        ])
        .env(PLACE, user.outer.path().canonicalize().unwrap())
        .output()
        .unwrap();
    assert!(keeper.status.success(), "{}", String::from_utf8_lossy(&keeper.stderr));
    for (name, count) in [("few", 10), ("deep", changes.len())] {
        let listed = user.git(["diff", "--name-only", "HEAD", &child(name).to_string()]);
        assert_eq!(listed.lines().count(), count);
    }
    user.git(["fsck", "--strict", "--no-dangling"]);
}

/// Commits one file of the upper directory.
fn commit_file(user: &User, name: &str, text: &str) -> ObjectId {
    let (repository, head) = (user.open(), user.id("HEAD"));
    put(&user.upper().join(name), text);
    let root = Root::open(user.upper()).unwrap();
    let changes = [FileChange::Written(rel(name))];
    let work = work(&head, &root, &changes);
    repository.commit(work, &child(name), None).unwrap().unwrap().commit
}

#[test]
fn the_objects_of_a_large_commit_are_one_pack() {
    let user = User::new();
    let count = || user.git(["count-objects", "-v"]).lines().take(1).collect::<String>();
    let before = count();
    commit_file(&user, "large", &"x".repeat(5 * 1024 * 1024));
    assert_eq!(count(), before, "objects lie singly");
    assert!(user.git(["count-objects", "-v"]).contains("packs: 1"));
}

#[test]
fn the_objects_of_a_small_commit_are_loose_and_whole() {
    let user = User::new();
    let paths = || modes(&user).into_keys().collect::<BTreeSet<PathBuf>>();
    let before = paths();
    let made = commit_file(&user, "small", "small\n");
    let new: Vec<PathBuf> = paths().difference(&before).cloned().collect();
    assert_eq!(new.len(), 3, "a file, a tree and a commit: {new:?}");
    assert!(user.git(["count-objects", "-v"]).contains("packs: 0"));
    // An object as a power cut leaves it if another git did not fsync it: the next commit stores it again.
    for object in &new {
        fs::remove_file(object).unwrap();
        fs::write(object, "").unwrap();
    }
    user.git(["update-ref", "-d", &child("small").to_string()]);
    assert_eq!(commit_file(&user, "small", "small\n"), made);
    user.git(["fsck", "--strict", "--no-dangling"]);
}

/// The modes of the object files of a repository.
fn modes(user: &User) -> BTreeMap<PathBuf, u32> {
    let mut found = BTreeMap::new();
    let mut open = vec![user.path(".git/objects")];
    while let Some(at) = open.pop() {
        for entry in fs::read_dir(&at).unwrap() {
            let path = entry.unwrap().path();
            match path.is_dir() {
                true => open.push(path),
                false => {
                    let mode = path.metadata().unwrap().permissions().mode() & 0o777;
                    found.insert(path, mode);
                }
            }
        }
    }
    found
}

#[test]
fn objects_of_a_shared_repository_get_the_permissions_that_git_configures() {
    let user = User::new();
    user.git(["config", "core.sharedRepository", "0640"]);
    let before = modes(&user);
    let (repository, head) = (user.open(), user.id("HEAD"));
    put(&user.upper().join("x"), "x\n");
    let root = Root::open(user.upper()).unwrap();
    let changes = [FileChange::Written(rel("x"))];
    repository.commit(work(&head, &root, &changes), &child("x"), None).unwrap().unwrap();
    let mut new = modes(&user);
    new.retain(|path, _| !before.contains_key(path));
    assert!(!new.is_empty() && new.values().all(|mode| *mode == 0o440), "{new:?}");
}

#[test]
fn a_captured_commit_is_recognised_by_its_message_until_head_contains_it() {
    let user = User::new();
    let repository = user.open();
    let (first, branch) = (user.id("HEAD"), user.git(["symbolic-ref", "--short", "HEAD"]));
    user.write("README", "dirty\n");
    let captured = repository.capture(now()).unwrap().commit;
    user.git(["checkout", "-q", "-f", "--detach", captured.as_str()]);
    let above = user.commit("upon it\n\nState of the working tree before the work");
    user.git(["checkout", "-q", branch.trim()]);
    let plain = user.commit("beside it\n\nState of the working tree before the work");
    let missing = ObjectId::parse(&"1".repeat(40)).unwrap();
    for (commit, expected) in
        [(&captured, true), (&above, true), (&plain, false), (&first, false), (&missing, false)]
    {
        assert_eq!(repository.contains_capture(commit).unwrap(), expected, "{commit}");
    }
    user.git(["checkout", "-q", "--detach", above.as_str()]);
    assert!(!repository.contains_capture(&above).unwrap(), "it is committed by now");
}
