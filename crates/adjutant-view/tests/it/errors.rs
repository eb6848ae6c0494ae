//! Requirement 38: errors with context, trajectory and recovery.

use adjutant_core::{ErrorCode, Event, ModelErrorKind, Outcome};
use adjutant_formats::contract::Return;
use adjutant_view::errors::{ErrorJson, ErrorsJson, of_run, render};
use adjutant_view::wire::pretty;
use adjutant_view::{Palette, ProcessLiveness};
use serde_json::json;

use crate::history::{History, finished, reason};

fn errors(h: &History) -> Vec<ErrorJson> {
    of_run(&h.view(), ProcessLiveness::Dead)
}

#[test]
fn requirement_38_an_error_has_the_fields_of_errors_json() {
    let (h, _) = finished();
    let one = errors(&h).into_iter().find(|error| error.code == "PROVIDER_ERROR").unwrap();
    insta::assert_snapshot!(pretty(&ErrorsJson::new(vec![one])), @r#"
    {
      "v": 1,
      "errors": [
        {
          "id": "err_1738326967_qlwol3",
          "timestamp": "2025-01-31T12:36:07Z",
          "type": "execution",
          "severity": "high",
          "code": "PROVIDER_ERROR",
          "message": "provider overloaded: try later",
          "context": {
            "session_id": "sess_1738326896_aaaaac",
            "run": "run_1738326896_aaaaaa",
            "command": "delegate",
            "task": "correctness"
          },
          "trajectory": {
            "delegation_path": [
              "delegate",
              "scout"
            ],
            "failed_at_depth": 1
          },
          "recovery": {
            "suggested_action": "Try again later, or use another model.",
            "auto_recoverable": true
          },
          "fix_status": "unfixed"
        }
      ]
    }
    "#);
}

#[test]
fn each_failed_end_is_one_error() {
    let (mut h, _) = finished();
    let [stopped, denied] = h.call([("stopped", "x"), ("denied", "x")]);
    h.end(stopped, Outcome::Cancelled, Some(reason(ErrorCode::Cancelled, "Cancelled.", "Again.")));
    h.end(denied, Outcome::Refused, Some(reason(ErrorCode::ApprovalDenied, "No.", "Ask.")));
    let said: Vec<String> = errors(&h)
        .iter()
        .map(|error| {
            format!(
                "{} {} {} {}",
                error.context.task,
                error.kind,
                error.severity.word(),
                error.code
            )
        })
        .collect();
    insta::assert_snapshot!(said.join("\n"), @r"
    refactor execution medium CONTEXT_EXHAUSTED
    deeper validation low MAX_DEPTH_EXCEEDED
    correctness execution high PROVIDER_ERROR
    ");
}

/// A delegation that returned `failed` with three errors, the second of which is not recoverable.
fn failed_with_three_errors() -> History {
    let mut h = History::new();
    let [session] = h.call([("build", "build it")]);
    h.start(session);
    let error = |kind: &str, message: &str, code: &str, recoverable: bool| {
        json!({"type": kind, "message": message, "code": code, "recoverable": recoverable,
            "recommendation": format!("Look at {code}.")})
    };
    let returned: Return = serde_json::from_value(json!({
        "status": "failed", "summary": "Nothing builds. Lake is missing.", "artifacts": [],
        "metadata": {"session_id": session, "duration_seconds": 1, "agent_type": "scout",
            "delegation_depth": 1, "delegation_path": ["delegate", "scout"]},
        "errors": [
            error("build_error", "3 type errors", "BUILD_ERROR", true),
            error("tool_unavailable", "there is no lake", "LAKE_MISSING", false),
            error("execution", "3 type errors", "BUILD_ERROR", true),
        ],
    }))
    .unwrap();
    let returned = Some(Box::new(returned));
    h.push(Event::Judged { session, call: Some(0), returned, errors: vec![], warnings: vec![] });
    let mut why = reason(ErrorCode::UnknownError, "there is no lake", "Look at LAKE_MISSING.");
    why.recoverable = false;
    h.end(session, Outcome::Failed, Some(why));
    h
}

#[test]
fn requirement_38_every_error_of_a_return_is_logged_in_its_own_words() {
    let h = failed_with_three_errors();
    let found = errors(&h);
    insta::assert_snapshot!(render(&found, 160, Palette::Plain), @"
    err_1738326896_cdq40t  severity high · type build_error · code BUILD_ERROR
      what  3 type errors
      who   [build] sess_1738326896_aaaaab, delegate > scout
      when  2025-01-31T12:34:56Z in run_1738326896_aaaaaa
      next  Look at BUILD_ERROR.
    err_1738326896_mt7epy  severity high · type tool_unavailable · code LAKE_MISSING
      what  there is no lake
      who   [build] sess_1738326896_aaaaab, delegate > scout
      when  2025-01-31T12:34:56Z in run_1738326896_aaaaaa
      next  Look at LAKE_MISSING.
    err_1738326896_acmg7l  severity high · type execution · code BUILD_ERROR
      what  3 type errors
      who   [build] sess_1738326896_aaaaab, delegate > scout
      when  2025-01-31T12:34:56Z in run_1738326896_aaaaaa
      next  Look at BUILD_ERROR.
    ");
    let mut ids: Vec<&str> = found.iter().map(|error| error.id.as_str()).collect();
    // The id of the error that ended the delegation equals that in a journal with only this error.
    let mut alone = failed_with_three_errors();
    alone.records.retain(|(_, event)| !matches!(event, Event::Judged { .. }));
    let alone = errors(&alone);
    assert_eq!((alone.len(), alone[0].id.as_str()), (1, ids[1]));
    ids.sort_unstable();
    ids.dedup();
    assert_eq!(ids.len(), 3);
}

#[test]
fn an_id_is_derived_from_the_journal_alone() {
    let (h, _) = finished();
    let ids = |h: &History| errors(h).into_iter().map(|error| error.id).collect::<Vec<_>>();
    let first = ids(&h);
    assert_eq!(ids(&finished().0), first);
    assert_eq!(first.iter().collect::<std::collections::BTreeSet<_>>().len(), first.len());
}

#[test]
fn marking_as_fixed_or_a_later_success_fixes_an_error_without_continuing_the_run() {
    let (mut h, sessions) = finished();
    let before = h.view();
    let id = errors(&h)[0].id.clone();
    h.wait(3_600_000);
    h.push(Event::ErrorFixed { id: id.clone() });
    assert_eq!(h.view().latest(), before.latest());
    let fixed = |h: &History| {
        errors(h).into_iter().filter(|error| !error.is_unfixed()).map(|error| error.id).collect()
    };
    let ticked: Vec<String> = fixed(&h);
    assert_eq!(ticked, [id]);
    h.end(sessions[1], Outcome::Completed, None);
    let fixed: Vec<String> = fixed(&h);
    assert_eq!(fixed.len(), 2, "what was taken up again and completed needs nobody");
}

#[test]
fn unfinished_work_of_a_dead_run_is_an_error_until_it_is_resumed() {
    let (mut h, _) = crate::history::three();
    h.wait(10);
    let left: Vec<ErrorJson> = errors(&h);
    let interrupted = left.last().unwrap();
    assert_eq!(
        (interrupted.code.as_str(), interrupted.context.task.as_str()),
        ("INTERRUPTED", "correctness")
    );
    assert!(interrupted.recovery.suggested_action.contains("adjutant resume run_"));
    assert_eq!(of_run(&h.view(), ProcessLiveness::Alive).len(), left.len() - 1);
    h.push(Event::ErrorFixed { id: interrupted.id.clone() });
    assert!(!errors(&h).last().unwrap().is_unfixed(), "its id is the same after the tick");
}

/// It can be resumed with another key, but a retry does not help.
#[test]
fn a_rejected_api_key_is_not_auto_recoverable() {
    for (kind, expected) in
        [(ModelErrorKind::Authentication, false), (ModelErrorKind::Overloaded, true)]
    {
        let mut h = History::new();
        let [child] = h.call([("one", "look")]);
        h.start(child);
        h.fail(child, kind, None);
        let why = reason(ErrorCode::ProviderError, "it said no", "Check the key of this provider.");
        h.end(child, Outcome::Failed, Some(why));
        let errors = errors(&h);
        assert_eq!(errors[0].recovery.auto_recoverable, expected, "{kind:?}");
        assert!(h.view().delegation(child).unwrap().reason.as_ref().unwrap().recoverable);
    }
}
