//! Timers: timeouts, stalled model calls, retries and expiring questions.
//!
//! [`DeadlineKind`] says what happens when one of them is reached.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use super::node::PlannedEnd;
use super::turn::{MAX_ATTEMPTS, UnrecordedReservations};
use super::turn_state::{ModelCall, TurnState};
use super::{Node, Tree};
use crate::code::ErrorCode;
use crate::event::Event;
use crate::ids::SessionId;
use crate::message::{AttemptError, ModelErrorKind};
use crate::numbers::grouped;
use crate::policy::Operation;
use crate::refusal::TimeBound;
use crate::time::Timestamp;

/// What happens at a deadline.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DeadlineKind {
    /// A delegation times out.
    Timeout,
    /// A model call counts as stalled.
    Stall,
    /// A failed model call is retried.
    Retry,
    /// A question to a person expires.
    Approval,
}

impl Tree {
    /// Returns the next deadline, and what happens at it.
    #[must_use]
    pub fn next_deadline(&self) -> Option<(Timestamp, DeadlineKind)> {
        let timer = self.timers.first().map(|(at, _, why)| (*at, *why));
        let question = self.next_stale_domain().map(|at| (at, DeadlineKind::Approval));
        timer.into_iter().chain(question).min()
    }

    /// Gives the root a deadline, once and before its first turn. It gets the longest time of the
    /// operation instead of the default, so that it can still report on a child that used up the
    /// default.
    pub(super) fn time_root(&self, now: Timestamp, operation: Operation) -> Option<Event> {
        let fresh =
            |root: &&Node| root.is_running() && root.time.deadline.is_none() && root.turn == 0;
        let root = self.nodes.first().filter(fresh)?;
        let seconds = self.policy.longest(operation)?;
        let (session, deadline) = (root.session, Some(now.plus_seconds(seconds)));
        Some(Event::Started { session, deadline, bound: TimeBound::Own })
    }

    pub(super) fn expire(&self, now: Timestamp) -> Vec<Event> {
        let mut events = self.expire_approvals(now);
        events.extend(self.expire_domains(now));
        // Several deadlines may pass at once, for example of a parent and its child; the first end
        // of a session counts.
        let mut ended: BTreeSet<SessionId> = ended_sessions(&events).collect();
        let (mut stalls, mut retries) = (BTreeSet::new(), BTreeSet::new());
        for (_, index, why) in self.timers.iter().take_while(|(at, _, _)| *at <= now) {
            let node = &self.nodes[*index];
            let end = match why {
                DeadlineKind::Timeout => timed_out(node, self.policy.in_place),
                DeadlineKind::Stall => {
                    stalls.insert(*index);
                    continue;
                }
                DeadlineKind::Retry => {
                    retries.insert(*index);
                    continue;
                }
                DeadlineKind::Approval => continue,
            };
            if node.is_live() {
                join(&mut events, self.end_subtree(*index, &end), &mut ended);
            }
        }
        self.fail_stalled(now, &stalls, &mut events, &mut ended);
        self.retry(&retries, &mut events, &mut ended);
        events
    }

    /// Fails stalled model calls of nodes that were not ended above. Parents come before their
    /// children: an agent that ends here ends all its descendants.
    fn fail_stalled(
        &self,
        now: Timestamp,
        due: &BTreeSet<usize>,
        events: &mut Vec<Event>,
        ended: &mut BTreeSet<SessionId>,
    ) {
        for &index in due {
            let node = &self.nodes[index];
            if node.is_live() && !ended.contains(&node.session) {
                let (error, end) = self.stalled(node);
                join(events, self.fail_open_attempt(now, index, error, &end), ended);
            }
        }
    }

    /// Retries failed model calls of nodes that were not ended above. All retries are decided
    /// before any is folded in, so each reservation must see the ones before it. Parents come
    /// before their children, because an agent that ends here ends all its descendants.
    fn retry(
        &self,
        due: &BTreeSet<usize>,
        events: &mut Vec<Event>,
        ended: &mut BTreeSet<SessionId>,
    ) {
        let mut held = UnrecordedReservations::default();
        for &index in due {
            let session = self.nodes[index].session;
            if ended.contains(&session) {
                continue;
            }
            let new = self.take_turn_beside(session, &held);
            for event in &new {
                if let Event::Reserved { reservation, .. } = event {
                    held.add(self, index, reservation.amount);
                }
            }
            join(events, new, ended);
        }
    }

