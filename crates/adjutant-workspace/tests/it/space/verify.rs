//! Verify commands run in a fresh workspace with the files of the commit; the agent's workspace stays as it is.

use std::io::{BufRead as _, BufReader};
use std::process::{Command, Stdio};

use adjutant_workspace::space::{KeptFiles, SweepOutcome, WorkspaceRecord};

use super::take_in::{act, in_memory, shown};
use super::*;

/// A verify command that changes everything it can.
const VERIFIES: &[&str] = &[
    "sed -i s/two/2/ README; echo snapshot > new; mkdir -p deep/er; echo x > deep/er/y; rm made; \
     mv src/lib.rs src/moved.rs; chmod +x ten; rm -r folder; echo file > folder",
    "echo '*' > .gitignore; echo junk > junk; mkdir sub; echo junk > sub/junk",
    "rm README; mkfifo README; mkfifo pipe; truncate -s 600M big.bin; git init -q sub",
    "rm made; ln -s /etc/passwd made; rm -r src; ln -s folder src",
    "chmod 000 folder; chmod 000 src/lib.rs; chmod a-w .",
    "rm -rf folder src made ten README .gitignore link",
    "true",
];

const WORK: &str = "echo work > made; mkdir folder; echo in > folder/file; echo 1 > ten; rm gone; \
    echo object > x.o; mkdir -p out cache; echo object > out/y.o; echo '*' > cache/.gitignore; \
    echo cached > cache/c; rm -r old; rm turns; mkdir turns; echo x > turns/file; chmod +x runs";

/// A workspace with work of all kinds in it.
fn begun(user: &User, backing: WorkspaceBackingChoice) -> (Workspaces, Workspace) {
    user.write("ten", "10\n");
    user.write("gone", "away\n");
    user.write("turns", "a file\n");
    user.write("runs", "#!/bin/sh\n");
    user.write("old/er/file", "old\n");
    user.write(".gitignore", "*.o\n*.log\n");
    user.write("prd.json", "{\"stories\": []}\n");
    std::os::unix::fs::symlink("ten", user.path("link")).unwrap();
    user.commit("more");
    user.write("README", "dirty\ntwo\n");
    let options = WorkspaceOptions { reserved: vec!["prd.json".into()], ..options(backing) };
    let spaces = Workspaces::open(&user.tree, &state(user), options).unwrap();
    let space = spaces.make("run", "a", "1", None).unwrap();
    act(&space, WORK);
    (spaces, space)
}

/// Everything on disk of workspaces, by their names.
fn leftovers(user: &User) -> Vec<String> {
    let find = Command::new("find").arg(state(user)).args(["-name", "*.verify*"]).output().unwrap();
    String::from_utf8(find.stdout).unwrap().lines().map(str::to_owned).collect()
}

#[test]
fn a_fresh_workspace_has_the_files_of_the_commit_and_nothing_else() {
    for (backing, kind) in KINDS {
        // Below /dev/shm a sandbox does not show git's directory of a work tree.
        let user = user();
        let (_spaces, space) = begun(&user, backing);
        write(&space, "prd.json", "{}\n");
        let fresh =
            space.make_verify_workspace("a", "work\n", now(), &KeptFiles::default()).unwrap();
        let kept = space.keep("work\n", now()).unwrap().commit.unwrap();
        assert_eq!(files(&fresh), {
            let mut expected = contents(&user, &kept);
            // Read through the link.
            expected.insert("link".to_owned(), "1\n".to_owned());
            expected
        });
        assert_eq!(read(&fresh, "prd.json").as_deref(), Some("{\"stories\": []}\n"), "{kind}");
        // There is no directory that a checkout would not have.
        act(
            &fresh,
            "test ! -e old && test ! -e cache && test ! -e out && test -x runs && test -L link",
        );
        // Git shows the work as changes relative to the base, like for the agent.
        let status =
            |space: &Workspace| run(space, "git status --porcelain -- made ten gone README").1;
        assert_eq!(status(&fresh), status(&space), "{kind}");
    }
}

