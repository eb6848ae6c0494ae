//! One run that is killed repeatedly: when each kill happened, and what was recorded by then.

use std::collections::{BTreeSet, VecDeque};
use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::ops::Range;
use std::os::unix::process::ExitStatusExt;
use std::thread;
use std::time::{Duration, Instant};

use adjutant_testkit::fake::{DeliveryOutcome, RecordedRequest};
use serde_json::Value;
use tokio::runtime::Handle;

use super::book::{Book, Turn};
use super::cast::{Inject, Part, Stage};
use super::chance::Chance;
use super::{AT_LEAST, kernel};
use crate::support::running::ProcessGroup;

/// How long a run may take; it takes a fraction of a second.
const GUARD: Duration = Duration::from_secs(30);

/// The number of consecutive resumes that are killed before one may finish.
const DEEPEST: u64 = 3;

/// The longest a kill waits for its moment; about as long as a run takes.
const LATEST_MS: u64 = 160;

/// When to kill.
#[derive(Clone, Copy, Debug)]
enum Moment {
    /// After this many microseconds.
    After(u64),
    /// In the first sync after this many microseconds.
    Sync(u64),
    /// This long after the process has locked the run.
    Taken(u64),
}

impl Moment {
    fn draw(chance: &mut Chance, resumes: bool) -> Self {
        match chance.below(8) {
            0 | 1 => Self::Sync(chance.below(LATEST_MS * 1_000)),
            2 | 3 if resumes => Self::Taken(chance.below(4_000)),
            4 if resumes => Self::After(chance.below(LATEST_MS * 250)),
            _ => Self::After(chance.below(LATEST_MS * 1_000)),
        }
    }
}

/// One process of the program, and the state after it ended.
pub(crate) struct Life {
    pub(crate) killed: bool,
    /// Its requests, by their numbers in the server's log.
    pub(crate) requests: Range<usize>,
    /// The turns whose answers lay on disk before it began.
    pub(crate) answered_before: BTreeSet<Turn>,
    /// The turns whose answers lay on disk after it.
    pub(crate) answered: BTreeSet<Turn>,
}

/// The moments that kills hit; one kill may count for several.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Tally {
    pub(crate) kills: u64,
    pub(crate) stream: u64,
    pub(crate) tool: u64,
    pub(crate) sync: u64,
    pub(crate) recovery: u64,
    pub(crate) before_all: u64,
    /// Runs of which three resumes were killed.
    pub(crate) deep: u64,
    pub(crate) runs: u64,
}

impl Tally {
    /// Says whether enough was tried: so many kills, and some in every kind of place unless it
    /// cannot be hit at all.
    pub(crate) fn is_enough(&self, wanted: u64) -> bool {
        let least = self.stream.min(self.tool).min(self.sync).min(self.recovery);
        self.kills >= 3 * wanted || (self.kills >= wanted && least >= AT_LEAST)
    }

    pub(crate) fn add(&mut self, other: &Self) {
        let Self { kills, stream, tool, sync, recovery, before_all, deep, runs } = other;
        self.kills += kills;
        self.stream += stream;
        self.tool += tool;
        self.sync += sync;
        self.recovery += recovery;
        self.before_all += before_all;
        self.deep += deep;
        self.runs += runs;
    }
}

/// A run that was played to its end.
pub(crate) struct Played {
    pub(crate) run: String,
    pub(crate) lives: Vec<Life>,
    pub(crate) requests: Vec<RecordedRequest>,
    pub(crate) tally: Tally,
}

/// How a run is disturbed.
pub(crate) enum Plan {
    /// Not at all.
    Quiet,
    /// By kills at random moments.
    Random(Chance),
    /// By strace, in the first lives of the program: a kill at a system call.
    Traced(VecDeque<Inject>),
}

impl Plan {
    fn next(&mut self, resumes: bool, kills: u64) -> Option<Disturbance> {
        match self {
            Self::Quiet => None,
            Self::Random(chance) => {
                // Whether another kill follows is drawn before each one, which gives the same distribution.
                let more = kills == 0 || (kills <= DEEPEST && chance.below(4) > 0);
                more.then(|| Disturbance::Kill(Moment::draw(chance, resumes)))
            }
            Self::Traced(injections) => injections.pop_front().map(Disturbance::Inject),
        }
    }
}

