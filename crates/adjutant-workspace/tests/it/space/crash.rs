//! Processes that end without closing anything.

use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use adjutant_workspace::space::{SweepOutcome, WorkspaceError, WorkspaceRecord};

use super::*;
use crate::git::put;

/// The variable with the repository's path for the child process.
const PLACE: &str = "ADJUTANT_TEST_SPACES";

const ROUNDS: u32 = 25;

#[test]
fn a_dropped_workspace_is_reopened() {
    for (backing, kind) in KINDS {
        let user = user();
        user.write("README", "dirty\n");
        let spaces = open(&user, backing);
        let parent = spaces.make("run", "p", "1", None).unwrap();
        write(&parent, "made", "parent\n");
        let stale = parent.record();
        let child = spaces.make("run", "c", "2", Some(&parent)).unwrap();
        write(&child, "made", "child\n");
        write(&parent, "after", "parent\n");
        let (of_parent, of_child) = (files(&parent), files(&child));
        let record = child.record();
        let refused = spaces.adopt("run", "c", &record).unwrap_err();
        assert!(matches!(refused, WorkspaceError::InUse { .. }), "{kind}: {refused}");
        drop((parent, child, spaces));

        user.write("README", "later\n");
        let spaces = open(&user, backing);
        let child = spaces.adopt("run", "c", &record).unwrap();
        // The journal may know fewer layers than the directory has.
        let parent = spaces.adopt("run", "p", &stale).unwrap();
        assert_eq!(files(&parent), of_parent, "{kind}");
        assert_eq!(files(&child), of_child, "{kind}");
        assert_eq!(child.record().base, record.base);
        let kept = child.keep("work\n", now()).unwrap();
        assert_eq!(kept.diff.entries.len(), 1, "{kind}");
    }
}

/// The directory of the only repository with workspaces.
fn folder(user: &User) -> PathBuf {
    let mut all = std::fs::read_dir(state(user).join("spaces")).unwrap();
    all.next().unwrap().unwrap().path()
}

#[test]
fn a_record_that_a_power_cut_left_empty_does_not_hide_the_work() {
    let user = user();
    let spaces = open(&user, WorkspaceBackingChoice::Overlay);
    let parent = spaces.make("run", "p", "1", None).unwrap();
    write(&parent, "made", "parent\n");
    let stale = parent.record();
    let child = spaces.make("run", "c", "2", Some(&parent)).unwrap();
    write(&parent, "after", "parent\n");
    assert_ne!(parent.record(), stale, "a layer was frozen");
    let before = files(&parent);
    drop((parent, child));
    put(&folder(&user).join("run/p/record"), "");
    let parent = spaces.adopt("run", "p", &stale).unwrap();
    assert_eq!(files(&parent), before);
    assert_eq!(parent.keep("work\n", now()).unwrap().diff.entries.len(), 2);
}

#[test]
fn layers_from_before_the_last_boot_are_recreated() {
    let user = user();
    user.write("README", "dirty\n");
    let spaces = open(&user, WorkspaceBackingChoice::Overlay);
    let space = spaces.make("run", "c", "1", None).unwrap();
    write(&space, "made", "work\n");
    let (record, before) = (space.record(), files(&space));
    drop((space, spaces));
    let layers = std::fs::read_dir(folder(&user).join(".private/layers")).unwrap();
    let layers = layers.map(|it| it.unwrap().path()).filter(|path| path.is_dir());
    let mut torn = 0;
    for layer in layers {
        // The state after a power cut: names, and files without content.
        put(&layer.join("files/README"), "");
        put(&layer.join("boot"), "another");
        torn += 1;
    }
    assert_eq!(torn, 1);
    let spaces = open(&user, WorkspaceBackingChoice::Overlay);
    let space = spaces.adopt("run", "c", &record).unwrap();
    assert_eq!(files(&space), before);
}

#[test]
fn a_workspace_that_cannot_be_locked_is_reported_and_not_mistaken_for_one_in_use() {
    let user = user();
    let spaces = open(&user, WorkspaceBackingChoice::Overlay);
    drop(spaces.make("run", "c", "1", None).unwrap());
    let lock = folder(&user).join("run/c/lock");
    std::fs::remove_file(&lock).unwrap();
    std::fs::create_dir(&lock).unwrap();
    let swept = spaces.sweep(&|_| false, now()).unwrap();
    assert!(matches!(swept.as_slice(), [SweepOutcome::Unclear(..)]), "{swept:?}");
}

