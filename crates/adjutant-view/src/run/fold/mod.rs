//! How each event changes the view.
//!
//! Start at [`apply`]. This file handles what concerns the run and the shape of the tree; `delegation`
//! handles what an event means for its delegation.

mod delegation;

use std::collections::BTreeMap;

use adjutant_core::budget::{BudgetAmount, Reservation, Settlement};
use adjutant_core::tree::WHOLE_RUN;
use adjutant_core::workspace::commit_failed;
use adjutant_core::{
    AgentName, DelegationState, ErrorCode, Event, Grant, Label, ModelErrorKind, ModelSpec, Outcome,
    OutcomeReason, Policy, RunId, SessionId, Timestamp, WorkerTerms,
};
use adjutant_formats::contract::ReturnError;

use super::markers::markers_in;
use super::spend::{UNKNOWN, hourly_spend};
use super::{Delegation, OpenApproval, RunView, Spend, TextRetention, WorkerRecord};
use crate::layout::excerpt;
use crate::timed_event::{EventTime, TimedEvent};

use delegation::blank;
pub(crate) use delegation::warnings;

/// The maximum length of a stored task or late arrival.
const TEXT_KEPT: usize = 200;
/// The maximum length of a goal in a view without texts; a whole diff may be piped in.
const GOAL_KEPT: usize = 1_000;
/// The maximum length of a reason in a view without texts; it may quote a whole answer.
const REASON_KEPT: usize = 1_000;

pub(super) fn apply(view: &mut RunView, entry: TimedEvent<'_>) {
    if view.waits_for_person() {
        view.waited += entry.moment().at.since(view.latest.at);
    }
    if let Event::DomainAsked { session, .. } = entry.event {
        view.asking_hosts.insert(*session);
    }
    fold_in(view, entry);
    let mut asking = std::mem::take(&mut view.asking_hosts);
    asking.retain(|session| view.delegation(*session).is_some_and(|it| !it.hosts.is_empty()));
    view.asking_hosts = asking;
}

