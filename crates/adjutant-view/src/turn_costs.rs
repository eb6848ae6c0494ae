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
use crate::layout::{bracketed, columns, fit};
use crate::run::{Delegation, RunView};
use crate::wire::UsageJson;

/// The settled model calls of a run, by session and in order.
#[derive(Clone, Debug, Default)]
pub struct TurnCosts {
    calls: BTreeMap<SessionId, Vec<SettledCall>>,
    /// The turn and attempt of the latest prompt of each session.
    prompts: BTreeMap<SessionId, (u32, u32)>,
    /// The models of the running calls of external workers.
    worker_models: BTreeMap<(SessionId, u32), String>,
}

#[derive(Clone, Debug)]
struct SettledCall {
    turn: u32,
    attempt: u32,
    /// The number and the model of a call that an external worker made.
    worker_call: Option<(u32, Option<String>)>,
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
    /// The number of the call in its session, from 1; only for the calls of an external worker.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub call: Option<u32>,
    /// The model; only for the calls of an external worker, which may call several.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
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
            let call = SettledCall { turn, attempt, worker_call: None, settlement };
            self.calls.entry(*session).or_default().push(call);
        }
        if let Event::Reserved { session, reservation } = event {
            self.prompts.insert(*session, (reservation.turn, reservation.attempt));
        }
        if let Event::WorkerCallReserved { session, call, model, .. } = event {
            self.worker_models.insert((*session, *call), model.clone());
        }
        if let Event::WorkerCallSettled { session, call, settlement, .. } = event {
            let (turn, attempt) = self.prompts.get(session).copied().unwrap_or((1, 1));
            let model = self.worker_models.remove(&(*session, *call));
            let (worker_call, settlement) = (Some((*call, model)), *settlement);
            let call = SettledCall { turn, attempt, worker_call, settlement };
            self.calls.entry(*session).or_default().push(call);
        }
    }

    /// Draws a table with a row for each model call of a run, or of one delegation and everything below it.
    #[must_use]
    pub fn render(&self, view: &RunView, of: Option<SessionId>) -> String {
        let head = ["", "turn", "in", "cached", "share", "out", "cost"].map(String::from);
        let mut rows = vec![head.to_vec()];
        let mut reported = Usage::default();
        for node in scope(view, of).0 {
            for (nth, call) in self.calls(node).enumerate() {
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
            self.calls(node).map(|call| TurnCostJson {
                session_id: node.session,
                turn: call.turn,
                attempt: call.attempt,
                call: call.worker_call.as_ref().map(|(number, _)| *number),
                model: call.worker_call.as_ref().and_then(|(_, model)| model.clone()),
                usage: call.settlement.usage.into(),
                cached_share: call.cached_share(),
                cost_usd: call.known_usd(node),
                estimated: call.settlement.estimated,
            })
        });
        CostWithTurnsJson { turns: turns.collect(), cost: json(view, of) }
    }

    /// Returns the model calls of a node. A prompt to an external worker is none.
    fn calls<'a>(&'a self, node: &'a Delegation) -> impl Iterator<Item = &'a SettledCall> {
        let calls = self.calls.get(&node.session).into_iter().flatten();
        let is_prompt =
            |call: &SettledCall| call.worker_call.is_none() && call.settlement.amount().is_zero();
        calls.filter(move |call| node.worker.is_none() || !is_prompt(call))
    }
}

impl SettledCall {
    fn row(&self, node: &Delegation) -> [String; 6] {
        let Settlement { usage, estimated, .. } = self.settlement;
        let turn = match (&self.worker_call, self.attempt) {
            (Some((number, Some(model))), _) if node.model.as_ref() != Some(model) => {
                format!("call {number} of {}", fit(model, 40))
            }
            (Some((number, _)), _) => format!("call {number}"),
            (None, 1) => self.turn.to_string(),
            (None, again) => format!("{} attempt {again}", self.turn),
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
        if let (Some(worker), Some((_, Some(model)))) = (&node.worker, &self.worker_call) {
            return worker.has_price(model).then_some(usd);
        }
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
