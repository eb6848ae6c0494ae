//! A process that is killed while it puts back what a command wrote that judged the work.

use std::collections::BTreeSet;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use adjutant_workspace::space::{Record, Swept};

use super::take_in::{act, in_memory, shown};
use super::*;
use crate::git::put;

/// Tells the started process where its repository is.
const PLACE: &str = "ADJUTANT_TEST_CLAIMED";

/// Files that the command removes, as many as it adds: so many that a kill hits in the middle of them.
const FILES: usize = 150;

#[test]
#[ignore = "the part of the process that is killed; started by the test below"]
fn the_life_that_is_cut_short() {
    let Some(place) = std::env::var_os(PLACE).map(PathBuf::from) else { return };
    let record = std::fs::read_to_string(place.join("record")).unwrap();
    let record: Record = serde_json::from_str(&record).unwrap();
    let wish = match record.kind {
        Kind::Overlay => KindWish::Overlay,
        Kind::Worktree => KindWish::Worktree,
    };
    let spaces =
        Workspaces::open(&place.join("user tree"), &place.join("state"), options(wish)).unwrap();
    let space = spaces.adopt("run", "a", &record).unwrap();
    drop(space.root().unwrap());
}

fn start(user: &User, record: &Record) -> Child {
    let place = user.outer.path();
    put(&place.join("record"), &serde_json::to_string(record).unwrap());
    Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "space::claim_killed::the_life_that_is_cut_short"])
        .args(["--ignored", "--nocapture"])
        .env(PLACE, place.canonicalize().unwrap())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap()
}

/// Where a file shows for whoever looks from outside.
fn outside(record: &Record, file: &str) -> PathBuf {
    let path = PathBuf::from(&record.path);
    match record.kind {
        Kind::Worktree => path.join(file),
        Kind::Overlay => path.with_file_name("upper-0").join(file),
    }
}

#[test]
fn killed_while_it_is_put_back_the_work_is_still_what_was_claimed() {
    for (wish, kind) in KINDS {
        let user = in_memory();
        user.write(".gitignore", "*.o\n");
        user.commit("more");
        let spaces = open(&user, wish);
        let space = spaces.make("run", "a", "1", None).unwrap();
        let fill = format!("mkdir w; for n in $(seq 100 {}); do echo $n > w/$n; done", 99 + FILES);
        act(&space, &fill);
        act(&space, "echo object > x.o");
        let (before, record) = (shown(&space), space.record());
        drop(space);
        let mut torn = 0;
        // Before the first file, in the middle, and at the last one.
        for number in [100, 120, 100 + FILES / 2, 99 + FILES] {
            let space = spaces.adopt("run", "a", &record).unwrap();
            space.claim(now(), &BTreeSet::new()).unwrap();
            act(&space, "mv w v; echo '*' > .gitignore; echo junk > junk");
            drop(space);
            let mut life = start(&user, &record);
            let file = outside(&record, &format!("w/{number}"));
            let begun = Instant::now();
            while !file.exists() {
                assert!(begun.elapsed() < Duration::from_secs(60), "{kind}: {number}");
                std::thread::yield_now();
            }
            life.kill().unwrap();
            life.wait().unwrap();
            let there = (100..100 + FILES).filter(|n| outside(&record, &format!("w/{n}")).exists());
            torn += usize::from(there.count() < FILES);
            let space = spaces.adopt("run", "a", &record).unwrap();
            assert_eq!(shown(&space), before, "{kind}: {number}");
        }
        assert!(torn > 0, "{kind}: none was hit in the middle");
        // The same where nobody goes on.
        let space = spaces.adopt("run", "a", &record).unwrap();
        space.claim(now(), &BTreeSet::new()).unwrap();
        act(&space, "mv w v; echo junk > junk");
        drop(space);
        let mut life = start(&user, &record);
        let file = outside(&record, "w/110");
        while !file.exists() && life.try_wait().unwrap().is_none() {
            std::thread::yield_now();
        }
        life.kill().unwrap();
        life.wait().unwrap();
        let swept = spaces.sweep(&|_| false, now()).unwrap();
        let [Swept::Kept(_, commit)] = &swept[..] else { panic!("{kind}: {swept:?}") };
        let kept = contents(&user, commit);
        let ours = kept.keys().filter(|path| path.starts_with("w/")).count();
        assert_eq!(ours, FILES, "{kind}: {kept:?}");
        assert!(!kept.contains_key("junk") && !kept.contains_key("x.o"), "{kind}: {kept:?}");
    }
}
