//! An open question of a run, read from its journal.

use std::path::Path;

use adjutant_core::tree::WHOLE_RUN;
use adjutant_core::{Event, Timestamp};
use adjutant_engine::{RegistryHandle, question_id};
use adjutant_view::RunView;
use adjutant_view::approval::ApprovalQuestion;

/// Why a question that the client was asked is still open and waits in the inbox.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum RejectedAnswerReason {
    /// The form was dismissed, or answered faster than a person can read it.
    NotAPerson,
    /// The run did not accept the answer, for this reason.
    NotTaken(String),
}

/// A question that waits for a person.
pub(crate) struct OpenQuestion {
    /// The hash of the exact call, which binds the answer to it.
    pub(crate) hash: String,
    /// The id that people use in `approvals` and `approve`.
    pub(crate) id: String,
    /// What is asked: tasks, limits and worst-case cost.
    pub(crate) details: ApprovalQuestion,
    /// Whether the question is about the whole run rather than about a delegation by one of its agents.
    pub(crate) is_about_whole_run: bool,
    /// How long the question has been open, in milliseconds.
    pub(crate) open_ms: u64,
    /// How long the question will stay open, in milliseconds.
    pub(crate) left_ms: u64,
    /// Why it waits in the inbox although the client was asked. `None` if the client was not asked.
    pub(crate) left_open: Option<RejectedAnswerReason>,
}

impl OpenQuestion {
    /// Returns the open questions of a run. `admitted` holds the admission events that questions are about.
    pub(crate) fn all(
        view: &RunView,
        admitted: &[Event],
        now: Timestamp,
        registry: &RegistryHandle,
    ) -> Vec<Self> {
        let Some(policy) = view.policy().filter(|_| view.outcome().is_none()) else {
            return Vec::new();
        };
        // Read only if something is asked; a registry that cannot be read tells nothing about what to expect.
        let known = if view.approvals().is_empty() { None } else { registry.read_unlocked().ok() };
        let prd = view.story().and_then(|story| story.prd.as_deref()).map(Path::new);
        let open = view.approvals().iter().map(|open| {
            let is_about_whole_run = open.call == WHOLE_RUN;
            let lacking =
                prd.filter(|_| is_about_whole_run).map(|prd| registry.lacking_consents(prd));
            let question = ApprovalQuestion::of_call(policy, admitted, open.parent, open.call);
            let mut question = question.with_commands_see(view.commands_see());
            if let Some(known) = &known {
                let worker = |agent: &_| view.worker_terms(agent).map(|terms| terms.name.clone());
                question = question.with_history(known, worker);
            }
            let left_ms = open.expires.as_millis().saturating_sub(now.as_millis());
            Self {
                hash: open.hash.clone(),
                id: question_id(&open.hash),
                is_about_whole_run,
                details: question.with_unallowed(lacking.unwrap_or_default()),
                open_ms: policy.approval_s.saturating_mul(1000).saturating_sub(left_ms),
                left_ms,
                left_open: None,
            }
        });
        open.collect()
    }
}
