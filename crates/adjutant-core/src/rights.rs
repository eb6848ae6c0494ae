//! What a delegation may do: rights only shrink on the way down.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::policy::{Policy, Preset, WorkspaceKind};
use crate::write::{EDIT, RUN, WRITE, WriteScope};

const READ_ONLY: [&str; 6] = ["Read", "Grep", "Glob", "WebFetch", "WebSearch", "Note"];
const WRITING: [&str; 3] = [EDIT, WRITE, RUN];
const DELEGATING: [&str; 2] = ["Delegate", "Task"];
const CHANGING: [&str; 2] = [EDIT, WRITE];
const NETWORK: [&str; 2] = ["WebFetch", "WebSearch"];

/// Tools that may be run again when nobody knows whether they ran: they change nothing.
const REPEATABLE: [&str; 4] = ["Read", "Grep", "Glob", "Note"];

/// Says whether a call of the tool may be made a second time without harm.
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

    /// Returns what a reader holds: inspection, search and its scratchpad.
    #[must_use]
    pub fn read_only() -> Self {
        Self::new(READ_ONLY)
    }

    /// Returns what an agent of `command` holds: reading, and writing below the specs folder.
    #[must_use]
    pub fn command() -> Self {
        Self::new(READ_ONLY.into_iter().chain(DELEGATING).chain(CHANGING))
    }

    /// Returns every tool there is.
    #[must_use]
    pub fn all() -> Self {
        Self::new(READ_ONLY.into_iter().chain(WRITING).chain(DELEGATING))
    }

    /// Returns the set with one more tool in it.
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
    pub fn beyond(&self, other: &Self) -> Self {
        Self(self.0.difference(&other.0).cloned().collect())
    }

    /// Returns the tools that both sets hold.
    #[must_use]
    pub fn intersection(&self, other: &Self) -> Self {
        Self(self.0.intersection(&other.0).cloned().collect())
    }

    /// Says whether there is no tool in the set.
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

/// What a delegation may do.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rights {
    /// The tools it may call.
    pub tools: ToolSet,
    /// Whether its tools may reach the network.
    #[serde(default)]
    pub network: bool,
    /// Where its tools may write.
    #[serde(default, skip_serializing_if = "WriteScope::is_nowhere")]
    pub writes: WriteScope,
}

impl Rights {
    /// Returns what a policy permits: its tools, and delegating, which only depth takes away.
    #[must_use]
    pub fn of(policy: &Policy) -> Self {
        let tools = policy.tools.iter().chain(DELEGATING);
        let writes = match &policy.write_below {
            // A scout reads the tree of a person, whatever else is set.
            _ if policy.in_place && policy.preset != Preset::Scout => WriteScope::Anywhere,
            _ if policy.workspace == WorkspaceKind::Own => WriteScope::Own,
            _ if policy.preset == Preset::Scout => WriteScope::Nowhere,
            Some(folder) => WriteScope::Below(folder.clone()),
            None => WriteScope::Nowhere,
        };
        Self { tools: ToolSet::new(tools), network: policy.network, writes }
    }

    /// Returns what both sides permit.
    #[must_use]
    pub fn intersection(&self, other: &Self) -> Self {
        Self {
            tools: self.tools.intersection(&other.tools),
            network: self.network && other.network,
            writes: self.writes.intersection(&other.writes),
        }
    }

    /// Returns the tools that are really usable: network tools only with the network, and those that
    /// change files only where there is a place to write.
    #[must_use]
    pub fn usable_tools(&self) -> ToolSet {
        let tools = if self.network { self.tools.clone() } else { self.tools.without(&NETWORK) };
        match self.writes {
            WriteScope::Nowhere => tools.without(&WRITING),
            WriteScope::Own => tools,
            // What a command does to the tree of a person, nobody could take back.
            WriteScope::Below(_) | WriteScope::Anywhere => tools.without(&[RUN]),
        }
    }

    /// Says whether these are the rights of one who writes in a workspace of its own.
    #[must_use]
    pub fn has_own_space(&self) -> bool {
        self.writes == WriteScope::Own && WRITING.iter().any(|tool| self.tools.contains(tool))
    }

    /// Returns these rights without any place to write.
    #[must_use]
    pub fn reading(&self) -> Self {
        Self { writes: WriteScope::Nowhere, ..self.clone() }
    }

    /// Returns these rights without the tools that delegate, for an agent at the deepest level.
    #[must_use]
    pub fn without_delegation(&self) -> Self {
        Self { tools: self.tools.without(&DELEGATING), ..self.clone() }
    }
}
