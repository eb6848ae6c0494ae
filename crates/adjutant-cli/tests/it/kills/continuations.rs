//! Kills a writer whose task is three times larger than its window, repeatedly. In the end it is completed, each step of
//! the work was done once, and every conversation began with the recorded bytes.

use std::collections::BTreeSet;
use std::fs;
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::Signal;

use super::book::Book;
use super::chance::{Chance, seed};
use super::tell;
use crate::support::repository::Repo;
use crate::support::rig::{Call, Rig};
use crate::support::running::{GUARD, Running};

/// The default number of kills.
const KILLS: u64 = 12;

/// Kills of one run before it may finish.
const DEEPEST: u64 = 12;

/// The context window in tokens.
const WINDOW: usize = 96_000;

/// The turn in which the agent reports.
const LAST: usize = 76;

/// Records after which a kill falls: at work, when the note is asked for and written, and when the next conversation
/// begins.
const RECORDS: [&str; 7] =
    ["told", "continued", "replied", "reserved", "write_prepared", "tool_called", "tool_returned"];

/// In each turn the agent reads a part of about 4,000 tokens and adds the number of the turn to a list.
fn script() -> String {
    format!(
        r#"
        window = {WINDOW}
        [[turn]]
        last = "Write the handover note"
        text = "The list is up to date."
        [[turn]]
        turn = {LAST}
        text = "All parts are in the list."
        [[turn]]
        times = "forever"
        text = "I add {{{{turn}}}}."
        [[turn.call]]
        tool = "Read"
        args = {{ path = "part-{{{{turn}}}}" }}
        [[turn.call]]
        tool = "Edit"
        args = {{ file_path = "list", old_string = "END", new_string = "{{{{turn}}}}\nEND" }}
        "#
    )
}

struct Stage {
    repo: Repo,
}

impl Stage {
    fn new() -> Self {
        let repo = Repo { rig: Rig::with_script(&script()) };
        repo.git(["init", "-q", "-b", "main", "."]);
        repo.rig.write("list", "END\n");
        let line = format!("{}\n", "word ".repeat(19));
        for turn in 1..LAST {
            repo.rig.write(&format!("part-{turn}"), line.repeat(16_000 / line.len()));
        }
        repo.commit("first");
        Self { repo }
    }

    fn next(&self) -> Call<'_> {
        let rig = &self.repo.rig;
        let call = match rig.runs().first() {
            Some(run) if self.book().began() => rig.call(["resume", run, "--yes"]),
            Some(_) | None => {
                // A run that never began left a folder and nothing else.
                let _ = fs::remove_dir_all(rig.state().join("runs"));
                rig.delegating(&["--write", "--set", "max_output_tokens=4000", "-t", "w=Do it"])
            }
        };
        call.env("PATH", std::env::var_os("PATH").unwrap())
    }

    fn book(&self) -> Book {
        let run = self.repo.rig.runs().into_iter().next();
        run.map_or_else(Book::default, |run| {
            Book::read(&self.repo.rig.run_folder(&run).join("journal.jsonl"))
        })
    }

    /// Plays a run to its end; returns the number of kills, and how many fell between the question for a note and the
    /// next conversation.
    fn play(&self, chance: &mut Chance) -> (u64, u64) {
        let (mut kills, mut while_continuing) = (0, 0);
        while !self.book().is_over() {
            let before = self.book().events.len();
            let mut running = self.next().start();
            if kills < DEEPEST {
                if self.wait_for(chance, before, &mut running) {
                    running.signal(Signal::KILL);
                }
                if running.finish().code == 128 + 9 {
                    kills += 1;
                    while_continuing += u64::from(is_continuing(&self.book()));
                }
            } else {
                let out = running.finish();
                assert!(self.book().is_over(), "{out}");
            }
        }
        (kills, while_continuing)
    }

    /// Waits until a random record was written in this life; says whether that was before the program ended.
    fn wait_for(&self, chance: &mut Chance, before: usize, running: &mut Running<'_>) -> bool {
        let record = RECORDS[usize::try_from(chance.below(RECORDS.len() as u64)).unwrap()];
        let number = 1 + usize::try_from(chance.below(4)).unwrap();
        // There are only three questions for a note.
        let number = if ["told", "continued"].contains(&record) { 1 } else { number };
        let until = Instant::now() + GUARD;
        loop {
            let events = self.book().events;
            let written = events.iter().skip(before).filter(|it| it["type"] == record).count();
            if written >= number {
                return true;
            }
            if running.has_ended() {
                return false;
            }
            assert!(Instant::now() < until, "{record} never came");
            thread::sleep(Duration::from_micros(200));
        }
    }

    fn check(&self) {
        let (rig, book) = (&self.repo.rig, self.book());
        let run = rig.only_run();
        let [ended] =
            &book.of("ended").filter(|it| it["session"] != root(&run)).collect::<Vec<_>>()[..]
        else {
            panic!("{:#?}", book.events)
        };
        assert_eq!(ended["outcome"], "completed", "{ended}");
        let continued = book.of("continued").count();
        assert!((1..=3).contains(&continued), "{continued} continuations");
        let read: usize =
            book.of("tool_returned").map(|event| event["content"].as_str().unwrap().len()).sum();
        assert!(read / 4 > 3 * WINDOW, "{read} bytes are not three times the window");
        let reference = format!("refs/adjutant/{run}/{}", ended["session"].as_str().unwrap());
        let list = self.repo.git(["show", &format!("{reference}:list")]);
        let numbers: Vec<&str> = list.lines().filter(|line| *line != "END").collect();
        let distinct: BTreeSet<&str> = numbers.iter().copied().collect();
        assert_eq!(distinct.len(), numbers.len(), "an edit was made twice: {list}");
        let lost = book.of("tool_returned").filter(|event| {
            event["content"].as_str().unwrap().starts_with("Interrupted before it was done")
        });
        assert_eq!(numbers.len() + lost.count(), LAST - 1 - notes(&book), "{list}");
        let shown = rig.call(["tree", &run]).run();
        let s = if continued == 1 { "" } else { "s" };
        assert!(shown.stdout.contains(&format!("{continued} continuation{s}")), "{shown}");
    }
}

fn root(run: &str) -> String {
    run.replacen("run_", "sess_", 1)
}

/// Returns how often the agent was asked for a note.
fn notes(book: &Book) -> usize {
    book.of("told").filter(|event| event["nudge"] == "handover_note").count()
}

/// Says whether a note was asked for after which no fresh conversation has begun.
fn is_continuing(book: &Book) -> bool {
    notes(book) > book.of("continued").count()
}

#[test]
fn killed_agent_with_a_task_three_times_its_window_completes() {
    let wanted = std::env::var("ADJUTANT_KILLS")
        .map_or(KILLS, |count| count.parse::<u64>().unwrap().div_ceil(20));
    let (seed, began) = (seed(), Instant::now());
    let (mut runs, mut kills, mut while_continuing) = (0, 0, 0);
    while kills < wanted {
        runs += 1;
        tell(&format!("run {runs} with continuations: ADJUTANT_KILLS_SEED={seed}"));
        let stage = Stage::new();
        let played = stage.play(&mut Chance::new(seed).branch(runs));
        stage.check();
        (kills, while_continuing) = (kills + played.0, while_continuing + played.1);
    }
    tell(&format!(
        "{kills} kills in {runs} runs with continuations, {while_continuing} between a note and the next \
         conversation; seed {seed}, {:.0} s",
        began.elapsed().as_secs_f64()
    ));
}
