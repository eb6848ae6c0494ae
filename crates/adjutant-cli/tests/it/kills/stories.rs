//! Kills a story with children each time its journal has reached a random line. In the end nothing was delegated,
//! answered or paid twice, the PRD has the outcome once, and the user's files are unchanged.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use serde_json::{Value, json};

use super::book::{Book, tokens};
use super::chance::{Chance, seed};
use super::spaces::{answers, nothing_is_left};
use super::tell;
use crate::support::project::{Project, calls, done, says, writes};
use crate::support::rig::Call;
use crate::support::running::{GUARD, Running};

/// The default number of kills, half of them on each kind of workspace.
const KILLS: u64 = 24;

/// Kills of one story before it is left alone.
const DEEPEST: u64 = 10;

/// About as many lines as the journal of the story has; beyond them the kill falls on the PRD, or comes
/// too late.
const LINES: u64 = 85;

/// Spoils what was done and leaves something behind, none of which is a part of the work.
const VERIFY: &str = "rm -f own; echo spoilt > one; touch left; grep -q END two three";

const CHILDREN: [&str; 3] = ["One", "Two", "Three"];

fn project(kind: &str) -> Project {
    let edit = |who: &str, path: &str| {
        let args = json!({ "file_path": path, "old_string": "END", "new_string": "added\nEND" });
        calls(who, "Edit", &args)
    };
    let turns = vec![
        writes("US-001", "own", "own\n"),
        says("US-001", "[delegate:One:1]\n[delegate:Two:1]"),
        done("US-001"),
        edit("One", "one"),
        says("One", "[delegate:Three:1]"),
        done("One"),
        edit("Two", "two"),
        done("Two"),
        edit("Three", "three"),
        done("Three"),
    ];
    let prd = json!({ "userStories": [{ "id": "US-001", "title": "Log in", "passes": false }] });
    let script = json!({
        "price": { "input": 3.0, "output": 15.0 }, "delay_ms": 5, "turn": turns,
    });
    let project = Project::with_script(&prd, &script);
    for child in CHILDREN {
        project.rig().write(&child.to_lowercase(), "END\n");
    }
    project.repo.commit(kind);
    project.rig().write("mine", "untracked\n");
    project
}

struct Stage {
    project: Project,
    kind: &'static str,
    before: String,
}

impl Stage {
    fn new(kind: &'static str) -> Self {
        let project = project(kind);
        let before = project.own();
        Self { project, kind, before }
    }

    /// The id of the started run.
    fn run(&self) -> Option<String> {
        let runs = self.project.rig().runs();
        runs.into_iter().find(|run| self.book(run).began())
    }

    fn book(&self, run: &str) -> Book {
        Book::read(&self.journal(run))
    }

    fn journal(&self, run: &str) -> std::path::PathBuf {
        self.project.rig().run_folder(run).join("journal.jsonl")
    }

    /// Lines of all journals.
    fn lines(&self) -> u64 {
        let bytes = |run: &String| fs::read(self.journal(run)).unwrap_or_default();
        let runs = self.project.rig().runs();
        runs.iter().map(|run| bytes(run).iter().filter(|byte| **byte == b'\n').count() as u64).sum()
    }

    fn is_written(&self) -> bool {
        self.project.entry("US-001")["passes"] == true
    }

