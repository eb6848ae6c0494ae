//! Requirement 60: the log of delegations.

use adjutant_core::refusal::TimeBound;
use adjutant_core::{ErrorCode, Event, Outcome};
use adjutant_view::{RunView, delegations};

use crate::history::{History, finished, reason, root, tokens};
use crate::story::{child, file, finish, story};

fn lines(h: &History) -> Vec<String> {
    let mut view = RunView::light();
    let said = h.entries().filter_map(|entry| {
        view.apply(entry);
        delegations::line(&view, &entry)
    });
    said.map(|line| serde_json::to_string(&line).unwrap()).collect()
}

#[test]
fn requirement_60_a_story_is_logged_with_the_names_of_the_design() {
    let mut h = History::new();
    let mut grant = h.grant(root(), "jwt", "Implement JWT token generation");
    grant.brief.story = Some("US-007-DEL-001".into());
    let child = grant.session;
    h.push(Event::Granted(Box::new(grant)));
    h.push(Event::Started { session: child, deadline: None, bound: TimeBound::Own });
    h.wait(277_000);
    h.reply(child, "done", vec![], tokens(12_500, 3_200));
    h.end(child, Outcome::Completed, None);
    insta::assert_snapshot!(lines(&h).join("\n"), @r#"
    {"v":1,"timestamp":"2025-01-31T12:34:56Z","parent_story":"root","child_story":"US-007-DEL-001","depth":1,"parent_id":"sess_1738326896_aaaaaa","child_id":"sess_1738326896_aaaaab","status":"started","description":"Implement JWT token generation","worktree_path":null}
    {"v":1,"timestamp":"2025-01-31T12:39:33Z","parent_story":"root","child_story":"US-007-DEL-001","depth":1,"parent_id":"sess_1738326896_aaaaaa","child_id":"sess_1738326896_aaaaab","status":"completed","duration_ms":277000,"tokens_in":12500,"tokens_out":3200,"cost_usd":0.0855,"files_changed":[],"success":true}
    "#);
}

#[test]
fn every_end_has_one_of_four_words() {
    let (mut h, _) = finished();
    let [late, stopped] = h.call([("late", "x"), ("stopped", "x")]);
    h.start(late);
    h.end(late, Outcome::Partial, Some(reason(ErrorCode::Timeout, "Time is up.", "More time.")));
    h.start(stopped);
    h.end(stopped, Outcome::Cancelled, Some(reason(ErrorCode::Cancelled, "Stop.", "Again.")));
    let said: Vec<String> = lines(&h)
        .iter()
        .map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap())
        .map(|line| format!("{} {} {}", line["child_story"], line["status"], line["code"]))
        .collect();
    insta::assert_snapshot!(said.join("\n"), @r#"
    "security" "started" null
    "correctness" "started" null
    "refactor" "started" null
    "security" "completed" null
    "refactor" "failed" "CONTEXT_EXHAUSTED"
    "deeper" "failed" "MAX_DEPTH_EXCEEDED"
    "correctness" "failed" "PROVIDER_ERROR"
    "late" "started" null
    "late" "timeout" "TIMEOUT"
    "stopped" "started" null
    "stopped" "cancelled" "CANCELLED"
    "#);
}

/// Cost and time count from the first start, but the time between an end and a resume does not.
#[test]
fn time_before_a_resume_counts() {
    let mut h = History::new();
    let [child, other] = h.call([("one", "look"), ("two", "look")]);
    h.start(child);
    h.start(other);
    h.wait(2_000);
    h.reply(child, "half", vec![], tokens(100, 10));
    h.end(child, Outcome::Partial, Some(reason(ErrorCode::Timeout, "Timed out.", "Go on.")));
    h.wait(10_000);
    h.push(Event::Reopened(Box::new(adjutant_core::event::Reopening {
        session: child,
        afresh: false,
        text: None,
        timeout_s: None,
        unanswered: Vec::new(),
        looked: Vec::new(),
    })));
    h.start(child);
    h.wait(3_000);
    let took = h.view().delegation(child).unwrap().elapsed(h.at()).unwrap();
    assert_eq!(took.as_millis(), 5_000);
    h.reply(child, "all", vec![], tokens(100, 10));
    h.end(child, Outcome::Completed, None);
    let last: serde_json::Value = serde_json::from_str(lines(&h).last().unwrap()).unwrap();
    assert_eq!((&last["duration_ms"], &last["tokens_in"]), (&5_000.into(), &200.into()), "{last}");
}

/// Both records of the design: the workspace at the start, the files after the end.
#[test]
fn requirement_60_a_story_is_logged_with_its_workspace_and_its_files() {
    let mut h = story(None, "[delegate:Implement JWT token generation:4]");
    let jwt = child(&mut h, root(), "US-007-DEL-001", "Implement JWT token generation");
    let deep = child(&mut h, jwt, "US-007-DEL-001-DEL-001", "Sign tokens");
    let files =
        vec![file("lib/jwt.py", "added", (9, 0)), file("tests/test_jwt.py", "added", (5, 0))];
    let late = Some(reason(ErrorCode::Timeout, "Time is up.", "More time."));
    finish(&mut h, deep, "half", vec![], (Outcome::Partial, late));
    finish(&mut h, jwt, "done", files, (Outcome::Completed, None));
    insta::assert_snapshot!(lines(&h).join("\n"), @r#"
    {"v":1,"timestamp":"2025-01-31T12:34:57Z","parent_story":"US-007","child_story":"US-007-DEL-001","depth":1,"parent_id":"sess_1738326896_aaaaaa","child_id":"sess_1738326896_aaaaab","status":"started","description":"Implement JWT token generation","worktree_path":"/spaces/US-007-DEL-001"}
    {"v":1,"timestamp":"2025-01-31T12:34:57Z","parent_story":"US-007-DEL-001","child_story":"US-007-DEL-001-DEL-001","depth":2,"parent_id":"sess_1738326896_aaaaab","child_id":"sess_1738326896_aaaaac","status":"started","description":"Sign tokens","worktree_path":"/spaces/US-007-DEL-001-DEL-001"}
    {"v":1,"timestamp":"2025-01-31T12:35:01Z","parent_story":"US-007-DEL-001","child_story":"US-007-DEL-001-DEL-001","depth":2,"parent_id":"sess_1738326896_aaaaab","child_id":"sess_1738326896_aaaaac","status":"timeout","duration_ms":4050,"tokens_in":10000,"tokens_out":1000,"cost_usd":0.045,"files_changed":[],"success":false,"code":"TIMEOUT"}
    {"v":1,"timestamp":"2025-01-31T12:35:05Z","parent_story":"US-007","child_story":"US-007-DEL-001","depth":1,"parent_id":"sess_1738326896_aaaaaa","child_id":"sess_1738326896_aaaaab","status":"completed","duration_ms":8120,"tokens_in":10000,"tokens_out":1000,"cost_usd":0.045,"files_changed":["lib/jwt.py","tests/test_jwt.py"],"success":true}
    "#);
}

/// A delegation whose workspace could not be created never started, but its end is logged.
#[test]
fn without_a_workspace_no_start_is_logged() {
    let mut h = story(None, "[delegate:x:1]");
    let one = child(&mut h, root(), "US-007-DEL-001", "x");
    h.records.pop();
    h.end(one, Outcome::Failed, Some(reason(ErrorCode::ToolUnavailable, "No.", "Prune.")));
    let said = lines(&h);
    assert_eq!(said.len(), 1, "{said:?}");
    let line: serde_json::Value = serde_json::from_str(&said[0]).unwrap();
    assert_eq!((&line["status"], &line["success"]), (&"failed".into(), &false.into()));
}
