//! External workers in words and as JSON, shared by all output.
//!
//! [`WorkerJson`] is what a worker did, [`WorkerReportJson`] what it says it has used.

use adjutant_core::numbers::grouped;
use adjutant_core::{Usd, WorkerSessionStart, WorkerUsageReport};
use serde::Serialize;

use crate::layout::fit;
use crate::run::{Delegation, WorkerRecord};
use crate::state_words::count_with_noun;

/// The maximum width of an agent's or worker's name, in columns.
const NAME_COLUMNS: usize = 32;

/// Returns the name of an agent, with its worker if it has one: `fixer (codex)`.
pub(crate) fn agent_text(delegation: &Delegation) -> String {
    let agent = fit(delegation.agent.as_str(), NAME_COLUMNS);
    match &delegation.worker {
        Some(worker) => format!("{agent} ({})", name_text(worker)),
        None => agent,
    }
}

pub(crate) fn name_text(worker: &WorkerRecord) -> String {
    fit(&worker.name, NAME_COLUMNS)
}

/// Returns the number of a worker's model calls: `12 model calls (2 refused)`.
pub(crate) fn calls_text(worker: &WorkerRecord) -> String {
    let calls = match worker.model_calls {
        0 => "no model calls".to_owned(),
        some => count_with_noun(some as usize, "model call"),
    };
    match worker.refused_calls {
        0 => calls,
        refused => format!("{calls} ({refused} refused)"),
    }
}

/// Returns what a worker says it has used: `codex itself reports 1,234 tokens, $0.0100`.
pub(crate) fn report_text(name: &str, report: WorkerUsageReport) -> String {
    let tokens = report.tokens.map(|tokens| format!("{} tokens", grouped(tokens)));
    let used: Vec<String> =
        tokens.into_iter().chain(report.usd.map(|usd| usd.to_string())).collect();
    let used = if used.is_empty() { "no usage".to_owned() } else { used.join(", ") };
    format!("{} itself reports {used}", fit(name, NAME_COLUMNS))
}

/// Says how a worker that was resumed went on; `None` if it was not.
pub(crate) const fn resumed_text(start: Option<WorkerSessionStart>) -> Option<&'static str> {
    match start {
        Some(WorkerSessionStart::Loaded) => Some("its session was loaded"),
        Some(WorkerSessionStart::Retold) => Some("a new session that was told the earlier work"),
        Some(WorkerSessionStart::New) | None => None,
    }
}

/// What an external worker did for a delegation, as in all JSON formats.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct WorkerJson {
    /// The name of the worker.
    pub name: String,
    /// The number of model calls that were admitted.
    pub model_calls: u32,
    /// The number of model calls that were refused.
    pub refused_calls: u32,
    /// How its latest session was opened: `new`, `loaded` or `retold`; absent before the first.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub session: Option<WorkerSessionStart>,
    /// What it says it has used, which is not counted; absent if it has not said so.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reported: Option<WorkerReportJson>,
    /// What it is doing, in words; only in the status and the tree of a live run, while it works.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub doing: Option<String>,
}

/// What a worker says it has used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct WorkerReportJson {
    /// Its tokens, input and output together.
    pub tokens: Option<u64>,
    /// Its cost.
    pub cost_usd: Option<Usd>,
}

impl WorkerJson {
    /// Returns what the worker of a delegation did. Returns `None` if it has no worker.
    pub(crate) fn of(delegation: &Delegation) -> Option<Self> {
        let worker = delegation.worker.as_ref()?;
        let reported = worker.own_report();
        Some(Self {
            name: worker.name.clone(),
            model_calls: worker.model_calls,
            refused_calls: worker.refused_calls,
            session: worker.session_start,
            reported: reported.map(|it| WorkerReportJson { tokens: it.tokens, cost_usd: it.usd }),
            doing: None,
        })
    }
}
