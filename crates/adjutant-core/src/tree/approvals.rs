//! Questions to a person about a call, and their answers.
//!
//! Computes the worst case of a call and the hash that an answer is bound to, decides approval,
//! denial and expiry, and folds questions and answers into the tree. Whether a person is asked is decided in `admission` and `auto_approval`.
//! Start at [`Tree::approve`]. Invariant: a question is answered once, and only for exactly the
//! grants that it was asked about.

use sha2::{Digest, Sha256};

use super::evolve::illegal_event;
use super::phase::Phase;
use super::whole_run::WHOLE_RUN;
use super::{DeadlineKind, PendingApproval, Tree};
use crate::budget::BudgetAmount;
use crate::event::{Event, Grant, IllegalEvent};
use crate::ids::SessionId;
use crate::money::Usd;
use crate::outcome::Outcome;
use crate::policy::Policy;
use crate::refusal::Refusal;
use crate::time::Timestamp;
use crate::tree::node::PlannedEnd;

/// The default of `approval_s`: seconds until a question to a person expires.
pub const APPROVAL_EXPIRES_S: u64 = 15 * 60;

/// The default of `answer_min_ms`: the fewest milliseconds that a person needs to read a question
/// and answer it.
///
/// Clients without a person answer automatically: Claude Code after 12 ms, Codex after 1 ms.
pub const ANSWER_MIN_MS: u64 = 250;

impl Tree {
    pub(super) fn approve(
        &self,
        now: Timestamp,
        hash: String,
        up_to: Option<Usd>,
    ) -> Result<Vec<Event>, Refusal> {
        match self.approvals.get(&hash) {
            Some(pending) if pending.expires > now => {
                let parent = self.nodes[pending.parent].session;
                Ok(vec![Event::Approved { hash, parent, up_to }])
            }
            Some(_) => Err(Refusal::ApprovalDenied { reason: "the question has expired".into() }),
            None => Err(Refusal::ApprovalDenied { reason: "no such call is waiting".into() }),
        }
    }

    /// Takes an answer that a client relays. If it came faster than a person can answer, the
    /// question stays open.
    pub(super) fn relay_answer(
        &self,
        now: Timestamp,
        hash: String,
        answer: Result<(), String>,
        after_ms: u64,
    ) -> Result<Vec<Event>, Refusal> {
        if let Some(least) = self.policy.answer_min_ms.filter(|least| after_ms < *least) {
            let reason = format!(
                "the client answered after {after_ms} ms, and a person needs at least {least} ms; the \
                 question stays open"
            );
            return Err(Refusal::ApprovalDenied { reason });
        }
        match answer {
            Ok(()) => self.approve(now, hash, None),
            Err(reason) => self.deny_open(&hash, &reason),
        }
    }

    /// Says whether a call with this hash waits for approval.
    #[must_use]
    pub fn awaits_approval(&self, hash: &str) -> bool {
        self.approvals.contains_key(hash)
    }

    /// Denies a call, or refuses if no call with this hash is waiting.
    pub(super) fn deny_open(&self, hash: &str, reason: &str) -> Result<Vec<Event>, Refusal> {
        if self.awaits_approval(hash) {
            return Ok(self.deny(hash, reason));
        }
        Err(Refusal::ApprovalDenied { reason: "no such call is waiting".into() })
    }

    pub(super) fn deny(&self, hash: &str, reason: &str) -> Vec<Event> {
        let Some(pending) = self.approvals.get(hash) else { return Vec::new() };
        let refusal = Refusal::ApprovalDenied { reason: reason.to_owned() };
        let end = PlannedEnd { outcome: Outcome::Refused, reason: Some(refusal.reason()) };
        let mut events = vec![Event::Denied { hash: hash.to_owned(), reason: reason.to_owned() }];
        for &node in &pending.nodes {
            if self.nodes[node].is_live() {
                self.end_one(node, end.clone(), &mut events);
            }
        }
        events
    }

    /// Returns the reason for denying a question that expired.
    pub(super) fn nobody_answered(&self) -> String {
        let seconds = self.policy.approval_s;
        match (seconds / 60, seconds % 60) {
            (minutes, 0) if minutes > 1 => format!("nobody answered within {minutes} minutes"),
            _ => format!("nobody answered within {seconds} s"),
        }
    }

    pub(super) fn expire_approvals(&self, now: Timestamp) -> Vec<Event> {
        let expired = |(_, pending): &(&String, &PendingApproval)| pending.expires <= now;
        self.approvals
            .iter()
            .filter(expired)
            .flat_map(|(hash, _)| self.deny(hash, &self.nobody_answered()))
            .collect()
    }

