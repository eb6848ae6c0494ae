//! Requirement 59: costs per node and in total.

use adjutant_core::budget::BudgetAmount;
use adjutant_core::{Event, Outcome, Usage};
use adjutant_view::cost::{json, render};

use crate::history::{History, finished, root, tokens};

#[test]
fn requirement_59_a_table_shows_each_node_agent_and_model() {
    let (h, _) = finished();
    insta::assert_snapshot!(render(&h.view(), None, 160), @r"
                     calls       in  cache read  cache write     out       own  inclusive
    [root]               0        0           0            0       0     $0.00   ~$1.0371
      [security]         1   45,000           0            0   2,100   $0.1665    $0.1665
      [correctness]      2   27,000           0            0   1,890  ~$0.1094   ~$0.1094
      [refactor]         4  193,000           0            0  12,150   $0.7612    $0.7612
      [deeper]           0        0           0            0       0     $0.00      $0.00

    agent  calls       in  cache read  cache write     out      cost
    scout      7  265,000           0            0  16,140  ~$1.0371

    model       calls       in  cache read  cache write     out      cost
    acme/large      7  265,000           0            0  16,140  ~$1.0371

    Total: 281,140 tokens (~5,000 estimated), $1.0101 measured + ~$0.0270 estimated (calls whose usage was not reported, counted at their reservation)
    ");
}

#[test]
fn cache_reads_missing_prices_and_overruns_are_shown() {
    let mut h = History::new();
    let mut cheap = h.grant(root(), "free", "x");
    cheap.brief.model.as_mut().unwrap().price = None;
    cheap.brief.model.as_mut().unwrap().name = "local/tiny".into();
    let free = cheap.session;
    h.push(Event::Granted(Box::new(cheap)));
    let [cached] = h.call([("cached", "x")]);
    h.start(cached);
    h.reply(
        cached,
        "",
        vec![],
        Usage { input: 100, output: 10, cache_read: 9_000, cache_write: 900 },
    );
    h.push(Event::Replied {
        session: free,
        turn: 1,
        attempt: 1,
        text: "ok".into(),
        tool_calls: vec![],
        translations: vec![],
        stop: adjutant_core::StopReason::EndTurn,
        opaque: None,
        settlement: adjutant_core::budget::Settlement {
            usage: tokens(500, 5),
            usd: adjutant_core::Usd::ZERO,
            estimated: false,
        },
    });
    h.push(Event::Overran {
        session: cached,
        amount: BudgetAmount { tokens: 7, usd: adjutant_core::Usd::ZERO },
    });
    h.end(cached, Outcome::Completed, None);
    insta::assert_snapshot!(render(&h.view(), None, 160), @r"
                calls      in  cache read  cache write  out       own  inclusive
    [root]          0       0           0            0    0     $0.00   $0.0065+
      [free]        1     500           0            0    5  no price   no price
      [cached]      1  10,000       9,000          900   10   $0.0065    $0.0065

    agent  calls      in  cache read  cache write  out      cost
    scout      2  10,500       9,000          900   15  $0.0065+

    model       calls      in  cache read  cache write  out      cost
    acme/large      1  10,000       9,000          900   10   $0.0065
    local/tiny      1     500           0            0    5  no price

    Total: 10,515 tokens, $0.0065+
    + 505 tokens were used by models without a known price and are not in the cost.
    ! 7 tokens and $0.00 more were billed than had been reserved for the calls.
    ");
}

#[test]
fn the_root_includes_all_costs() {
    let (h, _) = finished();
    let shape = json(&h.view(), None);
    assert_eq!(shape.nodes[0].inclusive.usage, shape.total.usage);
    assert_eq!(shape.nodes[0].inclusive.cost_usd, shape.total.cost_usd);
    assert!(shape.nodes[0].inclusive.estimated);
}

#[test]
fn a_run_without_costs_has_a_table_too() {
    insta::assert_snapshot!(render(&History::new().view(), None, 160), @r"
            calls  in  cache read  cache write  out    own  inclusive
    [root]      0   0           0            0    0  $0.00      $0.00

    Total: 0 tokens, $0.00
    ");
}

#[test]
fn each_turn_shows_the_share_of_its_input_that_was_cached() {
    let (h, _) = finished();
    insta::assert_snapshot!(h.turn_costs().render(&h.view(), None), @r"
                   turn       in  cached  share     out      cost
    [security]        1   45,000       0     0%   2,100   $0.1665
    [correctness]     1   23,000       0     0%     890   $0.0824
                      1   ~4,000       0      -   1,000  ~$0.0270
    [refactor]        1    1,000       0     0%      50   $0.0037
                      1    1,000       0     0%      50   $0.0037
                      1    1,000       0     0%      50   $0.0037
                      1  190,000       0     0%  12,000     $0.75

    Total: 0% of 261,000 reported input tokens came from the cache
    ");
    let mut h = History::new();
    let [cached] = h.call([("cached", "x")]);
    h.start(cached);
    for (input, cache_read) in [(1_000, 0), (200, 1_000), (1, 1_999)] {
        h.reply(cached, "", vec![], Usage { input, output: 10, cache_read, cache_write: 0 });
    }
    insta::assert_snapshot!(h.turn_costs().render(&h.view(), Some(cached)), @r"
              turn     in  cached  share  out     cost
    [cached]     1  1,000       0     0%   10  $0.0032
                 1  1,200   1,000    83%   10  $0.0010
                 1  2,000   1,999   100%   10  $0.0008

    Total: 71% of 4,200 reported input tokens came from the cache
    ");
    let shape = h.turn_costs().json(&h.view(), None);
    let shares: Vec<Option<f64>> = shape.turns.iter().map(|turn| turn.cached_share).collect();
    assert_eq!(shares, [Some(0.0), Some(0.833), Some(1.0)]);
    insta::assert_snapshot!(History::new().turn_costs().render(&History::new().view(), None), @"
      turn  in  cached  share  out  cost

    Total: no input tokens were reported
    ");
}
