//! Kills real processes at random moments, resumes them and kills them again. In the end nothing is lost and nothing was
//! paid twice: everything is as without the kills.
//!
//! `ADJUTANT_KILLS=2000` is the long version; `ADJUTANT_KILLS_SEED` repeats a failure's choices.

pub(crate) mod book;
mod cast;
pub(crate) mod chance;
mod check;
mod continuations;
mod files;
mod harm;
mod kernel;
mod merges;
mod patches;
mod play;
mod registry;
mod rivals;
mod spaces;
mod specs;
mod stories;
mod sweep;

use std::collections::BTreeMap;
use std::io::Write;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Instant;

use adjutant_testkit::fake::Api;
use serde_json::Value;
use tokio::runtime::Handle;

use cast::{Part, Stage};
use chance::{Chance, seed};
use check::{check, ends};
use play::{Plan, Tally, play};

/// The default number of kills.
const KILLS: u64 = 100;

/// Runs at the same time; they mostly wait for the disk and for slow answers.
const STAGES: u64 = 4;

/// How many kills must have hit each kind of moment.
pub(crate) const AT_LEAST: u64 = 10;

/// Starts the thread that the servers live on.
pub(crate) fn servers() -> Handle {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let handle = runtime.handle().clone();
    thread::spawn(move || runtime.block_on(std::future::pending::<()>()));
    handle
}

fn wanted() -> u64 {
    std::env::var("ADJUTANT_KILLS").map_or(KILLS, |count| count.parse().unwrap())
}

/// Plays one of each undisturbed and returns how it ends.
pub(crate) fn undisturbed(runtime: &Handle) -> BTreeMap<Part, Vec<Value>> {
    let quiet = |part| {
        let stage = Stage::new(part, Api::Anthropic, runtime);
        let played = play(&stage, Plan::Quiet, runtime);
        let ends = ends(&stage, &played.run);
        check(&stage, &played, &ends);
        (part, ends)
    };
    Part::ALL.into_iter().map(quiet).collect()
}

/// Plays one run that is killed, chosen by its number.
fn disturbed(
    number: u64,
    seed: u64,
    runtime: &Handle,
    ends: &BTreeMap<Part, Vec<Value>>,
    failed: &AtomicBool,
) -> Tally {
    let chance = Chance::new(seed).branch(number + 1);
    let part = Part::ALL[usize::try_from(number % 4).unwrap()];
    let api = Api::ALL[usize::try_from(number / 4 % 4).unwrap()];
    let stage = Stage::new(part, api, runtime);
    let tried = catch_unwind(AssertUnwindSafe(|| {
        let played = play(&stage, Plan::Random(chance), runtime);
        check(&stage, &played, &ends[&part]);
        played.tally
    }));
    tried.unwrap_or_else(|panic| {
        failed.store(true, Ordering::Relaxed);
        tell(&format!("run {number} ({part:?}, {api:?}) failed: ADJUTANT_KILLS_SEED={seed}"));
        resume_unwind(panic)
    })
}

/// Prints what was tried, also if the test passes.
pub(crate) fn tell(text: &str) {
    // Not with a print macro, whose output a passing test captures.
    let _ = writeln!(std::io::stderr(), "{text}");
}

#[test]
fn killed_runs_resume_without_losing_or_repeating_paid_work() {
    let runtime = servers();
    let (seed, wanted, began) = (seed(), wanted(), Instant::now());
    let ends = undisturbed(&runtime);
    let total = Mutex::new(Tally::default());
    let (number, failed) = (AtomicU64::new(0), AtomicBool::new(false));
    thread::scope(|scope| {
        for _ in 0..STAGES {
            scope.spawn(|| {
                while !failed.load(Ordering::Relaxed) && !total.lock().unwrap().is_enough(wanted) {
                    let number = number.fetch_add(1, Ordering::Relaxed);
                    let tally = disturbed(number, seed, &runtime, &ends, &failed);
                    total.lock().unwrap().add(&tally);
                }
            });
        }
    });
    let Tally { kills, stream, tool, sync, recovery, before_all, deep, runs } =
        *total.lock().unwrap();
    tell(&format!(
        "{kills} kills in {runs} runs: {stream} in a stream, {tool} in a tool, {sync} in a sync, \
         {recovery} in recovery, {before_all} before anything had begun; {deep} runs were killed \
         three times while they went on; seed {seed}, {:.0} s",
        began.elapsed().as_secs_f64()
    ));
    if sync == 0 {
        tell(
            "NOT CHECKED: no sync can be seen here, so none was hit: a disk in memory, or no /proc",
        );
    }
    for (place, count) in [("a stream", stream), ("a tool", tool), ("recovery", recovery)] {
        assert!(count >= AT_LEAST.min(wanted / 20), "only {count} kills fell in {place}");
    }
    assert!(sync == 0 || sync >= AT_LEAST.min(wanted / 20), "only {sync} kills fell in a sync");
}