fn fold_in(view: &mut RunView, entry: TimedEvent<'_>) {
    // These are recorded after the end of a run and do not continue it.
    let is_afterwards = matches!(
        entry.event,
        Event::ErrorFixed { .. } | Event::ResultMerged { .. } | Event::Undone { .. }
    );
    if !is_afterwards {
        view.latest = entry.moment();
    }
    match entry.event {
        Event::RunStarted {
            run, agent, goal, workdir, policy, model, terms, base_depth, ..
        } => {
            view.terms.clone_from(terms);
            view.goal = view.texts.start_of(goal, GOAL_KEPT);
            view.workdir.clone_from(workdir);
            view.begin(entry.moment(), *run, agent, policy, model.as_ref(), *base_depth);
        }
        Event::Granted(grant) => view.fold_granted(entry.moment(), grant),
        Event::Refused { .. } => view.fold_refused(entry),
        Event::ApprovalAsked { parent, call, hash, expires } => {
            let waiting = if *call == WHOLE_RUN {
                view.root_waits()
            } else {
                view.waiting_in(*parent, *call)
            };
            let hash = hash.clone();
            view.approvals.push(OpenApproval {
                parent: *parent,
                call: *call,
                hash,
                expires: *expires,
                waiting,
            });
        }
        Event::AutoApproved { amount, .. } => view.auto_approved += *amount,
        Event::Approved { hash, up_to, .. } => {
            view.fold_approval_answered(hash, true);
            if let Some(amount) = up_to {
                view.approved_up_to = Some(view.auto_approved + *amount);
            }
        }
        Event::Denied { hash, .. } => view.fold_approval_answered(hash, false),
        Event::Overran { session, amount } => view.fold_overrun(*session, *amount),
        Event::RunEnded { outcome } => {
            view.outcome = Some(*outcome);
            view.ended = Some(entry.moment());
            view.command_ends(entry, *outcome);
        }
        Event::ErrorFixed { id } => view.faults.fix(id),
        Event::Resumed { model, deadlines, questions_until, terms, limits, .. } => {
            if let Some(policy) = &mut view.policy {
                for (name, value) in limits {
                    // `Tree` has already refused invalid limits.
                    let _ = policy.set_on_resume(name, value);
                }
            }
            if terms.is_some() {
                view.terms.clone_from(terms);
            }
            view.resumed(model.as_ref(), deadlines, *questions_until);
        }
        Event::Reopened(reopening) => {
            let model = view.model_now.clone();
            if let Some(&place) = view.by_session.get(&reopening.session) {
                view.delegations[place].switch(model.as_ref());
            }
            view.fold_delegation_event(reopening.session, entry);
        }
        Event::Assigned(assignment) => view.assignment = Some(assignment.clone()),
        Event::StoryTaken { story, deadline } => {
            if let Some(root) = view.delegations.first_mut() {
                root.label = story.label();
                root.story = Some(story.id.clone());
                root.wanted = story.plan.iter().map(|task| task.description.clone()).collect();
                root.deadline = *deadline;
                root.verify.clone_from(&story.verify);
            }
            view.story = Some(story.clone());
        }
        Event::AgentDefined { agent, worker, .. } => {
            view.fold_worker_terms(agent, worker.as_deref());
        }
        Event::Delegated { .. }
        | Event::DomainAllowed { .. }
        | Event::Undone { .. }
        | Event::DomainDenied { .. } => {}
        Event::Started { session, .. }
        | Event::Reserved { session, .. }
        | Event::Replied { session, .. }
        | Event::AttemptFailed { session, .. }
        | Event::Settled { session, .. }
        | Event::WorkerCallReserved { session, .. }
        | Event::WorkerCallRefused { session, .. }
        | Event::WorkerCallSettled { session, .. }
        | Event::WorkerSessionOpened { session, .. }
        | Event::WorkerActed { session, .. }
        | Event::WorkerReported { session, .. }
        | Event::Progressed { session, .. }
        | Event::Paused { session, .. }
        | Event::DomainAsked { session, .. }
        | Event::Messaged { session, .. }
        | Event::Told { session, .. }
        | Event::NoteSkipped { session }
        | Event::Continued { session, .. }
        | Event::ToolCalled { session, .. }
        | Event::ToolRefused { session, .. }
        | Event::ToolReturned { session, .. }
        | Event::WritePrepared { session, .. }
        | Event::Judged { session, .. }
        | Event::MarkersRead { session, .. }
        | Event::Checking { session, .. }
        | Event::Checked { session, .. }
        | Event::Merged { session, .. }
        | Event::ResultMerged { session, .. }
        | Event::Marked { session, .. }
        | Event::Printed { session, .. }
        | Event::SpaceKept { session, .. }
        | Event::Crashed { session, .. }
        | Event::Late { session, .. }
        | Event::Ended { session, .. } => view.fold_delegation_event(*session, entry),
        Event::SpaceMade { session, space, .. } => {
            for remark in &space.remarks {
                view.remarked.entry(remark.clone()).or_insert(*session);
            }
            view.fold_delegation_event(*session, entry);
        }
    }
}

impl RunView {
    fn begin(
        &mut self,
        moment: EventTime,
        run: RunId,
        agent: &AgentName,
        policy: &Policy,
        model: Option<&ModelSpec>,
        base_depth: u64,
    ) {
        // A second start would orphan everything below the first root.
        if self.run.is_some() {
            return;
        }
        self.run = Some(run);
        self.began = Some(moment);
        self.policy = Some(Box::new(policy.clone()));
        let label = Label::new("root").unwrap_or_else(|_| Label::unnamed());
        let mut root = blank(run.root_session(), label, agent.clone(), moment);
        root.depth = base_depth;
        root.state = DelegationState::Running;
        root.started = Some(moment);
        root.leg = Some(moment);
        root.task = excerpt(&self.goal, TEXT_KEPT);
        root.model = model.map(|model| model.name.clone());
        root.is_priced = model.is_some_and(|model| model.price.is_some());
        self.by_session.insert(root.session, self.delegations.len());
        self.delegations.push(root);
    }

