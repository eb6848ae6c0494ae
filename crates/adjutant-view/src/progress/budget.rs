//! How much of a run's budget is spent, reported once per threshold.
//!
//! A `BudgetThreshold` is one threshold that the spending has reached.

use adjutant_core::budget::Settlement;
use adjutant_core::numbers::format_rounded;
use adjutant_core::{Event, Usd};

use crate::budget_use::tokens_of;
use crate::run::{Delegation, RunView};

/// The reported thresholds in percent, lowest first.
const THRESHOLDS: [u64; 3] = [50, 80, 100];

/// A threshold that the spending has reached.
pub(crate) struct BudgetThreshold {
    /// The threshold in percent.
    pub(crate) percent: u64,
    pub(crate) spent: Usd,
    pub(crate) limit: Usd,
}

/// Returns a warning if this event made the spending reach a threshold.
pub(crate) fn threshold_warning(view: &RunView, event: &Event) -> Option<String> {
    let BudgetThreshold { percent, spent, limit } = newly_reached(view, event)?;
    Some(format!("⚠ {percent} % of the budget of {limit} is spent: {spent}"))
}

/// Returns the highest threshold that was reached with this event.
///
/// `view` must already include the event.
pub(crate) fn newly_reached(view: &RunView, event: &Event) -> Option<BudgetThreshold> {
    let (Event::Replied { settlement, .. }
    | Event::AttemptFailed { settlement, .. }
    | Event::Settled { settlement, .. }
    | Event::WorkerCallSettled { settlement, .. }) = event
    else {
        return None;
    };
    let (before, now) = (spent_before(view, settlement), view.total().usd);
    let limit = limit(view)?;
    let new = |percent: &&u64| {
        has_reached(now, limit, **percent) && !has_reached(before, limit, **percent)
    };
    let percent = *THRESHOLDS.iter().rev().find(new)?;
    Some(BudgetThreshold { percent, spent: now, limit })
}

/// Returns the spent percentage of the budget, with a warning mark once it has reached the lowest threshold.
pub(crate) fn spent_percentage(view: &RunView) -> Option<String> {
    let (now, limit) = (view.total().usd, limit(view)?);
    let mark = if has_reached(now, limit, THRESHOLDS[0]) { "⚠ " } else { "" };
    let percent = u128::from(now.as_pico()) * 100 / u128::from(limit.as_pico());
    (percent > 0).then(|| format!("{mark}{percent} % of the {limit} budget"))
}

/// Returns how much of its own budget a delegation and what is below it have spent: `12 % of 500k`.
///
/// Only tokens are budgeted per delegation, and most use less than a percent of the usual budget.
pub(super) fn own_budget_share(view: &RunView, delegation: &Delegation) -> Option<String> {
    let cap = tokens_of(view, delegation).filter(|cap| *cap > 0)?;
    let percent = u128::from(delegation.inclusive.usage.total()) * 100 / u128::from(cap);
    (percent > 0).then(|| format!("{percent} % of {}", format_rounded(cap)))
}

fn limit(view: &RunView) -> Option<Usd> {
    view.policy().and_then(|policy| policy.budget_usd).filter(|limit| *limit > Usd::ZERO)
}

fn spent_before(view: &RunView, settlement: &Settlement) -> Usd {
    view.total().usd.saturating_sub(settlement.usd)
}

fn has_reached(spent: Usd, limit: Usd, percent: u64) -> bool {
    u128::from(spent.as_pico()) * 100 >= u128::from(limit.as_pico()) * u128::from(percent)
}
