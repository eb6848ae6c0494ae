//! How the objects of a commit are put into a repository that others use too.

use std::io::Write as _;
use std::process::Stdio;

use super::*;

/// Stores a folder with these lines of `git ls-tree`, each mode written as it is given.
fn store_tree(user: &User, listed: &str) -> String {
    let mut bytes = Vec::new();
    for line in listed.lines() {
        let (head, name) = line.split_once('\t').unwrap();
        let mut words = head.split(' ');
        let mode = words.next().unwrap();
        let id = words.nth(1).unwrap();
        bytes.extend_from_slice(format!("{mode} {name}\0").as_bytes());
        bytes.extend((0..id.len()).step_by(2).map(|at| u8::from_str_radix(&id[at..at + 2], 16).unwrap()));
    }
    let mut command = user.command(["hash-object", "-t", "tree", "--literally", "-w", "--stdin"]);
    let mut git = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    git.stdin.take().unwrap().write_all(&bytes).unwrap();
    let output = git.wait_with_output().unwrap();
    assert!(output.status.success());
    String::from_utf8(output.stdout).unwrap().trim().to_owned()
}

#[test]
fn folders_of_old_repositories_keep_their_other_files() {
    let user = User::new();
    // Git shows every mode with six digits, and long ago it stored folders so.
    let tree = store_tree(&user, &user.git(["ls-tree", "HEAD"]));
    assert_ne!(tree, user.id("HEAD^{tree}").as_str());
    let old = ObjectId::parse(&user.git(["commit-tree", "-m", "old", &tree])).unwrap();
    let before = user.files(&user.id("HEAD^{tree}"));

    let repository = user.open();
    let upper = user.upper();
    put(&upper.join("src/new"), "new\n");
    let root = Root::open(&upper).unwrap();
    let changes = [Change::Deleted(rel("src/lib.rs")), Change::Written(rel("src/new"))];
    let made = repository.commit(work(&old, &root, &changes), &child("old"), None).unwrap();
    let mut after = before;
    after.remove("src/lib.rs");
    after.insert("src/new".to_owned(), "100644 new\n".to_owned());
    assert_eq!(user.files(&made.unwrap().tree), after);
}
