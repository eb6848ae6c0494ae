//! Time limits after a resume: a new timeout from the person, and changed limits.
//!
//! Everything is computed with the limits after the resume. Start at [`Tree::renewed_times`].
//! Invariant: no deadline is later than the parent's.
//!
//! `RenewedTimes` is the computation for one resume.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::node::Node;
use super::{DeadlineKind, ROOT, Tree};
use crate::command::ResumeOptions;
use crate::ids::SessionId;
use crate::policy::{DelegationTimeout, Operation, Policy, PolicyKey};
use crate::refusal::TimeBound;
use crate::time::Timestamp;

/// Computes how much time each node has after a resume.
pub(super) struct RenewedTimes<'a> {
    tree: &'a Tree,
    /// The limits after the resume.
    policy: Policy,
    /// The new timeout that the person gives every resumed node.
    given: Option<u64>,
    is_timeout_set: bool,
    is_maximum_set: bool,
    is_total_set: bool,
}

impl Tree {
    /// Returns the time limits after the resume `wish`.
    pub(super) fn renewed_times(&self, wish: &ResumeOptions) -> RenewedTimes<'_> {
        let limits = self.changed_limits(wish);
        let mut policy = self.policy.clone();
        for (name, value) in &limits {
            // The values come from a policy, so each key accepts its value.
            let _ = policy.set_on_resume(name, value);
        }
        RenewedTimes {
            tree: self,
            policy,
            given: wish.timeout_s,
            is_timeout_set: limits.contains_key(PolicyKey::TimeoutS.name()),
            is_maximum_set: limits.contains_key(PolicyKey::TimeoutMaxS.name()),
            is_total_set: limits.contains_key(PolicyKey::TotalS.name()),
        }
    }

    /// Returns the policy key that limits the root's time; `None` if it has no time limit.
    fn root_time_key(&self) -> Option<PolicyKey> {
        match (&self.assignment, &self.story) {
            (Some(_), _) => Some(PolicyKey::TimeoutMaxS),
            (None, Some(_)) => Some(PolicyKey::TotalS),
            (None, None) => None,
        }
    }

    fn root_seconds(&self, policy: &Policy) -> Option<u64> {
        match (&self.assignment, &self.story) {
            (Some(assignment), _) => policy.longest(assignment.operation),
            (None, Some(_)) => policy.total_s,
            (None, None) => None,
        }
    }

    fn operation(&self) -> Operation {
        self.assignment.as_ref().map(|it| it.operation).unwrap_or_default()
    }

    /// Clamps a person's timeout to the maximum of the run's operation, or to what the node had
    /// before if that is more.
    fn clamp_timeout(&self, policy: &Policy, node: &Node, seconds: u64) -> u64 {
        // What it had before was within the maximum of its own operation.
        let most = |longest: u64| longest.max(node.time.timeout_s.unwrap_or_default());
        policy.longest(self.operation()).map_or(seconds, |longest| seconds.min(most(longest)))
    }

    /// Folds in the time limits of a resume.
    pub(super) fn give_time(
        &mut self,
        at: Timestamp,
        timeout_s: Option<u64>,
        deadlines: &BTreeMap<SessionId, Timestamp>,
        limits: &BTreeMap<String, Value>,
    ) {
        let is_set = |key: PolicyKey| limits.contains_key(key.name());
        let total = self.policy.total_s.map(|seconds| at.plus_seconds(seconds));
        let is_root_set = self.root_time_key().is_some_and(is_set);
        for index in 0..self.nodes.len() {
            let given = timeout_s.map(|seconds| {
                let node = &self.nodes[index];
                self.clamp_timeout(&self.policy, node, seconds)
            });
            let above =
                self.nodes[index].parent.and_then(|parent| self.nodes[parent].time.deadline);
            let is_unlimited =
                index == ROOT && is_root_set && self.root_seconds(&self.policy).is_none();
            let is_total = index == ROOT && is_root_set && self.story.is_some();
            let node = &mut self.nodes[index];
            let hands_down = node.delegations.granted > 0 && node.is_live();
            if hands_down && (timeout_s.is_some() || is_set(PolicyKey::TotalS)) {
                node.delegations.total_deadline = total;
            }
            if node.is_waiting() && given.is_some() {
                node.time.timeout_s = given;
            }
            let new = deadlines.get(&node.session).copied();
            if new.is_none() && !is_unlimited {
                continue;
            }
            let is_own = given.is_some_and(|seconds| new == Some(at.plus_seconds(seconds)));
            node.time.bound = match new {
                _ if is_total => TimeBound::Total,
                _ if is_own => TimeBound::Own,
                _ if index == ROOT => node.time.bound,
                Some(_) if new == above => TimeBound::Parent,
                Some(_) if new == total => TimeBound::Total,
                Some(_) | None => TimeBound::Own,
            };
            let old = std::mem::replace(&mut node.time.deadline, new);
            self.move_timer(index, DeadlineKind::Timeout, old, new);
        }
    }
}

