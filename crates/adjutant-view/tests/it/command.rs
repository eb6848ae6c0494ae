//! Runs of a slash command: stages, returns and the outcome.

use adjutant_core::assignment::UpdateTrigger;
use adjutant_core::policy::Operation;
use adjutant_core::{
    AgentName, ErrorCode, Event, Grant, Outcome, Preset, SessionId, SlashCommandAssignment,
    TaskListUpdate,
};
use adjutant_formats::contract::{
    Artifact, ArtifactKind, MetadataSource, RequiredArtifacts, Return, ReturnContract,
    ReturnFinding, ReturnStatus, unchecked, validate,
};
use adjutant_formats::task::{self, TaskStatus};
use adjutant_view::ProcessLiveness;
use adjutant_view::errors::of_run;
use adjutant_view::results::{command_end, command_head, standard};
use adjutant_view::status::{ContentRetention, ObservedRun, detail_json};
use serde_json::{Value, json};

use crate::history::{History, reason, root, run_id, tokens, wire_events};

/// A run of `/research` about tasks 7 and 8.
pub(crate) fn begun() -> History {
    let mut h = History::with_goal("/research 7,8");
    if let Event::RunStarted { policy, .. } = &mut h.records[0].1 {
        **policy = Preset::Command.policy();
    }
    h.push(Event::Assigned(Box::new(SlashCommandAssignment {
        tasks: vec![7, 8],
        agent: Some("researcher".into()),
        ..SlashCommandAssignment::new("research", Operation::Research)
    })));
    h
}

fn works_on(h: &mut History, call: u32, task: Option<u64>) -> SessionId {
    let grant = h.grant(root(), "researcher", "Find out.");
    let session = grant.session;
    let path = ["orchestrator", "research", "researcher"].map(str::to_owned).to_vec();
    let mut grant = Grant { call, task, path, ..grant };
    grant.brief.agent = AgentName::new("researcher");
    h.push(Event::Granted(Box::new(grant)));
    h.start(session);
    session
}

fn report() -> Artifact {
    Artifact { kind: ArtifactKind::Research, path: "specs/r.md".into(), summary: None }
}

