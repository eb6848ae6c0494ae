//! Killing a process while it merges a result into a workspace.

use std::io::BufRead as _;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use adjutant_workspace::space::{SweepOutcome, WorkspaceRecord};

use super::take_in::{act, in_memory};
use super::*;
use crate::git::put;

/// The variable with the repository's path for the child process.
const PLACE: &str = "ADJUTANT_TEST_TAKING";

/// The number of files that the child adds, changes and removes: enough for a kill to hit in the middle.
const FILES: usize = 200;

/// The distance between the files at which it is killed.
const STEP: usize = 25;

/// The contents of all files, and which are executable.
type Shown = (BTreeMap<String, String>, String);

fn shown(space: &Workspace) -> Shown {
    let text =
        "find . -path ./.git -prune -o ! -type d -perm /111 -printf '%P %m\n' | sort | sha1sum";
    (files(space), run(space, text).1)
}

/// A parent and a result of its child, in a state directory that no process uses.
struct Waiting {
    name: String,
    result: ObjectId,
    record: WorkspaceRecord,
    before: Shown,
}

impl Waiting {
    fn new(user: &User, backing: WorkspaceBackingChoice, number: usize) -> Self {
        let spaces = open(user, backing);
        let name = format!("p{number}");
        let parent = spaces.make("run", &name, "1", None).unwrap();
        act(&parent, "echo parent > made; echo parent > files/000-old; sed -i s/^1$/p/ ten");
        let child = spaces.make("run", &format!("c{number}"), "2", Some(&parent)).unwrap();
        // Renames a file that the parent edits: merging again over half of it would conflict.
        let text = "mv ten eleven; rm -r gone src; echo child > src; chmod +x files/*-old; \
            for n in files/*-old; do echo child >> $n; echo new > ${n%old}new; done";
        act(&child, text);
        let result = child.keep("work\n", now()).unwrap().commit.unwrap();
        act(&parent, "sed -i s/^10$/p/ ten; echo parent > files/001-old.log");
        let before = shown(&parent);
        Self { name, result, record: parent.record(), before }
    }

    /// Where an added file first appears on disk.
    fn file(&self, number: usize) -> PathBuf {
        let path = PathBuf::from(&self.record.path);
        let folder = match self.record.kind {
            WorkspaceBacking::Worktree => path,
            WorkspaceBacking::Overlay => {
                let layers = self.record.layers.len();
                let mut top =
                    (0..layers).rev().map(|it| path.with_file_name(format!("upper-{it}")));
                top.find(|it| it.exists()).unwrap()
            }
        };
        folder.join(format!("files/{number:03}-new"))
    }

    fn written(&self) -> usize {
        (0..FILES).filter(|number| self.file(*number).exists()).count()
    }

    fn start(&self, user: &User) -> Child {
        let place = user.outer.path();
        put(&place.join("who"), &format!("{} {} {}", self.name, self.result, self.record.kind));
        put(&place.join("record"), &serde_json::to_string(&self.record).unwrap());
        Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "space::take_in_killed::child_process_that_is_killed"])
            .args(["--ignored", "--nocapture"])
            .env(PLACE, place.canonicalize().unwrap())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap()
    }

    /// Kills the process as soon as a file exists; returns how many existed then.
    fn kill_at(&self, user: &User, number: usize) -> usize {
        let (mut life, file) = (self.start(user), self.file(number));
        let begun = Instant::now();
        while !file.exists() {
            assert!(begun.elapsed() < Duration::from_secs(60), "{} does not come", file.display());
            std::thread::yield_now();
        }
        life.kill().unwrap();
        life.wait().unwrap();
        self.written()
    }
}

