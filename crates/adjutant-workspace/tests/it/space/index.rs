//! The index of a workspace's base.

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};

use super::*;

/// The directory of the only base.
fn base(user: &User) -> PathBuf {
    let only = |folder: PathBuf| {
        let mut all = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
        let found = all.find(|path| path.is_dir()).unwrap();
        assert!(all.all(|path| !path.is_dir()));
        found
    };
    only(only(state(user).join("spaces")).join(".private/bases"))
}

/// Runs git on a base with the index next to it.
fn ask(user: &User, words: &[&str]) -> String {
    let base = base(user);
    let indexes = fs::read_dir(&base).unwrap().map(|entry| entry.unwrap().path());
    let indexes: Vec<PathBuf> =
        indexes.filter(|path| path.to_string_lossy().contains("/index-")).collect();
    let [index] = indexes.as_slice() else { panic!("{indexes:?}") };
    let mut command = user.command(words);
    command.env("GIT_INDEX_FILE", index).env("GIT_WORK_TREE", base.join("tree"));
    let output = command.env("GIT_DIR", user.path(".git")).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).unwrap().trim_end().to_owned()
}

#[test]
fn the_index_of_an_updated_base_matches_the_new_tree() {
    let user = user();
    user.write("folder/inner", "1\n");
    user.write("tool", "1\n");
    user.commit("second");
    let spaces = open(&user, WorkspaceBackingChoice::Overlay);
    spaces.make("run", "first", "1", None).unwrap().close().unwrap();
    assert_eq!(ask(&user, &["write-tree"]), user.id("HEAD^{tree}").to_string());

    // A change, a file in place of a directory and the other way round, a link, a mode, a deletion.
    fs::remove_dir_all(user.path("folder")).unwrap();
    user.write("folder", "now a file\n");
    fs::remove_file(user.path("README")).unwrap();
    user.write("README/inner", "now a folder\n");
    fs::set_permissions(user.path("tool"), fs::Permissions::from_mode(0o755)).unwrap();
    fs::remove_file(user.path("src/lib.rs")).unwrap();
    symlink("tool", user.path("link")).unwrap();
    user.commit("third");
    user.write("tool", "not committed\n");
    let space = spaces.make("run", "second", "2", None).unwrap();
    assert_eq!(ask(&user, &["write-tree"]), user.id("HEAD^{tree}").to_string());
    // The output lists entries that git would have to read again, and every timestamp that differs.
    assert_eq!(ask(&user, &["diff-files", "--name-only"]), "");
    assert_eq!(run(&space, "git status --porcelain").1, "");
    assert_eq!(
        run(&space, "cat folder README/inner tool").1,
        "now a file\nnow a folder\nnot committed\n"
    );
    space.close().unwrap();
}
