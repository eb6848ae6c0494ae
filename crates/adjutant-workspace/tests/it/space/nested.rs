//! Workspaces made from other workspaces.

use adjutant_workspace::sandbox::ProgramEnd;

use super::*;

#[test]
fn a_child_starts_with_the_state_of_its_parent_and_neither_sees_later_changes_of_the_other() {
    for (backing, kind) in KINDS {
        let user = user();
        user.write("README", "dirty\n");
        let before = user.untouched();
        let spaces = open(&user, backing);
        let parent = spaces.make("run", "p", "1", None).unwrap();
        write(&parent, "README", "parent\n");
        write(&parent, "made", "parent\n");
        remove(&parent, "src/lib.rs");
        let at_delegation = files(&parent);
        let child = spaces.make("run", "p.1", "2", Some(&parent)).unwrap();
        assert_eq!(files(&child), at_delegation, "{kind}");
        assert_eq!(files(&parent), at_delegation, "{kind}");

        write(&parent, "README", "parent, later\n");
        write(&child, "made", "child\n");
        write(&child, "src/lib.rs", "child\n");
        remove(&child, "README");
        let (ended, _) =
            run(&parent, "echo more >> made; mkdir -p src/lib.rs; echo x > src/lib.rs/x");
        assert_eq!(ended.end, ProgramEnd::Exited(0));
        assert_eq!(read(&child, "made").unwrap(), "child\n");
        assert_eq!(read(&child, "src/lib.rs").unwrap(), "child\n");
        assert_eq!(read(&parent, "made").unwrap(), "parent\nmore\n");

        // Three levels, and a second child that starts with the parent's current state.
        let deep = spaces.make("run", "p.1.1", "3", Some(&child)).unwrap();
        let second = spaces.make("run", "p.2", "3", Some(&parent)).unwrap();
        assert_eq!(files(&deep), files(&child));
        assert_eq!(files(&second), files(&parent));
        write(&deep, "deep", "deep\n");

        assert_eq!(run(&deep, "git status --porcelain").1, "?? deep\n", "{kind}");
        let kept = deep.keep("deep\n", now()).unwrap();
        assert_eq!(kept.diff.entries.len(), 1, "only its own work: {:?}", kept.diff);
        let kept = child.keep("child\n", now()).unwrap();
        let names: Vec<_> =
            kept.diff.entries.iter().map(|it| it.path.display().to_string()).collect();
        assert_eq!(names, ["README", "made", "src/lib.rs"], "{kind}");
        assert_eq!(contents(&user, &kept.commit.unwrap()), files(&child));
        // The parent's work is complete, whichever layers contain it.
        let kept = parent.keep("parent\n", now()).unwrap();
        assert_eq!(contents(&user, &kept.commit.unwrap()), files(&parent), "{kind}");
        assert_eq!(second.keep("nothing\n", now()).unwrap().commit, None);
        // A parent may be closed before workspaces that use its layers.
        for space in [&parent, &child, &second, &deep] {
            let shown = files(&deep);
            space.close().unwrap();
            if !std::ptr::eq(space, &deep) {
                assert_eq!(files(&deep), shown);
            }
        }
        drop((parent, child, second, deep));
        spaces.sweep(&|_| false, now()).unwrap();
        assert_eq!(user.untouched(), before);
    }
}

#[test]
fn children_of_an_idle_parent_share_one_snapshot() {
    let user = user();
    let spaces = open(&user, WorkspaceBackingChoice::Overlay);
    let parent = spaces.make("run", "p", "1", None).unwrap();
    write(&parent, "made", "parent\n");
    let first = spaces.make("run", "a", "2", Some(&parent)).unwrap();
    let layers = parent.record().layers.len();
    let second = spaces.make("run", "b", "2", Some(&parent)).unwrap();
    assert_eq!(parent.record().layers.len(), layers);
    assert_eq!(first.record().base, second.record().base);
    assert_eq!(files(&first), files(&second));
}

#[test]
fn a_parent_in_use_is_not_frozen_and_its_state_is_passed_on() {
    let user = user();
    let spaces = open(&user, WorkspaceBackingChoice::Overlay);
    let parent = spaces.make("run", "p", "1", None).unwrap();
    write(&parent, "made", "parent\n");
    remove(&parent, "README");
    let held = parent.root().unwrap();
    let before = parent.record();
    let child = spaces.make("run", "c", "2", Some(&parent)).unwrap();
    assert_eq!(parent.record(), before);
    assert_eq!(files(&child), files(&parent));
    assert!(child.record().remarks.iter().any(|it| it.contains("in use")));
    let place = held.file_target(&rel(""), &rel("late"), MissingParents::Create).unwrap();
    place.replace(b"late\n", None, OsStr::new(".new")).unwrap();
    assert_eq!(read(&parent, "late").unwrap(), "late\n");
    assert_eq!(read(&child, "late"), None);
}
