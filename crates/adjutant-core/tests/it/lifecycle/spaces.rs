//! Writers in their own workspaces: when they begin, what the run waits for, and what a crash
//! leaves.

use adjutant_core::workspace::{
    ChangedFile, KeptWork, OwnWorkspace, WorkspaceFailure, WorkspaceKind,
};
use adjutant_core::{ResumeOptions, Rights, WriteScope};

use super::*;

fn writers() -> Policy {
    let tools = r#"tools=["Delegate","Edit","Read","Run","Task","Write"]"#;
    policy(Preset::Story, &["enabled=true", "contract=report", tools])
}

fn by_hand() -> Sim {
    let mut sim = Sim::new(writers());
    sim.spaces_at_once = false;
    sim
}

fn space(name: &str) -> OwnWorkspace {
    OwnWorkspace {
        kind: WorkspaceKind::Overlay,
        path: format!("state/{name}"),
        base: "0".repeat(40),
        layers: vec!["lower".into(), "upper".into()],
        remarks: Vec::new(),
    }
}

fn made(sim: &mut Sim, session: SessionId) -> String {
    let made = Ok(space(&session.to_string()));
    kinds(&sim.submit(Command::TakeWorkspace { session, made, project: None }).unwrap())
}

fn kept(sim: &mut Sim, session: SessionId, kept: Result<KeptWork, String>) -> String {
    kinds(&sim.submit(Command::TakeKeptWork { session, kept }).unwrap())
}

fn work() -> KeptWork {
    let file =
        ChangedFile { path: "a.rs".into(), how: "modified".into(), added: Some(1), removed: None };
    KeptWork { commit: Some("1".repeat(40)), files: vec![file], ..KeptWork::default() }
}

#[test]
fn a_writer_takes_no_turn_before_its_workspace_is_recorded() {
    let mut sim = by_hand();
    let child = sim.child(about("x"));
    assert_eq!(sim.model_calls(child).len(), 0);
    let asked = Effect::MakeWorkspace { session: child, above: None, takes_in: Vec::new() };
    assert_eq!(sim.effects.last(), Some(&asked));
    // A crash before it is there asks again.
    sim.restart(ResumeOptions { rights: Rights::of(&writers()), ..ResumeOptions::default() });
    assert_eq!(sim.effects.last(), Some(&asked));
    assert_eq!(made(&mut sim, child), "space_made reserved");
    assert_eq!(sim.model_calls(child).len(), 1);
    // A second report is ignored.
    assert_eq!(made(&mut sim, child), "");
}

