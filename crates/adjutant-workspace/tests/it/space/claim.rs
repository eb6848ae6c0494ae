//! What the command writes that judges the work is no part of it.

use std::collections::BTreeSet;

use adjutant_workspace::space::{PutBack, Swept};
use adjutant_workspace::{SkipReason, Skipped};

use super::take_in::{act, in_memory, shown};
use super::*;

/// What a command may do that judges work: everything but hold still.
const JUDGES: &[&str] = &[
    "sed -i s/two/2/ README; echo snapshot > new; mkdir -p deep/er; echo x > deep/er/y; rm made; \
     mv src/lib.rs src/moved.rs; chmod +x ten; rm -r folder; echo file > folder",
    // A folder in the place of a file, with something ignored in it.
    "rm -f ten; mkdir ten; echo x > ten/x.o",
    "rm -f made; mkdir -p made/deep; echo x > made/deep/x.o; echo x > made/deep/y",
    // Other patterns.
    "echo made >> .gitignore; echo more >> made",
    "echo '*' > .gitignore; echo junk > junk; mkdir sub; echo junk > sub/junk",
    "rm -f .gitignore",
    "rm .gitignore; mkfifo .gitignore",
    "rm .gitignore; mkdir .gitignore; echo x > .gitignore/x",
    "mkdir sub; echo '*' > sub/.gitignore; echo junk > sub/junk",
    "echo '*' > src/.gitignore; echo junk > src/junk; echo more >> src/lib.rs",
    "echo '!*' > cache/.gitignore",
    // Things that git does not store.
    "rm made; mkfifo made",
    "rm README; mkfifo README; mkfifo pipe; mkfifo src/pipe",
    "python3 -c 'import socket; socket.socket(socket.AF_UNIX).bind(\"made.sock\")' || true; rm ten",
    "truncate -s 600M made",
    "truncate -s 600M big.bin",
    "git init -q sub; echo x > sub/x",
    "git init -q src; git init -q src/deep; rm ten",
    "mkdir .GIT; echo x > .GIT/x",
    "d=deep; for n in 1 2 3 4 5 6; do d=$d/$(printf '%0200d' $n); done; \
     mkdir -p $d/$d; cd $d; mkdir -p $d; cd $d; echo x > x",
    // Links that lead elsewhere, and on the way.
    "rm made; ln -s /etc/passwd made; rm -r folder; ln -s /tmp folder; ln -s README new",
    "rm -r src; ln -s folder src",
    "mv link other; ln -s elsewhere link",
    // What the agent took away comes back, and what it made goes.
    "echo away > gone; rm -r folder made ten",
    "rm -rf folder src made ten README .gitignore link",
    // Rights.
    "chmod 000 folder; chmod 000 src/lib.rs; chmod +x made",
    "rm -f ten; echo x > src/new; chmod a-w README .gitignore src folder made; chmod a-w .",
    // The reserved file.
    "echo '{}' > prd.json",
    "rm prd.json; mkdir prd.json; echo x > prd.json/x.o",
    // Nothing.
    "true",
];

const WORK: &str = "echo work > made; mkdir folder; echo in > folder/file; echo 1 > ten; rm gone; \
    echo object > x.o; mkdir -p out cache; echo object > out/y.o; echo '*' > cache/.gitignore; \
    echo cached > cache/c";

pub(super) fn begun(user: &User, wish: KindWish) -> (Workspaces, Workspace) {
    user.write("ten", "10\n");
    user.write("gone", "away\n");
    user.write(".gitignore", "*.o\n*.log\n");
    user.write("prd.json", "{\"stories\": []}\n");
    std::os::unix::fs::symlink("ten", user.path("link")).unwrap();
    user.commit("more");
    let options = Options { reserved: vec!["prd.json".into()], ..options(wish) };
    let spaces = Workspaces::open(&user.tree, &state(user), options).unwrap();
    let space = spaces.make("run", "a", "1", None).unwrap();
    act(&space, WORK);
    (spaces, space)
}

/// Everything in a workspace; modes but whether a file can be run are nobody's work.
fn all(space: &Workspace) -> Vec<String> {
    act(space, "find . -path ./.git -prune -o -type f ! -perm -200 -exec chmod u+w,go+r {} +");
    shown(space)
}

/// How many objects a repository has, packed and not.
fn objects(user: &User) -> String {
    user.git(["count-objects", "-v"])
}

