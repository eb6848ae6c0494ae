//! The cost of a run: per node (own and inclusive), per agent, per model, and in total.
//!
//! All numbers come from the same fold: the root's inclusive cost equals the total, which is the sum of all
//! settlements.
//!
//! [`CostJson`] is the whole report: a [`NodeCostJson`] per node, a [`CostSumJson`] per agent and
//! per model, and a [`TotalCostJson`].

use std::collections::BTreeMap;

use adjutant_core::numbers::grouped;
use adjutant_core::{RunId, SessionId, Usd};
use serde::Serialize;

use crate::layout::{bracketed, columns, cut, fit, width, wrap_lines};
use crate::run::{Delegation, RunView, Spend};
use crate::wire::{SpendJson, UsageJson, VERSION};
use crate::worker_text::{WorkerJson, calls_text, report_text};

/// Draws the cost tables of a run, or of one delegation and everything below it, for a terminal of `wide` columns.
#[must_use]
pub fn render(view: &RunView, of: Option<SessionId>, wide: usize) -> String {
    let (scope, all) = scope(view, of);
    let mut text = fitted(nodes(&scope), wide);
    for (title, sums) in [("agent", by_agent(&scope)), ("model", by_model(&scope))] {
        if sums.is_empty() {
            continue;
        }
        text.push('\n');
        text.push_str(&fitted(sum_rows(title, &sums), wide));
    }
    text.push_str(&wrap_lines(&total(all), wide));
    text.push_str(&wrap_lines(&own_reports(&scope), wide));
    text
}

/// Returns a line for each external worker whose own report differs from what was counted.
fn own_reports(scope: &[&Delegation]) -> String {
    let line = |node: &&Delegation| {
        let worker = node.worker.as_ref()?;
        let report = report_text(&worker.name, worker.differing_report()?);
        let (label, tokens) = (bracketed(node.label.as_str(), 34), node.own.usage.total());
        let counted = format!("{} tokens, {}", grouped(tokens), node.own.money());
        Some(format!("{label} {report}; its {} took {counted}\n", calls_text(worker)))
    };
    scope.iter().filter_map(line).collect()
}

/// Returns the nodes to show and their total.
pub(crate) fn scope(view: &RunView, of: Option<SessionId>) -> (Vec<&Delegation>, &Spend) {
    let one = of.and_then(|session| view.delegation(session));
    match one.filter(|one| one.parent.is_some()) {
        Some(one) => (view.subtree(one), &one.inclusive),
        None => (view.preorder(), view.total()),
    }
}

/// Draws a table of names and numbers. On a narrow terminal it leaves out what the provider had cached and then the
/// number of calls, and cuts names.
fn fitted(mut rows: Vec<Vec<String>>, wide: usize) -> String {
    let numbers: Vec<usize> = (1..rows.first().map_or(0, Vec::len)).collect();
    let width_of = |rows: &[Vec<String>]| columns(rows, &[]).lines().map(width).max().unwrap_or(0);
    for left_out in LEFT_OUT {
        if width_of(&rows) <= wide {
            break;
        }
        for row in &mut rows {
            row.remove(left_out);
        }
    }
    let taken = width_of(&rows.iter().map(|row| row[1..].to_vec()).collect::<Vec<_>>()) + 2;
    for row in &mut rows {
        row[0] = cut(&row[0], wide.saturating_sub(taken).max(LEAST_NAME));
    }
    columns(&rows, &numbers)
}

/// The columns that a narrow terminal leaves out one after the other: cache write, cache read, calls.
const LEFT_OUT: [usize; 3] = [4, 3, 1];

/// The minimum width of a name.
const LEAST_NAME: usize = 10;

const HEAD: [&str; 5] = ["calls", "in", "cache read", "cache write", "out"];

fn nodes(scope: &[&Delegation]) -> Vec<Vec<String>> {
    let top = scope.first().map_or(0, |node| node.depth);
    let mut rows = vec![row("", HEAD.map(String::from), ["own", "inclusive"].map(String::from))];
    for node in scope {
        let indent = "  ".repeat(usize::try_from(node.depth - top).unwrap_or(0).min(16));
        let name = format!("{indent}{}", bracketed(node.label.as_str(), 34));
        rows.push(row(&name, counts(&node.own), [node.own.money(), node.inclusive.money()]));
    }
    rows
}

fn sum_rows(title: &str, sums: &[(String, Spend)]) -> Vec<Vec<String>> {
    let mut rows = vec![row(title, HEAD.map(String::from), ["cost".into()])];
    rows.extend(
        sums.iter().map(|(name, spend)| row(&fit(name, 48), counts(spend), [spend.money()])),
    );
    rows
}

fn row<const N: usize>(name: &str, counts: [String; 5], money: [String; N]) -> Vec<String> {
    std::iter::once(name.to_owned()).chain(counts).chain(money).collect()
}

fn counts(spend: &Spend) -> [String; 5] {
    let usage = spend.usage;
    let numbers =
        [spend.calls, usage.input_total(), usage.cache_read, usage.cache_write, usage.output];
    numbers.map(grouped)
}

