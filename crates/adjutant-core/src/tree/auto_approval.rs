//! Calls that start without asking: a person said beforehand up to which amount.
//!
//! The amount is for the whole run. What counts against it is the worst case of each call, not what
//! it came to cost: nobody was asked, so nothing may be spent that was not foreseen.

use super::Tree;
use super::approvals::worst_case_within;
use crate::budget::BudgetAmount;
use crate::event::{Event, Grant};
use crate::ids::SessionId;
use crate::money::Usd;

impl Tree {
    /// Returns the most that work handed down by `parent` can still consume.
    ///
    /// What is held open for calls under way is not taken off: most of it comes back.
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

    /// Returns the worst case of a call when it may start without asking.
    pub(super) fn automatic(&self, parent: SessionId, events: &[Event]) -> Option<Usd> {
        let limit = self.policy.approve_below_usd?;
        let grants: Vec<&Grant> = granted(events).collect();
        // Whoever has no price could cost anything.
        let is_priced =
            |grant: &&Grant| grant.brief.model.as_ref().is_some_and(|model| model.price.is_some());
        if !grants.iter().all(is_priced) {
            return None;
        }
        let (worst, _) = worst_case_within(&self.policy, self.spendable(parent), grants);
        (self.auto_approved + worst.usd <= limit).then_some(worst.usd)
    }

    /// Returns the worst cases of the calls that started without asking, added up.
    #[must_use]
    pub const fn auto_approved(&self) -> Usd {
        self.auto_approved
    }
}

/// Turns the answer of a call that needs a person's yes into one that does not.
///
/// The record of it comes first: whatever is torn off behind it, the amount is counted.
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

fn granted(events: &[Event]) -> impl Iterator<Item = &Grant> {
    events.iter().filter_map(|event| {
        if let Event::Granted(grant) = event { Some(grant.as_ref()) } else { None }
    })
}