#[test]
#[ignore = "the part of the process that is killed; started by the tests below"]
fn child_process_that_is_killed() {
    let Some(place) = std::env::var_os(PLACE).map(PathBuf::from) else { return };
    let who = std::fs::read_to_string(place.join("who")).unwrap();
    let [name, result, kind] = who.split(' ').collect::<Vec<_>>()[..] else { panic!("{who}") };
    let backing = if kind == "overlay" {
        WorkspaceBackingChoice::Overlay
    } else {
        WorkspaceBackingChoice::Worktree
    };
    let spaces =
        Workspaces::open(&place.join("user tree"), &place.join("state"), options(backing)).unwrap();
    let record = std::fs::read_to_string(place.join("record")).unwrap();
    let parent = spaces.adopt("run", name, &serde_json::from_str(&record).unwrap()).unwrap();
    let taken = parent.take_in(&ObjectId::parse(result).unwrap(), now()).unwrap();
    println!("taken {}", taken.diff.entries.len());
}

fn filled() -> User {
    let user = in_memory();
    user.write("ten", "1\n2\n3\n4\n5\n6\n7\n8\n9\n10\n");
    for number in 0..FILES {
        user.write(format!("files/{number:03}-old"), &format!("{number}\n"));
        user.write(format!("gone/{number:03}"), &format!("{number}\n"));
    }
    user.commit("filled");
    user
}

/// The content of the workspace without a kill.
fn undisturbed(user: &User, backing: WorkspaceBackingChoice) -> Shown {
    let waiting = Waiting::new(user, backing, 99);
    let mut life = waiting.start(user);
    let mut said = std::io::BufReader::new(life.stdout.take().unwrap()).lines().map(Result::unwrap);
    assert!(said.any(|line| line.contains("taken ")), "it did not end well");
    drop(said);
    life.wait().unwrap();
    let spaces = open(user, backing);
    let parent = spaces.adopt("run", &waiting.name, &waiting.record).unwrap();
    let after = shown(&parent);
    assert!(after != waiting.before);
    assert!(parent.take_in(&waiting.result, now()).unwrap().already);
    after
}

#[test]
fn a_merge_killed_after_any_file_is_undone_and_succeeds_when_repeated() {
    for (backing, kind) in KINDS {
        let user = filled();
        let after = undisturbed(&user, backing);
        let mut torn = 0;
        for number in (0..FILES).step_by(STEP) {
            let waiting = Waiting::new(&user, backing, number);
            let written = waiting.kill_at(&user, number);
            torn += usize::from(written < FILES);
            let spaces = open(&user, backing);
            let parent = spaces.adopt("run", &waiting.name, &waiting.record).unwrap();
            let at = format!("{kind}, file {number}, {written} written");
            if written < FILES {
                assert!(shown(&parent) == waiting.before, "{at}: something of it is there");
            }
            let taken = parent.take_in(&waiting.result, now()).unwrap();
            assert_eq!(taken.conflicts, [], "{at}");
            assert_eq!(taken.diff.entries.len(), 3 * FILES + 4, "{at}");
            assert!(shown(&parent) == after, "{at}: not all of it is there");
            assert!(parent.take_in(&waiting.result, now()).unwrap().already, "{at}");
            assert!(shown(&parent) == after, "{at}: not all of it is there");
            parent.keep("work\n", now()).unwrap();
            parent.close().unwrap();
        }
        assert!(torn > 3, "{kind}: only {torn} were hit in the middle");
    }
}

#[test]
fn an_incomplete_merge_is_not_kept_as_work() {
    for (backing, kind) in KINDS {
        let user = filled();
        let waiting = Waiting::new(&user, backing, 0);
        let written = waiting.kill_at(&user, 20);
        let spaces = open(&user, backing);
        let swept = spaces.sweep(&|_| false, now()).unwrap();
        let of_parent =
            |it: &&SweepOutcome| matches!(it, SweepOutcome::Kept(it, _) if it.child() == "p0");
        let Some(SweepOutcome::Kept(_, commit)) = swept.iter().find(of_parent) else {
            panic!("{kind}: {swept:?}")
        };
        let all = contents(&user, commit);
        assert_eq!(all["made"], "parent\n", "{kind}");
        let new = all.keys().filter(|path| path.ends_with("-new")).count();
        assert_eq!(new, if written < FILES { 0 } else { FILES }, "{kind}");
    }
}
