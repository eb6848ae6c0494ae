//! The question that a person is asked before subagents start.
//!
//! An [`ApprovalQuestion`] has two forms: one line ([`ApprovalQuestion::one_line`]) and the full text
//! ([`ApprovalQuestion::text`]). Goals are untrusted text, so both forms escape and cut them; the full form
//! keeps the start and the end, because harmful words may be at the end.
//!
//! [`Risk`] says how much harm the call can do, and a [`RefusedTask`] is a task of the call that
//! the policy refused before the question.

mod auto_approval;
mod domain;
mod expectation;
mod full_text;
mod json;
mod text;
mod whole_run;

use adjutant_core::budget::BudgetAmount;
use adjutant_core::tree::{WHOLE_RUN, worst_case, worst_case_within};
use adjutant_core::write::RUN;
use adjutant_core::{
    AgentName, Event, Grant, Label, OutcomeReason, Policy, Registry, SessionId, Timestamp, Usd,
};
use serde::Serialize;

use crate::layout::{bracketed, excerpt};
use crate::sanitize;
use crate::state_words::count_with_noun;

use self::whole_run::{RootOpening, WholeRunKind};
pub use domain::domain_question;
pub use expectation::{ExpectedAmounts, UsageForecast};
pub use json::QuestionJson;

/// The maximum length of a goal in the one-line form, including the `…`.
const GOAL_CHARS: usize = 18;
/// The maximum width of a label, in columns.
const LABEL_COLUMNS: usize = 34;
/// Tools that have effects outside the conversation.
const CHANGING: [&str; 3] = ["Edit", "Write", "Run"];

/// How much harm a call can do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Risk {
    /// It reads and spends money, like every delegation.
    Medium,
    /// It may write, run commands or reach the network.
    High,
}

impl Risk {
    const fn word(self) -> &'static str {
        match self {
            Self::Medium => "medium",
            Self::High => "high",
        }
    }
}

/// A task of the call that the policy refused before the person was asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RefusedTask {
    /// The label.
    pub label: Label,
    /// Why it was refused.
    pub reason: OutcomeReason,
}

/// A call that needs a person's approval.
#[derive(Clone, Debug, PartialEq)]
pub struct ApprovalQuestion {
    grants: Vec<Grant>,
    refused: Vec<RefusedTask>,
    policy: Policy,
    hash: Option<String>,
    expires: Option<Timestamp>,
    left: Option<BudgetAmount>,
    automatic: Option<Usd>,
    /// What the run is about, if the question is about the whole run. The only grant is then the root's.
    whole: Option<WholeRunKind>,
    /// What the story's PRD requests that no person has agreed to.
    unallowed: Vec<String>,
    /// The tools that commands see, if agents have workspaces of their own.
    commands_see: Option<String>,
    /// What each task usually consumes, in the order of the grants; empty if no history was given.
    expected: Vec<UsageForecast>,
}

