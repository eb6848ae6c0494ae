//! Killing a process at any point between creating, committing, applying and removing.
//!
//! The test starts its own binary to do the work, kills it after a fraction of its run time, and checks what is
//! left. In half of the cases its git processes are killed, too.

use std::io::Read;
use std::process::{Child, Stdio};
use std::time::Instant;

use adjutant_workspace::BaseCheckouts;
use adjutant_workspace::space::SweepOutcome;
use rustix::process::{Pid, Signal, kill_process};

use super::*;

/// The variable with the repository's path for the child process.
const PLACE: &str = "ADJUTANT_TEST_KILLS";

const ROUNDS: u32 = 100;

/// The age from which the lock file of a killed git is removed.
const STALE: Duration = Duration::from_secs(3);

/// The content that the work writes into a file of the user.
const APPLIED: &str = "one\ntwo\nthree\nby a child\n";

/// Does everything that can be interrupted, and prints each completed step.
fn live(tree: &Path, state: &Path, name: &str) {
    let say = |text: &str| {
        use std::io::Write;
        let mut out = std::io::stdout();
        out.write_all(format!("{text}\n").as_bytes()).unwrap();
        out.flush().unwrap();
    };
    let repository = Repository::open(&find_git(), tree, state).unwrap().with_stale_lock(STALE);
    assert!(repository.recover().unwrap().stuck.is_none());
    let snapshot = repository.capture(now()).unwrap();
    let lease = BaseCheckouts::open(&repository).unwrap().lease(&snapshot.tree).unwrap();
    assert_eq!(fs::read_to_string(lease.path().join("README")).unwrap(), "one\ntwo\nthree\n");
    let space = spaces_of(tree, state).make("run", name, "1", None).unwrap();
    put(&space.directory().join("README"), APPLIED);
    put(&space.directory().join("new/file"), name);
    say("written");
    let made = space.keep("work\n", now()).unwrap().commit.unwrap();
    say(&format!("committed {made}"));
    let applied = repository.apply(&made, now()).unwrap();
    say("applied");
    let made = repository.resolve(&format!("{made}^{{tree}}")).unwrap().unwrap();
    drop(BaseCheckouts::open(&repository).unwrap().lease(&made).unwrap());
    say("undoing");
    repository.undo(&applied.name).unwrap();
    say("undone");
    space.close().unwrap();
    say("removed");
}

#[test]
#[ignore = "the part of the process that is killed; started by the test below"]
fn child_process_that_is_killed() {
    let Some(place) = std::env::var_os(PLACE) else { return };
    let place = PathBuf::from(place);
    let name = fs::read_to_string(place.join("name")).unwrap();
    live(&place.join("user tree"), &place.join("state"), &name);
}

fn start(user: &User, name: &str) -> Child {
    fs::write(user.outer.path().join("name"), name).unwrap();
    Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "git::kills::child_process_that_is_killed", "--ignored", "--nocapture"])
        .env(PLACE, user.outer.path().canonicalize().unwrap())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap()
}

/// The child processes of `pid`, as far as the kernel reports them.
fn started_by(pid: u32) -> Vec<i32> {
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    let lists = tasks.filter_map(|task| fs::read_to_string(task.path().join("children")).ok());
    lists
        .flat_map(|list| list.split_whitespace().map(str::to_owned).collect::<Vec<_>>())
        .filter_map(|pid| pid.parse().ok())
        .collect()
}

/// Waits until an orphaned process has ended.
fn await_end(pid: i32) {
    let begun = Instant::now();
    let alive = || {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        // A zombie does nothing any more.
        !stat.is_empty() && !stat.contains(") Z ")
    };
    while alive() {
        assert!(begun.elapsed() < Duration::from_secs(100), "git {pid} does not end");
        std::thread::yield_now();
    }
}