enum Disturbance {
    Kill(Moment),
    Inject(Inject),
}

/// Plays a run to its end.
pub(crate) fn play(stage: &Stage, mut plan: Plan, runtime: &Handle) -> Played {
    let mut lives: Vec<Life> = Vec::new();
    let mut tally = Tally { runs: 1, ..Tally::default() };
    loop {
        let (run, book) = begun(stage);
        let answered_before = book.answered();
        if book.is_over() {
            nothing_is_left(stage, &run);
            let requests = stage.server.requests();
            tally.deep = u64::from(tally.kills > DEEPEST);
            return Played { run, lives, requests, tally };
        }
        let first = stage.server.request_count();
        if !book.began() {
            nothing_began(stage);
        }
        let disturbance = plan.next(book.began(), tally.kills);
        let inject = match &disturbance {
            Some(Disturbance::Inject(inject)) => Some(*inject),
            Some(Disturbance::Kill(_)) | None => None,
        };
        let mut child = if book.began() { stage.resume(&run, inject) } else { stage.start(inject) };
        let killed = match disturbance {
            Some(Disturbance::Kill(moment)) => kill(stage, &mut child, moment, &run),
            Some(Disturbance::Inject(inject)) => {
                let status = child.0.wait().unwrap();
                (status.signal() == Some(9)).then_some(inject.call == "fdatasync")
            }
            None => None,
        };
        if let Some(in_sync) = killed {
            calm(stage, runtime);
            let life = Requests { first, server: stage.server.requests() };
            tally.kills += 1;
            tally.sync += u64::from(in_sync);
            classify(stage, &life, child.0.id(), &mut tally);
        } else {
            finish(stage, &mut child);
        }
        let answered = begun(stage).1.answered();
        let requests = first..stage.server.request_count();
        lives.push(Life { killed: killed.is_some(), requests, answered_before, answered });
        no_ghost(stage);
    }
}

struct Requests {
    first: usize,
    server: Vec<RecordedRequest>,
}

/// Counts where a kill fell, by what the server, the journal and the lock say afterwards.
fn classify(stage: &Stage, life: &Requests, pid: u32, tally: &mut Tally) {
    let (run, book) = begun(stage);
    let left = |request: &RecordedRequest| request.delivered == Some(DeliveryOutcome::Left);
    tally.stream += u64::from(life.server[life.first..].iter().any(left));
    tally.tool += u64::from(book.is_in_tool());
    tally.before_all += u64::from(!book.began());
    let resumes = book.of("resumed").count() > 0 || life.first > 0;
    let lock = fs::read_to_string(stage.rig.run_folder(&run).join("lock")).unwrap_or_default();
    let lock: Value = serde_json::from_str(&lock).unwrap_or_default();
    let took_it = lock["pid"] == pid;
    tally.recovery += u64::from(resumes && took_it && life.server.len() == life.first);
}

/// Returns the run that began, and what its journal holds; an empty one before any did.
fn begun(stage: &Stage) -> (String, Book) {
    let read = |run: String| {
        let book = Book::read(&stage.rig.run_folder(&run).join("journal.jsonl"));
        (run, book)
    };
    let mut runs: Vec<_> = stage.rig.runs().into_iter().map(read).collect();
    let began = runs.iter().position(|(_, book)| book.began());
    let died = runs.len();
    assert!(runs.iter().filter(|(_, book)| book.began()).count() <= 1, "{died} runs began");
    began.map_or_else(Default::default, |at| runs.swap_remove(at))
}