    fn fold_granted(&mut self, moment: EventTime, grant: &Grant) {
        let brief = &grant.brief;
        let mut node = blank(grant.session, brief.label.clone(), brief.agent.clone(), moment);
        node.call = grant.call;
        node.index = grant.index;
        node.task = excerpt(&brief.prompt, TEXT_KEPT);
        node.number = grant.task;
        node.model = brief.model.as_ref().map(|model: &ModelSpec| model.name.clone());
        node.is_priced = brief.model.as_ref().is_some_and(|model| model.price.is_some());
        node.worker = self.worker_of(&brief.agent, brief.model.as_ref());
        node.story.clone_from(&brief.story);
        node.hours = brief.hours;
        node.verify.clone_from(&brief.verify);
        node.has_own_space = grant.rights.has_own_space();
        node.timeout_s = grant.timeout_s;
        node.warnings = warnings(grant);
        if grant.awaiting_approval {
            node.state = DelegationState::AwaitingApproval;
        }
        self.adopt(grant.parent, node);
    }

    fn fold_worker_terms(&mut self, agent: &AgentName, terms: Option<&WorkerTerms>) {
        match terms {
            Some(terms) => self.workers.insert(agent.clone(), terms.clone()),
            None => self.workers.remove(agent),
        };
        let is_root = |root: &&Delegation| {
            root.agent == *agent && root.model.is_some() && root.worker.is_none()
        };
        let Some(root) = self.delegations.first().filter(is_root) else { return };
        let (model, is_priced) = (root.model.clone(), root.is_priced);
        let mut worker = self.worker_of(agent, None);
        if let (Some(worker), Some(model)) = (&mut worker, model) {
            worker.add_model(model, is_priced);
        }
        self.delegations[0].worker = worker;
    }

    /// Returns the record of the worker that does the work of an agent, at its start.
    fn worker_of(&self, agent: &AgentName, model: Option<&ModelSpec>) -> Option<Box<WorkerRecord>> {
        let terms = self.workers.get(agent)?;
        Some(Box::new(WorkerRecord::new(terms, model)))
    }

    fn fold_refused(&mut self, entry: TimedEvent<'_>) {
        let Event::Refused { session, parent, call, index, label, agent, story, reason } =
            entry.event
        else {
            return;
        };
        let mut node = blank(*session, label.clone(), agent.clone(), entry.moment());
        node.call = *call;
        node.index = *index;
        node.story.clone_from(story);
        node.state = DelegationState::Ended(Outcome::Refused);
        node.ended = Some(entry.moment());
        let reason = self.texts.reason(reason);
        node.reason = Some(reason.clone());
        self.adopt(*parent, node);
        self.fold_ended(entry, *session, Outcome::Refused, Some(&reason), &[]);
    }

    fn adopt(&mut self, parent: SessionId, mut node: Delegation) {
        // An unknown parent is replaced by the root. Without a root, the delegation is ignored.
        let above = self.by_session.get(&parent).copied().unwrap_or(0);
        if self.delegations.is_empty() || self.by_session.contains_key(&node.session) {
            return;
        }
        let place = self.delegations.len();
        let above = &mut self.delegations[above];
        node.parent = Some(above.session);
        node.depth = above.depth + 1;
        above.children.push(place);
        *above.call_sizes.entry(node.call).or_default() += 1;
        self.by_session.insert(node.session, place);
        self.delegations.push(node);
    }

    /// Marks the root as waiting, because a person is asked about the whole run. Returns its position.
    fn root_waits(&mut self) -> Vec<usize> {
        let Some(root) = self.delegations.first_mut() else { return Vec::new() };
        (root.state, root.started, root.leg) = (DelegationState::AwaitingApproval, None, None);
        vec![0]
    }

    /// Returns the positions of the delegations of a call that wait for a person.
    fn waiting_in(&self, parent: SessionId, call: u32) -> Vec<usize> {
        let Some(parent) = self.delegation(parent) else { return Vec::new() };
        let latest = parent.children.iter().rev().copied();
        latest
            .take_while(|&child| self.delegations[child].call == call)
            .filter(|&child| self.delegations[child].state == DelegationState::AwaitingApproval)
            .collect()
    }

    fn fold_approval_answered(&mut self, hash: &str, yes: bool) {
        let Some(open) = self.approvals.iter().position(|open| open.hash == hash) else { return };
        let open = self.approvals.remove(open);
        for place in open.waiting {
            let child = &mut self.delegations[place];
            if yes && child.state == DelegationState::AwaitingApproval {
                child.state = DelegationState::Queued;
            }
        }
    }

