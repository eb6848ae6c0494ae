//! The invariants of a run after any number of kills. The oracle is the log of the fake server.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;

use adjutant_testkit::fake::{DeliveryOutcome, RecordedRequest};
use serde_json::{Value, json};

use super::book::{Book, Turn, tokens};
use super::cast::{Part, Stage};
use super::play::Played;
use super::{files, kernel};

/// The outcome and the report of each agent.
pub(crate) fn ends(stage: &Stage, run: &str) -> Vec<Value> {
    let out = stage.rig.run(["result", run, "--json"]);
    assert_eq!(out.code, 0, "{out}");
    let results = out.json()["results"].as_array().unwrap().clone();
    let end = |one: &Value| json!([one["label"], one["outcome"], one["report"]]);
    results.iter().map(end).collect()
}

/// Checks every invariant of a run.
pub(crate) fn check(stage: &Stage, played: &Played, undisturbed: &[Value]) {
    let book = Book::read(&stage.rig.run_folder(&played.run).join("journal.jsonl"));
    nothing_is_bought_twice(played);
    conversations_go_on(&played.requests);
    assert_eq!(ends(stage, &played.run), undisturbed, "it ended otherwise");
    bills_hold(stage, played, &book);
    effects_happen_once(stage, &book);
    let log = stage.rig.run(["log", &played.run, "--json"]);
    assert_eq!((log.code, log.stderr.as_str()), (0, ""), "{log}");
    assert_eq!(log.stdout.lines().count(), book.events.len(), "the journal reads otherwise");
    let left = kernel::working_below(stage.rig.path());
    assert!(left.is_empty(), "processes were left: {left:?}");
    if stage.part == Part::Writers {
        files::check(&stage.rig, &played.run, &book);
    }
}

fn turn(request: &RecordedRequest) -> Turn {
    assert_eq!((request.status, &request.complaint), (200, &None), "the server refused it");
    (request.when.clone().unwrap(), request.turn.unwrap() as u64)
}

fn nothing_is_bought_twice(played: &Played) {
    let mut asked: BTreeMap<Turn, u64> = BTreeMap::new();
    let mut hit: BTreeMap<Turn, u64> = BTreeMap::new();
    for life in &played.lives {
        let requests = &played.requests[life.requests.clone()];
        let turns: BTreeSet<Turn> = requests.iter().map(turn).collect();
        assert_eq!(turns.len(), requests.len(), "one process asked for a turn twice");
        for turn in turns {
            assert!(
                !life.answered_before.contains(&turn),
                "{turn:?} was answered and bought again"
            );
            if life.killed && !life.answered.contains(&turn) {
                *hit.entry(turn.clone()).or_default() += 1;
            }
            *asked.entry(turn).or_default() += 1;
        }
    }
    for (turn, times) in asked {
        let crashes = hit.get(&turn).copied().unwrap_or(0);
        assert!(times <= 1 + crashes, "{turn:?}: {times} requests, {crashes} crashes");
    }
}

/// Every request of a conversation repeats the previous one word for word, also across processes.
fn conversations_go_on(requests: &[RecordedRequest]) {
    let mut latest: BTreeMap<&str, (u64, Vec<Value>)> = BTreeMap::new();
    for request in requests {
        let messages = messages(request);
        let (who, number) = (request.when.as_deref().unwrap(), turn(request).1);
        if let Some((before, earlier)) = latest.get(who) {
            assert!(number >= *before, "{who} went back from turn {before} to {number}");
            assert!(
                messages.starts_with(earlier),
                "{who}, turn {number}: {earlier:?} {messages:?}"
            );
            let same = messages.len() == earlier.len();
            assert_eq!(same, number == *before, "{who}, turn {number} is not turn {before}");
        }
        latest.insert(who, (number, messages));
    }
}

/// The messages of a request, without the cache markers, which move.
fn messages(request: &RecordedRequest) -> Vec<Value> {
    let body = request.json();
    let list = ["messages", "input", "contents"].iter().find_map(|name| body[*name].as_array());
    let mut list = list.unwrap().clone();
    for message in &mut list {
        if let Some(parts) = message.get_mut("content").and_then(Value::as_array_mut) {
            for part in parts {
                if let Some(part) = part.as_object_mut() {
                    part.remove("cache_control");
                }
            }
        }
    }
    list
}

fn bills_hold(stage: &Stage, played: &Played, book: &Book) {
    let whole = played.requests.iter().filter(|it| it.delivered == Some(DeliveryOutcome::Whole));
    let used = whole.filter_map(|request| request.usage);
    let used: u64 = used.map(|usage| usage.all_input() + usage.output).sum();
    let out = stage.rig.run(["cost", &played.run, "--json"]);
    let billed = tokens(&out.json()["total"]["usage"], &["input", "output"]);
    assert_eq!(billed, book.settled(), "the bill is not what was settled");
    assert!(billed >= used, "{billed} billed, but the server gave {used}");
    if played.tally.kills == 0 {
        assert_eq!(billed, used, "nothing happened and yet more was billed");
    }
}

/// A call reported as done was executed once, an interrupted one at most once, and no other was executed.
fn effects_happen_once(stage: &Stage, book: &Book) {
    let ledger = fs::read_to_string(stage.rig.path().join("ledger")).unwrap_or_default();
    let mut times: BTreeMap<&str, u64> = BTreeMap::new();
    for line in ledger.lines() {
        *times.entry(line).or_default() += 1;
    }
    for (name, arguments, answer) in book.calls() {
        let answer = answer.unwrap_or_else(|| panic!("{name} {arguments} was never answered"));
        if name == "Write" || name == "Edit" {
            continue;
        }
        if name != "Append" {
            assert!(!answer.starts_with("Interrupted"), "{name} only reads and can be repeated");
            continue;
        }
        let line = arguments["line"].as_str().unwrap();
        let happened = times.remove(line).unwrap_or(0);
        if answer.starts_with("Interrupted") {
            assert!(happened <= 1, "{line} was repeated");
        } else {
            assert_eq!((happened, answer), (1, format!("appended {line}")), "{line}");
        }
    }
    assert!(times.is_empty(), "nobody called for {times:?}");
}
