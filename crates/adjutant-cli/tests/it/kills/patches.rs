//! Kills an agent that writes in place while it applies patches of several files, repeatedly. In the end each file has
//! exactly the changes that the agent was told were made in it, each once, and `undo` restores everything.

use std::collections::BTreeMap;
use std::fs;
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::Signal;

use super::book::Book;
use super::chance::{Chance, seed};
use super::tell;
use crate::support::rig::{Call, Rig};
use crate::support::running::{GUARD, Running};

/// The default number of kills.
const KILLS: u64 = 12;

/// Kills of one run before it may finish.
const DEEPEST: u64 = 6;

/// Files that every patch changes; it also adds one.
const FILES: usize = 12;

/// The turn in which the agent reports.
const LAST: usize = 9;

/// In each turn a patch adds the number of the turn to every file, and a new file.
fn script() -> String {
    let change = |file: usize| {
        format!("*** Update File: list-{file}\n@@\n-END\n+in turn {{{{turn}}}}\n+END\n")
    };
    let changes: String = (0..FILES).map(change).collect();
    format!(
        r#"
        [[turn]]
        turn = {LAST}
        text = "All is patched."
        [[turn]]
        times = "forever"
        text = "I patch {{{{turn}}}}."
        [[turn.call]]
        tool = "apply_patch"
        [turn.call.args]
        input = '''
*** Begin Patch
{changes}*** Add File: made/{{{{turn}}}}
+in turn {{{{turn}}}}
*** End Patch
'''
        "#
    )
}

struct Stage {
    rig: Rig,
}

impl Stage {
    fn new() -> Self {
        let rig = Rig::with_script(&script());
        for file in 0..FILES {
            rig.write(&format!("list-{file}"), "END\n");
        }
        Self { rig }
    }

    fn next(&self) -> Call<'_> {
        match self.rig.runs().first() {
            Some(run) if self.book().began() => {
                self.rig.call(["resume", run, "--yes", "--in-place"])
            }
            Some(_) | None => {
                // A run that never began left a folder and nothing else.
                let _ = fs::remove_dir_all(self.rig.state().join("runs"));
                let flags = ["--preset", "command", "--in-place", "--set", "contract=report"];
                self.rig.delegating(&flags).args(["-t", "w=Patch it"])
            }
        }
    }

    fn book(&self) -> Book {
        let run = self.rig.runs().into_iter().next();
        run.map_or_else(Book::default, |run| {
            Book::read(&self.rig.run_folder(&run).join("journal.jsonl"))
        })
    }

    /// Plays a run to its end; returns the number of kills.
    fn play(&self, chance: &mut Chance) -> u64 {
        let mut kills = 0;
        while !self.book().is_over() {
            let before = self.book().of("write_prepared").count();
            let mut running = self.next().start();
            if kills < DEEPEST {
                if self.wait_for_patch(before + 1, &mut running) {
                    // Writing all files of a patch takes about as long.
                    let until = Instant::now() + Duration::from_micros(chance.below(12_000));
                    while Instant::now() < until {
                        std::hint::spin_loop();
                    }
                    running.signal(Signal::KILL);
                }
                kills += u64::from(running.finish().code == 128 + 9);
            } else {
                let out = running.finish();
                assert!(self.book().is_over(), "{out}");
            }
        }
        kills
    }

    /// Waits until this many patches were about to be applied; says whether that was before the program ended.
    fn wait_for_patch(&self, count: usize, running: &mut Running<'_>) -> bool {
        let until = Instant::now() + GUARD;
        loop {
            if self.book().of("write_prepared").count() >= count {
                return true;
            }
            if running.has_ended() {
                return false;
            }
            assert!(Instant::now() < until, "no patch was prepared");
            thread::sleep(Duration::from_micros(200));
        }
    }

    /// Returns the content of every file.
    fn files(&self) -> BTreeMap<String, String> {
        let read = |folder: &str| {
            let entries = fs::read_dir(self.rig.work().join(folder)).into_iter().flatten();
            let files = entries.map(Result::unwrap).filter(|it| it.file_type().unwrap().is_file());
            let named = |entry: fs::DirEntry| {
                let name = format!("{folder}{}", entry.file_name().display());
                (name, fs::read_to_string(entry.path()).unwrap())
            };
            files.map(named).collect::<Vec<_>>()
        };
        read("").into_iter().chain(read("made/")).collect()
    }

    /// Checks the files against the tool results and undoes everything. Returns how many patches were cut off in the
    /// middle.
    fn check(&self, before: &BTreeMap<String, String>) -> usize {
        let calls = self.book().calls();
        assert_eq!(calls.len(), LAST - 1, "a call is missing: {calls:?}");
        let (mut expected, mut in_the_middle) = (before.clone(), 0);
        for (turn, (_, _, answer)) in (1..).zip(calls) {
            let answer = answer.unwrap();
            let is_made = |path: &str| {
                let about = answer.lines().find(|line| line.contains(&format!("`{path}`")));
                let about = about.unwrap_or_else(|| panic!("nothing about {path}: {answer}"));
                let done = ["Replaced", "Created", "Interrupted, but it was done"];
                let is_done = done.iter().any(|words| about.starts_with(words));
                assert!(is_done || about.starts_with("Interrupted before it was done"), "{about}");
                is_done
            };
            let lists: Vec<String> = (0..FILES).map(|file| format!("list-{file}")).collect();
            let made: Vec<&String> = lists.iter().filter(|path| is_made(path)).collect();
            in_the_middle += usize::from(!made.is_empty() && made.len() < FILES);
            for path in made {
                let content = expected.get_mut(path).unwrap();
                *content = content.replace("END", &format!("in turn {turn}\nEND"));
            }
            let new = format!("made/{turn}");
            if is_made(&new) {
                expected.insert(new, format!("in turn {turn}\n"));
            }
        }
        assert_eq!(self.files(), expected, "the files are not what the agent was told");
        let out = self.rig.run(["undo", &self.rig.only_run(), "--json"]);
        assert_eq!(out.code, 0, "{out}");
        assert_eq!(self.files(), *before, "it was not taken back: {out}");
        in_the_middle
    }
}

#[test]
fn killed_patches_of_several_files_are_neither_repeated_nor_misreported() {
    let wanted = std::env::var("ADJUTANT_KILLS")
        .map_or(KILLS, |count| count.parse::<u64>().unwrap().div_ceil(10));
    let (seed, began) = (seed(), Instant::now());
    let (mut runs, mut kills, mut in_the_middle) = (0, 0, 0);
    while kills < wanted {
        runs += 1;
        tell(&format!("run {runs} with patches: ADJUTANT_KILLS_SEED={seed}"));
        let stage = Stage::new();
        let before = stage.files();
        kills += stage.play(&mut Chance::new(seed).branch(runs));
        in_the_middle += stage.check(&before);
    }
    tell(&format!(
        "{kills} kills in {runs} runs with patches, {in_the_middle} in the middle of a patch; seed {seed}, {:.0} s",
        began.elapsed().as_secs_f64()
    ));
}
