//! Any history of a work tree: what is captured is what plain git would add.

use adjutant_workspace::BaseCheckouts;
use proptest::prelude::*;

use super::*;

/// One thing that happens to a work tree.
#[derive(Clone, Debug)]
enum Act {
    Write(usize, u8),
    Remove(usize),
    Link(usize, usize),
    Flip(usize),
    Stage,
}

/// Paths that get in each other's way: some are folders of others.
const PATHS: [&str; 9] =
    ["a", "a/b", "a/b/c", "d", "d/e", "a b", "new\nline", "a/x.log", "target/z"];

fn act() -> impl Strategy<Value = Act> {
    let path = || 0..PATHS.len();
    prop_oneof![
        4 => (path(), 0..3_u8).prop_map(|(path, text)| Act::Write(path, text)),
        2 => path().prop_map(Act::Remove),
        1 => (path(), path()).prop_map(|(path, to)| Act::Link(path, to)),
        1 => path().prop_map(Act::Flip),
        1 => Just(Act::Stage),
    ]
}

fn clear(path: &Path, top: &Path) {
    for above in path.ancestors().take_while(|above| *above != top) {
        if above.symlink_metadata().is_ok_and(|found| !found.is_dir()) {
            fs::remove_file(above).unwrap();
        }
    }
    if path.is_dir() {
        fs::remove_dir_all(path).unwrap();
    }
}

fn perform(user: &User, act: &Act) {
    match act {
        Act::Write(path, text) => {
            let path = user.path(PATHS[*path]);
            clear(&path, &user.tree);
            put(&path, &format!("{text}\n"));
        }
        Act::Remove(path) => clear(&user.path(PATHS[*path]), &user.tree),
        Act::Link(path, to) => {
            let path = user.path(PATHS[*path]);
            clear(&path, &user.tree);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            link(PATHS[*to], &path);
        }
        Act::Flip(path) => {
            let path = user.path(PATHS[*path]);
            if path.symlink_metadata().is_ok_and(|found| found.is_file()) {
                make_executable(&path);
            }
        }
        Act::Stage => {
            user.git(["add", "-A"]);
        }
    }
}

/// Says whether the patterns of these repositories ignore a path.
fn ignored(path: &str) -> bool {
    path.ends_with(".log") || path.starts_with("target/")
}

/// The tree plain git makes of everything that is not ignored.
fn added(user: &User) -> ObjectId {
    let index = user.outer.path().join("own index");
    let with = |arguments: &[&str]| {
        let output = user.command(arguments).env("GIT_INDEX_FILE", &index).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    };
    fs::copy(user.path(".git/index"), &index).unwrap();
    with(&["add", "-A"]);
    ObjectId::parse(with(&["write-tree"]).trim()).unwrap()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_capture_is_what_plain_git_would_add_and_can_be_applied_and_taken_back(
        first in prop::collection::vec(act(), 0..8),
        then in prop::collection::vec(act(), 1..8),
    ) {
        let user = User::in_memory();
        first.iter().for_each(|act| perform(&user, act));
        let start = user.commit("first");
        then.iter().for_each(|act| perform(&user, act));
        let expected = added(&user);
        let before = user.untouched();
        let repository = user.open();
        let snapshot = repository.capture(now()).unwrap();
        prop_assert_eq!(&snapshot.tree, &expected);
        prop_assert_eq!(&repository.capture(now()).unwrap(), &snapshot, "captured again");
        prop_assert_eq!(user.untouched(), before);

        // A base moved from the one state to the other has exactly its files, and back.
        let bases = BaseCheckouts::open(&repository).unwrap();
        for tree in [&snapshot.head_tree, &snapshot.tree, &snapshot.head_tree] {
            let lease = bases.lease(tree).unwrap();
            prop_assert_eq!(on_disk(lease.path()), user.files(tree));
        }

        // The same change as a child's work, applied to the first state and taken back.
        if snapshot.is_dirty() && snapshot.tree != snapshot.head_tree {
            user.git(["reset", "-q", "--hard", start.as_str()]);
            user.git(["clean", "-q", "-f", "-d"]);
            let clean_again = on_disk(&user.tree);
            match repository.apply(&snapshot.commit, now()) {
                Ok(applied) => {
                    let disk = on_disk(&user.tree);
                    let tracked = user.files(&snapshot.tree);
                    prop_assert!(tracked.iter().all(|(path, text)| disk.get(path) == Some(text)));
                    repository.undo(&applied.name).unwrap();
                }
                // An ignored file, which no cleaning removes, is in the way.
                Err(error) => prop_assert!(clean_again.keys().any(|path| ignored(path)), "{error}"),
            }
            prop_assert_eq!(on_disk(&user.tree), clean_again);
        }
    }
}
