//! What a PRD's `delegationConfig` does to the policy: each key may tighten it, none may widen it.

use serde_json::{Value, json};

use super::key::PolicyKey;
use super::layer::{LayeredPolicy, PolicySource};
use adjutant_formats::prd::DelegationConfig;

impl LayeredPolicy {
    /// Tightens the policy by what a PRD says; returns what it may not do, as warnings.
    ///
    /// `origin` names the PRD in them. Each key stands for itself: one that would widen the policy
    /// does not keep another from tightening it.
    pub fn tighten(&mut self, config: &DelegationConfig, origin: &str) -> Vec<String> {
        let source = PolicySource::Content(origin.to_owned());
        let set = |(key, value): (PolicyKey, Value)| self.set(key.name(), &value, &source).err();
        layer(config).into_iter().filter_map(set).map(|error| error.to_string()).collect()
    }
}

/// Returns the keys that the PRD would set, in the order of the policy.
fn layer(config: &DelegationConfig) -> Vec<(PolicyKey, Value)> {
    let is_off = config.enabled == Some(false)
        || config.max_depth == Some(0)
        || config.max_delegations_per_story == Some(0);
    let limit = |key: PolicyKey, limit: Option<u64>| {
        // None at all is delegation switched off, not a limit of zero.
        limit.filter(|limit| *limit > 0).map(|limit| (key, json!(limit)))
    };
    let alone = config.allow_parallel_execution == Some(false);
    [
        is_off.then(|| (PolicyKey::Enabled, json!(false))),
        limit(PolicyKey::MaxDepth, config.max_depth),
        limit(PolicyKey::ChildrenPerParent, config.max_delegations_per_story),
        alone.then(|| (PolicyKey::Concurrency, json!(1))),
        // No context at all is refused by the policy, with the reason.
        config.max_context_per_agent.map(|tokens| (PolicyKey::ContextTokens, json!(tokens))),
    ]
    .into_iter()
    .flatten()
    .collect()
}