    /// The command that a user would type next.
    fn next(&self) -> Call<'_> {
        match self.run() {
            Some(run) if !self.book(&run).is_over() => self.project.call(["resume", &run, "--yes"]),
            // Where the run is over and the PRD has nothing of it, working on it writes it down.
            Some(_) | None => {
                let flags = ["--enable-delegation", "--workspace", self.kind];
                self.project.working(&flags).args(["--verify", VERIFY])
            }
        }
    }

    /// Kills the program once the journal has so many lines; says whether it was still there.
    fn kill_at(&self, mut running: Running<'_>, lines: u64) -> bool {
        let until = Instant::now() + GUARD;
        while self.lines() < lines && is_alive(running.pid()) {
            assert!(Instant::now() < until, "it hangs");
            // Polls, because waiting in a loop without a pause would take a processor from the program.
            thread::sleep(Duration::from_millis(1));
        }
        running.signal(Signal::KILL);
        running.finish().code == 128 + 9
    }

    /// Plays the story to its end; returns how often it was killed.
    fn play(&self, chance: &mut Chance) -> u64 {
        let mut kills = 0;
        while !self.is_written() {
            let call = self.next();
            if kills < DEEPEST && (kills == 0 || chance.below(4) > 0) {
                let now = self.lines();
                let end = LINES.saturating_sub(now).max(8);
                kills += u64::from(self.kill_at(call.start(), now + 1 + chance.below(end)));
            } else {
                let out = call.run();
                assert!(self.is_written(), "{out}");
            }
        }
        kills
    }

    fn check(&self) {
        let project = &self.project;
        assert_eq!(project.own(), self.before, "the user's files changed");
        let run = self.run().unwrap();
        let begun = project.rig().runs().iter().filter(|run| self.book(run).began()).count();
        assert_eq!(begun, 1, "the story was worked on twice");
        let book = self.book(&run);
        assert!(book.is_over(), "{run}");
        let labels: Vec<&Value> = book.of("granted").map(|it| &it["brief"]["label"]).collect();
        let wanted: BTreeSet<&str> = CHILDREN.into();
        let found: BTreeSet<&str> = labels.iter().map(|label| label.as_str().unwrap()).collect();
        assert_eq!((labels.len(), found), (3, wanted), "handed down more or less than once");
        let mut turns = BTreeSet::new();
        for reply in book.of("replied") {
            let turn = (reply["session"].to_string(), reply["turn"].to_string());
            assert!(turns.insert(turn), "answered twice: {reply}");
        }
        assert_eq!(turns.len(), 10, "each turn of the script was answered");
        // Whose only edit was cut short has nothing to merge.
        let root = run.replacen("run_", "sess_", 1);
        let kept = book.of("space_kept").filter(|it| !it["commit"].is_null());
        let kept = kept.map(|it| it["session"].as_str().unwrap()).filter(|it| *it != root);
        let merged = book.of("merged").map(|it| it["session"].as_str().unwrap());
        let (merged, kept): (Vec<&str>, BTreeSet<&str>) = (merged.collect(), kept.collect());
        assert_eq!(merged.len(), kept.len(), "merged more or less than once");
        assert_eq!(merged.into_iter().collect::<BTreeSet<_>>(), kept);
        self.check_work(&run, &book);
        self.check_bill(&run, &book);
        let pruned = project.call(["prune"]).run();
        assert_eq!(pruned.code, 0, "{pruned}");
        nothing_is_left(&project.repo);
    }

    /// The story's result has what each agent was told it did, once.
    fn check_work(&self, run: &str, book: &Book) {
        let answers = answers(book);
        let sessions: BTreeMap<&str, &str> = book
            .of("granted")
            .map(|it| (it["brief"]["label"].as_str().unwrap(), it["session"].as_str().unwrap()))
            .collect();
        for child in CHILDREN {
            let told = &answers[&(sessions[child].to_owned(), "Edit".to_owned())];
            let text = self.project.left(run, "US-001", &child.to_lowercase());
            assert_eq!(
                text.matches("added").count(),
                usize::from(!is_lost(told)),
                "{child}: {told}"
            );
        }
        let files = self.project.files(run, "US-001");
        let root = run.replacen("run_", "sess_", 1);
        let own = !is_lost(&answers[&(root, "Write".to_owned())]);
        for (file, is_kept) in [("mine", true), ("own", own), ("left", false)] {
            assert_eq!(files.contains(&file.to_owned()), is_kept, "{file}: {files:?}");
        }
    }

    /// The PRD has one entry for each, and what the journal says was spent.
    fn check_bill(&self, run: &str, book: &Book) {
        let entry = self.project.entry("US-001");
        let ids = ["US-001", "US-001-DEL-001", "US-001-DEL-001-DEL-001", "US-001-DEL-002"];
        let prd = self.project.prd();
        let stories = prd["userStories"].as_array().unwrap();
        let found: BTreeSet<&str> = stories.iter().map(|it| it["id"].as_str().unwrap()).collect();
        assert_eq!((stories.len(), found), (4, ids.into()), "{prd:#}");
        assert!(stories.iter().all(|story| story["passes"] == true), "{prd:#}");
        assert_eq!(entry["adjutant"]["run"], run);
        let spent = tokens(&entry["adjutant"], &["tokens_in", "tokens_out"]);
        assert_eq!(spent, book.settled(), "{entry:#}");
    }
}

fn is_lost(told: &str) -> bool {
    told.starts_with("Interrupted before it was done")
}

fn is_alive(pid: u32) -> bool {
    // A process that has ended stays in the table until it is waited for; its state says so.
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let state = stat.rsplit_once(')').map(|(_, rest)| rest.trim_start().chars().next());
    state.flatten().is_some_and(|state| state != 'Z' && state != 'X')
}

/// Plays stories in workspaces of one kind until half of the kills were made.
fn rounds(kind: &'static str) {
    let wanted = std::env::var("ADJUTANT_KILLS").map_or(KILLS, |count| count.parse().unwrap());
    let (seed, began) = (seed(), Instant::now());
    let (mut kills, mut runs) = (0, 0);
    while kills * 2 < wanted {
        tell(&format!("story {runs} ({kind}): ADJUTANT_KILLS_SEED={seed}"));
        let stage = Stage::new(kind);
        kills += stage.play(&mut Chance::new(seed).branch(runs + 1));
        stage.check();
        runs += 1;
    }
    let took = began.elapsed().as_secs_f64();
    tell(&format!("{kills} kills in {runs} stories ({kind}); seed {seed}, {took:.0} s"));
}

#[test]
fn stories_on_overlays_are_killed_and_nothing_is_done_twice() {
    rounds("overlay");
}

#[test]
fn stories_on_work_trees_are_killed_and_nothing_is_done_twice() {
    rounds("worktree");
}
