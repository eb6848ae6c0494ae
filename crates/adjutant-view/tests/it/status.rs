//! Where runs stand, for people and programs.

use adjutant_core::{ErrorKind, Timestamp};
use adjutant_view::status::{Look, detail, detail_json, list, list_json};
use adjutant_view::{Liveness, Palette};

use crate::history::{HOSTILE, History, finished, three};

#[test]
fn a_list_has_a_line_for_each_run() {
    let (running, _) = three();
    let (done, _) = finished();
    let odd = History::with_goal(HOSTILE);
    let views = [running.view(), done.view(), running.view(), odd.view()];
    let now = running.at();
    let looks = [
        Look { view: &views[0], liveness: Liveness::Alive, now },
        Look { view: &views[1], liveness: Liveness::Dead, now },
        Look { view: &views[2], liveness: Liveness::Dead, now: Timestamp::from_millis(9_999_999) },
        Look { view: &views[3], liveness: Liveness::Alive, now: Timestamp::ZERO },
    ];
    insta::assert_snapshot!(list(&looks), @r"
    run_1738326896_aaaaaa  → running      3 subagents: 1 running, 1 complete, 1 partial            in=261k out=15k   $1.0101  1m 10s  Review the tree
    run_1738326896_aaaaaa  ⚠ partial      4 subagents: 1 complete, 1 partial, 1 failed, 1 refused  in=265k out=16k  ~$1.0371  1m 11s  Review the tree
    run_1738326896_aaaaaa  ! interrupted  3 subagents: 1 interrupted, 1 complete, 1 partial        in=261k out=15k   $1.0101  1m 10s  Review the tree
    run_1738326896_aaaaaa  → running      0 subagents: none                                        in=0 out=0          $0.00    0.0s  a]⟨U+001B⟩[2J⟨U+202E⟩evil⟨U+200B⟩⏎### [fake] ✓⟨U+0007⟩ ⟨U+0…
    ");
    insta::assert_snapshot!(list(&[]), @"no runs");
    assert_eq!(list_json(&looks).runs[2].state, "interrupted");
}

#[test]
fn the_detail_of_a_run_says_what_everyone_does() {
    let (h, _) = three();
    let view = h.view();
    let look = Look { view: &view, liveness: Liveness::Alive, now: h.at() };
    insta::assert_snapshot!(detail(&look, Palette::Plain), @r"
    run_1738326896_aaaaaa → running
    goal    Review the tree
    in      work/tree
    preset  scout
    began   2025-01-31T12:34:56Z

    [security] ✓ complete
      session  sess_1738326896_aaaaab
      agent    scout, acme/large, depth 1
      spent    in=45,000 out=2,100 · $0.1665 · 1 turn, 0 tool calls
      time     1.5s

    [correctness] → Read src/lib.rs
      session  sess_1738326896_aaaaac
      agent    scout, acme/large, depth 1
      spent    in=23,000 out=890 · $0.0824 · 1 turn, 1 tool call
      time     1m 10s

    [refactor] ⚠ partial: context exhausted
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
fn a_dead_run_does_nothing_any_more() {
    let (mut h, sessions) = three();
    h.fail(sessions[1], ErrorKind::Network, Some(1_000));
    let view = h.view();
    let look =
        Look { view: &view, liveness: Liveness::Dead, now: Timestamp::from_millis(9_999_999) };
    let text = detail(&look, Palette::Plain);
    assert!(text.contains("[correctness] ! interrupted\n"), "{text}");
    let json = detail_json(&look);
    let delegation = &json.runs[0].delegations.as_ref().unwrap()[1];
    assert_eq!((delegation.state, delegation.activity), ("interrupted", None));
    assert_eq!(json.runs[0].elapsed_s, 70.5);
}
