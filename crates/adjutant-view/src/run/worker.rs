//! What an external worker did for a delegation: its model calls, its tools and its words.
//!
//! A [`WorkerRecord`] counts the calls that the gateway admitted or refused, by model. Its own usage report is kept
//! beside them and never counted. Start at [`WorkerRecord::take`], which folds one event.

use std::collections::{BTreeMap, BTreeSet};

use adjutant_core::budget::{BudgetAmount, Reservation, Settlement};
use adjutant_core::{
    Event, ModelSpec, WorkerAction, WorkerSessionStart, WorkerTerms, WorkerToolStatus,
    WorkerUsageReport,
};

use super::{Spend, ToolCallSummary};
use crate::layout::excerpt;

/// The maximum length of a stored tool title or text.
const TEXT_KEPT: usize = 200;

/// What an external worker did for a delegation.
#[derive(Clone, Debug, Default, serde::Serialize, serde::Deserialize)]
pub struct WorkerRecord {
    /// The name of the worker, as in `--worker NAME`.
    pub name: String,
    /// The number of model calls that were admitted.
    pub model_calls: u32,
    /// The number of model calls that were refused.
    pub refused_calls: u32,
    /// How its latest session was opened.
    pub session_start: Option<WorkerSessionStart>,
    /// Tokens and cost of its settled calls, by model.
    by_model: BTreeMap<String, Spend>,
    /// Whether each model that it may call has a price.
    is_priced: BTreeMap<String, bool>,
    /// Its running model calls, by number.
    open: BTreeMap<u32, OpenWorkerCall>,
    /// The model of the call that was settled last.
    settled_model: Option<String>,
    /// What it says it has used in earlier sessions and in the latest one.
    reported_before: WorkerUsageReport,
    reported: Option<WorkerUsageReport>,
    /// Its running tool calls, with the worker's id of each, the oldest first.
    tools: Vec<(String, ToolCallSummary)>,
    /// The id of the tool call that ended last.
    ended_tool: Option<String>,
    /// The end of what it said last.
    said: String,
    /// Whether its latest action was to say something.
    is_saying: bool,
    /// Whether it has said something since its latest model call began.
    has_said: bool,
    /// What was removed from its requests.
    removed: BTreeSet<String>,
    /// Whether the latest event tells a person something new: a tool that began, or a new removal.
    is_news: bool,
}

/// A running model call.
#[derive(Clone, Debug, serde::Serialize, serde::Deserialize)]
struct OpenWorkerCall {
    model: String,
    max_output: u64,
    amount: BudgetAmount,
}

/// How many tool calls an event adds to the counts of a delegation.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct ToolCallCounts {
    pub(super) begun: u32,
    pub(super) failed: u32,
    pub(super) refused: u32,
}

impl WorkerRecord {
    pub(super) fn new(terms: &WorkerTerms, model: Option<&ModelSpec>) -> Self {
        let mut record = Self { name: terms.name.clone(), ..Self::default() };
        // The model of the task is the one that a name means first.
        for model in terms.further_models.iter().chain(model) {
            record.add_model(model.name.clone(), model.price.is_some());
        }
        record
    }

    /// Records that it may call another model.
    pub(super) fn add_model(&mut self, name: String, is_priced: bool) {
        self.is_priced.insert(name, is_priced);
    }

    /// Returns tokens and cost of its calls by model.
    pub fn by_model(&self) -> impl Iterator<Item = (&str, &Spend)> {
        self.by_model.iter().map(|(name, spend)| (name.as_str(), spend))
    }

    /// Returns how many of its model calls are running.
    #[must_use]
    pub fn open_calls(&self) -> usize {
        self.open.len()
    }

    /// Returns what its running model calls may take at most.
    pub(super) fn reserved(&self) -> BudgetAmount {
        self.open.values().fold(BudgetAmount::default(), |sum, call| sum.plus(call.amount))
    }

    /// Returns what it says it has used, in all its sessions. `None` if it has never said so.
    #[must_use]
    pub fn own_report(&self) -> Option<WorkerUsageReport> {
        let sum = add_reports(self.reported_before, self.reported.unwrap_or_default());
        (sum != WorkerUsageReport::default()).then_some(sum)
    }

    /// Returns what it says it has used, if that differs from what was counted.
    #[must_use]
    pub fn differing_report(&self) -> Option<WorkerUsageReport> {
        let counted = self.by_model.values().fold(Spend::default(), |sum, it| sum.plus(it));
        // A worker computes its cost with its own prices, so only what is shown is compared.
        let is_other_cost = |usd| counted.known_usd().map(|it| it.to_string()) != Some(usd);
        self.own_report().filter(|report| {
            report.tokens.is_some_and(|tokens| tokens != counted.usage.total())
                || report.usd.map(|usd| usd.to_string()).is_some_and(is_other_cost)
        })
    }

    /// Returns the end of what it said since its latest model call began, on one line.
    pub(super) fn last_words(&self) -> Option<&str> {
        let line = self.said.lines().rev().find(|line| !line.trim().is_empty());
        line.filter(|_| self.has_said)
    }

    pub(super) fn running_tools(&self) -> impl Iterator<Item = &ToolCallSummary> {
        self.tools.iter().map(|(_, tool)| tool)
    }

    /// Returns whether the latest event tells a person something new.
    pub(crate) const fn is_news(&self) -> bool {
        self.is_news
    }

    /// Returns whether a model that it may call has a price.
    pub(crate) fn has_price(&self, model: &str) -> bool {
        self.is_priced.get(model).copied().unwrap_or(false)
    }