#[test]
fn a_workspace_whose_files_are_gone_is_recreated_from_its_reference() {
    for (backing, kind) in KINDS {
        let user = user();
        user.write("README", "dirty\n");
        let spaces = open(&user, backing);
        let parent = spaces.make("run", "p", "1", None).unwrap();
        write(&parent, "of/parent", "x\n");
        let space = spaces.make("run", "c", "2", Some(&parent)).unwrap();
        write(&space, "made", "child\n");
        remove(&space, "README");
        let (record, before) = (space.record(), files(&space));
        space.keep("work\n", now()).unwrap();
        space.close().unwrap();
        parent.keep("work\n", now()).unwrap();
        parent.close().unwrap();
        drop((space, parent, spaces));
        let spaces = open(&user, backing);
        let space = spaces.adopt("run", "c", &record).unwrap();
        assert_eq!(files(&space), before, "{kind}");
        assert_eq!(space.record().base, record.base);
        write(&space, "more", "more\n");
        let kept = space.keep("work\n", now()).unwrap();
        let names: Vec<_> =
            kept.diff.entries.iter().map(|it| it.path.display().to_string()).collect();
        assert_eq!(names, ["README", "made", "more"], "{kind}");
        space.close().unwrap();
    }
}

#[test]
fn making_a_workspace_again_reopens_work_and_removes_the_rest() {
    for (backing, kind) in KINDS {
        let user = user();
        let spaces = open(&user, backing);
        drop(spaces.make("run", "clean", "1", None).unwrap());
        let space = spaces.make("run", "work", "1", None).unwrap();
        write(&space, "made", "child\n");
        drop(space);
        // The state after a crash in the middle of making it.
        let torn = spaces.make("run", "torn", "1", None).unwrap();
        let folder = torn.directory().parent().unwrap().to_owned();
        drop(torn);
        std::fs::remove_file(folder.join("record")).unwrap();
        user.write("README", "later\n");
        let read_in = |child: &str, path: &str| {
            let space = spaces.make("run", child, "2", None).unwrap();
            let text = read(&space, path);
            (text, space)
        };
        assert_eq!(read_in("clean", "README").0.unwrap(), "later\n", "{kind}");
        assert_eq!(read_in("torn", "README").0.unwrap(), "later\n", "{kind}");
        let (text, space) = read_in("work", "made");
        assert_eq!(text.unwrap(), "child\n", "{kind}");
        assert!(space.record().remarks.iter().any(|it| it == "reopened as it was left"));
        assert!(spaces.make("run", "work", "2", None).is_err(), "there is a living one: {kind}");
    }
}

fn say(text: &str) {
    let mut out = std::io::stdout();
    out.write_all(format!("{text}\n").as_bytes()).unwrap();
    out.flush().unwrap();
}

/// Makes a parent, a child of it with work, and a clean one, then waits to be killed.
fn live(place: &Path) {
    let backing = match std::fs::read_to_string(place.join("backing")).unwrap().as_str() {
        "overlay" => WorkspaceBackingChoice::Overlay,
        _ => WorkspaceBackingChoice::Worktree,
    };
    let spaces =
        Workspaces::open(&place.join("user tree"), &place.join("state"), options(backing)).unwrap();
    let run = std::fs::read_to_string(place.join("run")).unwrap();
    let parent = spaces.make(&run, "p", "1", None).unwrap();
    write(&parent, "made", "parent\n");
    let child = spaces.make(&run, "c", "2", Some(&parent)).unwrap();
    write(&child, "made", "child\n");
    let clean = spaces.make(&run, "clean", "2", Some(&parent)).unwrap();
    put(&place.join("record"), &serde_json::to_string(&child.record()).unwrap());
    say("ready");
    let _ = std::io::stdin().read_line(&mut String::new());
    for space in [&child, &clean, &parent] {
        if let Some(commit) = space.keep("work\n", now()).unwrap().commit {
            say(&format!("kept {commit}"));
        }
        space.close().unwrap();
    }
    say("closed");
}

