//! A disk that is full when what a command wrote is to be put back: the work is still what was claimed.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::Write as _;
use std::process::Command;

use adjutant_workspace::space::Swept;
use rustix::fs::statvfs;

use super::claim::begun;
use super::take_in::act;
use super::*;

/// Says that the process has a mount namespace of its own.
const INSIDE: &str = "ADJUTANT_TEST_CLAIM_FULL";

/// The work, of which one file takes more room than all the rest.
const LARGE: u64 = 400 << 10;

/// What the command does to it.
const JUDGE: &str =
    "rm large made; echo away > gone; echo spoilt > ten; rm -r folder; echo x > new";

/// What there is in a workspace.
fn sums(space: &Workspace) -> String {
    run(space, "find . -path ./.git -prune -o -type f -exec cksum {} + | sort").1
}

/// Fills the disk that a folder lies on but for so many bytes.
fn fill(folder: &Path, room: u64) -> PathBuf {
    let path = folder.join("filler");
    let mut file = File::create(&path).unwrap();
    let page = vec![1; 4096];
    let free = || statvfs(folder).map(|disk| disk.f_bavail * disk.f_frsize).unwrap();
    while free() > room && file.write_all(&page).is_ok() {}
    path
}

/// A user, and a small disk for what is kept of workspaces.
fn on_a_small_disk() -> User {
    let user = user();
    fs::create_dir(state(&user)).unwrap();
    let mounted = Command::new("mount")
        .args(["-t", "tmpfs", "-o", "size=16m,mode=700", "none"])
        .arg(state(&user))
        .status();
    assert!(mounted.unwrap().success());
    user
}

#[test]
#[ignore = "the part that mounts a disk; started by the test below"]
fn the_life_with_a_small_disk() {
    if std::env::var_os(INSIDE).is_none() {
        return;
    }
    for (wish, kind) in KINDS {
        let user = on_a_small_disk();
        let (spaces, mut space) = begun(&user, wish);
        act(&space, &format!("head -c {LARGE} /dev/urandom > large"));
        let (before, record) = (sums(&space), space.record());
        let (mut failed, mut done) = (0, 0);
        // From no room at all to more than everything needs, through each step on the way.
        for room in (0..40).map(|step| step * (LARGE / 16)) {
            space.claim(now(), &BTreeSet::new()).unwrap();
            act(&space, JUDGE);
            let filler = fill(&state(&user), room);
            match space.put_back() {
                Ok(back) => {
                    assert_eq!((back.left, back.problem), (Vec::new(), None), "{kind}: {room}");
                    done += 1;
                }
                Err(_) => {
                    // Nobody works on what the command left.
                    assert!(space.root().is_err(), "{kind}: {room}");
                    failed += 1;
                }
            }
            if failed % 2 == 1 {
                // Another process goes on.
                drop(space);
                fs::remove_file(filler).unwrap();
                space = spaces.adopt("run", "a", &record).unwrap();
            } else {
                fs::remove_file(filler).unwrap();
            }
            assert_eq!(sums(&space), before, "{kind}: {room}");
        }
        assert!(failed > 1 && done > 1, "{kind}: {failed} and {done}");

        // Nobody goes on: what was claimed is kept as soon as there is room.
        space.claim(now(), &BTreeSet::new()).unwrap();
        act(&space, JUDGE);
        let filler = fill(&state(&user), 0);
        space.put_back().unwrap_err();
        let kept = space.conclude("work\n", now());
        drop(space);
        let swept = spaces.sweep(&|_| false, now()).unwrap();
        fs::remove_file(filler).unwrap();
        let later = spaces.sweep(&|_| false, now()).unwrap();
        let kept = kept.ok().and_then(|kept| kept.commit);
        let commit = kept.or_else(|| {
            swept.iter().chain(&later).find_map(|it| match it {
                Swept::Kept(_, commit) => Some(commit.clone()),
                Swept::Removed(_) | Swept::Unclear(..) => None,
            })
        });
        let commit = commit.unwrap_or_else(|| panic!("{kind}: {swept:?}, {later:?}"));
        let names: Vec<String> = contents(&user, &commit).into_keys().collect();
        for (name, is_work) in [
            ("large", true),
            ("made", true),
            ("folder/file", true),
            ("new", false),
            ("gone", false),
        ] {
            assert_eq!(names.iter().any(|it| it == name), is_work, "{kind}: {name}: {names:?}");
        }
    }
}

#[test]
fn what_cannot_be_put_back_on_a_full_disk_is_put_back_later() {
    let unshare = |program: &Path| {
        let mut command = Command::new("unshare");
        command.arg("-rm").arg(program);
        command
    };
    let try_it = unshare(Path::new("mount")).args(["-t", "tmpfs", "none", "/mnt"]).output();
    if !try_it.is_ok_and(|tried| tried.status.success()) {
        eprintln!("SKIPPED: no tmpfs can be mounted here, so no disk was filled");
        return;
    }
    let output = unshare(&std::env::current_exe().unwrap())
        .args(["--exact", "space::claim_full::the_life_with_a_small_disk"])
        .args(["--ignored", "--nocapture"])
        .env(INSIDE, "1")
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    let ran = String::from_utf8_lossy(&output.stdout).contains("1 passed");
    assert!(output.status.success() && ran, "{said}");
}
