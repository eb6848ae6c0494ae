//! Measurements next to plain git; run by hand: `cargo nextest run --run-ignored all speed`.

use std::time::Instant;

use adjutant_workspace::{BaseCheckouts, BaseLeaseCost, Worktrees};

use super::*;

/// The median of nine runs, in milliseconds.
fn median(mut once: impl FnMut(usize) -> Duration) -> f64 {
    let mut all: Vec<Duration> = (0..9).map(&mut once).collect();
    all.sort();
    all[4].as_secs_f64() * 1000.0
}

fn timed(work: impl FnOnce()) -> Duration {
    let begun = Instant::now();
    work();
    begun.elapsed()
}

/// A repository of `count` small files in directories of a hundred.
fn repository_of(count: usize) -> User {
    let user = User::unborn();
    for number in 0..count {
        user.write(
            format!("d{}/e{}/f{number}", number / 2500, number / 100),
            &format!("{number}\n"),
        );
    }
    user.commit("all");
    user.git(["gc", "-q"]);
    user
}

#[test]
#[ignore = "a measurement, not a judgement"]
fn the_cost_of_captures_commits_and_merges() {
    for count in [100, 1_000, 10_000, 50_000] {
        let user = repository_of(count);
        user.write("d0/e0/f0", "changed\n");
        user.write("untracked", "x\n");
        let repository = user.open();
        let status = median(|_| timed(|| drop(user.git(["status", "--porcelain"]))));
        let capture = median(|_| timed(|| drop(repository.capture(now()).unwrap())));
        let snapshot = repository.capture(now()).unwrap();
        println!(
            "{count}: git status {status:.1} ms, capture {capture:.1} ms, ×{:.2}",
            capture / status
        );

        let bases = BaseCheckouts::open(&repository).unwrap();
        let create = timed(|| drop(bases.lease(&snapshot.head_tree).unwrap()));
        let warm = median(|_| timed(|| drop(bases.lease(&snapshot.head_tree).unwrap())));
        let moved = median(|number| {
            let to = if number % 2 == 0 { &snapshot.tree } else { &snapshot.head_tree };
            timed(|| assert!(matches!(bases.lease(to).unwrap().cost(), BaseLeaseCost::Moved(2))))
        });
        println!(
            "{count}: base created {create:.1?}, warm {warm:.2} ms, moved by 2 files {moved:.1} ms"
        );

        let upper = user.upper();
        put(&upper.join("d0/e0/f7"), "changed by a child\n");
        let root = Root::open(&upper).unwrap();
        let changes = [FileChange::Written(rel("d0/e0/f7"))];
        let commit = median(|number| {
            let reference = child(&format!("c{number}"));
            let work = work(&snapshot.commit, &root, &changes);
            timed(|| assert!(repository.commit(work, &reference, None).unwrap().is_some()))
        });
        println!("{count}: commit of one change {commit:.1} ms");

        let made = repository.result(&child("c0")).unwrap().unwrap();
        let diff = median(|_| timed(|| drop(repository.diff(&snapshot.commit, &made).unwrap())));
        let preview =
            median(|_| timed(|| drop(repository.preview(&made, &snapshot.commit).unwrap())));
        println!("{count}: diff {diff:.1} ms, preview {preview:.1} ms");

        let worktrees = Worktrees::open(&repository).unwrap();
        let head = user.id("HEAD");
        let (mut plain, mut ours) = (Vec::new(), Vec::new());
        let rounds = if count > 5_000 { 3 } else { 9 };
        for number in 0..rounds {
            let path = user.outer.path().join(format!("plain{number}"));
            let path = path.to_str().unwrap();
            let add = ["worktree", "add", "-q", "--detach", path];
            plain.push(timed(|| drop(user.git(add))));
            user.git(["worktree", "remove", "--force", path]);
            let name = child(&format!("w{number}"));
            let mut made = None;
            ours.push(timed(|| made = Some(worktrees.create(&name, &head).unwrap())));
            made.unwrap().remove().unwrap();
        }
        plain.sort();
        ours.sort();
        let (plain, ours) = (plain[rounds / 2].as_secs_f64(), ours[rounds / 2].as_secs_f64());
        println!(
            "{count}: git worktree add {:.1} ms, ours {:.1} ms, ×{:.2}",
            plain * 1000.0,
            ours * 1000.0,
            ours / plain
        );
    }
}

#[test]
#[ignore = "a measurement, not a judgement"]
fn the_cost_of_applying_many_files() {
    let user = repository_of(13_000);
    let repository = user.open();
    let snapshot = repository.capture(now()).unwrap();
    let upper = user.upper();
    let mut changes = Vec::new();
    for number in 0..13_000 {
        let path = format!("d{}/e{}/f{number}", number / 2500, number / 100);
        put(&upper.join(&path), &format!("{number}, changed\n"));
        changes.push(FileChange::Written(rel(&path)));
    }
    let root = Root::open(&upper).unwrap();
    let made = repository.commit(work(&snapshot.commit, &root, &changes), &child("many"), None);
    let made = made.unwrap().unwrap();
    let mut name = String::new();
    let apply = timed(|| name = repository.apply(&made.commit, now()).unwrap().name);
    let undo = timed(|| repository.undo(&name).unwrap());
    println!("13000 files: applied in {apply:.1?}, taken back in {undo:.1?}");
}