#[test]
#[ignore = "the part of the process that is killed; started by the test below"]
fn child_process_that_is_killed() {
    let Some(place) = std::env::var_os(PLACE) else { return };
    live(&PathBuf::from(place));
}

fn start(user: &User, kind: WorkspaceBacking, run: &str) -> Child {
    std::fs::write(user.outer.path().join("backing"), kind.to_string()).unwrap();
    std::fs::write(user.outer.path().join("run"), run).unwrap();
    Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "space::crash::child_process_that_is_killed", "--ignored", "--nocapture"])
        .env(PLACE, user.outer.path().canonicalize().unwrap())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap()
}

fn kill_when_ready(mut life: Child) {
    let mut said = BufReader::new(life.stdout.take().unwrap()).lines();
    assert!(said.any(|line| line.unwrap().contains("ready")), "it ended early");
    life.kill().unwrap();
    life.wait().unwrap();
}

#[test]
fn after_a_kill_work_is_kept_and_the_rest_is_removed() {
    for (backing, kind) in KINDS {
        let user = user();
        user.write("README", "dirty\n");
        let before = user.untouched();
        kill_when_ready(start(&user, kind, "dead"));
        let spaces = open(&user, backing);
        assert_eq!(spaces.sweep(&|run| run == "dead", now()).unwrap(), [], "claimed: {kind}");

        let mut swept = spaces.sweep(&|_| false, now()).unwrap();
        swept.sort_by_key(|it| format!("{it:?}"));
        let [
            SweepOutcome::Kept(c, of_child),
            SweepOutcome::Kept(p, of_parent),
            SweepOutcome::Removed(clean),
        ] = swept.as_slice()
        else {
            panic!("{kind}: {swept:?}")
        };
        assert_eq!((c.child(), p.child(), clean.child()), ("c", "p", "clean"));
        assert_eq!(contents(&user, of_child)["made"], "child\n");
        assert_eq!(contents(&user, of_parent)["made"], "parent\n");
        assert_eq!(contents(&user, of_parent)["README"], "dirty\n");
        assert_eq!(spaces.sweep(&|_| false, now()).unwrap(), [], "twice: {kind}");
        assert_eq!(user.untouched(), before);
        assert_eq!(user.git(["worktree", "list"]).lines().count(), 1);

        let text = std::fs::read_to_string(user.outer.path().join("record")).unwrap();
        let record: WorkspaceRecord = serde_json::from_str(&text).unwrap();
        let space = spaces.adopt("dead", "c", &record).unwrap();
        assert_eq!(read(&space, "made").unwrap(), "child\n");
        space.close().unwrap();

        // Once the results are deleted, so are the references to their bases.
        for kept in spaces.repository().results().unwrap() {
            spaces.repository().discard(&kept.reference, &kept.commit).unwrap();
        }
        spaces.drop_base_refs(&|_| true).unwrap();
        assert_eq!(user.git(["for-each-ref", "refs/adjutant/"]), "", "{kind}");
    }
}

#[test]
fn the_base_commit_of_work_in_another_work_tree_is_kept() {
    for (backing, kind) in KINDS {
        let user = user();
        let linked = user.outer.path().canonicalize().unwrap().join("linked");
        user.git(["worktree", "add", "-q", "--detach", linked.to_str().unwrap()]);
        std::fs::write(linked.join("README"), "dirty\n").unwrap();
        let there = Workspaces::open(&linked, &state(&user), options(backing)).unwrap();
        let space = there.make("dead", "c", "b", None).unwrap();
        write(&space, "made", "work\n");
        // The state after a kill: files, and no process.
        drop((space, there));
        let bases = || user.git(["for-each-ref", "refs/adjutant/dead/_bases/"]);
        let held = bases();
        assert_ne!(held, "", "{kind}");

        let here = open(&user, backing);
        here.sweep(&|_| false, now()).unwrap();
        here.drop_base_refs(&|_| true).unwrap();
        assert_eq!(bases(), held, "{kind}: of work in another work tree");

        let there = Workspaces::open(&linked, &state(&user), options(backing)).unwrap();
        let swept = there.sweep(&|_| false, now()).unwrap();
        let [SweepOutcome::Kept(reference, commit)] = swept.as_slice() else {
            panic!("{kind}: {swept:?}")
        };
        assert_eq!(contents(&user, commit)["made"], "work\n", "{kind}");
        here.repository().discard(reference, commit).unwrap();
        here.drop_base_refs(&|run| run != "dead").unwrap();
        assert_eq!(bases(), held, "{kind}: of an unknown run");
        here.drop_base_refs(&|run| run == "dead").unwrap();
        assert_eq!(bases(), "", "{kind}");
    }
}

