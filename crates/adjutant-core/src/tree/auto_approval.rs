//! Calls that start without approval, within `approve_below_usd` or what a person allowed at a question.
//!
//! The amount is for the whole run. Each call counts with its worst case instead of its cost, so
//! that no unapproved cost can exceed the amount.

use super::Tree;
use super::approvals::worst_case_within;
use crate::budget::BudgetAmount;
use crate::event::{Event, Grant};
use crate::ids::SessionId;
use crate::money::Usd;

impl Tree {
    /// Returns the most that delegations of `parent` can still spend.
    ///
    /// Reservations of running calls are not subtracted: most of them are returned.
    #[must_use]
    pub fn spendable(&self, parent: SessionId) -> BudgetAmount {
        let unlimited = BudgetAmount { tokens: u64::MAX, usd: Usd::MAX };
        let Some(&index) = self.by_session.get(&parent) else { return unlimited };
        self.chain(index).fold(unlimited, |least, node| {
            let cap = BudgetAmount {
                tokens: node.ledger.cap.tokens.unwrap_or(u64::MAX),
                usd: node.ledger.cap.usd.unwrap_or(Usd::MAX),
            };
            let left = cap.minus(node.ledger.settled);
            BudgetAmount { tokens: least.tokens.min(left.tokens), usd: least.usd.min(left.usd) }
        })
    }

    /// Returns the worst-case cost of a call if it may start without approval.
    pub(super) fn auto_approved_cost(&self, parent: SessionId, events: &[Event]) -> Option<Usd> {
        let limit = self.auto_approval_limit()?;
        let grants: Vec<&Grant> = grants_in(events).collect();
        // A model without a price could cost anything.
        let is_priced =
            |grant: &&Grant| grant.brief.model.as_ref().is_some_and(|model| model.price.is_some());
        if !grants.iter().all(is_priced) {
            return None;
        }
        let (worst, _) = worst_case_within(&self.policy, self.spendable(parent), grants);
        (self.auto_approved + worst.usd <= limit).then_some(worst.usd)
    }

    /// Returns the sum of worst cases up to which calls start without approval.
    #[must_use]
    pub fn auto_approval_limit(&self) -> Option<Usd> {
        self.policy.approve_below_usd.max(self.approved_up_to)
    }

    /// Counts `amount` from here on: what started unasked before does not use it up.
    pub(super) fn allow_further_calls(&mut self, amount: Option<Usd>) {
        if let Some(amount) = amount {
            self.approved_up_to = Some(self.auto_approved + amount);
        }
    }

    /// Returns the sum of the worst cases of auto-approved calls.
    #[must_use]
    pub const fn auto_approved(&self) -> Usd {
        self.auto_approved
    }
}

/// Changes the grants of a call so that they need no approval.
///
/// `AutoApproved` comes first: if the journal is cut off after it, the amount still counts.
pub(super) fn start_without_asking(
    events: &mut Vec<Event>,
    parent: SessionId,
    call: u32,
    hash: String,
    amount: Usd,
) {
    for event in events.iter_mut() {
        if let Event::Granted(grant) = event {
            grant.awaiting_approval = false;
        }
    }
    events.insert(0, Event::AutoApproved { parent, call, hash, amount });
}

fn grants_in(events: &[Event]) -> impl Iterator<Item = &Grant> {
    events.iter().filter_map(|event| {
        if let Event::Granted(grant) = event { Some(grant.as_ref()) } else { None }
    })
}
