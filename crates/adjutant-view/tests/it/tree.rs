//! The tree of a run, with own and inclusive cost (requirement 59).

use adjutant_core::Outcome;
use adjutant_view::tree::{json, render};
use adjutant_view::wire::pretty;
use adjutant_view::{Palette, ProcessLiveness, RunView};

use crate::history::{HOSTILE, History, finished, root, three, tokens};

fn draw(h: &History, liveness: ProcessLiveness) -> String {
    render(&h.view(), h.at(), liveness, Palette::Plain, 160)
}

fn nested() -> History {
    let mut h = History::new();
    let [lead, other] = h.call([("lead", "x"), ("日本語 [2]", "x")]);
    h.start(lead);
    h.wait(2_000);
    h.reply(lead, "", vec![], tokens(10_000, 1_000));
    let [first, second] = h.call_from(lead, [("first", "x"), (HOSTILE, "x")]);
    for session in [first, second] {
        h.start(session);
        h.wait(3_000);
        h.reply(session, "done", vec![], tokens(20_000, 500));
        h.end(session, Outcome::Completed, None);
    }
    h.start(other);
    h.wait(1_000);
    h
}

#[test]
fn requirement_59_a_tree_shows_own_and_inclusive_cost() {
    insta::assert_snapshot!(draw(&nested(), ProcessLiveness::Alive), @r"
    run_1738326896_aaaaaa
    [root] → running · delegate · depth 0 · in=50k out=2.0k · $0.18 · 9.0s
    ├─ #1 [lead] → running · scout · depth 1 · in=50k out=2.0k · $0.18 ($0.0450 own) · 9.0s
    │  ├─ #3 [first] ✓ complete · scout · depth 2 · in=20k out=500 · $0.0675 · 3.0s
    │  └─ #4 [a)⟨U+001B⟩(2J⟨U+202E⟩evil⟨U+200…] ✓ complete · scout · depth 2 · in=20k out=500 · $0.0675 · 3.0s
    └─ #2 [日本語 (2)] → running · scout · depth 1 · 1.0s
    ");
}

#[test]
fn live_delegations_of_a_dead_run_are_shown_as_interrupted() {
    let (h, _) = three();
    insta::assert_snapshot!(draw(&h, ProcessLiveness::Dead), @r"
    run_1738326896_aaaaaa
    [root] ! interrupted · delegate · depth 0 · in=261k out=15k · $1.0101 · 1m 10s
    ├─ #1 [security] ✓ complete · scout · depth 1 · in=45k out=2.1k · $0.1665 · 1.5s
    ├─ #2 [correctness] ! interrupted · scout · depth 1 · in=23k out=890 · $0.0824 · 1m 10s
    └─ #3 [refactor] ⚠ partial: context exhausted · scout · depth 1 · in=193k out=12k · $0.7612 · 1m 10s
    ");
}

#[test]
fn reasons_are_shown_in_the_tree() {
    let (h, _) = finished();
    insta::assert_snapshot!(draw(&h, ProcessLiveness::Alive), @"
    run_1738326896_aaaaaa
    [root] ⚠ partial · delegate · depth 0 · in=265k out=16k · ~$1.0371 · 1m 11s
    ├─ #1 [security] ✓ complete · scout · depth 1 · in=45k out=2.1k · $0.1665 · 1.5s
    ├─ #2 [correctness] ✗ failed: provider error · scout · depth 1 · in=27k out=1.9k · ~$0.1094 · 1m 11s
    ├─ #3 [refactor] ⚠ partial: context exhausted · scout · depth 1 · in=193k out=12k · $0.7612 · 1m 10s
    └─ #4 [deeper] ⊘ refused: max depth exceeded · scout · depth 1
    ~ estimated: calls without reported usage are counted at the amount reserved for them
    ");
}

#[test]
fn an_empty_tree_says_so() {
    insta::assert_snapshot!(render(&RunView::default(), h_zero(), ProcessLiveness::Alive, Palette::Plain, 160), @"nothing has been delegated");
    insta::assert_snapshot!(draw(&History::new(), ProcessLiveness::Alive), @r"
    run_1738326896_aaaaaa
    [root] → running · delegate · depth 0 · 0.0s
    ");
}

fn h_zero() -> adjutant_core::Timestamp {
    adjutant_core::Timestamp::ZERO
}

#[test]
fn the_json_tree_nests_children() {
    let h = nested();
    let shape = json(&h.view(), h.at(), ProcessLiveness::Alive);
    let shape: serde_json::Value = serde_json::from_str(&pretty(&shape)).unwrap();
    assert_eq!(shape["root"]["session_id"], root().to_string());
    assert_eq!(shape["root"]["children"][0]["children"][1]["label"], HOSTILE);
    assert_eq!(shape["root"]["inclusive"]["usage"]["input"], 50_000);
    assert_eq!(shape["root"]["own"]["usage"]["input"], 0);
}
