//! `watch` in a pipe and as JSON.

use rustix::process::Signal;
use serde_json::Value;

use crate::delegate::signals::{hanging, rig};
use crate::support::rig::Rig;
use crate::support::schema::assert_fits;

#[test]
fn watch_prints_a_line_per_event_and_the_tree_to_a_pipe() {
    let rig = rig();
    let mut run = hanging(&rig);
    let mut watch = rig.call(["watch"]).start();
    watch.wait_for_data("[slow] note: half of it is done").wait_for_data("[quick] ✓ complete");
    run.signal(Signal::INT);
    assert_eq!(run.finish().code, 130);
    let out = watch.finish();
    assert_eq!((out.code, out.stderr.as_str()), (130, ""), "it ends as the run did: {out}");
    insta::assert_snapshot!(out.data().lines().rev().take(5).last().unwrap(), @"run_0000000000_aaaaaa");
    assert!(out.data().contains("├─ #1 [slow] ■ cancelled · scout"), "{out}");
}

#[test]
fn watch_prints_the_same_json_events_as_delegate() {
    let rig = rig();
    let mut run = rig.delegating(&["-t", "quick=answer", "--events"]).start();
    run.wait_for_data("run_started");
    let told = run.finish();
    let watched = rig.run(["watch", "--json"]);
    let of = |out: &crate::support::rig::Output| -> Vec<Value> {
        out.lines().inspect(|event| assert_fits("events", event)).collect()
    };
    assert_eq!(of(&watched), of(&told), "{watched}");
    assert_eq!(watched.code, 0);
}

#[test]
fn watch_shows_the_last_state_of_dead_and_finished_runs() {
    let rig = rig();
    let mut run = hanging(&rig);
    run.wait_for("[quick] ✓ complete").signal(Signal::KILL);
    assert_eq!(run.finish().code, 128 + 9);
    let out = rig.run(["watch"]);
    assert_eq!(out.code, 3, "{out}");
    assert!(out.stdout.contains("├─ #1 [slow] ! interrupted"), "{out}");
    assert!(out.stderr.contains("`adjutant resume run_"), "{out}");
    assert_eq!(rig.delegate(&["-t", "quick=again"]).code, 0);
    let out = rig.run(["watch"]);
    assert_eq!((out.code, out.stderr.as_str()), (0, ""), "{out}");
    assert!(out.stdout.contains("└─ #1 [quick] ✓ complete"), "{out}");
}

#[test]
fn watch_shows_one_session_until_its_end() {
    let rig = rig();
    let mut run = hanging(&rig);
    run.wait_for("[quick] ✓ complete");
    let status = rig.run(["status", "latest", "--json"]).json();
    let quick = status["runs"][0]["delegations"][1]["session_id"].as_str().unwrap().to_owned();
    let out = rig.run(["watch", &quick]);
    assert_eq!(out.code, 0, "{out}");
    assert!(out.stdout.contains("[quick] ✓ complete") && !out.stdout.contains("[slow] note"));
    run.signal(Signal::INT);
    assert_eq!(run.finish().code, 130);
}

#[test]
fn the_help_of_watch_says_that_it_opens_a_list() {
    let help = rig().run(["watch", "--help"]).stdout;
    let help = help.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(
        help.contains("[default: the list of all runs; without a terminal, the latest"),
        "{help}"
    );
}

#[test]
fn watch_without_runs_reports_that_there_are_none() {
    let out = Rig::new().run(["watch"]);
    insta::assert_snapshot!(out, @"
        --- stderr ---
        adjutant: there are no runs yet
          `adjutant status` lists the runs.
        [exit 2]
    ");
}