#[test]
fn after_a_command_that_fails_everything_is_as_it_was_claimed() {
    for (wish, _) in KINDS {
        let user = in_memory();
        let (_spaces, space) = begun(&user, wish);
        let before = all(&space);
        for judge in JUDGES {
            space.claim(now(), &BTreeSet::new()).unwrap();
            let stored = objects(&user);
            act(&space, judge);
            let back = space.put_back().unwrap();
            assert_eq!(back.left, Vec::<PathBuf>::new(), "{wish:?}: {judge}");
            assert_eq!(back.problem, None, "{wish:?}: {judge}");
            assert_eq!(all(&space), before, "{wish:?}: {judge}");
            assert_eq!(back.paths.is_empty(), *judge == "true", "{wish:?}: {judge}: {back:?}");
            assert_eq!(objects(&user), stored, "nothing of it is stored: {wish:?}: {judge}");
        }
        // What is written from here on is work again, and only that.
        act(&space, "echo more > later");
        assert_eq!(space.put_back().unwrap(), PutBack::default());
        let kept = space.keep("work\n", now()).unwrap();
        let names: Vec<String> =
            kept.diff.entries.iter().map(|it| it.path.display().to_string()).collect();
        assert_eq!(names, ["folder/file", "gone", "later", "made", "ten"], "{wish:?}");
    }
}

#[test]
fn after_a_command_that_fails_everybody_may_do_what_they_could() {
    for (wish, _) in KINDS {
        let user = in_memory();
        let (_spaces, space) = begun(&user, wish);
        // Some of it is as the agent wants it.
        act(&space, "chmod 600 made; chmod 750 folder; chmod 400 ten");
        let modes = || {
            let list =
                "find . -path ./.git -prune -o -path ./out -prune -o -printf '%m %p\\n' | sort -k2";
            run(&space, list).1
        };
        let before = modes();
        assert!(before.contains("750 ./folder\n") && before.contains("644 ./README\n"), "{before}");
        for (judge, changed) in [
            (
                "chmod -R a-w README src folder",
                "README folder folder/file src src/deep src/deep/down src/deep/down/file src/lib.rs",
            ),
            ("chmod a-w .", ""),
            (
                "chmod 666 made; chmod 755 folder; chmod 644 ten; rm README",
                "README folder made ten",
            ),
            ("chmod 000 src; chmod 777 .gitignore; chmod 700 out", ".gitignore src"),
            (
                "rm made; ln -s ten made; rm -r folder; echo x > folder; chmod a-w .",
                "folder folder/file made",
            ),
        ] {
            space.claim(now(), &BTreeSet::new()).unwrap();
            act(&space, judge);
            let back = space.put_back().unwrap();
            // The top is opened up for whoever looks at it, so it need not be named.
            let paths = back.paths.iter().map(|it| it.to_str().unwrap());
            let paths: Vec<&str> = paths.filter(|path| *path != ".").collect();
            assert_eq!(paths.join(" "), changed, "{wish:?}: {judge}");
            assert_eq!(back.left, Vec::<PathBuf>::new(), "{wish:?}: {judge}");
            assert_eq!(modes(), before, "{wish:?}: {judge}");
        }
    }
}

#[test]
fn after_a_command_that_passes_the_work_is_what_was_claimed() {
    for (wish, _) in KINDS {
        for (number, judge) in JUDGES.iter().enumerate() {
            let user = in_memory();
            let (spaces, space) = begun(&user, wish);
            let before = all(&space);
            space.claim(now(), &BTreeSet::new()).unwrap();
            let stored = objects(&user);
            act(&space, judge);
            space.accept();
            // Kept by its owner, by one who takes it up only for that, or by one who sweeps.
            let (commit, skipped) = match number % 3 {
                0 => {
                    let kept = space.conclude("work\n", now()).unwrap();
                    (kept.commit.unwrap(), kept.skipped)
                }
                1 => {
                    let record = space.record();
                    drop(space);
                    let space = spaces.adopt("run", "a", &record).unwrap();
                    let kept = space.keep("work\n", now()).unwrap();
                    space.close().unwrap();
                    (kept.commit.unwrap(), kept.skipped)
                }
                _ => {
                    drop(space);
                    let swept = spaces.sweep(&|_| false, now()).unwrap();
                    let [Swept::Kept(_, commit)] = &swept[..] else { panic!("{judge}: {swept:?}") };
                    (commit.clone(), Vec::new())
                }
            };
            assert_eq!(skipped, [], "{wish:?}: {judge}");
            let kept = contents(&user, &commit);
            let named = |path: &str| kept.get(path).map(String::as_str);
            assert_eq!(named("made"), Some("work\n"), "{wish:?}: {judge}");
            assert_eq!(named("ten"), Some("1\n"), "{wish:?}: {judge}");
            let others = kept.keys().filter(|path| {
                !before.iter().any(|line| line.split('|').next() == Some(path.as_str()))
            });
            assert_eq!(others.count(), 0, "{wish:?}: {judge}: {kept:?}");
            let ours = before.iter().filter(|line| {
                let path = line.split('|').next().unwrap_or_default();
                !path.is_empty() && !path.ends_with(".o") && !path.starts_with("cache/")
            });
            assert_eq!(ours.count(), kept.len(), "{wish:?}: {judge}: {kept:?}");
            let loose = |text: &str| text.lines().next().unwrap_or_default().to_owned();
            let (was, is) = (loose(&stored), loose(&objects(&user)));
            let count = |text: &str| text.split(' ').next_back().unwrap().parse::<u32>().unwrap();
            assert!(count(&is) <= count(&was) + 1, "one commit at most: {was}, {is}");
        }
    }
}

