//! What a run cost: own and inclusive for each node, by agent, by model, and in all.
//!
//! Every number is of the one fold, so the root's inclusive cost is the total, and the total is the
//! sum of all settlements.

use std::collections::BTreeMap;

use adjutant_core::numbers::grouped;
use adjutant_core::{RunId, SessionId, Usd};
use serde::Serialize;

use crate::layout::{bracketed, columns, fit};
use crate::run::{Delegation, RunView, Spend};
use crate::wire::{SpendJson, UsageJson, VERSION};

/// Draws the tables of a run, or of one delegation and what is below it.
#[must_use]
pub fn render(view: &RunView, of: Option<SessionId>) -> String {
    let (scope, all) = scope(view, of);
    let mut text = columns(&nodes(&scope), &[1, 2, 3, 4, 5, 6, 7]);
    for (title, sums) in [("agent", by_agent(&scope)), ("model", by_model(&scope))] {
        if sums.is_empty() {
            continue;
        }
        text.push('\n');
        text.push_str(&columns(&sum_rows(title, &sums), &[1, 2, 3, 4, 5, 6]));
    }
    text.push_str(&total(all));
    text
}

/// Returns the nodes that are asked about and what they came to.
fn scope(view: &RunView, of: Option<SessionId>) -> (Vec<&Delegation>, &Spend) {
    let one = of.and_then(|session| view.delegation(session));
    match one.filter(|one| one.parent.is_some()) {
        Some(one) => (view.subtree(one), &one.inclusive),
        None => (view.preorder(), view.total()),
    }
}

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

fn total(all: &Spend) -> String {
    let tokens = grouped(all.usage.total());
    let mut text = format!("\nTotal: {tokens} tokens, {}\n", all.money());
    if all.is_estimated() {
        text.push_str(&format!(
            "~ {} tokens and {} of it are estimates: calls whose usage no provider reported count in full.\n",
            grouped(all.estimated.tokens),
            all.estimated.usd
        ));
    }
    if all.unpriced_tokens > 0 {
        text.push_str(&format!(
            "+ {} tokens are of models without a known price and not in the cost.\n",
            grouped(all.unpriced_tokens)
        ));
    }
    if !all.overrun.is_zero() {
        text.push_str(&format!(
            "! {} tokens and {} were billed beyond their reservations.\n",
            grouped(all.overrun.tokens),
            all.overrun.usd
        ));
    }
    text
}

fn by_agent(scope: &[&Delegation]) -> Vec<(String, Spend)> {
    sums(scope, |node| node.agent.to_string())
}

fn by_model(scope: &[&Delegation]) -> Vec<(String, Spend)> {
    sums(scope, |node| node.model.clone().unwrap_or_else(|| "unknown".into()))
}

/// Sums what nodes spent themselves under a name, the dearest first.
fn sums(scope: &[&Delegation], name: impl Fn(&Delegation) -> String) -> Vec<(String, Spend)> {
    let mut sums: BTreeMap<String, Spend> = BTreeMap::new();
    for node in scope.iter().filter(|node| node.own.calls > 0) {
        let sum = sums.entry(name(node)).or_default();
        *sum = sum.plus(&node.own);
    }
    let mut sums: Vec<(String, Spend)> = sums.into_iter().collect();
    sums.sort_by_key(|(_, spend)| {
        (std::cmp::Reverse(spend.usd), std::cmp::Reverse(spend.usage.total()))
    });
    sums
}

/// A run's cost for programs.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct CostJson {
    /// The version of the format.
    pub v: u32,
    /// The run.
    pub run: Option<RunId>,
    /// Every node, parents before children.
    pub nodes: Vec<NodeCostJson>,
    /// What each agent spent itself, the dearest first.
    pub by_agent: Vec<SumJson>,
    /// What each model was paid, the dearest first.
    pub by_model: Vec<SumJson>,
    /// All of it.
    pub total: TotalJson,
}

/// What one node cost.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct NodeCostJson {
    /// Its id.
    pub session_id: SessionId,
    /// Who asked.
    pub parent: Option<SessionId>,
    /// What it is called.
    pub label: String,
    /// Who works.
    pub agent: String,
    /// The model that runs it.
    pub model: Option<String>,
    /// Edges from the root.
    pub depth: u64,
    /// What its own calls came to.
    pub own: SpendJson,
    /// What it and all below it came to.
    pub inclusive: SpendJson,
}

/// What was spent under one name.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct SumJson {
    /// The agent or model.
    pub name: String,
    /// How many calls were settled.
    pub calls: u64,
    /// What they came to.
    #[serde(flatten)]
    pub spent: SpendJson,
}

/// What a whole run cost.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct TotalJson {
    /// How many calls were settled.
    pub calls: u64,
    /// The tokens.
    pub usage: UsageJson,
    /// The money; absent when no model has a price.
    pub cost_usd: Option<Usd>,
    /// Tokens that count at their reservation.
    pub estimated_tokens: u64,
    /// Money that counts at its reservation.
    pub estimated_usd: Usd,
    /// Tokens of models without a price.
    pub unpriced_tokens: u64,
}

/// Returns the cost of a run, or of one delegation and what is below it, for programs.
#[must_use]
pub fn json(view: &RunView, of: Option<SessionId>) -> CostJson {
    let (scope, all) = scope(view, of);
    CostJson {
        v: VERSION,
        run: view.run(),
        nodes: scope.iter().map(|node| node_json(node)).collect(),
        by_agent: by_agent(&scope).iter().map(sum_json).collect(),
        by_model: by_model(&scope).iter().map(sum_json).collect(),
        total: TotalJson {
            calls: all.calls,
            usage: all.usage.into(),
            cost_usd: all.known_usd(),
            estimated_tokens: all.estimated.tokens,
            estimated_usd: all.estimated.usd,
            unpriced_tokens: all.unpriced_tokens,
        },
    }
}

fn node_json(node: &Delegation) -> NodeCostJson {
    NodeCostJson {
        session_id: node.session,
        parent: node.parent,
        label: node.label.to_string(),
        agent: node.agent.to_string(),
        model: node.model.clone(),
        depth: node.depth,
        own: (&node.own).into(),
        inclusive: (&node.inclusive).into(),
    }
}

fn sum_json((name, spend): &(String, Spend)) -> SumJson {
    SumJson { name: name.clone(), calls: spend.calls, spent: spend.into() }
}
