//! What the delegations of a run consumed, as samples for the registry.

use std::collections::BTreeSet;

use adjutant_core::registry::{DelegationSample, SampleGroup, SampleKey};
use adjutant_core::{DelegationState, Outcome, SessionId};

use crate::{Delegation, RunView};

/// Returns a sample of each of these delegations that did its work, in the order of admission.
///
/// Refused and cancelled ones say nothing about what a task consumes, and neither do estimates: a call that was cut off is
/// counted at what was reserved for it, which is many times what such a call takes.
#[must_use]
pub fn sample_groups(view: &RunView, ended: &BTreeSet<SessionId>) -> Vec<SampleGroup> {
    let Some(policy) = view.policy() else { return Vec::new() };
    let of_delegation = |it: &Delegation| {
        let worked = matches!(
            it.state,
            DelegationState::Ended(
                Outcome::Completed | Outcome::Partial | Outcome::Failed | Outcome::Blocked
            )
        );
        let took = it.elapsed(it.ended?.at).filter(|_| worked && it.inclusive.calls > 0)?;
        if it.inclusive.is_estimated() {
            return None;
        }
        let worker = it.worker.as_ref().map(|worker| worker.name.clone());
        let key = SampleKey { preset: policy.preset, model: it.model.clone()?, worker };
        let cost = Some(it.inclusive.usd).filter(|_| it.inclusive.unpriced_tokens == 0);
        let elapsed_ms = u64::try_from(took.as_millis()).unwrap_or(u64::MAX);
        Some((key, DelegationSample::new(it.inclusive.usage.total(), cost, elapsed_ms)))
    };
    let all = view.delegations().filter(|it| ended.contains(&it.session));
    SampleGroup::collect(all.filter_map(of_delegation))
}