#[test]
fn whoever_goes_on_after_a_command_that_passed_finds_what_was_claimed() {
    for (wish, _) in KINDS {
        let user = in_memory();
        let (_spaces, space) = begun(&user, wish);
        let before = all(&space);
        space.claim(now(), &BTreeSet::new()).unwrap();
        act(&space, JUDGES[0]);
        space.accept();
        act(&space, "test ! -e new; echo more > later");
        let mut with_more = all(&space);
        with_more.retain(|line| !line.starts_with("later|"));
        assert_eq!(with_more, before, "{wish:?}");
        let kept = space.keep("work\n", now()).unwrap().commit.unwrap();
        assert_eq!(contents(&user, &kept).get("later").map(String::as_str), Some("more\n"));
    }
}

#[test]
fn what_could_not_be_kept_of_the_work_is_neither_put_back_nor_forgotten() {
    for (wish, _) in KINDS {
        let user = in_memory();
        let (_spaces, space) = begun(&user, wish);
        act(
            &space,
            "truncate -s 600M big; mkfifo pipe; rm README; mkfifo README; echo x > prd.json",
        );
        let look = "ls -ld big pipe README; cat prd.json";
        let before = run(&space, look).1;
        space.claim(now(), &BTreeSet::new()).unwrap();
        act(&space, "truncate -s 600M bigger; mkfifo pipe2; rm made");
        let back = space.put_back().unwrap();
        let paths: Vec<_> = back.paths.iter().map(|path| path.display().to_string()).collect();
        assert_eq!(paths, ["bigger", "made", "pipe2"], "{wish:?}");
        assert_eq!(run(&space, look).1, before, "{wish:?}");

        space.claim(now(), &BTreeSet::new()).unwrap();
        act(&space, "truncate -s 600M bigger");
        space.accept();
        let kept = space.conclude("work\n", now()).unwrap();
        let big = Skipped { path: "big".into(), reason: SkipReason::TooLarge(600 << 20) };
        assert!(kept.skipped.contains(&big), "{:?}", kept.skipped);
        assert!(!kept.skipped.iter().any(|it| it.path == Path::new("bigger")), "{wish:?}");
        // Nothing else holds it, so it stays.
        assert!(space.close().is_err(), "{wish:?}");
        assert_eq!(read(&space, "bigger"), None, "{wish:?}");
    }
}

#[test]
fn whoever_dies_while_work_is_judged_leaves_the_work() {
    for (wish, _) in KINDS {
        for judge in ["rm -rf * .gitignore", JUDGES[0], JUDGES[4]] {
            let user = in_memory();
            let (spaces, space) = begun(&user, wish);
            act(&space, "rm -rf x.o out cache");
            let (before, record) = (all(&space), space.record());
            drop(space);
            for again in ["adopt", "make"] {
                space_judged(&spaces, &record, judge);
                let space = match again {
                    "adopt" => spaces.adopt("run", "a", &record).unwrap(),
                    _ => spaces.make("run", "a", "2", None).unwrap(),
                };
                assert_eq!(all(&space), before, "{wish:?}, {again}: {judge}");
                drop(space);
                if again == "adopt" {
                    continue;
                }
                // The same for one that nobody takes up again.
                space_judged(&spaces, &record, judge);
                let swept = spaces.sweep(&|_| false, now()).unwrap();
                let [Swept::Kept(_, commit)] = &swept[..] else { panic!("{swept:?}") };
                let kept = contents(&user, commit);
                assert!(!kept.contains_key("new") && !kept.contains_key("junk"), "{kept:?}");
                assert_eq!(kept.get("made").map(String::as_str), Some("work\n"), "{wish:?}");
            }
        }
    }
}

