//! `delegationConfig`: limits requested by a PRD; they can only tighten the policy.

use super::finding::PrdFindings;
use super::read::Prd;
use crate::fields::{FieldReader, FieldValue};

/// The delegation limits that a PRD requests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PrdDelegationConfig {
    /// Whether to delegate. `true` is only a hint for the user.
    pub enabled: Option<bool>,
    /// The maximum depth; 0 switches delegation off.
    pub max_depth: Option<u64>,
    /// The maximum context of one agent, in tokens.
    pub max_context_per_agent: Option<u64>,
    /// The maximum number of children of one story; 0 switches delegation off.
    pub max_delegations_per_story: Option<u64>,
    /// Whether children may run in parallel.
    pub allow_parallel_execution: Option<bool>,
}

impl PrdDelegationConfig {
    pub(super) fn read(root: &FieldReader<'_>, out: &mut PrdFindings<'_>) -> Self {
        let name = "delegationConfig";
        let Some(fields) = out.keep(root.optional(name, |value| FieldReader::new(value, name)))
        else {
            return Self::default();
        };
        let whole = |name, out: &mut PrdFindings<'_>| {
            out.keep(fields.optional(name, FieldValue::any_integer))
        };
        Self {
            enabled: out.keep(fields.optional("enabled", FieldValue::boolean)),
            max_depth: whole("max_depth", out),
            max_context_per_agent: whole("max_context_per_agent", out),
            max_delegations_per_story: whole("max_delegations_per_story", out),
            allow_parallel_execution: out
                .keep(fields.optional("allow_parallel_execution", FieldValue::boolean)),
        }
    }
}

impl Prd {
    /// Returns whether the PRD asks for delegation, for a hint to users who have not allowed it.
    #[must_use]
    pub fn wants_delegation(&self) -> bool {
        self.config().enabled == Some(true)
    }
}