#[test]
fn a_verify_command_changes_neither_the_agents_workspace_nor_the_result() {
    for (backing, kind) in KINDS {
        let user = in_memory();
        let (_spaces, space) = begun(&user, backing);
        act(&space, "chmod 600 made; chmod 750 folder");
        let kept = space.keep("work\n", now()).unwrap().commit.unwrap();
        let refs =
            || user.git(["for-each-ref", "--format=%(refname) %(objectname)", "refs/adjutant"]);
        let objects = || user.git(["count-objects", "-v"]);
        let (before, references, stored) = (shown(&space), refs(), objects());
        for command in VERIFIES {
            let fresh =
                space.make_verify_workspace("a", "work\n", now(), &KeptFiles::default()).unwrap();
            act(&fresh, command);
            drop(fresh);
            assert_eq!(shown(&space), before, "{kind}: {command}");
            assert_eq!(refs(), references, "{kind}: {command}");
            assert_eq!(objects(), stored, "{kind}: {command}");
            assert_eq!(leftovers(&user), Vec::<String>::new(), "{kind}: {command}");
        }
        // The commit that was verified is the result.
        assert_eq!(space.keep_and_close("work\n", now()).unwrap().commit, Some(kept), "{kind}");
    }
}

#[test]
fn work_done_after_a_verification_is_part_of_the_next_one() {
    for (backing, kind) in KINDS {
        let user = in_memory();
        let (_spaces, space) = begun(&user, backing);
        let first =
            space.make_verify_workspace("a", "work\n", now(), &KeptFiles::default()).unwrap();
        act(&first, "test ! -e later");
        drop(first);
        act(&space, "echo more > later; rm made");
        let second =
            space.make_verify_workspace("a", "work\n", now(), &KeptFiles::default()).unwrap();
        act(&second, "test -e later && test ! -e made");
        drop(second);
        let kept = space.keep_and_close("work\n", now()).unwrap().commit.unwrap();
        let kept = contents(&user, &kept);
        assert!(kept.contains_key("later") && !kept.contains_key("made"), "{kind}: {kept:?}");
    }
}

#[test]
fn work_that_is_undone_after_a_verification_leaves_no_result() {
    for (backing, kind) in KINDS {
        let user = in_memory();
        let spaces = open(&user, backing);
        let space = spaces.make("run", "a", "1", None).unwrap();
        act(&space, "echo work > made");
        drop(space.make_verify_workspace("a", "work\n", now(), &KeptFiles::default()).unwrap());
        act(&space, "rm made");
        drop(space.make_verify_workspace("a", "work\n", now(), &KeptFiles::default()).unwrap());
        assert_eq!(space.keep_and_close("work\n", now()).unwrap().commit, None, "{kind}");
        assert_eq!(spaces.repository().results().unwrap(), [], "{kind}");
    }
}

#[test]
fn work_that_changes_nothing_is_verified_as_the_base() {
    for (backing, kind) in KINDS {
        let user = in_memory();
        user.write("README", "dirty\n");
        let spaces = open(&user, backing);
        let space = spaces.make("run", "a", "1", None).unwrap();
        let fresh =
            space.make_verify_workspace("a", "work\n", now(), &KeptFiles::default()).unwrap();
        assert_eq!(read(&fresh, "README").as_deref(), Some("dirty\n"), "{kind}");
        drop(fresh);
        assert_eq!(space.keep_and_close("work\n", now()).unwrap().commit, None, "{kind}");
    }
}

#[test]
fn a_child_is_verified_on_its_parents_work_without_the_parents_build_results() {
    for (backing, kind) in KINDS {
        let user = in_memory();
        let (spaces, parent) = begun(&user, backing);
        let child = spaces.make("run", "b", "2", Some(&parent)).unwrap();
        act(&child, "test -e made; echo child > of-child; rm folder/file");
        let fresh =
            child.make_verify_workspace("b", "work\n", now(), &KeptFiles::default()).unwrap();
        act(
            &fresh,
            "test -e made && test -e of-child && test ! -e x.o && test ! -e folder && test ! -e old",
        );
        drop(fresh);
        // The parent merges the child's work and is verified with it.
        let result = child.keep_and_close("work\n", now()).unwrap().commit.unwrap();
        assert_eq!(parent.take_in(&result, now()).unwrap().conflicts, [], "{kind}");
        let fresh =
            parent.make_verify_workspace("a", "work\n", now(), &KeptFiles::default()).unwrap();
        act(&fresh, "test -e of-child && test -e made && test ! -e x.o");
    }
}

/// The variable with the repository's path for the child process.
const PLACE: &str = "ADJUTANT_TEST_VERIFY";

