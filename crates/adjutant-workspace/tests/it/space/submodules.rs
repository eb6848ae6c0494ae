//! Submodules are empty in a workspace; files put into them are reported, never mistaken for their content.

use adjutant_workspace::{SkipReason, SkippedPath};

use super::*;

fn user_with_submodule() -> User {
    let inner = user();
    let user = user();
    let add = ["-c", "protocol.file.allow=always", "submodule", "add", "-q"];
    user.git(add.into_iter().chain([inner.tree.to_str().unwrap(), "the module"]));
    user.commit("module");
    user
}

fn left_out(skipped: &[SkippedPath]) -> Vec<&str> {
    let of = |it: &SkippedPath| it.reason == SkipReason::NestedRepository;
    skipped.iter().filter(|it| of(it)).map(|it| it.path.to_str().unwrap()).collect()
}

#[test]
fn files_in_a_submodule_are_left_out_and_reported() {
    for (backing, kind) in KINDS {
        let user = user_with_submodule();
        let spaces = open(&user, backing);
        let space = spaces.make("run", "child", "1", None).unwrap();
        write(&space, "the module/deep/new", "by a child\n");
        write(&space, "beside", "work\n");
        let kept = space.keep("work\n", now()).unwrap();
        let names = left_out(&kept.skipped);
        assert!(names.iter().all(|name| name.starts_with("the module")), "{kind}: {names:?}");
        assert_eq!(names.len(), 1, "{kind}: {names:?}");
        let commit = kept.commit.unwrap();
        let files = user.files(&commit);
        assert_eq!(files["the module"], "160000 commit", "{kind}");
        assert_eq!(files["beside"], "100644 work\n", "{kind}");
        space.close().unwrap();
        let module = user.git(["-C", "the module", "status", "--porcelain"]);
        let applied = spaces.repository().apply(&commit, now()).unwrap();
        assert_eq!(applied.submodules, Vec::<PathBuf>::new(), "{kind}");
        assert_eq!(user.read("beside"), "work\n", "{kind}");
        assert_eq!(user.git(["-C", "the module", "status", "--porcelain"]), module, "{kind}");
    }
}

#[test]
fn a_result_with_files_in_place_of_a_submodule_changes_nothing_in_it() {
    let user = user_with_submodule();
    let base = user.id("HEAD");
    user.git(["rm", "-q", "--cached", "the module"]);
    let blob = user.git(["rev-parse", "HEAD:README"]);
    user.git([
        "update-index",
        "--add",
        "--cacheinfo",
        &format!("100644,{blob},the module/planted"),
    ]);
    let tree = user.git(["write-tree"]);
    let made = user.git(["commit-tree", "-m", "work", "-p", base.as_str(), &tree]);
    user.git(["reset", "-q", "--mixed"]);
    let spaces = open(&user, WorkspaceBackingChoice::Worktree);
    let made = ObjectId::parse(&made).unwrap();
    let applied = spaces.repository().apply(&made, now()).unwrap();
    assert_eq!(applied.submodules, [PathBuf::from("the module")]);
    assert!(!user.path("the module/planted").exists());
}
