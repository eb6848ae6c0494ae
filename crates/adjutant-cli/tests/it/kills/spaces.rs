//! Kills writers in both kinds of workspaces repeatedly. In the end each result contains the work once, the user's files
//! are unchanged, and no workspace remains.
//!
//! A kill follows an observed event, a record or a change in the directories of workspaces, so the result does not
//! depend on the speed of the machine.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::Signal;

use super::book::Book;
use super::chance::{Chance, seed};
use super::{kernel, tell};
use crate::support::repository::Repo;
use crate::support::rig::{Call, Rig};
use crate::support::running::Running;

/// The default number of kills.
const KILLS: u64 = 24;

/// Kills of one run before it may finish.
const DEEPEST: u64 = 4;

/// Records after which a kill may fall: before the workspaces are there, at work, while the work is
/// kept, and after that, when all that is left is to remove them.
const RECORDS: [&str; 8] = [
    "started",
    "space_made",
    "replied",
    "write_prepared",
    "tool_called",
    "tool_returned",
    "ended",
    "space_kept",
];

/// The largest number of file changes between the record and the kill.
const LATEST: u64 = 6;

/// How long anything here may take; it takes a fraction of a second.
const GUARD: Duration = Duration::from_secs(120);

const LABELS: [&str; 2] = ["one", "two"];

fn script() -> String {
    let writer = |label: &str| {
        let turn = |call: &str| format!("[[turn]]\nlabel = \"{label}\"\n{call}\n");
        let tool = |name: &str, args: &str| {
            turn(&format!("[[turn.call]]\ntool = \"{name}\"\nargs = {args}"))
        };
        let edit = "{ file_path = \"list\", old_string = \"END\", new_string = \"added\\nEND\" }";
        let run = "{ command = \"sleep 0.02; echo ran >> ran; sleep 0.02\" }";
        let write = "{ file_path = \"new/file\", content = \"new\\n\" }";
        tool("Edit", edit) + &tool("Run", run) + &tool("Write", write) + &turn("text = \"done\"")
    };
    format!("delay_ms = 5\n{}{}", writer(LABELS[0]), writer(LABELS[1]))
}

/// When to kill: after the first record of that kind in this life, and so many changes of files.
#[derive(Clone, Copy, Debug)]
struct Moment {
    record: &'static str,
    changes: u64,
}

impl Moment {
    fn draw(chance: &mut Chance) -> Self {
        let record = chance.below(RECORDS.len() as u64);
        let record = RECORDS[usize::try_from(record).unwrap()];
        Self { record, changes: chance.below(LATEST) }
    }
}

/// The moments that kills hit, by the records at that time.
#[derive(Clone, Copy, Debug, Default)]
struct Tally {
    kills: u64,
    /// While a workspace was made.
    making: u64,
    /// While work was kept.
    keeping: u64,
    /// While agents worked, or after all was kept.
    otherwise: u64,
    runs: u64,
}

impl Tally {
    fn count(&mut self, book: &Book) {
        let of = |kind: &str| book.of(kind).count();
        self.kills += 1;
        if of("started") > of("space_made") {
            self.making += 1;
        } else if of("ended") > of("space_kept") {
            self.keeping += 1;
        } else {
            self.otherwise += 1;
        }
    }

    /// Says whether enough was tried: so many kills, and some in each of the short moments, unless they
    /// cannot be hit at all.
    fn is_enough(&self, wanted: u64) -> bool {
        let least = self.making.min(self.keeping);
        self.kills >= 3 * wanted || (self.kills >= wanted && least > 0)
    }

    fn add(&mut self, other: Self) {
        self.kills += other.kills;
        self.making += other.making;
        self.keeping += other.keeping;
        self.otherwise += other.otherwise;
        self.runs += other.runs;
    }
}

struct Stage {
    repo: Repo,
    kind: &'static str,
    before: String,
}

impl Stage {
    fn new(kind: &'static str) -> Self {
        let repo = Repo { rig: Rig::with_script(&script()) };
        repo.git(["init", "-q", "-b", "main", "."]);
        repo.rig.write("list", "END\n");
        repo.commit("first");
        repo.rig.write("mine", "untracked\n");
        let before = repo.state();
        Self { repo, kind, before }
    }