#[test]
#[ignore = "the part of the process that is killed; started by the test below"]
fn child_process_that_is_killed() {
    let Some(place) = std::env::var_os(PLACE).map(PathBuf::from) else { return };
    let text = std::fs::read_to_string(place.join("record")).unwrap();
    let record: WorkspaceRecord = serde_json::from_str(&text).unwrap();
    let backing = match record.kind {
        WorkspaceBacking::Overlay => WorkspaceBackingChoice::Overlay,
        WorkspaceBacking::Worktree => WorkspaceBackingChoice::Worktree,
    };
    let spaces =
        Workspaces::open(&place.join("user tree"), &place.join("state"), options(backing)).unwrap();
    let space = spaces.adopt("run", "a", &record).unwrap();
    let fresh = space.make_verify_workspace("a", "work\n", now(), &KeptFiles::default()).unwrap();
    act(&fresh, "echo junk > junk; rm made");
    println!("\nready");
    let _ = std::io::stdin().lines().next();
}

/// Starts a process that makes a verify workspace, and kills it.
fn killed_while_it_verifies(user: &User, record: &WorkspaceRecord) {
    let place = user.outer.path();
    std::fs::write(place.join("record"), serde_json::to_string(record).unwrap()).unwrap();
    let mut life = Command::new(std::env::current_exe().unwrap())
        .args([
            "--exact",
            "space::verify::child_process_that_is_killed",
            "--ignored",
            "--nocapture",
        ])
        .env(PLACE, place.canonicalize().unwrap())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut said = BufReader::new(life.stdout.take().unwrap()).lines();
    assert!(said.any(|line| line.unwrap().contains("ready")), "it ended early");
    life.kill().unwrap();
    life.wait().unwrap();
}

#[test]
fn after_a_kill_the_work_is_verified_again_or_swept_without_the_files_of_the_command() {
    for (backing, kind) in KINDS {
        let user = user();
        let (spaces, space) = begun(&user, backing);
        let (before, record) = (shown(&space), space.record());
        drop(space);
        killed_while_it_verifies(&user, &record);
        assert_ne!(leftovers(&user), Vec::<String>::new(), "{kind}");
        let space = spaces.adopt("run", "a", &record).unwrap();
        assert_eq!(shown(&space), before, "{kind}");
        let fresh =
            space.make_verify_workspace("a", "work\n", now(), &KeptFiles::default()).unwrap();
        act(&fresh, "test ! -e junk && test -e made");
        drop((fresh, space));
        assert_eq!(leftovers(&user), Vec::<String>::new(), "{kind}");

        killed_while_it_verifies(&user, &record);
        let swept = spaces.sweep(&|_| false, now()).unwrap();
        let kept = swept.iter().filter_map(|it| match it {
            SweepOutcome::Kept(reference, commit) => Some((reference.child(), commit)),
            SweepOutcome::Removed(_) | SweepOutcome::Unclear(..) => None,
        });
        let [("a", commit)] = kept.collect::<Vec<_>>()[..] else { panic!("{kind}: {swept:?}") };
        let kept = contents(&user, commit);
        assert!(kept.contains_key("made") && !kept.contains_key("junk"), "{kind}: {kept:?}");
        assert_eq!(leftovers(&user), Vec::<String>::new(), "{kind}: {swept:?}");
        let results = user.git(["for-each-ref", "--format=%(refname)", "refs/adjutant/run"]);
        assert!(!results.contains("verify"), "{kind}: {results}");
    }
}

/// Leaves a workspace like the last version did when it was killed during a verify command.
fn as_left_by_the_last_version(
    user: &User,
    space: Workspace,
    command: &str,
) -> (WorkspaceRecord, String) {
    let record = space.record();
    let kept = space.keep("State that was claimed to be done\n", now()).unwrap();
    let commit = kept.commit.unwrap();
    // It kept the commit as a base and had no result yet.
    let base = format!("refs/adjutant/run/_bases/{commit}");
    user.git(["update-ref", &base, commit.as_str()]);
    user.git(["update-ref", "-d", &kept.reference.to_string()]);
    act(&space, command);
    let beside = Path::new(&record.path).parent().unwrap().join(".claimed");
    let note = format!("adjutant claimed 1\n{commit}\nodd - 6361636865\nmode 700 \n");
    std::fs::write(beside, note).unwrap();
    (record, commit.to_string())
}