/// Kills at the moment, unless the program ends before; says whether it was in a sync.
fn kill(stage: &Stage, child: &mut ProcessGroup, moment: Moment, run: &str) -> Option<bool> {
    let began = Instant::now();
    let pid = child.0.id();
    let (wait, ready): (u64, Box<dyn Fn() -> bool>) = match moment {
        Moment::After(wait) => (wait, Box::new(|| true)),
        Moment::Sync(wait) => (wait, Box::new(move || kernel::is_syncing(pid))),
        Moment::Taken(wait) => {
            let lock = stage.rig.run_folder(run).join("lock");
            let mine = format!("{{\"pid\":{pid},");
            let taken = || fs::read_to_string(&lock).is_ok_and(|text| text.starts_with(&mine));
            while !taken() && !has_ended(child) {
                not_forever(began, stage);
                thread::sleep(Duration::from_micros(100));
            }
            (wait, Box::new(|| true))
        }
    };
    let wait = Duration::from_micros(wait);
    let since = if matches!(moment, Moment::Taken(_)) { Instant::now() } else { began };
    while since.elapsed() < wait || !ready() {
        if has_ended(child) {
            return None;
        }
        not_forever(began, stage);
        let rest = wait.saturating_sub(since.elapsed());
        thread::sleep(rest.clamp(Duration::from_micros(50), Duration::from_millis(5)));
    }
    let in_sync = kernel::is_syncing(pid);
    child.0.kill().unwrap();
    let status = child.0.wait().unwrap();
    (status.signal() == Some(9)).then_some(in_sync)
}

fn has_ended(child: &mut ProcessGroup) -> bool {
    child.0.try_wait().unwrap().is_some()
}

/// Waits for the end of a program that is not killed; it must succeed.
fn finish(stage: &Stage, child: &mut ProcessGroup) {
    let began = Instant::now();
    while !has_ended(child) {
        not_forever(began, stage);
        thread::sleep(Duration::from_millis(2));
    }
    let status = child.0.wait().unwrap();
    assert!(status.success(), "{status}: {}", said(stage));
}

/// Ends the test when a program takes longer than anything here should.
fn not_forever(began: Instant, stage: &Stage) {
    assert!(began.elapsed() < GUARD, "it hangs: {}", said(stage));
}

fn said(stage: &Stage) -> String {
    fs::read_to_string(stage.rig.path().join("stderr")).unwrap_or_default()
}

/// Waits until the server has seen everything the dead program sent.
fn calm(stage: &Stage, runtime: &Handle) {
    // Connections are accepted in the order they were made: once this one is answered, no older one
    // waits. What the others carried was read before they were found closed.
    let mut probe = TcpStream::connect(stage.server.address()).unwrap();
    probe.write_all(b"BEHOLD\r\n\r\n").unwrap();
    let mut answer = String::new();
    probe.read_to_string(&mut answer).unwrap();
    assert!(answer.contains("400"), "{answer}");
    runtime.block_on(stage.server.wait_until_closed());
}

/// A run without a live process is not shown as running.
fn no_ghost(stage: &Stage) {
    let out = stage.rig.run(["status", "--json"]);
    assert_eq!(out.code, 0, "{out}");
    for run in out.json()["runs"].as_array().unwrap() {
        assert!(run["state"] == "interrupted" || run["state"] == "completed", "a ghost: {out}");
    }
}

/// Runs that died before their first record sent no request and are reported as such.
fn nothing_began(stage: &Stage) {
    assert_eq!(stage.server.request_count(), 0, "asked before anything was on disk");
    for run in stage.rig.runs() {
        let out = stage.rig.run(["resume", &run]);
        let said = format!("adjutant: nothing to resume: {run} never began\n");
        assert_eq!((out.stderr.as_str(), out.code), (said.as_str(), 2), "{out}");
        let out = stage.rig.run(["tree", &run]);
        let said = "nothing is recorded: the run died before its first step";
        assert!(out.code == 1 && out.stderr.contains(said), "{out}");
    }
}

/// Resuming an ended run starts nothing; the binary prints its result.
fn nothing_is_left(stage: &Stage, run: &str) {
    let before = stage.server.request_count();
    let status = stage.resume(run, None).0.wait().unwrap();
    let said = said(stage);
    if stage.part == Part::Engine {
        assert!(status.code() == Some(2) && said.contains("nothing to resume"), "{status}: {said}");
    } else {
        assert!(status.success(), "{status}: {said}");
    }
    assert_eq!(stage.server.request_count(), before, "it was resumed all the same");
}
