//! The status of runs as text and JSON.

use adjutant_core::refusal::TimeBound;
use adjutant_core::{Event, ModelErrorKind, Timestamp};
use adjutant_view::layout::width;
use adjutant_view::status::{
    ContentRetention, ObservedRun, RunUrgency, detail, detail_json, list, list_json, table, urgency,
};
use adjutant_view::{Palette, ProcessLiveness};
use serde_json::json;

use crate::history::{HOSTILE, History, WALL, call, finished, three, tokens};

#[test]
fn a_run_that_asks_about_a_host_waits_for_a_person() {
    let mut h = History::new();
    let [reader] = h.call([("reader", "x")]);
    h.start(reader);
    h.reply(reader, "", vec![call("WebFetch", json!({ "url": "https://docs.rs/" }))], tokens(1, 1));
    let urgency_of = |h: &History| {
        let (view, liveness, content) = (h.view(), ProcessLiveness::Alive, ContentRetention::Kept);
        urgency(&ObservedRun { view: &view, liveness, now: h.at(), content, program: "adjutant" })
    };
    assert_eq!(urgency_of(&h), RunUrgency::Live);
    let expires = Timestamp::from_millis(900_000);
    h.push(Event::DomainAsked { session: reader, call: 0, host: "docs.rs".into(), expires });
    assert_eq!(urgency_of(&h), RunUrgency::WaitsForPerson);
}

