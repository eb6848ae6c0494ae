//! The index of ended runs: whatever happens to it or to a run, lists show what the journals say.

use std::fs;
use std::path::PathBuf;

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::delegate::signals;
use crate::support::journal;
use crate::support::rig::Rig;
use crate::support::schema::assert_fits;

/// A script for one task that completes; every other task reaches the end of the script and fails.
const SCRIPT: &str = "price = { input = 3.0, output = 15.0 }\n[[turn]]\nlabel = 'good'\ntext = 'done'\nusage = { input = 100, output = 10 }";

/// A place in which one task completed and one failed, twice.
fn rig() -> Rig {
    let rig = Rig::with_script(SCRIPT);
    for _ in 0..2 {
        assert_eq!(rig.delegate(&["-t", "good=Do it", "-t", "bad=Fail"]).code, 3);
    }
    rig
}

fn index(rig: &Rig) -> PathBuf {
    rig.state().join("index.json")
}

fn indexed_runs(rig: &Rig) -> Vec<String> {
    let index: Value = serde_json::from_slice(&fs::read(index(rig)).unwrap()).unwrap();
    let runs = index["runs"].as_array().unwrap().iter();
    let mut runs: Vec<String> = runs.map(|it| it["run"].as_str().unwrap().to_owned()).collect();
    runs.sort_unstable();
    runs
}

/// What every list says that reads the index.
fn lists(rig: &Rig) -> Vec<Value> {
    let commands: [&[&str]; 5] = [
        &["errors", "--all"],
        &["cost", "--by", "folder"],
        &["cost", "--by", "model"],
        &["cost", "--by", "agent"],
        &["cost", "--by", "day"],
    ];
    let list = |args: &&[&str]| {
        let out = rig.call(*args).arg("--json").run();
        assert_eq!((out.code, out.stderr.as_str()), (0, ""), "{args:?}: {out}");
        let json = out.json();
        assert_fits(if args[0] == "errors" { "errors" } else { "cost-sums" }, &json);
        json
    };
    commands.iter().map(list).collect()
}

/// The same from the journals alone.
fn lists_without_index(rig: &Rig) -> Vec<Value> {
    fs::remove_file(index(rig)).unwrap();
    let folded = lists(rig);
    assert!(index(rig).is_file(), "the next reader has an index again");
    folded
}

/// Checks that lists are the same from the index and from the journals.
pub(crate) fn assert_index_agrees(rig: &Rig) {
    lists(rig);
    let indexed = lists(rig);
    assert_eq!(indexed, lists_without_index(rig));
}

#[test]
fn ended_runs_are_indexed_and_lists_are_the_same_with_and_without_the_index() {
    let rig = rig();
    assert!(!index(&rig).exists());
    assert_index_agrees(&rig);
    assert_eq!(indexed_runs(&rig), rig.runs());
    assert_eq!(lists(&rig)[0]["errors"].as_array().unwrap().len(), 2);
}

#[test]
fn a_live_run_is_listed_but_not_indexed_and_a_resumed_one_is_read_again() {
    let rig = signals::rig();
    let mut run = signals::hanging(&rig);
    run.wait_for("[quick] ✓ complete");
    let spent_live = lists(&rig)[1]["total"]["calls"].clone();
    assert_eq!(spent_live, 2, "the open call is not settled yet");
    assert!(!index(&rig).exists());
    run.signal(Signal::KILL);
    assert_eq!(run.finish().code, 128 + 9);
    let code = |rig: &Rig| lists(rig)[0]["errors"][0]["code"].clone();
    assert_eq!(code(&rig), "INTERRUPTED");
    assert_eq!(indexed_runs(&rig), rig.runs());
    let mut resumed = rig.call(["resume", "--yes"]).start();
    resumed.wait_for("Resuming");
    assert_eq!(lists(&rig)[0]["errors"], json!([]), "it is not interrupted while it is resumed");
    resumed.signal(Signal::INT);
    assert_eq!(resumed.finish().code, 130);
    assert_eq!(lists(&rig)[0]["errors"], json!([]), "a person ended it");
    assert_index_agrees(&rig);
}

