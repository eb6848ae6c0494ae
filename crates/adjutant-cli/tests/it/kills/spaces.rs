//! Writers in workspaces of both kinds, killed at random moments until they are left alone: each result
//! holds the work once, the user's files are as they were, and nothing of a workspace stays behind.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::Signal;

use super::book::Book;
use super::chance::{Chance, seed};
use super::{kernel, tell};
use crate::rig::{Call, Rig};
use crate::work_rig::Repo;

/// Kills when nobody says how many.
const KILLS: u64 = 24;

/// Kills of one run before it is left alone.
const DEEPEST: u64 = 4;

/// About as long as a run takes.
const LATEST_MS: u64 = 700;

const LABELS: [&str; 2] = ["one", "two"];

fn script() -> String {
    let writer = |label: &str| {
        let turn = |call: &str| format!("[[turn]]\nlabel = \"{label}\"\n{call}\n");
        let tool = |name: &str, args: &str| {
            turn(&format!("[[turn.call]]\ntool = \"{name}\"\nargs = {args}"))
        };
        let edit = "{ file_path = \"list\", old_string = \"END\", new_string = \"added\\nEND\" }";
        let run = "{ command = \"sleep 0.05; echo ran >> ran; sleep 0.05\" }";
        let write = "{ file_path = \"new/file\", content = \"new\\n\" }";
        tool("Edit", edit) + &tool("Run", run) + &tool("Write", write) + &turn("text = \"done\"")
    };
    format!("delay_ms = 15\n{}{}", writer(LABELS[0]), writer(LABELS[1]))
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

    /// Plays a run to its end; returns how often it was killed.
    fn play(&self, chance: &mut Chance) -> u64 {
        let mut kills = 0;
        while !self.is_over() {
            let mut running = self.next().start();
            if kills < DEEPEST && (kills == 0 || chance.below(4) > 0) {
                // The moment itself is what is tried, so nothing is waited for.
                thread::sleep(Duration::from_micros(chance.below(LATEST_MS * 1_000)));
                running.signal(Signal::KILL);
                kills += u64::from(running.finish().code == 128 + 9);
            } else {
                let out = running.finish();
                assert!(self.is_over(), "{out}");
            }
        }
        kills
    }

    fn check(&self) {
        let (rig, repo) = (&self.repo.rig, &self.repo);
        let run = rig.only_run();
        let book = self.book(&run);
        assert_eq!(repo.state(), self.before, "the user's files changed");
        let answers = answers(&book);
        for kept in book.of("space_kept") {
            assert_eq!(kept["problem"], serde_json::Value::Null, "{kept}");
        }
        for (session, label) in sessions(&book) {
            let reference = format!("refs/adjutant/{run}/{session}");
            let commit = repo.git(["rev-parse", "--verify", &reference]);
            let show = |path: &str| repo.git(["show", &format!("{commit}:{path}")]);
            let names = repo.git(["ls-tree", "-r", "--name-only", &commit]);
            let has = |path: &str| names.lines().any(|name| name == path);
            let told = |tool: &str| answers[&(session.clone(), tool.to_owned())].as_str();
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

/// Holds that no process, mount or work tree of the workspaces of a repository is left.
pub(super) fn nothing_is_left(repo: &Repo) {
    let place = repo.rig.path();
    // A holder ends when its socket does; the kernel may take a moment to say so.
    let until = Instant::now() + Duration::from_secs(5);
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

/// The helpers of this place: their program is ours and they hold something below it.
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

/// What each was told of its call of each tool; every call was answered, and only once.
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

#[test]
fn writers_in_workspaces_are_killed_and_their_work_is_there_once() {
    let wanted = std::env::var("ADJUTANT_KILLS").map_or(KILLS, |count| count.parse().unwrap());
    let (seed, began) = (seed(), Instant::now());
    let (mut kills, mut runs) = (0, 0);
    while kills < wanted {
        for kind in ["overlay", "worktree"] {
            tell(&format!("run {runs} ({kind}): ADJUTANT_KILLS_SEED={seed}"));
            let stage = Stage::new(kind);
            kills += stage.play(&mut Chance::new(seed).branch(runs + 1));
            stage.check();
            runs += 1;
        }
    }
    let took = began.elapsed().as_secs_f64();
    tell(&format!(
        "{kills} kills in {runs} runs of writers in workspaces; seed {seed}, {took:.0} s"
    ));
}
