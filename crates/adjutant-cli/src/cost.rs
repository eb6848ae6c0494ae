//! `cost`: what one run cost, or what all runs have spent in a period.

use adjutant_engine::{Archive, wall_now};
use adjutant_view::cost;
use adjutant_view::cost_sums::{CostGrouping, CostSums};
use adjutant_view::turn_costs::TurnCosts;

use crate::args::{CostArgs, CostGroupingArg, PeriodStart};
use crate::exit::{Exit, Failure};
use crate::output::{print, print_json, say};
use crate::records::{ViewDetail, archive_failure, find_in_scope, list_columns};
use crate::run_lookup::CommandVerb;
use crate::run_summaries::readable_summaries;

const COST: CommandVerb = CommandVerb {
    typed: "cost",
    noun: "run",
    has_anywhere: true,
    otherwise: " `adjutant cost --since 7d` sums over all runs.",
};

const MS_PER_DAY: u64 = 24 * 3_600_000;

/// Runs `adjutant cost`.
pub(crate) fn run_cost(archive: &Archive, args: &CostArgs, as_json: bool) -> Result<Exit, Failure> {
    if args.since.is_some() || args.by.is_some() {
        return sum_costs(archive, args, as_json);
    }
    let found = find_in_scope(archive, &args.run, args.scope, COST, ViewDetail::Numbers)?;
    if args.turns {
        let mut turns = TurnCosts::default();
        for record in found.files.records().map_err(archive_failure)? {
            turns.apply(&record.map_err(archive_failure)?.event);
        }
        if as_json {
            print_json(&turns.json(&found.view, found.session))?
        } else {
            print(&turns.render(&found.view, found.session))?
        }
    } else if as_json {
        print_json(&cost::json(&found.view, found.session))?
    } else {
        print(&cost::render(&found.view, found.session, list_columns()))?
    }
    Ok(Exit::Completed)
}

/// Sums what all runs spent.
fn sum_costs(archive: &Archive, args: &CostArgs, as_json: bool) -> Result<Exit, Failure> {
    let since = args.since.map(|period| match period {
        PeriodStart::Last(duration) => {
            wall_now().saturating_sub(u64::try_from(duration.as_millis()).unwrap_or(u64::MAX))
        }
        PeriodStart::From(wall_ms) => wall_ms,
        PeriodStart::Today => wall_now() - wall_now() % MS_PER_DAY,
    });
    let by = match args.by {
        None | Some(CostGroupingArg::Day) => CostGrouping::Day,
        Some(CostGroupingArg::Model) => CostGrouping::Model,
        Some(CostGroupingArg::Agent) => CostGrouping::Agent,
        Some(CostGroupingArg::Folder) => CostGrouping::Folder,
    };
    let readable = readable_summaries(archive)?;
    let sums = CostSums::of(readable.iter().map(|(_, summary)| summary), by, since);
    if as_json {
        print_json(&sums.json())?;
    } else if sums.is_empty() {
        let since = sums.since_text().map(|since| format!(" since {since}"));
        say(&format!("No run spent anything{}", since.unwrap_or_default()));
    } else {
        print(&sums.render(list_columns()))?;
    }
    Ok(Exit::Completed)
}
