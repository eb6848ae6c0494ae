//! The fold of a run's events: the delegations, their states and their costs.
//!
//! A [`RunView`] holds no transcripts: of an agent's words it keeps only the notes and the latest text, and
//! [`RunView::light`] not even those. It never judges and never fails; an event about something unknown is
//! counted if possible and ignored otherwise. Start at [`RunView::apply`]. Invariant: the root's inclusive
//! spend equals the sum of all settlements.
//!
//! [`ProcessLiveness`] says whether the process that executes the run is alive, [`TextRetention`]
//! whether a view keeps texts, a [`WorkerRecord`] is what an external worker did, and an [`OpenApproval`] is a call that a person has not answered
//! yet.

mod calls;
mod delegation;
mod delegation_errors;
mod fold;
mod markers;
mod outcomes;
mod spend;
mod worker;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use adjutant_core::workspace::WorkspaceTerms;
use adjutant_core::{
    AgentName, DelegationState, ModelSpec, Outcome, Policy, Preset, RunId, SessionId,
    SlashCommandAssignment, Timestamp, Usd, WorkerTerms,
};
use adjutant_formats::contract::ORCHESTRATOR;

use adjutant_core::story::StoryAssignment;

use crate::timed_event::{EventTime, TimedEvent};

pub use calls::{ToolCallSummary, brief_arguments};
pub use delegation::{
    Activity, Delegation, DelegationWarning, LateArrival, PendingRetry, ProviderPause,
};
pub(crate) use delegation_errors::fault_id;
pub use delegation_errors::{DelegationError, DelegationErrors};
pub(crate) use fold::warnings;
pub use outcomes::OutcomeCounts;
pub(crate) use spend::{ESTIMATE_NOTE, MS_PER_HOUR};
pub use spend::{HourlySpend, Spend};
pub use worker::WorkerRecord;

/// Whether the process that executes a run is alive; only the caller can know.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProcessLiveness {
    /// A process is executing the run.
    Alive,
    /// No process is. What had not ended is interrupted.
    Dead,
}

/// Whether a view keeps the texts of agents.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub enum TextRetention {
    /// Keeps notes, latest texts and touched files, which results need.
    #[default]
    Kept,
    /// Keeps only the start of the latest note, so that memory does not grow with the texts.
    Dropped,
}

/// A call that waits for a person's approval.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct OpenApproval {
    /// The session that made the call.
    pub parent: SessionId,
    /// Which of the parent's calls it is.
    pub call: u32,
    /// The hash that the answer is bound to.
    pub hash: String,
    /// When the question expires.
    pub expires: Timestamp,
    /// The positions of the waiting delegations.
    waiting: Vec<usize>,
}

/// The state of a run, folded from its events.
#[derive(Clone, Debug, Default, serde::Serialize, serde::Deserialize)]
pub struct RunView {
    run: Option<RunId>,
    /// The model that a person chose when the run was last resumed.
    #[serde(default)]
    model_now: Option<ModelSpec>,
    goal: String,
    workdir: String,
    policy: Option<Box<Policy>>,
    #[serde(default)]
    assignment: Option<Box<SlashCommandAssignment>>,
    #[serde(default)]
    story: Option<Box<StoryAssignment>>,
    /// A person's settings for agents that write.
    #[serde(default)]
    terms: Option<Box<WorkspaceTerms>>,
    /// The external workers of the agents that have one.
    #[serde(default)]
    workers: BTreeMap<AgentName, WorkerTerms>,
    /// Remarks about workspaces, each with the first delegation it was made about.
    #[serde(default)]
    remarked: BTreeMap<String, SessionId>,
    delegations: Vec<Delegation>,
    by_session: BTreeMap<SessionId, usize>,
    approvals: Vec<OpenApproval>,
    #[serde(default)]
    auto_approved: Usd,
    /// What a person allowed at a question: the sum up to which calls start without asking.
    #[serde(default)]
    approved_up_to: Option<Usd>,
    total: Spend,
    /// The same by hour, agent and model.
    #[serde(default)]
    by_hour: Vec<HourlySpend>,
    began: Option<EventTime>,
    latest: EventTime,
    ended: Option<EventTime>,
    outcome: Option<Outcome>,
    texts: TextRetention,
    faults: DelegationErrors,
    /// The delegations with a tool that waits until a person has allowed a host.
    #[serde(default)]
    asking_hosts: BTreeSet<SessionId>,
    /// How long the run waited for a person without any other activity, up to the latest event.
    #[serde(default)]
    waited: Duration,
}

