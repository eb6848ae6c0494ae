//! Figures: what a workspace costs, by the size of the repository. Run with `--ignored --nocapture`, best in release.

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::time::{Duration, Instant};

use super::*;

/// The number of workspaces made at each size.
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

/// The median and the 90th percentile.
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

/// The private memory of all child processes, in kilobytes, and their number.
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

/// A repository of some size and what was measured on it.
struct Bench {
    user: User,
    spaces: Workspaces,
    parent: Workspace,
    said: String,
    make: Vec<Duration>,
    keep: Vec<Duration>,
    close: Vec<Duration>,
}

impl Bench {
    fn new(place: &str, backing: WorkspaceBackingChoice, files: usize) -> Self {
        let user = User::folder_in(TempDir::new_in(place).unwrap()).initialised();
        filled(&user, files);
        user.write("folder-0/file-0", "dirty\n");
        user.write("untracked", "dirty\n");
        user.git(["status", "--porcelain"]);
        let (status, _) = timed(|| user.git(["status", "--porcelain"]));
        let spaces = open(&user, backing);
        let (cold, _) = timed(|| spaces.make("run", "first", "cold", None).unwrap());
        let (batch, parent) = timed(|| spaces.make("run", "parent", "next", None).unwrap());
        let said = format!(
            "{place} {backing:?} {files} files: git status {status:.1?}; cold {cold:.1?}; new batch {batch:.1?}"
        );
        let (make, keep, close) = Default::default();
        Self { user, spaces, parent, said, make, keep, close }
    }

    /// Makes a workspace, writes a little, keeps the work and closes it.
    fn round(&mut self, number: usize) {
        let child = format!("c{number}");
        let (took, space) = timed(|| self.spaces.make("run", &child, "next", None).unwrap());
        self.make.push(took);
        write(&space, "folder-0/file-1", "work\n");
        self.keep.push(timed(|| space.keep("work\n", now()).unwrap()).0);
        self.close.push(timed(|| space.close().unwrap()).0);
    }

    /// Returns the median of making one, and a report.
    fn end(self) -> (Duration, String) {
        write(&self.parent, "parent", "x\n");
        let make = || self.spaces.make("run", "nested", "n", Some(&self.parent)).unwrap();
        let (nested, _below) = timed(make);
        let (idle, eight) = (idle(&self.user, &self.spaces), eight(&self.spaces));
        let (make, make_90) = spread(self.make);
        let said = format!(
            "{}; make p50 {make:.2?} p90 {make_90:.2?}; keep {:.1?}; close {:.1?}; \
             nested {nested:.1?}; eight at once with a capture {eight:.1?}; {idle}",
            self.said,
            spread(self.keep).0,
            spread(self.close).0,
        );
        (make, said)
    }
}

/// Measures all sizes in turn, so that other load affects them equally.
fn measure(
    place: &str,
    backing: WorkspaceBackingChoice,
    sizes: &[usize],
) -> Vec<(Duration, String)> {
    let mut all: Vec<Bench> =
        sizes.iter().map(|files| Bench::new(place, backing, *files)).collect();
    for number in 0..TIMES {
        all.iter_mut().for_each(|bench| bench.round(number));
    }
    all.into_iter().map(Bench::end).collect()
}

/// The cost of five more idle workspaces.
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
fn making_a_workspace_takes_the_same_time_whatever_the_size() {
    let places = std::env::var("ADJUTANT_TEST_PLACES").unwrap_or_else(|_| "/dev/shm".to_owned());
    for place in places.split(':') {
        let measured =
            measure(place, WorkspaceBackingChoice::Overlay, &[100, 1_000, 10_000, 50_000]);
        measured.iter().for_each(|(_, said)| println!("{said}"));
        let all: Vec<Duration> = measured.into_iter().map(|(make, _)| make).collect();
        let (least, most) = (all.iter().min().unwrap(), all.iter().max().unwrap());
        println!("{place}: {all:.2?}, {:.2} apart", most.as_secs_f64() / least.as_secs_f64());
        assert!(*most <= Duration::from_millis(20), "{all:?}");
        assert!(*most <= *least * 3 / 2, "{all:?}");
    }
}

#[test]
#[ignore = "a measurement"]
fn making_a_work_tree_takes_as_long_as_git_needs() {
    for (_, said) in measure("/dev/shm", WorkspaceBackingChoice::Worktree, &[100, 10_000]) {
        println!("{said}");
    }
}
