//! The fold of a run.

use std::collections::BTreeSet;

use adjutant_core::{DelegationState, ErrorCode, Event, Outcome, Timestamp, ToolOutput, Usd};
use adjutant_view::run::Activity;
use adjutant_view::samples::sample_groups;
use adjutant_view::{OutcomeCounts, RunView};
use serde_json::json;

use crate::history::{History, call, finished, reason, root, three, tokens};

#[test]
fn outcomes_match_the_exit_code() {
    let (h, _) = finished();
    let expected = OutcomeCounts {
        completed: 1,
        partial: 1,
        failed: 1,
        refused: 1,
        ..OutcomeCounts::default()
    };
    assert_eq!(h.view().outcomes(), expected);
    assert_eq!(h.view().outcome(), Some(Outcome::Partial));
    let (h, _) = three();
    assert_eq!(h.view().outcomes().words(), "1 running, 1 complete, 1 partial");
    assert_eq!(RunView::default().outcomes().total(), 0);
}

#[test]
fn outcomes_count_delegations_at_every_depth() {
    let mut h = History::new();
    let [lead] = h.call([("lead", "x")]);
    let [below] = h.call_from(lead, [("below", "x")]);
    h.end(below, Outcome::Failed, None);
    h.end(lead, Outcome::Completed, None);
    assert_eq!(
        h.view().outcomes(),
        OutcomeCounts { completed: 1, failed: 1, ..OutcomeCounts::default() }
    );
}

#[test]
fn files_are_listed_once_in_the_order_of_first_touch() {
    let mut h = History::new();
    let [a] = h.call([("a", "x")]);
    for path in ["b.rs", "a.rs", "b.rs"] {
        h.read(a, path);
    }
    let view = h.view();
    let files: Vec<&str> = view.delegation(a).unwrap().files.iter().map(AsRef::as_ref).collect();
    assert_eq!(files, ["b.rs", "a.rs"]);
}

#[test]
fn an_empty_reply_keeps_the_last_text() {
    let mut h = History::new();
    let [a] = h.call([("a", "x")]);
    h.reply(a, "found it", vec![], tokens(1, 1));
    h.reply(a, " \n", vec![call("Read", json!({}))], tokens(1, 1));
    assert_eq!(h.view().delegation(a).unwrap().last_text, "found it");
}

#[test]
fn an_approval_affects_only_its_call() {
    let mut h = History::new();
    let mut sessions = Vec::new();
    for call in 1..=2 {
        let mut grant = h.grant(root(), "a", "x");
        grant.call = call;
        grant.awaiting_approval = true;
        sessions.push(grant.session);
        h.push(Event::Granted(Box::new(grant)));
        let expires = Timestamp::from_millis(900_000);
        h.push(Event::ApprovalAsked { parent: root(), call, hash: call.to_string(), expires });
    }
    assert_eq!(h.view().state(), DelegationState::AwaitingApproval);
    h.push(Event::Approved { hash: "1".into(), parent: root(), up_to: None });
    let view = h.view();
    assert_eq!(view.delegation(sessions[0]).unwrap().state, DelegationState::Queued);
    assert_eq!(view.delegation(sessions[1]).unwrap().state, DelegationState::AwaitingApproval);
    assert_eq!(view.approvals().len(), 1);
}

#[test]
fn running_tools_are_shown_until_the_last_one_returns() {
    let mut h = History::new();
    let [a] = h.call([("a", "x")]);
    h.start(a);
    h.reply(
        a,
        "",
        vec![call("Read", json!({ "path": "x" })), call("Glob", json!({ "pattern": "*" }))],
        tokens(1, 1),
    );
    h.push(Event::ToolCalled { session: a, call: 0 });
    h.push(Event::ToolCalled { session: a, call: 1 });
    h.push(Event::ToolReturned { session: a, call: 0, output: ToolOutput::default() });
    let view = h.view();
    let Activity::Tool { call, more } = view.delegation(a).unwrap().activity() else { panic!() };
    assert_eq!((call.tool.as_str(), call.arguments.as_str(), more), ("Glob", "*", 0));
    h.push(Event::ToolReturned { session: a, call: 1, output: ToolOutput::default() });
    assert!(matches!(h.view().delegation(a).unwrap().activity(), Activity::Thinking { .. }));
}

#[test]
fn tool_arguments_are_summarized_whatever_their_shape() {
    for (arguments, expected) in [
        (json!(null), ""),
        (json!({}), ""),
        (json!({ "path": "a.rs", "limit": 5 }), "a.rs"),
        (json!({ "path": "src", "pattern": "TODO" }), "TODO in src"),
        (json!({ "content": "fn main() {}", "path": "a.rs" }), "a.rs"),
        (json!({ "content": "half is done" }), "half is done"),
        (json!({ "tasks": [1, 2, 3] }), "3 tasks"),
        (json!({ "depth": 2 }), "depth=2"),
        (json!("{broken"), "{broken"),
        (json!([1, 2]), "[2 items]"),
    ] {
        assert_eq!(adjutant_view::run::brief_arguments(&arguments), expected);
    }
    let long = adjutant_view::run::brief_arguments(&json!({ "path": "x".repeat(10_240) }));
    assert_eq!(long.chars().count(), 160);
}