impl RunView {
    /// Folds a complete history.
    pub fn of<'a>(entries: impl IntoIterator<Item = TimedEvent<'a>>) -> Self {
        let mut view = Self::default();
        for entry in entries {
            view.apply(entry);
        }
        view
    }

    /// Returns the slash command that the run executes, if any.
    #[must_use]
    pub fn assignment(&self) -> Option<&SlashCommandAssignment> {
        self.assignment.as_deref()
    }

    /// Returns the story that the run works on, if any.
    #[must_use]
    pub fn story(&self) -> Option<&StoryAssignment> {
        self.story.as_deref()
    }

    /// Returns whether a remark about a workspace was made about this delegation first.
    #[must_use]
    pub fn is_first_to_say(&self, session: SessionId, remark: &str) -> bool {
        self.remarked.get(remark) == Some(&session)
    }

    /// Returns `on` or `off` for the sandbox of commands. Returns `None` if no agent writes in a workspace.
    #[must_use]
    pub fn sandbox(&self) -> Option<&'static str> {
        self.terms.as_ref().map(|terms| if terms.sandbox_off { "off" } else { "on" })
    }

    /// Returns the tools that commands see, with versions. Returns `None` if no agent writes in a workspace.
    #[must_use]
    pub fn commands_see(&self) -> Option<&str> {
        self.terms.as_ref().and_then(|terms| terms.commands_see.as_deref())
    }

    /// Returns how the commands of a delegation are sandboxed. Returns `None` if it has no workspace of its
    /// own.
    #[must_use]
    pub fn sandbox_of<'a>(&self, delegation: &'a Delegation) -> Option<&'a str> {
        delegation.space.as_ref()?;
        delegation.sandbox.as_deref().or_else(|| self.sandbox())
    }

    /// Returns a view that keeps no texts, for the list, tree or cost of a run of any size.
    #[must_use]
    pub fn light() -> Self {
        Self { texts: TextRetention::Dropped, ..Self::default() }
    }

    /// Applies one event.
    pub fn apply(&mut self, entry: TimedEvent<'_>) {
        fold::apply(self, entry);
    }

    /// Takes the end of the text that a model is writing. It is shown until the model's next event.
    pub fn show_text_end(&mut self, at: Timestamp, session: SessionId, text: &str) {
        if let Some(&place) = self.by_session.get(&session) {
            let delegation = &mut self.delegations[place];
            delegation.heard = delegation.heard.max(at);
            delegation.pause = None;
            text.clone_into(&mut delegation.text_end);
        }
    }

    /// Returns whether a question to a person is open.
    #[must_use]
    pub fn has_question(&self) -> bool {
        self.ended.is_none() && (!self.approvals.is_empty() || !self.asking_hosts.is_empty())
    }

    /// Returns the delegations with a tool that waits until a person has allowed a host.
    pub fn agents_with_host_question(&self) -> impl Iterator<Item = &Delegation> {
        self.asking_hosts.iter().filter_map(|session| self.delegation(*session))
    }

    /// Returns the place of a queued delegation among the queued children of its parent, from 1.
    #[must_use]
    pub fn queue_place(&self, of: &Delegation) -> Option<usize> {
        let is_queued = |it: &&Delegation| it.state == DelegationState::Queued;
        let parent = of.parent.and_then(|parent| self.delegation(parent))?;
        let place = self.children(parent).filter(is_queued).position(|it| it.session == of.session);
        place.map(|before| before + 1)
    }

    /// Returns the run's id, once it started.
    #[must_use]
    pub const fn run(&self) -> Option<RunId> {
        self.run
    }

    /// Returns the run's goal, unsanitized.
    #[must_use]
    pub fn goal(&self) -> &str {
        &self.goal
    }

    /// Returns the directory in which the run works.
    #[must_use]
    pub fn workdir(&self) -> &str {
        &self.workdir
    }

    /// Returns the limits of the run, once it started.
    #[must_use]
    pub fn policy(&self) -> Option<&Policy> {
        self.policy.as_deref()
    }

    /// Returns when the run began.
    #[must_use]
    pub const fn started_at(&self) -> Option<EventTime> {
        self.began
    }

    /// Returns when the run ended, if it did.
    #[must_use]
    pub const fn ended_at(&self) -> Option<EventTime> {
        self.ended
    }

    /// Returns when the latest event was recorded; a dead run stopped there.
    #[must_use]
    pub const fn latest(&self) -> EventTime {
        self.latest
    }

    /// Returns how the run ended, if it did.
    #[must_use]
    pub const fn outcome(&self) -> Option<Outcome> {
        self.outcome
    }

    /// Returns the sum of all settlements of the run.
    #[must_use]
    pub const fn total(&self) -> &Spend {
        &self.total
    }

    /// Returns the same sum by hour, agent and model.
    #[must_use]
    pub fn by_hour(&self) -> &[HourlySpend] {
        &self.by_hour
    }

    /// Returns the calls that wait for a person's approval.
    #[must_use]
    pub fn approvals(&self) -> &[OpenApproval] {
        &self.approvals
    }

    /// Returns the delegations that wait for the answer to a question.
    pub fn waiting_for(&self, open: &OpenApproval) -> impl Iterator<Item = &Delegation> {
        open.waiting.iter().filter_map(|place| self.delegations.get(*place))
    }

    /// Returns the summed worst cases of the calls that started without asking.
    #[must_use]
    pub const fn auto_approved(&self) -> Usd {
        self.auto_approved
    }

    /// Returns the external worker behind an agent, if there is one.
    #[must_use]
    pub fn worker_terms(&self, agent: &AgentName) -> Option<&WorkerTerms> {
        self.workers.get(agent)
    }

    /// Returns the amount up to which calls start without asking.
    #[must_use]
    pub fn approve_below(&self) -> Usd {
        let limit = self.policy().and_then(|policy| policy.approve_below_usd);
        limit.max(self.approved_up_to).unwrap_or_default()
    }

    /// Returns the errors of the run.
    #[must_use]
    pub const fn faults(&self) -> &DelegationErrors {
        &self.faults
    }

    /// Returns the agents from the root to a delegation, inclusive. Under the preset `command` the
    /// orchestrator comes first.
    #[must_use]
    pub fn path(&self, of: &Delegation) -> Vec<String> {
        let mut path = vec![of.agent.to_string()];
        let mut above = of.parent;
        while let Some(node) = above.and_then(|session| self.delegation(session)) {
            path.push(node.agent.to_string());
            above = node.parent;
        }
        let is_command = self.policy().is_some_and(|policy| policy.preset == Preset::Command);
        if is_command && path.last().is_some_and(|root| root != ORCHESTRATOR) {
            path.push(ORCHESTRATOR.to_owned());
        }
        path.reverse();
        path
    }

    /// Returns the number of the task that a delegation works on: its own, or that of its nearest ancestor.
    /// If the command names a single task, that is the default.
    #[must_use]
    pub fn task_number(&self, of: &Delegation) -> Option<u64> {
        let above = |node: &&Delegation| node.parent.and_then(|parent| self.delegation(parent));
        let own = std::iter::successors(Some(of), above).find_map(|node| node.number);
        own.or_else(|| match self.assignment()?.tasks.as_slice() {
            [only] => Some(*only),
            _ => None,
        })
    }

    /// Returns a delegation and everything below it, parents before children.
    #[must_use]
    pub fn subtree<'a>(&'a self, of: &'a Delegation) -> Vec<&'a Delegation> {
        let mut order = Vec::new();
        let mut next = vec![of];
        while let Some(delegation) = next.pop() {
            order.push(delegation);
            next.extend(delegation.children.iter().rev().map(|&place| &self.delegations[place]));
        }
        order
    }

    /// Returns the root, once the run started.
    #[must_use]
    pub fn root(&self) -> Option<&Delegation> {
        self.delegations.first()
    }

    /// Returns the delegation with this id, which may be the root.
    #[must_use]
    pub fn delegation(&self, session: SessionId) -> Option<&Delegation> {
        self.by_session.get(&session).map(|&place| &self.delegations[place])
    }

    /// Returns the number of a delegation, as people type it in `#N`; the root has none.
    ///
    /// Delegations are numbered from 1 in the order of admission, which within one call is the order of its
    /// tasks. A number never changes.
    #[must_use]
    pub fn ordinal(&self, session: SessionId) -> Option<usize> {
        self.by_session.get(&session).copied().filter(|&place| place > 0)
    }

    /// Returns the delegation with this number, see [`RunView::ordinal`].
    #[must_use]
    pub fn by_ordinal(&self, ordinal: usize) -> Option<&Delegation> {
        self.delegations.get(ordinal).filter(|_| ordinal > 0)
    }

    /// Returns all delegations below the root, in the order of admission.
    pub fn delegations(&self) -> impl Iterator<Item = &Delegation> {
        self.delegations.iter().skip(1)
    }

    /// Returns the children of a delegation, in input order.
    pub fn children(&self, of: &Delegation) -> impl Iterator<Item = &Delegation> {
        of.children.iter().map(|&place| &self.delegations[place])
    }

    /// Returns the root and everything below it, parents before children, siblings in input order.
    #[must_use]
    pub fn preorder(&self) -> Vec<&Delegation> {
        self.root().map(|root| self.subtree(root)).unwrap_or_default()
    }

    /// Returns how many tasks the call of a delegation had.
    #[must_use]
    pub fn call_size(&self, delegation: &Delegation) -> usize {
        let parent = delegation.parent.and_then(|parent| self.delegation(parent));
        parent.and_then(|parent| parent.call_sizes.get(&delegation.call)).copied().unwrap_or(1)
    }

    /// Counts all delegations below the root by state.
    #[must_use]
    pub fn outcomes(&self) -> OutcomeCounts {
        OutcomeCounts::of(self.delegations())
    }

    /// Returns how long the run has taken so far. A dead run stopped at its latest event.
    #[must_use]
    pub fn elapsed(&self, now: Timestamp, liveness: ProcessLiveness) -> Duration {
        let until = match (self.ended, liveness) {
            (Some(ended), _) => ended.at,
            (None, ProcessLiveness::Alive) => now.max(self.latest.at),
            (None, ProcessLiveness::Dead) => self.latest.at,
        };
        until.since(self.began.unwrap_or_default().at)
    }

    /// Returns how long the run waited for a person without any other activity.
    #[must_use]
    pub fn waited(&self, now: Timestamp, liveness: ProcessLiveness) -> Duration {
        let open = liveness == ProcessLiveness::Alive && self.waits_for_person();
        self.waited + if open { now.since(self.latest.at) } else { Duration::ZERO }
    }

    /// Returns whether nothing happens until a person answers.
    fn waits_for_person(&self) -> bool {
        self.has_question() && !self.delegations.iter().any(Delegation::is_busy)
    }

    /// Returns the state of the run itself.
    #[must_use]
    pub fn state(&self) -> DelegationState {
        match self.outcome {
            Some(outcome) => DelegationState::Ended(outcome),
            None if !self.approvals.is_empty() => DelegationState::AwaitingApproval,
            None => DelegationState::Running,
        }
    }
}
