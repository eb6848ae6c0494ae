//! Part of `lifecycle`: time limits that a person changes on resume.

use adjutant_core::assignment::SlashCommandAssignment;
use adjutant_core::policy::Operation;
use adjutant_core::story::StoryAssignment;
use adjutant_core::{ResumeOptions, Rights};
use serde_json::{Value, json};

use super::*;

/// What the run is: a call of a person, a story or a command.
#[derive(Clone, Copy, Debug)]
enum RunKind {
    Delegation,
    Story,
    Command,
}

/// Begins a run; returns the agent whose time is looked at, the root of a story or command.
fn begun_run(kind: RunKind, settings: &[&str]) -> (Sim, SessionId) {
    let of = |preset| policy(preset, &[&["enabled=true"], settings].concat());
    match kind {
        RunKind::Delegation => begun(settings, about("a")),
        RunKind::Story => {
            let mut sim = Sim::led(of(Preset::Story), "story", "Do it.");
            let story = StoryAssignment { id: "US-007".into(), ..StoryAssignment::default() };
            sim.submit(Command::TakeStory(Box::new(story))).unwrap();
            let root = sim.root();
            (sim, root)
        }
        RunKind::Command => {
            let mut sim = Sim::led(of(Preset::Command), "research", "/research 7");
            let assignment = SlashCommandAssignment::new("research", Operation::Research);
            sim.submit(Command::Assign(Box::new(assignment))).unwrap();
            let root = sim.root();
            (sim, root)
        }
    }
}

/// Goes on with some limits changed; returns whether the time was cut.
fn go_on(sim: &mut Sim, settings: &[(&str, Value)], timeout_s: Option<u64>) -> bool {
    let mut limits = sim.tree.policy().clone();
    for (name, value) in settings {
        limits.set_on_resume(name, value).unwrap();
    }
    let rights = Rights::of(sim.tree.policy());
    let limits = Some(Box::new(limits));
    let events =
        sim.restart(ResumeOptions { rights, limits, timeout_s, ..ResumeOptions::default() });
    events.iter().any(|event| matches!(event, Event::Resumed { clamped: true, .. }))
}

/// Returns the seconds until the deadline, where there is one.
fn seconds_left(sim: &Sim, session: SessionId) -> Option<u64> {
    sim.node(session).deadline().map(|deadline| deadline.since(sim.now).as_secs())
}

#[test]
fn a_new_time_limit_applies_after_a_crash_and_after_an_end() {
    use RunKind::{Command, Delegation, Story};
    type Case<'a> = (RunKind, &'a [&'a str], &'a [(&'a str, Value)], Option<u64>, Option<u64>);
    let short = ["timeout_s=2", "timeout_max_s=3"];
    let cases: [Case<'_>; 14] = [
        (Delegation, &short, &[("timeout_s", json!(60))], None, Some(3)),
        (
            Delegation,
            &short,
            &[("timeout_s", json!(60)), ("timeout_max_s", json!(60))],
            None,
            Some(60),
        ),
        (Delegation, &short, &[("timeout_max_s", json!(60))], Some(40), Some(40)),
        (
            Delegation,
            &["timeout_s=600", "timeout_max_s=3"],
            &[("timeout_max_s", json!(60))],
            None,
            Some(60),
        ),
        (Delegation, &["total_s=2", "timeout_s=90"], &[("total_s", json!(60))], None, Some(60)),
        (Delegation, &["total_s=2", "timeout_s=90"], &[("total_s", json!(600))], None, Some(90)),
        (Delegation, &["total_s=2", "timeout_s=90"], &[("total_s", Value::Null)], None, Some(90)),
        (Story, &["total_s=2"], &[("total_s", json!(60))], None, Some(60)),
        (Story, &["total_s=2"], &[("total_s", Value::Null)], None, None),
        (Story, &["total_s=2"], &[("total_s", json!(60))], Some(10), Some(60)),
        (Story, &["total_s=90"], &[("timeout_s", json!(60))], None, Some(90)),
        (Command, &["timeout_max_s=3"], &[("timeout_max_s", json!(60))], None, Some(60)),
        (Command, &["timeout_max_s=3"], &[("timeout_max_s", json!("none"))], None, None),
        (Command, &["timeout_max_s=90"], &[("timeout_s", json!(60))], None, Some(90)),
    ];
    for (kind, before, changed, timeout_s, expected) in cases {
        for has_ended in [false, true] {
            let (mut sim, session) = begun_run(kind, before);
            if has_ended {
                sim.tick_at(90);
                assert_eq!(sim.code(session), Some(ErrorCode::Timeout), "{kind:?} {before:?}");
            } else {
                sim.now = sim.now.plus_seconds(1);
            }
            let is_cut = go_on(&mut sim, changed, timeout_s);
            let case = format!("{kind:?} {before:?} {changed:?} {timeout_s:?} {has_ended}");
            assert_eq!(seconds_left(&sim, session), expected, "{case}");
            assert_eq!(is_cut, expected == Some(3), "{case}");
            assert_eq!(
                sim.node(session).deadline(),
                Sim::replay(&sim.log).node(session).deadline()
            );
            sim.check_invariants();
        }
    }
}

#[test]
fn a_new_approval_s_applies_to_open_questions() {
    let mut sim = asking(&[]);
    let root = sim.root();
    sim.ask(root, vec![about("a")], None).unwrap();
    go_on(&mut sim, &[("approval_s", json!(7))], None);
    let until = sim.now.plus_seconds(7);
    assert_eq!(sim.tree.next_deadline(), Some((until, DeadlineKind::Approval)));
}

#[test]
fn a_new_stall_s_applies_to_the_repeated_call() {
    let (mut sim, child) = begun(&["stall_s=5"], about("a"));
    go_on(&mut sim, &[("stall_s", json!(7))], None);
    assert!(sim.state(child).is_live());
    let until = sim.now.plus_seconds(7);
    assert_eq!(sim.tree.next_deadline(), Some((until, DeadlineKind::Stall)));
}

#[test]
fn a_shorter_total_shortens_the_deadlines_of_descendants() {
    let (mut sim, root) = begun_run(RunKind::Story, &["total_s=90"]);
    let child = sim.child_of(root, about("a"));
    go_on(&mut sim, &[("total_s", json!(20))], None);
    assert_eq!(seconds_left(&sim, root), Some(20));
    assert_eq!(seconds_left(&sim, child), Some(20));
}