    pub(super) fn fold_approval_asked(
        &mut self,
        parent: SessionId,
        call: u32,
        hash: &str,
        expires: Timestamp,
    ) -> Result<(), IllegalEvent> {
        let parent = self.known_index("approval_asked", parent)?;
        if call == WHOLE_RUN {
            return self.asked_to_begin(parent, hash, expires);
        }
        // Only the tasks of this call; an earlier call may still wait for its own approval.
        let waiting = |child: &&usize| {
            let child = &self.nodes[**child];
            child.call == call && child.is_awaiting_approval()
        };
        let nodes: Vec<usize> =
            self.nodes[parent].delegations.children.iter().filter(waiting).copied().collect();
        self.timers.insert((expires, parent, DeadlineKind::Approval));
        self.approvals.insert(hash.to_owned(), PendingApproval { expires, parent, nodes });
        Ok(())
    }

    pub(super) fn fold_approval_answered(
        &mut self,
        event: &'static str,
        hash: &str,
        yes: bool,
    ) -> Result<(), IllegalEvent> {
        let pending = self
            .approvals
            .remove(hash)
            .ok_or_else(|| illegal_event(event, "no such question is open"))?;
        self.forget_question(&pending);
        let waiting = |node: &usize| self.nodes[*node].is_awaiting_approval();
        let nodes: Vec<usize> = pending.nodes.into_iter().filter(waiting).collect();
        if yes {
            for node in nodes {
                self.enter(node, Phase::Queued);
                if node != pending.parent {
                    self.nodes[pending.parent].delegations.queue.push_back(node);
                }
            }
        }
        Ok(())
    }

    /// Removes the timer of a question, unless another question of the same parent expires at the
    /// same time.
    fn forget_question(&mut self, gone: &PendingApproval) {
        let same =
            |open: &PendingApproval| open.parent == gone.parent && open.expires == gone.expires;
        if !self.approvals.values().any(same) {
            self.timers.remove(&(gone.expires, gone.parent, DeadlineKind::Approval));
        }
    }

    /// Removes questions whose nodes have all ended.
    pub(super) fn forget_idle_questions(&mut self) {
        let nodes = &self.nodes;
        let idle: Vec<PendingApproval> = self
            .approvals
            .extract_if(.., |_, open| !open.nodes.iter().any(|node| nodes[*node].is_live()))
            .map(|(_, open)| open)
            .collect();
        idle.iter().for_each(|open| self.forget_question(open));
    }
}

/// Returns the worst-case cost and duration of tasks under a policy, which a person is asked to
/// approve.
#[must_use]
pub fn worst_case(policy: &Policy, grants: &[Grant]) -> (BudgetAmount, Option<u64>) {
    let tokens = policy.budget_tokens_run.unwrap_or(u64::MAX);
    let whole = BudgetAmount { tokens, usd: policy.budget_usd.unwrap_or(Usd::MAX) };
    worst_case_within(policy, whole, grants)
}

/// Like [`worst_case`], if only `left` remains of the run's budget.
#[must_use]
pub fn worst_case_within<'a>(
    policy: &Policy,
    left: BudgetAmount,
    grants: impl IntoIterator<Item = &'a Grant>,
) -> (BudgetAmount, Option<u64>) {
    let grants: Vec<&Grant> = grants.into_iter().collect();
    let each = policy.budget_tokens.unwrap_or(u64::MAX);
    let tokens = each.saturating_mul(grants.len() as u64).min(left.tokens);
    let dearest = grants
        .iter()
        .filter_map(|grant| grant.brief.model.as_ref()?.price)
        .map(|price| price.max_cost(tokens, 0).max(price.max_cost(0, tokens)))
        .max();
    let usd = dearest.map(|usd| usd.min(left.usd)).unwrap_or_default();
    // A call may have asked for less concurrency than the policy allows, and then takes longer.
    let places = grants.iter().map(|grant| grant.places).min().unwrap_or(1).max(1);
    let rounds = (grants.len() as u64).div_ceil(places);
    let longest = grants.iter().map(|grant| grant.timeout_s).max().flatten();
    let unbounded = grants.iter().any(|grant| grant.timeout_s.is_none());
    let seconds = longest.filter(|_| !unbounded).map(|seconds| seconds.saturating_mul(rounds));
    (BudgetAmount { tokens, usd }, seconds)
}

/// Returns the hash that an approval is bound to. It covers every byte of the grants, so nothing
/// can be swapped.
pub(super) fn call_hash(events: &[Event]) -> String {
    hash_of(events, Sha256::new())
}

/// Returns the hash of `events`, continuing `hash`.
pub(super) fn hash_of(events: &[Event], mut hash: Sha256) -> String {
    events.iter().for_each(|event| add_to(&mut hash, event));
    hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Adds every byte of an event to a hash.
pub(super) fn add_to(hash: &mut Sha256, event: &Event) {
    // Serialising an event cannot fail: all map keys are strings, and there is no IO.
    let bytes = serde_json::to_vec(event).unwrap_or_default();
    hash.update((bytes.len() as u64).to_be_bytes());
    hash.update(bytes);
}
