//! What the command writes that judges the work is no part of it.

use adjutant_workspace::space::Swept;

use super::take_in::{act, in_memory, shown};
use super::*;

/// What a command may do that judges work: everything but hold still.
const JUDGE: &str = "sed -i s/two/2/ README; echo snapshot > new; mkdir -p deep/er; echo x > deep/er/y; \
    rm made; mv src/lib.rs src/moved.rs; chmod +x ten; rm -r folder; echo file > folder; \
    echo output > build.log";

const WORK: &str = "echo work > made; mkdir folder; echo in > folder/file; echo 1 > ten";

fn begun(user: &User, wish: KindWish) -> (Workspaces, Workspace) {
    user.write("ten", "10\n");
    user.write(".gitignore", "*.log\n");
    user.commit("more");
    let spaces = open(user, wish);
    let space = spaces.make("run", "a", "1", None).unwrap();
    act(&space, WORK);
    (spaces, space)
}

/// Everything that is not ignored.
fn work(space: &Workspace) -> Vec<String> {
    shown(space).into_iter().filter(|line| !line.contains(".log|")).collect()
}

#[test]
fn what_a_command_writes_that_judges_is_put_back_and_ignored_files_stay() {
    for (wish, _) in KINDS {
        let user = in_memory();
        let (_spaces, space) = begun(&user, wish);
        let before = work(&space);
        space.claim(now()).unwrap();
        act(&space, JUDGE);
        assert_ne!(work(&space), before);
        let back = space.put_back(now()).unwrap();
        assert!(back.contains(&PathBuf::from("new")), "{back:?}");
        assert!(!back.contains(&PathBuf::from("build.log")), "{back:?}");
        assert_eq!(work(&space), before, "{wish:?}");
        assert_eq!(read(&space, "build.log").as_deref(), Some("output\n"), "{wish:?}");
        // Once is all, and what is written from here on is work again.
        act(&space, "echo more > later");
        assert_eq!(space.put_back(now()).unwrap(), Vec::<PathBuf>::new());
        let kept = space.keep("work\n", now()).unwrap().commit.unwrap();
        let kept = contents(&user, &kept);
        assert_eq!(kept.get("later").map(String::as_str), Some("more\n"));
        assert_eq!(kept.get("made").map(String::as_str), Some("work\n"));
        assert!(!kept.contains_key("new") && !kept.contains_key("build.log"), "{kept:?}");
    }
}

#[test]
fn a_command_that_changes_nothing_has_nothing_put_back() {
    for (wish, _) in KINDS {
        let user = in_memory();
        let (_spaces, space) = begun(&user, wish);
        for _ in 0..2 {
            space.claim(now()).unwrap();
            act(&space, "cat README; echo output > build.log");
            assert_eq!(space.put_back(now()).unwrap(), Vec::<PathBuf>::new(), "{wish:?}");
        }
    }
}

#[test]
fn whoever_dies_while_work_is_judged_leaves_the_work() {
    for (wish, _) in KINDS {
        let user = in_memory();
        let (spaces, space) = begun(&user, wish);
        let (before, record) = (work(&space), space.record());
        space.claim(now()).unwrap();
        act(&space, JUDGE);
        drop(space);
        let space = spaces.adopt("run", "a", &record).unwrap();
        assert_eq!(work(&space), before, "{wish:?}");

        // The same for one that nobody takes up again.
        space.claim(now()).unwrap();
        act(&space, JUDGE);
        drop(space);
        let swept = spaces.sweep(&|_| false, now()).unwrap();
        let [Swept::Kept(_, commit)] = &swept[..] else { panic!("{swept:?}") };
        let kept = contents(&user, commit);
        assert!(!kept.contains_key("new") && !kept.contains_key("deep/er/y"), "{kept:?}");
        assert_eq!(kept.get("made").map(String::as_str), Some("work\n"), "{wish:?}");
    }
}
