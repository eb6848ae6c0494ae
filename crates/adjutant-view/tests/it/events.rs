//! Requirement 52: the progress events of seed 001 §12 and our additions.

use adjutant_core::{ErrorCode, Event, Outcome, Timestamp};
use adjutant_view::RunView;

use crate::history::{History, finished, reason, root, wire_events};

fn stream(h: &History) -> String {
    let events: Vec<String> = wire_events(h.entries())
        .into_iter()
        .map(|event| serde_json::to_string(&event).unwrap())
        .collect();
    events.join("\n")
}

#[test]
fn requirement_52_every_event_is_one_versioned_object() {
    let (h, _) = finished();
    insta::assert_snapshot!(stream(&h), @r#"
    {"v":1,"at_ms":0,"session_id":"sess_1738326896_aaaaaa","event":"run_started","run":"run_1738326896_aaaaaa","agent":"delegate","goal":"Review the tree"}
    {"v":1,"at_ms":0,"session_id":"sess_1738326896_aaaaab","event":"queued","label":"security","index":0,"agent":"scout"}
    {"v":1,"at_ms":0,"session_id":"sess_1738326896_aaaaac","event":"queued","label":"correctness","index":1,"agent":"scout"}
    {"v":1,"at_ms":0,"session_id":"sess_1738326896_aaaaad","event":"queued","label":"refactor","index":2,"agent":"scout"}
    {"v":1,"at_ms":0,"session_id":"sess_1738326896_aaaaab","event":"started","label":"security","index":0,"total":3}
    {"v":1,"at_ms":0,"session_id":"sess_1738326896_aaaaac","event":"started","label":"correctness","index":1,"total":3}
    {"v":1,"at_ms":0,"session_id":"sess_1738326896_aaaaad","event":"started","label":"refactor","index":2,"total":3}
    {"v":1,"at_ms":1500,"session_id":"sess_1738326896_aaaaab","event":"tokens","label":"security","input":45000,"output":2100,"cost_usd":0.1665,"estimated":false}
    {"v":1,"at_ms":1500,"session_id":"sess_1738326896_aaaaab","event":"completed","label":"security","status":"ok","outcome":"completed"}
    {"v":1,"at_ms":10500,"session_id":"sess_1738326896_aaaaac","event":"tokens","label":"correctness","input":23000,"output":890,"cost_usd":0.08235,"estimated":false}
    {"v":1,"at_ms":10500,"session_id":"sess_1738326896_aaaaac","event":"tool_call","label":"correctness","tool":"Read","args":"src/lib.rs"}
    {"v":1,"at_ms":10500,"session_id":"sess_1738326896_aaaaad","event":"tokens","label":"refactor","input":1000,"output":50,"cost_usd":0.00375,"estimated":false}
    {"v":1,"at_ms":10500,"session_id":"sess_1738326896_aaaaad","event":"tool_call","label":"refactor","tool":"Read","args":"src/main.rs"}
    {"v":1,"at_ms":10500,"session_id":"sess_1738326896_aaaaad","event":"tokens","label":"refactor","input":2000,"output":100,"cost_usd":0.0075,"estimated":false}
    {"v":1,"at_ms":10500,"session_id":"sess_1738326896_aaaaad","event":"tool_call","label":"refactor","tool":"Note","args":"main.rs repeats itself"}
    {"v":1,"at_ms":10500,"session_id":"sess_1738326896_aaaaad","event":"note","label":"refactor","content":"main.rs repeats itself"}
    {"v":1,"at_ms":10500,"session_id":"sess_1738326896_aaaaad","event":"tokens","label":"refactor","input":3000,"output":150,"cost_usd":0.01125,"estimated":false}
    {"v":1,"at_ms":10500,"session_id":"sess_1738326896_aaaaad","event":"tool_call","label":"refactor","tool":"Note","args":"two parsers\nfor one format"}
    {"v":1,"at_ms":10500,"session_id":"sess_1738326896_aaaaad","event":"note","label":"refactor","content":"two parsers\nfor one format"}
    {"v":1,"at_ms":10500,"session_id":"sess_1738326896_aaaaad","event":"tokens","label":"refactor","input":193000,"output":12150,"cost_usd":0.76125,"estimated":false}
    {"v":1,"at_ms":70500,"session_id":"sess_1738326896_aaaaad","event":"completed","label":"refactor","status":"partial","outcome":"partial","reason":"context_exhausted","message":"The context was exhausted: 199,000 of 200,000 tokens."}
    {"v":1,"at_ms":70500,"session_id":"sess_1738326896_aaaaae","event":"refused","label":"deeper","index":0,"reason":"max_depth_exceeded","message":"ERROR: Delegation depth limit (1) reached. Cannot delegate further.\n\nCurrent depth: 1\nAttempted delegation: look deeper\nSuggestion: Complete this task at current level or simplify.","recommendation":"Complete this task at the current level, or start the run again with --set max_depth=2."}
    {"v":1,"at_ms":70500,"session_id":"sess_1738326896_aaaaae","event":"completed","label":"deeper","status":"error","outcome":"refused","reason":"max_depth_exceeded","message":"ERROR: Delegation depth limit (1) reached. Cannot delegate further.\n\nCurrent depth: 1\nAttempted delegation: look deeper\nSuggestion: Complete this task at current level or simplify."}
    {"v":1,"at_ms":71000,"session_id":"sess_1738326896_aaaaac","event":"tokens","label":"correctness","input":27000,"output":1890,"cost_usd":0.10935,"estimated":true}
    {"v":1,"at_ms":71000,"session_id":"sess_1738326896_aaaaac","event":"completed","label":"correctness","status":"error","outcome":"failed","reason":"provider_error","message":"provider overloaded: try later"}
    {"v":1,"at_ms":71000,"session_id":"sess_1738326896_aaaaaa","event":"run_ended","status":"partial","outcome":"partial","outcomes":{"completed":1,"partial":1,"failed":1,"blocked":0,"cancelled":0,"refused":1,"running":0,"waiting":0},"usage":{"input":265000,"output":16140,"cache_read":0,"cache_write":0},"cost_usd":1.0371,"estimated":true}
    "#);
}

#[test]
fn an_approval_is_asked_and_denied_and_its_tasks_complete_as_errors() {
    let mut h = History::new();
    let mut grant = h.grant(root(), "a", "x");
    grant.awaiting_approval = true;
    let session = grant.session;
    h.push(Event::Granted(Box::new(grant)));
    let (hash, expires) = ("abc".to_owned(), Timestamp::from_millis(900_000));
    h.push(Event::ApprovalAsked { parent: root(), call: 1, hash: hash.clone(), expires });
    h.push(Event::Denied { hash, reason: "no".into() });
    h.end(
        session,
        Outcome::Refused,
        Some(reason(ErrorCode::ApprovalDenied, "Not approved: no.", "Add --yes.")),
    );
    insta::assert_snapshot!(stream(&h), @r#"
    {"v":1,"at_ms":0,"session_id":"sess_1738326896_aaaaaa","event":"run_started","run":"run_1738326896_aaaaaa","agent":"delegate","goal":"Review the tree"}
    {"v":1,"at_ms":0,"session_id":"sess_1738326896_aaaaab","event":"queued","label":"a","index":0,"agent":"scout"}
    {"v":1,"at_ms":0,"session_id":"sess_1738326896_aaaaaa","event":"approval","state":"asked","call":1,"hash":"abc"}
    {"v":1,"at_ms":0,"session_id":"sess_1738326896_aaaaaa","event":"approval","state":"denied","hash":"abc","reason":"no"}
    {"v":1,"at_ms":0,"session_id":"sess_1738326896_aaaaab","event":"refused","label":"a","index":0,"reason":"approval_denied","message":"Not approved: no.","recommendation":"Add --yes."}
    {"v":1,"at_ms":0,"session_id":"sess_1738326896_aaaaab","event":"completed","label":"a","status":"error","outcome":"refused","reason":"approval_denied","message":"Not approved: no."}
    "#);
}

#[test]
fn every_delegation_has_exactly_one_completed_event() {
    let (h, _) = finished();
    let completed = wire_events(h.entries())
        .into_iter()
        .filter(|event| serde_json::to_value(event).unwrap()["event"] == "completed")
        .count();
    assert_eq!(completed, RunView::of(h.entries()).delegations().count());
}

#[test]
fn the_outcomes_of_run_ended_equal_those_of_status() {
    let mut h = History::new();
    let [parent] = h.call([("parent", "hand it down")]);
    h.start(parent);
    let [child, other] = h.call_from(parent, [("child", "look"), ("other", "look too")]);
    h.start(child);
    h.end(child, Outcome::Completed, None);
    h.start(other);
    h.end(other, Outcome::Failed, Some(reason(ErrorCode::ProviderError, "gone", "Try again.")));
    h.end(parent, Outcome::Partial, None);
    h.end_run(Outcome::Partial);
    let ended: serde_json::Value =
        serde_json::from_str(stream(&h).lines().last().unwrap()).unwrap();
    let view = h.view();
    let look = adjutant_view::status::ObservedRun {
        view: &view,
        liveness: adjutant_view::ProcessLiveness::Dead,
        now: Timestamp::ZERO,
        content: adjutant_view::status::ContentRetention::Kept,
        program: "adjutant",
    };
    let status = serde_json::to_value(adjutant_view::status::list_json(&[look])).unwrap();
    assert_eq!(ended["outcomes"], status["runs"][0]["outcomes"]);
    assert_eq!(ended["outcomes"]["completed"], 1);
    assert_eq!(
        (&ended["outcomes"]["partial"], &ended["outcomes"]["failed"]),
        (&1.into(), &1.into())
    );
}