impl RenewedTimes<'_> {
    /// Returns the limits after the resume.
    pub(super) const fn policy(&self) -> &Policy {
        &self.policy
    }

    /// Returns the timeout for every resumed node, as recorded: the person's, or else a changed
    /// `timeout_s`.
    pub(super) const fn timeout_s(&self) -> Option<u64> {
        match (self.given, self.policy.timeout_s) {
            (None, DelegationTimeout::Seconds(seconds)) if self.is_timeout_set => Some(seconds),
            (given, _) => given,
        }
    }

    /// Returns the timeout of a resumed node in seconds; `None` if it has none of its own.
    pub(super) fn seconds(&self, index: usize) -> Option<u64> {
        let node = &self.tree.nodes[index];
        if index == ROOT && self.is_root_set() {
            return self.tree.root_seconds(&self.policy);
        }
        if let Some(seconds) = self.given_to(index) {
            return Some(self.tree.clamp_timeout(&self.policy, node, seconds));
        }
        if !self.is_cut_short(index) {
            return node.time.timeout_s;
        }
        let usual = self.policy.allot(self.tree.operation(), None).seconds;
        usual.zip(node.time.timeout_s).map(|(usual, before)| usual.max(before))
    }

    /// Returns the timeout that a person gives a node, before clamping.
    fn given_to(&self, index: usize) -> Option<u64> {
        match index {
            ROOT if self.is_root_set() => None,
            // The root has the maximum time, not the default.
            ROOT => self.given,
            _ => self.timeout_s(),
        }
    }

    /// Says whether a child had less time because of a limit that is changed now.
    fn is_cut_short(&self, index: usize) -> bool {
        let node = &self.tree.nodes[index];
        let is_at_most = node.time.timeout_s == self.tree.policy.longest(self.tree.operation());
        index != ROOT
            && match node.time.bound {
                TimeBound::Own => self.is_maximum_set && is_at_most,
                TimeBound::Parent => self.is_root_set(),
                TimeBound::Total => self.is_total_set,
            }
    }

    fn is_root_set(&self) -> bool {
        let key = self.tree.root_time_key();
        (key == Some(PolicyKey::TotalS) && self.is_total_set)
            || (key == Some(PolicyKey::TimeoutMaxS) && self.is_maximum_set)
    }

    /// Says whether a resumed node gets less time than the person gave.
    pub(super) fn is_cut(&self, again: &BTreeSet<usize>) -> bool {
        let mut nodes = self.tree.nodes.iter().enumerate();
        nodes.any(|(index, node)| {
            let goes_on = node.is_live() || again.contains(&index);
            let is_timed = node.parent.is_some() || node.time.deadline.is_some();
            let allotted = |given: u64| self.tree.clamp_timeout(&self.policy, node, given);
            goes_on && is_timed && self.given_to(index).is_some_and(|it| allotted(it) < it)
        })
    }

    /// Returns the new deadlines of running nodes. Parents come before their children.
    pub(super) fn deadlines(&self, now: Timestamp) -> BTreeMap<SessionId, Timestamp> {
        let mut new: BTreeMap<SessionId, Timestamp> = BTreeMap::new();
        let total = self.policy.total_s.map(|seconds| now.plus_seconds(seconds));
        for (index, node) in self.tree.nodes.iter().enumerate() {
            if !node.is_running() {
                continue;
            }
            let above = node.parent.map(|parent| &self.tree.nodes[parent]);
            let above =
                above.and_then(|node| new.get(&node.session).copied().or(node.time.deadline));
            let is_timed = node.parent.is_some() || node.time.deadline.is_some();
            let is_root_set = index == ROOT && self.is_root_set();
            let is_cut_short = self.is_cut_short(index);
            let first = if is_root_set || is_cut_short || (is_timed && self.timeout_s().is_some()) {
                let own = self.seconds(index).map(|seconds| now.plus_seconds(seconds));
                [own, above, total.filter(|_| is_cut_short)].into_iter().flatten().min()
            } else {
                above.filter(|above| node.time.deadline.is_some_and(|deadline| deadline > *above))
            };
            new.extend(first.map(|deadline| (node.session, deadline)));
        }
        new
    }
}
