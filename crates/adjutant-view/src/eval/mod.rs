//! What an evaluation found: attempts at tasks, folded into one report.
//!
//! An [`EvalAttempt`] is one run of one task under one configuration, as `adjutant eval` records it. [`EvalReport`]
//! folds all of them into a table and JSON; `judge` decides about one attempt, `statistics` has the numbers of a group. Start at
//! [`EvalReport::of`]. Invariant: the report depends on nothing but the attempts and the plan, so printing it again
//! later gives the same numbers.

mod judge;
mod statistics;
mod table;

use adjutant_core::{Outcome, Usd};
use serde::{Deserialize, Serialize};

pub use judge::{AttemptFacts, AttemptVerdict, EvalExpectation, answer_line, status_line};
pub use statistics::{AttemptStatistics, SuccessInterval, wilson_interval};

/// What one attempt at a task came to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EvalAttempt {
    /// The name of the task.
    pub task: String,
    /// The configuration, from 0.
    pub configuration: usize,
    /// Which of the repeated attempts it is, from 1.
    pub number: u32,
    /// The id of the run; absent if the task was skipped.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run: Option<String>,
    /// Whether the task was solved.
    pub judgement: EvalJudgement,
    /// What decided that: the answer, how the check ended, or what is missing.
    pub because: String,
    /// How the work ended; absent if the task was skipped.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub outcome: Option<Outcome>,
    /// What the agent claimed although it is not so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub false_claim: Option<String>,
    /// The cost; absent if the model has no price.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub usd: Option<Usd>,
    /// The tokens of all model calls.
    #[serde(default)]
    pub tokens: u64,
    /// How long the run took, in milliseconds, without the check.
    #[serde(default)]
    pub elapsed_ms: u64,
    /// Tool calls that failed or were refused.
    #[serde(default)]
    pub tool_errors: u32,
}

/// Whether an attempt solved its task.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EvalJudgement {
    /// The check passed, the answer is right, or the impossible task was returned as such.
    Solved,
    /// It was not.
    Unsolved,
    /// A toolchain that the task needs is missing, so nothing ran.
    Skipped,
}

/// A task of an evaluation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct EvalTaskTitle {
    /// Its name.
    pub name: String,
    /// Its kind: `question`, `fix`, `refactor`, `split` or `impossible`.
    pub kind: &'static str,
}

/// A configuration of an evaluation, as it is shown.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct EvalConfigurationTitle {
    /// `A` or `B`.
    pub name: String,
    /// The model.
    pub model: String,
    /// The preset.
    pub preset: String,
    /// `alone` or `delegated`.
    pub mode: &'static str,
}

/// The plan of an evaluation, as far as the report shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EvalOutline {
    /// Its id.
    pub id: String,
    /// How often each task is attempted under each configuration.
    pub runs: u32,
    /// The tasks, in order.
    pub tasks: Vec<EvalTaskTitle>,
    /// The configurations, one or two.
    pub configurations: Vec<EvalConfigurationTitle>,
    /// The most dollars that all runs together may spend.
    pub budget_usd: Option<Usd>,
    /// What runs cost that were interrupted and are not among the attempts.
    pub interrupted_usd: Usd,
}

/// An evaluation, folded from its attempts.
#[derive(Debug)]
pub struct EvalReport<'a> {
    outline: &'a EvalOutline,
    attempts: &'a [EvalAttempt],
    /// For each task, the numbers under each configuration.
    tasks: Vec<Vec<AttemptStatistics>>,
    total: Vec<AttemptStatistics>,
}

impl<'a> EvalReport<'a> {
    /// Folds the attempts. Those at tasks that the outline does not have are left out.
    #[must_use]
    pub fn of(outline: &'a EvalOutline, attempts: &'a [EvalAttempt]) -> Self {
        let configurations = 0..outline.configurations.len();
        let of_task = |task: &EvalTaskTitle, configuration: usize| {
            let is_one =
                |it: &&EvalAttempt| it.task == task.name && it.configuration == configuration;
            AttemptStatistics::of(attempts.iter().filter(is_one))
        };
        let tasks = outline.tasks.iter();
        let tasks = tasks
            .map(|task| configurations.clone().map(|number| of_task(task, number)).collect())
            .collect();
        let is_known = |it: &&EvalAttempt| outline.tasks.iter().any(|task| task.name == it.task);
        let of_all = |configuration: usize| {
            let all = attempts.iter().filter(is_known);
            AttemptStatistics::of(all.filter(|it| it.configuration == configuration))
        };
        Self { outline, attempts, tasks, total: configurations.map(of_all).collect() }
    }

    /// Returns how many attempts are left to make.
    #[must_use]
    pub fn left(&self) -> usize {
        let planned = self.outline.tasks.len()
            * self.outline.configurations.len()
            * self.outline.runs as usize;
        let made: usize = self.total.iter().map(|it| it.attempts + it.skipped).sum();
        planned.saturating_sub(made)
    }

    /// Returns what all runs cost so far, also the interrupted ones.
    #[must_use]
    pub fn spent(&self) -> Usd {
        self.attempts.iter().filter_map(|it| it.usd).sum::<Usd>() + self.outline.interrupted_usd
    }

    /// Returns the report as JSON.
    #[must_use]
    pub fn json(&self) -> EvalReportJson<'_> {
        let tasks = self.outline.tasks.iter().zip(&self.tasks);
        EvalReportJson {
            v: 1,
            id: &self.outline.id,
            runs: self.outline.runs,
            left: self.left(),
            spent_usd: self.spent(),
            budget_usd: self.outline.budget_usd,
            configurations: &self.outline.configurations,
            tasks: tasks.map(|(task, results)| EvalTaskJson { task, results }).collect(),
            total: &self.total,
            attempts: self.attempts,
        }
    }
}

/// An evaluation as JSON.
#[derive(Debug, Serialize)]
pub struct EvalReportJson<'a> {
    v: u8,
    id: &'a str,
    runs: u32,
    left: usize,
    spent_usd: Usd,
    #[serde(skip_serializing_if = "Option::is_none")]
    budget_usd: Option<Usd>,
    configurations: &'a [EvalConfigurationTitle],
    tasks: Vec<EvalTaskJson<'a>>,
    total: &'a [AttemptStatistics],
    attempts: &'a [EvalAttempt],
}

/// A task in the JSON of an evaluation.
#[derive(Debug, Serialize)]
pub struct EvalTaskJson<'a> {
    #[serde(flatten)]
    task: &'a EvalTaskTitle,
    results: &'a [AttemptStatistics],
}
