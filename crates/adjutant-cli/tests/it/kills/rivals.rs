//! Two processes that resume the same run, and a process stopped past its deadline.

use std::thread;
use std::time::Duration;

use adjutant_testkit::fake::Api;
use rustix::process::Signal;

use super::cast::{Part, Stage};
use super::servers;
use crate::support::rig::Rig;

/// Starts a run, ends it in the middle, and returns its name.
fn interrupted(stage: &Stage) -> String {
    let mut child = stage.start(None);
    while stage.server.request_count() < 3 {
        assert!(child.0.try_wait().unwrap().is_none(), "it ended before it was interrupted");
        thread::yield_now();
    }
    drop(child);
    stage.rig.only_run()
}

#[test]
fn of_two_processes_that_resume_a_run_one_continues_and_the_other_names_it() {
    let runtime = servers();
    for _ in 0..8 {
        let stage = Stage::new(Part::Subagents, Api::Anthropic, &runtime);
        let run = interrupted(&stage);
        let resume = || stage.rig.call(["resume", &run, "--yes"]).env("FAKE_KEY", stage.key);
        let rivals = [resume().start(), resume().start()];
        let pids = [rivals[0].pid(), rivals[1].pid()];
        let [first, second] = rivals.map(crate::support::running::Running::finish);
        let winner = usize::from(first.code != 0);
        let (won, lost) = if winner == 0 { (first, second) } else { (second, first) };
        assert_eq!((won.code, lost.code), (0, 2), "{won}\n{lost}");
        let holder = format!("by process {}\n", pids[winner]);
        assert!(lost.stderr.contains(&holder), "{lost}");
        assert!(lost.stdout.is_empty(), "{lost}");
    }
}

/// A subagent whose reply takes longer than its timeout.
const SLOW: &str = r#"
[[turn]]
[[turn.call]]
tool = "Note"
args = { content = "half of it is done" }
[[turn]]
delay_ms = 300000
text = "too late"
"#;

#[test]
fn a_process_stopped_past_its_deadline_ends_and_can_be_resumed() {
    let rig = Rig::with_script(SLOW);
    let mut run = rig.delegating(&["-t", "slow=think", "--set", "timeout_s=1"]).start();
    run.wait_for("note: half of it is done").signal(Signal::STOP);
    // A stopped process emits no event when its deadline passes.
    thread::sleep(Duration::from_millis(1_100));
    assert_eq!(rig.run(["status", "--json"]).json()["runs"][0]["state"], "running");
    run.signal(Signal::CONT);
    let out = run.finish();
    assert_eq!(out.code, 3, "{out}");
    assert!(out.stdout.contains("TIMEOUT") && out.stdout.contains("> half of it is done"), "{out}");
    assert_eq!(rig.run(["status", "--json"]).json()["runs"][0]["state"], "partial");
    std::fs::write(rig.path().join("script.toml"), SLOW.replace("300000", "0")).unwrap();
    let again = rig.run(["resume", "--timeout", "60"]);
    assert!(again.code == 0 && again.stdout.contains("> too late"), "{again}");
}