#[test]
fn an_error_marked_as_fixed_and_a_pruned_run_are_read_again() {
    let rig = rig();
    let before = lists(&rig);
    let id = before[0]["errors"][0]["id"].as_str().unwrap();
    assert_eq!(rig.run(["errors", "fixed", id]).code, 0);
    let fixed = lists(&rig);
    assert_eq!(fixed[0]["errors"][0]["fix_status"], "fixed");
    assert_eq!(fixed[1..], before[1..]);
    for run in rig.runs() {
        journal::age(&rig.run_folder(&run), &run);
    }
    let aged = lists(&rig);
    assert_eq!(rig.run(["prune"]).code, 0);
    let pruned = lists(&rig);
    assert_ne!(pruned[0], aged[0], "the messages have expired");
    assert_eq!(pruned[1..], aged[1..], "the cost has not");
    assert_index_agrees(&rig);
}

#[test]
fn a_run_whose_directory_was_removed_is_forgotten() {
    let rig = rig();
    lists(&rig);
    let runs = rig.runs();
    fs::remove_dir_all(rig.run_folder(&runs[0])).unwrap();
    assert_eq!(lists(&rig)[0]["errors"].as_array().unwrap().len(), 1);
    assert_eq!(indexed_runs(&rig), runs[1..]);
}

#[test]
fn a_damaged_index_is_replaced() {
    let rig = rig();
    lists(&rig);
    let sound = lists(&rig);
    let bytes = fs::read(index(&rig)).unwrap();
    let mut flipped = bytes.clone();
    flipped[bytes.len() / 2] ^= 1;
    let other_version =
        String::from_utf8(bytes.clone()).unwrap().replace("\"summary\":", "\"summary\":9");
    for damaged in [&[][..], b"{}\n", &bytes[..bytes.len() / 2], &flipped, other_version.as_bytes()]
    {
        fs::write(index(&rig), damaged).unwrap();
        assert_eq!(lists(&rig), sound);
        assert_eq!(fs::read(index(&rig)).unwrap(), bytes);
    }
}

#[test]
fn lists_work_where_the_index_cannot_be_written() {
    let rig = rig();
    let folded = lists(&rig);
    fs::remove_file(index(&rig)).unwrap();
    // A directory cannot be replaced by a file, whatever rights the user has.
    fs::create_dir_all(index(&rig).join("in-the-way")).unwrap();
    assert_eq!(lists(&rig), folded);
    assert_eq!(lists(&rig), folded);
    let left = fs::read_dir(rig.state()).unwrap().map(|it| it.unwrap().file_name());
    let left: Vec<_> = left.filter(|name| name.to_string_lossy().ends_with(".tmp")).collect();
    assert_eq!(left.len(), 0, "{left:?}");
}

#[test]
fn processes_that_write_the_index_at_once_all_read_the_same() {
    let rig = rig();
    let expected = lists(&rig);
    for _ in 0..5 {
        fs::remove_file(index(&rig)).unwrap();
        let started: Vec<_> =
            (0..4).map(|_| rig.call(["errors", "--all", "--json"]).start()).collect();
        for out in started.into_iter().map(|it| it.finish()) {
            assert_eq!(out.json(), expected[0], "{out}");
        }
        assert_eq!(indexed_runs(&rig), rig.runs());
    }
}

#[test]
fn a_damaged_run_is_reported_each_time_and_never_indexed() {
    let rig = rig();
    lists(&rig);
    let run = rig.runs()[0].clone();
    journal::damage(&rig.run_folder(&run).join("journal.jsonl"), 3);
    for _ in 0..2 {
        let out = rig.run(["errors", "--json"]);
        assert_eq!(out.code, 0, "{out}");
        assert!(out.stderr.contains(&run) && out.stderr.contains("damaged"), "{out}");
        assert_eq!(indexed_runs(&rig), rig.runs()[1..]);
    }
}

#[test]
fn a_run_of_this_directory_is_found_behind_many_of_another() {
    let rig = Rig::with_script(SCRIPT);
    assert_eq!(rig.delegate(&["-t", "good=Do it"]).code, 0);
    let here = rig.only_run();
    let other = rig.path().join("other");
    fs::create_dir(&other).unwrap();
    for _ in 0..20 {
        let out = rig.delegating(&["-t", "good=Do it"]).cwd(&other).run();
        assert_eq!(out.code, 0, "{out}");
    }
    for _ in 0..2 {
        let tree = rig.run(["tree", "--json"]);
        assert_eq!((tree.json()["run"].as_str(), tree.stderr.as_str()), (Some(&*here), ""));
        let listed = rig.run(["status", "--here", "--json"]).json();
        assert_eq!(listed["runs"].as_array().unwrap().len(), 1, "{listed}");
    }
    assert_eq!(indexed_runs(&rig), rig.runs());
}
