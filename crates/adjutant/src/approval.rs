//! Questions that a program answers in place of a person.

use std::time::Duration;

use adjutant_core::Usd;
use adjutant_engine::ApproverQuestion;
use adjutant_view::approval::{ApprovalQuestion, domain_question};

/// A question that must be answered before agents continue.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum ApprovalRequest {
    /// Whether these tasks may start.
    Tasks {
        /// The tasks that the limits allow.
        tasks: Vec<TaskToApprove>,
        /// The most that they can cost; absent if a model has no price.
        worst_usd: Option<Usd>,
        /// The most tokens that they can use.
        worst_tokens: u64,
        /// The longest that they can take, if that is limited.
        worst_time: Option<Duration>,
        /// The whole question in words, safe for a terminal.
        text: String,
    },
    /// Whether agents may fetch from this host for the rest of the run.
    Host {
        /// The host.
        host: String,
        /// The whole question in words, safe for a terminal.
        text: String,
    },
}

/// A task of an [`ApprovalRequest`].
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct TaskToApprove {
    /// Its label.
    pub label: String,
    /// The agent that would work on it.
    pub agent: String,
    /// What it is asked to do.
    pub prompt: String,
}

/// The answer to an [`ApprovalRequest`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ApprovalDecision {
    /// Yes, to exactly this.
    Approve,
    /// No, for this reason. The tasks are refused with it.
    Deny(String),
}

impl ApprovalRequest {
    pub(crate) fn of(question: &ApproverQuestion) -> Self {
        match question {
            ApproverQuestion::Call { events, policy, left, commands_see, .. } => {
                let asked = ApprovalQuestion::of(policy, events)
                    .with_left(*left)
                    .with_commands_see(commands_see.as_deref());
                let (worst, seconds) = asked.worst();
                let task = |grant: &adjutant_core::Grant| TaskToApprove {
                    label: grant.brief.label.to_string(),
                    agent: grant.brief.agent.to_string(),
                    prompt: grant.brief.prompt.clone(),
                };
                Self::Tasks {
                    tasks: asked.grants().iter().map(task).collect(),
                    worst_usd: asked.worst_usd(),
                    worst_tokens: worst.tokens,
                    worst_time: seconds.map(Duration::from_secs),
                    text: asked.text(TEXT_COLUMNS),
                }
            }
            ApproverQuestion::Domain { label, host, url } => {
                let (text, _prompt) = domain_question(label.as_str(), host, url, TEXT_COLUMNS);
                Self::Host { host: host.clone(), text }
            }
        }
    }
}

/// The width of the texts of questions.
const TEXT_COLUMNS: usize = 80;
