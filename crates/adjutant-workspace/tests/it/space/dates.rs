//! The modification times of files in a workspace that includes build results.

use std::fs::File;
use std::time::{Duration, SystemTime};

use super::*;

/// The time of the build, an hour ago; files from before it count as built.
fn built() -> SystemTime {
    SystemTime::now() - Duration::from_secs(3600)
}

fn touch(user: &User, path: &str, at: SystemTime) {
    File::options().append(true).open(user.path(path)).unwrap().set_modified(at).unwrap();
}

/// Whether a tool would take the file for unchanged since the build.
fn is_older_than_build(space: &Workspace, path: &str) -> bool {
    let (_, said) =
        run(space, &format!("test {path} -ot target/built && echo older || echo newer"));
    said == "older\n"
}

fn workspace(user: &User, child: &str) -> Workspace {
    let include_ignored = vec!["target".into()];
    let options = WorkspaceOptions { include_ignored, ..options(WorkspaceBackingChoice::Overlay) };
    // The capture trusts only files that were not touched just before it.
    std::thread::sleep(Duration::from_millis(150));
    let spaces = Workspaces::open(&user.tree, &state(user), options).unwrap();
    spaces.make("run", child, child, None).unwrap()
}

#[test]
fn unchanged_files_have_the_times_of_the_checkout_and_only_those() {
    let user = user();
    for path in ["README", "src/lib.rs"] {
        touch(&user, path, built() - Duration::from_secs(60));
    }
    user.write("target/built", "");
    touch(&user, "target/built", built());
    // A file of the base that differs from the commit, with the time of an edit before the build.
    user.write("src/lib.rs", "edited\n");
    touch(&user, "src/lib.rs", built() - Duration::from_secs(30));
    let space = workspace(&user, "one");
    assert!(is_older_than_build(&space, "README"));
    assert!(is_older_than_build(&space, "src/lib.rs"));
    let status = run(&space, "git status --porcelain").1;
    assert_eq!(status, "");
    space.close().unwrap();

    // The same content again, written after the build: as in the checkout, it is newer.
    user.write("README", &std::fs::read_to_string(user.path("README")).unwrap());
    user.write("src/lib.rs", "edited\n");
    let space = workspace(&user, "two");
    assert!(!is_older_than_build(&space, "README"));
    assert!(!is_older_than_build(&space, "src/lib.rs"));
    // While this workspace uses the base, another capture with other times gets a base of its own.
    touch(&user, "README", built() - Duration::from_secs(60));
    let other = workspace(&user, "three");
    assert!(is_older_than_build(&other, "README"));
    assert!(!is_older_than_build(&space, "README"));
    space.close().unwrap();
    other.close().unwrap();
}

#[test]
fn a_file_that_was_touched_during_the_capture_is_new() {
    let user = user();
    user.write("target/built", "");
    touch(&user, "target/built", built());
    let space = workspace(&user, "one");
    space.close().unwrap();
    let include_ignored = vec!["target".into()];
    let options = WorkspaceOptions { include_ignored, ..options(WorkspaceBackingChoice::Overlay) };
    let spaces = Workspaces::open(&user.tree, &state(&user), options).unwrap();
    touch(&user, "README", built() - Duration::from_secs(60));
    let space = spaces.make("run", "two", "two", None).unwrap();
    assert!(!is_older_than_build(&space, "README"));
    space.close().unwrap();
}