    /// Returns the model of a running call.
    pub(super) fn open_model(&self, call: u32) -> Option<&str> {
        self.open.get(&call).map(|call| call.model.as_str())
    }

    /// Removes the running calls, because their process died. Returns each with its settlement.
    pub(super) fn take_open(&mut self) -> Vec<(String, Settlement)> {
        let open = std::mem::take(&mut self.open);
        let settle = |call: OpenWorkerCall| {
            let (max_output, amount) = (call.max_output, call.amount);
            let reservation =
                Reservation { turn: 0, attempt: 0, max_output, amount, last_call: false };
            (call.model, Settlement::estimated(&reservation))
        };
        open.into_values().map(settle).collect()
    }

    /// Adds a settled call to the sum of its model. Returns whether the model has a price.
    pub(super) fn settle(&mut self, model: &str, settlement: &Settlement) -> bool {
        let is_priced = self.has_price(model);
        self.by_model.entry(model.to_owned()).or_default().settle(settlement, is_priced);
        self.settled_model = Some(model.to_owned());
        is_priced
    }

    /// Adds what was billed beyond the reservation of the call that was settled last. Returns the model of that call.
    pub(super) fn overrun(&mut self, amount: BudgetAmount) -> Option<&str> {
        let model = self.settled_model.as_deref()?;
        if let Some(spend) = self.by_model.get_mut(model) {
            spend.overrun = spend.overrun.plus(amount);
        }
        Some(model)
    }

    /// Stops what runs, because the delegation ended or its process died.
    pub(super) fn stop(&mut self) {
        self.tools.clear();
        (self.is_saying, self.has_said) = (false, false);
    }

    /// Applies an event and returns how it changes the counts of tool calls.
    pub(super) fn take(&mut self, event: &Event) -> ToolCallCounts {
        self.is_news = false;
        if let Event::WorkerCallReserved { call, model, max_output, amount, removed, .. } = event {
            self.model_calls += 1;
            let (model, max_output, amount) = (model.clone(), *max_output, *amount);
            self.open.insert(*call, OpenWorkerCall { model, max_output, amount });
            self.has_said = false;
            for what in removed {
                self.is_news |= self.removed.insert(excerpt(what, TEXT_KEPT));
            }
        }
        if let Event::WorkerCallRefused { .. } = event {
            self.refused_calls += 1;
        }
        if let Event::WorkerCallSettled { call, .. } = event {
            self.open.remove(call);
        }
        if let Event::WorkerSessionOpened { start, .. } = event {
            self.session_start = Some(*start);
            self.stop();
            // A new session counts from zero; one that was loaded goes on counting.
            if *start != WorkerSessionStart::Loaded {
                let latest = self.reported.take().unwrap_or_default();
                self.reported_before = add_reports(self.reported_before, latest);
            }
        }
        if let Event::WorkerReported { report, .. } = event {
            self.reported = Some(*report);
        }
        if let Event::WorkerActed { action, .. } = event {
            return self.act(action);
        }
        ToolCallCounts::default()
    }

    fn act(&mut self, action: &WorkerAction) -> ToolCallCounts {
        let was_saying = std::mem::replace(&mut self.is_saying, false);
        match action {
            WorkerAction::Said { text } => {
                if !was_saying {
                    self.said.clear();
                }
                self.said.push_str(text);
                let start = self.said.char_indices().rev().nth(TEXT_KEPT - 1).map(|(at, _)| at);
                self.said.drain(..start.unwrap_or(0));
                (self.is_saying, self.has_said) = (true, true);
                ToolCallCounts::default()
            }
            WorkerAction::Tool { id, title, status } => self.use_tool(id, title, *status),
            WorkerAction::Permission { allowed, .. } => {
                ToolCallCounts { refused: u32::from(!allowed), ..ToolCallCounts::default() }
            }
        }
    }

    /// Returns whether text that arrives now continues what it said before.
    pub(super) const fn is_saying(&self) -> bool {
        self.is_saying
    }

    fn use_tool(&mut self, id: &str, title: &str, status: WorkerToolStatus) -> ToolCallCounts {
        let place = self.tools.iter().position(|(known, _)| known == id);
        let call = ToolCallSummary { tool: excerpt(title, TEXT_KEPT), arguments: String::new() };
        match (status, place) {
            (WorkerToolStatus::Begun, Some(place)) => {
                // A later title says more, such as the command.
                self.tools[place].1 = call;
                return ToolCallCounts::default();
            }
            (WorkerToolStatus::Begun, None) => {
                self.is_news = true;
                self.tools.push((id.to_owned(), call));
                return ToolCallCounts { begun: 1, ..ToolCallCounts::default() };
            }
            (WorkerToolStatus::Completed | WorkerToolStatus::Failed, Some(place)) => {
                self.tools.remove(place);
            }
            (WorkerToolStatus::Completed | WorkerToolStatus::Failed, None) => {
                if self.ended_tool.as_deref() == Some(id) {
                    return ToolCallCounts::default();
                }
            }
        }
        self.ended_tool = Some(id.to_owned());
        let has_failed = status == WorkerToolStatus::Failed;
        self.is_news = has_failed;
        ToolCallCounts {
            begun: u32::from(place.is_none()),
            failed: u32::from(has_failed),
            refused: 0,
        }
    }
}

fn add_reports(one: WorkerUsageReport, other: WorkerUsageReport) -> WorkerUsageReport {
    let tokens = [one.tokens, other.tokens].into_iter().flatten().reduce(u64::saturating_add);
    let usd = [one.usd, other.usd].into_iter().flatten().reduce(|one, other| one + other);
    WorkerUsageReport { tokens, usd }
}