#[test]
fn requirement_61_without_a_workspace_a_writer_fails_and_says_why() {
    let mut sim = by_hand();
    let child = sim.child(about("x"));
    let (path, problem) = (Some("state/spaces/x".to_owned()), "worktree already exists".to_owned());
    let made = Err(WorkspaceFailure { path, problem, clash: false });
    sim.submit(Command::TakeWorkspace { session: child, made, project: None }).unwrap();
    insta::assert_snapshot!(sim.ended(child), @r"
    failed TOOL_UNAVAILABLE: ERROR: Failed to create child worktree for delegation.

    Child: x
    Worktree path: state/spaces/x
    Git error: worktree already exists

    Action: Cleanup old worktrees and retry
    Command: adjutant prune
    => `adjutant doctor` says what this machine allows; `adjutant prune` clears what old runs left.
    ");
    assert!(sim.tree.outcome().is_some());
}

#[test]
fn a_slow_workspace_can_report_progress_until_it_is_made() {
    let mut sim = by_hand();
    let child = sim.child(about("x"));
    let print = || Command::Print { session: child, text: "making it".to_owned() };
    assert_eq!(kinds(&sim.submit(print()).unwrap()), "printed");
    made(&mut sim, child);
    assert_eq!(kinds(&sim.submit(print()).unwrap()), "", "it works and no command runs");
}

#[test]
fn a_run_that_crashed_while_being_cancelled_is_resumed_at_once() {
    let wish = || ResumeOptions { rights: Rights::of(&writers()), ..ResumeOptions::default() };
    for is_led in [false, true] {
        let mut sim = if is_led { Sim::led(writers(), "story", "go") } else { Sim::new(writers()) };
        sim.spaces_at_once = false;
        let root = sim.root();
        let child = sim.child_of(root, about("x"));
        made(&mut sim, child);
        sim.cancel(root);
        assert_eq!(sim.tree.outcome(), None, "its work is not kept yet");
        let events = sim.restart(wish());
        assert!(sim.state(root).is_live());
        let works = if is_led { root } else { child };
        assert_eq!(sim.model_calls(works).len(), 1, "{is_led}: {events:?}");
        // One of its own that was cancelled alone stays so.
        let mut sim = by_hand();
        let (one, other) = (sim.child(about("x")), sim.child(about("y")));
        made(&mut sim, one);
        made(&mut sim, other);
        sim.cancel(one);
        sim.restart(wish());
        assert!(!sim.state(one).is_live() && sim.state(other).is_live());
    }
}

#[test]
fn the_run_waits_until_all_work_is_committed_also_across_crashes() {
    for cancelled in [false, true] {
        let mut sim = by_hand();
        let child = sim.child(about("x"));
        made(&mut sim, child);
        if cancelled {
            sim.cancel(child);
        } else {
            sim.say(child, "done");
        }
        assert!(!sim.state(child).is_live());
        assert_eq!(sim.tree.outcome(), None);
        let keep = Effect::CommitWork { session: child, space: space(&child.to_string()) };
        assert_eq!(sim.tree.due_keeps().collect::<Vec<_>>(), std::slice::from_ref(&keep));
        sim.restart(ResumeOptions { rights: Rights::of(&writers()), ..ResumeOptions::default() });
        assert!(sim.effects.contains(&keep));
        assert_eq!(kept(&mut sim, child, Ok(work())), "space_kept ended run_ended");
        assert_eq!(kept(&mut sim, child, Ok(work())), "");
    }
}

#[test]
fn a_run_whose_work_could_not_be_committed_is_not_completed() {
    let mut sim = by_hand();
    let child = sim.child(about("x"));
    made(&mut sim, child);
    sim.say(child, "done");
    kept(&mut sim, child, Err("the disk is full".into()));
    assert_eq!(sim.end(child).0, Outcome::Completed);
    assert_eq!(sim.tree.outcome(), Some(Outcome::Partial));
}

#[test]
fn a_writer_below_a_writer_starts_from_its_workspace_and_readers_use_it() {
    let mut sim = by_hand();
    let parent = sim.child(about("x"));
    made(&mut sim, parent);
    let child = sim.child_of(parent, about("y"));
    let asked = Effect::MakeWorkspace { session: child, above: Some(parent), takes_in: Vec::new() };
    assert_eq!(sim.effects.last(), Some(&asked));
    assert_eq!(sim.tree.space_of(child).unwrap().0, parent);
    made(&mut sim, child);
    assert_eq!(sim.tree.space_of(child).unwrap().0, child);
    assert_eq!(sim.tree.batch_of(child), format!("{parent}-1"));
}

#[test]
fn shell_commands_run_only_in_an_own_workspace() {
    let run = |writes| {
        let tools = adjutant_core::ToolSet::all();
        Rights { tools, network: false, writes }.usable_tools().contains("Run")
    };
    assert!(run(WriteScope::Own));
    for elsewhere in [WriteScope::Nowhere, WriteScope::Below("specs".into()), WriteScope::Anywhere]
    {
        assert!(!run(elsewhere));
    }
    // The root has none, so it is offered no tool that writes.
    let sim = Sim::led(writers(), "lead", "goal");
    let root = sim.root();
    assert_eq!(sim.tree.space_of(root), None);
    let mut sim = sim;
    sim.submit(Command::TakeTurn { session: root }).unwrap();
    sim.call(root, vec![tool("1", "Run", json!({"command": "true"}))]);
    assert!(sim.told(root)[0].starts_with("Not run: `Run` needs a workspace of your own"));
}

#[test]
fn write_scopes_of_two_trees_have_nothing_in_common() {
    let below = WriteScope::Below("specs".into());
    for (one, other, both) in [
        (WriteScope::Own, WriteScope::Own, WriteScope::Own),
        (WriteScope::Own, WriteScope::Anywhere, WriteScope::Own),
        (WriteScope::Own, below, WriteScope::Nowhere),
        (WriteScope::Own, WriteScope::Nowhere, WriteScope::Nowhere),
    ] {
        assert_eq!(one.intersection(&other), both);
        assert_eq!(other.intersection(&one), both);
    }
}

#[test]
fn commands_and_edits_of_one_answer_run_in_order() {
    let mut sim = Sim::new(writers());
    let child = sim.child(about("x"));
    let run = |id| tool(id, "Run", json!({"command": "make"}));
    sim.call(child, vec![run("1"), tool("2", "Write", json!({})), run("3"), read("4", "a")]);
    assert_eq!(sim.tools_run(child), ["Run"]);
    sim.output(child, 0, "made");
    assert!(matches!(sim.effects.last(), Some(Effect::PrepareWrite { index: 1, .. })));
    sim.output(child, 1, "written");
    assert_eq!(sim.tools_run(child), ["Run", "Run"]);
    sim.output(child, 2, "made");
    assert_eq!(sim.tools_run(child), ["Run", "Run", "Read"], "it sees what was made");
}
