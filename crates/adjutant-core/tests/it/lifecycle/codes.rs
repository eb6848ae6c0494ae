//! Every error code of the return format, each in a run that causes it.

use std::collections::BTreeSet;

use adjutant_core::assignment::UpdateTrigger;
use adjutant_core::policy::Operation;
use adjutant_core::story::VerifyResult;
use adjutant_core::verify::VerifyFacts;
use adjutant_core::workspace::{OwnWorkspace, WorkspaceFailure, WorkspaceKind, commit_failed};
use adjutant_core::{SlashCommandAssignment, TaskListUpdate};

use super::*;
use crate::sim::refused;

/// The codes that the return format lists.
const STANDARD: [ErrorCode; 10] = [
    ErrorCode::Timeout,
    ErrorCode::ValidationFailed,
    ErrorCode::ToolUnavailable,
    ErrorCode::BuildError,
    ErrorCode::FileNotFound,
    ErrorCode::CycleDetected,
    ErrorCode::MaxDepthExceeded,
    ErrorCode::StatusSyncFailed,
    ErrorCode::GitCommitFailed,
    ErrorCode::UnknownError,
];

fn timeout() -> Option<ErrorCode> {
    let mut sim = Sim::new(policy(Preset::Command, &[]));
    let child = sim.child(Brief { timeout_wish: Some(30), ..brief("x", "researcher", "Look.") });
    sim.tick_at(30);
    sim.code(child)
}

fn validation_failed() -> Option<ErrorCode> {
    let (mut sim, child) = standard();
    for _ in 0..=MAX_REPAIRS {
        returns(&mut sim, child, &json!({"status": "done"}), &[]);
    }
    sim.code(child)
}

fn writer() -> (Sim, SessionId) {
    let tools = r#"tools=["Edit","Read","Run","Write"]"#;
    let mut sim = Sim::new(policy(Preset::Story, &["enabled=true", "contract=report", tools]));
    sim.spaces_at_once = false;
    let child = sim.child(about("x"));
    (sim, child)
}

fn tool_unavailable() -> Option<ErrorCode> {
    let (mut sim, session) = writer();
    let made = Err(WorkspaceFailure { path: None, problem: "git is missing".into(), clash: false });
    sim.submit(Command::TakeWorkspace { session, made, project: None }).unwrap();
    sim.code(session)
}

fn build_error() -> Option<ErrorCode> {
    let tools = r#"tools=["Edit","Read","Run","Write"]"#;
    let mut sim = Sim::new(policy(Preset::Story, &["enabled=true", "contract=report", tools]));
    let session = sim.child(Brief { verify: Some("make".into()), ..about("x") });
    while sim.state(session).is_live() {
        sim.say(session, "It is built.");
        let check = VerifyResult::Failed;
        sim.submit(Command::TakeCheck {
            session,
            check,
            text: "3 type errors".into(),
            facts: VerifyFacts::default(),
        })
        .unwrap();
    }
    sim.code(session)
}

fn file_not_found() -> Option<ErrorCode> {
    let (mut sim, child) = standard();
    let mut value = returned("completed", json!([]));
    value["artifacts"] = json!([{"type": "research", "path": "gone.md"}]);
    returns(&mut sim, child, &value, &[("gone.md", ArtifactFileState::Missing)]);
    sim.log.iter().find_map(|(_, event)| match event {
        Event::Judged { errors, .. } => errors.first().map(|complaint| complaint.code),
        _ => None,
    })
}

fn refusal(preset: Preset, settings: &[&str], agents: &[&str]) -> Option<ErrorCode> {
    let mut sim = Sim::new(policy(preset, settings));
    let mut parent = sim.root();
    for agent in agents {
        let events = sim.ask(parent, vec![brief("x", agent, "Look.")], None).unwrap();
        match granted(&events).first() {
            Some(child) => parent = *child,
            None => return refused(&events).first().copied(),
        }
    }
    None
}

fn status_sync_failed() -> Option<ErrorCode> {
    let mut sim = Sim::new(policy(Preset::Command, &["in_place=true"]));
    sim.submit(Command::Assign(Box::new(SlashCommandAssignment {
        tasks: vec![7],
        agent: Some("researcher".into()),
        ..SlashCommandAssignment::new("research", Operation::Research)
    })))
    .unwrap();
    let session = sim.child(brief("x", "researcher", "Look."));
    let mark = sim.tree.due_marks().find_map(|effect| match effect {
        Effect::UpdateTaskList { mark, .. } => Some(mark),
        _ => None,
    });
    let mark: TaskListUpdate = mark.filter(|mark| mark.work == UpdateTrigger::Begun).unwrap();
    let problem = Some("TODO.md is not UTF-8".to_owned());
    sim.submit(Command::TakeListUpdate { session, mark, problem }).unwrap();
    sim.code(session)
}

fn git_commit_failed() -> Option<ErrorCode> {
    let (mut sim, session) = writer();
    let made = Ok(OwnWorkspace {
        kind: WorkspaceKind::Worktree,
        path: "state/x".into(),
        base: "0".repeat(40),
        layers: Vec::new(),
        remarks: Vec::new(),
    });
    sim.submit(Command::TakeWorkspace { session, made, project: None }).unwrap();
    sim.say(session, "done");
    let kept = Err("the disk is full".to_owned());
    let events = sim.submit(Command::TakeKeptWork { session, kept }).unwrap();
    events.iter().find_map(|event| match event {
        Event::SpaceKept { problem, .. } => problem.as_deref().map(|it| commit_failed(it).code),
        _ => None,
    })
}

fn unknown_error() -> Option<ErrorCode> {
    let (mut sim, child) = standard();
    let errors = json!([{"type": "execution", "message": "There is no coffee.",
        "code": "OUT_OF_COFFEE", "recoverable": true, "recommendation": "Buy some."}]);
    returns(&mut sim, child, &returned("failed", errors), &[]);
    sim.code(child)
}

#[test]
fn requirement_31_each_code_of_the_return_format_is_provoked() {
    let four_deep = ["a", "b", "c", "d"];
    let provoked = [
        timeout(),
        validation_failed(),
        tool_unavailable(),
        build_error(),
        file_not_found(),
        refusal(Preset::Command, &[], &["implementer", "specialist", "implementer"]),
        refusal(Preset::Command, &[], &four_deep),
        status_sync_failed(),
        git_commit_failed(),
        unknown_error(),
    ];
    assert_eq!(provoked, STANDARD.map(Some));
    assert_eq!(STANDARD.iter().collect::<BTreeSet<_>>().len(), 10);
}