#[test]
fn events_about_unknown_sessions_change_nothing_but_the_cost() {
    let mut h = History::new();
    let unknown = h.session();
    h.start(unknown);
    h.reply(unknown, "hello", vec![], tokens(10, 1));
    h.end(unknown, Outcome::Completed, None);
    h.push(Event::Approved { hash: "none".into(), parent: unknown, up_to: None });
    let view = h.view();
    assert_eq!(view.delegations().count(), 0);
    assert_eq!(view.total().usage.total(), 11);
    assert_eq!(view.root().unwrap().inclusive, *view.total());
}

#[test]
fn a_history_without_its_start_does_not_panic() {
    let (h, _) = finished();
    let view = RunView::of(h.entries().skip(1));
    assert_eq!(view.delegations().count(), 0);
    assert!(view.total().calls > 0);
}

#[test]
fn a_late_result_is_stored_and_changes_no_outcome() {
    let mut h = History::new();
    let [a] = h.call([("a", "x")]);
    h.end(a, Outcome::Partial, Some(reason(ErrorCode::Timeout, "m", "r")));
    h.push(Event::Late { session: a, what: "reply".into(), text: "y".repeat(10_000) });
    let view = h.view();
    let delegation = view.delegation(a).unwrap();
    assert_eq!(delegation.state, DelegationState::Ended(Outcome::Partial));
    assert_eq!((delegation.late.len(), delegation.late[0].text.chars().count()), (1, 200));
}

/// However much a run said, the view behind a list stays as large as its tree.
#[test]
fn a_light_view_does_not_grow_with_texts() {
    let talk = |times: usize| {
        let mut h = History::with_goal(&"g".repeat(times * 1_000));
        let [a] = h.call([("a", "x")]);
        h.start(a);
        for number in 0..times {
            h.note(a, &format!("note {number} {}", "n".repeat(5_000)));
            h.read(a, &format!("src/file_{number}.rs"));
            h.reply(a, &"said ".repeat(1_000), vec![], tokens(1, 1));
        }
        h.end(
            a,
            Outcome::Partial,
            Some(reason(ErrorCode::Timeout, &"why ".repeat(9_000), "Again.")),
        );
        let mut light = RunView::light();
        h.entries().for_each(|entry| light.apply(entry));
        assert_eq!(light.delegations().next().unwrap().note_count, times);
        assert_eq!(light.total(), h.view().total(), "the numbers are the same");
        serde_json::to_string(&light).unwrap().len()
    };
    let (short, long) = (talk(2), talk(200));
    assert!(long < short + 200, "{short} bytes became {long}");
}

#[test]
fn a_deadline_set_on_resume_applies_to_the_root_too() {
    let (mut h, [done, works, _]) = three();
    let until = |seconds: u64| Timestamp::from_millis(seconds * 1_000);
    let deadlines = [(root(), until(90)), (works, until(60))];
    h.push(Event::Resumed {
        version: "test".into(),
        rights: adjutant_core::Rights::default(),
        agents: std::collections::BTreeMap::new(),
        model: None,
        timeout_s: Some(60),
        clamped: false,
        deadlines: deadlines.into(),
        questions_until: until(900),
        limits: Default::default(),
        terms: None,
    });
    let view = h.view();
    let deadline = |session| view.delegation(session).unwrap().deadline;
    assert_eq!((deadline(root()), deadline(works)), (Some(until(90)), Some(until(60))));
    assert_ne!(deadline(done), Some(until(60)), "it had ended");
}

#[test]
fn delegations_that_worked_and_ended_in_this_process_are_samples() {
    let (h, _) = finished();
    let view = h.view();
    let all = view.delegations().map(|it| it.session).collect();
    insta::assert_snapshot!(serde_json::to_string(&sample_groups(&view, &all)).unwrap(), @r#"[{"key":{"preset":"scout","model":"acme/large"},"samples":[[47100,166500,1500],[205150,761250,70500]]}]"#);
    // The one that ended with an estimated call is left out: a reservation is not what a task takes.
    assert_eq!(view.delegations().filter(|it| it.inclusive.is_estimated()).count(), 1);
    // What ended before this process resumed the run was recorded then.
    assert_eq!(sample_groups(&view, &BTreeSet::new()), []);
}

#[test]
fn what_a_person_allowed_is_the_limit_of_automatic_approval() {
    let mut h = History::new();
    let expires = Timestamp::from_millis(900_000);
    h.push(Event::ApprovalAsked { parent: root(), call: 1, hash: "1".into(), expires });
    let up_to = Usd::from_dollars(2.0);
    h.push(Event::Approved { hash: "1".into(), parent: root(), up_to });
    assert_eq!(Some(h.view().approve_below()), up_to);
    assert_eq!(RunView::default().approve_below(), Usd::ZERO);
}
