//! Directories that claim another repository's git directory, or contain pipes and links in their own.

use std::process::Command;

use adjutant_workspace::GitError;

use super::*;

fn try_open(user: &User) -> Result<Repository, GitError> {
    Repository::open(&find_git(), &user.tree, &user.state())
}

/// Everything below a directory with content and timestamps, to detect writes.
fn photograph(folder: &Path) -> Vec<(PathBuf, SystemTime, Vec<u8>)> {
    let (mut found, mut open) = (Vec::new(), vec![folder.to_owned()]);
    while let Some(at) = open.pop() {
        for entry in fs::read_dir(&at).unwrap() {
            let path = entry.unwrap().path();
            let metadata = path.symlink_metadata().unwrap();
            if metadata.is_dir() {
                open.push(path.clone());
            }
            let bytes = if metadata.is_file() { fs::read(&path).unwrap() } else { Vec::new() };
            found.push((path, metadata.modified().unwrap(), bytes));
        }
    }
    found.sort();
    found
}

/// Prepares a hostile directory that refers to the git directory of a victim.
type Plant = fn(&User, &Path);

/// A git directory with only the essential parts.
fn hollow(at: &Path, config: &str) {
    for folder in ["objects", "refs"] {
        fs::create_dir_all(at.join(folder)).unwrap();
    }
    put(&at.join("HEAD"), "ref: refs/heads/main\n");
    put(&at.join("config"), config);
}

#[test]
fn a_directory_cannot_claim_the_repository_of_another() {
    let victim = User::new();
    let common = victim.path(".git");
    let plants: [(&str, Plant); 6] = [
        ("a shared directory in a `.git` folder", |user, common| {
            hollow(&user.path(".git"), "");
            put(&user.path(".git/commondir"), &format!("{}\n", common.display()));
        }),
        ("a `.git` folder that is nothing but a shared directory", |user, common| {
            put(&user.path(".git/HEAD"), "ref: refs/heads/main\n");
            put(&user.path(".git/commondir"), &format!("{}\n", common.display()));
        }),
        ("a linked work tree that the shared directory does not know", |user, common| {
            put(&user.path("own/HEAD"), "ref: refs/heads/main\n");
            put(&user.path("own/commondir"), &format!("{}\n", common.display()));
            put(&user.path("own/gitdir"), &format!("{}\n", user.path(".git").display()));
            user.write(".git", "gitdir: own\n");
        }),
        ("a directory of another name", |user, common| {
            let moved = common.with_file_name("bare.git");
            let copied = Command::new("cp").arg("-a").args([common, &moved]).status().unwrap();
            assert!(copied.success());
            user.write(".git", &format!("gitdir: {}\n", moved.display()));
        }),
        ("linked objects", |user, common| {
            hollow(&user.path(".git"), "");
            fs::remove_dir(user.path(".git/objects")).unwrap();
            link(common.join("objects").to_str().unwrap(), &user.path(".git/objects"));
        }),
        ("linked references", |user, common| {
            hollow(&user.path(".git"), "");
            fs::remove_dir(user.path(".git/refs")).unwrap();
            link(common.join("refs").to_str().unwrap(), &user.path(".git/refs"));
        }),
    ];
    for (what, plant) in plants {
        let user = User::bare_folder();
        plant(&user, &common);
        let before = photograph(&victim.tree);
        match try_open(&user) {
            Err(GitError::Untrusted { path, .. }) => {
                assert!(path.starts_with(&user.tree), "{what}: {}", path.display());
            }
            Err(error @ GitError::Foreign { .. }) => {
                let text = error.to_string();
                assert!(text.contains(user.path(".git").to_str().unwrap()), "{what}: {text}");
            }
            other => panic!("{what}: {other:?}"),
        }
        assert_eq!(photograph(&victim.tree), before, "{what}");
    }
}

#[test]
fn a_submodule_and_a_linked_work_tree_are_still_opened() {
    let inner = User::new();
    let user = User::new();
    let from = inner.tree.to_str().unwrap();
    user.git(["-c", "protocol.file.allow=always", "submodule", "add", "-q", from, "module"]);
    let module = Repository::open(&find_git(), &user.path("module"), &user.state()).unwrap();
    assert_eq!(module.git_dir(), user.path(".git/modules/module"));
    assert_eq!(module.head().unwrap(), Some(inner.id("HEAD")));
    let linked = user.outer.path().canonicalize().unwrap().join("linked");
    user.git(["worktree", "add", "-q", linked.to_str().unwrap()]);
    let opened = Repository::open(&find_git(), &linked, &user.state()).unwrap();
    assert_eq!(opened.common_dir(), user.path(".git"));
}

/// Without the checks, each of these would hang until the runner's timeout.
#[test]
fn a_pipe_where_git_keeps_a_file_is_refused_at_once() {
    for name in ["index", "HEAD", "config", "packed-refs", "info/exclude", "shallow"] {
        let user = User::new();
        let opened = user.open();
        let _ = fs::remove_file(user.path(".git").join(name));
        let made = Command::new("mkfifo").arg(user.path(".git").join(name)).status().unwrap();
        assert!(made.success());
        let refused = try_open(&user);
        assert!(matches!(refused, Err(GitError::Untrusted { .. })), "{name}: {refused:?}");
        if name == "index" {
            // Created after the repository was opened.
            assert!(opened.capture(now()).is_err());
            assert!(opened.ignored().is_err());
        }
    }
}

#[test]
fn a_pipe_in_place_of_attributes_or_ignore_patterns_does_not_block() {
    for name in [".gitattributes", ".gitignore"] {
        let user = User::new();
        let _ = fs::remove_file(user.path(name));
        let made = Command::new("mkfifo").arg(user.path(name)).status().unwrap();
        assert!(made.success());
        let refused = user.open().capture(now());
        assert!(matches!(&refused, Err(GitError::Path { path, .. }) if *path == user.path(name)));
    }
}
