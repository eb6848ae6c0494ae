//! Limits that a person changes on resume: budgets, times and concurrency.
//!
//! Invariant: spent plus reserved stays within the new caps, because a cap is never set below what
//! is already taken.

use std::collections::BTreeMap;

use serde_json::Value;

use super::evolve::illegal_event;
use super::{ROOT, Tree};
use crate::budget::{BudgetCap, BudgetLedger};
use crate::command::ResumeOptions;
use crate::event::IllegalEvent;
use crate::policy::PolicyKey;

impl Tree {
    /// Returns the limits that the resume changes, by policy key.
    pub(super) fn changed_limits(&self, wish: &ResumeOptions) -> BTreeMap<String, Value> {
        let wanted = wish.limits.as_deref();
        wanted.map(|wanted| self.policy.limits_changed_by(wanted)).unwrap_or_default()
    }

    /// Applies changed limits to the policy and to every ledger.
    pub(super) fn set_limits(
        &mut self,
        limits: &BTreeMap<String, Value>,
    ) -> Result<(), IllegalEvent> {
        for (name, value) in limits {
            let set = self.policy.set_on_resume(name, value);
            set.map_err(|error| illegal_event("resumed", error.to_string()))?;
        }
        let is_set = |key: PolicyKey| limits.contains_key(key.name());
        for (index, node) in self.nodes.iter_mut().enumerate() {
            if is_set(PolicyKey::Concurrency) {
                node.delegations.places = self.policy.concurrency;
            }
            let mut cap = node.ledger.cap;
            if index == ROOT {
                if is_set(PolicyKey::BudgetTokensRun) {
                    cap.tokens = self.policy.budget_tokens_run;
                }
                if is_set(PolicyKey::BudgetUsd) {
                    cap.usd = self.policy.budget_usd;
                }
            } else if is_set(PolicyKey::BudgetTokens) {
                cap.tokens = self.policy.budget_tokens;
            }
            node.ledger.cap = at_least_taken(cap, &node.ledger);
        }
        Ok(())
    }
}

/// Raises a cap to what is already spent or reserved, so that no further call fits.
fn at_least_taken(cap: BudgetCap, ledger: &BudgetLedger) -> BudgetCap {
    let taken = ledger.settled.plus(ledger.reserved).minus(ledger.overrun);
    BudgetCap {
        tokens: cap.tokens.map(|tokens| tokens.max(taken.tokens)),
        usd: cap.usd.map(|usd| usd.max(taken.usd)),
    }
}
