//! Requirement 38: what went wrong, with context, trajectory and recovery.

use adjutant_core::{Code, ErrorKind, Event, Outcome};
use adjutant_view::Liveness;
use adjutant_view::errors::{ErrorJson, ErrorsJson, of_run};
use adjutant_view::wire::pretty;

use crate::history::{History, finished, reason};

fn errors(h: &History) -> Vec<ErrorJson> {
    of_run(&h.view(), Liveness::Dead)
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
fn each_end_that_went_wrong_is_one_error() {
    let (mut h, _) = finished();
    let [stopped, denied] = h.call([("stopped", "x"), ("denied", "x")]);
    h.end(stopped, Outcome::Cancelled, Some(reason(Code::Cancelled, "Cancelled.", "Again.")));
    h.end(denied, Outcome::Refused, Some(reason(Code::ApprovalDenied, "No.", "Ask.")));
    let said: Vec<String> = errors(&h)
        .iter()
        .map(|error| {
            format!("{} {} {} {}", error.context.task, error.kind, error.severity, error.code)
        })
        .collect();
    insta::assert_snapshot!(said.join("\n"), @r"
    refactor execution medium CONTEXT_EXHAUSTED
    deeper validation low MAX_DEPTH_EXCEEDED
    correctness execution high PROVIDER_ERROR
    ");
}

#[test]
fn an_id_follows_from_the_journal_alone() {
    let (h, _) = finished();
    let ids = |h: &History| errors(h).into_iter().map(|error| error.id).collect::<Vec<_>>();
    let first = ids(&h);
    assert_eq!(ids(&finished().0), first);
    assert_eq!(first.iter().collect::<std::collections::BTreeSet<_>>().len(), first.len());
}

#[test]
fn a_tick_or_a_later_success_fixes_an_error_and_the_run_does_not_go_on_by_it() {
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
fn what_a_dead_run_left_behind_is_an_error_until_somebody_works_on_it() {
    let (mut h, _) = crate::history::three();
    h.wait(10);
    let left: Vec<ErrorJson> = errors(&h);
    let interrupted = left.last().unwrap();
    assert_eq!(
        (interrupted.code, interrupted.context.task.as_str()),
        ("INTERRUPTED", "correctness")
    );
    assert!(interrupted.recovery.suggested_action.contains("adjutant resume run_"));
    assert_eq!(of_run(&h.view(), Liveness::Alive).len(), left.len() - 1);
    h.push(Event::ErrorFixed { id: interrupted.id.clone() });
    assert!(!errors(&h).last().unwrap().is_unfixed(), "its id is the same after the tick");
}

/// It can be resumed with another key, but nothing gets better by trying again.
#[test]
fn a_refused_key_is_no_error_that_goes_away() {
    for (kind, expected) in [(ErrorKind::Authentication, false), (ErrorKind::Overloaded, true)] {
        let mut h = History::new();
        let [child] = h.call([("one", "look")]);
        h.start(child);
        h.fail(child, kind, None);
        let why = reason(Code::ProviderError, "it said no", "Check the key of this provider.");
        h.end(child, Outcome::Failed, Some(why));
        let errors = errors(&h);
        assert_eq!(errors[0].recovery.auto_recoverable, expected, "{kind:?}");
        assert!(h.view().delegation(child).unwrap().reason.as_ref().unwrap().recoverable);
    }
}