    fn with_path<'a>(&self, call: Call<'a>) -> Call<'a> {
        call.env("PATH", std::env::var_os("PATH").unwrap())
    }

    fn next(&self) -> Call<'_> {
        let rig = &self.repo.rig;
        let call = match rig.runs().first() {
            Some(run) if self.book(run).began() => rig.call(["resume", run, "--yes"]),
            Some(_) | None => {
                // A run that never began left a folder and nothing else.
                let _ = fs::remove_dir_all(rig.state().join("runs"));
                let tasks =
                    ["--write", "--workspace", self.kind, "-t", "one=Do it", "-t", "two=Do it"];
                rig.delegating(&tasks)
            }
        };
        self.with_path(call)
    }

    fn book(&self, run: &str) -> Book {
        Book::read(&self.repo.rig.run_folder(run).join("journal.jsonl"))
    }

    fn is_over(&self) -> bool {
        self.repo.rig.runs().first().is_some_and(|run| self.book(run).is_over())
    }

    /// Plays a run to its end; returns where it was killed.
    fn play(&self, chance: &mut Chance) -> Tally {
        let mut tally = Tally { runs: 1, ..Tally::default() };
        while !self.is_over() {
            let before = self.book_so_far().events.len();
            let mut running = self.next().start();
            if tally.kills < DEEPEST && (tally.kills == 0 || chance.below(4) > 0) {
                if self.wait_for(Moment::draw(chance), before, &mut running) {
                    running.signal(Signal::KILL);
                }
                if running.finish().code == 128 + 9 {
                    tally.count(&self.book_so_far());
                }
            } else {
                let out = running.finish();
                assert!(self.is_over(), "{out}");
            }
        }
        tally
    }

    fn book_so_far(&self) -> Book {
        let run = self.repo.rig.runs().into_iter().next();
        run.map_or_else(Book::default, |run| self.book(&run))
    }

    /// Waits until the moment has come; says whether it came before the program ended.
    fn wait_for(&self, moment: Moment, before: usize, running: &mut Running<'_>) -> bool {
        let until = Instant::now() + GUARD;
        let (mut length, mut is_there, mut changes) = (None, false, 0);
        let mut files = Vec::new();
        while !(is_there && changes >= moment.changes) {
            if running.has_ended() {
                return false;
            }
            assert!(Instant::now() < until, "{moment:?} never came");
            let journal = self.repo.rig.runs().first().and_then(|run| {
                fs::metadata(self.repo.rig.run_folder(run).join("journal.jsonl")).ok()
            });
            let now = journal.map(|journal| journal.len());
            if !is_there && now != length {
                length = now;
                let book = self.book_so_far();
                is_there = book.events.iter().skip(before).any(|it| it["type"] == moment.record);
            }
            let seen = self.files();
            if is_there && seen != files {
                changes += 1;
            }
            files = seen;
            thread::sleep(Duration::from_micros(100));
        }
        true
    }

    /// The directories and mounts of workspaces that are visible from outside.
    fn files(&self) -> Vec<PathBuf> {
        let mut found = Vec::new();
        let mut open = vec![(self.repo.rig.state().join("spaces"), 0)];
        open.push((self.repo.rig.work().join(".git/refs/adjutant"), 2));
        while let Some((folder, depth)) = open.pop() {
            for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
                if depth < 4 && entry.file_type().is_ok_and(|it| it.is_dir()) {
                    open.push((entry.path(), depth + 1));
                }
                found.push(entry.path());
            }
        }
        found.sort_unstable();
        found
    }

    fn check(&self) {
        let (rig, repo) = (&self.repo.rig, &self.repo);
        let run = rig.only_run();
        let book = self.book(&run);
        assert_eq!(repo.state(), self.before, "the user's files changed");
        let answers = answers(&book);
        let mut kept = BTreeMap::new();
        for event in book.of("space_kept") {
            assert_eq!(event["problem"], serde_json::Value::Null, "{event}");
            kept.insert(event["session"].as_str().unwrap(), event);
        }
        for (session, label) in sessions(&book) {
            let reference = format!("refs/adjutant/{run}/{session}");
            let commit = repo.git(["for-each-ref", "--format=%(objectname)", &reference]);
            let told = |tool: &str| answers[&(session.clone(), tool.to_owned())].as_str();
            let recorded = kept[session.as_str()]["commit"].as_str();
            assert_eq!(recorded.unwrap_or_default(), commit, "{label}: {:#?}", book.events);
            if commit.is_empty() {
                // A kill fell into each of its calls before the call changed anything.
                let all = ["Edit", "Run", "Write"].map(told);
                assert!(all.iter().all(|it| it.starts_with("Interrupted")), "{label}: {all:?}");
                continue;
            }
            let show = |path: &str| repo.git(["show", &format!("{commit}:{path}")]);
            let names = repo.git(["ls-tree", "-r", "--name-only", &commit]);
            let has = |path: &str| names.lines().any(|name| name == path);
            let lost = |tool: &str| told(tool).starts_with("Interrupted before it was done");
            let added = show("list").matches("added").count();
            assert_eq!(added, usize::from(!lost("Edit")), "{label}: {}", told("Edit"));
            assert_eq!(has("new/file"), !lost("Write"), "{label}: {}", told("Write"));
            let ran = if has("ran") { show("ran").lines().count() } else { 0 };
            if told("Run").starts_with("Interrupted") {
                assert!(ran <= 1, "{label}: the command was repeated");
            } else {
                assert_eq!(ran, 1, "{label}: {}", told("Run"));
            }
            assert!(has("mine"), "{label}: it began from the user's true state");
        }
        let pruned = self.with_path(rig.call(["prune"])).run();
        assert_eq!(pruned.code, 0, "{pruned}");
        nothing_is_left(repo);
    }
}

