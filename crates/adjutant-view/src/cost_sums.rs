//! The cost of many runs, summed by day, model, agent or folder.
//!
//! What a run spent is known by the hour, so a period begins at a full hour. Days are days of UTC.
//!
//! Start at [`CostSums::of`]. [`CostSumsJson`] is the same as JSON, [`CostGroupJson`] one group of it, and a
//! [`CostGrouping`] says what a group is. Invariant: the sum of all groups is the total.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use adjutant_core::numbers::{format_rounded, grouped};
use adjutant_core::time::date;
use serde::Serialize;

use crate::cost::{TotalCostJson, total};
use crate::layout::{columns, cut, fit_ends, width, wrap_lines};
use crate::run::{HourlySpend, MS_PER_HOUR, Spend};
use crate::run_summary::RunSummary;
use crate::state_words::count_with_noun;
use crate::time_text::rfc3339;
use crate::wire::{SpendJson, VERSION};

/// The minimum width of a name; a narrower terminal cuts the rows.
const LEAST_NAME: usize = 10;

/// What the costs of runs are summed by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum CostGrouping {
    /// The day on which it was spent.
    Day,
    /// The model.
    Model,
    /// The agent.
    Agent,
    /// The directory of the run.
    Folder,
}

impl CostGrouping {
    const fn word(self) -> &'static str {
        match self {
            Self::Day => "day",
            Self::Model => "model",
            Self::Agent => "agent",
            Self::Folder => "folder",
        }
    }

    fn name_of(self, run: &RunSummary, spent: &HourlySpend) -> String {
        match self {
            Self::Day => date(spent.began_ms()),
            Self::Model => spent.model.clone(),
            Self::Agent => spent.agent.to_string(),
            Self::Folder => run.workdir.clone(),
        }
    }
}

/// The costs of many runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CostSums {
    by: CostGrouping,
    /// The beginning of the period, in Unix milliseconds.
    since: Option<u64>,
    groups: Vec<CostGroup>,
    total: CostGroup,
}

/// The calls of one group.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct CostGroup {
    name: String,
    /// The number of runs with calls in it.
    runs: usize,
    spent: Spend,
}

impl CostGroup {
    fn add(&mut self, run: usize, latest_run: &mut Option<usize>, spent: &Spend) {
        self.runs += usize::from(latest_run.replace(run) != Some(run));
        self.spent = self.spent.plus(spent);
    }
}

impl CostSums {
    /// Sums what runs spent, from the full hour that contains `since` on.
    #[must_use]
    pub fn of<'a>(
        runs: impl IntoIterator<Item = &'a RunSummary>,
        by: CostGrouping,
        since: Option<u64>,
    ) -> Self {
        let since = since.map(|wall_ms| wall_ms - wall_ms % MS_PER_HOUR);
        let mut groups: BTreeMap<String, (CostGroup, Option<usize>)> = BTreeMap::new();
        let (mut total, mut latest) = (CostGroup::default(), None);
        for (place, run) in runs.into_iter().enumerate() {
            for spent in run.spent.iter().filter(|it| since.is_none_or(|at| it.began_ms() >= at)) {
                let name = by.name_of(run, spent);
                let (group, latest_of_group) = groups.entry(name).or_default();
                group.add(place, latest_of_group, &spent.spend);
                total.add(place, &mut latest, &spent.spend);
            }
        }
        let named = groups.into_iter().map(|(name, (group, _))| CostGroup { name, ..group });
        let mut groups: Vec<CostGroup> = named.collect();
        match by {
            CostGrouping::Day => groups.reverse(),
            CostGrouping::Model | CostGrouping::Agent | CostGrouping::Folder => {
                groups.sort_by_key(|it| (Reverse(it.spent.usd), Reverse(it.spent.usage.total())));
            }
        }
        Self { by, since, groups, total }
    }

    /// Returns whether nothing was spent.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.groups.is_empty()
    }

    /// Returns the beginning of the period as text.
    #[must_use]
    pub fn since_text(&self) -> Option<String> {
        self.since.map(rfc3339)
    }

    /// Draws the table for a terminal of `wide` columns.
    #[must_use]
    pub fn render(&self, wide: usize) -> String {
        let head = [self.by.word(), "runs", "calls", "in", "out", "cost"].map(String::from);
        let mut rows = vec![head.to_vec()];
        rows.extend(self.groups.iter().map(row));
        let numbers = columns(&rows.iter().map(|row| row[1..].to_vec()).collect::<Vec<_>>(), &[]);
        let taken = numbers.lines().map(width).max().unwrap_or(0) + 2;
        for row in &mut rows {
            row[0] = fit_ends(&row[0], wide.saturating_sub(taken).max(LEAST_NAME));
        }
        let table = columns(&rows, &[1, 2, 3, 4, 5]);
        let mut text: String = table.lines().map(|line| cut(line, wide) + "\n").collect();
        let runs = count_with_noun(self.total.runs, "run");
        text += &format!("\n{runs}");
        text.extend(self.since_text().map(|since| format!(" since {since}")));
        text += &wrap_lines(&total(&self.total.spent), wide);
        text
    }

    /// Returns the same as JSON.
    #[must_use]
    pub fn json(&self) -> CostSumsJson {
        CostSumsJson {
            v: VERSION,
            by: self.by,
            since: self.since_text(),
            groups: self.groups.iter().map(CostGroupJson::from).collect(),
            runs: self.total.runs,
            total: (&self.total.spent).into(),
        }
    }
}

fn row(group: &CostGroup) -> Vec<String> {
    let CostGroup { name, runs, spent } = group;
    let tokens = [spent.usage.input_total(), spent.usage.output].map(format_rounded);
    let [input, output] = tokens;
    vec![name.clone(), grouped(*runs as u64), grouped(spent.calls), input, output, spent.money()]
}

/// The costs of many runs as JSON.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct CostSumsJson {
    /// The version of the format.
    pub v: u32,
    /// What a group is.
    pub by: CostGrouping,
    /// The full hour at which the period begins; absent if everything was summed.
    pub since: Option<String>,
    /// The groups: days from the latest on, others from the most expensive on.
    pub groups: Vec<CostGroupJson>,
    /// The number of runs with calls in the period.
    pub runs: usize,
    /// The total.
    pub total: TotalCostJson,
}

/// The costs of one group.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct CostGroupJson {
    /// The day, model, agent or folder.
    pub name: String,
    /// The number of runs with calls in it.
    pub runs: usize,
    /// The number of settled model calls.
    pub calls: u64,
    /// Their tokens and cost.
    #[serde(flatten)]
    pub spent: SpendJson,
}

impl From<&CostGroup> for CostGroupJson {
    fn from(group: &CostGroup) -> Self {
        let CostGroup { name, runs, spent } = group;
        Self { name: name.clone(), runs: *runs, calls: spent.calls, spent: spent.into() }
    }
}
