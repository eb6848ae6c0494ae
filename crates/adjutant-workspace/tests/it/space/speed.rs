//! Figures: what a workspace costs, by the size of the repository. Run with `--ignored --nocapture`, best in release.

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::time::{Duration, Instant};

use super::*;

/// How many workspaces are made at each size.
const TIMES: usize = 41;

fn filled(user: &User, files: usize) {
    for folder in 0..files.div_ceil(100) {
        let folder = user.tree.join(format!("folder-{folder}"));
        fs::create_dir(&folder).unwrap();
        for file in 0..100.min(files) {
            fs::write(folder.join(format!("file-{file}")), format!("{file}\n")).unwrap();
        }
    }
    user.commit("filled");
}

/// The median, and the value that nine of ten stay below.
fn spread(mut all: Vec<Duration>) -> (Duration, Duration) {
    all.sort();
    (all[all.len() / 2], all[all.len() * 9 / 10])
}

fn timed<T>(work: impl FnOnce() -> T) -> (Duration, T) {
    let begun = Instant::now();
    let done = work();
    (begun.elapsed(), done)
}

/// Bytes on disk below a folder.
fn disk(folder: &Path) -> u64 {
    let mut sum = 0;
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let Ok(found) = entry.path().symlink_metadata() else { continue };
        sum += found.blocks() * 512;
        if found.is_dir() {
            sum += disk(&entry.path());
        }
    }
    sum
}

/// The memory that is only theirs of all processes this one started, in kilobytes, and how many they are.
fn own_memory() -> (u64, usize) {
    let mut all = vec![std::process::id()];
    let mut at = 0;
    while let Some(parent) = all.get(at).copied() {
        at += 1;
        for task in fs::read_dir(format!("/proc/{parent}/task")).into_iter().flatten().flatten() {
            let list = fs::read_to_string(task.path().join("children")).unwrap_or_default();
            all.extend(list.split_whitespace().filter_map(|it| it.parse::<u32>().ok()));
        }
    }
    let own = |process: &u32| -> u64 {
        let text = fs::read_to_string(format!("/proc/{process}/smaps_rollup")).unwrap_or_default();
        let lines = text.lines().filter(|line| line.starts_with("Private_"));
        lines.filter_map(|line| line.split_whitespace().nth(1)?.parse::<u64>().ok()).sum()
    };
    (all[1..].iter().map(own).sum(), all.len() - 1)
}

/// Returns the median of making one, and everything in words.
fn measure(place: &str, wish: KindWish, files: usize) -> (Duration, String) {
    let user = User::folder_in(TempDir::new_in(place).unwrap()).initialised();
    filled(&user, files);
    user.write("folder-0/file-0", "dirty\n");
    user.write("untracked", "dirty\n");
    let (status, _) = timed(|| user.git(["status", "--porcelain"]));
    let (status_again, _) = timed(|| user.git(["status", "--porcelain"]));
    let spaces = open(&user, wish);
    let (cold, first) = timed(|| spaces.make("run", "first", "cold", None).unwrap());
    let (batch, second) = timed(|| spaces.make("run", "second", "next", None).unwrap());
    let (mut make, mut keep, mut close) = (Vec::new(), Vec::new(), Vec::new());
    for number in 0..TIMES {
        let child = format!("c{number}");
        let (took, space) = timed(|| spaces.make("run", &child, "next", None).unwrap());
        make.push(took);
        write(&space, "folder-0/file-1", "work\n");
        keep.push(timed(|| space.keep("work\n", now()).unwrap()).0);
        close.push(timed(|| space.close().unwrap()).0);
    }
    let (nested, below) = timed(|| {
        write(&second, "parent", "x\n");
        spaces.make("run", "nested", "n", Some(&second)).unwrap()
    });
    let idle = idle(&user, &spaces);
    let eight = eight(&spaces);
    let (make, make_90) = spread(make);
    let said = format!(
        "{place} {wish:?} {files} files: status {status:.1?} then {status_again:.1?}; \
         cold {cold:.1?}; new batch {batch:.1?}; make p50 {make:.2?} p90 {make_90:.2?}; \
         keep {:.1?}; close {:.1?}; nested {nested:.1?}; eight at once {eight:.1?}; {idle}",
        spread(keep).0,
        spread(close).0,
    );
    drop((first, second, below));
    (make, said)
}

/// What five more workspaces that nobody works in add.
fn idle(user: &User, spaces: &Workspaces) -> String {
    let space_used = || disk(&state(user)) + disk(&user.tree.join(".git/worktrees"));
    let (before, memory) = (space_used(), own_memory());
    let all: Vec<Workspace> = (0..5)
        .map(|number| spaces.make("run", &format!("idle{number}"), "next", None).unwrap())
        .collect();
    let (after, more) = (space_used(), own_memory());
    let each = (after - before) / 5 / 1024;
    let processes = (more.1 - memory.1) / 5;
    let kilobytes = more.0.saturating_sub(memory.0) / 5;
    drop(all);
    format!("an idle one has {each} KiB on disk, {processes} processes with {kilobytes} KiB")
}

fn eight(spaces: &Workspaces) -> Duration {
    let (took, all) = timed(|| {
        std::thread::scope(|scope| {
            let make = |number: usize| {
                scope.spawn(move || {
                    spaces.make("run", &format!("eight{number}"), "eight", None).unwrap()
                })
            };
            let threads: Vec<_> = (0..8).map(make).collect();
            threads.into_iter().map(|it| it.join().unwrap()).collect::<Vec<_>>()
        })
    });
    assert_eq!(all.len(), 8);
    took
}

#[test]
#[ignore = "a measurement"]
fn a_workspace_is_ready_in_the_same_time_whatever_the_size() {
    let places = std::env::var("ADJUTANT_TEST_PLACES").unwrap_or_else(|_| "/dev/shm".to_owned());
    for place in places.split(':') {
        let sizes = [100, 1_000, 10_000, 50_000];
        let all = sizes.map(|files| {
            let (make, said) = measure(place, KindWish::Overlay, files);
            println!("{said}");
            make
        });
        let (least, most) = (all.iter().min().unwrap(), all.iter().max().unwrap());
        println!("{place}: {all:.2?}, {:.2} apart", most.as_secs_f64() / least.as_secs_f64());
        assert!(*most <= Duration::from_millis(20), "{all:?}");
        assert!(*most <= *least * 3 / 2, "{all:?}");
    }
}

#[test]
#[ignore = "a measurement"]
fn a_work_tree_costs_what_git_takes() {
    for files in [100, 10_000] {
        println!("{}", measure("/dev/shm", KindWish::Worktree, files).1);
    }
}