impl ApprovalQuestion {
    /// Builds the question from the events of one call. Other events are ignored.
    pub fn of<'a>(policy: &Policy, events: impl IntoIterator<Item = &'a Event>) -> Self {
        let mut question = Self {
            grants: Vec::new(),
            refused: Vec::new(),
            policy: policy.clone(),
            hash: None,
            expires: None,
            left: None,
            automatic: None,
            whole: None,
            unallowed: Vec::new(),
            commands_see: None,
            expected: Vec::new(),
        };
        let mut lead = RootOpening::default();
        for event in events {
            lead.take(event);
            if let Event::Granted(grant) = event {
                question.grants.push(Grant::clone(grant));
            } else if let Event::Refused { label, reason, .. } = event {
                let refused = RefusedTask { label: label.clone(), reason: reason.clone() };
                question.refused.push(refused);
            } else if let Event::ApprovalAsked { hash, expires, .. } = event {
                question.hash = Some(hash.clone());
                question.expires = Some(*expires);
            } else if let Event::AutoApproved { hash, amount, .. } = event {
                question.hash = Some(hash.clone());
                question.automatic = Some(*amount);
            }
        }
        if let Some((grant, about)) = lead.asked_root(policy) {
            (question.grants, question.whole) = (vec![grant], Some(about));
        }
        question
    }

    /// Builds the question for call `call` of `parent` from a complete history.
    pub fn of_call<'a>(
        policy: &Policy,
        events: impl IntoIterator<Item = &'a Event>,
        parent: SessionId,
        call: u32,
    ) -> Self {
        Self::of(policy, events.into_iter().filter(|event| belongs_to_call(event, parent, call)))
    }

    /// Sets the budget that was left when the call was made. By default the whole budget counts.
    #[must_use]
    pub const fn with_left(mut self, left: BudgetAmount) -> Self {
        self.left = Some(left);
        self
    }

    /// Sets what the story's PRD requests that no person has agreed to. Approving the call does not grant it.
    #[must_use]
    pub fn with_unallowed(mut self, wishes: Vec<String>) -> Self {
        self.unallowed = wishes;
        self
    }

    /// Sets the tools that commands of agents see. They are shown if a task may run commands.
    #[must_use]
    pub fn with_commands_see(mut self, tools: Option<&str>) -> Self {
        self.commands_see = tools.map(str::to_owned);
        self
    }

    /// Sets what ended delegations consumed. `worker` names the external agent behind an agent, if there is one.
    ///
    /// A question about a whole run has no expectation: samples are about single delegations.
    #[must_use]
    pub fn with_history(
        mut self,
        registry: &Registry,
        worker: impl Fn(&AgentName) -> Option<String>,
    ) -> Self {
        if self.whole.is_none() {
            let expected = |grant: &Grant| {
                let key = expectation::sample_key(&self.policy, grant, worker(&grant.brief.agent));
                UsageForecast::of(key.map(|key| registry.samples(&key)).unwrap_or_default())
            };
            self.expected = self.grants.iter().map(expected).collect();
        }
        self
    }

    /// Returns the tools that commands see, if a task of the call may run commands.
    fn tools_of_commands(&self) -> Option<&str> {
        let runs = self.grants.iter().any(|grant| grant.rights.usable_tools().contains(RUN));
        self.commands_see.as_deref().filter(|_| runs)
    }

    /// Returns whether the call starts without asking, because its worst case fits the amount set for that.
    #[must_use]
    pub const fn is_automatic(&self) -> bool {
        self.automatic.is_some()
    }

    /// Returns whether a person has to answer before anything starts.
    #[must_use]
    pub const fn is_asked(&self) -> bool {
        self.expires.is_some()
    }

    /// Returns the hash that the answer refers to, if the call was asked about or started without asking.
    #[must_use]
    pub fn hash(&self) -> Option<&str> {
        self.hash.as_deref()
    }

    /// Returns the tasks that start when the answer is yes.
    #[must_use]
    pub fn grants(&self) -> &[Grant] {
        &self.grants
    }

    /// Returns how much harm the call can do.
    #[must_use]
    pub fn risk(&self) -> Risk {
        let reaches_out = |grant: &Grant| {
            grant.rights.network || CHANGING.iter().any(|tool| grant.rights.tools.contains(tool))
        };
        if self.grants.iter().any(reaches_out) { Risk::High } else { Risk::Medium }
    }

    /// Returns the most that the call can consume, and its time limit in seconds if there is one.
    #[must_use]
    pub fn worst(&self) -> (BudgetAmount, Option<u64>) {
        if let (Some(_), [root]) = (&self.whole, self.grants.as_slice()) {
            return whole_run::worst(&self.policy, root);
        }
        match self.left {
            Some(left) => worst_case_within(&self.policy, left, &self.grants),
            None => worst_case(&self.policy, &self.grants),
        }
    }

    /// Returns the most that the call can cost. Returns `None` if one of its models has no price.
    #[must_use]
    pub fn worst_usd(&self) -> Option<Usd> {
        self.grants.iter().all(is_priced).then(|| self.worst().0.usd)
    }

    /// Returns the call in one line:
    /// `Spawn 2 subagents (risk: medium): [security] scan for vulnerab…; [docs] list the gaps`.
    #[must_use]
    pub fn one_line(&self) -> String {
        let tasks: Vec<String> = self
            .grants
            .iter()
            .map(|grant| {
                let goal = excerpt(&sanitize::collapsed(&grant.brief.prompt), GOAL_CHARS);
                format!("{} {goal}", bracketed(grant.brief.label.as_str(), LABEL_COLUMNS))
            })
            .collect();
        if tasks.is_empty() {
            return format!("{}.", self.heading());
        }
        format!("{}: {}", self.heading(), tasks.join("; "))
    }

    fn heading(&self) -> String {
        if let Some(whole) = &self.whole {
            return format!("{} (risk: {})", whole.title(), self.risk().word());
        }
        let count = count_with_noun(self.grants.len(), "subagent");
        format!("Spawn {count} (risk: {})", self.risk().word())
    }
}

/// Returns whether a question may need this event: it belongs to a call, or to the start of the run.
#[must_use]
pub fn is_asked_about(event: &Event) -> bool {
    let is_of_call =
        matches!(event, Event::Granted(_) | Event::Refused { .. } | Event::ApprovalAsked { .. });
    is_of_call || event.is_of_opening()
}

fn belongs_to_call(event: &Event, of_parent: SessionId, of_call: u32) -> bool {
    if event.is_of_opening() {
        return of_call == WHOLE_RUN;
    }
    if let Event::Granted(grant) = event {
        return grant.parent == of_parent && grant.call == of_call;
    }
    if let Event::Refused { parent, call, .. }
    | Event::ApprovalAsked { parent, call, .. }
    | Event::AutoApproved { parent, call, .. } = event
    {
        return *parent == of_parent && *call == of_call;
    }
    false
}

fn is_priced(grant: &Grant) -> bool {
    grant.brief.model.as_ref().is_some_and(|model| model.price.is_some())
}