    /// Returns the error of a stalled call or worker, and how the agent ends after the last attempt.
    fn stalled(&self, node: &Node) -> (AttemptError, PlannedEnd) {
        let seconds = grouped(self.policy.stall_s.unwrap_or_default());
        let (message, end, advice) = match node.worker_silence(&seconds) {
            Some(silence) => {
                let advice = "`adjutant log` shows what it did last; resume it, with a larger stall_s if its commands are slow.";
                (format!("the {silence}"), format!("The {silence}."), advice)
            }
            None => {
                let attempt = node.open_attempt_number();
                let end = format!(
                    "No byte came from the model for {seconds} s (attempt {attempt} of {MAX_ATTEMPTS})."
                );
                let message = format!("no byte came from the model for {seconds} s");
                (message, end, "Try again, or use another model.")
            }
        };
        let error = AttemptError {
            kind: ModelErrorKind::Idle,
            message,
            retry_after_ms: None,
            never_began: false,
        };
        (error, PlannedEnd::partial(ErrorCode::Stalled, end, advice))
    }

    /// Restarts the stall timer of a running model call.
    pub(super) fn restart_stall_timer(&mut self, at: Timestamp, index: usize) {
        let stall = self.policy.stall_s.map(|seconds| at.plus_seconds(seconds));
        if let TurnState::Thinking(_, Some(call)) = self.nodes[index].turn_state_mut() {
            let old = std::mem::replace(&mut call.stall_at, stall);
            self.move_timer(index, DeadlineKind::Stall, old, stall);
        }
    }

    /// Schedules the retry of a failed model call.
    pub(super) fn retry_at(&mut self, index: usize, at: Timestamp) {
        let node = &mut self.nodes[index];
        *node.turn_state_mut() = TurnState::Retrying(node.attempts().unwrap_or_default(), at);
        self.move_timer(index, DeadlineKind::Retry, None, Some(at));
    }

    /// Clears the running model call and its stall timer, or a scheduled retry. Returns the call.
    pub(super) fn take_model_call(&mut self, index: usize) -> Option<ModelCall> {
        let node = &mut self.nodes[index];
        if let TurnState::Thinking(_, call) = node.turn_state_mut() {
            let call = call.take()?;
            self.move_timer(index, DeadlineKind::Stall, call.stall_at, None);
            return Some(call);
        }
        if let TurnState::Retrying(_, at) = *node.turn_state() {
            node.think();
            self.move_timer(index, DeadlineKind::Retry, Some(at), None);
        }
        None
    }

    pub(super) fn move_timer(
        &mut self,
        index: usize,
        why: DeadlineKind,
        old: Option<Timestamp>,
        new: Option<Timestamp>,
    ) {
        if let Some(old) = old {
            self.timers.remove(&(old, index, why));
        }
        if let Some(new) = new {
            self.timers.insert((new, index, why));
        }
    }
}

/// Appends the events of sessions that have not ended yet.
fn join(events: &mut Vec<Event>, new: Vec<Event>, ended: &mut BTreeSet<SessionId>) {
    let fresh = |event: &Event| event.session().is_none_or(|session| !ended.contains(&session));
    let new: Vec<Event> = new.into_iter().filter(fresh).collect();
    ended.extend(ended_sessions(&new));
    events.extend(new);
}

fn ended_sessions(events: &[Event]) -> impl Iterator<Item = SessionId> {
    events.iter().filter(|event| matches!(event, Event::Ended { .. })).filter_map(Event::session)
}

fn timed_out(node: &Node, in_place: bool) -> PlannedEnd {
    let seconds = match (node.time.started, node.time.deadline) {
        (Some(started), Some(deadline)) => deadline.since(started).as_secs(),
        (None, _) | (_, None) => 0,
    };
    // The verify command used the time, not the agent; name it.
    let command = node.terms.verify.as_ref().filter(|_| node.is_checking());
    let running =
        command.map(|it| format!(" `{}` was still running.", it.command)).unwrap_or_default();
    let bound = match (node.time.bound, node.parent) {
        (TimeBound::Total, None) => "the total of the story (total_s)",
        (bound, _) => bound.noun(),
    };
    PlannedEnd::partial(
        ErrorCode::Timeout,
        format!("Timed out after {} s, {bound}.{running}", grouped(seconds)),
        &format!(
            "`adjutant resume {}{}` gives it as much time again; what was found so far is in the result.",
            node.session,
            if in_place { " --in-place" } else { "" }
        ),
    )
}