/// Returns the total, and what it does not contain.
pub(crate) fn total(all: &Spend) -> String {
    let tokens = grouped(all.usage.total());
    let mut text = format!("\nTotal: {tokens} tokens");
    if all.is_estimated() {
        text.push_str(&format!(" (~{} estimated)", grouped(all.estimated.tokens)));
    }
    text.push_str(&format!(", {}", all.money_in_parts().unwrap_or_else(|| all.money())));
    if all.is_estimated() {
        text.push_str(" (calls whose usage was not reported, counted at their reservation)");
    }
    text.push('\n');
    if all.unpriced_tokens > 0 {
        text.push_str(&format!(
            "+ {} tokens were used by models without a known price and are not in the cost.\n",
            grouped(all.unpriced_tokens)
        ));
    }
    if !all.overrun.is_zero() {
        text.push_str(&format!(
            "! {} tokens and {} more were billed than had been reserved for the calls.\n",
            grouped(all.overrun.tokens),
            all.overrun.usd
        ));
    }
    text
}

fn by_agent(scope: &[&Delegation]) -> Vec<(String, Spend)> {
    sum_by_name(scope.iter().map(|node| (node.agent.to_string(), node.own)))
}

fn by_model(scope: &[&Delegation]) -> Vec<(String, Spend)> {
    sum_by_name(scope.iter().flat_map(|node| node.by_model()))
}

/// Sums the costs per name, the most expensive first.
fn sum_by_name(spent: impl Iterator<Item = (String, Spend)>) -> Vec<(String, Spend)> {
    let mut sums: BTreeMap<String, Spend> = BTreeMap::new();
    for (name, spend) in spent.filter(|(_, spend)| spend.calls > 0) {
        let sum = sums.entry(name).or_default();
        *sum = sum.plus(&spend);
    }
    let mut sums: Vec<(String, Spend)> = sums.into_iter().collect();
    sums.sort_by_key(|(_, spend)| {
        (std::cmp::Reverse(spend.usd), std::cmp::Reverse(spend.usage.total()))
    });
    sums
}

/// A run's cost as JSON.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct CostJson {
    /// The version of the format.
    pub v: u32,
    /// The run.
    pub run: Option<RunId>,
    /// All nodes, parents before children.
    pub nodes: Vec<NodeCostJson>,
    /// The own cost of each agent, the most expensive first.
    pub by_agent: Vec<CostSumJson>,
    /// The cost of each model, the most expensive first.
    pub by_model: Vec<CostSumJson>,
    /// The total.
    pub total: TotalCostJson,
}

/// The cost of one node.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct NodeCostJson {
    /// The session id.
    pub session_id: SessionId,
    /// The session id of the parent.
    pub parent: Option<SessionId>,
    /// The label.
    pub label: String,
    /// The name of the agent.
    pub agent: String,
    /// The model that runs it.
    pub model: Option<String>,
    /// The external worker that does its work, if one does.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub worker: Option<WorkerJson>,
    /// The depth in the tree.
    pub depth: u64,
    /// Tokens and cost of its own model calls.
    pub own: SpendJson,
    /// Tokens and cost of it and everything below it.
    pub inclusive: SpendJson,
}

/// The cost of one agent or model.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct CostSumJson {
    /// The agent or model.
    pub name: String,
    /// The number of settled model calls.
    pub calls: u64,
    /// Their tokens and cost.
    #[serde(flatten)]
    pub spent: SpendJson,
}

/// The cost of a whole run.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct TotalCostJson {
    /// The number of settled model calls.
    pub calls: u64,
    /// The tokens.
    pub usage: UsageJson,
    /// The cost; absent if no model has a price.
    pub cost_usd: Option<Usd>,
    /// Tokens counted at their reservation, because no provider reported them.
    pub estimated_tokens: u64,
    /// Cost counted at its reservation, because no provider reported the usage.
    pub estimated_usd: Usd,
    /// Tokens of models without a price.
    pub unpriced_tokens: u64,
}

impl From<&Spend> for TotalCostJson {
    fn from(all: &Spend) -> Self {
        Self {
            calls: all.calls,
            usage: all.usage.into(),
            cost_usd: all.known_usd(),
            estimated_tokens: all.estimated.tokens,
            estimated_usd: all.estimated.usd,
            unpriced_tokens: all.unpriced_tokens,
        }
    }
}

/// Returns the cost of a run, or of one delegation and everything below it, as JSON.
#[must_use]
pub fn json(view: &RunView, of: Option<SessionId>) -> CostJson {
    let (scope, all) = scope(view, of);
    CostJson {
        v: VERSION,
        run: view.run(),
        nodes: scope.iter().map(|node| node_json(node)).collect(),
        by_agent: by_agent(&scope).iter().map(sum_json).collect(),
        by_model: by_model(&scope).iter().map(sum_json).collect(),
        total: all.into(),
    }
}

fn node_json(node: &Delegation) -> NodeCostJson {
    NodeCostJson {
        session_id: node.session,
        parent: node.parent,
        label: node.label.to_string(),
        agent: node.agent.to_string(),
        model: node.model.clone(),
        worker: WorkerJson::of(node),
        depth: node.depth,
        own: (&node.own).into(),
        inclusive: (&node.inclusive).into(),
    }
}

fn sum_json((name, spend): &(String, Spend)) -> CostSumJson {
    CostSumJson { name: name.clone(), calls: spend.calls, spent: spend.into() }
}
