//! `log --follow`: prints the events of a live run as they come.

use rustix::process::Signal;

use crate::delegate::signals::{hanging, rig};

#[test]
fn log_follows_a_live_run_and_ends_with_it() {
    let rig = rig();
    let mut run = hanging(&rig);
    let mut text = rig.call(["log", "-f"]).start();
    let mut json = rig.call(["log", "-f", "--json"]).start();
    text.wait_for_data("half of it is done");
    json.wait_for_data("half of it is done");
    assert!(!text.has_ended() && !json.has_ended(), "the run goes on");
    run.signal(Signal::INT);
    assert_eq!(run.finish().code, 130);
    let (text, json) = (text.finish(), json.finish());
    assert_eq!((text.code, text.stderr.as_str()), (0, ""), "{text}");
    assert_eq!(text.data(), rig.run(["log"]).data(), "it printed what `log` prints afterwards");
    assert_eq!(json.code, 0, "{json}");
    let types: Vec<String> =
        json.lines().map(|it| it["event"]["type"].as_str().unwrap().to_owned()).collect();
    assert_eq!(types.last().unwrap(), "run_ended");
    assert_eq!(json.data(), rig.run(["log", "--json"]).data());
}

#[test]
fn following_the_log_of_a_run_whose_process_died_ends() {
    let rig = rig();
    let mut run = hanging(&rig);
    let mut log = rig.call(["log", "-f"]).start();
    log.wait_for_data("half of it is done");
    run.signal(Signal::KILL);
    assert_eq!(run.finish().code, 128 + 9);
    let log = log.finish();
    assert_eq!(log.code, 0, "{log}");
    assert!(!log.data().contains("run_ended"), "{log}");
}
