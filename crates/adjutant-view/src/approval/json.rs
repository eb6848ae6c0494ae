//! The approval question as JSON.
//!
//! A [`QuestionJson`] contains one `QuestionTaskJson` per task, one `RefusedTaskJson` per task that
//! the policy refused, and the highest possible cost as `WorstCaseJson`.

use adjutant_core::{Grant, SessionId, Usd};
use serde::Serialize;

use super::whole_run::WholeRunKind;
use super::{ApprovalQuestion, RefusedTask, Risk, UsageForecast};
use crate::run::{DelegationWarning, warnings};
use crate::wire::{ReasonJson, VERSION};

impl ApprovalQuestion {
    /// Returns the question as JSON; `--dry-run` prints it.
    #[must_use]
    pub fn json(&self) -> QuestionJson {
        let (amount, seconds) = self.worst();
        QuestionJson {
            v: VERSION,
            risk: self.risk(),
            tasks: self.tasks(),
            refused: self.refused.iter().map(RefusedTaskJson::of).collect(),
            worst_case: WorstCaseJson {
                tokens: Some(amount.tokens).filter(|tokens| *tokens < u64::MAX),
                cost_usd: self.worst_usd().map(Usd::as_dollars),
                seconds,
            },
            hash: self.hash.clone(),
            automatic: self.is_automatic(),
            whole_run: self.whole.as_ref().map(WholeRunKind::kind),
            commands_see: self.tools_of_commands().map(str::to_owned),
        }
    }
}

impl ApprovalQuestion {
    fn tasks(&self) -> Vec<QuestionTaskJson> {
        let expected = self.expected.iter().cloned().map(Some).chain(std::iter::repeat(None));
        let tasks = self.grants.iter().zip(expected);
        tasks.map(|(grant, expected)| QuestionTaskJson::of(grant, expected)).collect()
    }
}

/// An approval question as JSON.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct QuestionJson {
    v: u32,
    risk: Risk,
    tasks: Vec<QuestionTaskJson>,
    refused: Vec<RefusedTaskJson>,
    worst_case: WorstCaseJson,
    #[serde(skip_serializing_if = "Option::is_none")]
    hash: Option<String>,
    /// Whether the call starts without asking.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    automatic: bool,
    /// The kind of run, if the question is about a whole run rather than about delegated tasks.
    #[serde(skip_serializing_if = "Option::is_none")]
    whole_run: Option<&'static str>,
    /// The tools that commands see, with versions.
    #[serde(skip_serializing_if = "Option::is_none")]
    commands_see: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
struct QuestionTaskJson {
    label: String,
    session_id: SessionId,
    agent: String,
    model: Option<String>,
    depth: u64,
    path: Vec<String>,
    prompt: String,
    tools: Vec<String>,
    network: bool,
    timeout_s: Option<u64>,
    /// The command that verifies the work.
    #[serde(skip_serializing_if = "Option::is_none")]
    verify: Option<String>,
    /// The globs of files that it takes from the base.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    verify_keep: Vec<String>,
    warnings: Vec<String>,
    /// What ended delegations with the same preset, model and worker consumed.
    #[serde(skip_serializing_if = "Option::is_none")]
    expected: Option<UsageForecast>,
}

impl QuestionTaskJson {
    fn of(grant: &Grant, expected: Option<UsageForecast>) -> Self {
        let brief = &grant.brief;
        Self {
            label: brief.label.to_string(),
            session_id: grant.session,
            agent: brief.agent.to_string(),
            model: brief.model.as_ref().map(|model| model.name.clone()),
            depth: grant.depth,
            path: grant.path.clone(),
            prompt: brief.prompt.clone(),
            tools: grant.rights.usable_tools().iter().map(str::to_owned).collect(),
            network: grant.rights.network,
            timeout_s: grant.timeout_s,
            verify: brief.verify.as_ref().map(|it| it.command.clone()),
            verify_keep: brief.verify.iter().flat_map(|it| it.keep.clone()).collect(),
            warnings: warnings(grant).iter().map(DelegationWarning::to_string).collect(),
            expected,
        }
    }
}

#[derive(Clone, Debug, PartialEq, Serialize)]
struct RefusedTaskJson {
    label: String,
    reason: ReasonJson,
}

impl RefusedTaskJson {
    fn of(task: &RefusedTask) -> Self {
        Self { label: task.label.to_string(), reason: (&task.reason).into() }
    }
}

#[derive(Clone, Debug, PartialEq, Serialize)]
struct WorstCaseJson {
    tokens: Option<u64>,
    cost_usd: Option<f64>,
    seconds: Option<u64>,
}
