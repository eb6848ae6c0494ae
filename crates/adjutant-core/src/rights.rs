//! The rights of a delegation: tools, network and where it may write. Rights only shrink from
//! parent to child.
//!
//! [`ToolSet`] is a set of tool names; [`Rights`] are all rights of one delegation.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::policy::{Policy, Preset, WorkspaceSharing};
use crate::write::{EDIT, RUN, WRITE, WriteScope};

const READ_ONLY: [&str; 6] = ["Read", "Grep", "Glob", "WebFetch", "WebSearch", "Note"];
const WRITING: [&str; 3] = [EDIT, WRITE, RUN];
const DELEGATING: [&str; 2] = ["Delegate", "Task"];
const CHANGING: [&str; 2] = [EDIT, WRITE];
const NETWORK: [&str; 2] = ["WebFetch", "WebSearch"];

/// Tools that may run again after a crash, because they change nothing.
const REPEATABLE: [&str; 4] = ["Read", "Grep", "Glob", "Note"];

/// Says whether the tool can safely run a second time.
pub(crate) fn is_repeatable(tool: &str) -> bool {
    REPEATABLE.contains(&tool)
}

/// A set of tool names, in alphabetical order.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct ToolSet(BTreeSet<Arc<str>>);

impl ToolSet {
    /// Collects tool names.
    pub fn new<'a>(names: impl IntoIterator<Item = &'a str>) -> Self {
        Self(names.into_iter().map(Arc::from).collect())
    }

    /// Returns the tools of a read-only agent: inspection, search and notes.
    #[must_use]
    pub fn read_only() -> Self {
        Self::new(READ_ONLY)
    }

    /// Returns the tools of an agent of the preset `command`: reading, delegating, and writing in
    /// the specs directory.
    #[must_use]
    pub fn command() -> Self {
        Self::new(READ_ONLY.into_iter().chain(DELEGATING).chain(CHANGING))
    }

    /// Returns all tools.
    #[must_use]
    pub fn all() -> Self {
        Self::new(READ_ONLY.into_iter().chain(WRITING).chain(DELEGATING))
    }

    /// Returns the set with one more tool.
    #[must_use]
    pub(crate) fn with(mut self, name: &str) -> Self {
        self.0.insert(Arc::from(name));
        self
    }

    /// Says whether `name` is in the set.
    #[must_use]
    pub fn contains(&self, name: &str) -> bool {
        self.0.contains(name)
    }

    /// Returns the tools of `self` that `other` lacks.
    #[must_use]
    pub fn difference(&self, other: &Self) -> Self {
        Self(self.0.difference(&other.0).cloned().collect())
    }

    /// Returns the tools that both sets hold.
    #[must_use]
    pub fn intersection(&self, other: &Self) -> Self {
        Self(self.0.intersection(&other.0).cloned().collect())
    }

    /// Says whether the set is empty.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the names in order.
    pub fn iter(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(AsRef::as_ref)
    }

    fn without(&self, names: &[&str]) -> Self {
        Self(self.0.iter().filter(|name| !names.contains(&name.as_ref())).cloned().collect())
    }
}

impl fmt::Display for ToolSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.iter().collect::<Vec<_>>().join(", "))
    }
}

/// What a delegation may do: its tools, the network, and where it may write.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rights {
    /// The tools it may call.
    pub tools: ToolSet,
    /// Whether its tools may reach the network.
    #[serde(default)]
    pub network: bool,
    /// Where its tools may write files.
    #[serde(default, skip_serializing_if = "WriteScope::is_nowhere")]
    pub writes: WriteScope,
}

impl Rights {
    /// Returns the rights that a policy grants: its tools, and delegation, which only the depth
    /// limit removes.
    #[must_use]
    pub fn of(policy: &Policy) -> Self {
        let tools = policy.tools.iter().chain(DELEGATING);
        let writes = match &policy.write_below {
            // The preset `scout` never writes, whatever else is set.
            _ if policy.in_place && policy.preset != Preset::Scout => WriteScope::Anywhere,
            _ if policy.workspace == WorkspaceSharing::Own => WriteScope::Own,
            _ if policy.preset == Preset::Scout => WriteScope::Nowhere,
            Some(folder) => WriteScope::Below(folder.clone()),
            None => WriteScope::Nowhere,
        };
        Self { tools: ToolSet::new(tools), network: policy.network, writes }
    }

    /// Returns the rights that both sides grant.
    #[must_use]
    pub fn intersection(&self, other: &Self) -> Self {
        Self {
            tools: self.tools.intersection(&other.tools),
            network: self.network && other.network,
            writes: self.writes.intersection(&other.writes),
        }
    }

    /// Returns the tools that can really be used: network tools need network access, and tools that
    /// write need a scope to write in.
    #[must_use]
    pub fn usable_tools(&self) -> ToolSet {
        let tools = if self.network { self.tools.clone() } else { self.tools.without(&NETWORK) };
        match self.writes {
            WriteScope::Nowhere => tools.without(&WRITING),
            WriteScope::Own => tools,
            // Shell commands in the user's own tree are not allowed: their changes could not be
            // undone.
            WriteScope::Below(_) | WriteScope::Anywhere => tools.without(&[RUN]),
        }
    }

    /// Says whether the delegation needs a workspace of its own.
    #[must_use]
    pub fn has_own_space(&self) -> bool {
        self.writes == WriteScope::Own && WRITING.iter().any(|tool| self.tools.contains(tool))
    }

    /// Returns these rights without writing.
    #[must_use]
    pub fn without_writing(&self) -> Self {
        Self { writes: WriteScope::Nowhere, ..self.clone() }
    }

    /// Returns these rights without the delegation tools, for an agent at the deepest level.
    #[must_use]
    pub fn without_delegation(&self) -> Self {
        Self { tools: self.tools.without(&DELEGATING), ..self.clone() }
    }
}
