//! Approval of a whole run that a client started, before its root agent begins.
//!
//! The question is call number [`WHOLE_RUN`] of the root and is answered like any other. Invariant:
//! while it is open, the root has no running deadline, no workspace and no task list update, and
//! takes no turn.

use super::approvals::{add_to, hash_of};
use super::evolve::illegal_event;
use super::phase::Phase;
use super::{DeadlineKind, Node, PendingApproval, ROOT, Tree};
use crate::assignment::{SlashCommandAssignment, UpdateTrigger};
use crate::event::{Event, IllegalEvent};
use crate::ids::SessionId;
use crate::message::ModelSpec;
use crate::money::Usd;
use crate::policy::{ApprovalRule, Policy};
use crate::refusal::TimeBound;
use crate::story::StoryAssignment;
use crate::time::Timestamp;

/// The call number of the whole run; an agent's own calls count from one.
pub const WHOLE_RUN: u32 = 0;

impl Tree {
    /// Starts the work of a slash command or story, or asks a person first.
    pub(super) fn ask_to_begin(
        &self,
        now: Timestamp,
        assignment: Option<Box<SlashCommandAssignment>>,
        story: Option<Box<StoryAssignment>>,
    ) -> Vec<Event> {
        let fresh = |root: &&Node| root.is_running() && root.turn == 0;
        let Some(root) = self.nodes.first().filter(fresh) else { return Vec::new() };
        if self.policy.approval == ApprovalRule::None || self.may_begin_unasked(root) {
            let mut events = assignment.map(|it| self.assign(now, it)).unwrap_or_default();
            events.extend(story.map(|it| self.take_story(now, it)).unwrap_or_default());
            return events;
        }
        let about = [
            assignment.filter(|_| self.assignment.is_none()).map(Event::Assigned),
            // The deadline is set when the work begins.
            story
                .filter(|_| self.story.is_none())
                .map(|story| Event::StoryTaken { story, deadline: None }),
        ];
        let mut events: Vec<Event> = about.into_iter().flatten().collect();
        let asked = Event::ApprovalAsked {
            parent: root.session,
            call: WHOLE_RUN,
            hash: hash_of(&events, self.opening.clone()),
            expires: now.plus_seconds(self.policy.approval_s),
        };
        // The question comes first, so that the following events start nothing.
        events.insert(0, asked);
        events
    }

    /// Says whether the worst case of the whole run fits `approve_below_usd`.
    ///
    /// Delegations count against the same amount again when they are requested.
    fn may_begin_unasked(&self, root: &Node) -> bool {
        let Some(limit) = self.policy.approve_below_usd else { return false };
        let worst = root.model.as_ref().and_then(|model| worst_case_of_run(&self.policy, model).1);
        worst.is_some_and(|worst| self.auto_approved + worst <= limit)
    }

    /// Adds an opening event to the hash that an approval of the whole run is bound to.
    pub(super) fn read_opening(&mut self, event: &Event) {
        let of_policy =
            if let Event::RunStarted { policy, .. } = event { policy } else { &self.policy };
        let asks = of_policy.approval == ApprovalRule::Batch;
        let is_of_it = asks && event.is_of_opening();
        if is_of_it && self.nodes.first().is_none_or(|root| root.turn == 0) {
            add_to(&mut self.opening, event);
        }
    }

    pub(super) fn asked_to_begin(
        &mut self,
        parent: usize,
        hash: &str,
        expires: Timestamp,
    ) -> Result<(), IllegalEvent> {
        let root = &mut self.nodes[parent];
        if parent != ROOT || !root.is_running() || root.turn > 0 {
            return Err(illegal_event("approval_asked", "the run had already started"));
        }
        root.time.started = None;
        self.enter(ROOT, Phase::AwaitingApproval);
        self.timers.insert((expires, ROOT, DeadlineKind::Approval));
        let pending = PendingApproval { expires, parent: ROOT, nodes: vec![ROOT] };
        self.approvals.insert(hash.to_owned(), pending);
        Ok(())
    }

    /// Starts the root after approval, with the full time from now on.
    pub(super) fn start_root(&self, now: Timestamp, session: SessionId) -> Option<Event> {
        let waits = |root: &&Node| root.session == session && root.is_queued();
        self.nodes.first().filter(waits)?;
        let (seconds, bound) = match &self.assignment {
            Some(assignment) => (self.policy.longest(assignment.operation), TimeBound::Own),
            None => (self.policy.total_s.filter(|_| self.story.is_some()), TimeBound::Total),
        };
        let deadline = seconds.map(|seconds| now.plus_seconds(seconds));
        Some(Event::Started { session, deadline, bound })
    }

    /// Folds `Started` for the root. Without a question the root runs from the beginning, so only
    /// its deadline is set.
    pub(super) fn root_started(
        &mut self,
        at: Timestamp,
        index: usize,
        deadline: Option<Timestamp>,
        bound: TimeBound,
    ) -> Result<(), IllegalEvent> {
        if !self.nodes[index].is_queued() {
            return self.root_timed(index, deadline, bound);
        }
        self.nodes[index].time.started = Some(at);
        self.open_mark(index, UpdateTrigger::Begun);
        self.enter_work(index);
        deadline.map_or(Ok(()), |deadline| self.root_timed(index, Some(deadline), bound))
    }

    pub(super) fn root_timed(
        &mut self,
        index: usize,
        deadline: Option<Timestamp>,
        bound: TimeBound,
    ) -> Result<(), IllegalEvent> {
        let root = &mut self.nodes[index];
        let Some(deadline) = deadline.filter(|_| root.time.deadline.is_none()) else {
            return Err(illegal_event("started", "the root is already running"));
        };
        root.time.deadline = Some(deadline);
        root.time.bound = bound;
        root.time.timeout_s = root.time.started.map(|started| deadline.since(started).as_secs());
        if root.turn == 0 {
            root.granted_limits.seconds = root.time.timeout_s;
        }
        self.timers.insert((deadline, index, DeadlineKind::Timeout));
        Ok(())
    }
}

/// Returns the most tokens that a whole run can use under a policy, and their worst-case cost on
/// the root's model, if that has a price.
#[must_use]
pub fn worst_case_of_run(policy: &Policy, model: &ModelSpec) -> (u64, Option<Usd>) {
    let tokens = policy.budget_tokens_run.unwrap_or(u64::MAX);
    let dearest = model.price.map(|price| price.max_cost(tokens, 0).max(price.max_cost(0, tokens)));
    let cap = policy.budget_usd.unwrap_or(Usd::MAX);
    (tokens, dearest.map(|usd| usd.min(cap)))
}
