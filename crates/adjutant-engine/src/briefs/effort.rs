//! The reasoning effort of an agent: who may set it, and who may only lower it.

use std::collections::BTreeMap;

use adjutant_core::ReasoningEffort;

use crate::roster::{AgentDefinition, DefinitionScope};

/// The reasoning effort of agents, by name, from configuration files.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AgentEfforts {
    /// What the person set.
    pub user: BTreeMap<String, ReasoningEffort>,
    /// What the project's configuration asks for.
    pub project: BTreeMap<String, ReasoningEffort>,
}

impl AgentEfforts {
    /// Returns the effort of an agent on a model that the person set to `of_model`.
    ///
    /// The person's configuration for the agent comes first, then their own definition file, then the model's
    /// setting. Files of the project can only lower the result. Where the person set nothing, the provider's default
    /// is not known, so such a file can only ask for the lowest effort.
    pub(crate) fn of(
        &self,
        agent: &str,
        definition: Option<&AgentDefinition>,
        of_model: Option<ReasoningEffort>,
    ) -> Option<ReasoningEffort> {
        let defined = definition.and_then(|definition| definition.effort);
        let own = defined.filter(|_| definition.is_some_and(|it| it.effort_is_theirs));
        let theirs = self.user.get(agent).copied().or(own).or(of_model);
        let is_project = |it: &AgentDefinition| it.scope == DefinitionScope::Project;
        let asked = defined.filter(|_| definition.is_some_and(is_project));
        asked.into_iter().chain(self.project.get(agent).copied()).fold(theirs, lowered)
    }

    /// Returns why the effort in an agent's file has no effect; `None` if it has one.
    #[must_use]
    pub fn ignored(&self, definition: &AgentDefinition) -> Option<String> {
        let asked = definition.effort.filter(|_| definition.scope == DefinitionScope::Project)?;
        let used = self.of(definition.name.as_str(), Some(definition), None);
        (used != Some(asked)).then(|| {
            format!("effort {}: a project's file can only lower the effort you set", asked.as_str())
        })
    }
}

fn lowered(theirs: Option<ReasoningEffort>, asked: ReasoningEffort) -> Option<ReasoningEffort> {
    match theirs {
        Some(theirs) => Some(theirs.min(asked)),
        None => Some(asked).filter(|asked| *asked == ReasoningEffort::Low),
    }
}