fn hands_back(h: &mut History, session: SessionId, status: ReturnStatus) {
    let metadata = json!({"session_id": session, "duration_seconds": 1, "agent_type": "researcher",
        "delegation_depth": 1, "delegation_path": ["orchestrator", "research", "researcher"]});
    let returned = Return {
        status,
        summary: "Two files matter. Nothing is in the way.".into(),
        artifacts: vec![report()],
        metadata: serde_json::from_value(metadata).unwrap(),
        errors: Vec::new(),
        next_steps: Some("Plan it.".into()),
    };
    h.reply(session, r#"{"raw": "json"}"#, vec![], tokens(1_000, 100));
    let returned = Some(Box::new(returned));
    h.push(Event::Judged { session, call: Some(0), returned, errors: vec![], warnings: vec![] });
}

fn marked(
    h: &mut History,
    session: SessionId,
    task: u64,
    status: TaskStatus,
    problem: Option<&str>,
) {
    let links =
        vec![task::TaskArtifact { kind: ArtifactKind::Research, path: "specs/r.md".into() }];
    let mark = TaskListUpdate {
        task,
        work: UpdateTrigger::Ended,
        status: Some(status),
        reason: None,
        links,
    };
    h.push(Event::Marked { session, mark, problem: problem.map(str::to_owned) });
}

fn stages(h: &History) -> Vec<String> {
    wire_events(h.entries())
        .into_iter()
        .filter_map(|event| {
            let value = serde_json::to_value(&event).unwrap();
            (value["event"] == "stage").then(|| {
                let why = value["detail"]["reason"].as_str().unwrap_or("");
                format!("{} {} {why}", value["stage"].as_str().unwrap(), value["ok"])
                    .trim_end()
                    .into()
            })
        })
        .collect()
}

/// A history that ends in every stage.
pub(crate) fn through_all_stages() -> History {
    let mut h = begun();
    let session = works_on(&mut h, 1, Some(7));
    let errors = vec![ReturnFinding {
        code: ErrorCode::ValidationFailed,
        field: "status".into(),
        message: "Invalid status: done".into(),
    }];
    let warnings = Vec::new();
    h.push(Event::Judged { session, call: None, returned: None, errors, warnings });
    hands_back(&mut h, session, ReturnStatus::Completed);
    h.end(session, Outcome::Completed, None);
    marked(&mut h, session, 7, TaskStatus::Researched, None);
    h
}

#[test]
fn requirement_39_a_live_delegation_shows_its_command_task_and_whole_path() {
    let mut h = begun();
    let session = works_on(&mut h, 1, Some(7));
    let below = h.grant(session, "helper", "Count.");
    h.push(Event::Granted(Box::new(below)));
    h.refuse(2, 0, "planner", reason(ErrorCode::MaxDelegationsExceeded, "Too many.", "Fewer."));
    let view = h.view();
    let (now, program) = (h.at(), "adjutant");
    let look = ObservedRun {
        view: &view,
        liveness: ProcessLiveness::Alive,
        now,
        content: ContentRetention::Kept,
        program,
    };
    let json = serde_json::to_value(detail_json(&look, None)).unwrap();
    let said: Vec<String> = json["runs"][0]["delegations"]
        .as_array()
        .unwrap()
        .iter()
        .map(|it| format!("{} {} {}", it["command"], it["task_number"], it["path"]))
        .collect();
    insta::assert_snapshot!(said.join("\n"), @r#"
    "research" 7 ["orchestrator","delegate","researcher"]
    "research" 7 ["orchestrator","delegate","researcher","scout"]
    "research" null ["orchestrator","delegate","scout"]
    "#);
    // The path is the same in every output.
    for delegation in view.delegations() {
        let path = serde_json::to_value(view.path(delegation)).unwrap();
        if let Some(returned) = standard(&view, delegation) {
            let metadata = serde_json::to_value(returned.metadata).unwrap();
            assert_eq!(metadata["delegation_path"], path);
        }
        for error in of_run(&view, ProcessLiveness::Alive) {
            if error.context.session_id == delegation.session {
                assert_eq!(json!(error.trajectory.delegation_path), path);
            }
        }
    }
}

#[test]
fn requirement_40_five_stages_are_logged_in_order_with_their_outcome() {
    assert_eq!(
        stages(&through_all_stages()),
        [
            "prepare true",
            "invoke true",
            "receive true",
            "validate false",
            "receive true",
            "validate true",
            "process true"
        ]
    );
}

#[test]
fn requirement_40_each_error_code_is_logged_in_its_stage() {
    let ends = |code: ErrorCode| {
        let mut h = begun();
        let session = works_on(&mut h, 1, None);
        h.end(session, Outcome::Failed, Some(reason(code, "It went wrong.", "Mend it.")));
        stages(&h).pop().unwrap()
    };
    assert_eq!(ends(ErrorCode::ProviderError), "invoke false provider_error");
    assert_eq!(ends(ErrorCode::Timeout), "receive false timeout");
    assert_eq!(ends(ErrorCode::ValidationFailed), "validate false validation_failed");
    let mut h = begun();
    h.refuse(1, 0, "researcher", reason(ErrorCode::CycleDetected, "Cycle detected", "Do not."));
    assert_eq!(stages(&h), ["prepare false cycle_detected"]);
    let mut h = begun();
    let session = works_on(&mut h, 1, Some(7));
    hands_back(&mut h, session, ReturnStatus::Completed);
    h.end(session, Outcome::Completed, None);
    marked(&mut h, session, 7, TaskStatus::Researched, Some("TODO.md is locked"));
    assert_eq!(stages(&h).pop().unwrap(), "process false status_sync_failed");
}

#[test]
fn section_10_the_report_of_a_command_has_outcome_and_next_step_of_each_task() {
    let mut h = begun();
    let seven = works_on(&mut h, 1, Some(7));
    hands_back(&mut h, seven, ReturnStatus::Completed);
    h.end(seven, Outcome::Completed, None);
    marked(&mut h, seven, 7, TaskStatus::Researched, None);
    let eight = works_on(&mut h, 2, Some(8));
    h.end(
        eight,
        Outcome::Failed,
        Some(reason(ErrorCode::ProviderError, "It is down.", "Try later.")),
    );
    let again = works_on(&mut h, 3, Some(8));
    let timeout = reason(ErrorCode::Timeout, "Timed out after 3600 s.", "Resume it.");
    h.end(again, Outcome::Partial, Some(timeout));
    let view = h.view();
    assert_eq!(command_head(&view).unwrap(), "Task: 7, 8");
    // The failure of the first attempt is omitted, because it was retried.
    insta::assert_snapshot!(command_end(&view, "adjutant").unwrap(), @r"
    Research: specs/r.md
    Task 7 is [RESEARCHED]

    Task: 8
    Status: Partial
    Timed out after 3600 s.
    Resume with: adjutant resume sess_1738326896_aaaaad
    ");
    let of = |outcome, why| {
        let mut h = begun();
        let session = works_on(&mut h, 1, Some(7));
        h.end(session, outcome, Some(why));
        command_end(&h.view(), "adjutant").unwrap()
    };
    let question = reason(ErrorCode::UnknownError, "Which of the two?", "Say which.");
    insta::assert_snapshot!(of(Outcome::Blocked, question), @r#"
    Task: 7
    Status: Blocked
    Question: Which of the two?
    Answer with: adjutant resume sess_1738326896_aaaaab --say

    Task 8: nothing was done
    "#);
    let soft = reason(ErrorCode::ProviderError, "It is down.", "Try later.");
    insta::assert_snapshot!(of(Outcome::Failed, soft.clone()), @r"
    Task: 7
    Status: Failed
    Task failed but is recoverable. Try later.
    It is down.
    Look with: adjutant transcript sess_1738326896_aaaaab
    Resume with: adjutant resume sess_1738326896_aaaaab

    Task 8: nothing was done
    ");
    let hard = adjutant_core::OutcomeReason { recoverable: false, ..soft };
    insta::assert_snapshot!(of(Outcome::Failed, hard), @r"
    Task: 7
    Status: Failed
    Task failed. Manual intervention required: It is down.
    Try later.
    Look with: adjutant transcript sess_1738326896_aaaaab

    Task 8: nothing was done
    ");
}

#[test]
fn every_end_has_a_valid_standard_return() {
    let accepted = |h: &History, session: SessionId| {
        let view = h.view();
        let returned = standard(&view, view.delegation(session).unwrap()).unwrap();
        let value: Value = serde_json::to_value(&returned).unwrap();
        let contract = ReturnContract {
            expected_session: Some(session),
            artifacts: RequiredArtifacts::Nothing,
            kind: None,
            metadata: MetadataSource::Claimed,
            observed: None,
        };
        let verdict = validate(&value, &contract, &unchecked);
        assert!(verdict.valid, "{:?}", verdict.errors);
        returned.status
    };
    for (outcome, status) in [
        (Outcome::Partial, ReturnStatus::Partial),
        (Outcome::Cancelled, ReturnStatus::Partial),
        (Outcome::Failed, ReturnStatus::Failed),
        (Outcome::Blocked, ReturnStatus::Blocked),
    ] {
        let mut h = begun();
        let session = works_on(&mut h, 1, Some(7));
        let why = reason(ErrorCode::Internal, &"long ".repeat(1_000), "Look.");
        h.end(session, outcome, Some(why));
        assert_eq!(accepted(&h, session), status);
        let mut h = begun();
        let session = works_on(&mut h, 1, Some(7));
        h.end(session, outcome, None);
        assert_eq!(accepted(&h, session), status);
    }
    let mut h = begun();
    let session = h.refuse(1, 0, "x", reason(ErrorCode::CycleDetected, "Cycle", "Do not."));
    assert_eq!(accepted(&h, session), ReturnStatus::Failed);
    assert_eq!(h.view().run(), Some(run_id()));
}

#[test]
fn an_accepted_return_is_shown_as_text_and_not_as_json() {
    let mut h = begun();
    let session = works_on(&mut h, 1, Some(7));
    hands_back(&mut h, session, ReturnStatus::Completed);
    h.end(session, Outcome::Completed, None);
    let view = h.view();
    insta::assert_snapshot!(view.delegation(session).unwrap().last_text, @r"
    Two files matter. Nothing is in the way.

    Artifacts:
    - research: specs/r.md

    Next: Plan it.
    ");
}