/// Checks that no process, mount or work tree of the workspaces of a repository is left.
pub(super) fn nothing_is_left(repo: &Repo) {
    let place = repo.rig.path();
    // A holder ends when its socket does; the kernel may take a moment to say so.
    let until = Instant::now() + GUARD;
    while !(holders(place).is_empty() && kernel::working_below(place).is_empty()) {
        assert!(Instant::now() < until, "processes are left: {:?}", holders(place));
        thread::yield_now();
    }
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap();
    let shown = place.display().to_string();
    assert!(!mounts.contains(&shown), "mounts are left: {mounts}");
    let trees = repo.git(["worktree", "list", "--porcelain"]);
    assert_eq!(trees.matches("worktree ").count(), 1, "{trees}");
}

/// The helper processes of this test: they run the binary and have files open below its directory.
fn holders(place: &Path) -> Vec<String> {
    let processes = fs::read_dir("/proc").unwrap().flatten();
    let line = |process: fs::DirEntry| {
        let words = fs::read(process.path().join("cmdline")).ok()?;
        let words = String::from_utf8_lossy(&words).replace('\0', " ");
        let mounts = fs::read_to_string(process.path().join("mountinfo")).unwrap_or_default();
        let is_ours = words.contains("__sandbox") && mounts.contains(place.to_str()?);
        is_ours.then(|| format!("{:?} {words}", process.file_name()))
    };
    processes.filter_map(line).collect()
}

fn sessions(book: &Book) -> Vec<(String, String)> {
    let text = |value: &serde_json::Value| value.as_str().unwrap().to_owned();
    let of = book.of("granted");
    of.map(|grant| (text(&grant["session"]), text(&grant["brief"]["label"]))).collect()
}

/// The result of each tool call of each agent; every call was answered exactly once.
pub(super) fn answers(book: &Book) -> BTreeMap<(String, String), String> {
    let mut tools: BTreeMap<&str, &str> = BTreeMap::new();
    let mut answers = BTreeMap::new();
    let mut answer = |session: &str, tool: &str, text: &serde_json::Value| {
        let text = text.as_str().unwrap().to_owned();
        let before = answers.insert((session.to_owned(), tool.to_owned()), text);
        assert_eq!(before, None, "{session}: {tool} was answered twice");
    };
    for event in &book.events {
        let session = event["session"].as_str().unwrap_or_default();
        match event["type"].as_str() {
            Some("replied") => {
                if let Some(name) = event.pointer("/tool_calls/0/name") {
                    tools.insert(session, name.as_str().unwrap());
                }
            }
            Some("tool_returned") => answer(session, tools[session], &event["content"]),
            Some("tool_refused") => answer(session, tools[session], &event["text"]),
            _ => {}
        }
    }
    answers
}

/// Plays runs of one kind until there were enough kills.
fn rounds(kind: &'static str, wanted: u64, seed: u64) -> Tally {
    let mut tally = Tally::default();
    while !tally.is_enough(wanted) {
        tell(&format!("run {} ({kind}): ADJUTANT_KILLS_SEED={seed}", tally.runs));
        let stage = Stage::new(kind);
        let number = tally.runs * 2 + u64::from(kind == "overlay");
        tally.add(stage.play(&mut Chance::new(seed).branch(number + 1)));
        stage.check();
    }
    tally
}

#[test]
fn killed_writers_in_workspaces_leave_their_work_exactly_once() {
    let wanted = std::env::var("ADJUTANT_KILLS").map_or(KILLS, |count| count.parse().unwrap());
    let (seed, began) = (seed(), Instant::now());
    let mut total = Tally::default();
    thread::scope(|scope| {
        let kinds = ["overlay", "worktree"];
        let all = kinds.map(|kind| scope.spawn(move || rounds(kind, wanted.div_ceil(2), seed)));
        for one in all {
            total.add(one.join().unwrap());
        }
    });
    let Tally { kills, making, keeping, otherwise, runs } = total;
    let took = began.elapsed().as_secs_f64();
    tell(&format!(
        "{kills} kills in {runs} runs of writers in workspaces: {making} while one was made, {keeping} \
         while work was kept, {otherwise} at other times; seed {seed}, {took:.0} s"
    ));
    assert!(making > 0 && keeping > 0, "{total:?}");
}
