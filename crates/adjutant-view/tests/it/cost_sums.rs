//! What many runs cost.

use adjutant_core::AgentName;
use adjutant_view::cost_sums::{CostGrouping, CostSums};
use adjutant_view::layout::width;
use adjutant_view::run::HourlySpend;
use adjutant_view::{ProcessLiveness, RunSummary};

use crate::history::{HOSTILE, WALL, finished};

const HOUR_MS: u64 = 3_600_000;

/// One run in two folders, the second of them a day and an hour later.
fn two_runs() -> [RunSummary; 2] {
    let first = RunSummary::of(&finished().0.view(), ProcessLiveness::Dead);
    let mut second = first.clone();
    second.workdir = "/home/user/projects/a-long-name/of-another-folder/inside/of/it".into();
    second.spent.iter_mut().for_each(|it| it.hour += 25);
    [first, second]
}

#[test]
fn a_table_has_a_row_per_group_and_the_total_below() {
    let runs = two_runs();
    let by = |by| CostSums::of(&runs, by, None).render(60);
    insta::assert_snapshot!(by(CostGrouping::Day), @"
    day         runs  calls    in  out      cost
    2025-02-01     1      7  265k  16k  ~$1.0371
    2025-01-31     1      7  265k  16k  ~$1.0371

    2 runs
    Total: 562,280 tokens (~10,000 estimated), $2.0202
      measured + ~$0.0540 estimated (calls whose usage was not
      reported, counted at their reservation)
    ");
    insta::assert_snapshot!(by(CostGrouping::Folder), @"
    folder                      runs  calls    in  out      cost
    /home/user/p…/inside/of/it     1      7  265k  16k  ~$1.0371
    work/tree                      1      7  265k  16k  ~$1.0371

    2 runs
    Total: 562,280 tokens (~10,000 estimated), $2.0202
      measured + ~$0.0540 estimated (calls whose usage was not
      reported, counted at their reservation)
    ");
    insta::assert_snapshot!(CostSums::of(&runs, CostGrouping::Model, Some(WALL)).render(160), @"
    model       runs  calls    in  out      cost
    acme/large     2     14  530k  32k  ~$2.0742

    2 runs since 2025-01-31T12:00:00Z
    Total: 562,280 tokens (~10,000 estimated), $2.0202 measured + ~$0.0540 estimated (calls whose usage was not reported, counted at their reservation)
    ");
}

#[test]
fn a_period_begins_at_the_full_hour_and_contains_it() {
    let runs = two_runs();
    let count = |since: u64| CostSums::of(&runs, CostGrouping::Agent, Some(since)).json().runs;
    let hour = WALL - WALL % HOUR_MS;
    assert_eq!([count(0), count(hour), count(WALL + 1)], [2, 2, 2]);
    assert_eq!([count(hour + HOUR_MS), count(hour + 26 * HOUR_MS - 1), count(u64::MAX)], [1, 1, 0]);
}

#[test]
fn hostile_names_stay_within_their_line() {
    for text in [HOSTILE.repeat(40), "字".repeat(300), "x".repeat(10_000)] {
        let mut run = two_runs()[0].clone();
        run.workdir = text.clone();
        let spend = run.spent[0].spend;
        let agent = AgentName::new(&text);
        run.spent.push(HourlySpend { hour: u64::MAX, agent, model: text, spend });
        for by in
            [CostGrouping::Day, CostGrouping::Model, CostGrouping::Agent, CostGrouping::Folder]
        {
            for wide in [60, 80, 160] {
                for line in CostSums::of([&run], by, None).render(wide).lines() {
                    assert!(!line.contains(['\u{1b}', '\u{202e}']), "{line}");
                    assert!(width(line) <= wide, "{line}");
                }
            }
        }
    }
}
