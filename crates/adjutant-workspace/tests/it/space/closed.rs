//! Files that a program made inaccessible to its own account are kept like the rest.

use adjutant_workspace::sandbox::ProgramEnd;
use adjutant_workspace::space::{SweepOutcome, WorkspaceError};

use super::*;
use crate::git::put;

/// Meaningful only for an ordinary account: root can access everything.
#[test]
fn files_without_permissions_are_kept_and_removed() {
    for (backing, kind) in KINDS {
        let user = user();
        let spaces = open(&user, backing);
        for close in ["chmod 000 out shut src", "chmod 000 out/in out shut; chmod 000 ."] {
            let space = spaces.make("run", "child", "1", None).unwrap();
            let text = format!("mkdir -p out/in && echo x > out/in/f && echo y > shut && {close}");
            let (ended, said) = run(&space, &text);
            assert_eq!(ended.end, ProgramEnd::Exited(0), "{kind}: {said}");
            let refused = space.close().unwrap_err();
            assert!(matches!(refused, WorkspaceError::Unkept { .. }), "{kind}: {refused:?}");
            let kept = space.keep("work\n", now()).unwrap();
            let commit = kept.commit.unwrap();
            let shown = contents(&user, &commit);
            assert_eq!(
                (shown["out/in/f"].as_str(), shown["shut"].as_str()),
                ("x\n", "y\n"),
                "{kind}"
            );
            assert_eq!(shown["src/lib.rs"], "fn a() {}\n", "{kind}");
            assert_eq!(kept.skipped, [], "{kind}");
            space.close().unwrap();
            assert!(!space.directory().exists(), "{kind}");
            spaces.repository().discard(space.reference(), &commit).unwrap();
        }
    }
}

#[test]
fn files_without_permissions_are_kept_after_a_crash() {
    for (backing, kind) in KINDS {
        let user = user();
        let spaces = open(&user, backing);
        let space = spaces.make("run", "child", "1", None).unwrap();
        let (ended, said) = run(&space, "echo x > f && chmod 000 f . ");
        assert_eq!(ended.end, ProgramEnd::Exited(0), "{kind}: {said}");
        drop(space);
        let swept = spaces.sweep(&|_| false, now()).unwrap();
        let [SweepOutcome::Kept(_, commit)] = &swept[..] else { panic!("{kind}: {swept:?}") };
        assert_eq!(contents(&user, commit)["f"], "x\n", "{kind}");
    }
}

#[test]
fn a_work_tree_with_an_unreadable_record_is_not_removed() {
    let user = user();
    let spaces = open(&user, WorkspaceBackingChoice::Worktree);
    let space = spaces.make("run", "child", "1", None).unwrap();
    write(&space, "made", "child\n");
    let (reference, made) = (space.reference().clone(), space.directory().join("made"));
    let record = space.directory().parent().unwrap().join("record");
    drop(space);
    let whole = std::fs::read_to_string(&record).unwrap();
    let base = whole.lines().next().unwrap();
    let only_base = format!("{base}\n");
    let unnamed = format!("{base}\nready \n");
    for damaged in [Some(""), Some("nonsense\n"), Some(&only_base), Some(&unnamed), None] {
        std::fs::remove_file(&record).unwrap();
        match damaged {
            Some(text) => put(&record, text),
            // A directory in place of the file, which cannot be read even by root.
            None => std::fs::create_dir(&record).unwrap(),
        }
        let swept = spaces.sweep(&|_| false, now()).unwrap();
        assert!(
            matches!(&swept[..], [SweepOutcome::Unclear(it, _)] if *it == reference),
            "{swept:?}"
        );
        assert!(spaces.make("run", "child", "2", None).is_err(), "{damaged:?}");
        assert_eq!(std::fs::read_to_string(&made).unwrap(), "child\n", "{damaged:?}");
    }
    std::fs::remove_dir(&record).unwrap();
    put(&record, &whole);
    let swept = spaces.sweep(&|_| false, now()).unwrap();
    assert!(matches!(&swept[..], [SweepOutcome::Kept(it, _)] if *it == reference), "{swept:?}");
}
