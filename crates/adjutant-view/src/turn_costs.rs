//! The cost of each model call of a run, and how much of its input the provider had cached.
//!
//! [`TurnCosts`] collects the calls from all events, because a [`RunView`] keeps only sums. [`TurnCostJson`] is one
//! call as JSON.

use std::collections::BTreeMap;

use adjutant_core::budget::Settlement;
use adjutant_core::numbers::grouped;
use adjutant_core::{Event, SessionId, Usage, Usd};
use serde::Serialize;

use crate::cost::{CostJson, json, scope};
use crate::layout::{bracketed, columns};
use crate::run::{Delegation, RunView};
use crate::wire::UsageJson;

/// The settled model calls of a run, by session and in order.
#[derive(Clone, Debug, Default)]
pub struct TurnCosts(BTreeMap<SessionId, Vec<SettledCall>>);

#[derive(Clone, Copy, Debug)]
struct SettledCall {
    turn: u32,
    attempt: u32,
    settlement: Settlement,
}

/// The cost of one model call.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct TurnCostJson {
    /// The session id.
    pub session_id: SessionId,
    /// The number of the turn in its session, from 1.
    pub turn: u32,
    /// The number of the attempt at the turn, from 1.
    pub attempt: u32,
    /// The tokens.
    pub usage: UsageJson,
    /// The share of the input tokens that came from the provider's cache, from 0 to 1; absent if the provider did not
    /// report it.
    pub cached_share: Option<f64>,
    /// The cost; absent if the model has no price.
    pub cost_usd: Option<Usd>,
    /// Whether it is counted at its reservation, because the provider did not report the usage.
    pub estimated: bool,
}

/// The cost of a run with each of its model calls, as JSON.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct CostWithTurnsJson {
    /// The cost of the run.
    #[serde(flatten)]
    pub cost: CostJson,
    /// The model calls, by node.
    pub turns: Vec<TurnCostJson>,
}

impl TurnCosts {
    /// Adds the model call that an event settles.
    pub fn apply(&mut self, event: &Event) {
        if let Event::Replied { session, turn, attempt, settlement, .. }
        | Event::AttemptFailed { session, turn, attempt, settlement, .. }
        | Event::Settled { session, turn, attempt, settlement } = event
        {
            let (turn, attempt, settlement) = (*turn, *attempt, *settlement);
            self.0.entry(*session).or_default().push(SettledCall { turn, attempt, settlement });
        }
    }

    /// Draws a table with a row for each model call of a run, or of one delegation and everything below it.
    #[must_use]
    pub fn render(&self, view: &RunView, of: Option<SessionId>) -> String {
        let head = ["", "turn", "in", "cached", "share", "out", "cost"].map(String::from);
        let mut rows = vec![head.to_vec()];
        let mut reported = Usage::default();
        for node in scope(view, of).0 {
            for (nth, call) in self.calls(node).iter().enumerate() {
                if !call.settlement.estimated {
                    reported += call.settlement.usage;
                }
                let name = bracketed(node.label.as_str(), 34);
                let name = if nth == 0 { name } else { String::new() };
                rows.push(std::iter::once(name).chain(call.row(node)).collect());
            }
        }
        let share = match share(reported) {
            Some(share) => {
                let input = grouped(reported.input_total());
                format!("{} of {input} reported input tokens came from the cache", percent(share))
            }
            None => "no input tokens were reported".to_owned(),
        };
        format!("{}\nTotal: {share}\n", columns(&rows, &[1, 2, 3, 4, 5, 6]))
    }

    /// Returns the cost of a run, or of one delegation and everything below it, with its model calls.
    #[must_use]
    pub fn json(&self, view: &RunView, of: Option<SessionId>) -> CostWithTurnsJson {
        let nodes = scope(view, of).0;
        let turns = nodes.iter().flat_map(|node| {
            self.calls(node).iter().map(|call| TurnCostJson {
                session_id: node.session,
                turn: call.turn,
                attempt: call.attempt,
                usage: call.settlement.usage.into(),
                cached_share: call.cached_share(),
                cost_usd: call.known_usd(node),
                estimated: call.settlement.estimated,
            })
        });
        CostWithTurnsJson { turns: turns.collect(), cost: json(view, of) }
    }

    fn calls(&self, node: &Delegation) -> &[SettledCall] {
        self.0.get(&node.session).map_or(&[], Vec::as_slice)
    }
}

impl SettledCall {
    fn row(&self, node: &Delegation) -> [String; 6] {
        let Settlement { usage, estimated, .. } = self.settlement;
        let turn = match self.attempt {
            1 => self.turn.to_string(),
            again => format!("{} attempt {again}", self.turn),
        };
        let about = if estimated { "~" } else { "" };
        let money = self
            .known_usd(node)
            .map_or_else(|| "no price".to_owned(), |usd| format!("{about}{usd}"));
        [
            turn,
            format!("{about}{}", grouped(usage.input_total())),
            grouped(usage.cache_read),
            self.cached_share().map_or_else(|| "-".to_owned(), percent),
            grouped(usage.output),
            money,
        ]
    }

    fn cached_share(&self) -> Option<f64> {
        share(self.settlement.usage).filter(|_| !self.settlement.estimated)
    }

    fn known_usd(&self, node: &Delegation) -> Option<Usd> {
        let usd = self.settlement.usd;
        (usd != Usd::ZERO || node.own.unpriced_tokens == 0).then_some(usd)
    }
}

fn share(usage: Usage) -> Option<f64> {
    let input = usage.input_total();
    // Rounded, so that the JSON has no digits beyond the precision of the counts.
    let thousandths = |part: u64| (part as f64 / input as f64 * 1_000.0).round() / 1_000.0;
    (input > 0).then(|| thousandths(usage.cache_read))
}

fn percent(share: f64) -> String {
    format!("{:.0}%", share * 100.0)
}
