//! What a PRD's `delegationConfig` does to the policy: each key may tighten it, none may widen it.

use serde_json::{Value, json};

use super::key::Key;
use super::layer::{Layered, Source};
use adjutant_formats::prd::DelegationConfig;

impl Layered {
    /// Tightens the policy by what a PRD says; returns what it may not do, as warnings.
    ///
    /// `origin` names the PRD in them. Each key stands for itself: one that would widen the policy
    /// does not keep another from tightening it.
    pub fn tighten(&mut self, config: &DelegationConfig, origin: &str) -> Vec<String> {
        let source = Source::Content(origin.to_owned());
        let set = |(key, value): (Key, Value)| self.set(key.name(), &value, &source).err();
        layer(config).into_iter().filter_map(set).map(|error| error.to_string()).collect()
    }
}

/// Returns the keys that the PRD would set, in the order of the policy.
fn layer(config: &DelegationConfig) -> Vec<(Key, Value)> {
    let is_off = config.enabled == Some(false)
        || config.max_depth == Some(0)
        || config.max_delegations_per_story == Some(0);
    let limit = |key: Key, limit: Option<u64>| {
        // None at all is delegation switched off, not a limit of zero.
        limit.filter(|limit| *limit > 0).map(|limit| (key, json!(limit)))
    };
    let alone = config.allow_parallel_execution == Some(false);
    [
        is_off.then(|| (Key::Enabled, json!(false))),
        limit(Key::MaxDepth, config.max_depth),
        limit(Key::ChildrenPerParent, config.max_delegations_per_story),
        alone.then(|| (Key::Concurrency, json!(1))),
        // No context at all is refused by the policy, with the reason.
        config.max_context_per_agent.map(|tokens| (Key::ContextTokens, json!(tokens))),
    ]
    .into_iter()
    .flatten()
    .collect()
}
