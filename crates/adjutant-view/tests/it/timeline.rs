//! Who ran when, what it waited for, and how much of the budgets is used.

use adjutant_core::{Event, Outcome, Timestamp};
use adjutant_view::RunView;
use adjutant_view::budget_use::{BudgetUnit, BudgetUse, of_delegation, of_run};
use adjutant_view::timeline::{SpanKind, Timeline};
use serde_json::json;

use crate::history::{History, call, root, three, tokens};

fn timeline(h: &History) -> Timeline {
    let (mut view, mut timeline) = (RunView::light(), Timeline::default());
    for entry in h.entries() {
        view.apply(entry);
        timeline.apply(&view, &entry);
    }
    timeline
}

/// Draws one row per session, with a character per column.
fn drawn(h: &History, columns: usize) -> String {
    let (timeline, view) = (timeline(h), h.view());
    let row = |node: &adjutant_view::Delegation| {
        let range = (Timestamp::ZERO, h.at());
        let strip = timeline.strip(node.session, range, h.at(), columns);
        let marks: String = strip.iter().map(|it| it.map_or('.', SpanKind::mark)).collect();
        format!("{marks} {}\n", node.label.as_str())
    };
    view.preorder().into_iter().map(row).collect()
}

/// One waits for a place, then both work; the first also runs a tool and asks a person for a host.
fn waiting() -> History {
    let mut h = History::new();
    let [first, second] = h.call([("first", "x"), ("second", "y")]);
    h.start(first);
    h.wait(2_000);
    let fetch = call("WebFetch", json!({ "url": "https://example.com" }));
    h.reply(first, "", vec![fetch], tokens(1_000, 10));
    h.push(Event::DomainAsked {
        session: first,
        call: 0,
        host: "example.com".into(),
        expires: h.at().plus_millis(60_000),
    });
    h.wait(2_000);
    h.push(Event::DomainAllowed { host: "example.com".into() });
    h.push(Event::ToolCalled { session: first, call: 0 });
    h.wait(2_000);
    h.push(Event::ToolReturned {
        session: first,
        call: 0,
        output: adjutant_core::ToolOutput::default(),
    });
    h.end(first, Outcome::Completed, None);
    h.start(second);
    h.wait(2_000);
    h
}

#[test]
fn a_timeline_shows_what_each_delegation_waited_for() {
    insta::assert_snapshot!(drawn(&waiting(), 16), @"
    ──────────────── root
    ▒▒▒▒????████.... first
    ░░░░░░░░░░░░▒▒▒▒ second
    ");
}

#[test]
fn a_span_that_is_shorter_than_a_column_is_drawn_where_it_is_the_longest() {
    let (h, _) = three();
    insta::assert_snapshot!(drawn(&h, 20), @"
    ──────────────────── root
    ▒................... security
    ▒▒▒█████████████████ correctness
    ▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒ refactor
    ");
    assert!(drawn(&h, 0).starts_with(" root"), "no columns draw nothing");
}

#[test]
fn a_run_without_duration_has_an_empty_timeline() {
    let mut h = History::new();
    let [one] = h.call([("one", "x")]);
    h.start(one);
    assert_eq!(drawn(&h, 4), ".... root\n.... one\n");
}

#[test]
fn spans_are_in_order_and_the_last_one_is_open_while_the_delegation_lives() {
    let h = waiting();
    let timeline = timeline(&h);
    for node in h.view().preorder() {
        let spans = timeline.spans(node.session);
        for pair in spans.windows(2) {
            assert!(pair[0].until.is_some_and(|until| until <= pair[1].from), "{pair:?}");
        }
        let is_open = spans.last().is_some_and(|span| span.until.is_none());
        assert_eq!(is_open, node.state.is_live(), "{}", node.label.as_str());
    }
}

#[test]
fn a_budget_is_divided_into_what_is_spent_reserved_and_free() {
    let (mut h, [_, correctness, _]) = three();
    h.reserve(correctness, 2);
    let view = h.view();
    let [usd, all] = of_run(&view)[..] else { panic!("money and tokens") };
    assert_eq!((usd.unit, all.unit), (BudgetUnit::Usd, BudgetUnit::Tokens));
    assert_eq!(usd.spent, view.total().usd.as_pico());
    assert_eq!(all.reserved, 10_000);
    assert_eq!(all.spent + all.reserved + all.free(), all.cap);
    let own = of_delegation(&view, view.delegation(correctness).unwrap());
    assert_eq!(own.iter().map(|it| it.spent).collect::<Vec<_>>(), [23_890]);
    // What is below the root counts against its budget, which is that of the run.
    assert_eq!(of_delegation(&view, view.delegation(root()).unwrap()), [all]);
}

#[test]
fn what_is_below_a_delegation_counts_against_its_budget() {
    let mut h = History::new();
    let [lead] = h.call([("lead", "x")]);
    h.start(lead);
    h.reply(lead, "", vec![], tokens(1_000, 10));
    let [below] = h.call_from(lead, [("below", "x")]);
    h.start(below);
    h.reply(below, "", vec![], tokens(2_000, 20));
    h.reserve(below, 2);
    let view = h.view();
    let of = |session| of_delegation(&view, view.delegation(session).unwrap())[0];
    let (lead, below) = (of(lead), of(below));
    assert_eq!((below.spent, lead.spent), (2_020, 3_030));
    assert_eq!((below.reserved, lead.reserved), (10_000, 10_000));
    assert_eq!(lead.cap, view.policy().unwrap().budget_tokens.unwrap());
}

#[test]
fn the_parts_of_a_bar_fill_it_and_a_small_part_is_visible() {
    let budget = |cap, spent, reserved| BudgetUse {
        unit: BudgetUnit::Tokens,
        cap,
        spent,
        reserved,
        is_estimated: false,
    };
    for (budget, wide, columns) in [
        (budget(100, 50, 25), 20, [10, 5, 5]),
        (budget(1_000_000, 1, 1), 20, [1, 1, 18]),
        (budget(100, 120, 10), 20, [20, 0, 0]),
        (budget(100, 0, 0), 20, [0, 0, 20]),
        (budget(0, 0, 0), 3, [0, 0, 3]),
        (budget(100, 50, 50), 0, [0, 0, 0]),
    ] {
        assert_eq!(budget.columns(wide), columns, "{budget:?}");
    }
}