#[test]
fn a_workspace_that_the_last_version_left_during_a_verification_continues_from_its_commit() {
    for (backing, kind) in KINDS {
        for command in ["echo junk > junk; rm -r made folder", "rm -rf * .gitignore"] {
            for again in ["adopt", "make", "sweep"] {
                let user = in_memory();
                let (spaces, space) = begun(&user, backing);
                let (record, commit) = as_left_by_the_last_version(&user, space, command);
                let space = match again {
                    "adopt" => spaces.adopt("run", "a", &record).unwrap(),
                    "make" => spaces.make("run", "a", "1", None).unwrap(),
                    _ => {
                        let swept = spaces.sweep(&|_| false, now()).unwrap();
                        let [SweepOutcome::Kept(_, kept)] = &swept[..] else { panic!("{swept:?}") };
                        assert_eq!(kept.to_string(), commit, "{kind}: {command}");
                        continue;
                    }
                };
                let case = format!("{kind}, {again}: {command}");
                act(
                    &space,
                    "test ! -e junk && test -e made && test -e folder/file && test ! -e gone",
                );
                // From here on, everything written is work, also after reopening.
                act(&space, "echo more > later");
                let record = space.record();
                drop(space);
                let space = spaces.adopt("run", "a", &record).unwrap();
                let kept = space.keep_and_close("work\n", now()).unwrap().commit.unwrap();
                let kept = contents(&user, &kept);
                assert!(
                    kept.contains_key("later") && kept.contains_key("made"),
                    "{case}: {kept:?}"
                );
                assert!(
                    !kept.contains_key("junk") && !kept.contains_key("gone"),
                    "{case}: {kept:?}"
                );
            }
        }
    }
}

#[test]
fn kept_files_are_those_of_the_base_whatever_the_work_did_to_them() {
    for (backing, kind) in KINDS {
        let user = user();
        for name in ["tests/edited", "tests/deleted", "tests/sub/moved", "conftest.py", "check.sh"]
        {
            user.write(name, "base\n");
        }
        user.write("checks/a", "base\n");
        user.write("deep/checks/a", "base\n");
        user.commit("tests");
        // Uncommitted files are part of the base, too.
        user.write("tests/edited", "dirty\n");
        let spaces = Workspaces::open(&user.tree, &state(&user), options(backing)).unwrap();
        let space = spaces.make("run", "a", "1", None).unwrap();
        act(
            &space,
            "echo work > tests/edited; rm tests/deleted; mv tests/sub/moved tests/added; \
             echo work > conftest.py; chmod +x check.sh; echo work > src.txt; \
             rm -r checks; mkdir fake; echo fake > fake/a; ln -s fake checks; \
             rm -r deep; echo file > deep",
        );
        let globs = ["tests/**", "conftest.py", "check.sh", "checks/**", "deep/checks/**"];
        let keep = KeptFiles::new(&globs.map(str::to_owned), Path::new("")).unwrap();
        let fresh = space.make_verify_workspace("a", "work\n", now(), &keep).unwrap();
        let read = |path: &str| read(&fresh, path);
        assert_eq!(read("tests/edited").as_deref(), Some("dirty\n"), "{kind}");
        for path in ["tests/deleted", "tests/sub/moved", "conftest.py", "checks/a", "deep/checks/a"]
        {
            assert_eq!(read(path).as_deref(), Some("base\n"), "{kind}: {path}");
        }
        assert_eq!(read("tests/added"), None, "{kind}");
        assert_eq!(read("src.txt").as_deref(), Some("work\n"), "{kind}");
        act(&fresh, "test ! -x check.sh && test ! -L checks && test -d deep");
        let mut from_base: Vec<String> =
            fresh.from_base().iter().map(|path| path.display().to_string()).collect();
        from_base.sort();
        let expected = [
            "check.sh",
            "checks",
            "checks/a",
            "conftest.py",
            "deep",
            "deep/checks/a",
            "tests/added",
            "tests/deleted",
            "tests/edited",
            "tests/sub/moved",
        ];
        assert_eq!(from_base, expected, "{kind}");
        // The agent's own files and the result are untouched.
        assert_eq!(super::read(&space, "tests/edited").as_deref(), Some("work\n"), "{kind}");
    }
}