#[test]
fn a_list_has_a_line_for_each_run() {
    let (running, _) = three();
    let (done, _) = finished();
    let odd = History::with_goal(HOSTILE);
    let views = [running.view(), done.view(), running.view(), odd.view()];
    let now = running.at();
    let looks = [
        ObservedRun {
            view: &views[0],
            liveness: ProcessLiveness::Alive,
            now,
            content: ContentRetention::Kept,
            program: "adjutant",
        },
        ObservedRun {
            view: &views[1],
            liveness: ProcessLiveness::Dead,
            now,
            content: ContentRetention::Kept,
            program: "adjutant",
        },
        ObservedRun {
            view: &views[2],
            liveness: ProcessLiveness::Dead,
            now: Timestamp::from_millis(9_999_999),
            content: ContentRetention::Kept,
            program: "adjutant",
        },
        ObservedRun {
            view: &views[3],
            liveness: ProcessLiveness::Alive,
            now: Timestamp::ZERO,
            content: ContentRetention::Kept,
            program: "adjutant",
        },
    ];
    insta::assert_snapshot!(list(&looks), @"
    run_1738326896_aaaaaa  → running      3 subagents: 1 running, 1 complete, 1 partial            in=261k out=15k   $1.0101  1m 10s  Review the tree
      [correctness] Read src/lib.rs · in=23k out=890 · $0.0824
    run_1738326896_aaaaaa  ⚠ partial      4 subagents: 1 complete, 1 partial, 1 failed, 1 refused  in=265k out=16k  ~$1.0371  1m 11s  Review the tree
    run_1738326896_aaaaaa  ! interrupted  3 subagents: 1 interrupted, 1 complete, 1 partial        in=261k out=15k   $1.0101  1m 10s  Review the tree
      `adjutant resume run_1738326896_aaaaaa` continues it
    run_1738326896_aaaaaa  → running      0 subagents: none                                        in=0 out=0          $0.00    0.0s  a]⟨U+001B⟩[2J⟨U+202E⟩evil⟨U+200B⟩⏎### [fake] ✓⟨U+0007⟩ ⟨U+0…
    ~ estimated: calls without reported usage are counted at the amount reserved for them
    ");
    insta::assert_snapshot!(list(&[]), @"no runs");
    assert_eq!(list_json(&looks).runs[2].state, "interrupted");
}

#[test]
fn the_detail_of_a_run_shows_what_each_subagent_does() {
    let (h, _) = three();
    let view = h.view();
    let look = ObservedRun {
        view: &view,
        liveness: ProcessLiveness::Alive,
        now: h.at(),
        content: ContentRetention::Kept,
        program: "adjutant",
    };
    insta::assert_snapshot!(detail(&look, None, Palette::Plain), @r"
    run_1738326896_aaaaaa → running
    goal    Review the tree
    in      work/tree
    preset  scout
    began   2025-01-31T12:34:56Z

    #1 [security] ✓ complete
      session  sess_1738326896_aaaaab
      agent    scout, acme/large, depth 1
      spent    in=45,000 out=2,100 · $0.1665 · 1 turn, 0 tool calls
      time     1.5s

    #2 [correctness] → Read src/lib.rs
      session  sess_1738326896_aaaaac
      agent    scout, acme/large, depth 1
      spent    in=23,000 out=890 · $0.0824 · 1 turn, 1 tool call
      time     1m 10s

    #3 [refactor] ⚠ partial: context exhausted
      session  sess_1738326896_aaaaad
      agent    scout, acme/large, depth 1
      spent    in=193,000 out=12,150 · $0.7612 · 0 turns, 3 tool calls
      time     1m 10s
      notes    2, latest: two parsers⏎for one format
      why      The context was exhausted: 199,000 of 200,000 tokens.
      next     Split the task, or use a model with a larger window.

    3 subagents: 1 running, 1 complete, 1 partial · in=261k out=15k · $1.0101 · 1m 10s
    ");
}

#[test]
fn a_dead_run_shows_no_activity() {
    let (mut h, sessions) = three();
    h.fail(sessions[1], ModelErrorKind::Network, Some(1_000));
    let view = h.view();
    let look = ObservedRun {
        view: &view,
        liveness: ProcessLiveness::Dead,
        now: Timestamp::from_millis(9_999_999),
        content: ContentRetention::Kept,
        program: "adjutant",
    };
    let text = detail(&look, None, Palette::Plain);
    assert!(text.contains("[correctness] ! interrupted\n"), "{text}");
    let json = detail_json(&look, None);
    let delegation = &json.runs[0].delegations.as_ref().unwrap()[1];
    assert_eq!((delegation.state, delegation.activity), ("interrupted", None));
    assert_eq!(json.runs[0].elapsed_s, 70.5);
}

/// Every kind of activity, in one list.
#[test]
fn a_list_shows_what_each_subagent_waits_for() {
    let mut h = History::new();
    let mut asked = h.grant(crate::history::root(), "asked", "x");
    asked.awaiting_approval = true;
    let mut names = Vec::new();
    for name in ["quiet", "tool", "retry", "lead"] {
        let [session] = h.call([(name, "x")]);
        let (bound, at) = (TimeBound::Own, Timestamp::from_millis(600_000));
        h.push(Event::Started { session, deadline: Some(at), bound });
        h.reserve(session, 1);
        names.push(session);
    }
    let calls = |name: &str| vec![call(name, json!({ "path": "src/lib.rs" }))];
    h.wait(1_000);
    h.reply(names[1], "", calls("Grep"), tokens(10, 1));
    h.push(Event::ToolCalled { session: names[1], call: 0 });
    h.reply(names[3], "", calls("Delegate"), tokens(10, 1));
    h.push(Event::ToolCalled { session: names[3], call: 0 });
    h.call_from(names[3], [("child", "x")]);
    h.push(Event::Granted(Box::new(asked)));
    h.wait(40_000);
    h.fail(names[2], ModelErrorKind::Overloaded, Some(5_000));
    let view = h.view();
    let look = ObservedRun {
        view: &view,
        liveness: ProcessLiveness::Alive,
        now: h.at(),
        content: ContentRetention::Kept,
        program: "adjutant",
    };
    insta::assert_snapshot!(list(&[look]), @"
    run_1738326896_aaaaaa  → running  6 subagents: 4 running, 2 waiting  in=4.0k out=1.0k  ~$0.0271  41s  Review the tree
      [quiet] stalled? no output for 41s · 9m 19s left
      [tool] Grep src/lib.rs · in=10 out=1 · $0.0000 · 9m 19s left
      [retry] retrying in 5.0s: provider overloaded · in=4.0k out=1.0k · ~$0.0270 · 9m 19s left
      [lead] waiting for its subagents · in=10 out=1 · $0.0000 · 9m 19s left
      [child] waiting for a free slot
      [asked] waiting for approval
    ~ estimated: calls without reported usage are counted at the amount reserved for them
    ");
    let json = detail_json(&look, None);
    let said: Vec<String> = json.runs[0]
        .delegations
        .iter()
        .flatten()
        .map(|one| {
            format!(
                "{} {} {:?} {:?} {:?}",
                one.label, one.state, one.activity, one.silent_s, one.left_s
            )
        })
        .collect();
    insta::assert_snapshot!(said.join("\n"), @r#"
    quiet running Some("stalled") Some(41.0) Some(559.0)
    tool running Some("tool") None Some(559.0)
    retry running Some("retrying") None Some(559.0)
    lead running Some("delegating") None Some(559.0)
    child queued None None None
    asked awaiting_approval None None None
    "#);
    let one = detail(&look, Some(names[3]), Palette::Plain);
    assert!(one.contains("[lead]") && one.contains("[child]") && !one.contains("[quiet]"), "{one}");
}

#[test]
fn an_expired_run_is_not_resumable() {
    let (h, _) = three();
    let view = h.view();
    let look = ObservedRun {
        view: &view,
        liveness: ProcessLiveness::Dead,
        now: h.at(),
        content: ContentRetention::Expired,
        program: "adjutant",
    };
    assert!(list(&[look]).ends_with("\n  not resumable (expired)\n"));
    assert!(detail(&look, None, Palette::Plain).contains("next    not resumable (expired)\n"));
    let json = detail_json(&look, None);
    assert_eq!((json.runs[0].resume.as_ref(), json.runs[0].expired), (None, true));
}

#[test]
fn a_table_of_runs_fits_the_terminal() {
    let (running, _) = three();
    let (done, _) = finished();
    let odd = History::with_goal(HOSTILE);
    let views = [running.view(), done.view(), running.view(), odd.view()];
    let alive = [true, false, false, true];
    let looks: Vec<ObservedRun<'_>> = views
        .iter()
        .zip(alive)
        .map(|(view, alive)| ObservedRun {
            view,
            liveness: if alive { ProcessLiveness::Alive } else { ProcessLiveness::Dead },
            now: running.at(),
            content: ContentRetention::Kept,
            program: "adjutant",
        })
        .collect();
    for wide in [0, 20, 40, 50, 60, 80, 160] {
        let text = table(&looks, WALL + 7_200_000, wide);
        // The note about estimates is a sentence, which the terminal may wrap.
        let fits = |line: &str| line.starts_with('~') || width(line) <= wide.max(40);
        assert!(text.lines().all(fits), "on {wide} columns:\n{text}");
        let ids = if wide < 80 { "aaaaaa  " } else { "run_1738326896_aaaaaa  " };
        let rows = text.lines().filter(|line| line.starts_with(ids)).count();
        assert_eq!(rows, looks.len(), "on {wide} columns:\n{text}");
    }
}