/// Kills the process after `delay`, with or without its git processes; returns its output.
fn kill_after(mut life: Child, delay: Duration, with_git: bool) -> String {
    // Not for synchronisation: the kill should hit at any point.
    std::thread::sleep(delay);
    let started = started_by(life.id());
    life.kill().unwrap();
    life.wait().unwrap();
    for pid in started {
        if with_git && let Some(pid) = Pid::from_raw(pid) {
            // It may already have ended.
            let _ = kill_process(pid, Signal::KILL);
        }
        await_end(pid);
    }
    let mut said = String::new();
    life.stdout.take().unwrap().read_to_string(&mut said).unwrap();
    said
}

/// Checks everything that must hold after a kill, and restores the repository.
fn check(user: &User, name: &str, said: &str, before: &(Vec<String>, BTreeMap<String, String>)) {
    let repository = user.open().with_stale_lock(STALE);
    for recovered in repository.recover().unwrap().put_back {
        assert_eq!(recovered.left, []);
    }
    let mut applied = before.1.clone();
    applied.insert("README".into(), format!("100644 {APPLIED}"));
    applied.insert("new/file".into(), format!("100644 {name}"));
    let disk = on_disk(&user.tree);
    let all_or_nothing = disk == before.1 || disk == applied;
    assert!(all_or_nothing, "neither before nor after: {disk:?}\n{said}");
    if said.contains("applied\n") && !said.contains("undoing\n") {
        assert_eq!(disk, applied, "{said}");
    }
    for entry in fs::read_dir(user.state().join("applies")).into_iter().flatten().flatten() {
        if entry.path().is_dir() {
            repository.undo(entry.file_name().to_str().unwrap()).unwrap();
        }
    }
    assert_eq!((user.untouched(), on_disk(&user.tree)), *before, "{said}");

    let spaces = user.spaces();
    let swept = spaces.sweep(&|_| false, now()).unwrap();
    let unclear = swept.iter().any(|it| matches!(it, SweepOutcome::Unclear(..)));
    assert!(!unclear, "{swept:?}\n{said}");
    if said.contains("written\n") {
        let kept = repository.result(&child(name)).unwrap().unwrap();
        let files = user.files(&user.id(&format!("{kept}^{{tree}}")));
        assert_eq!(files["new/file"], format!("100644 {name}"), "{said}");
    }
    assert_eq!(spaces.sweep(&|_| false, now()).unwrap(), [], "{said}");
    assert_eq!(user.git(["worktree", "list"]).lines().count(), 1, "{said}");
    let snapshot = repository.capture(now()).unwrap();
    let lease = BaseCheckouts::open(&repository).unwrap().lease(&snapshot.tree).unwrap();
    assert_eq!(on_disk(lease.path()), user.files(&snapshot.tree), "{said}");
}

#[test]
fn a_kill_at_any_point_loses_no_work_and_changes_none_of_the_users_files() {
    let user = User::in_memory();
    for number in 0..40 {
        user.write(format!("many/{number}"), "x\n");
    }
    user.commit("many");
    user.write("mine", "dirty and untracked\n");
    fs::remove_file(user.path("many/7")).unwrap();
    let before = (user.untouched(), on_disk(&user.tree));

    let begun = Instant::now();
    let mut whole = start(&user, "whole");
    assert!(whole.wait().unwrap().success());
    let whole_life = begun.elapsed();
    let mut seen = std::collections::BTreeSet::new();
    for round in 0..ROUNDS {
        let name = format!("r{round}");
        let life = start(&user, &name);
        // Spread evenly over the run time, in a mixed order.
        let part = f64::from((round * 37) % ROUNDS) / f64::from(ROUNDS);
        let said = kill_after(life, whole_life.mul_f64(part), round % 2 == 0);
        seen.insert(said.lines().filter(|line| !line.is_empty()).count());
        check(&user, &name, &said, &before);
    }
    assert!(seen.len() >= 4, "the kills hit too few places: {seen:?}");
    let fsck = user.try_git(["fsck", "--connectivity-only", "--no-dangling"]);
    assert!(fsck.status.success(), "{}", String::from_utf8_lossy(&fsck.stderr));
    let left = fs::read_dir(user.path(".git/worktrees")).map_or(0, Iterator::count);
    assert_eq!(left, 0, "entries of work trees that are gone");
}