/// Waits until an orphaned process has ended.
fn await_end(pid: u32) {
    let begun = Instant::now();
    let alive = || {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        !stat.is_empty() && !stat.contains(") Z ")
    };
    while alive() {
        assert!(begun.elapsed() < Duration::from_secs(100), "process {pid} does not end");
        std::thread::yield_now();
    }
}

/// The child processes of `pid`, as far as the kernel reports them.
fn started_by(pid: u32) -> Vec<u32> {
    let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    let lists = tasks.filter_map(|task| std::fs::read_to_string(task.path().join("children")).ok());
    let numbers = |list: String| -> Vec<u32> {
        list.split_whitespace().filter_map(|number| number.parse().ok()).collect()
    };
    lists.flat_map(numbers).collect()
}

#[test]
fn a_kill_at_any_point_loses_no_work_and_leaves_no_files() {
    for (backing, kind) in KINDS {
        let user = user();
        user.write("README", "dirty\n");
        let before = user.untouched();
        // A complete run tells how long it takes.
        let begun = Instant::now();
        let mut whole = start(&user, kind, "whole");
        drop(whole.stdin.take());
        assert!(whole.wait().unwrap().success(), "{kind}");
        let length = begun.elapsed();
        for round in 0..ROUNDS {
            let run = format!("r{round}");
            let mut life = start(&user, kind, &run);
            drop(life.stdin.take());
            // Not for synchronisation: the kill should hit at any point.
            std::thread::sleep(length * round / ROUNDS);
            let started = started_by(life.id());
            life.kill().unwrap();
            life.wait().unwrap();
            started.into_iter().for_each(await_end);
            let said = std::io::read_to_string(life.stdout.take().unwrap()).unwrap();
            let spaces = open(&user, backing);
            let swept = spaces.sweep(&|_| false, now()).unwrap();
            let clear = |it: &SweepOutcome| !matches!(it, SweepOutcome::Unclear(..));
            assert!(swept.iter().all(clear), "{kind}, round {round}: {swept:?}\n{said}");
            assert_eq!(spaces.sweep(&|_| false, now()).unwrap(), [], "{kind}, round {round}");
            if said.contains("ready") {
                for (child, text) in [("p", "parent\n"), ("c", "child\n")] {
                    let commit = user.id(&format!("refs/adjutant/{run}/{child}"));
                    assert_eq!(contents(&user, &commit)["made"], text, "{kind}, round {round}");
                }
            }
            assert_eq!(user.git(["worktree", "list"]).lines().count(), 1);
            assert_eq!(user.untouched(), before, "{kind}, round {round}");
            let folder = std::fs::read_dir(state(&user).join("spaces")).unwrap();
            let folder = folder.map(|it| it.unwrap().path()).next().unwrap();
            let left: Vec<_> =
                std::fs::read_dir(folder).unwrap().map(|it| it.unwrap().file_name()).collect();
            assert_eq!(left, [".private"], "{kind}, round {round}");
        }
    }
}

#[test]
fn a_killed_run_continues_where_it_was() {
    for (backing, kind) in KINDS {
        let user = user();
        kill_when_ready(start(&user, kind, "dead"));
        let spaces = open(&user, backing);
        let text = std::fs::read_to_string(user.outer.path().join("record")).unwrap();
        let record: WorkspaceRecord = serde_json::from_str(&text).unwrap();
        let space = spaces.adopt("dead", "c", &record).unwrap();
        assert_eq!(read(&space, "made").unwrap(), "child\n", "{kind}");
        write(&space, "more", "more\n");
        let kept = space.keep("work\n", now()).unwrap();
        assert_eq!(kept.diff.entries.len(), 2, "{kind}: {:?}", kept.diff);
    }
}