    fn resumed(
        &mut self,
        model: Option<&ModelSpec>,
        deadlines: &BTreeMap<SessionId, Timestamp>,
        questions_until: Timestamp,
    ) {
        self.outcome = None;
        self.ended = None;
        self.model_now = model.cloned();
        for node in self.delegations.iter_mut().filter(|node| node.state.is_live()) {
            node.switch(model);
            node.deadline = deadlines.get(&node.session).copied().or(node.deadline);
        }
        for open in &mut self.approvals {
            open.expires = questions_until;
        }
        if let Some(root) = self.delegations.first_mut().filter(|root| root.model.is_none()) {
            root.state = DelegationState::Running;
            root.ended = None;
        }
    }

    fn fold_overrun(&mut self, session: SessionId, amount: BudgetAmount) {
        let worker = self.worker_mut(session);
        let model = worker.and_then(|worker| worker.overrun(amount).map(str::to_owned));
        self.spend(session, model.as_deref(), |spend, _| {
            spend.overrun = spend.overrun.plus(amount);
        });
    }

    /// Settles the model calls that were in progress when the run died, at their full reservation.
    pub fn close_open_calls(&mut self) {
        let open: Vec<(SessionId, Reservation)> = self
            .delegations
            .iter_mut()
            .filter_map(|node| Some((node.session, node.open.take()?)))
            .collect();
        for (session, reservation) in open {
            self.settle(session, &Settlement::estimated(&reservation));
        }
        let calls: Vec<(SessionId, Vec<(String, Settlement)>)> = self
            .delegations
            .iter_mut()
            .filter_map(|node| Some((node.session, node.worker.as_mut()?.take_open())))
            .collect();
        for (session, calls) in calls {
            for (model, settlement) in calls {
                self.settle_worker_call(session, Some(model), &settlement);
            }
        }
    }

    /// Settles a model call, or the prompt of a worker, which costs nothing itself and is no call.
    fn settle(&mut self, session: SessionId, settlement: &Settlement) {
        if self.worker_mut(session).is_none() {
            self.spend(session, None, |spend, is_priced| spend.settle(settlement, is_priced));
        } else if !settlement.amount().is_zero() {
            self.settle_worker_call(session, None, settlement);
        }
    }

    /// Settles a model call of a worker; without `model` it is the model of its task.
    fn settle_worker_call(
        &mut self,
        session: SessionId,
        model: Option<String>,
        settlement: &Settlement,
    ) {
        let own = self.delegation(session).and_then(|node| node.model.clone());
        let model = model.or(own).unwrap_or_else(|| UNKNOWN.to_owned());
        let known = self.worker_mut(session).map(|worker| worker.settle(&model, settlement));
        self.spend(session, Some(&model), |spend, is_priced| {
            spend.settle(settlement, known.unwrap_or(is_priced));
        });
    }

    fn worker_mut(&mut self, session: SessionId) -> Option<&mut WorkerRecord> {
        let place = self.by_session.get(&session).copied()?;
        self.delegations[place].worker.as_deref_mut()
    }

    /// Changes the spending of a delegation, all its ancestors and the run. Without `model` it is spent on the
    /// delegation's own model.
    fn spend(
        &mut self,
        session: SessionId,
        model: Option<&str>,
        change: impl Fn(&mut Spend, bool),
    ) {
        let wall_ms = self.latest.wall_ms;
        // Costs of an unknown session count at the root.
        let place = self.by_session.get(&session).copied().unwrap_or(0);
        let Some(node) = self.delegations.get_mut(place) else {
            change(&mut self.total, true);
            let agent = AgentName::new(UNKNOWN);
            change(
                hourly_spend(&mut self.by_hour, wall_ms, &agent, model.unwrap_or(UNKNOWN)),
                true,
            );
            return;
        };
        // Tokens of a model without a price are counted separately.
        let is_priced = node.is_priced;
        let model = model.or(node.model.as_deref()).unwrap_or(UNKNOWN);
        change(hourly_spend(&mut self.by_hour, wall_ms, &node.agent, model), is_priced);
        change(&mut node.own, is_priced);
        change(&mut self.total, is_priced);
        let mut scope = Some(place);
        while let Some(place) = scope {
            let node = &mut self.delegations[place];
            change(&mut node.inclusive, is_priced);
            scope = node.parent.and_then(|parent| self.by_session.get(&parent).copied());
        }
    }

