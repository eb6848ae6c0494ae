//! `delegationConfig`: what a PRD would like of the policy, of which only the tighter part counts.

use serde_json::{Value, json};

use super::fields::Fields;
use super::finding::Findings;
use super::read::Prd;
use crate::policy::{Key, Layered, Source};

/// The wishes of a PRD about delegation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DelegationConfig {
    /// Whether to delegate; `true` is a hint for a person, nothing more.
    pub enabled: Option<bool>,
    /// The deepest level; 0 switches delegation off.
    pub max_depth: Option<u64>,
    /// Tokens one agent's context may hold.
    pub max_context_per_agent: Option<u64>,
    /// The most children of one story; 0 switches delegation off.
    pub max_delegations_per_story: Option<u64>,
    /// Whether children may work at the same time.
    pub allow_parallel_execution: Option<bool>,
}

impl DelegationConfig {
    pub(super) fn read(root: &Fields<'_, '_>, out: &mut Findings<'_>) -> Self {
        let Some(fields) = root.object("delegationConfig", "delegationConfig.", out) else {
            return Self::default();
        };
        Self {
            enabled: fields.boolean("enabled", out),
            max_depth: fields.whole("max_depth", out),
            max_context_per_agent: fields.whole("max_context_per_agent", out),
            max_delegations_per_story: fields.whole("max_delegations_per_story", out),
            allow_parallel_execution: fields.boolean("allow_parallel_execution", out),
        }
    }

    /// Returns the keys it would set, in the order of the policy.
    fn layer(&self) -> Vec<(Key, Value)> {
        let is_off = self.enabled == Some(false)
            || self.max_depth == Some(0)
            || self.max_delegations_per_story == Some(0);
        let limit = |key: Key, limit: Option<u64>| {
            // None at all is delegation switched off, not a limit of zero.
            limit.filter(|limit| *limit > 0).map(|limit| (key, json!(limit)))
        };
        let alone = self.allow_parallel_execution == Some(false);
        [
            is_off.then(|| (Key::Enabled, json!(false))),
            limit(Key::MaxDepth, self.max_depth),
            limit(Key::ChildrenPerParent, self.max_delegations_per_story),
            alone.then(|| (Key::Concurrency, json!(1))),
            // No context at all is refused by the policy, with the reason.
            self.max_context_per_agent.map(|tokens| (Key::ContextTokens, json!(tokens))),
        ]
        .into_iter()
        .flatten()
        .collect()
    }
}

impl Prd {
    /// Tightens `policy` by what the PRD says; returns what it may not do, as warnings.
    ///
    /// `origin` names the PRD in them. Each key stands for itself: one that would widen the policy
    /// does not keep another from tightening it.
    pub fn tighten(&self, policy: &mut Layered, origin: &str) -> Vec<String> {
        let source = Source::Content(origin.to_owned());
        let set = |(key, value): (Key, Value)| policy.set(key.name(), &value, &source).err();
        self.config().layer().into_iter().filter_map(set).map(|error| error.to_string()).collect()
    }

    /// Says whether the PRD would like to delegate; a hint for a person who has not allowed it.
    #[must_use]
    pub fn wants_delegation(&self) -> bool {
        self.config().enabled == Some(true)
    }
}
