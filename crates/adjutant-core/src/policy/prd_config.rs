//! Applies the `delegationConfig` of a PRD to a policy: each key may tighten it, none may loosen
//! it.

use serde_json::{Value, json};

use super::key::PolicyKey;
use super::layer::{LayeredPolicy, PolicySource};
use adjutant_formats::prd::PrdDelegationConfig;

impl LayeredPolicy {
    /// Tightens the policy by the settings of a PRD. Returns a warning for each setting that was
    /// rejected.
    ///
    /// `origin` names the PRD in the warnings. A rejected key does not affect the others.
    pub fn tighten(&mut self, config: &PrdDelegationConfig, origin: &str) -> Vec<String> {
        let source = PolicySource::Content(origin.to_owned());
        let set = |(key, value): (PolicyKey, Value)| self.set(key.name(), &value, &source).err();
        layer(config).into_iter().filter_map(set).map(|error| error.to_string()).collect()
    }
}

/// Returns the policy keys that the PRD sets.
fn layer(config: &PrdDelegationConfig) -> Vec<(PolicyKey, Value)> {
    let is_off = config.enabled == Some(false)
        || config.max_depth == Some(0)
        || config.max_delegations_per_story == Some(0);
    let limit = |key: PolicyKey, limit: Option<u64>| {
        // Zero disables delegation (above) instead of being a limit.
        limit.filter(|limit| *limit > 0).map(|limit| (key, json!(limit)))
    };
    let alone = config.allow_parallel_execution == Some(false);
    [
        is_off.then(|| (PolicyKey::Enabled, json!(false))),
        limit(PolicyKey::MaxDepth, config.max_depth),
        limit(PolicyKey::ChildrenPerParent, config.max_delegations_per_story),
        alone.then(|| (PolicyKey::Concurrency, json!(1))),
        // Zero is passed on: the policy rejects it with a reason.
        config.max_context_per_agent.map(|tokens| (PolicyKey::ContextTokens, json!(tokens))),
    ]
    .into_iter()
    .flatten()
    .collect()
}