    /// Applies an event of one delegation.
    fn fold_delegation_event(&mut self, session: SessionId, entry: TimedEvent<'_>) {
        if let Event::WorkerCallSettled { call, settlement, .. } = entry.event {
            let model = self.worker_mut(session).and_then(|worker| worker.open_model(*call));
            let model = model.map(str::to_owned);
            self.settle_worker_call(session, model, settlement);
        }
        if let Event::Replied { settlement, .. }
        | Event::AttemptFailed { settlement, .. }
        | Event::Settled { settlement, .. } = entry.event
        {
            self.settle(session, settlement);
            if let Some(&place) = self.by_session.get(&session) {
                self.delegations[place].open = None;
            }
        }
        let Some(&place) = self.by_session.get(&session) else { return };
        if let (Event::Replied { text, .. }, true) = (entry.event, self.story.is_some()) {
            self.delegations[place].wanted = markers_in(text);
        }
        self.delegations[place].take(entry, self.texts);
        if let Event::Ended { outcome, reason, .. } = entry.event {
            let mut reason = reason.as_ref().map(|reason| self.texts.reason(reason));
            let needs_person = matches!(
                self.delegations[place].last_error,
                Some(ModelErrorKind::Authentication | ModelErrorKind::OutOfCredit)
            );
            if let Some(reason) = reason.as_mut().filter(|it| it.code == ErrorCode::ProviderError) {
                // A retry cannot help: a person has to provide another key or pay.
                reason.recoverable &= !needs_person;
            }
            let returned = std::mem::take(&mut self.delegations[place].returned_errors);
            self.fold_ended(entry, session, *outcome, reason.as_ref(), &returned);
        }
        if let Event::SpaceKept { problem, .. } = entry.event {
            self.fold_kept(entry, session, problem.as_deref());
        }
    }

    /// Records that work could not be committed, or that it now is.
    fn fold_kept(&mut self, entry: TimedEvent<'_>, session: SessionId, problem: Option<&str>) {
        self.faults.fix_all(session, ErrorCode::GitCommitFailed);
        if let Some(problem) = problem {
            let reason = self.texts.reason(&commit_failed(problem));
            self.fold_ended(entry, session, Outcome::Partial, Some(&reason), &[]);
        }
    }

    /// Updates the outcome of a slash command whose work was resumed after its root agent had ended; that
    /// agent is not run again.
    fn command_ends(&mut self, entry: TimedEvent<'_>, outcome: Outcome) {
        let Some(root) = self.delegations.first_mut().filter(|_| self.assignment.is_some()) else {
            return;
        };
        if root.state == DelegationState::Ended(outcome) {
            return;
        }
        let session = root.session;
        root.state = DelegationState::Ended(outcome);
        root.reason = None;
        self.fold_ended(entry, session, outcome, None, &[]);
    }

    /// Records an end that is an error; a success marks earlier errors as fixed.
    fn fold_ended(
        &mut self,
        entry: TimedEvent<'_>,
        session: SessionId,
        outcome: Outcome,
        reason: Option<&OutcomeReason>,
        returned: &[ReturnError],
    ) {
        let Some(run) = self.run else { return };
        self.faults.take(run, session, entry.moment(), outcome, reason, returned);
    }
}

impl TextRetention {
    /// Returns the text, or its start in a view without texts.
    pub(super) fn start_of(self, text: &str, max: usize) -> String {
        match self {
            Self::Kept => text.to_owned(),
            Self::Dropped => excerpt(text, max),
        }
    }

    pub(super) fn reason(self, reason: &OutcomeReason) -> OutcomeReason {
        OutcomeReason { message: self.start_of(&reason.message, REASON_KEPT), ..reason.clone() }
    }

    fn error(self, error: &ReturnError) -> ReturnError {
        ReturnError { message: self.start_of(&error.message, REASON_KEPT), ..error.clone() }
    }
}