/// Has a command judge the work, and ends as a killed process does.
fn space_judged(spaces: &Workspaces, record: &adjutant_workspace::space::Record, judge: &str) {
    let space = spaces.adopt("run", "a", record).unwrap();
    space.claim(now(), &BTreeSet::new()).unwrap();
    act(&space, judge);
}

#[test]
fn what_cannot_be_put_back_is_said_and_stops_nobody() {
    for (wish, _) in KINDS {
        let user = in_memory();
        let (spaces, space) = begun(&user, wish);
        space.claim(now(), &BTreeSet::new()).unwrap();
        act(&space, "echo spoilt > made; echo spoilt > ten; echo junk > junk");
        // The content that was claimed is gone from the repository.
        user.write("same", "work\n");
        lose(&user, &user.git(["hash-object", "same"]));
        let back = space.put_back().unwrap();
        assert_eq!((back.left, back.problem), (vec![PathBuf::from("made")], None), "{wish:?}");
        assert_eq!(read(&space, "ten").as_deref(), Some("1\n"), "all else is put back: {wish:?}");
        // From here on what lies there is the work, for whoever asks.
        act(&space, "test \"$(cat made)\" = spoilt; test ! -e junk; echo mended > made");
        let record = space.record();
        drop(space);
        let space = spaces.adopt("run", "a", &record).unwrap();
        let kept = space.keep("work\n", now()).unwrap().commit.unwrap();
        assert_eq!(contents(&user, &kept).get("made").map(String::as_str), Some("mended\n"));
        space.close().unwrap();
    }
}

/// Takes an object out of a repository.
fn lose(user: &User, id: &str) {
    let (folder, rest) = id.trim().split_at(2);
    std::fs::remove_file(user.path(".git/objects").join(folder).join(rest)).unwrap();
}

#[test]
fn a_state_that_is_lost_as_a_whole_is_said_and_stops_nobody() {
    for (wish, _) in KINDS {
        for part in ["", "^{tree}", ":folder"] {
            let user = in_memory();
            let (_spaces, space) = begun(&user, wish);
            let states = || user.git(["for-each-ref", "--format=%(objectname)", "refs/adjutant"]);
            let before = states();
            space.claim(now(), &BTreeSet::new()).unwrap();
            let after = states();
            let claimed = after.lines().find(|id| !before.contains(id)).unwrap();
            act(&space, "echo spoilt > made");
            lose(&user, &user.git(["rev-parse", &format!("{claimed}{part}")]));
            let back = space.put_back().unwrap();
            assert!(back.problem.is_some(), "{wish:?}, {part}: {back:?}");
            assert_eq!(read(&space, "made").as_deref(), Some("spoilt\n"), "{wish:?}, {part}");
        }
    }
}

#[test]
fn a_repository_that_cannot_be_reached_for_a_while_costs_no_work() {
    for (wish, _) in KINDS {
        let user = in_memory();
        let (_spaces, space) = begun(&user, wish);
        let before = all(&space);
        space.claim(now(), &BTreeSet::new()).unwrap();
        act(&space, JUDGES[0]);
        let (objects, away) = (user.path(".git/objects"), user.path(".git/away"));
        std::fs::rename(&objects, &away).unwrap();
        std::fs::create_dir(&objects).unwrap();
        space.put_back().unwrap_err();
        assert!(space.root().is_err(), "{wish:?}: nobody works on what the command left");
        std::fs::remove_dir_all(&objects).unwrap();
        std::fs::rename(&away, &objects).unwrap();
        assert_eq!(all(&space), before, "{wish:?}");
    }
}

#[test]
fn no_reference_to_a_state_stays_that_was_only_judged() {
    for (wish, _) in KINDS {
        let user = in_memory();
        let (_spaces, space) = begun(&user, wish);
        let refs = || user.git(["for-each-ref", "--format=%(refname)", "refs/adjutant"]);
        let before = refs();
        for number in 0..3 {
            act(&space, &format!("echo {number} > number"));
            space.claim(now(), &BTreeSet::new()).unwrap();
            assert_ne!(refs(), before, "{wish:?}: it is held while it is judged");
            act(&space, "rm made");
            space.put_back().unwrap();
            assert_eq!(refs(), before, "{wish:?}");
        }
        space.claim(now(), &BTreeSet::new()).unwrap();
        space.accept();
        let kept = space.conclude("work\n", now()).unwrap();
        let mut expected: Vec<String> = before.lines().map(str::to_owned).collect();
        expected.push(kept.reference.to_string());
        expected.sort();
        assert_eq!(refs().lines().collect::<Vec<_>>(), expected, "{wish:?}");
    }
}
